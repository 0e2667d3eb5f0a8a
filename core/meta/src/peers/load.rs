//! After a restart: everything that was promised, decided or owed goes on.

use std::collections::BTreeSet;

use braid_base::codec::Reader;
use braid_base::ids::{ClientId, OpId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::record::Record;
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::peers::Peers;
use crate::peers::outcome::Open;
use crate::peers::party::{self, Promise};
use crate::peers::post;
use crate::peers::record::{NoteRec, OutcomeRec, PendingRec};

/// Reads the tables 30 to 33 and the counters that go with them.
pub(super) fn tables(peers: &mut Peers, partition: PartitionId, kv: &dyn Kv) -> Result<()> {
    each(kv, &keys::table(partition, Table::Pending), &mut |key, value| {
        let (tx, pending) = (op_of(key)?, PendingRec::decode(value)?);
        for intent in &pending.intents {
            peers.held.hold(tx, true, pending.fs, intent);
        }
        peers.party.open.insert(tx, Promise { pending, asked_ms: 0 });
        Ok(())
    })?;
    each(kv, &keys::table(partition, Table::Outcome), &mut |key, value| {
        let OutcomeRec { commit, moves, participants } = OutcomeRec::decode(value)?;
        let left: BTreeSet<PartitionId> = participants.into_iter().collect();
        peers.outcomes.open.insert(op_of(key)?, Open { commit, moves, left, sent_ms: 0 });
        Ok(())
    })?;
    each(kv, &keys::table(partition, Table::Outbox), &mut |key, value| {
        let (to, seq) = (PartitionId(number(key, 3, 2)? as u16), number(key, 5, 8)?);
        peers.post.add(to, seq, NoteRec::decode(value)?);
        Ok(())
    })?;
    each(kv, &keys::table(partition, Table::Inbox), &mut |key, value| {
        let from = PartitionId(number(key, 3, 2)? as u16);
        peers.post.taken.insert(from, Reader::new(value).u64()?);
        Ok(())
    })?;
    counters(partition, kv, post::LAST, &mut |to, last| peers.post.out.entry(to).or_default().last = last)?;
    counters(partition, kv, party::FINISHED, &mut |from, last| {
        peers.party.finished.insert(from, last);
    })
}

/// Partition-wide values called `name` and the number of another partition.
fn counters(partition: PartitionId, kv: &dyn Kv, name: &str, set: &mut dyn FnMut(PartitionId, u64)) -> Result<()> {
    let prefix = keys::meta(partition, name);
    each(kv, &prefix, &mut |key, value| {
        let other = std::str::from_utf8(&key[prefix.len()..]).ok().and_then(|digits| digits.parse().ok());
        set(PartitionId(other.ok_or_else(bad_key)?), Reader::new(value).u64()?);
        Ok(())
    })
}

/// Takes one key and its value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

fn each(kv: &dyn Kv, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()> {
    let mut result = Ok(());
    kv.scan(prefix, &keys::prefix_end(prefix), &mut |key, value| {
        result = visit(key, value);
        result.is_ok()
    })?;
    result
}

fn op_of(key: &[u8]) -> Result<OpId> {
    Ok(OpId { client: ClientId(number(key, 3, 8)?), seq: number(key, 11, 8)? })
}

fn number(key: &[u8], at: usize, len: usize) -> Result<u64> {
    let bytes = key.get(at..at + len).ok_or_else(bad_key)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn bad_key() -> Error {
    Error::new(ErrorKind::Corrupt, "a key of the tables of operations across partitions has the wrong form")
}
