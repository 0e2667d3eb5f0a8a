//! The participant: answers, promises, obeys.
//!
//! It decides nothing: after a promise only the coordinator's word releases it, however long that takes.

use std::collections::BTreeMap;

use braid_base::attr::Attr;
use braid_base::ids::{ClientId, FsId, OpId, PartitionId};
use braid_base::keys;
use braid_base::msg::peer::{Answer, Intent, PeerMsg, Question};
use braid_base::{Error, ErrorKind, Result};

use crate::event::Effect;
use crate::leases;
use crate::ops::{dentry, inode};
use crate::peers::record::PendingRec;
use crate::peers::{Variant, coordinator, intent, wait_for};
use crate::state::State;
use crate::txn::Txn;

/// A participant asks after this long without a word, and again, milliseconds.
const ASK_MS: u64 = 300;
/// Promises that may be open at once; more are `Busy`.
const PROMISES_MAX: usize = 65_536;

/// Open promises.
#[derive(Default)]
pub(crate) struct Party {
    pub(crate) open: BTreeMap<OpId, Promise>,
    /// By coordinator: the highest number that was committed here. A prepare that comes later with a lower one
    /// may be a late double of a finished one, and is refused: the client's repetition gets a new number.
    pub(crate) finished: BTreeMap<PartitionId, u64>,
}

/// A promise, as in table 30.
pub(crate) struct Promise {
    pub(crate) pending: PendingRec,
    /// When it was made or last asked about.
    pub(crate) asked_ms: u64,
}

/// What a coordinator wants to know. `Busy` while another operation holds the name.
pub(super) fn answer(t: &Txn<'_>, s: &State, fs: FsId, question: &Question) -> Result<Answer> {
    match question {
        Question::Name { dir, name } => {
            let parent = inode::load_dir(t, fs, *dir)?;
            s.peers.held.may_change(fs, *dir, name)?;
            let found = dentry::find(t, fs, *dir, name)?;
            Ok(Answer::Name { quota: parent.quota, entry: found.map(|found| (found.entry.ino, found.entry.kind)) })
        }
        Question::Parent { dir } => Ok(Answer::Parent(inode::load_dir(t, fs, *dir)?.parent)),
    }
}

/// The same asked by another partition, which does not say for whom: nobody may have the directory for itself.
pub(super) fn asked(t: &Txn<'_>, s: &mut State, fs: FsId, question: &Question) -> Result<Answer> {
    if let Question::Name { dir, .. } = question {
        leases::may_look(t, s, fs, ClientId::default(), &[*dir])?;
    }
    answer(t, s, fs, question)
}

/// Promises all intents, or none.
pub(super) fn prepare(
    t: &mut Txn<'_>,
    s: &mut State,
    from: PartitionId,
    (tx, client): (OpId, ClientId),
    fs: FsId,
    intents: Vec<Intent>,
) {
    if coordinator(tx) != from {
        return;
    }
    let result = match s.peers.party.open.get(&tx) {
        Some(promise) => repeat(t, tx, &promise.pending),
        None => t.attempt(|t| promise(t, s, (tx, client), fs, intents)),
    };
    t.after(Effect::Peer(from, PeerMsg::Prepared { tx, result }));
}

fn repeat(t: &Txn<'_>, tx: OpId, pending: &PendingRec) -> Result<Option<Attr>> {
    wait_for(t, &keys::pending(t.partition, tx));
    intent::promised_attr(t, pending.fs, &pending.intents)
}

fn promise(
    t: &mut Txn<'_>,
    s: &mut State,
    (tx, client): (OpId, ClientId),
    fs: FsId,
    mut intents: Vec<Intent>,
) -> Result<Option<Attr>> {
    let is_late = s.peers.party.finished.get(&coordinator(tx)).is_some_and(|last| tx.seq <= *last);
    if is_late || s.peers.party.open.len() >= PROMISES_MAX {
        return Err(Error::new(ErrorKind::Busy, "this number comes too late, or too many are open; try again"));
    }
    let changed = intent::changed_by(&intents);
    leases::may_look(t, s, fs, client, &changed)?;
    for intent in &intents {
        intent::check(t, s, tx, fs, intent)?;
    }
    leases::may_change(t, s, fs, client, &changed)?;
    let mut attr = None;
    for intent in &mut intents {
        attr = intent::promise(t, s, fs, intent)?.or(attr);
    }
    let pending = PendingRec { fs, intents };
    t.write(keys::pending(t.partition, tx), &pending);
    for intent in &pending.intents {
        s.peers.held.hold(tx, true, fs, intent);
    }
    s.peers.party.open.insert(tx, Promise { pending, asked_ms: t.now.mono_ms });
    Ok(attr)
}

/// Carries out or undoes what was promised. Without a promise it was done before, or never will be.
pub(super) fn decided(t: &mut Txn<'_>, s: &mut State, from: PartitionId, tx: OpId, commit: bool) -> Result<()> {
    if coordinator(tx) != from {
        return Err(Error::new(ErrorKind::Corrupt, format!("{from} decides about {tx}, which is not its own")));
    }
    let Some(promise) = s.peers.party.open.remove(&tx) else {
        // The answer waits for the commit of an earlier decision.
        wait_for(t, &keys::pending(t.partition, tx));
        t.after(Effect::Peer(from, PeerMsg::Finished { tx }));
        return Ok(());
    };
    let result = t.attempt(|t| carry_out(t, s, &promise.pending, commit));
    if let Err(error) = result {
        // Nothing was written; the coordinator repeats.
        s.peers.party.open.insert(tx, promise);
        return Err(error);
    }
    t.delete(keys::pending(t.partition, tx));
    if commit {
        note_finished(t, s, tx);
    }
    for intent in &promise.pending.intents {
        s.peers.held.release(tx, promise.pending.fs, intent);
    }
    t.after(Effect::Peer(from, PeerMsg::Finished { tx }));
    Ok(())
}

fn carry_out(t: &mut Txn<'_>, s: &mut State, pending: &PendingRec, commit: bool) -> Result<()> {
    for intent in &pending.intents {
        if commit {
            intent::fulfil(t, s, pending.fs, intent)?;
        } else {
            intent::undo(t, s, pending.fs, intent)?;
        }
    }
    Ok(())
}

fn note_finished(t: &mut Txn<'_>, s: &mut State, tx: OpId) {
    let last = s.peers.party.finished.entry(coordinator(tx)).or_default();
    if tx.seq > *last {
        *last = tx.seq;
        let key = keys::meta(t.partition, &format!("{FINISHED}{}", coordinator(tx).0));
        t.put(key, tx.seq.to_le_bytes().to_vec());
    }
}

/// Name of the partition-wide value `finished` of a coordinator, followed by its number.
pub(super) const FINISHED: &str = "finished.";

/// Background: asks about promises that heard nothing for a while.
pub(super) fn ask(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    let (unlocks, mut given_up) = (s.peers.is_broken(Variant::UnlockOnTimeout), Vec::new());
    for (tx, promise) in &mut s.peers.party.open {
        if now < promise.asked_ms + ASK_MS {
            continue;
        }
        promise.asked_ms = now;
        if unlocks {
            given_up.push(*tx);
        }
        t.after(Effect::Peer(coordinator(*tx), PeerMsg::Undecided { tx: *tx }));
    }
    for tx in given_up {
        let undone = decided(t, s, coordinator(tx), tx, false);
        assert!(undone.is_ok(), "the broken rule runs in tests, on a view that can be read");
    }
}
