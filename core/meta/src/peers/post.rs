//! Notes: changes in other partitions that cannot fail. In order, once, until acknowledged.
//!
//! The sender stores a note with the entry that causes it (table 32) and repeats it; the receiver takes the next
//! number only and stores how far it is (table 33) with the effect. A client's answer waits for the notes of
//! its operation, so a link count that it looks at next is right; if the receiver is away, a repeated request
//! finds the kept answer.

use std::collections::BTreeMap;

use braid_base::ids::{FsId, Ino, OpId, PartitionId};
use braid_base::keys;
use braid_base::msg::fs::{Reply, Request};
use braid_base::msg::peer::{Note, PeerMsg};
use braid_base::Result;

use crate::event::{Effect, Token};
use crate::ops::{inode, Verdict};
use crate::peers::record::NoteRec;
use crate::peers::{intent, wait_for, Caller};
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
    /// Acknowledged, not yet deleted.
    acked: Vec<(PartitionId, u64)>,
    /// Which answer waits for a note.
    awaited: BTreeMap<(PartitionId, u64), u64>,
    answers: BTreeMap<u64, Held>,
    next_answer: u64,
}

/// Notes to one partition.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) last: u64,
    pub(crate) unacked: BTreeMap<u64, NoteRec>,
    pub(crate) sent_ms: u64,
}

impl Post {
    /// True if no note to others is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.out.values().all(|out| out.unacked.is_empty())
    }
}

struct Held {
    callers: Vec<Caller>,
    op: OpId,
    reply: Reply,
    notes: usize,
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
    let id = s.peers.post.next_answer;
    s.peers.post.next_answer += 1;
    let held = Held { callers: callers.to_vec(), op: request.op, reply, notes: notes.len() };
    s.peers.post.answers.insert(id, held);
    for note in notes {
        let number = send(t, s, request.fs, note);
        s.peers.post.awaited.insert(number, id);
    }
    None
}

fn send(t: &mut Txn<'_>, s: &mut State, fs: FsId, note: Note) -> (PartitionId, u64) {
    let to = ino_of(&note).partition(t.partitions);
    let out = s.peers.post.out.entry(to).or_default();
    if out.unacked.is_empty() {
        out.sent_ms = t.now.mono_ms;
    }
    out.last += 1;
    let (seq, record) = (out.last, NoteRec { fs, note });
    t.write(keys::outbox(t.partition, to, seq), &record);
    t.put(keys::meta(t.partition, &format!("{LAST}{}", to.0)), seq.to_le_bytes().to_vec());
    out.unacked.insert(seq, record);
    t.after(Effect::Peer(to, PeerMsg::Note { seq, fs, note }));
    (to, seq)
}

/// A note arrives: taken if it is the next one. What was taken is acknowledged, now or again.
pub(super) fn take(t: &mut Txn<'_>, s: &mut State, from: PartitionId, seq: u64, fs: FsId, note: Note) -> Result<()> {
    let key = keys::inbox(t.partition, from);
    wait_for(t, &key);
    let mut taken = s.peers.post.taken.get(&from).copied().unwrap_or(0);
    if seq > taken + 1 {
        return Ok(());
    }
    if seq == taken + 1 {
        t.attempt(|t| apply(t, s, fs, note))?;
        t.put(key, seq.to_le_bytes().to_vec());
        s.peers.post.taken.insert(from, seq);
        taken = seq;
    }
    t.after(Effect::Peer(from, PeerMsg::Noted { upto: taken }));
    Ok(())
}

/// All notes up to this one are taken.
pub(super) fn noted(t: &mut Txn<'_>, s: &mut State, from: PartitionId, upto: u64) {
    let post = &mut s.peers.post;
    let Some(out) = post.out.get_mut(&from) else { return };
    let Some(after) = upto.checked_add(1) else { return };
    let later = out.unacked.split_off(&after);
    let acked = std::mem::replace(&mut out.unacked, later);
    for seq in acked.into_keys() {
        post.acked.push((from, seq));
        let Some(id) = post.awaited.remove(&(from, seq)) else { continue };
        let Some(held) = post.answers.get_mut(&id) else { continue };
        held.notes -= 1;
        if held.notes == 0
            && let Some(Held { callers, op, reply, .. }) = post.answers.remove(&id)
        {
            crate::peers::answer(t, &callers, op, &Ok(reply));
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
        if let Some(seq) = out.unacked.keys().take(RESEND_AT_ONCE).last() {
            // Nobody hears of a note before the change that causes it is committed; the last one is the newest.
            wait_for(t, &keys::outbox(t.partition, *to, *seq));
        }
        for (seq, NoteRec { fs, note }) in out.unacked.iter().take(RESEND_AT_ONCE) {
            t.after(Effect::Peer(*to, PeerMsg::Note { seq: *seq, fs: *fs, note: *note }));
        }
    }
    let acked = &mut s.peers.post.acked;
    for (to, seq) in acked.drain(..acked.len().min(FORGET_AT_ONCE)) {
        t.delete(keys::outbox(t.partition, to, seq));
    }
}

fn apply(t: &mut Txn<'_>, s: &mut State, fs: FsId, note: Note) -> Result<()> {
    match note {
        Note::Unlinked { ino, at } => intent::unlinked(t, s, fs, ino, at),
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

fn ino_of(note: &Note) -> Ino {
    match note {
        Note::Unlinked { ino, .. } | Note::Renamed { ino, .. } => *ino,
    }
}
