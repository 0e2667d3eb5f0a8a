//! Clients and servers on real sockets.

mod fake;
mod relay;
mod sockets;
mod strangers;
mod tls;
