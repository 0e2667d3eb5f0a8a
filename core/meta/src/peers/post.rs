//! Notes: changes in other partitions that cannot fail. In order, once, until acknowledged.
//!
//! The sender stores a note with the entry that causes it (table 32) and repeats it; the receiver takes the next
//! number only and stores how far it is (table 33) with the effect. The client's answer waits until the notes of
//! its operation are taken, also after a restart: a link count that it looks at next is right.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::ids::{ClientId, FsId, Ino, OpId, PartitionId};
use braid_base::keys;
use braid_base::msg::fs::{Reply, Request};
use braid_base::msg::peer::{Note, PeerMsg};

use crate::data::Loss;
use crate::event::{Effect, Token};
use crate::leases;
use crate::ops::{Verdict, inode};
use crate::peers::record::NoteRec;
use crate::peers::{Caller, intent, wait_for};
use crate::state::State;
use crate::txn::Txn;

/// Unacknowledged notes are repeated after this time, milliseconds.
const RESEND_MS: u64 = 200;
/// Notes repeated to one partition at a time.
const RESEND_AT_ONCE: usize = 256;
/// Acknowledged notes that one background entry deletes.
const FORGET_AT_ONCE: usize = 500;
/// Name of the partition-wide value: number of the last note to a partition, followed by its number.
pub(super) const LAST: &str = "note.";

/// Notes on their way, and answers that wait for them.
#[derive(Default)]
pub(crate) struct Post {
    pub(crate) out: BTreeMap<PartitionId, Out>,
    /// By sender: the last note taken.
    pub(crate) taken: BTreeMap<PartitionId, u64>,
    /// By sender: what came and is not taken while others remember the inode of the first of it. Volatile.
    put_off: BTreeMap<PartitionId, BTreeMap<u64, PutOff>>,
    /// Acknowledged, not yet deleted.
    acked: Vec<(PartitionId, u64)>,
    /// Operations whose answers wait.
    awaiting: BTreeMap<OpId, Awaiting>,
}

/// Notes to one partition.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) last: u64,
    pub(crate) unacked: BTreeMap<u64, NoteRec>,
    pub(crate) sent_ms: u64,
}

/// A note that was put off.
struct PutOff {
    client: ClientId,
    fs: FsId,
    note: Note,
    /// What others remember of its inode is being recalled.
    tried: bool,
}

/// An operation that took effect here; its answer is kept (table 41).
#[derive(Default)]
struct Awaiting {
    callers: Vec<Caller>,
    notes: usize,
}

impl Post {
    /// One more who waits for the answer of `op`; false if no note of it is on its way.
    pub(super) fn attach(&mut self, op: OpId, caller: Caller) -> bool {
        let Some(awaiting) = self.awaiting.get_mut(&op) else { return false };
        if !awaiting.callers.contains(&caller) {
            awaiting.callers.push(caller);
        }
        true
    }

    /// A note is on its way.
    pub(super) fn add(&mut self, to: PartitionId, seq: u64, note: NoteRec) {
        self.awaiting.entry(note.op).or_default().notes += 1;
        self.out.entry(to).or_default().unacked.insert(seq, note);
    }

    /// True if no note to others is left.
    pub(super) fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.out.values().all(|out| out.unacked.is_empty())
    }
}

/// Carries out an operation's notes; its answer comes at once, or when other partitions have taken theirs.
pub(crate) fn carry_out(
    t: &mut Txn<'_>,
    s: &mut State,
    token: Token,
    request: &Request,
    notes: &[Note],
    reply: Reply,
) -> Result<Verdict> {
    let away = carry_out_here(t, s, request.fs, notes)?;
    let reply = conclude(t, s, &[token.into()], request, away, reply);
    Ok(reply.map_or(Verdict::Later, Verdict::Reply))
}

/// Carries out the notes whose inode is here; returns the others.
pub(super) fn carry_out_here(t: &mut Txn<'_>, s: &mut State, fs: FsId, notes: &[Note]) -> Result<Vec<Note>> {
    let (here, away): (Vec<Note>, Vec<Note>) =
        notes.iter().partition(|note| ino_of(note).partition(t.partitions) == t.partition);
    for note in here {
        apply(t, s, fs, note)?;
    }
    Ok(away)
}

/// Sends the notes. `Some(reply)` if there are none, else the answer is kept and given when they are taken.
pub(super) fn conclude(
    t: &mut Txn<'_>,
    s: &mut State,
    callers: &[Caller],
    request: &Request,
    notes: Vec<Note>,
    reply: Reply,
) -> Option<Reply> {
    if notes.is_empty() {
        return Some(reply);
    }
    s.dedup.keep(t, request, &reply);
    for note in notes {
        send(t, s, NoteRec { op: request.op, fs: request.fs, note });
    }
    for caller in callers {
        s.peers.post.attach(request.op, *caller);
    }
    None
}

fn send(t: &mut Txn<'_>, s: &mut State, record: NoteRec) {
    let NoteRec { fs, note, op } = record;
    let to = ino_of(&note).partition(t.partitions);
    let out = s.peers.post.out.entry(to).or_default();
    if out.unacked.is_empty() {
        out.sent_ms = t.now.mono_ms;
    }
    out.last += 1;
    let seq = out.last;
    t.write(keys::outbox(t.partition, to, seq), &record);
    t.put(keys::meta(t.partition, &format!("{LAST}{}", to.0)), seq.to_le_bytes().to_vec());
    s.peers.post.add(to, seq, record);
    t.after(Effect::Peer(to, PeerMsg::Note { seq, fs, client: op.client, note }));
}

/// A note arrives: taken if it is the next one and nobody remembers its inode, else put off until that is so
/// ([`next_put_off`]). What was taken is acknowledged, now or again.
pub(super) fn take(
    t: &mut Txn<'_>,
    s: &mut State,
    from: PartitionId,
    (seq, client): (u64, ClientId),
    fs: FsId,
    note: Note,
) -> Result<()> {
    let key = keys::inbox(t.partition, from);
    wait_for(t, &key);
    let mut taken = s.peers.post.taken.get(&from).copied().unwrap_or(0);
    if seq > taken + 1 {
        if let Some(behind) = s.peers.post.put_off.get_mut(&from).filter(|behind| behind.len() < RESEND_AT_ONCE) {
            behind.entry(seq).or_insert(PutOff { client, fs, note, tried: false });
        }
        return Ok(());
    }
    if seq == taken + 1 {
        if let Err(error) = leases::may_change(t, s, fs, client, &[ino_of(&note)]) {
            let behind = s.peers.post.put_off.entry(from).or_default();
            behind.insert(seq, PutOff { client, fs, note, tried: true });
            return Err(error);
        }
        t.attempt(|t| apply(t, s, fs, note))?;
        t.put(key, seq.to_le_bytes().to_vec());
        s.peers.post.taken.insert(from, seq);
        taken = seq;
    }
    t.after(Effect::Peer(from, PeerMsg::Noted { upto: taken }));
    Ok(())
}

/// A note that was put off and can be taken now.
pub(crate) fn next_put_off(s: &mut State) -> Option<(PartitionId, PeerMsg)> {
    let Post { put_off, taken, .. } = &mut s.peers.post;
    let leases = &s.leases;
    let mut found = None;
    put_off.retain(|from, behind| {
        let next = taken.get(from).copied().unwrap_or(0) + 1;
        // What came again was taken then.
        *behind = behind.split_off(&next);
        if let (None, Some(first)) = (&found, behind.first_entry())
            && *first.key() == next
            && let PutOff { client, fs, note, tried } = first.get()
            && (!tried || leases.may_change(*fs, ino_of(note), *client))
        {
            let (seq, PutOff { client, fs, note, .. }) = first.remove_entry();
            found = Some((*from, PeerMsg::Note { seq, fs, client, note }));
            // What comes behind it in the meantime is put off, too, if this one is again.
            return true;
        }
        !behind.is_empty()
    });
    found
}

/// All notes up to this one are taken.
pub(super) fn noted(t: &mut Txn<'_>, s: &mut State, from: PartitionId, upto: u64) {
    let post = &mut s.peers.post;
    let Some(out) = post.out.get_mut(&from) else { return };
    let Some(after) = upto.checked_add(1) else { return };
    let later = out.unacked.split_off(&after);
    let acked = std::mem::replace(&mut out.unacked, later);
    let mut ready = Vec::new();
    for (seq, NoteRec { op, .. }) in acked {
        post.acked.push((from, seq));
        let Some(awaiting) = post.awaiting.get_mut(&op) else { continue };
        awaiting.notes -= 1;
        if awaiting.notes == 0 {
            ready.extend(post.awaiting.remove(&op).map(|awaiting| (op, awaiting.callers)));
        }
    }
    for (op, callers) in ready {
        // Nothing is kept only if the client said that it has the answer: then nobody listens.
        if let Some(result) = s.dedup.find(t, op).transpose() {
            crate::peers::answer(t, &callers, op, &result.and_then(|kept| kept));
        }
    }
}

/// Background: repeats the oldest unacknowledged notes, deletes acknowledged ones.
pub(super) fn care(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    for (to, out) in &mut s.peers.post.out {
        if out.unacked.is_empty() || now < out.sent_ms + RESEND_MS {
            continue;
        }
        out.sent_ms = now;
        if let Some(seq) = out.unacked.keys().take(RESEND_AT_ONCE).next_back() {
            // Nobody hears of a note before the change that causes it is committed; the last one is the newest.
            wait_for(t, &keys::outbox(t.partition, *to, *seq));
        }
        for (seq, NoteRec { fs, note, op }) in out.unacked.iter().take(RESEND_AT_ONCE) {
            let note = PeerMsg::Note { seq: *seq, fs: *fs, client: op.client, note: *note };
            t.after(Effect::Peer(*to, note));
        }
    }
    let acked = &mut s.peers.post.acked;
    for (to, seq) in acked.drain(..acked.len().min(FORGET_AT_ONCE)) {
        t.delete(keys::outbox(t.partition, to, seq));
    }
}

fn apply(t: &mut Txn<'_>, s: &mut State, fs: FsId, note: Note) -> Result<()> {
    match note {
        Note::Unlinked { ino, at } => intent::unlinked(t, s, (fs, ino), at, Loss::Replaced),
        Note::Renamed { ino, at } => {
            // A later unlink may have been carried out here already: then there is nothing to show it in.
            if let Some(mut inode) = inode::find(t, fs, ino)? {
                inode.attr.ctime = inode.attr.ctime.max(at);
                inode::store(t, fs, ino, &mut inode);
            }
            Ok(())
        }
    }
}

/// The inode that a note changes.
pub(super) fn ino_of(note: &Note) -> Ino {
    match note {
        Note::Unlinked { ino, .. } | Note::Renamed { ino, .. } => *ino,
    }
}
