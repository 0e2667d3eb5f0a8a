//! Messages on their way.

use braid_base::ids::{DriveId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::{Answer, Push, PushBody};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind};

use super::World;
use crate::board::{At, Node, Slot};
use crate::config::Net;
use crate::deeds::Deed;
use crate::queue::{Back, Event};
use crate::trace;

/// A message to oneself: never lost, never slow.
const LOCAL_US: u64 = 30;

impl World {
    /// When the copies of a message arrive: none if it is lost.
    pub(super) fn arrivals(&mut self) -> Vec<u64> {
        let net = if self.board.is_quiet() { Net { late: 0, lost: 0, ..self.net } } else { self.net };
        let now = self.now_us();
        let rng = &mut self.rng;
        if rng.chance(net.lost, 10_000) {
            return Vec::new();
        }
        let copies = if rng.chance(net.doubled, 10_000) { 2 } else { 1 };
        let late =
            |rng: &mut braid_io::chance::Rng| if rng.chance(net.late, 10_000) { rng.below(net.late_us) } else { 0 };
        (0..copies).map(|_| now + net.min_us + rng.below(net.max_us - net.min_us) + late(rng)).collect()
    }

    fn is_local(from: Node, to: At) -> bool {
        match from {
            Node::Auditor => true,
            Node::Host(host) => to.host == host,
            Node::Client(_) | Node::Drive(_) | Node::Store => false,
        }
    }

    /// A request leaves.
    pub(super) fn send_request(&mut self, from: Node, to: PartitionId, request: Request, slot: Slot<Answer>) {
        self.counts.requests += 1;
        self.note(|| format!("{from:?} -> {to} {} {}", request.op, trace::op(&request.body)));
        let to = self.route(from, to);
        let local = Self::is_local(from, to);
        let at = if local { vec![self.soon(LOCAL_US)] } else { self.arrivals() };
        if at.is_empty() {
            // Lost: some wires notice, some do not.
            self.note(|| format!("lost: request {}", request.op));
            self.perhaps_timed_out(slot);
            return;
        }
        let known = self.terms.get(&(from, to.p)).copied().unwrap_or_default();
        // Within one process a mailbox leads to the life of the seat that runs.
        let own = if local { self.seat(to).map(|node| node.seat.term()) } else { None };
        let term = own.unwrap_or(known);
        for at in at {
            let request = Box::new(request.clone());
            self.queue.put(at, Event::Request { to, term, from, request, slot: slot.clone() });
        }
    }

    /// The wire may notice in a while that there will be no answer.
    pub(super) fn perhaps_timed_out(&mut self, slot: Slot<Answer>) {
        if self.rng.chance(1, 2) {
            let (at, from) = (self.soon(500_000), self.home(PartitionId(0)));
            let answer = Answer::from(Error::from(ErrorKind::TimedOut));
            self.queue.put(at, Event::Answer { from, learn: None, slot, answer });
        }
    }

    /// An answer of `from` leaves.
    pub(super) fn send_answer(&mut self, (from, term): (At, Term), to: Node, slot: Slot<Answer>, answer: Answer) {
        let at = if Self::is_local(to, from) { vec![self.soon(LOCAL_US)] } else { self.arrivals() };
        match at.first() {
            Some(at) => self.queue.put(*at, Event::Answer { from, learn: Some((to, term)), slot, answer }),
            None => {
                self.note(|| format!("lost: answer to {to:?}"));
                self.perhaps_timed_out(slot);
            }
        }
    }

    /// Something that a partition pushes to a client leaves.
    pub(super) fn send_push(&mut self, push: &Push) {
        self.coverage.did(match push.body {
            PushBody::Recall { .. } => Deed::Recalled,
            PushBody::Evicted => Deed::GivenUp,
            _ => Deed::CalledToReassert,
        });
        let Some((node, _)) = self.board.listener(push.to) else { return };
        let at = if Self::is_local(node, self.home(push.from)) { vec![self.soon(LOCAL_US)] } else { self.arrivals() };
        self.note(|| format!("{} -> {node:?} x{} push {:?}", push.from, at.len(), push.body));
        for at in at {
            self.queue.put(at, Event::Push(push.clone()));
        }
    }

    /// A message between partitions leaves.
    pub(super) fn send_peer(&mut self, from: At, to: PartitionId, message: PeerMsg) {
        self.counts.peer += 1;
        let to = self.route_between(to);
        let at = if self.is_cut(from.host, to.host) { Vec::new() } else { self.arrivals() };
        self.note(|| {
            let text: String = format!("{message:?}").chars().take(160).collect();
            format!("{from} -> {to} x{} {text}", at.len())
        });
        for at in at {
            self.queue.put(at, Event::Peer { from: from.p, to, message: Box::new(message.clone()) });
        }
    }

    /// A request to a drive leaves.
    pub(super) fn send_drive(&mut self, from: Node, to: DriveId, op: DriveOp, back: Back) {
        match back {
            Back::Task(_) => self.counts.drive_by_task += 1,
            Back::Seat(..) => self.counts.drive_by_seat += 1,
        }
        let at = if from == Node::Auditor { vec![self.soon(LOCAL_US)] } else { self.arrivals() };
        self.note(|| format!("{from:?} -> {to} x{} {}", at.len(), trace::drive_op(&op)));
        if at.is_empty() && self.rng.chance(1, 2) {
            let at = self.soon(500_000);
            self.queue.put(at, Event::DriveAnswer { back: back.clone(), result: Err(ErrorKind::TimedOut.into()) });
        }
        for at in at {
            self.queue.put(at, Event::Drive { to, op: op.clone(), back: back.clone() });
        }
    }

    /// An answer of a drive leaves.
    pub(super) fn send_drive_answer(&mut self, back: Back, result: DriveResult) {
        for at in self.arrivals() {
            self.queue.put(at, Event::DriveAnswer { back: back.clone(), result: result.clone() });
        }
    }
}
