//! # braid-wire: messages over sockets
//!
//! Duty: carries the messages of `braid-base` and `braid-replica` between processes, over Unix sockets, TCP and TLS: bytes
//! of each message, frames, connections that heal; and who is at the other end, by certificates of the cluster.
//!
//! Door: [`RemoteWire`] (the client's [`Wire`](braid_client::Wire) to a cluster in other processes); [`Routes`] (the ways
//! from host to host); [`serve`] with a [`Handler`] (the server's side); [`tls`] (certificates, and the authority that
//! issues them); [`codec`] and [`frame`] (what is on the wire; `docs/formats.md` says it in words).
//!
//! Never: knows what a message means, beyond how many bytes its answer may take; repeats a request under another
//! operation number (under its own it does, when a newer map or `Moved` says where to); trusts a byte; waits for ever.
//!
//! Flow: client and host keep four connections to each host of the map. A request gets a number, its frame goes to the
//! queue of a connection, and the answers come in any order. Small messages share the first connection, so that they do not wait behind bulk.
//! A host that takes no connection is reached by way of another one that is (`relay`).
//! What waits in a queue leaves with one call of the kernel. A server reads no more of a connection while too much of it
//! is under way.
//!
//! Tests: unit tests make every message from the tables of the codec, and change them (`fuzz`); `tests/` run clients and servers over real sockets,
//! with servers that stop, stay silent, or talk nonsense.

pub mod codec;
mod entry;
pub mod frame;
#[cfg(test)]
mod fuzz;
mod hello;
mod intake;
mod limits;
mod link;
mod relay;
mod remote;
mod routes;
mod serve;
mod socket;
mod stream;
pub mod tls;
mod trunk;

/// The layouts of `docs/formats.md`, for tests.
#[cfg(test)]
#[path = "../../base/tests/layout/mod.rs"]
mod layout;

pub use braid_base::msg::host::Who;
pub use entry::{Find, Target};
pub use hello::{Caller, Hello};
pub use limits::CHANNEL_BESIDE;
pub use remote::{RemoteWire, Visit};
pub use routes::{Finder, Routes};
pub use serve::{Handler, Pusher, Reply, ReplyTo, serve};
pub use stream::{Address, Listener};
