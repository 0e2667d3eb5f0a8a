//! A whole small cluster in memory: a partition server with names, staged and destaged content and locks, drives
//! that can fail or lie, and a clock that jumps. Good for tests of the client and of the doors, nothing else.
//! All partitions share one state; attributes stay "remote" if an inode lives in another partition.

#![allow(dead_code)] // Each test file uses its own part.

pub mod clock;
pub mod drives;
pub mod files;
pub mod history;
pub mod leased;
pub mod locks;
pub mod names;
pub mod server;
pub mod tier;

use std::sync::Arc;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, DriveId, FsId, Ino, PartitionId, Term, Vp};
use braid_base::msg::drive::{DriveOp, DriveResult, ShardId};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_base::record::PackClass;
use braid_client::fs::Background;
use braid_client::{BoxFuture, Fs, Session, Wire};

use clock::Clock;
use drives::Drives;
use server::Server;

/// The cluster and the way to it, with the jumping clock.
pub struct World {
    pub clock: Clock,
    pub server: Arc<Server>,
    pub drives: Arc<Drives>,
    pub partitions: u16,
}

impl World {
    pub fn new(partitions: u16) -> Arc<Self> {
        let (server, drives) = (Arc::new(Server::new(partitions)), Arc::new(Drives::default()));
        Arc::new(Self { clock: Clock::default(), server, drives, partitions })
    }

    /// A file system with a root directory.
    pub fn fs(self: &Arc<Self>) -> Fs {
        let fs = Fs::new(Session::new(self.clone(), ClientId(7)), FsId(1), root());
        self.run(fs.make_root(0o755)).expect("a root can be made");
        fs
    }

    /// The same, with write-behind of `bytes`.
    pub fn fs_behind(self: &Arc<Self>, bytes: usize) -> Fs {
        let session = Session::new(self.clone(), ClientId(7));
        let fs = Fs::with_write_behind(session, FsId(1), root(), self.clone(), bytes);
        self.run(fs.make_root(0o755)).expect("a root can be made");
        fs
    }

    /// Lends ranges of a new pack over the first six drives from now on.
    pub fn lend(&self) {
        let (pack, place) = self.server.state().lend_from_new_pack();
        for (shard, drive) in place.drives.iter().enumerate() {
            let id = ShardId { pack, shard: shard as u8 };
            let (data, parity, class) = (place.data, place.parity, PackClass::User);
            let op = DriveOp::Create { id, data, parity, class, term: Term(1), fs: FsId(1) };
            self.run(self.drives.ask(*drive, op)).expect("create");
        }
    }

    /// Runs `future` to its end; time jumps whenever nothing else can happen.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.clock.run(future)
    }
}

pub fn root() -> Ino {
    Ino::new(Vp(0), 1)
}

impl Background for World {
    fn spawn(&self, work: BoxFuture<()>) {
        self.clock.spawn(work);
    }

    fn wall(&self) -> Time {
        Time { sec: 1_800_000_000 + (self.clock.now_ms() / 1000) as i64, nsec: 5 }
    }
}

impl Wire for World {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        let asked = self.server.clone().ask(p, req);
        Box::pin(async move { asked.await.into() })
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        self.drives.ask(d, op)
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        self.clock.sleep(ms)
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}
