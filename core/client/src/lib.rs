//! # braid-client: the file system as a library
//!
//! Duty: about thirty asynchronous calls (look up, create, read, write, rename, lock, ...) over the messages of
//! `braid-base`; retries under one operation number; the choice of where bytes are read from; bulk moves.
//!
//! Door: [`Fs`] (the calls), [`Session`] (one client id: numbers, retries, deadlines), [`Wire`] (what the host or
//! the simulator supplies), [`reader`] and [`mover`].
//!
//! Never: knows FUSE, S3 or HTTP; starts a thread or a task; reads a clock or chance but through [`Wire`]; needs
//! a particular executor; waits for ever (lock waits excepted, which can be interrupted).
//!
//! Flow: a call becomes one message to the partition that owns the inode (`fs/`), sent and repeated by `session`.
//! Writes are durable when the call returns. A read takes its layout from `layouts` or asks for it, then `reader`
//! fetches blocks straight from the drives and checks them; file data never passes the partition except while it
//! is staged in its log.
//!
//! Tests: `tests/` run everything against a small partition and drives held in memory.

pub mod fs;
mod health;
mod join;
mod layouts;
pub mod mover;
pub mod reader;
pub mod session;
pub mod wire;

pub use fs::Fs;
pub use session::Session;
pub use wire::{BoxFuture, Wire};
