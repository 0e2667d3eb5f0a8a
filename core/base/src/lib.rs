//! # braid-base: the words
//!
//! Duty: the nouns that every other room shares: ids, attributes, errors, limits, messages between
//! client, partition and drive, and the records and keys of a partition's key-value view; [`burst`], by which rooms
//! that do not know each other agree on when to wake and to send.
//!
//! Door: the modules below; nothing is re-exported but [`Error`], [`ErrorKind`] and [`Result`].
//!
//! Never: does I/O, reads a clock, starts a thread.
//!
//! Flow: a message is built by its sender, matched by its receiver; a record is encoded where it is
//! written and decoded where it is read, always through [`codec`], always with a version byte.
//!
//! Tests: round trips and golden bytes of every record, order of every key.

pub mod attr;
pub mod burst;
pub mod codec;
pub mod crc;
pub mod error;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod msg;
pub mod record;
pub mod store;

pub use error::{Error, ErrorKind, Result};
