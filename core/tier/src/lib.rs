//! # braid-tier: object stores, and the objects in them
//!
//! Duty: speaks to buckets (S3, Azure Blob, a directory) and knows the bytes of the objects that lie there.
//!
//! Door: [`Store`], which everything in a bucket goes through; [`blob`] for the bytes of an object and its key.
//!
//! Never: decides what goes into a bucket or leaves it, knows a chunk, a pack or a name.
//!
//! Flow: a host opens each store of the cluster once; uploads build their object with [`blob`] and put it, reads get
//! a range of it and check every block.
//!
//! Tests: `tests/`.

pub mod blob;
mod store;

pub use store::{BoxFuture, Listed, Store};
