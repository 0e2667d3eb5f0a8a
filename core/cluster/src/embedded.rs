//! The coordinator of one machine: a redb file of this process, durable at every commit.
//!
//! ```text
//! table "items"  key -> created u64 | modified u64 | session u64 (0 = none) | value     (little-endian)
//! table "state"  "format" -> 1, "revision" -> last revision, "session" -> last session id
//! ```
//! Sessions and the history for watches live in memory: both belong to processes that end with this one, so
//! opening the file removes the keys that a session had left behind.

mod errors;
mod history;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use braid_base::{Error, ErrorKind, Result};

use crate::backup;
use crate::coordinator::{Coordinator, Item, Listing, Outcome, Put, Revision, SessionId, Txn, Watch, ended};
use history::{EmbeddedWatch, History};
use store::{Change, Store};

/// Name of the thread in which a damaged file may make redb panic; a panic hook may keep quiet about it, because
/// [`Embedded::open`] reports it as an error.
pub const CHECKER: &str = "braid-coordinator-check";

/// A clock for session deadlines: milliseconds from any fixed start, never going back.
pub type ClockMs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The embedded coordinator. Cheap to clone; clones share one file.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    clock: ClockMs,
}

struct State {
    store: Store,
    history: History,
    sessions: BTreeMap<u64, Session>,
    /// Why nothing more is written: an earlier write failed, so what the file holds is unknown.
    poisoned: Option<String>,
}

struct Session {
    ttl_ms: u64,
    deadline_ms: u64,
}

impl Embedded {
    /// Opens the file at `path`, or creates it when neither it nor a backup of it exists.
    ///
    /// Errors: `Refused` if another process has it open, `Corrupt` if it is damaged or gone while its backup is
    /// there (the message names the way out), `NoSpace`, `AccessDenied`, `Io`.
    pub fn open(path: &Path, clock: ClockMs) -> Result<Self> {
        Self::start(Store::open(path)?, clock)
    }

    /// Rebuilds the file at `path` from its backup; refused while the file itself is still there.
    pub fn recover(path: &Path, clock: ClockMs) -> Result<Self> {
        let items = backup::read(path)?;
        Self::start(Store::rebuild(path, &items)?, clock)
    }

    /// A coordinator that forgets everything at its end, for the simulator and for tests.
    pub fn in_memory(clock: ClockMs) -> Result<Self> {
        Self::start(Store::in_memory()?, clock)
    }

    fn start(mut store: Store, clock: ClockMs) -> Result<Self> {
        store.drop_session_keys()?;
        let history = History::new(store.revision());
        let state = State { store, history, sessions: BTreeMap::new(), poisoned: None };
        state.store.back_up()?;
        Ok(Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), clock }) })
    }

    /// The state with all sessions expired whose time has come, or why it is closed.
    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        self.shared.enter()
    }
}

impl Shared {
    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        // A panic inside leaves no half-made state: the store commits or not, memory follows the commit.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &state.poisoned {
            let message = format!("the coordinator stopped after a failed write ({why}): restart this process");
            return Err(Error::new(ErrorKind::Stopped, message));
        }
        let now_ms = (self.clock)();
        let ended: Vec<u64> =
            state.sessions.iter().filter(|(_, session)| session.deadline_ms <= now_ms).map(|(id, _)| *id).collect();
        for id in ended {
            state.end_session(id, &self.changed)?;
        }
        Ok(state)
    }
}

impl State {
    /// Applies checked writes durably and tells the watchers.
    fn write(&mut self, puts: &[Put], deletes: &[String], changed: &Condvar) -> Result<Revision> {
        let change = self.store.write(puts, deletes).inspect_err(|error| self.poisoned = Some(error.to_string()))?;
        if let Change::Made(events) = change {
            self.history.push(events);
            changed.notify_all();
        }
        Ok(self.store.revision())
    }

    fn end_session(&mut self, id: u64, changed: &Condvar) -> Result<()> {
        let keys = self.store.keys_of_session(id)?;
        self.write(&[], &keys, changed)?;
        self.sessions.remove(&id);
        Ok(())
    }
}

impl Coordinator for Embedded {
    fn get(&self, key: &str) -> Result<Option<Item>> {
        self.enter()?.store.get(key)
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        let state = self.enter()?;
        Ok(Listing { items: state.store.range(prefix)?, revision: state.store.revision() })
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        txn.validate()?;
        let mut state = self.enter()?;
        for put in &txn.puts {
            if let Some(session) = put.session
                && !state.sessions.contains_key(&session.0)
            {
                return Err(ended(session));
            }
        }
        if !state.store.holds(&txn.compares)? {
            return Ok(Outcome::Conflict);
        }
        let revision = state.write(&txn.puts, &txn.deletes, &self.shared.changed)?;
        if txn.touches(backup::covers) || txn.puts.iter().any(backup::begins_counter) {
            state.store.back_up()?;
        }
        Ok(Outcome::Done(revision))
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        let state = self.enter()?;
        state.history.check(from, state.store.revision())?;
        drop(state);
        Ok(Box::new(EmbeddedWatch::new(self.shared.clone(), prefix, from)))
    }

    fn session(&self, ttl_ms: u64) -> Result<SessionId> {
        let deadline_ms = (self.shared.clock)().saturating_add(ttl_ms);
        let mut state = self.enter()?;
        let id = state.store.next_session()?;
        state.sessions.insert(id, Session { ttl_ms, deadline_ms });
        Ok(SessionId(id))
    }

    fn keep_alive(&self, session: SessionId) -> Result<()> {
        let now_ms = (self.shared.clock)();
        let mut state = self.enter()?;
        let found = state.sessions.get_mut(&session.0).ok_or_else(|| ended(session))?;
        found.deadline_ms = now_ms.saturating_add(found.ttl_ms);
        Ok(())
    }

    fn end_session(&self, session: SessionId) -> Result<()> {
        self.enter()?.end_session(session.0, &self.shared.changed)
    }
}

impl Txn {
    fn touches(&self, covers: fn(&str) -> bool) -> bool {
        self.puts.iter().map(|put| put.key.as_str()).chain(self.deletes.iter().map(String::as_str)).any(covers)
    }
}
