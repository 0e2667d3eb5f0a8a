//! # braid-client: the file system as a library
//!
//! Duty: about thirty asynchronous calls (look up, create, read, write, rename, lock, ...) over the messages of
//! `braid-base`; retries under one operation number; the choice of where bytes are read from and written to;
//! write-behind; bulk moves.
//!
//! Door: [`Fs`] (the calls), [`Session`] (one client id: numbers, retries, deadlines), [`leases`] (what may be answered
//! from memory), [`Wire`] (what the host or the simulator supplies), [`reader`], [`mover`] and what that needs of object
//! stores ([`objects`]).
//!
//! Never: knows FUSE, S3 or HTTP; starts a thread, or a task but through [`fs::Background`]; reads a clock or chance but through [`Wire`]; needs
//! a particular executor; waits for ever (lock waits excepted, which can be interrupted).
//!
//! Flow: a call that the leases can answer is answered. Any other becomes one message to the partition that owns the
//! inode (`fs/`), sent and repeated by `session`.
//! Small writes ride in the partition's log; streams are held back (`behind`) and go straight to the drives in
//! stripes (`lent`, `stripe`), then one message names them. What is held back lies over every answer until it has
//! landed; `fsync` waits for it. Files that are made or removed in a directory that the client has for itself are
//! promises (`promised`) until their partition has heard of them; they lie over every answer in the same way. A read takes its layout from `layouts` or asks for it, then `reader`
//! fetches blocks straight from the drives and checks them; file data never passes the partition except while it
//! is staged in its log.
//!
//! Tests: `tests/` run everything against a small partition and drives held in memory.

mod accessed;
mod ahead;
mod behind;
mod bodies;
mod doubts;
pub mod fs;
mod habit;
mod health;
mod idle;
mod join;
mod landings;
mod layouts;
pub mod leases;
mod lent;
mod losses;
pub mod mover;
pub mod objects;
mod promised;
pub mod qos;
pub mod reader;
pub mod session;
mod siblings;
mod stream;
mod stripe;
mod wakers;
pub mod wire;

pub use fs::Fs;
pub use promised::PromiseMutation;
pub use session::Session;
pub use wire::{BoxFuture, PushSink, Wire};
