//! File locks of several owners on one partition.

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::{ClientId, Ino, OpId};
use braid_base::msg::fs::{FsResult, LockKind, LockSpec, Op, Reply};

use super::world::{Call, FS, Faults, World};

const ME: ClientId = ClientId(1);
const YOU: ClientId = ClientId(2);

struct Bench {
    world: World,
    seq: u64,
    file: Ino,
    other: Ino,
}

impl Bench {
    fn new() -> Self {
        let root = Ino::root(FS);
        let world = World::new(1, 1, Faults::default(), None);
        let mut bench = Self { world, seq: 0, file: root, other: root };
        bench.run(ME, Op::MakeRoot { ino: root, mode: 0o755 }).expect("the root can be made");
        (bench.file, bench.other) = (bench.create(b"file"), bench.create(b"other"));
        bench
    }

    fn create(&mut self, name: &[u8]) -> Ino {
        let (dir, name, kind, target) = (Ino::root(FS), name.to_vec(), FileType::File, Vec::new());
        let create =
            Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, target, open: false, told: None, want: 0 };
        let Ok(Reply::Entry { ino, .. }) = self.run(ME, create) else { panic!("a file can be made") };
        ino
    }

    fn run(&mut self, client: ClientId, body: Op) -> FsResult {
        self.seq += 1;
        self.world.run(client, self.seq, body)
    }

    fn lock(&mut self, client: ClientId, lock: LockSpec) -> Result<(), ErrorKind> {
        let ino = self.file;
        self.run(client, Op::Lock { ino, lock, wait: false }).map(drop).map_err(|error| error.kind())
    }

    /// Asks for a lock that must wait.
    fn wait(&mut self, client: ClientId, ino: Ino, lock: LockSpec) -> Call {
        self.seq += 1;
        let op = OpId { client, seq: self.seq };
        let mut call = self.world.begin(op, 0, Op::Lock { ino, lock, wait: true });
        assert!(self.answer(&mut call, 30).is_none(), "the lock is held by someone");
        call
    }

    fn answer(&mut self, call: &mut Call, turns: usize) -> Option<FsResult> {
        for _ in 0..turns {
            if let Some(result) = self.world.poll(call) {
                return Some(result);
            }
            self.world.turn();
        }
        None
    }

    fn granted(&mut self, mut call: Call) -> Result<(), ErrorKind> {
        self.answer(&mut call, 1_000).expect("it does not wait for ever").map(drop).map_err(|error| error.kind())
    }
}

fn spec(owner: u64, start: u64, end: u64, kind: LockKind) -> LockSpec {
    LockSpec { owner, pid: 70 + owner as u32, start, end, kind, flock: false }
}

fn flock(owner: u64, kind: LockKind) -> LockSpec {
    LockSpec { flock: true, ..spec(owner, 0, 0, kind) }
}

#[test]
fn conflicts_are_seen_and_shown() {
    let mut b = Bench::new();
    assert_eq!(b.lock(ME, spec(1, 10, 19, LockKind::Write)), Ok(()));
    assert_eq!(b.lock(YOU, spec(1, 15, 15, LockKind::Read)), Err(ErrorKind::WouldBlock));
    assert_eq!(b.lock(YOU, spec(1, 20, u64::MAX, LockKind::Write)), Ok(()));
    assert_eq!(b.lock(ME, spec(2, 12, 12, LockKind::Read)), Err(ErrorKind::WouldBlock), "another owner, same client");
    let (ino, lock) = (b.file, spec(1, 0, u64::MAX, LockKind::Read));
    let Ok(Reply::Locked(Some(found))) = b.run(YOU, Op::TestLock { ino, lock }) else { panic!("a lock is in the way") };
    assert_eq!(found, spec(1, 10, 19, LockKind::Write));
    // The two kinds do not see each other.
    assert_eq!(b.lock(YOU, flock(9, LockKind::Write)), Ok(()));
    assert_eq!(b.lock(ME, flock(9, LockKind::Read)), Err(ErrorKind::WouldBlock));
}

#[test]
fn waiters_get_the_lock_when_it_is_free() {
    let mut b = Bench::new();
    let file = b.file;
    assert_eq!(b.lock(ME, spec(1, 0, 99, LockKind::Write)), Ok(()));
    let first = b.wait(YOU, file, spec(1, 0, 9, LockKind::Write));
    let second = b.wait(YOU, file, spec(2, 50, 59, LockKind::Read));
    assert_eq!(b.lock(ME, spec(1, 0, 20, LockKind::Unlock)), Ok(()));
    assert_eq!(b.granted(first), Ok(()));
    b.run(ME, Op::UnlockOwner { ino: file, owner: 1, flock: false }).expect("locks can be dropped");
    assert_eq!(b.granted(second), Ok(()));
}

#[test]
fn waiting_can_be_given_up_and_ends_with_the_session() {
    let mut b = Bench::new();
    let file = b.file;
    assert_eq!(b.lock(ME, flock(1, LockKind::Write)), Ok(()));
    let waiting = b.wait(YOU, file, flock(1, LockKind::Write));
    b.run(YOU, Op::CancelLock { ino: file, seq: waiting.op.seq }).expect("a wait can be given up");
    assert_eq!(b.granted(waiting), Err(ErrorKind::WouldBlock));
    let waiting = b.wait(YOU, file, flock(1, LockKind::Read));
    b.run(ME, Op::EndSession).expect("a session can end");
    assert_eq!(b.granted(waiting), Ok(()));
}

#[test]
fn a_deadlock_is_refused() {
    let mut b = Bench::new();
    let (file, other) = (b.file, b.other);
    assert_eq!(b.lock(ME, spec(1, 0, 9, LockKind::Write)), Ok(()));
    b.run(YOU, Op::Lock { ino: other, lock: spec(1, 0, 9, LockKind::Write), wait: false }).expect("it is free");
    let waiting = b.wait(ME, other, spec(1, 5, 5, LockKind::Write));
    let lock = spec(1, 5, 5, LockKind::Read);
    let refused = b.run(YOU, Op::Lock { ino: file, lock, wait: true });
    assert_eq!(refused.map_err(|error| error.kind()).map(drop), Err(ErrorKind::Deadlock));
    b.run(YOU, Op::UnlockOwner { ino: other, owner: 1, flock: false }).expect("locks can be dropped");
    assert_eq!(b.granted(waiting), Ok(()));
}

#[test]
fn two_sharers_of_a_flock_can_both_ask_for_more() {
    let mut b = Bench::new();
    let file = b.file;
    assert_eq!(b.lock(ME, flock(1, LockKind::Read)), Ok(()));
    assert_eq!(b.lock(YOU, flock(1, LockKind::Read)), Ok(()));
    assert_eq!(b.lock(ME, flock(1, LockKind::Write)), Err(ErrorKind::WouldBlock));
    let first = b.wait(ME, file, flock(1, LockKind::Write));
    // The first one gave its share up to wait, so the second gets the file and then makes room.
    assert_eq!(b.lock(YOU, flock(1, LockKind::Write)), Ok(()));
    assert_eq!(b.lock(YOU, flock(1, LockKind::Unlock)), Ok(()));
    assert_eq!(b.granted(first), Ok(()));
}
