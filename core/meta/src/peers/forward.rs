//! Requests that the home partition must coordinate: passed on, answered by way of here.
//!
//! Before it passes a request on, this partition logs that it did (table 41): whoever repeats the request after
//! a restart must be sent home too, because what the home partition has done may look like an error here.
//! The home partition, in turn, has it promise with the rest that the client still waits (`Intent::Wanted`):
//! a double that comes after the answer finds nobody.

use std::collections::BTreeMap;

use braid_base::ids::{OpId, PartitionId};
use braid_base::msg::fs::{FsResult, Request};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind};

use crate::dedup::Dedup;
use crate::event::Effect;
use crate::ops::Verdict;
use crate::peers::{Caller, answer, flight, home, wait_for};
use crate::state::State;
use crate::txn::Txn;

/// An unanswered request is passed on again after this time, milliseconds.
const RESEND_MS: u64 = 200;
/// After this time its client is told to repeat it, milliseconds.
const GIVE_UP_MS: u64 = 10_000;

/// Requests that were passed on and have no answer yet.
#[derive(Default)]
pub(crate) struct Forwards {
    open: BTreeMap<OpId, Forward>,
}

struct Forward {
    request: Request,
    callers: Vec<Caller>,
    since_ms: u64,
    sent_ms: u64,
}

impl Forwards {
    /// One more who waits for `op`; false if it was not passed on.
    pub(super) fn attach(&mut self, op: OpId, caller: Caller) -> bool {
        let Some(forward) = self.open.get_mut(&op) else { return false };
        forward.callers.push(caller);
        true
    }

    /// True if a client waits for `op`.
    pub(super) fn is_open(&self, op: OpId) -> bool {
        self.open.contains_key(&op)
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// Passes a request on to the home partition of its file system.
pub(super) fn pass_on(t: &mut Txn<'_>, s: &mut State, callers: Vec<Caller>, request: Request) {
    s.dedup.keep_forwarded(t, &request);
    let now = t.now.mono_ms;
    send(t, &s.dedup, &request);
    let forward = Forward { request, callers, since_ms: now, sent_ms: now };
    s.peers.forwards.open.insert(forward.request.op, forward);
}

/// The home partition hears of it once the mark is committed.
fn send(t: &mut Txn<'_>, dedup: &Dedup, request: &Request) {
    if let Some(mark) = dedup.key_of(t, request.op) {
        wait_for(t, &mark);
    }
    let to = home(request.fs, t.partitions);
    t.after(Effect::Peer(to, PeerMsg::Forward { request: Box::new(request.clone()) }));
}

/// The home partition: runs a request, as if the client had sent it here.
pub(super) fn take(t: &mut Txn<'_>, s: &mut State, from: PartitionId, request: &Request) {
    let (op, caller) = (request.op, Caller::Peer(from));
    s.dedup.saw(request);
    if s.peers.attach(op, caller) {
        return;
    }
    let result = match s.dedup.find(t, op) {
        Ok(None) if home(request.fs, t.partitions) != t.partition => {
            let message = format!("{} is not the home of {}", t.partition, request.fs);
            Err(Error::new(ErrorKind::Refused, message))
        }
        Ok(None) => match t.attempt(|t| flight::start(t, s, caller, request)) {
            Ok(Verdict::Later) => return,
            Ok(Verdict::Reply(reply)) => {
                s.dedup.keep(t, request, &reply);
                Ok(reply)
            }
            Err(error) => Err(error),
        },
        Ok(Some(result)) => result,
        Err(error) => Err(error),
    };
    answer(t, &[caller], op, &result);
}

/// The home partition has answered.
pub(super) fn answered(t: &mut Txn<'_>, s: &mut State, op: OpId, result: &FsResult) {
    if let Some(forward) = s.peers.forwards.open.remove(&op) {
        answer(t, &forward.callers, op, result);
    }
}

/// Background: passes unanswered requests on again, gives up what takes too long.
pub(super) fn care(t: &mut Txn<'_>, s: &mut State) {
    let now = t.now.mono_ms;
    let mut given_up = Vec::new();
    for (op, forward) in &mut s.peers.forwards.open {
        if now >= forward.since_ms + GIVE_UP_MS {
            given_up.push(*op);
        } else if now >= forward.sent_ms + RESEND_MS {
            forward.sent_ms = now;
            send(t, &s.dedup, &forward.request);
        }
    }
    for op in given_up {
        let error = Error::new(ErrorKind::Busy, "the file system's home partition does not answer; try again");
        answered(t, s, op, &Err(error));
    }
}
