//! The same actors over both engines, on threads and on a runtime, on real files.

use std::path::PathBuf;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use braid_base::{ErrorKind, Result};
use braid_io::buf::{AlignedBuf, is_aligned};
use braid_io::chance::{self, Rng};
use braid_io::file::{self, Create, File, OpenMode, ReadAt};
use braid_io::reactor::{self, Actor, Backend, Ending, FileId, IoDone, IoOp, Place, Token, Turn};
use bytes::Bytes;
use tokio::runtime::Runtime;

/// On a thread of its own and on a runtime that moves it about, over both engines.
fn ways() -> impl Iterator<Item = (Place, Backend)> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        workers.expect("a runtime")
    });
    let places = [Place::Thread, Place::Runtime(RUNTIME.handle().clone())];
    places.into_iter().flat_map(|place| [Backend::Uring, Backend::Blocking].map(|engine| (place.clone(), engine)))
}

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("braid-io-{}", chance::guid().expect("random")));
        file::make_dir(&path).expect("a directory in the temporary folder");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Answer = mpsc::Sender<(Result<IoDone>, usize)>;

/// Carries out I/O for the test and counts its batches.
struct Clerk {
    waiting: Vec<Option<Answer>>,
    batches: usize,
    timer: Option<mpsc::Sender<u64>>,
}

enum Ask {
    Io(IoOp, Answer),
    Timer(u64, mpsc::Sender<u64>),
    Panic,
}

impl Actor for Clerk {
    type Msg = Ask;

    fn on_msg(&mut self, msg: Ask, turn: &mut Turn) {
        match msg {
            Ask::Io(op, answer) => {
                let token = Token(self.waiting.len() as u64);
                // Both ways bring the same, in any mixture.
                if token.0 % 3 == 2 {
                    turn.submit_here(token, op)
                } else {
                    turn.submit(token, op)
                }
                self.waiting.push(Some(answer));
            }
            Ask::Timer(ms, answer) => {
                self.timer = Some(answer);
                turn.set_timer(turn.now().mono_us + ms * 1000);
            }
            Ask::Panic => panic!("asked to"),
        }
    }

    fn on_io(&mut self, token: Token, result: Result<IoDone>, _turn: &mut Turn) {
        let answer = self.waiting[token.0 as usize].take().expect("each I/O ends once");
        answer.send((result, self.batches)).expect("the test listens");
    }

    fn on_batch(&mut self, _turn: &mut Turn) {
        self.batches += 1;
    }

    fn on_timer(&mut self, turn: &mut Turn) {
        let answer = self.timer.take().expect("a timer was set");
        answer.send(turn.now().mono_ms).expect("the test listens");
    }
}

struct Desk {
    mailbox: braid_io::reactor::Mailbox<Ask>,
    ending: Ending,
}

impl Desk {
    fn open(place: &Place, engine: Backend, path: PathBuf, mode: OpenMode) -> Result<Self> {
        let (mailbox, ending) = reactor::start(place, "clerk", engine, move |turn| {
            assert_eq!(turn.open(&path, mode)?, FileId(0), "the first file of this clerk");
            Ok(Clerk { waiting: Vec::new(), batches: 0, timer: None })
        })?;
        Ok(Self { mailbox, ending })
    }

    fn start(&self, op: IoOp) -> mpsc::Receiver<(Result<IoDone>, usize)> {
        let (answer, got) = mpsc::channel();
        self.mailbox.send(Ask::Io(op, answer)).expect("the clerk runs");
        got
    }

    fn io(&self, op: IoOp) -> Result<IoDone> {
        self.start(op).recv().expect("an answer comes").0
    }

    fn write(&self, off: u64, data: Vec<Bytes>) -> Result<IoDone> {
        self.io(IoOp::Write { file: FileId(0), off, data, durable: true })
    }

    fn read(&self, off: u64, len: usize) -> Bytes {
        match self.io(IoOp::Read { file: FileId(0), off, len }) {
            Ok(IoDone::Read(bytes)) => bytes,
            other => panic!("expected bytes, found {other:?}"),
        }
    }

    fn close(self) {
        drop(self.mailbox);
        // By itself when nobody can reach it.
        self.ending.wait();
        assert!(self.ending.is_over());
    }
}

fn noise(seed: u64, len: usize) -> Bytes {
    let mut buf = AlignedBuf::zeroed(len);
    Rng::new(seed).fill(&mut buf);
    buf.into_bytes()
}

#[test]
fn writes_come_back_through_any_offset() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let desk = Desk::open(&place, engine, dir.0.join("a"), OpenMode::new_file(1 << 20)).expect("open");
        let data = noise(1, 64 << 10);
        // Aligned, in one piece; misaligned in many pieces; both are the same bytes.
        assert_eq!(desk.write(4096, vec![data.clone()]), Ok(IoDone::Done));
        let mut pieces = Vec::new();
        let mut at = 0;
        for step in [1usize, 7, 4096, 10_000, 33].iter().cycle() {
            let end = (at + step).min(data.len());
            pieces.push(data.slice(at..end));
            at = end;
            if at == data.len() {
                break;
            }
        }
        assert_eq!(desk.write(512 << 10, pieces), Ok(IoDone::Done));
        for (off, len) in [(0, 4096), (0, 65536), (1, 1), (4095, 2), (100, 50_000), (65535, 1)] {
            let expected = data.slice(off..off + len);
            assert_eq!(desk.read(4096 + off as u64, len), expected, "{place:?} {engine:?} {off} {len}");
            assert_eq!(desk.read((512 << 10) + off as u64, len), expected, "{place:?} {engine:?} {off} {len}");
        }
        assert!(is_aligned(&desk.read(8192, 4096)));
        assert_eq!(desk.read((1 << 20) - 10, 100).len(), 10, "the end of the file cuts the read");
        assert_eq!(desk.read(2 << 20, 100).len(), 0, "beyond the end there is nothing");
        assert_eq!(desk.io(IoOp::Sync { file: FileId(0) }), Ok(IoDone::Done));
        assert_eq!(desk.io(IoOp::Discard { file: FileId(0), off: 4096, len: 4096 }), Ok(IoDone::Done));
        assert_eq!(desk.read(4096, 4096), vec![0; 4096]);
        desk.close();
    }
}

#[test]
fn thousands_in_flight_and_more_pieces_than_a_call_takes() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let desk = Desk::open(&place, engine, dir.0.join("a"), OpenMode::new_file(16 << 20)).expect("open");
        let data = noise(2, 4096 * 2000);
        let pieces: Vec<Bytes> = (0..2000).map(|i| data.slice(i * 4096..(i + 1) * 4096)).collect();
        assert_eq!(desk.write(0, pieces.clone()), Ok(IoDone::Done));
        let order: Vec<usize> = (0..2000).map(|i| (i * 7) % 2000).collect();
        let reads: Vec<_> = order
            .iter()
            .map(|&i| (i, desk.start(IoOp::Read { file: FileId(0), off: i as u64 * 4096, len: 4096 })))
            .collect();
        for (i, got) in reads {
            let (result, batches) = got.recv().expect("an answer comes");
            assert_eq!(result, Ok(IoDone::Read(pieces[i].clone())), "{place:?} {engine:?} block {i}");
            assert!(batches > 0, "on_batch runs after the messages and before their completions");
        }
        desk.close();
    }
}

#[test]
fn errors_come_back_with_kind_and_words() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let path = dir.0.join("a");
        let missing = Desk::open(&place, engine, path.clone(), OpenMode::READ).err().expect("no such file");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let desk = Desk::open(&place, engine, path.clone(), OpenMode::new_file(8192)).expect("open");
        let unknown = desk.io(IoOp::Sync { file: FileId(9) }).expect_err("not open");
        assert_eq!(unknown.kind(), ErrorKind::Invalid);
        if File::open(&path, OpenMode::READ).expect("open").is_direct() {
            let off_grid = desk.write(1, vec![noise(3, 4096)]).expect_err("off the grid");
            assert_eq!(off_grid.kind(), ErrorKind::Invalid);
        }
        let again = Desk::open(&place, engine, path.clone(), OpenMode::new_file(8192)).err().expect("it exists");
        assert_eq!(again.kind(), ErrorKind::Exists);
        let reader = Desk::open(&place, engine, path, OpenMode::READ).expect("open");
        let refused = reader.write(0, vec![noise(3, 4096)]).expect_err("opened for reading only");
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert!(refused.message().contains("write 4096 bytes at 0"), "{refused}");
        reader.close();
        desk.close();
    }
}

#[test]
fn a_timer_wakes_a_sleeper_and_not_too_early() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let desk = Desk::open(&place, engine, dir.0.join("a"), OpenMode::new_file(0)).expect("open");
        let before = braid_io::clock::mono_ms();
        let (answer, got) = mpsc::channel();
        desk.mailbox.send(Ask::Timer(30, answer)).expect("the clerk runs");
        let at = got.recv().expect("the timer fires");
        assert!(at >= before + 30, "{place:?} {engine:?}: asked for 30 ms, fired after {}", at - before);
        desk.close();
    }
}

#[test]
fn a_panic_frees_everybody_who_waits() {
    for (place, engine) in ways() {
        let dir = Dir::new();
        let desk = Desk::open(&place, engine, dir.0.join("a"), OpenMode::new_file(1 << 20)).expect("open");
        let got: Vec<_> = (0..50).map(|_| desk.start(IoOp::Read { file: FileId(0), off: 0, len: 1 << 20 })).collect();
        desk.mailbox.send(Ask::Panic).expect("the clerk runs");
        desk.ending.wait();
        for answer in got {
            // Either it came in time or its sender is gone; nobody hangs.
            drop(answer.recv());
        }
        let (answer, _got) = mpsc::channel();
        assert!(desk.mailbox.send(Ask::Timer(1, answer)).is_err(), "a dead actor takes no mail");
        assert!(desk.mailbox.is_stopped());
    }
}

#[test]
fn many_senders_lose_nothing() {
    struct Sum(u64, mpsc::Sender<u64>);
    impl Actor for Sum {
        type Msg = u64;
        fn on_msg(&mut self, msg: u64, _turn: &mut Turn) {
            self.0 += msg;
        }
        fn on_io(&mut self, _token: Token, _result: Result<IoDone>, _turn: &mut Turn) {}
        fn on_closed(&mut self, turn: &mut Turn) {
            self.1.send(self.0).expect("the test listens");
            turn.stop();
        }
    }
    for (place, engine) in ways() {
        let (answer, got) = mpsc::channel();
        let (mailbox, ending) = reactor::start(&place, "sum", engine, move |_| Ok(Sum(0, answer))).expect("spawn");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mailbox = mailbox.clone();
                scope.spawn(move || (1..=5000).for_each(|i| mailbox.send(i).expect("the actor runs")));
            }
        });
        drop(mailbox);
        assert_eq!(got.recv(), Ok(4 * 5000 * 5001 / 2), "{place:?} {engine:?}");
        ending.wait();
    }
}

#[test]
fn files_are_made_locked_renamed_and_removed() {
    let dir = Dir::new();
    let deep = dir.0.join("x/y");
    file::make_dir(&deep).expect("make");
    let path = deep.join("a");
    let mode = OpenMode { write: true, create: Create::IfMissing(65536), direct: true, exclusive: true };
    let first = File::open(&path, mode).expect("made");
    assert_eq!(first.size(), Ok(65536));
    let second = File::open(&path, mode).expect_err("held by the first");
    assert_eq!(second.kind(), ErrorKind::Refused);
    first.write_at(4096, &noise(5, 8192)).expect("write");
    drop(first);
    let writer = File::open(&path, OpenMode::WRITE).expect("open");
    writer.hold().expect("beside others who do so");
    // As with a process that was killed: it goes on for a moment.
    let again = std::thread::scope(|scope| {
        let opener = scope.spawn(|| File::open(&path, mode));
        std::thread::park_timeout(Duration::from_millis(100));
        assert!(!opener.is_finished(), "it is held");
        drop(writer);
        opener.join().expect("no panic").expect("free again")
    });
    let ranges: Vec<_> = (0..64).map(|i| (i * 1000, 100)).collect();
    for (range, read) in ranges.iter().zip(again.read_many(&ranges)) {
        assert_eq!(read.expect("inside the file"), again.read_at(range.0, range.1).expect("inside the file"));
    }
    assert_eq!(again.read_at(4096, 8192).expect("read"), noise(5, 8192));
    assert_eq!(again.read_at(65530, 10).expect_err("past the end").kind(), ErrorKind::Io);
    let moved = deep.join("b");
    file::rename(&path, &moved).expect("rename");
    assert_eq!(file::list(&deep).expect("list"), ["b"]);
    file::remove(&moved).expect("remove");
    file::remove(&moved).expect("removing what is gone is fine");
    assert_eq!(File::open(&dir.0, OpenMode::READ).expect_err("a directory").kind(), ErrorKind::Refused);
}

#[test]
fn what_is_under_way_at_the_end_is_waited_for() {
    struct Last(FileId);
    impl Actor for Last {
        type Msg = ();
        fn on_msg(&mut self, (): (), turn: &mut Turn) {
            turn.submit(Token(1), IoOp::Read { file: self.0, off: 0, len: 4096 });
            turn.submit(Token(2), IoOp::Sync { file: FileId(9) });
            turn.stop();
        }
        fn on_io(&mut self, _token: Token, _result: Result<IoDone>, _turn: &mut Turn) {
            panic!("it has stopped");
        }
    }
    let dir = Dir::new();
    drop(File::open(&dir.0.join("a"), OpenMode::new_file(1 << 20)).expect("made"));
    for (place, engine) in ways() {
        for _ in 0..200 {
            let path = dir.0.join("a");
            let make = move |turn: &mut Turn| Ok(Last(turn.open(&path, OpenMode::READ)?));
            let (mailbox, ending) = reactor::start(&place, "last", engine, make).expect("spawn");
            mailbox.send(()).expect("it runs");
            let (over, told) = mpsc::channel();
            std::thread::spawn(move || {
                ending.wait();
                over.send(())
            });
            told.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{place:?} {engine:?}: no end"));
        }
    }
}

#[test]
fn a_runtime_that_ends_ends_what_it_runs() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    assert!(matches!(Place::beside(runtime.handle()), Place::Runtime(_)), "its only worker");
    let (dir, place) = (Dir::new(), Place::beside(runtime.handle()));
    let desk = Desk::open(&place, Backend::Auto, dir.0.join("a"), OpenMode::new_file(1 << 20)).expect("open");
    assert_eq!(desk.write(0, vec![noise(1, 4096)]), Ok(IoDone::Done));
    assert!(!desk.ending.is_over());
    let under_way = desk.start(IoOp::Read { file: FileId(0), off: 0, len: 1 << 20 });
    drop(runtime);
    desk.ending.wait();
    drop(under_way.recv());
    assert!(desk.mailbox.is_stopped());
}
