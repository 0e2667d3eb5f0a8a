//! # braid-cluster: who is in, who owns what, at which term
//!
//! Duty: the small set of facts that all hosts agree on (cluster, hosts, drives, partitions, file systems,
//! groups, object stores, counters), the seam to the place that keeps them, and the decisions that follow from them alone:
//! setting a cluster up or continuing it, its state in one word, its net capacity.
//!
//! Door: [`Coordinator`] with its forms [`Embedded`] (one machine) and [`Etcd`] (many); [`facts`], and [`records`] for
//! reading and swapping them; [`guard`] and [`recover`] for an etcd that went back; [`setup`], [`partitions`],
//! [`filesystems`], [`groups`], [`stores`], [`attachments`], [`health`], [`fitness`], [`capacity`] for the decisions; [`events`] of all hosts as one list; [`view`] for what an administrator sees.
//!
//! Never: touches names or data of files, formats a drive, reads a clock (it comes in), talks to clients.
//!
//! Flow: a caller reads a record with its revision, decides, and writes it back only if the revision is
//! still the same; whoever loses reads again. A watch tells when to look, never what to believe.
//!
//! Tests: `tests/suite` holds the conformance suite that every coordinator must pass, `tests/` the rest.

pub mod attachments;
pub mod backup;
pub mod capacity;
pub mod controller;
pub mod coordinator;
pub mod create;
/// The layouts of `docs/formats.md`, for tests.
#[cfg(test)]
#[path = "../../base/tests/layout/mod.rs"]
mod drawn;
pub mod drives;
pub mod embedded;
pub mod etcd;
pub mod events;
pub mod facts;
pub mod filesystems;
pub mod fitness;
pub mod groups;
pub mod guard;
pub mod health;
pub mod join;
pub mod kept;
mod names;
pub mod partitions;
pub mod placement;
pub mod records;
pub mod recover;
pub mod removal;
pub mod settings;
pub mod setup;
pub mod snapshot;
pub mod stores;
pub mod view;

pub use coordinator::Coordinator;
pub use embedded::Embedded;
pub use etcd::{Detour, Etcd};
