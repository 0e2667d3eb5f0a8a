//! What the client needs from the outside world: messages out, answers in, time.

use std::future::Future;
use std::pin::Pin;

use std::sync::Arc;

use braid_base::ids::{ClientId, DriveId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::{Answer, Push};

/// A future that may be moved between threads and borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Takes what partitions push; it neither waits nor calls back into the wire.
pub trait PushSink: Send + Sync {
    /// A push arrived.
    fn pushed(&self, push: Push);

    /// The way was cut for a while: pushes may have been lost.
    fn reconnected(&self) {}
}

/// The way to partitions and drives, and the only source of time.
///
/// An implementation delivers each message at least once or says `TimedOut`, `Stopped` or `Io`; it may also keep
/// silent for ever: every wait on it here is bounded.
pub trait Wire: Send + Sync + 'static {
    /// Asks the primary of partition `p`.
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer>;

    /// From now on what partitions push to `client` goes to `to`, which returns at once. False if this wire carries
    /// no pushes: then its client cannot have leases.
    fn listen(&self, client: ClientId, to: Arc<dyn PushSink>) -> bool {
        let _ = (client, to);
        false
    }

    /// Asks drive `d`. An unknown drive is an error, not a panic.
    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult>;

    /// Ready when another host serves `p` than at the time of this call, as far as is known: what was asked in vain may be
    /// asked again at once.
    fn moved(&self, p: PartitionId) -> BoxFuture<()> {
        let _ = p;
        Box::pin(std::future::pending())
    }

    /// Ready after `ms` milliseconds.
    fn sleep_ms(&self, ms: u64) -> BoxFuture<()>;

    /// How many partitions the cluster has (fixed at its creation).
    fn partitions(&self) -> u16;

    /// Milliseconds on a clock that never goes back; only differences mean something.
    fn now_ms(&self) -> u64;
}
