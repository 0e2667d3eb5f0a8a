//! The one place where the command line meets the running cluster: the list of parts, started in order.
//!
//! 1. The coordinator says whether a cluster exists.
//! 2. Each place where a drive may be is looked at; what contradicts the records or the wish is refused.
//! 3. A new cluster: drives are formatted, then recorded as active.
//! 4. The host starts drives, view and partitions.

mod audits;
pub mod backend;
pub mod certificate;
pub mod control;
mod detour;
mod drive_changes;
mod drives;
mod filesystems;
mod host_changes;
mod problems;
pub mod recall;
mod stores;
mod views;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use braid_base::Result;
use braid_base::ids::PartitionId;
use braid_cluster::coordinator::Coordinator;
use braid_cluster::embedded::Embedded;
use braid_cluster::setup::{self, Known, Plan, Wish, World};
use braid_cluster::snapshot::Snapshot;
use braid_host::run::{Host, HostConfig};

use control::Node;
use filesystems::Way;

/// Bytes of one file system that programs wrote and that may wait in a client before writers do.
pub const WRITE_BEHIND_BYTES: usize = 64 << 20;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's directory; it exists and holds a cluster or nothing.
    pub dir: PathBuf,
    /// What was asked for.
    pub wish: Wish,
    /// Rebuild a damaged coordinator from its backup.
    pub recover: bool,
}

/// Says what is being done, for people who wait.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Creates the cluster in `options.dir` or continues it. Blocks until it serves; `say` hears each step.
///
/// Runs inside the tokio runtime's blocking pool. A failure is one line; whatever was started has stopped then.
pub fn start(options: Options, say: Say) -> Result<Arc<Node>> {
    say("looking at the drives");
    let path = options.dir.join("cluster.redb");
    if !path.exists() && !options.dir.join("cluster.redb.backup").exists() {
        // A wish that is refused must leave nothing behind, not even an empty coordinator.
        decide(None, &options)?;
    }
    let coordinator = open_coordinator(&path, options.recover)?;
    let plan = decide(setup::known(coordinator.as_ref())?, &options)?;
    let mut plan = setup::record(coordinator.as_ref(), plan)?;
    say("preparing the drives");
    drives::prepare(coordinator.as_ref(), &mut plan)?;
    say("recovering partitions");
    let raw_of = drives::raw_of(plan.cluster.shard_bytes);
    let now = Snapshot::read(coordinator.as_ref())?;
    let capacity_bytes = now.net_bytes(raw_of);
    let config = host_config(&options, &plan, capacity_bytes);
    let host = Host::start(config, &coordinator, None, tokio::runtime::Handle::current())?;
    let node = Node::new(options.dir, coordinator, (host, plan.host.id), plan.cluster, plan.lost, Way::Here);
    // Its replicas do not come and go: nobody says that one is forsaken.
    node.follow(now, mpsc::channel().1)?;
    Ok(Arc::new(node))
}

fn decide(known: Option<Known>, options: &Options) -> Result<Plan> {
    let places = setup::places(known.as_ref(), &options.wish, &options.dir);
    let mut identities = drives::identities(places.len() + 1)?;
    let found = drives::look_at(places)?;
    let mut identity = || identities.pop().unwrap_or_default();
    let world = World { identity: &mut identity, now_s: views::now_s() };
    let plan = setup::decide(known.as_ref(), &options.wish, &found, world)?;
    setup::check_room(&plan, &options.dir, braid_io::file::free_bytes(&options.dir)?)?;
    Ok(plan)
}

fn open_coordinator(path: &Path, recover: bool) -> Result<Arc<dyn Coordinator>> {
    let clock = Arc::new(braid_io::clock::mono_ms);
    let store = if recover { Embedded::recover(path, clock)? } else { Embedded::open(path, clock)? };
    Ok(Arc::new(store))
}

fn host_config(options: &Options, plan: &Plan, capacity_bytes: u64) -> HostConfig {
    let [drives, awaited, absent] = drives::specs(plan);
    HostConfig {
        dir: options.dir.clone(),
        cluster: plan.cluster.guid,
        host: plan.host.id,
        data: plan.cluster.protection.data,
        parity: plan.cluster.protection.parity,
        shard_bytes: plan.cluster.shard_bytes,
        partitions: plan.cluster.partitions,
        drives,
        awaited,
        absent,
        replicas: (0..plan.cluster.partitions).map(PartitionId).collect(),
        capacity_bytes,
    }
}
