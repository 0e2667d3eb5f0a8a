//! An object store that fails in its own ways: what was put may be there although nobody heard, or arrive late.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, Ino, StoreId, Term};
use braid_base::keys;
use braid_base::limits::BLOCK;
use braid_base::msg::fs::{Op, TierWant};
use braid_base::msg::job::{RemoveJob, UploadJob};
use braid_base::record::{BlobRec, ObjectAt, Record};
use braid_base::{Error, ErrorKind};
use braid_meta::{Event, TierPolicy};
use braid_replica::Kv;

use super::{FS, P, World};
use crate::model::Act;

/// What lies in the store, and what is asked of it.
#[derive(Default)]
pub struct Objects {
    there: BTreeMap<(BlobId, Term), Vec<u8>>,
    /// The store of each.
    stores: BTreeMap<(BlobId, Term), StoreId>,
    /// Names that were ever written.
    written: BTreeSet<(BlobId, Term)>,
    pub uploads: Vec<UploadJob>,
    pub removals: Vec<RemoveJob>,
    /// Removals fail, and remove nothing.
    pub keeps_all: bool,
    /// Answers that are due.
    done: Vec<(u64, bool)>,
}

impl Objects {
    pub fn is_idle(&self) -> bool {
        self.uploads.is_empty() && self.removals.is_empty() && self.done.is_empty()
    }

    /// Objects that are there.
    pub fn count(&self) -> usize {
        self.there.len()
    }

    /// Those of one store.
    pub fn in_store(&self, store: StoreId) -> usize {
        self.there.keys().filter(|key| self.stores.get(key) == Some(&store)).count()
    }

    /// Somebody removes the object at that place of all; which it was, and what it held.
    pub fn lose(&mut self, at: usize) -> Option<(BlobId, Vec<u8>)> {
        let key = *self.there.keys().nth(at)?;
        Some((key.0, self.there.remove(&key)?))
    }

    /// Puts it there again, as it was sent in the first term.
    pub fn find(&mut self, blob: BlobId, bytes: Vec<u8>) {
        self.there.insert((blob, Term(1)), bytes);
    }

    /// The primary died: nobody works for it any more.
    pub fn forget_work(&mut self) {
        self.uploads.clear();
        self.removals.clear();
        self.done.clear();
    }
}

impl World {
    /// Tells the partition of its store, if it is to have one.
    pub fn set_tiers(&mut self) {
        if !self.wish.tiered {
            return;
        }
        let policy = TierPolicy {
            writable: Some(StoreId(1)),
            leaving: BTreeSet::new(),
            given_up: BTreeSet::new(),
            cue_s: 1 + self.chance.below(4) as u32,
            retention_s: 3 + self.chance.below(10) as u32,
            object_bytes: (1 + self.chance.below(24) as u32) * BLOCK as u32,
            flash_bytes: self.chance.percent(50).then(|| 1 << (12 + self.chance.below(8))),
            prefetch_bytes: self.chance.below(3) << 20,
        };
        self.part.state_mut().set_tiers([(FS, policy)].into());
    }

    /// Perhaps somebody wants a file on flash, or off it.
    pub fn ask_tier(&mut self, ino: Ino) -> Result<(), String> {
        let want = if self.chance.percent(50) { TierWant::Flash } else { TierWant::Object };
        let answer = self.sync(Op::Tier { ino, off: 0, len: u64::MAX, want }, Act::Other)?;
        answer.map(drop).map_err(|error| format!("{want:?} of {ino}: {error}"))
    }

    /// One piece of work of the store, and perhaps an answer.
    pub fn run_objects(&mut self) -> Result<(), String> {
        if self.wish.tiered && self.chance.percent(10) {
            self.some_file().map_or(Ok(()), |ino| self.ask_tier(ino))?;
        }
        self.work_store()
    }

    /// The store does something, and perhaps answers.
    pub fn work_store(&mut self) -> Result<(), String> {
        // Much happens while an object is on its way.
        if !self.objects.uploads.is_empty() && (self.chance.percent(40) || !self.wish.chaos) {
            let which = self.chance.below(self.objects.uploads.len() as u64) as usize;
            let job = self.objects.uploads.remove(which);
            self.upload(job)?;
        }
        if !self.objects.removals.is_empty() {
            let which = self.chance.below(self.objects.removals.len() as u64) as usize;
            let job = self.objects.removals.remove(which);
            let (fails, works) = (self.wish.chaos && self.chance.percent(15), self.chance.percent(50));
            let (fails, works) = (fails || self.objects.keeps_all, works && !self.objects.keeps_all);
            if !fails || works {
                self.objects.there.remove(&(job.key.blob, job.key.term));
                self.met.insert("an object removed");
            }
            self.objects.done.push((job.id, !fails));
        }
        if !self.objects.done.is_empty() && (self.chance.percent(40) || !self.wish.chaos) {
            let which = self.chance.below(self.objects.done.len() as u64) as usize;
            let (id, good) = self.objects.done.remove(which);
            let result = if good { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the store failed")) };
            self.feed(Event::JobDone(id, result))?;
        }
        Ok(())
    }

    fn upload(&mut self, job: UploadJob) -> Result<(), String> {
        let key = (job.key.blob, job.key.term);
        if job.key.term.0 < self.term {
            self.met.insert("a late upload");
        }
        let (bytes, mut good) = self.gathered(&job.parts)?;
        let blocks: u32 = job.runs.iter().map(|run| run.blocks).sum();
        if good && bytes.len() != blocks as usize * BLOCK {
            return Err(format!("{:?}: {} bytes in {blocks} blocks", job.key, bytes.len()));
        }
        let fails = self.wish.chaos && self.chance.percent(20);
        if good && (!fails || self.chance.percent(50)) {
            if !self.objects.written.insert(key) {
                return Err(format!("{:?} is written twice", job.key));
            }
            self.objects.there.insert(key, bytes);
            self.objects.stores.insert(key, job.key.store);
            self.met.insert("an object");
        }
        good &= !fails;
        if !good {
            self.met.insert("a failed upload");
        }
        self.objects.done.push((job.id, good));
        Ok(())
    }

    /// The bytes of a place in an object, by its committed record.
    pub fn object_bytes(&self, at: ObjectAt, len: u32) -> Result<Vec<u8>, String> {
        let rec = self.kv.get(&keys::blob(P, at.blob)).map_err(|error| error.to_string())?;
        let rec =
            BlobRec::decode(&rec.ok_or(format!("there is no {}", at.blob))?).map_err(|error| error.to_string())?;
        let object = self.objects.there.get(&(at.blob, rec.term)).ok_or(format!("{} is not in the store", at.blob))?;
        let found = object.get(at.off as usize..(at.off + len) as usize);
        found.map(<[u8]>::to_vec).ok_or(format!("{at:?} of {len} bytes is out of bounds"))
    }
}
