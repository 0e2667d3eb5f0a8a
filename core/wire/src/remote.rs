//! The client's side: the ways to all hosts, as a [`Wire`].

use std::sync::Arc;
use std::time::Duration;

use braid_base::ids::{ClientId, DriveId, HostId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::host::{HostOp, HostReply, HostResult, Who};
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind, Result};
use braid_client::wire::{BoxFuture, PushSink, Wire};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::entry::Find;
use crate::hello::Caller;
use crate::limits::{MAP_MS, MAP_MS_MIN, MAP_MS_OFTEN, OFTEN};
use crate::routes::{Finder, Routes, ask_host};
use crate::trunk::{Sink, Trunk};

/// How long a new client waits for the hosts that do not answer at once.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// The way to a cluster in other processes.
pub struct RemoteWire {
    routes: Arc<Routes>,
    partitions: u16,
    runtime: Handle,
    follows: AbortHandle,
}

/// Asks a host without being a client.
pub struct Visit(Trunk);

impl Visit {
    /// Connects to the host that `find` finds.
    pub async fn begin(find: Find) -> Result<Self> {
        Ok(Self(Trunk::connect(find, Caller::Visitor, Sink::default()).await?))
    }

    /// The same in the name of host `me`, whose secret or certificate `find` knows: some questions are answered to hosts
    /// only. The connections that its process has to the same host stay.
    pub async fn of_host(find: Find, me: HostId) -> Result<Self> {
        Ok(Self(Trunk::beside(find, Caller::Host(me)).await?))
    }

    /// Asks it.
    pub async fn ask(&self, op: HostOp) -> HostResult {
        ask_host(&self.0, op).await
    }
}

impl RemoteWire {
    /// Learns from the host that `entry` finds where the others are, and connects to all, as `finder` says. Must be
    /// called in a tokio runtime, which then carries the connections. Errors: that there is no such host, or that it does
    /// not let us in.
    pub async fn connect(entry: Find, finder: Finder, who: Who) -> Result<Self> {
        let map = match Visit::begin(entry).await?.ask(HostOp::Map).await? {
            HostReply::Map(map) => map,
            other => return Err(Error::new(ErrorKind::Corrupt, format!("a map was asked for, {other:?} came"))),
        };
        let partitions = u16::try_from(map.primaries.len())
            .map_err(|_| Error::new(ErrorKind::Corrupt, "a map has more partitions than there may be"))?;
        let routes = Arc::new(Routes::new(Caller::Client(who), finder));
        routes.follow(map);
        // All of them if they answer at once; who is away comes later.
        let _ = tokio::time::timeout(STRAGGLERS, routes.all_reached()).await;
        let follows = tokio::spawn(follow(Arc::clone(&routes))).abort_handle();
        Ok(Self { routes, partitions, runtime: Handle::current(), follows })
    }

    /// Whether a host can be reached now, as far as is known.
    pub fn is_connected(&self) -> bool {
        !self.routes.reached().is_empty()
    }
}

impl Drop for RemoteWire {
    fn drop(&mut self) {
        self.follows.abort();
    }
}

/// Keeps the map new: at once when somebody was asked in vain, and often for a while then, because who was asked falls
/// first and the map follows; else now and then.
async fn follow(routes: Arc<Routes>) {
    let mut often = 0;
    loop {
        let wait_ms = if often > 0 { MAP_MS_OFTEN } else { MAP_MS };
        let astray = tokio::time::timeout(Duration::from_millis(wait_ms), routes.astray.notified()).await.is_ok();
        often = if astray { OFTEN } else { often.saturating_sub(1) };
        routes.catch_up().await;
        tokio::time::sleep(Duration::from_millis(MAP_MS_MIN)).await;
    }
}

impl Wire for RemoteWire {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        let routes = Arc::clone(&self.routes);
        Box::pin(async move { routes.partition(p, req).await })
    }

    fn moved(&self, p: PartitionId) -> BoxFuture<()> {
        Box::pin(self.routes.moved(p))
    }

    fn listen(&self, client: ClientId, to: Arc<dyn PushSink>) -> bool {
        self.routes.listen(client, &to)
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        let routes = Arc::clone(&self.routes);
        Box::pin(async move { routes.drive(d, op).await })
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        let _in_runtime = self.runtime.enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn now_ms(&self) -> u64 {
        braid_io::clock::mono_ms()
    }
}
