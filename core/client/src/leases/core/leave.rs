//! How leases go: asked by the partition, or unasked.
//!
//! Somebody waits for one that was recalled: it is flushed at once and goes in a message of its own. What goes unasked
//! may be all that there is. It has its turn: some are flushed at a time, and many go in one message.

use braid_base::ids::PartitionId;
use braid_base::msg::fs::Op;
use braid_base::msg::lease::{LeaseKind, Release};

use super::{Core, CoreMutation, Phase};
use crate::leases::cache::{Key, Leaving};
use crate::leases::event::Effect;

/// Leases that one message gives back.
pub(super) const RELEASES_AT_ONCE: usize = 512;
/// Exclusive leases of a partition that are flushed at a time to go unasked.
const LEAVES_AT_ONCE: usize = 64;
/// How long a lease that was not taken may be claimed by a later answer, milliseconds.
const UNCLAIMED_MS: u64 = 1_000;

impl Core {
    /// Gives a lease back unasked: an exclusive one when its owner has written what it held back.
    pub(super) fn leave(&mut self, key: Key, out: &mut Vec<Effect>) {
        let Some(node) = self.cache.node_mut(key) else { return };
        if node.kind == LeaseKind::Exclusive {
            let (upto, p) = (node.seq, node.partition);
            match &mut node.leaving {
                Some(leaving) => leaving.keep = None,
                None => {
                    node.leaving = Some(Leaving { upto, keep: None, is_asked: false, is_flushing: false });
                    self.part(p).leavers.push_back(key);
                    self.next_leavers(p, None, out);
                }
            }
            return;
        }
        if let Some(gone) = self.cache.remove(key) {
            self.part(gone.partition).releases.push(gone.release);
            out.push(Effect::Forget { fs: key.0, ino: key.1, names: gone.names });
        }
    }

    /// Flushes those whose turn it is; `done` was.
    pub(super) fn next_leavers(&mut self, p: PartitionId, done: Option<Key>, out: &mut Vec<Effect>) {
        if let Some(done) = done {
            self.part(p).flushing.remove(&done);
        }
        let session = self.part(p).session;
        while self.part(p).flushing.len() < LEAVES_AT_ONCE
            && let Some(key) = self.part(p).leavers.pop_front()
        {
            // One that was recalled meanwhile did not wait for its turn.
            let leaving = self.cache.node_mut(key).and_then(|node| node.leaving.as_mut());
            let Some(leaving) = leaving.filter(|leaving| !leaving.is_flushing) else { continue };
            leaving.is_flushing = true;
            out.push(Effect::Flush { fs: key.0, ino: key.1, keep: leaving.keep, session });
            self.part(p).flushing.insert(key);
        }
    }

    pub(super) fn forget_shared(&mut self, p: PartitionId, out: &mut Vec<Effect>) {
        for key in self.cache.keys_of(p) {
            let is_shared = self.cache.node(key).is_some_and(|node| node.kind == LeaseKind::Shared);
            if is_shared {
                self.leave(key, out);
            }
        }
    }

    pub(super) fn recalled(
        &mut self,
        p: PartitionId,
        key: Key,
        seq: u64,
        keep: Option<LeaseKind>,
        out: &mut Vec<Effect>,
    ) {
        if self.mutation != Some(CoreMutation::RecallCross) {
            self.cache.raise(p, key, seq);
        }
        let session = self.part(p).session;
        let Some(node) = self.cache.node_mut(key) else {
            let release = Release { fs: key.0, ino: key.1, seq, keep: None };
            return out.push(Effect::Ask { p, session, body: Op::ReleaseLease { leases: vec![release] } });
        };
        if node.seq > seq {
            return;
        }
        let was = node.leaving;
        let (upto, keep) = was.map_or((seq, keep), |was| (was.upto.max(seq), was.keep.min(keep)));
        node.leaving = Some(Leaving { upto, keep, is_asked: true, is_flushing: true });
        if was.is_some_and(|was| was.is_flushing) {
            return;
        }
        if node.kind == LeaseKind::Exclusive {
            return out.push(Effect::Flush { fs: key.0, ino: key.1, keep, session });
        }
        self.flushed(key, out);
    }

    /// Nothing is held back any more: the lease, or part of it, goes.
    pub(super) fn flushed(&mut self, key: Key, out: &mut Vec<Effect>) {
        let Some(node) = self.cache.node_mut(key) else { return };
        let Some(Leaving { upto, keep, is_asked, .. }) = node.leaving.take() else { return };
        let p = node.partition;
        if keep.is_some() {
            node.kind = LeaseKind::Shared;
        } else {
            let gone = match self.mutation {
                Some(CoreMutation::RecallCross) => self.cache.remove_unmarked(key),
                _ => self.cache.remove(key),
            };
            out.push(Effect::Forget { fs: key.0, ino: key.1, names: gone.map_or(Vec::new(), |gone| gone.names) });
        }
        let release = Release { fs: key.0, ino: key.1, seq: upto, keep };
        if !is_asked {
            self.part(p).releases.push(release);
            return self.give_back(p, RELEASES_AT_ONCE, out);
        }
        let session = self.part(p).session;
        out.push(Effect::Ask { p, session, body: Op::ReleaseLease { leases: vec![release] } });
    }

    pub(super) fn give_back(&mut self, p: PartitionId, least: usize, out: &mut Vec<Effect>) {
        let part = self.part(p);
        if part.phase != Phase::Live || part.releases.len() < least {
            return;
        }
        let (session, all) = (part.session, std::mem::take(&mut part.releases));
        for leases in all.chunks(RELEASES_AT_ONCE) {
            let body = Op::ReleaseLease { leases: leases.to_vec() };
            out.push(Effect::Ask { p, session, body });
        }
    }

    /// Gives back what nobody asked for again.
    pub(super) fn unclaimed(&mut self, p: PartitionId, now: u64) {
        let part = self.part(p);
        let mut old = part.unclaimed.extract_if(.., |_, (_, since)| now >= *since + UNCLAIMED_MS).collect::<Vec<_>>();
        old.retain(|(key, (seq, _))| self.cache.is_unclaimed(p, *key, *seq));
        for (key, (seq, _)) in old {
            self.cache.raise(p, key, seq);
            self.part(p).releases.push(Release { fs: key.0, ino: key.1, seq, keep: None });
        }
    }
}
