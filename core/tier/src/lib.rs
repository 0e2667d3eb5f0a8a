//! # braid-tier: object stores, and the objects in them
//!
//! Duty: speaks to buckets (S3, Azure Blob, a directory) and knows the bytes of the objects that lie there.
//!
//! Door: [`Store`], which everything in a bucket goes through: [`open`] gives the one that a specification names, [`Link`]
//! puts a host's limits, repeats, state and record of operations around it, [`Links`] holds those of a host, [`verify()`] tries it before it is added;
//! [`blob`] for the bytes of an object and its key; [`salvage`] for what objects tell without their cluster.
//!
//! Never: decides what goes into a bucket or leaves it, knows a chunk, a pack or a name.
//!
//! Flow: a host opens each store of the cluster once and holds a [`Link`] to it; uploads build their object with [`blob`]
//! and put it, reads get a range of it and check every block. A request to S3 or Azure passes `store/cloud` (its client),
//! `store/wire` (HTTP, signatures of version 2, checksums), `store/line` (name, connection, TLS); what fails on the way is
//! put in words by `store/failure`. Salvage lists all keys, looks into each object and asks a store without a link.
//!
//! Tests: `tests/objects/`: a directory against a model, a server of S3 in the process (both signatures, TLS), a server
//! that misbehaves, the limits, repeats and states of a link; `tests/salvage.rs`: objects that are damaged;
//! `blob/tests.rs` compares bytes with `docs/formats.md`.

pub mod blob;
mod link;
mod links;
pub mod salvage;
mod store;
mod verify;

pub use link::{CHECKS_MAX, Direction, Health, Kind, Link, Operation, RECENT_MAX, State, Total};
pub use links::Links;
pub use store::{BoxFuture, LIST_MAX, Listed, Store, open};
pub use verify::{Step, verify};
