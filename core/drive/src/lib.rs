//! # braid-drive: shards in slots on one flash device
//!
//! Duty: keeps shards. A block is written once, found only by (pack, shard), and read back as it was written or
//! with an error: never zeros, never somebody else's bytes (I8, I22).
//!
//! Door: [`DriveActor::open`] and [`format_file`] for real devices; [`Target`], [`open`] and [`format`] for those
//! who bring their own disk (the simulator). Messages: `braid_base::msg::drive`.
//!
//! Never: knows files, extents or why a shard exists; never decides that one is garbage (the partition says so);
//! touches a device only through its shell.
//!
//! Flow: message → [`Target::step`] → effects (reads, durable writes, replies) → the shell or the simulator carries
//! them out → their ends are the next events. Reads: checksums (cached) → data → checked → reply. Writes: data and
//! checksum page together → one sync for all that came meanwhile → reply.
//!
//! Tests: `tests/model.rs` runs random operations with crashes, torn writes, errors and bit flips over a simulated
//! disk against a map in memory; `tests/real.rs` runs files through both I/O engines.

mod actor;
mod format;
mod layout;
mod open;
mod setup;
mod table;
mod target;

pub use actor::{Drive, DriveActor, DriveMsg, Reply, Running, format_file};
pub use format::superblock::Superblock;
pub use layout::{Layout, SLOTS_MIN, Side, SlotNo};
pub use open::{Opened, open};
pub use setup::{FormatParams, Look, format, look};
pub use target::{Effect, Event, OpToken, Target};
