//! What hosts find to be missing or damaged when they read objects, as they tell it to their partitions. The real teller is
//! `core/host/src/run/objects/damage.rs`.

use std::collections::BTreeMap;

use braid_base::ids::{BlobId, PartitionId};
use braid_base::keys;
use braid_base::limits::BLOCK;
use braid_base::msg::fs::Reply;
use braid_base::msg::job::ObjectKey;
use braid_base::msg::lease::Answer;
use braid_base::record::{BlobRec, Record};
use braid_base::{Error, ErrorKind};
use braid_meta::{Damaged, Token};
use bytes::Bytes;

use super::World;
use crate::board::{At, Node, ObjectRead, Sent};
use crate::deeds::Deed;
use crate::points::Point;

/// How long an answer waits for a store, milliseconds; then he who asks is told that it goes on.
const ANSWER_MS: u64 = 8_000;
/// What was found is looked at again after this, microseconds.
const LOOK_US: u64 = 5_000_000;
/// More than an object has, bytes.
const ALL: u64 = 64 << 20;
/// What is damaged for so long is given up, seconds.
const OLD_S: u64 = 3_600;

/// What a host found, in its memory.
#[derive(Default)]
pub(super) struct Findings {
    known: BTreeMap<(PartitionId, ObjectKey), Damaged>,
    changes: u64,
    looked_us: u64,
}

impl Findings {
    fn found(&mut self, p: PartitionId, key: ObjectKey, missing: bool, (from, end): (u64, u64), since_s: u64) {
        let fresh = Damaged { term: key.term, missing: false, ranges: Vec::new(), since_s };
        let known = self.known.entry((p, key)).or_insert(fresh);
        let before = known.clone();
        known.missing |= missing;
        known.ranges.push(if missing { (0, ALL) } else { (from, end) });
        known.ranges.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::new();
        for (from, end) in std::mem::take(&mut known.ranges) {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(end),
                _ => apart.push((from, end)),
            }
        }
        known.ranges = apart;
        self.changes += u64::from(*known != before);
    }

    fn of(&self, p: PartitionId) -> BTreeMap<BlobId, Damaged> {
        self.known.iter().filter(|((of, _), _)| *of == p).map(|((_, key), what)| (key.blob, what.clone())).collect()
    }

    fn forget(&mut self, p: PartitionId, blobs: Option<&[BlobId]>) {
        let before = self.known.len();
        self.known.retain(|(of, key), _| *of != p || blobs.is_some_and(|blobs| !blobs.contains(&key.blob)));
        self.changes += u64::from(self.known.len() != before);
    }
}

impl World {
    /// A partition's host reads bytes of an object for whoever asked for them; he is answered even if the partition is
    /// served elsewhere by then.
    pub(super) fn read_object(&mut self, at: At, token: Token, key: ObjectKey, off: u32, len: u32) {
        let life = self.hosts[at.host as usize].life;
        let Some(node) = self.seat(at) else { return };
        let term = node.seat.term();
        let Some((to, slot, _)) = node.waiting.remove(&token) else {
            return self.board.violation(format!("{at} answered request {token:?} twice"));
        };
        let wait_ms = self.bucket.read_ms();
        let (board, bucket) = (self.board.clone(), self.bucket.clone());
        let wait = braid_client::Wire::sleep_ms(&self.wire(Node::Host(at.host)), wait_ms.unwrap_or(ANSWER_MS));
        let task = async move {
            wait.await;
            let result = match wait_ms {
                Some(_) => bucket.read(key, off, len),
                None => Err(Error::new(ErrorKind::Busy, format!("object store {} has not answered", key.store))),
            };
            let range = (u64::from(off), u64::from(off) + u64::from(len));
            board.send(Sent::ObjectRead(Box::new(ObjectRead { at, life, term, key, range, result, to, slot })));
        };
        self.spawn(Node::Host(at.host), Box::pin(task));
    }

    /// It was read, or could not be.
    pub(super) fn object_read(&mut self, read: ObjectRead) {
        let ObjectRead { at, life, term, key, range, result, to, slot } = read;
        if !self.is_alive(at, life) {
            return;
        }
        match &result {
            Err(error) if error.kind() == ErrorKind::Busy => self.coverage.did(Deed::StoreStalled),
            Err(error) => self.found(at, key, error.kind(), range),
            Ok(_) => {}
        }
        self.note(|| format!("{at} -> {to:?} {key:?} {range:?}: {:?}", result.as_ref().map(Bytes::len)));
        self.send_answer((at, term), to, slot, Answer::plain(term, result.map(Reply::Data)));
    }

    /// Bytes cannot be had: noted if that is for sure.
    fn found(&mut self, at: At, key: ObjectKey, kind: ErrorKind, (from, end): (u64, u64)) {
        let block = BLOCK as u64;
        let missing = match kind {
            // The store lists what it has.
            ErrorKind::Stale if self.bucket.lists(key.store) && self.bucket.size(key).is_none() => true,
            // Of all blocks that were asked for those count that are wrong; on the way it may be any of them.
            ErrorKind::Corrupt => false,
            _ => return,
        };
        let since_s = self.since_s(at);
        let findings = &mut self.hosts[at.host as usize].findings;
        let mut at_byte = from - from % block;
        while at_byte < end {
            let bad = missing || !self.bucket.is_whole(key, at_byte, at_byte + block);
            if bad {
                findings.found(at.p, key, missing, (at_byte, at_byte + block), since_s);
            }
            at_byte += block;
        }
        if !missing && self.bucket.is_whole(key, from, end) {
            findings.found(at.p, key, false, (from - from % block, from - from % block + block), since_s);
        }
    }

    fn since_s(&mut self, at: At) -> u64 {
        let wall_s = self.host_now(at.host).wall.sec.max(0) as u64;
        if self.config.store.is_old { wall_s.saturating_sub(OLD_S) } else { wall_s }
    }

    /// Tells a partition what is known of its objects, if that is different now, and hears what does not matter.
    pub(super) fn hear_of_damage(&mut self, at: At) {
        self.look_again(at.host);
        let findings = &mut self.hosts[at.host as usize].findings;
        let (changes, found) = (findings.changes, findings.of(at.p));
        let Some(node) = self.hosts[at.host as usize].seats.get_mut(&at.p) else { return };
        let (term, told) = (node.seat.term(), node.told);
        let Some(partition) = node.seat.partition() else {
            self.hosts[at.host as usize].findings.forget(at.p, None);
            return;
        };
        let (news, damaged) = (told != (term, changes), !found.is_empty());
        if news {
            partition.state_mut().set_damaged(found);
        }
        let sound = partition.state_mut().take_sound();
        node.told = (term, changes);
        if !sound.is_empty() {
            self.hosts[at.host as usize].findings.forget(at.p, Some(&sound));
        }
        if news && damaged {
            self.coverage.did(Deed::DamageFound);
            self.pass(Point::DamageTold, at.host);
        }
    }

    /// Looks whether what was found is so still.
    fn look_again(&mut self, host: u32) {
        let (now_us, bucket) = (self.now_us(), self.bucket.clone());
        let findings = &mut self.hosts[host as usize].findings;
        if findings.known.is_empty() || now_us < findings.looked_us + LOOK_US {
            return;
        }
        findings.looked_us = now_us;
        let before = findings.known.len();
        findings.known.retain(|(_, key), what| {
            if !bucket.lists(key.store) {
                return true;
            }
            match what.missing {
                true => bucket.size(*key).is_none(),
                false => !what.ranges.iter().all(|(from, end)| bucket.is_whole(*key, *from, *end)),
            }
        });
        if findings.known.len() != before {
            findings.changes += 1;
            self.coverage.did(Deed::DamageOver);
        }
    }

    /// All that is lost for good is found, as by an audit of the stores; `is_old`: and is so for an hour.
    pub fn find_all_lost(&mut self, is_old: bool) {
        let all: Vec<(BlobId, (u64, u64))> = self.board.all_lost();
        for (blob, range) in all {
            let at = self.home(blob.partition());
            let found = self.kv_of(at.p).get(&keys::blob(at.p, blob)).ok().flatten();
            let Some(rec) = found.and_then(|bytes| BlobRec::decode(&bytes).ok()) else { continue };
            let key = ObjectKey { store: rec.store, blob, term: rec.term };
            let missing = self.bucket.size(key).is_none();
            let wall_s = self.host_now(at.host).wall.sec.max(0) as u64;
            let findings = &mut self.hosts[at.host as usize].findings;
            findings.found(at.p, key, missing, range, wall_s.saturating_sub(if is_old { OLD_S } else { 0 }));
        }
    }
}
