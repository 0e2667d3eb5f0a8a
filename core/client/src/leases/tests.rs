use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_base::attr::{Attr, FileType};
use braid_base::ids::{DriveId, Term};
use braid_base::limits::HEARTBEAT_MS;
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Reply, Request};
use braid_base::msg::lease::{Grant, Numbers, PushBody};

use super::*;

const P: PartitionId = PartitionId(0);
const FS: FsId = FsId(1);
const ME: ClientId = ClientId(1);

/// A clock that the test moves. Nobody is woken by it: the test polls.
#[derive(Default)]
struct Quiet(Arc<AtomicU64>);

impl Wire for Quiet {
    fn partition(&self, _: PartitionId, _: Request) -> BoxFuture<Answer> {
        unreachable!("the asker asks")
    }

    fn drive(&self, _: DriveId, _: DriveOp) -> BoxFuture<DriveResult> {
        unreachable!("leases know no drive")
    }

    fn listen(&self, _: ClientId, _: Arc<dyn PushSink>) -> bool {
        true
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        let (now, until) = (Arc::clone(&self.0), self.now_ms() + ms);
        let is_over = move || now.load(Ordering::SeqCst) >= until;
        Box::pin(poll_fn(move |_| if is_over() { Poll::Ready(()) } else { Poll::Pending }))
    }

    fn partitions(&self) -> u16 {
        1
    }

    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Partitions that say yes to everything: when they heard of the session, and what each message gave back.
struct Willing {
    wire: Arc<Quiet>,
    beats: Mutex<Vec<u64>>,
    releases: Mutex<Vec<usize>>,
}

impl Asker for Willing {
    fn ask(self: Arc<Self>, _: PartitionId, _: u64, body: Op) -> BoxFuture<Option<Answer>> {
        let reply = match body {
            Op::Hello { .. } => {
                self.beats.lock().expect("beats").push(self.wire.now_ms());
                Reply::Session { reassert: false }
            }
            Op::ReleaseLease { leases } => {
                self.releases.lock().expect("releases").push(leases.len());
                Reply::Done
            }
            _ => unreachable!("nothing else is asked"),
        };
        Box::pin(ready(Some(Answer::plain(Term(1), Ok(reply)))))
    }

    fn say_opens(self: Arc<Self>, _: Vec<Owed>) -> BoxFuture<Result<()>> {
        Box::pin(ready(Ok(())))
    }
}

/// Who holds something back of each inode.
struct Writer {
    wire: Arc<Quiet>,
    /// A flush takes so long, and keeps its thread busy; else it waits until it is woken.
    takes_ms: Option<u64>,
    waiting: Arc<Mutex<Vec<Waker>>>,
    polls: Arc<AtomicU64>,
}

impl Holder for Writer {
    fn flush(&self, _: FsId, _: Ino, _: Option<LeaseKind>) -> BoxFuture<()> {
        if let Some(ms) = self.takes_ms {
            let now = Arc::clone(&self.wire.0);
            return Box::pin(async move {
                now.fetch_add(ms, Ordering::SeqCst);
            });
        }
        let (waiting, polls) = (Arc::clone(&self.waiting), Arc::clone(&self.polls));
        let mut was_polled = false;
        Box::pin(poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            if std::mem::replace(&mut was_polled, true) {
                return Poll::Ready(());
            }
            waiting.lock().expect("waiting").push(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn forget(&self, _: FsId, _: Ino, _: &[Vec<u8>]) {}

    fn forgotten(&self, _: &[Release]) -> BoxFuture<()> {
        Box::pin(ready(()))
    }

    fn lost(&self, _: PartitionId, _: u64) {
        panic!("the session was kept alive");
    }
}

struct World {
    leases: Arc<Leases>,
    willing: Arc<Willing>,
    writer: Arc<Writer>,
    run: BoxFuture<()>,
}

impl World {
    /// A client in a session, with exclusive leases on inodes 1 to `inodes`.
    fn new(inodes: u64, takes_ms: Option<u64>) -> Self {
        let wire = Arc::new(Quiet::default());
        let leases = Leases::new(Arc::clone(&wire) as Arc<dyn Wire>, ME, None);
        assert!(leases.listen(ME));
        let (beats, releases) = (Mutex::default(), Mutex::default());
        let willing = Arc::new(Willing { wire: Arc::clone(&wire), beats, releases });
        let (waiting, polls) = (Arc::default(), Arc::default());
        let writer = Arc::new(Writer { wire, takes_ms, waiting, polls });
        leases.add_holder(Arc::downgrade(&writer) as Weak<dyn Holder>);
        let run = Box::pin(Arc::clone(&leases).run(Arc::downgrade(&willing) as Weak<dyn Asker>));
        let mut world = Self { leases, willing, writer, run };
        world.leases.step(Event::Wanted(P));
        world.poll();
        let grants = (1..=inodes).map(|ino| {
            let attr = Attr { ino: Ino(ino), kind: FileType::File, nlink: 1, ..Attr::default() };
            let (empty, roomy, numbers) = (false, false, Numbers::default());
            Grant { ino: Ino(ino), kind: LeaseKind::Exclusive, seq: ino, attr, empty, numbers, roomy }
        });
        let answer = Answer { term: Term(1), grants: grants.collect(), result: Ok(Reply::Done) };
        let op = Op::Statfs;
        let asked = world.leases.asking(P, None, FS, &op).expect("there is a session");
        assert!(world.leases.answered(P, asked, FS, &op, &answer));
        assert_eq!(world.leases.remembered() as u64, inodes);
        world
    }

    fn poll(&mut self) {
        let mut run = pin!(&mut self.run);
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    fn released(&self) -> usize {
        self.willing.releases.lock().expect("releases").iter().sum()
    }
}

#[test]
fn only_what_was_woken_goes_on() {
    const FILES: u64 = 1_000;
    let mut world = World::new(FILES, None);
    for ino in 1..=FILES {
        let body = PushBody::Recall { fs: FS, ino: Ino(ino), seq: ino, keep: None };
        world.leases.pushed(Push { to: ME, session: 1, from: P, term: Term(1), body });
    }
    while world.writer.polls.load(Ordering::SeqCst) < FILES {
        world.poll();
    }
    let waiting = std::mem::take(&mut *world.writer.waiting.lock().expect("waiting"));
    for (at, waker) in waiting.into_iter().enumerate() {
        waker.wake();
        world.poll();
        assert_eq!(world.writer.polls.load(Ordering::SeqCst), FILES + at as u64 + 1);
    }
    world.poll();
    assert_eq!(world.released() as u64, FILES);
}

#[test]
fn sessions_are_kept_alive_however_much_there_is_to_give_back() {
    const FILES: usize = 100_000;
    let mut world = World::new(FILES as u64, Some(1));
    world.leases.doubt(FS, &Op::Unlink { dir: Ino(1), name: b"a".to_vec(), told: None, alone: false });
    while world.released() < FILES {
        world.poll();
        world.willing.wire.0.fetch_add(1, Ordering::SeqCst);
    }
    let beats = world.willing.beats.lock().expect("beats").clone();
    let longest = beats.windows(2).map(|two| two[1] - two[0]).max().expect("it took more than a beat");
    assert!(beats.len() as u64 > FILES as u64 / HEARTBEAT_MS - 3 && longest < HEARTBEAT_MS + 1_000, "{beats:?}");
    let messages = world.willing.releases.lock().expect("releases").len();
    assert!(messages < FILES / 200, "{messages} messages");
}
