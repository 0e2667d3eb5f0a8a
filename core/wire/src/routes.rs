//! The ways to all hosts of a cluster, as a map of it says: who serves a partition, where a drive is.
//!
//! A map is a hint. A host that is asked in vain says `Moved`; then a newer map is due. Of partitions it is
//! remembered in which term they answered: each request names the term it is meant for, so that one that lay somewhere
//! while its partition was served elsewhere is not taken for a new one (a refusal names the term, and the request is sent
//! again).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use braid_base::ids::{ClientId, DriveId, HostId, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::host::{HostOp, HostReply, HostResult, Map};
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::wire::PushSink;
use braid_replica::replica::event::Msg;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::codec::Message;
use crate::codec::fs::encode_request;
use crate::entry::Find;
use crate::frame::Kind;
use crate::hello::Caller;
use crate::limits::{BACKOFF_FIRST_MS, BACKOFF_MAX_MS, BULK_MIN, DRIVE_PATIENCE_MS, HOST_MS, STRAGGLERS_MS};
use crate::relay::Relays;
use crate::stream::Address;
use crate::trunk::{Call, Sink, Trunk};

/// How to find a host that listens at these addresses.
pub type Finder = Box<dyn Fn(HostId, &[String]) -> Find + Send + Sync>;

/// The ways. All calls must be made in a tokio runtime.
pub struct Routes {
    caller: Caller,
    finder: Finder,
    now: Arc<RwLock<Known>>,
    /// The term in which each partition answered last.
    terms: RwLock<Vec<AtomicU64>>,
    sink: Sink,
    /// Somebody was asked in vain.
    pub(crate) astray: Notify,
    /// There is another map.
    changed: Notify,
}

#[derive(Default)]
struct Known {
    map: Arc<Map>,
    trunks: BTreeMap<HostId, Arc<Trunk>>,
}

impl Routes {
    /// No ways yet, for `caller`.
    pub fn new(caller: Caller, finder: Finder) -> Self {
        let (now, terms, sink) = (Arc::default(), RwLock::default(), Sink::default());
        Self { caller, finder, now, terms, sink, astray: Notify::new(), changed: Notify::new() }
    }

    /// Goes by `map` from now on. Hosts that are new are being connected to; a host does not connect to itself.
    pub fn follow(&self, map: Map) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if *now.map == map {
            return;
        }
        let before = std::mem::take(&mut *now);
        let mut trunks = before.trunks;
        trunks.retain(|host, _| {
            let same = |map: &Map| map.hosts.iter().find(|(id, _)| id == host).map(|(_, at)| at.clone());
            same(&map).is_some() && same(&map) == same(&before.map)
        });
        for (host, addresses) in &map.hosts {
            if matches!(&self.caller, Caller::Host(me) if me == host) {
                continue;
            }
            trunks.entry(*host).or_insert_with(|| {
                let (find, relays) = ((self.finder)(*host, addresses), relays(*host, &self.caller, &self.now));
                Arc::new(Trunk::begin(find, relays, self.caller.clone(), Arc::clone(&self.sink)))
            });
        }
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        while terms.len() < map.primaries.len() {
            terms.push(AtomicU64::new(0));
        }
        drop(terms);
        *now = Known { map: Arc::new(map), trunks };
        drop(now);
        self.changed.notify_waiters();
    }

    /// The map.
    pub fn map(&self) -> Arc<Map> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).map)
    }

    /// Hosts that can be reached now, as far as is known.
    pub fn reached(&self) -> Vec<HostId> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.trunks.iter().filter(|(_, trunk)| trunk.is_connected()).map(|(host, _)| *host).collect()
    }

    /// Those of them that another host is between.
    pub fn relayed(&self) -> Vec<HostId> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let relayed = now.trunks.iter().filter(|(_, trunk)| trunk.is_relayed());
        relayed.map(|(host, _)| *host).collect()
    }

    /// Pushes go to `to`; false if somebody listens already, or this is not `client`.
    pub(crate) fn listen(&self, client: ClientId, to: &Arc<dyn PushSink>) -> bool {
        matches!(&self.caller, Caller::Client(who) if who.client == client) && self.sink.set(Arc::downgrade(to)).is_ok()
    }

    fn trunk(&self, host: HostId) -> Result<Arc<Trunk>> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let trunk = now.trunks.get(&host).cloned();
        trunk.ok_or_else(|| Error::new(ErrorKind::Stopped, format!("host {host} is not known here")))
    }

    /// Ready when all hosts of the map are reached: those that are away never are.
    pub(crate) async fn all_reached(&self) {
        let trunks: Vec<Arc<Trunk>> = {
            let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
            now.trunks.values().map(Arc::clone).collect()
        };
        for trunk in trunks {
            trunk.stands().await;
        }
    }

    /// Asks the primary of `p`.
    pub async fn partition(&self, p: PartitionId, request: Request) -> Answer {
        let mut term = self.term(p);
        loop {
            let Some(asked) = self.partition_in(p, term, &request).await else {
                continue; // where it is served by now: the same operation, which is carried out once
            };
            let answer = asked.unwrap_or_else(Answer::from);
            let known = self.note_term(p, answer.term);
            match &answer.result {
                // It was not carried out, and it is known now in which term it would be.
                Err(error) if error.kind() == ErrorKind::Moved && answer.term > term => term = known,
                Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopped | ErrorKind::TimedOut) => {
                    self.astray.notify_one();
                    return answer;
                }
                _ => return answer,
            }
        }
    }

    /// The answer of the primary that is known; none if another one is by now.
    async fn partition_in(&self, p: PartitionId, term: Term, request: &Request) -> Option<Result<Answer>> {
        let primary = self.map().primary(p);
        let nobody = || Error::new(ErrorKind::Stopped, format!("{p} has no primary at the moment"));
        let trunk = match primary.ok_or_else(nobody).and_then(|primary| self.trunk(primary)) {
            Ok(trunk) => trunk,
            Err(error) => return Some(Err(error)),
        };
        let (kind, target, bulk) = (Kind::AskPartition, u32::from(p.0), is_bulk(&request.body));
        let call = Call { kind, target, message: encode_request(term, request), check_data: true, bulk };
        let mut asked = pin!(trunk.ask(call));
        loop {
            let changed = self.changed.notified();
            if self.map().primary(p) != primary {
                return None;
            }
            tokio::select! {
                frame = &mut asked => {
                    return Some(frame.and_then(|frame| Answer::decode(&frame.meta, frame.data)));
                }
                () = changed => {}
            }
        }
    }

    /// Ready when another host serves `p` than now, as far as is known.
    pub fn moved(self: &Arc<Self>, p: PartitionId) -> impl Future<Output = ()> + Send + 'static {
        let (routes, before) = (Arc::clone(self), self.map().primary(p));
        async move {
            loop {
                let changed = routes.changed.notified();
                if routes.map().primary(p) != before {
                    return;
                }
                changed.await;
            }
        }
    }

    fn term(&self, p: PartitionId) -> Term {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        Term(terms.get(usize::from(p.0)).map_or(0, |term| term.load(Ordering::Acquire)))
    }

    /// Notes that `p` answered in `term`; returns the highest in which it did.
    fn note_term(&self, p: PartitionId, term: Term) -> Term {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = terms.get(usize::from(p.0)) else { return Term(0) };
        Term(known.fetch_max(term.0, Ordering::AcqRel).max(term.0))
    }

    /// Asks drive `d`. With one host only the question outlives broken connections: asking again does no harm.
    pub async fn drive(&self, d: DriveId, op: DriveOp) -> DriveResult {
        let (message, bulk) = (op.encode(), is_bulk_drive(&op));
        let give_up_ms = braid_io::clock::mono_ms() + DRIVE_PATIENCE_MS;
        let mut pause = BACKOFF_FIRST_MS;
        loop {
            let map = self.map();
            let host = map.host_of(d).ok_or_else(|| Error::new(ErrorKind::Io, format!("{d} is on no known host")))?;
            // Its blocks carry their own checksums, which drive and reader check.
            let (kind, target) = (Kind::AskDrive, d.0);
            let call = Call { kind, target, message: message.clone(), check_data: false, bulk };
            match self.trunk(host)?.ask(call).await {
                Ok(frame) => return DriveResult::decode(&frame.meta, frame.data).unwrap_or_else(Err),
                Err(error) if map.hosts.len() > 1 || braid_io::clock::mono_ms() >= give_up_ms => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(pause)).await,
            }
            pause = (2 * pause).min(BACKOFF_MAX_MS);
        }
    }

    /// Asks `host` itself. `TimedOut` if it keeps silent.
    pub async fn ask(&self, host: HostId, op: HostOp) -> HostResult {
        ask_host(&*self.trunk(host)?, op).await
    }

    /// Tells a replica on `host`; may be lost.
    pub fn replica(&self, host: HostId, message: &Msg) {
        let (kind, target) = (Kind::Replica, u32::from(message.partition.0));
        // Its bulk has checksums that every log checks.
        let call = Call { kind, target, message: message.encode(), check_data: false, bulk: true };
        if let Ok(trunk) = self.trunk(host) {
            trunk.tell(u64::from(target), call);
        }
    }

    /// Tells partition `to` for partition `from`; may be lost.
    pub fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        let (kind, target) = (Kind::Peer, u32::from(to.0));
        let call = Call { kind, target, message: (from, message).encode(), check_data: true, bulk: false };
        if let Some(Ok(trunk)) = self.map().primary(to).map(|host| self.trunk(host)) {
            trunk.tell(u64::from(target), call);
        }
    }

    /// Where `host` listens, for somebody who does not reach it; `Stopped` if it is not reached from here either.
    pub fn way(&self, host: HostId) -> Result<Address> {
        let away = || Error::new(ErrorKind::Stopped, format!("host {host} is not reached from here either"));
        Ok(self.trunk(host)?.direct().ok_or_else(away)?.address)
    }

    /// Asks all hosts that are reached.
    fn ask_all(&self, op: &HostOp) -> JoinSet<HostResult> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let mut asked = JoinSet::new();
        for trunk in now.trunks.values().filter(|trunk| trunk.is_connected()) {
            let (trunk, op) = (Arc::clone(trunk), op.clone());
            asked.spawn(async move { ask_host(&trunk, op).await });
        }
        asked
    }

    /// Goes by the newest map that another host knows, unless what is known here is newer. (A host that is alone does not
    /// count its maps.)
    pub async fn catch_up(&self) {
        if let Some(map) = self.newer().await.filter(|map| map.version >= self.map().version) {
            self.follow(map);
        }
    }

    /// The newest map that a host knows.
    async fn newer(&self) -> Option<Map> {
        let mut asked = self.ask_all(&HostOp::Map);
        let mut newest: Option<Map> = None;
        // Not longer than it takes those that answer: one that is silent must not hold up the others.
        let mut wait_ms = HOST_MS;
        while let Ok(Some(answer)) = tokio::time::timeout(Duration::from_millis(wait_ms), asked.join_next()).await {
            if let Ok(Ok(HostReply::Map(map))) = answer {
                wait_ms = STRAGGLERS_MS;
                if newest.as_ref().is_none_or(|known| map.version > known.version) {
                    newest = Some(map);
                }
            }
        }
        newest
    }
}

/// The hosts that are reached without another one between, for the way to `host`.
fn relays(host: HostId, caller: &Caller, known: &Arc<RwLock<Known>>) -> Relays {
    let known = Arc::downgrade(known);
    let others = move || {
        let Some(known) = known.upgrade() else { return Vec::new() };
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        let others = known.trunks.iter().filter(|(other, _)| **other != host);
        others.filter_map(|(_, trunk)| trunk.direct()).collect()
    };
    let seed = match caller {
        Caller::Client(who) => who.client.0 as usize,
        Caller::Host(me) => me.0 as usize,
        Caller::Visitor | Caller::Relay(_) => 0,
    };
    Relays::new(host, seed, Box::new(others))
}

/// Asks the host at the end of `trunk`.
pub(crate) async fn ask_host(trunk: &Trunk, op: HostOp) -> HostResult {
    let call = Call { kind: Kind::AskHost, target: 0, message: op.encode(), check_data: true, bulk: false };
    let silent = |_| Error::new(ErrorKind::TimedOut, format!("the host said nothing for {HOST_MS} ms"));
    let frame = tokio::time::timeout(Duration::from_millis(HOST_MS), trunk.ask(call)).await.map_err(silent)??;
    HostResult::decode(&frame.meta, frame.data)?
}

fn is_bulk(op: &Op) -> bool {
    match op {
        Op::Write { parts, .. } => parts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() >= BULK_MIN,
        Op::ReadStage { len, .. } | Op::ReadObject { len, .. } => *len as usize >= BULK_MIN,
        _ => false,
    }
}

fn is_bulk_drive(op: &DriveOp) -> bool {
    match op {
        DriveOp::Put { data, .. } => data.len() >= BULK_MIN,
        DriveOp::Read { count, .. } => usize::from(*count) * BLOCK >= BULK_MIN,
        _ => false,
    }
}
