//! # braid-replica: one replicated, durable log and its key-value view
//!
//! Duty: keeps the log of a partition durable on this host and equal on all its members, and offers
//! the key-value engine that holds the applied entries (design 4.2, 4.3, 5.3; invariants I1-I5).
//!
//! Door: [`kv`] (trait [`Kv`], engines [`MapKv`] and, with feature `rocks`, `RocksKv`), [`log`]
//! (records to segment writes, recovery), [`Replica`] (events to effects).
//!
//! Never: knows what an entry means, but for rows whose bytes lie in the log ([`StagedKv`]); reads a
//! clock, opens a socket, starts a thread. Only the RocksDB engine touches files; the log hands its
//! writes to a shell and reads through a trait.
//!
//! Flow: 1. a proposal becomes a record ([`Replica::step`]), which goes to the [`LogWriter`] and to the
//! peers; 2. the writer makes one aligned write of it, the shell performs it; 3. when all members
//! report it durable it is committed, with one member at once; 4. the shell puts the batch together
//! with [`Applied`] into the [`Kv`]; rows of staged slices stay beside it in memory. After a restart [`recover`] shows
//! every record to [`Tail`], and those rows to [`StagedKv`].
//! A learner gets what it lacks from the primary's log, by messages; if that no longer reaches back so
//! far the shell brings it the view first ([`Replica::imported`]).
//!
//! Tests: `tests/` cuts and flips every byte of small logs and runs the engines against each other;
//! `replica/tests` runs three replicas on real log bytes through lost, late and doubled messages,
//! crashes, torn writes, lost disks and drifting clocks, and leaves out each rule once.

pub mod config;
pub mod entry;
pub mod kv;
pub mod log;
pub mod replica;

pub use config::{Config, Member};
pub use entry::{Entry, Record};
pub use kv::Kv;
pub use kv::applied::Applied;
pub use kv::batch::{Batch, Change};
pub use kv::cached::CachedKv;
pub use kv::map::MapKv;
#[cfg(feature = "rocks")]
pub use kv::rocks::{RocksKv, RocksOptions};
pub use kv::staged::StagedKv;
pub use log::format::RecordView;
pub use log::meta_file::ReplicaMeta;
pub use log::recover::{Expect, Recovered, recover};
pub use log::writer::{LogWriter, PayloadAt, Retention, Write};
pub use log::{LogIdent, LogReader, Segment};
pub use replica::event::{Body, Effect, Event, Msg};
pub use replica::tail::Tail;
pub use replica::{Replica, Start, Timing};
