//! A store in memory, whose objects a test can damage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_base::{Error, ErrorKind, Result};
use braid_tier::{BoxFuture, Listed, Store};
use bytes::Bytes;

/// Objects that one listing shows.
const PAGE: usize = 10;

/// The store.
#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    failing: Mutex<(usize, Option<ErrorKind>)>,
    lost: Mutex<Option<String>>,
}

impl Memory {
    pub fn insert(&self, key: &str, bytes: Vec<u8>) {
        self.lock().insert(key.to_owned(), bytes);
    }

    pub fn bytes(&self, key: &str) -> Vec<u8> {
        self.lock()[key].clone()
    }

    pub fn len(&self, key: &str) -> usize {
        self.lock()[key].len()
    }

    /// Turns a bit of byte `at` around.
    pub fn flip(&self, key: &str, at: usize) {
        self.flip_bit(key, at, 1);
    }

    pub fn flip_bit(&self, key: &str, at: usize, bit: u8) {
        self.lock().get_mut(key).expect("it is there")[at] ^= bit;
    }

    /// Lets the next `count` requests fail.
    pub fn fail_next(&self, count: usize, kind: ErrorKind) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = (count, Some(kind));
    }

    /// Goes on to list an object, and says that there is none.
    pub fn lose(&self, key: &str) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.to_owned());
    }

    fn has_lost(&self, key: &str) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(key)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> Result<T>,
    ) -> BoxFuture<Result<T>> {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match *failing {
            (1.., Some(kind)) => {
                failing.0 -= 1;
                Err(kind.into())
            }
            _ => work(&mut self.lock()),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn found<'a>(objects: &'a BTreeMap<String, Vec<u8>>, key: &str) -> Result<&'a Vec<u8>> {
    objects.get(key).ok_or_else(|| ErrorKind::NotFound.into())
}

impl Store for Memory {
    fn put(&self, key: &str, parts: Vec<Bytes>) -> BoxFuture<Result<()>> {
        self.answer(|objects| {
            objects.insert(key.to_owned(), parts.concat());
            Ok(())
        })
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        let lost = self.has_lost(key);
        self.answer(|objects| {
            let bytes = if lost { Err(ErrorKind::NotFound.into()) } else { found(objects, key) }?;
            let range = range.map_or(0..bytes.len(), |range| range.start as usize..range.end as usize);
            let ends = || Error::new(ErrorKind::Range, format!("expected bytes {range:?}, found {}", bytes.len()));
            bytes.get(range.clone()).map(Bytes::copy_from_slice).ok_or_else(ends)
        })
    }

    fn size(&self, key: &str) -> BoxFuture<Result<u64>> {
        self.answer(|objects| Ok(found(objects, key)?.len() as u64))
    }

    fn delete(&self, key: &str) -> BoxFuture<Result<()>> {
        self.answer(|objects| {
            objects.remove(key);
            Ok(())
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        self.answer(|objects| {
            let all = objects
                .iter()
                .filter(|(key, _)| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
            Ok(all
                .take(PAGE)
                .map(|(key, bytes)| Listed { key: key.clone(), size: bytes.len() as u64, modified_s: 0 })
                .collect())
        })
    }
}
