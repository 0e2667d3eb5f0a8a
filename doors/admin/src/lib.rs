//! # braid-admin: REST and metrics
//!
//! Duty: the administrator's door: a REST interface with its OpenAPI document, metrics in Prometheus text, and
//! the file by which tools on the same machine find and enter it.
//!
//! Door: [`Control`], which the running process implements; [`Server`], which serves it; [`Access`], the address
//! and token of a running cluster in its directory; [`registry`], the running clusters of this machine.
//!
//! Never: owns state or decides anything about the cluster; listens on other addresses than this machine's own;
//! answers without the token.
//!
//! Flow: [`Server::bind`] takes the port before anything else starts, so that a port in use is known first;
//! [`Server::run`] answers until it is told to stop: token, route, one call of [`Control`], JSON. A failure
//! is an [`ErrorBody`] with the HTTP status of its kind. `POST /api/v1/shutdown` only raises
//! [`Server::stop_asked`]; stopping is up to whoever started it.
//!
//! Tests: `tests/` runs the server on a free port against a made-up [`Control`].

pub mod access;
pub mod control;
mod desk;
pub mod failure;
mod metrics;
pub mod registry;
mod routes;
mod server;

pub use access::{Access, write_private};
pub use control::{Answer, Control};
pub use failure::ErrorBody;
pub use server::Server;
