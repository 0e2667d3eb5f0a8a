//! A view whose reads fail from some moment on.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_base::{ErrorKind, Result};
use braid_replica::{Batch, Kv, MapKv};

pub struct Failing {
    inner: MapKv,
    /// Reads that succeed yet.
    left: AtomicU64,
}

impl Failing {
    pub fn new() -> Self {
        Self { inner: MapKv::new(), left: AtomicU64::new(u64::MAX) }
    }

    /// After so many more reads all fail.
    pub fn fail_after(&self, reads: u64) {
        self.left.store(reads, Ordering::Relaxed);
    }

    /// All reads succeed again.
    pub fn heal(&self) {
        self.fail_after(u64::MAX);
    }

    fn count(&self) -> Result<()> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.checked_sub(1).ok_or(ErrorKind::Io)?, Ordering::Relaxed);
        Ok(())
    }
}

impl Kv for Failing {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.count()?;
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.count()?;
        self.inner.scan(from, to, visit)
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        self.inner.apply(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
}
