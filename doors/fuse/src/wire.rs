//! The kernel's FUSE interface: requests read from `/dev/fuse`, replies and notices written to it.
//!
//! Requests over io_uring (`uring`, `ring`), a choice of the mount, come and go below the same seam.
//!
//! Each reader has a device file and a buffer of its own. A request is taken apart where it lies; a large write keeps
//! its buffer as its data (`buffer`). A reply is gathered from where its parts lie, in one system call; what many reads
//! and writes are told leaves with one (`together`, `writes`). Requests that have no reply yet are in one table (`inflight`): there interrupts find them, and there it is settled who replies
//! when a killed thread may not wait for the server any longer (`watch`). Threads that are told `ESTALE` are remembered for
//! a moment (`stale`).

pub(crate) mod abi;
mod buffer;
mod device;
pub(crate) mod encode;
pub(crate) mod errno;
mod inflight;
pub(crate) mod notify;
pub(crate) mod reply;
pub(crate) mod request;
mod ring;
pub(crate) mod session;
mod stale;
mod together;
pub(crate) mod uring;
mod watch;
mod writes;
