//! A client with leases: each answer that shows an inode gives it to this client alone. The rest of the partition stays as
//! simple as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use braid_base::ErrorKind;
use braid_base::attr::{Attr, FileType};
use braid_base::ids::{ClientId, DriveId, FsId, Ino, PartitionId, Term, Vp};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::lease::{Answer, Grant, LeaseKind, Numbers};
use braid_client::{BoxFuture, Fs, PushSink, Session, Wire};

use super::{World, root};

/// The first number of files that the client makes by itself.
const NUMBERS_FROM: u64 = 1 << 20;

pub struct Leased {
    world: Arc<World>,
    /// The sessions that were begun by then are over: whoever asks is told so.
    pub lost: AtomicBool,
    /// The newest session that is not over.
    newest: AtomicU64,
}

impl Leased {
    /// A file system with write-behind of `bytes`, and names that are promised.
    pub fn fs(world: &Arc<World>, bytes: usize) -> (Arc<Self>, Fs) {
        let (leased, session) = Self::session(world);
        let fs = Fs::with_write_behind(session, FsId(1), root(), world.clone(), bytes);
        fs.promise_names(50);
        world.run(fs.make_root(0o755)).expect("a root can be made");
        world.run(fs.getattr(root())).expect("it is there");
        (leased, fs)
    }

    /// The same of a client that holds nothing back.
    pub fn plain_fs(world: &Arc<World>) -> (Arc<Self>, Fs) {
        let (leased, session) = Self::session(world);
        let fs = Fs::new(session, FsId(1), root());
        fs.go_on_in(world.clone());
        world.run(fs.make_root(0o755)).expect("a root can be made");
        (leased, fs)
    }

    fn session(world: &Arc<World>) -> (Arc<Self>, Arc<Session>) {
        let leased = Arc::new(Self { world: world.clone(), lost: AtomicBool::new(false), newest: AtomicU64::new(0) });
        let session = Session::new(leased.clone(), ClientId(7));
        world.clock.spawn(Box::pin(session.keep_leases(None)));
        (leased, session)
    }
}

/// Of session `seq`: leases of an earlier one are not taken any more.
fn grant(attr: &Attr, seq: u64) -> Grant {
    let is_dir = attr.kind == FileType::Directory;
    let numbers = Numbers { first: Ino::new(Vp(0), NUMBERS_FROM), count: if is_dir { 100 } else { 0 } };
    Grant { ino: attr.ino, kind: LeaseKind::Exclusive, seq, attr: attr.clone(), empty: is_dir, numbers, roomy: is_dir }
}

impl Wire for Leased {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        let lost = self.lost.load(Ordering::SeqCst);
        let number = req.session;
        let is_old = number <= self.newest.load(Ordering::SeqCst);
        if !lost {
            self.newest.fetch_max(number, Ordering::SeqCst);
        }
        let session = match req.body {
            Op::Hello { .. } if lost && is_old => Some(Err(ErrorKind::SessionLost.into())),
            Op::Hello { .. } => Some(Ok(Reply::Session { reassert: false })),
            Op::ReleaseLease { .. } => Some(Ok(Reply::Done)),
            _ => None,
        };
        if let Some(result) = session {
            return Box::pin(async move { Answer::plain(Term(1), result) });
        }
        let dir = match req.body {
            Op::Create { dir, .. } | Op::Unlink { dir, .. } | Op::Rmdir { dir, .. } => Some(dir),
            _ => None,
        };
        let (asked, server) = (self.world.server.clone().ask(p, req), self.world.server.clone());
        Box::pin(async move {
            let result = asked.await;
            let shown = match &result {
                Ok(Reply::Attr(attr) | Reply::Wrote { attr, .. } | Reply::Entry { attr: Some(attr), .. }) => Some(attr),
                _ => None,
            };
            let mut grants: Vec<Grant> = shown.map(|attr| grant(attr, number)).into_iter().collect();
            if let Some(node) = dir.and_then(|dir| server.state().nodes.get(&dir).map(|node| node.attr.clone())) {
                // What is in it is known as far as it was said.
                grants.push(Grant { empty: false, numbers: Numbers::default(), ..grant(&node, number) });
            }
            grants.retain(|_| !lost);
            Answer { term: Term(1), grants, result }
        })
    }

    fn listen(&self, _client: ClientId, _to: Arc<dyn PushSink>) -> bool {
        true
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        self.world.drive(d, op)
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        self.world.clock.sleep(ms)
    }

    fn partitions(&self) -> u16 {
        self.world.partitions
    }

    fn now_ms(&self) -> u64 {
        self.world.clock.now_ms()
    }
}
