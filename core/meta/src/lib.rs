//! # braid-meta: runs a partition
//!
//! Duty: names, attributes, extents, packs, locks of one partition of the namespace, its part in operations that
//! span partitions, and what its clients may remember (sessions and leases).
//!
//! Door: [`Partition::step`] takes an [`Event`] and pushes [`Effect`]s; nothing else.
//!
//! Never: does I/O of its own, reads a clock, carries bulk data (payloads pass through as `Bytes`).
//!
//! Flow: a request runs as one synchronous function over a [`Txn`] (view + overlay of pending effects),
//! its writes become one log entry (or part of one, with others of its burst), the reply waits for the commit of everything
//! that was read or written, unless its request leaves that to a later `Sync`.
//! Background work (destage, reaping, pack care) starts in `Tick` and walks in entries of bounded size.
//!
//! Tests: one `Op` stream on a partition and on a plain in-memory reference; views against a byte array;
//! cross-partition protocols exhaustively on small cases.

/// The layouts of `docs/formats.md`, for tests.
#[cfg(test)]
#[path = "../../base/tests/layout/mod.rs"]
mod drawn;
pub mod event;
pub mod overlay;
pub mod partition;
pub mod state;
pub mod txn;

mod config;
mod data;
mod dedup;
mod leases;
mod locks;
mod opens;
mod ops;
mod peers;

pub use config::{Config, Damaged, DriveSet, Leave, TierPolicy};
#[doc(hidden)]
pub use data::Mutation;
pub use data::tier::audit::Judged;
pub use data::tier::steps::TierSteps;
pub use data::{DataStatus, StageLimits};
pub use event::{Effect, Entry, Event, Notice, Now, Token};
#[doc(hidden)]
pub use leases::LeaseMutation;
pub use partition::Partition;
pub use peers::Variant;
pub use txn::Txn;
