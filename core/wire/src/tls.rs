//! TLS 1.3 between hosts and their clients, under an authority of the cluster.
//!
//! 1. The set-up makes an [`Authority`] and a [`join_secret`], and puts the sealed authority into the coordinator.
//! 2. A host that joins opens it with the secret and issues itself an [`Identity`].
//! 3. A server shows it ([`server_config`]); a client knows the authority and the host it means, and shows an identity
//!    of its own if it is a host ([`client_config`]).
//!
//! A certificate names the host and the cluster, not an address. It is replaced while the host runs ([`Identity::renew`]).

mod authority;
mod channel;
mod config;
mod conn;
#[cfg(test)]
mod fuzz;
mod identity;
mod shown;
#[cfg(test)]
mod tests;

pub use authority::{Authority, CA_VALID_S, HOST_VALID_S, join_secret};
pub(crate) use channel::Channel;
pub use config::{Client, Peer, Server, client_config, server_config};
pub use identity::{Ca, Identity};
