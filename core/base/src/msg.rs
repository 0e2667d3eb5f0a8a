//! The messages: the two ends of every wire import only these.

pub mod drive;
pub mod event;
pub mod fs;
pub mod host;
pub mod job;
pub mod lease;
pub mod peer;
