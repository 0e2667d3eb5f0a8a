//! What the client needs from the outside world: messages out, answers in, time.

use std::future::Future;
use std::pin::Pin;

use braid_base::ids::{DriveId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{FsResult, Request};

/// A future that may be moved between threads and borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to partitions and drives, and the only source of time.
///
/// An implementation delivers each message at least once or says `TimedOut`, `Stopped` or `Io`; it may also keep
/// silent for ever: every wait on it here is bounded.
pub trait Wire: Send + Sync + 'static {
    /// Asks the primary of partition `p`.
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<FsResult>;

    /// Asks drive `d`. An unknown drive is an error, not a panic.
    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult>;

    /// Ready after `ms` milliseconds.
    fn sleep_ms(&self, ms: u64) -> BoxFuture<()>;

    /// How many partitions the cluster has (fixed at its creation).
    fn partitions(&self) -> u16;

    /// Milliseconds on a clock that never goes back; only differences mean something.
    fn now_ms(&self) -> u64;
}
