//! # braid-host: the thin shell of one host
//!
//! Duty: puts the pure cores together ([`seat`]: replica, log, and the partition while it serves) and runs them on
//! threads, rings and files ([`run`]); carries messages between clients, partitions and drives, of this host and others.
//!
//! Door: [`seat::Seat`] for the simulator, [`run::Host`] for the application.
//!
//! Never: decides anything about names, extents or placement.
//!
//! Flow: a request finds its seat free and steps there, or enters its mailbox; it becomes a log entry, the group is
//! written once, the reply leaves. A seat that follows takes its log from the primary and serves when it is chosen.
//!
//! Tests: the simulator drives [`seat::Seat`]; the application's end-to-end tests drive [`run::Host`].

#[cfg(feature = "run")]
pub mod run;
pub mod seat;
