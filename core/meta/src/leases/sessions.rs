//! Sessions of clients in this partition.
//!
//! 1. `Hello` with `begin` marks the session in the log; the answer comes when the mark is committed.
//! 2. Each `Hello` keeps it alive; one of a client in this very process needs none. Silence for `SESSION_TTL_MS`, or a
//!    recall not answered for `RECALL_MS` (while no write of the client waits for room here) and then silence, because
//!    its heartbeats are refused, ends it: the mark's deletion is logged, and when that is committed everything that
//!    the client held goes.
//! 3. A client that begins a session with a higher number has left the earlier one.
//! 4. A new primary finds marks: it calls those clients, takes what each says it holds, and gives up who is silent
//!    for `SESSION_TTL_MS`. Clients that lived in an earlier process of its own host are dead.

use std::collections::BTreeMap;

use braid_base::codec::{Reader, Writer};
use braid_base::ids::{ClientId, HostId, Index};
use braid_base::keys::{self, Table as Keys};
use braid_base::limits::SESSION_TTL_MS;
use braid_base::msg::fs::{Reply, Request};
use braid_base::msg::lease::{Holdings, PushBody};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use super::LeaseMutation;
use crate::config::Config;
use crate::state::State;
use crate::txn::Txn;

const VERSION: u8 = 1;
/// A partition looks at its clock much more often than this, milliseconds, unless it is held up.
const LOOK_MS: u64 = 2_000;
/// Numbers of ended sessions that are remembered: a late request to begin one of them must not succeed.
const ENDED_MAX: usize = 1 << 16;

/// The sessions of a partition.
#[derive(Default)]
pub(super) struct Sessions {
    live: BTreeMap<ClientId, Live>,
    awaited: BTreeMap<ClientId, Awaited>,
    /// The last session of each client that ended in this term.
    ended: BTreeMap<ClientId, u64>,
    /// Marks of clients that are known to be dead, to be deleted.
    dead: Vec<ClientId>,
    looked_ms: u64,
}

struct Live {
    number: u64,
    heard_ms: u64,
    /// The client lives in this very process: its silence means nothing.
    in_process: bool,
    /// A recall was not answered in time: it is kept alive no longer.
    refused: bool,
    ending: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// With this entry.
    At(Index),
    Committed,
}

struct Awaited {
    number: u64,
    /// Since when this primary waits; known from its first look on.
    since_ms: Option<u64>,
    ending: Ending,
}

/// The mark of a session (table 42).
pub(super) struct Mark {
    pub(super) number: u64,
    pub(super) home: Option<HostId>,
}

impl Mark {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(16);
        w.put_u8(VERSION).put_u64(self.number).put_u8(u8::from(self.home.is_some()));
        w.put_u32(self.home.unwrap_or_default().0);
        w.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(VERSION, "the mark of a session")?;
        let (number, has_home, home) = (r.u64()?, r.u8()? != 0, HostId(r.u32()?));
        if r.remaining() > 0 {
            return Err(Error::new(ErrorKind::Corrupt, "the mark of a session is too long"));
        }
        Ok(Self { number, home: has_home.then_some(home) })
    }
}

impl Sessions {
    pub(super) fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let mut sessions = Self::default();
        let prefix = keys::table(config.partition, Keys::Active);
        let mut bad = None;
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            let client = key.get(3..11).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            match (client.map(ClientId), Mark::decode(value)) {
                (Some(client), Ok(mark)) if mark.home == Some(config.host) => sessions.dead.push(client),
                (Some(client), Ok(mark)) => {
                    sessions
                        .awaited
                        .insert(client, Awaited { number: mark.number, since_ms: None, ending: Ending::No });
                }
                (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "a key of table 42 has the wrong length")),
                (_, Err(error)) => bad = Some(error),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(sessions), Err)
    }

    /// For tests: waits for nobody.
    #[cfg(any(test, feature = "broken"))]
    pub(super) fn give_up_all(&mut self) {
        for (client, awaited) in std::mem::take(&mut self.awaited) {
            self.live.insert(
                client,
                Live { number: awaited.number, heard_ms: 0, in_process: false, refused: false, ending: Ending::No },
            );
        }
    }

    /// True if a client other than `but` has not said yet what it holds.
    pub(super) fn is_awaiting(&self, but: Option<ClientId>) -> bool {
        self.awaited.keys().any(|client| Some(*client) != but)
    }

    /// Who has not said yet what it holds, and the session.
    pub(super) fn awaited(&self) -> Vec<(ClientId, u64)> {
        self.awaited.iter().map(|(client, awaited)| (*client, awaited.number)).collect()
    }

    /// `Moved` if the client must re-assert first, `SessionLost` if there is no such session.
    pub(super) fn check(&self, client: ClientId, number: u64) -> Result<()> {
        if self.is_live(client, number) {
            return Ok(());
        }
        if self.is_awaited(client, number) {
            return Err(Error::new(ErrorKind::Moved, "the primary is new: say what you hold first"));
        }
        Err(lost(number))
    }

    /// True if the session lives.
    pub(super) fn is_live(&self, client: ClientId, number: u64) -> bool {
        self.live.get(&client).is_some_and(|live| live.number == number && live.ending == Ending::No)
    }

    fn is_awaited(&self, client: ClientId, number: u64) -> bool {
        self.awaited.get(&client).is_some_and(|awaited| awaited.number == number && awaited.ending == Ending::No)
    }

    /// The session of a client.
    pub(super) fn number(&self, client: ClientId) -> Option<u64> {
        self.live.get(&client).map(|live| live.number)
    }

    /// Heartbeats of this client are refused from now on.
    pub(super) fn refuse(&mut self, client: ClientId) {
        if let Some(live) = self.live.get_mut(&client) {
            live.refused = true;
        }
    }

    pub(super) fn committed(&mut self, upto: Index) {
        let live = self.live.values_mut().map(|live| &mut live.ending);
        let awaited = self.awaited.values_mut().map(|awaited| &mut awaited.ending);
        for ending in live.chain(awaited) {
            if matches!(ending, Ending::At(at) if *at <= upto) {
                *ending = Ending::Committed;
            }
        }
    }

    /// A client whose session has ended and is still in the tables.
    pub(super) fn next_ended(&self) -> Option<ClientId> {
        let live = self.live.iter().map(|(client, live)| (client, live.ending));
        let awaited = self.awaited.iter().map(|(client, awaited)| (client, awaited.ending));
        live.chain(awaited).find(|(_, ending)| *ending == Ending::Committed).map(|(client, _)| *client)
    }

    fn remember_end(&mut self, client: ClientId, number: u64) {
        let last = self.ended.entry(client).or_default();
        *last = number.max(*last);
        if self.ended.len() > ENDED_MAX {
            // Client numbers grow: the lowest is the oldest.
            self.ended.pop_first();
        }
    }
}

fn lost(number: u64) -> Error {
    Error::new(ErrorKind::SessionLost, format!("session {number} is not known here; begin a new one"))
}

/// `Op::Hello`.
pub(super) fn hello(
    t: &mut Txn<'_>,
    s: &mut State,
    request: &Request,
    begin: bool,
    home: Option<HostId>,
) -> Result<Reply> {
    let (client, number) = (request.op.client, request.session);
    if number == 0 {
        return Err(Error::new(ErrorKind::Invalid, "sessions count from 1, found 0"));
    }
    let sessions = &mut s.leases.sessions;
    if let Some(live) = sessions.live.get_mut(&client)
        && number <= live.number
    {
        if number < live.number || live.refused || live.ending != Ending::No {
            return Err(lost(number));
        }
        live.heard_ms = t.now.mono_ms;
        // The first answer may still wait for the mark: so does this one.
        drop(t.get(&keys::active(t.partition, client)));
        return Ok(Reply::Session { reassert: false });
    }
    if sessions.awaited.get(&client).is_some_and(|awaited| number <= awaited.number) {
        let is_known = sessions.is_awaited(client, number);
        return if is_known { Ok(Reply::Session { reassert: true }) } else { Err(lost(number)) };
    }
    if !begin || sessions.ended.get(&client).is_some_and(|last| number <= *last) {
        return Err(lost(number));
    }
    // What a client in this process opened and locked before its first session is the session's from here on.
    if s.leases.sessions.live.contains_key(&client) || s.leases.sessions.awaited.contains_key(&client) {
        drop_client(t, s, client);
    }
    if s.leases.mutation != Some(LeaseMutation::NoMarker) {
        t.put(keys::active(t.partition, client), Mark { number, home }.encode());
    }
    let in_process = home == Some(s.config.host);
    let live = Live { number, heard_ms: t.now.mono_ms, in_process, refused: false, ending: Ending::No };
    s.leases.sessions.live.insert(client, live);
    Ok(Reply::Session { reassert: false })
}

/// `Op::Reassert`.
pub(super) fn reassert(t: &mut Txn<'_>, s: &mut State, request: &Request, holdings: &Holdings) -> Result<Reply> {
    let (client, number) = (request.op.client, request.session);
    let sessions = &mut s.leases.sessions;
    if !sessions.is_awaited(client, number) {
        // A double of what was taken already.
        return sessions.check(client, number).map(|()| Reply::Done);
    }
    sessions.awaited.remove(&client);
    let live = Live { number, heard_ms: t.now.mono_ms, in_process: false, refused: false, ending: Ending::No };
    sessions.live.insert(client, live);
    s.leases.waits.look_again();
    for (fs, ino, count) in &holdings.opens {
        (0..*count).for_each(|_| s.opens.open(*fs, *ino, client));
    }
    for (fs, ino, lock) in &holdings.locks {
        s.locks.restore(client, (*fs, *ino), *lock);
    }
    let mut held = true;
    for (fs, ino, seq) in &holdings.writes {
        held &= s.leases.table.assert(client, (*fs, *ino), *seq);
    }
    if !held {
        // Two say that they alone hold it: this cannot be. The second ends like a silent one.
        s.leases.table.end(client);
        if let Some(live) = s.leases.sessions.live.get_mut(&client) {
            (live.refused, live.heard_ms) = (true, 0);
        }
        return Err(lost(number));
    }
    Ok(Reply::Done)
}

/// The client ended its session itself.
pub(super) fn leave(t: &mut Txn<'_>, s: &mut State, client: ClientId) {
    let sessions = &mut s.leases.sessions;
    if sessions.live.contains_key(&client) || sessions.awaited.contains_key(&client) {
        t.delete(keys::active(t.partition, client));
    }
    drop_client(t, s, client);
}

/// Everything that the client held goes.
pub(super) fn drop_client(t: &mut Txn<'_>, s: &mut State, client: ClientId) {
    let sessions = &mut s.leases.sessions;
    if let Some(live) = sessions.live.remove(&client) {
        sessions.remember_end(client, live.number);
        let place = (t.partition, s.config.term);
        if live.ending != Ending::No {
            s.leases.push(place, client, live.number, PushBody::Evicted);
        }
    }
    if let Some(awaited) = s.leases.sessions.awaited.remove(&client) {
        s.leases.sessions.remember_end(client, awaited.number);
    }
    s.leases.table.end(client);
    s.leases.waits.look_again();
    for (fs, ino) in s.opens.end(client) {
        s.data.orphans.closed(fs, ino);
    }
    s.locks.end(t, client);
    s.dedup.lost(client);
}

/// Background: sessions of silent clients end.
pub(super) fn expire(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    let ttl_ms = match s.leases.mutation {
        Some(LeaseMutation::ExpireFast) => SESSION_TTL_MS / 3,
        _ => SESSION_TTL_MS,
    };
    let (index, sessions) = (t.index, &mut s.leases.sessions);
    for client in sessions.dead.drain(..) {
        t.delete(keys::active(t.partition, client));
    }
    // While this partition did not look, it could hear nobody either.
    let gap_ms = if sessions.looked_ms == 0 { 0 } else { now.saturating_sub(sessions.looked_ms) };
    let blind_ms = if gap_ms > LOOK_MS { gap_ms } else { 0 };
    sessions.looked_ms = now;
    s.leases.table.was_blind(blind_ms, now);
    for (client, live) in &mut sessions.live {
        live.heard_ms = now.min(live.heard_ms + blind_ms);
        let may_end = live.refused || !live.in_process;
        if live.ending == Ending::No && may_end && now >= live.heard_ms + ttl_ms {
            live.ending = Ending::At(index);
            t.delete(keys::active(t.partition, *client));
        }
    }
    for (client, awaited) in &mut sessions.awaited {
        let since_ms = awaited.since_ms.get_or_insert(now);
        *since_ms = now.min(*since_ms + blind_ms);
        if awaited.ending == Ending::No && now >= *since_ms + ttl_ms {
            awaited.ending = Ending::At(index);
            t.delete(keys::active(t.partition, *client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{bytes, n};

    #[test]
    fn a_mark_is_as_drawn() {
        let fields = [n("number", 9u8), n("in_process", 1u8), n("host", 7u8)];
        assert_eq!(bytes("session", &fields), Mark { number: 9, home: Some(HostId(7)) }.encode());
    }

    #[test]
    fn a_mark_reads_as_it_was_written() {
        for home in [None, Some(HostId(0)), Some(HostId(7))] {
            let mark = Mark::decode(&Mark { number: 9, home }.encode()).expect("it was just written");
            assert_eq!((mark.number, mark.home), (9, home));
        }
        assert!(Mark::decode(&[2]).is_err() && Mark::decode(&[1, 0]).is_err());
    }
}
