//! # braid-io: the outside world, real or simulated
//!
//! Duty: time, chance, aligned memory, files and block devices, and the threads that actors run on. Everything
//! that is not a pure function of its input comes in through here, so that a simulator can take its place.
//!
//! Door: [`clock::now`] and [`chance`]; [`buf`] for memory that direct I/O accepts, [`huge::Huge`] for the allocator of a program; [`file::File`] and
//! [`file::ReadAt`] for the blocking I/O of start-up and format; [`reactor::spawn`] to run an
//! [`reactor::Actor`] on its own thread with its own ring, [`reactor::start`] there or on a runtime; [`background::spawn`] for what computes for long and gives way
//! to all else; [`sim::SimDisk`] in place of disks; [`limited::each_within`] for what may hang in the system;
//! [`seldom::is_due`] for lines of the log about what is tried again and again.
//!
//! Never: knows packs, partitions or any format. `unsafe` is here, in `erasure`, and in few files elsewhere (`xtask/src/tidy/words.rs`).
//!
//! Flow: a message enters an actor's mailbox (and wakes the thread if it sleeps) → `on_msg` → the actor
//! submits reads and writes → the ring owns their buffers until the kernel is done → `on_io` → after all
//! events at hand, `on_batch`, where group commit happens.
//!
//! Tests: `tests/reactor.rs` runs the same actors over io_uring and over the thread pool, on real files;
//! `sim` tests what a crash may and may not leave behind.

pub mod background;
pub mod buf;
pub mod chance;
pub mod clock;
pub mod file;
pub mod huge;
pub mod limited;
pub mod reactor;
pub mod seldom;
pub mod sim;
pub mod socket;
