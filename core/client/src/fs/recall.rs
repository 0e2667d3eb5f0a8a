//! Reading what is in objects without bringing it back to flash.

use std::sync::Arc;

use braid_base::Result;
use braid_base::ids::{Index, Ino};
use braid_base::limits::{CHUNK, OBJECT_READ_MAX};
use braid_base::record::{ObjectAt, Place};
use bytes::Bytes;

use super::data::READ_MAX;
use super::{Fs, WireStage};
use crate::join::join_in_bursts;
use crate::reader::{OBJECTS_AT_ONCE, StageSource, object_parts};
use crate::stream::Fetching;
use crate::wire::BoxFuture;

impl Fs {
    /// As [`Fs::read`], but what is in objects only stays there: it is read from its store each time, and nobody counts it
    /// as read. Whoever reads from front to back is read ahead of.
    pub async fn read_direct(&self, ino: Ino, off: u64, len: u64) -> Result<Bytes> {
        let len = len.min(READ_MAX);
        if let (Some(background), Some((from, to))) = (self.afterwards(), self.0.streams.read(ino, off, len)) {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                if let Err(error) = this.fetch_ahead(ino, from, to).await {
                    // Whoever reads it asks again, and hears what is wrong.
                    tracing::debug!(%ino, %error, "not read ahead");
                }
            }));
        }
        self.read_over(ino, off, len, self.read_below(ino, off, len, false)).await
    }

    /// Begins to fetch what of `[from, to)` is in objects only.
    async fn fetch_ahead(&self, ino: Ino, from: u64, to: u64) -> Result<()> {
        let Some(background) = self.afterwards() else { return Ok(()) };
        let known = self.lease(ino).and_then(|_| self.0.layouts.find(ino, from, to - from, false));
        let (size, chunks) = match known {
            Some(known) => known,
            None => self.ask_chunks(ino, from, to - from, false).await?,
        };
        let end = to.min(size);
        // What follows each other in an object comes together, whichever chunks it is of.
        let mut runs: Vec<(ObjectAt, u32)> = Vec::new();
        for (at, extent) in chunks.iter().flat_map(|chunk| &chunk.extents) {
            let (first, last) = ((*at).max(from), (at + u64::from(extent.len)).min(end));
            let Place::Object(place) = extent.place else { continue };
            if first >= last {
                continue;
            }
            let (place, len) = (place.advanced((first - at) as u32), (last - first) as u32);
            match runs.last_mut() {
                Some((start, run)) if start.blob == place.blob && start.off.checked_add(*run) == Some(place.off) => {
                    *run += len;
                }
                _ => runs.push((place, len)),
            }
        }
        if let Some((start, run)) = runs.last_mut().filter(|_| to < size) {
            let rest = (start.off + *run) % OBJECT_READ_MAX as u32;
            if (1..*run).contains(&rest) && self.0.streams.put_off(ino, to, rest.into()) {
                *run -= rest;
            }
        }
        // From front to back: what lies side by side comes with few requests of the store.
        let parts = runs.into_iter().flat_map(|(at, len)| object_parts(at, len));
        let begun = parts.filter_map(|(at, len, more)| Some((at, (len, more), self.0.streams.begin(at, len)?)));
        let fetches = begun.map(|(at, lens, fetching)| fetch(self.stage(ino), at, lens, fetching)).collect();
        background.spawn(Box::pin(async move { drop(join_in_bursts(OBJECTS_AT_ONCE, fetches).await) }));
        Ok(())
    }

    /// What a reader of `ino` that brings nothing back asks.
    pub(super) fn ahead_stage(&self, ino: Ino) -> AheadStage {
        AheadStage { fs: self.clone(), stage: Arc::new(self.stage(ino)) }
    }
}

fn fetch(stage: WireStage, at: ObjectAt, (len, more): (u32, u32), fetching: Fetching) -> BoxFuture<()> {
    assert!(u64::from(len) <= CHUNK, "what is asked for at a time");
    Box::pin(async move { fetching.done(stage.object(at, len, more).await) })
}

/// A partition, and what was fetched from its objects ahead of need.
pub(super) struct AheadStage {
    fs: Fs,
    stage: Arc<WireStage>,
}

impl StageSource for AheadStage {
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>> {
        self.stage.read(at, poff, len)
    }

    fn object(&self, at: ObjectAt, len: u32, more: u32) -> BoxFuture<Result<Bytes>> {
        let Some(fetched) = self.fs.0.streams.take(at, len) else { return self.stage.object(at, len, more) };
        let stage = Arc::clone(&self.stage);
        Box::pin(async move {
            match fetched.bytes(at, len).await {
                Ok(bytes) => Ok(bytes),
                // It may have gone well since.
                Err(_) => stage.object(at, len, 0).await,
            }
        })
    }
}
