//! # braid-fuse: the FUSE door
//!
//! Duty: makes a file system of `braid-client` a mount of this machine: translates the kernel's requests to client
//! calls and their results to replies, and mounts and unmounts.
//!
//! Door: [`Mounts`] (all mounts of one file system in this process), [`Mount`] (one of them), [`Options`],
//! [`is_dead`], [`unmount`] (of a mount that another process serves), [`io_uring_refused`], [`guard()`] (what the process
//! beside a mount does).
//!
//! Never: decides what a name or a byte is; checks permissions (the kernel does, `default_permissions`); keeps file
//! data; uses the kernel's write-back cache, which would hide other clients' changes.
//!
//! Flow: `wire` speaks with the kernel: a few threads read requests, each with a device and a buffer of its own (or a
//! task of the runtime, if that has one worker), and take them apart where they lie; or a thread per processor takes them from a ring, if the mount asks for io_uring. `door` turns each into a `task` that runs a function of `calls`: its first step on
//! the thread that read it, the next on the thread that answers it, down to the reply. In a process of its own the replies of reads and writes that are ready together leave together. So a slow request holds up
//! nothing; reads of more than 64 KiB and copies run on the host's tokio runtime. A signal ends the wait for a lock at once; the
//! request of a killed thread is answered with EINTR when the server stays silent. Entries and attributes that a lease covers live one
//! second in the kernel (`Options`), others not at all. What one mount changes, `hub` tells the other mounts of this process from threads of its
//! own, because the kernel may make such a notice wait for a request that the door still has to answer. A process that is killed
//! in that moment would hang, and its programs with it: a [`guard`] beside it ends the connection.
//!
//! Tests: `tests/mounted.rs` and `tests/transport.rs` mount the client's in-memory cluster and use it through system
//! calls; the tables, scans and messages have unit tests, the connection one with a socket in the kernel's place.

mod attrs;
mod calls;
mod door;
mod errno;
mod flood;
mod guard;
mod handles;
mod holders;
mod hub;
mod listing;
mod locks;
mod mount;
mod options;
mod reads;
mod remembered;
mod table;
mod task;
mod tier;
mod wire;

pub use guard::guard;
pub use mount::{Mount, Mounts, io_uring_refused, is_dead, unmount};
pub use options::{CacheMode, Ignore, Options};
