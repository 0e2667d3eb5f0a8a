//! What will happen, in the order of its time.

use std::collections::BTreeMap;

use braid_base::ids::{DriveId, Index, PartitionId, StoreId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_io::reactor::Token as IoToken;

use braid_replica::config::Config as Members;
use braid_replica::replica::event::Msg;

use crate::board::{At, Node, Slot};

/// One thing that happens. A `life` names the run of a host that it belongs to: it is void in another one.
pub enum Event {
    /// A request arrives at a partition.
    Request { to: At, term: Term, from: Node, request: Box<Request>, slot: Slot<Answer> },
    /// An answer of a partition arrives.
    Answer { from: At, learn: Option<(Node, Term)>, slot: Slot<Answer>, answer: Answer },
    /// What a partition pushes arrives at a client.
    Push(Push),
    /// A message of one partition arrives at another.
    Peer { from: PartitionId, to: At, message: Box<PeerMsg> },
    /// A request arrives at a drive.
    Drive { to: DriveId, op: DriveOp, back: Back },
    /// An answer of a drive arrives.
    DriveAnswer { back: Back, result: DriveResult },
    /// A sleeper wakes.
    Wake(Slot<()>),
    /// A partition has taken all events at hand.
    BatchEnd { at: At, life: u64 },
    /// Time passes for a partition.
    Tick { at: At, life: u64 },
    /// A metadata disk ends some of its work.
    HostDisk { host: u32, life: u64 },
    /// A drive's medium ends some of its work.
    DriveDisk { drive: u32, life: u64 },
    /// Time passes for a drive.
    DriveTick { drive: u32, life: u64 },
    /// A key-value view is flushed.
    Flush { host: u32, life: u64, again: bool },
    /// The flush is known to the partitions: what each had applied when it began.
    Flushed { host: u32, life: u64, applied: Vec<(PartitionId, Index)> },
    /// Power comes back.
    Restart { host: u32 },
    /// A host that said so stops.
    Gone { host: u32, life: u64 },
    /// A client process starts again.
    Revive { client: u32 },
    /// A dead drive comes back.
    DriveBack { drive: u32 },
    /// Partitions are told which drives to use.
    DrivesChange { usable: Vec<DriveId> },
    /// A metadata disk has room again.
    LogRoom { host: u32 },
    /// A key-value view has room again.
    ViewRoom { host: u32 },
    /// Something goes wrong.
    Trouble(Trouble),
    /// A message of one replica of a partition arrives at another.
    Replica { to: At, message: Box<Msg> },
    /// A replica reads its log.
    ReadLog { at: At, life: u64 },
    /// A question arrives at the coordinator.
    Register { at: At, life: u64, what: Register },
    /// The coordinator's answer arrives: to a change (`cas`) or to a question.
    Registered { at: At, life: u64, cas: bool, found: Members },
    /// The controller looks after the members of all partitions.
    Control,
    /// A replica hears what its file system does with its object stores.
    Plans { at: At, life: u64 },
    /// An object store works again.
    StoreUp { store: StoreId },
    /// Hosts reach each other again.
    Mended { cut: Vec<(u32, u32)> },
    /// A metadata disk that hangs is looked at: these writes were under way before.
    Hangs { host: u32, life: u64, before: Vec<(At, IoToken)> },
    /// A host whose metadata disk hangs is switched off and on.
    Unhang { host: u32 },
}

/// What the coordinator is asked for.
#[derive(Clone, Debug)]
pub enum Register {
    /// What it holds.
    Read,
    /// To replace what it holds.
    Cas { expect: Members, new: Members },
}

/// What goes wrong at random moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A host loses power.
    Crash,
    /// A client process is killed.
    Kill,
    /// A drive dies for a while.
    DriveDeath,
    /// A bit on a drive flips.
    Flip,
    /// A metadata disk is full for a while.
    LogFull,
    /// A key-value view has no room.
    ViewFull,
    /// A wall clock jumps.
    WallJump,
    /// A host does not reach another one for a while.
    Cut,
    /// A metadata disk hangs.
    Hang,
    /// A host loses its metadata disk.
    Wipe,
    /// A host stops in order, or a replica should be elsewhere.
    Leave,
    /// An object store is down for a while.
    StoreDown,
    /// An object store loses what it has.
    StoreLoses,
    /// The file system is to do something else with its object stores.
    Plans,
}

/// Where a drive's answer goes.
#[derive(Clone)]
pub enum Back {
    /// To a task.
    Task(Slot<DriveResult>),
    /// To a partition, with its number.
    Seat(At, u64),
}

/// Events by time, and by age where the time is the same.
#[derive(Default)]
pub struct Queue {
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
}

impl Queue {
    /// Lets `event` happen at `at_us`.
    pub fn put(&mut self, at_us: u64, event: Event) {
        self.next += 1;
        self.events.insert((at_us, self.next), event);
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    /// Events to come.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if nothing will happen.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
