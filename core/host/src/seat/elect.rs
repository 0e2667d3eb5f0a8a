//! How a starting seat that is alone becomes primary: through a new configuration in the coordinator, always (R7).

use braid_base::ids::Index;
use braid_base::{Error, ErrorKind, Result};
use braid_replica::config::{Config as Members, Member};
use braid_replica::log::LogIdent;
use braid_replica::log::meta_file::ReplicaMeta;
use braid_replica::replica::event::{Effect, Event};
use braid_replica::replica::tail::Tail;
use braid_replica::replica::{Replica, Start, Timing};

use super::Outside;

/// Ticks an election may take. With one member it is over after one; a promise given before a restart needs
/// `grace_ms / heartbeat_ms` of them.
const TICKS_MAX: u64 = 40;

/// A seat's replica that leads.
pub(super) struct Elected {
    pub(super) replica: Replica,
    /// Everything up to here is committed.
    pub(super) committed: Index,
    /// How far the replica's clock was turned ahead, milliseconds.
    pub(super) ahead_ms: u64,
}

/// What the replica must never forget. `Refused` if it belongs to another one.
pub(super) fn read_meta(ident: LogIdent, outside: &dyn Outside) -> Result<ReplicaMeta> {
    match ReplicaMeta::read(&outside.read_meta()?)? {
        None => Ok(ReplicaMeta::new(ident)),
        Some(meta) if meta.ident == ident => Ok(meta),
        Some(meta) => {
            let words =
                format!("replica.meta: expected {ident:?}, found {:?}; the directory belongs elsewhere", meta.ident);
            Err(Error::new(ErrorKind::Refused, words))
        }
    }
}

/// The log may grow, and be cut, from now on: it is not closed any more.
pub(super) fn will_grow(meta: &mut ReplicaMeta, outside: &mut dyn Outside) -> Result<()> {
    if meta.clean.take().is_some() { note(meta, outside) } else { Ok(()) }
}

/// Makes `meta` durable.
pub(super) fn note(meta: &mut ReplicaMeta, outside: &mut dyn Outside) -> Result<()> {
    let (off, block) = meta.write();
    outside.write_meta(off, block)
}

/// Runs the replica until it leads. Time is turned ahead instead of waited for: a seat that is alone in its
/// configuration `members` has given its word to nobody else.
pub(super) fn elect(
    meta: &mut ReplicaMeta,
    me: Member,
    members: Members,
    tail: Tail,
    outside: &mut dyn Outside,
    now_ms: u64,
) -> Result<Elected> {
    let ident = meta.ident;
    let (term, timing) = (meta.term, Timing::default());
    let (partition, config, cut) = (ident.partition, meta.config.clone(), meta.cut);
    let start = Start { me, partition, term, config, tail, cut, timing };
    let mut replica = Replica::new(now_ms, start);
    let mut election = Election { outside, meta, committed: Index(0), leads: false };
    election.run(&mut replica, now_ms, Event::ConfigSeen(members))?;
    let mut ahead_ms = 0;
    for _ in 0..TICKS_MAX {
        if election.leads {
            assert!(election.meta.clean.is_none(), "a leader took a new term, and noted it");
            return Ok(Elected { replica, committed: election.committed, ahead_ms });
        }
        ahead_ms += timing.heartbeat_ms;
        election.run(&mut replica, now_ms + ahead_ms, Event::Tick)?;
    }
    Err(Error::new(ErrorKind::Stale, format!("{} has another primary; this store is no member of it", ident.partition)))
}

struct Election<'a> {
    outside: &'a mut dyn Outside,
    meta: &'a mut ReplicaMeta,
    committed: Index,
    leads: bool,
}

impl Election<'_> {
    fn run(&mut self, replica: &mut Replica, now_ms: u64, event: Event) -> Result<()> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in replica.step(now_ms, event) {
                match effect {
                    Effect::PersistMeta { term, config, cut } => {
                        // From the first note on, the log may grow: it is not closed any more.
                        (self.meta.term, self.meta.config, self.meta.cut) = (term, config, cut);
                        self.meta.clean = None;
                        note(self.meta, self.outside)?;
                    }
                    Effect::Cas { expect, new } => {
                        events.push(Event::CasResult { now: self.outside.compare_and_set(&expect, &new)? });
                    }
                    Effect::ReadConfig => events.push(Event::ConfigSeen(self.outside.config()?)),
                    Effect::Committed { upto } => self.committed = upto,
                    Effect::BecamePrimary { .. } => self.leads = true,
                    Effect::Quarantine { error } => return Err(error),
                    other => {
                        let words = format!("a lone replica wants {other:?} while it starts");
                        return Err(Error::new(ErrorKind::Unsupported, words));
                    }
                }
            }
        }
        Ok(())
    }
}
