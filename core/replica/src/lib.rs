//! # braid-replica: one replicated, durable log and its key-value view
//!
//! Duty: keeps the log of a partition durable on this host and equal on all its members, and offers
//! the key-value engine that holds the applied entries (design 4.2, 4.3, 5.3; invariants I1-I5).
//!
//! Door: [`kv`] (trait [`Kv`], engines [`MapKv`] and, with feature `rocks`, `RocksKv`), [`log`]
//! (records to segment writes, recovery).
//!
//! Never: knows what an entry means; reads a clock, opens a socket, starts a thread. Only the
//! RocksDB engine touches files; the log hands its writes to a shell and reads through a trait.
//!
//! Flow: records become one aligned write ([`log::LogWriter`]); when the shell reports it durable
//! (and, with several members, all of them have), the batch goes to the [`Kv`] together with
//! [`Applied`].
//!
//! Tests: `tests/` cuts and flips every byte of small logs and runs the engines against each other.

pub mod config;
pub mod entry;
pub mod kv;
pub mod log;

pub use config::{Config, Member};
pub use entry::{Entry, Record};
pub use kv::Kv;
pub use kv::applied::Applied;
pub use kv::batch::{Batch, Change};
pub use kv::map::MapKv;
#[cfg(feature = "rocks")]
pub use kv::rocks::{RocksKv, RocksOptions};
pub use log::format::RecordView;
pub use log::meta_file::ReplicaMeta;
pub use log::recover::{Expect, Recovered, recover};
pub use log::writer::{LogWriter, PayloadAt, Retention, Write};
pub use log::{LogIdent, LogReader, Segment};
