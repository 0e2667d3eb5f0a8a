//! # braid-sim: the whole cluster in one thread, from one seed
//!
//! Duty: runs hosts, partitions, drives and clients of a cluster in one thread with simulated disks, network and
//! clocks; lets power fail at every named crash point and everything else go wrong that may; knows what was
//! acknowledged and checks that it is there.
//!
//! Door: [`run::run`] (one seed), [`config::SimConfig`], [`points::Coverage`]; [`fsck::check`] for anyone with
//! key-value views; [`world::World`] for tests that walk one path by hand.
//!
//! Never: reads a clock, chance, a file or an environment variable; contains a rule of the system: it runs the
//! very cores that production runs.
//!
//! Flow: tasks (clients, movers) are polled in seeded order → what they send becomes events → the earliest event
//! happens → a core steps → its effects become events. A broken promise ends the run with its schedule.
//!
//! Tests: `tests/sim.rs` runs many seeds, asks for every crash point and keeps what was found;
//! `tests/broken.rs` shows that broken rules are caught; `tests/paths.rs` counts the steps of the paths.

// Fields here mirror those of the messages and cores they stand for, which are documented there.
#![allow(missing_docs)]

pub mod board;
pub mod broken;
pub mod compare;
pub mod config;
pub mod contest;
pub mod deeds;
pub mod desk;
pub mod doubts;
pub mod executor;
pub mod fsck;
pub mod generate;
pub mod hand;
pub mod kept;
pub mod kernel;
pub mod media;
pub mod model;
pub mod perform;
pub mod points;
pub mod queue;
pub mod register;
pub mod run;
pub mod trace;
pub mod unsynced;
pub mod wire;
pub mod world;

/// The only file system of a simulated cluster.
pub const FS: braid_base::ids::FsId = braid_base::ids::FsId(1);
