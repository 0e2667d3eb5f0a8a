//! A host at work: one thread per partition and per drive (which joins the runtime if that has one worker, decision 45),
//! client work on a tokio runtime.
//!
//! The list of parts is [`Host::start`]; everything a part says to another goes through [`wire`].

mod audit;
mod clients;
mod drives;
mod events;
mod housekeeping;
mod objects;
mod outside;
mod recall;
mod seat_actor;
mod segments;
mod setup;
mod shared_seat;
mod steward;
mod tiers;
mod vital;
mod watch;
mod ways;
mod wire;

pub use audit::{Audited, Found};
pub use clients::{Clients, Gate, Hosts, Recall};
pub use drives::DriveSpec;
pub use events::Events;
pub use recall::{floors, stores};
pub use seat_actor::SeatMsg;
pub use setup::{Host, HostConfig, log_dir};
pub use steward::{Begun, Duties, Seen, Steward};
pub use wire::{Company, HostWire};
