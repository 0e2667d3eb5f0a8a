//! Sessions and leases of clients (design 5.4): who may answer from memory, and when that ends.
//!
//! | room | what it does |
//! |---|---|
//! | `sessions` | begin, heartbeat, expiry, re-assertion after a change of primary |
//! | `table` | who holds what; recalls under way |
//! | `needs` | what each operation conflicts with, and which inodes its answer shows |
//! | `waits` | requests that wait until others have given back |
//!
//! The rules, each needed (`leases.py` breaks them one by one):
//!
//! 1. A session is marked in the log (table 42) before the client hears that it has one.
//! 2. A session ends by itself only after the client has stopped to count on it; its leases go when the deletion of
//!    the mark is committed. So the marks of the log name everybody who may hold something.
//! 3. A new primary knows no leases. Until every marked client has said what it holds, or is given up, nothing
//!    happens that could conflict with it.
//! 4. What conflicts is recalled first and then done: whatever a client remembers is true until it answers.
//! 5. A lease number is never used twice, in any term; it changes when a lease shrinks.

mod needs;
mod sessions;
mod table;
mod waits;

use std::collections::BTreeMap;

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, FsId, Index, Ino, PartitionId, Term};
use braid_base::limits::{NUMBERS_MAX, RECALL_MS};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::lease::{Grant, LeaseKind, Numbers, Push, PushBody};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::event::Token;
use crate::ops::{dentry, inode};
use crate::state::State;
use crate::txn::Txn;
pub(crate) use needs::{Need, Use};
use sessions::Sessions;
use table::{Key, Recalled, Table};
use waits::Waits;

/// How long nobody gets a lease on what is recalled for an operation across partitions, milliseconds: it is tried again
/// much sooner.
const URGENT_MS: u64 = 1_000;
/// How long nobody gets a lease on what such an operation changes beside the inodes that it holds, milliseconds:
/// longer than it may remain undecided.
const UNDECIDED_MS: u64 = 6_000;
/// New directories that numbers are kept for.
const NEW_DIRS_MAX: usize = 4_096;
/// Recalls and calls to re-assert are repeated this often, milliseconds.
const REPEAT_MS: u64 = 1_000;

/// Rules that a test may break to show that it notices. A product build has no way to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMutation {
    /// No mark of a session is logged.
    NoMarker,
    /// A new primary does not wait for those who have not re-asserted.
    NoWait,
    /// A session ends while its client still counts on it.
    ExpireFast,
}

/// Volatile state; the marks are in table 42.
pub struct Leases {
    sessions: Sessions,
    table: Table,
    waits: Waits,
    /// Numbers that were kept with new directories, until somebody has one for itself.
    new_dirs: BTreeMap<Key, Numbers>,
    /// Until when nobody gets a lease on these.
    urgent: BTreeMap<Key, u64>,
    out: Vec<Push>,
    called_ms: u64,
    mutation: Option<LeaseMutation>,
}

/// Something that can be done now.
pub(crate) enum Ready {
    /// This session's end is committed.
    Ended(ClientId),
    /// Nothing is in the way of this request any more.
    Request(Token, Request),
}

impl Leases {
    pub(crate) fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        Ok(Self {
            sessions: Sessions::load(config, kv)?,
            table: Table::new(config.term),
            waits: Waits::default(),
            new_dirs: BTreeMap::new(),
            urgent: BTreeMap::new(),
            out: Vec::new(),
            called_ms: 0,
            mutation: None,
        })
    }

    /// Leaves a rule out.
    #[cfg(any(test, feature = "broken"))]
    pub(crate) fn leave_out(&mut self, mutation: Option<LeaseMutation>) {
        self.mutation = mutation;
        if mutation == Some(LeaseMutation::NoWait) {
            self.sessions.give_up_all();
        }
    }

    /// True if every client with a mark has said what it holds: what nobody has open may go.
    pub(crate) fn is_settled(&self) -> bool {
        !self.sessions.is_awaiting(None)
    }

    /// Pushes since the last call, for this partition in `term`.
    pub(crate) fn take_pushes(&mut self) -> Vec<Push> {
        std::mem::take(&mut self.out)
    }

    /// True if there are pushes.
    pub(crate) fn has_pushes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Everything up to `upto` is committed.
    pub(crate) fn committed(&mut self, upto: Index) {
        self.sessions.committed(upto);
    }

    /// Whether attributes of a file may be shown to `client`, as far as others may hold changes of it back.
    pub(crate) fn may_show(&self, fs: FsId, ino: Ino, client: ClientId) -> bool {
        self.is_idle(client) || !self.conflicts((fs, ino), client, Use::Look)
    }

    /// Whether `client` may change an inode now, as far as others may remember it.
    pub(crate) fn may_change(&self, fs: FsId, ino: Ino, client: ClientId) -> bool {
        !self.conflicts((fs, ino), client, Use::Change)
    }

    /// A directory was made, and these numbers are kept for files in it.
    pub(crate) fn made(&mut self, fs: FsId, dir: Ino, numbers: Numbers) {
        if self.new_dirs.len() >= NEW_DIRS_MAX {
            // Who asks for files in them asks for numbers, too.
            self.new_dirs.clear();
        }
        self.new_dirs.insert((fs, dir), numbers);
    }

    /// The inode is gone, and all that could be held of it.
    pub(crate) fn gone(&mut self, fs: FsId, ino: Ino) {
        self.new_dirs.remove(&(fs, ino));
        self.table.gone((fs, ino));
        self.waits.look_again();
    }

    /// True if nobody but `client` holds anything: the usual case costs nothing.
    fn is_idle(&self, client: ClientId) -> bool {
        self.table.is_only(client) && !self.sessions.is_awaiting(Some(client))
    }

    fn grant_none(&mut self, key: Key, until: u64) {
        let before = self.urgent.entry(key).or_default();
        *before = until.max(*before);
    }

    fn conflicts(&self, key: Key, client: ClientId, how: Use) -> bool {
        self.sessions.is_awaiting(Some(client)) || self.table.conflicts(key, client, how)
    }

    fn push(&mut self, place: (PartitionId, Term), to: ClientId, session: u64, body: PushBody) {
        self.out.push(Push { to, session, from: place.0, term: place.1, body });
    }

    fn send_recalls(&mut self, place: (PartitionId, Term), recalled: Vec<Recalled>) {
        for Recalled { client, key, seq, keep } in recalled {
            if let Some(session) = self.sessions.number(client) {
                self.push(place, client, session, PushBody::Recall { fs: key.0, ino: key.1, seq, keep });
            }
        }
    }
}

/// Refuses requests of sessions that are not (or not yet again) known here.
pub(crate) fn check(s: &State, request: &Request) -> Result<()> {
    if request.session == 0 || request.body.is_session() {
        return Ok(());
    }
    s.leases.sessions.check(request.op.client, request.session)
}

/// `Hello`, `Reassert`, `ReleaseLease`.
pub(crate) fn session_op(t: &mut Txn<'_>, s: &mut State, request: &Request) -> Result<Reply> {
    match &request.body {
        Op::Hello { begin, home, open: _ } => sessions::hello(t, s, request, *begin, *home),
        Op::Reassert { holdings } => sessions::reassert(t, s, request, holdings),
        Op::ReleaseLease { leases } => {
            s.leases.sessions.check(request.op.client, request.session)?;
            for release in leases {
                s.leases.table.release(request.op.client, release);
            }
            s.leases.waits.look_again();
            Ok(Reply::Done)
        }
        _ => Err(Error::new(ErrorKind::Invalid, "this operation is not about a session")),
    }
}

/// True if the request must wait for leases of others; they are recalled, and it runs by itself later.
pub(crate) fn must_wait(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<bool> {
    let client = request.op.client;
    if s.leases.is_idle(client) {
        return Ok(false);
    }
    let fs = request.fs;
    let needs = needs::of_request(t, request)?;
    if !needs.iter().any(|need| need_conflicts(s, fs, client, need)) {
        return Ok(false);
    }
    let place = (t.partition, s.config.term);
    for need in &needs {
        let recalled = s.leases.table.recall((fs, need.ino), client, need.how, t.now.mono_ms);
        s.leases.send_recalls(place, recalled);
    }
    let before = s.leases.waits.add(token, request, needs, t.now.mono_ms)?;
    if let Some(before) = before {
        t.reply(before, Err(Error::new(ErrorKind::Busy, "the same request was asked again and waits")));
    }
    Ok(true)
}

fn need_conflicts(s: &State, fs: FsId, client: ClientId, need: &Need) -> bool {
    s.leases.conflicts((fs, need.ino), client, need.how)
}

/// For changes that were not asked for by a client directly: `Busy` (`Held`, if they wait for flash themselves) until others
/// have given back what is in the way.
/// Nobody gets a lease on that for a while, so that the repetition succeeds.
pub(crate) fn may_change(t: &Txn<'_>, s: &mut State, fs: FsId, client: ClientId, inos: &[Ino]) -> Result<()> {
    may(t, s, fs, (client, Use::Change), inos)
}

/// The same before one looks at directories for such a change: what they hold is not known here while another client
/// may make and remove names on its own.
pub(crate) fn may_look(t: &Txn<'_>, s: &mut State, fs: FsId, client: ClientId, inos: &[Ino]) -> Result<()> {
    may(t, s, fs, (client, Use::Look), inos)
}

fn may(t: &Txn<'_>, s: &mut State, fs: FsId, (client, how): (ClientId, Use), inos: &[Ino]) -> Result<()> {
    let place = (t.partition, s.config.term);
    let (mut free, mut held) = (true, false);
    for ino in inos.iter().filter(|ino| ino.partition(t.partitions) == t.partition) {
        let key = (fs, *ino);
        if s.leases.conflicts(key, client, how) {
            free = false;
            held |= s.leases.table.in_way(key, client, how).any(|holder| s.data.is_waiting(holder));
            s.leases.grant_none(key, t.now.mono_ms + URGENT_MS);
            let recalled = s.leases.table.recall(key, client, how, t.now.mono_ms);
            s.leases.send_recalls(place, recalled);
        }
    }
    match (free, held) {
        (true, _) => Ok(()),
        // Who holds it waits here himself, for flash.
        (false, true) => Err(ErrorKind::Held.into()),
        (false, false) => Err(Error::new(ErrorKind::Busy, "leases of other clients are being recalled")),
    }
}

/// Nobody gets a lease on what an operation across partitions will change without holding it.
pub(crate) fn hide(t: &Txn<'_>, s: &mut State, fs: FsId, inos: impl Iterator<Item = Ino>) {
    for ino in inos {
        s.leases.grant_none((fs, ino), t.now.mono_ms + UNDECIDED_MS);
    }
}

/// An inode changed in a way that nobody has to wait for, such as how much room it takes: whoever remembers it
/// should ask anew. Their kernels are not told: a notice could meet attributes on their way there, whose size is then
/// thrown away with the rest. Not `but`, who sees it in the answer.
pub(crate) fn refresh(t: &Txn<'_>, s: &mut State, (fs, ino): (FsId, Ino), but: Option<ClientId>) {
    for client in s.leases.table.holders((fs, ino)).into_iter().filter(|client| Some(*client) != but) {
        if let Some(session) = s.leases.sessions.number(client) {
            s.leases.push((t.partition, s.config.term), client, session, PushBody::Refresh { fs, ino });
        }
    }
}

/// The leases that go with an answer. `asked` is the result of the request, evaluated just now.
pub(crate) fn grants(t: &mut Txn<'_>, s: &mut State, request: &Request, asked: &Result<Reply>) -> Vec<Grant> {
    if request.session == 0 || !s.leases.sessions.is_live(request.op.client, request.session) {
        return Vec::new();
    }
    let (mut grants, dir) = (Vec::new(), needs::named_in(&request.body));
    for (ino, kind) in needs::shown(request, asked) {
        // Who has a directory for itself will change what is in it.
        let found_alone = |dir: Ino| dir != ino && s.leases.table.is_alone(request.op.client, (request.fs, dir));
        let kind = if dir.is_some_and(found_alone) { LeaseKind::Exclusive } else { kind };
        if ino.partition(t.partitions) == t.partition {
            // A lease that cannot be read is a lease not given: the answer stands without.
            grants.extend(grant(t, s, request, ino, kind).unwrap_or(None));
        }
    }
    if let Some((dir, want)) = needs::wanted(&request.body)
        && let Some(grant) = grants.iter_mut().find(|grant| grant.ino == dir && grant.kind == LeaseKind::Exclusive)
    {
        // Without numbers the client asks for each file, as before.
        grant.numbers = match (&request.body, want) {
            (Op::AskLease { .. }, _) => s.leases.new_dirs.remove(&(request.fs, dir)).unwrap_or_default(),
            (_, 0) => Numbers::default(),
            _ => inode::lend_numbers(t, dir.vp(), want.min(NUMBERS_MAX)).unwrap_or_default(),
        };
    }
    grants
}

fn grant(t: &Txn<'_>, s: &mut State, request: &Request, ino: Ino, kind: LeaseKind) -> Result<Option<Grant>> {
    let (fs, client) = (request.fs, request.op.client);
    let key = (fs, ino);
    let urgent = s.leases.urgent.get(&key).is_some_and(|until| t.now.mono_ms < *until);
    let awaiting = s.leases.sessions.is_awaiting(Some(client));
    if urgent || awaiting || s.leases.waits.wants(key) || s.peers.held.is_used(fs, ino) {
        return Ok(None);
    }
    let Ok(found) = inode::load(t, fs, ino) else { return Ok(None) };
    if found.attr.nlink == 0 {
        // It goes when the last reference goes, without a change that anyone is told of.
        return Ok(None);
    }
    let is_dir = found.attr.kind == FileType::Directory;
    let is_wanted = needs::wanted(&request.body).is_some_and(|(dir, _)| dir == ino);
    let kind = if is_dir && !is_wanted { LeaseKind::Shared } else { kind };
    let Some(given) = s.leases.table.grant(client, key, kind) else { return Ok(None) };
    let empty = is_dir && given.is_new && dentry::is_empty(t, fs, ino)?;
    Ok(Some(Grant {
        ino,
        kind: given.kind,
        seq: given.seq,
        attr: found.attr,
        empty,
        numbers: Numbers::default(),
        roomy: false,
    }))
}

/// `EndSession`: the client leaves.
pub(crate) fn leave(t: &mut Txn<'_>, s: &mut State, client: ClientId) {
    sessions::leave(t, s, client);
}

/// The next thing that can be done.
pub(crate) fn next(s: &mut State) -> Option<Ready> {
    if let Some(client) = s.leases.sessions.next_ended() {
        return Some(Ready::Ended(client));
    }
    let Leases { waits, sessions, table, .. } = &mut s.leases;
    let free = |fs: FsId, client: ClientId, needs: &[Need]| {
        let conflicts = |need: &Need| table.conflicts((fs, need.ino), client, need.how);
        !sessions.is_awaiting(Some(client)) && !needs.iter().any(conflicts)
    };
    waits.next(free).map(|(token, request)| Ready::Request(token, request))
}

/// The end of a session is committed: what the client held goes.
pub(crate) fn ended(t: &mut Txn<'_>, s: &mut State, client: ClientId) {
    sessions::drop_client(t, s, client);
}

/// Background: expiry, repetition of recalls.
pub(crate) fn background(t: &mut Txn<'_>, s: &mut State) {
    sessions::expire(t, s);
    let (now, place) = (t.now.mono_ms, (t.partition, s.config.term));
    s.leases.urgent.retain(|_, until| now < *until);
    let recalled = s.leases.table.repeat(now, REPEAT_MS);
    s.leases.send_recalls(place, recalled);
    for token in s.leases.waits.forsaken(now) {
        t.reply(token, Err(Error::new(ErrorKind::Busy, "a request that nobody asks for any more")));
    }
    let State { leases: Leases { waits, table, .. }, data, .. } = &mut *s;
    let held_up = waits.held_up(now, |fs, client, needs| {
        let in_way = |need: &Need| table.in_way((fs, need.ino), client, need.how).any(|holder| data.is_waiting(holder));
        needs.iter().any(in_way)
    });
    for token in held_up {
        // As long as a write waits for flash, so may whoever wants its file.
        t.reply(token, Err(ErrorKind::Held.into()));
    }
    for client in s.leases.table.overdue(now, RECALL_MS) {
        if s.data.is_waiting(client) {
            // What it has to write before it can answer waits in this very partition: it is not the one who is late.
            s.leases.table.excuse(client, now);
        } else {
            s.leases.sessions.refuse(client);
        }
    }
    if now >= s.leases.called_ms + REPEAT_MS {
        s.leases.called_ms = now;
        for (client, session) in s.leases.sessions.awaited() {
            s.leases.push(place, client, session, PushBody::Reassert);
        }
    }
}
