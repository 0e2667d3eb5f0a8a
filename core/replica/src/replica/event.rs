//! What a replica hears, says and wants done.

use std::sync::Arc;

use braid_base::Error;
use braid_base::ids::{Guid, HostId, Index, PartitionId, Term};

use crate::config::{Config, Member};
use crate::entry::{Entry, Record};

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Agree on this. Refused unless [`super::Replica::is_active`].
    Propose(Entry),
    /// What was appended so far goes to the log as a group, and to the others with it.
    Group,
    /// The append with this ticket, and all before it, are durable.
    LogDurable {
        /// As in [`Effect::AppendLog`].
        ticket: u64,
    },
    /// Answer to [`Effect::FetchLog`]: records that follow each other.
    LogFetched {
        /// Whom they are for.
        to: Member,
        /// Term and index of the record before the first.
        prev: (Term, Index),
        /// At least one.
        records: Vec<Arc<Record>>,
    },
    /// The shell applied everything up to here and needs no record of it any more.
    Applied {
        /// Last applied index.
        upto: Index,
    },
    /// A message arrived; it may be late, doubled or out of order.
    Msg(Msg),
    /// Time passed. At least every quarter of a heartbeat.
    Tick,
    /// What the register holds, read after the last [`Effect::Cas`] was answered or timed out.
    CasResult {
        /// The configuration found.
        now: Config,
    },
    /// What the register holds or held; a hint.
    ConfigSeen(Config),
    /// The hosts that should have replicas, the one that should lead first; a hint.
    Seats(Vec<HostId>),
    /// The other hosts on which a replica could not serve if it led; a hint.
    Unfit(Vec<HostId>),
    /// This store is about to stop, or is not wanted any more: others should not wait for it.
    Leave,
    /// The log or the view failed, or contradicts itself (R9).
    StorageFailed {
        /// What went wrong.
        error: Error,
    },
}

/// What the shell must do, in this order. `PersistMeta` is durable and `TruncateLog` applied to
/// the log writer before any later effect begins; the others may be under way together.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Append to the local log; answer [`Event::LogDurable`].
    AppendLog {
        /// Ascending.
        ticket: u64,
        /// They follow the last record.
        records: Vec<Arc<Record>>,
    },
    /// Drop all records after this one.
    TruncateLog {
        /// Last that stays.
        after: (Term, Index),
    },
    /// Make term and configuration durable in `replica.meta`.
    PersistMeta {
        /// Highest term adopted.
        term: Term,
        /// Newest configuration seen.
        config: Config,
        /// Records of terms before this one do not count beyond this index.
        cut: (Term, Index),
    },
    /// Send; may get lost.
    Send {
        /// Receiver.
        to: Member,
        /// Message.
        msg: Msg,
    },
    /// Read records from `from` on (as many as fit a message) from the local log; answer
    /// [`Event::LogFetched`], or nothing if the log does not reach back so far.
    FetchLog {
        /// Whom they are for.
        to: Member,
        /// First index wanted.
        from: Index,
    },
    /// Replace the register's value if it is still `expect`; then read it; answer [`Event::CasResult`].
    Cas {
        /// Old value.
        expect: Config,
        /// New value.
        new: Config,
    },
    /// Read the register; answer [`Event::ConfigSeen`].
    ReadConfig,
    /// Apply everything up to here.
    Committed {
        /// Last committed index.
        upto: Index,
    },
    /// Serve, once everything committed is applied. Also when an active primary changed the members: the term is new.
    BecamePrimary {
        /// Term of what follows.
        term: Term,
    },
    /// Stop serving; forget what was proposed but not committed.
    SteppedDown,
    /// The proposal was not taken: not the primary, or too much under way. Nothing happened.
    Refused {
        /// Given back.
        entry: Entry,
    },
    /// This store is out of service for good; tell the operator.
    Quarantine {
        /// Why, and what to do.
        error: Error,
    },
}

/// A message between two replicas of a partition.
#[derive(Clone, Debug)]
pub struct Msg {
    /// The partition.
    pub partition: PartitionId,
    /// The sender's term.
    pub term: Term,
    /// The sender.
    pub from: Member,
    /// The store it is meant for: another store at the same place must ignore it (R9).
    pub to_store: Guid,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug)]
pub enum Body {
    /// Primary to peer: here is more log; also the heartbeat.
    Append {
        /// Term and index of the record before the first.
        prev: (Term, Index),
        /// Records, maybe none.
        records: Vec<Arc<Record>>,
        /// Committed up to here.
        commit: Index,
        /// Last record of the primary's log when its term began: what came before that term goes up to here (R4).
        inherited: Index,
        /// Nothing committed refers to payloads of entries before this one.
        stage_from: Index,
        /// Primary's clock when it sent this.
        sent_ms: u64,
    },
    /// Peer to primary: my log equals yours and is durable up to `held`. Also the promise (R5).
    Ack {
        /// Last such index.
        held: Index,
        /// `sent_ms` of the newest message this answers.
        echo_ms: u64,
    },
    /// Peer to primary: I do not hold `prev`. Also the promise (R5).
    Mismatch {
        /// Go on after this index.
        hint: Index,
        /// `sent_ms` of the message this answers.
        echo_ms: u64,
    },
    /// Your term is old.
    Refuse,
    /// Member to primary: I am about to stop, go on without me.
    Leaving,
    /// Primary of this term to all: another one is to lead, I do not count on your promise any more (R5).
    Released,
    /// Campaigner to member: how long is your log (R8)?
    Probe,
    /// Member to campaigner.
    ProbeReply {
        /// Its last record.
        last: (Term, Index),
    },
    /// Campaigner to member: send me your records from here on (R8).
    Pull {
        /// First index wanted.
        from: Index,
    },
    /// Primary to learner: its log begins with this record, what you lack comes before: take the view.
    Behind {
        /// First record of the log.
        first: Index,
    },
    /// Learner to primary: send me rows of the view.
    AskView {
        /// The last row that came; empty: from the first on.
        after: Vec<u8>,
    },
    /// Primary to learner: rows of the view, in the order of their keys. It changes meanwhile: what the log says from
    /// `start` on makes it whole.
    View {
        /// As asked.
        after: Vec<u8>,
        /// The log that is needed begins after this record.
        start: (Term, Index),
        /// The rows are at least as new as this record.
        applied: Index,
        /// Keys and values.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
        /// No more rows come after these.
        last: bool,
    },
    /// Member to campaigner.
    Pulled {
        /// Term and index of the record before the first.
        prev: (Term, Index),
        /// Records.
        records: Vec<Arc<Record>>,
    },
}
