//! The paths of `docs/paths.md`, walked one by one: how many messages, log writes and drive operations each takes,
//! and which rooms it visits.

use braid_base::ErrorKind;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, XattrMode};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_sim::board::{Board, Node};
use braid_sim::config::SimConfig;
use braid_sim::run::{ROOT, Run};
use braid_sim::world::Counts;
use bytes::Bytes;

/// Longest walk, microseconds of simulated time.
const WALK_US: u64 = 1_000_000;

/// A calm cluster of one partition with one client and one empty file.
struct Path {
    run: Run,
    fs: Fs,
    file: Ino,
}

impl Path {
    fn new() -> Self {
        Self::of(SimConfig::calm(1))
    }

    /// The same, and the client has leases.
    fn with_leases() -> Self {
        Self::of(SimConfig { leases: true, behind_bytes: 1 << 20, ..SimConfig::calm(1) })
    }

    fn of(config: SimConfig) -> Self {
        // Nothing of the background gets in between: no destage before it is asked for.
        let config = SimConfig { partitions: 1, clients: 0, stage_age_ms: 5_000, ..config };
        let mut run = Run::new(config, Board::default()).expect("a calm cluster starts");
        run.set_up().expect("a calm cluster can be set up");
        let fs = run.mount(Node::Client(0));
        let maker = fs.clone();
        let task = async move { maker.create(Cred::default(), ROOT, b"file", Create::default()).await };
        let made = run.wait("create", Node::Client(0), WALK_US, task).expect("it ends");
        let file = made.expect("it is created").ino;
        let mut path = Self { run, fs, file };
        path.rest(2_000_000);
        path
    }

    /// Lets so much time pass.
    fn rest(&mut self, us: u64) {
        self.run.world.run(us, |_| false);
    }

    /// What `walk` takes, and what it gives.
    fn walk<T: 'static>(&mut self, walk: impl AsyncFnOnce(Fs, Ino) -> T + 'static) -> (Counts, T) {
        let (fs, file) = (self.fs.clone(), self.file);
        let before = self.run.world.counts;
        let value = self.run.wait("a walk", Node::Client(0), WALK_US, async move { walk(fs, file).await });
        let value = value.expect("a walk in a calm cluster ends");
        (difference(self.run.world.counts, before), value)
    }
}

fn difference(after: Counts, before: Counts) -> Counts {
    Counts {
        requests: after.requests - before.requests,
        peer: after.peer - before.peer,
        drive_by_seat: after.drive_by_seat - before.drive_by_seat,
        drive_by_task: after.drive_by_task - before.drive_by_task,
        log_writes: after.log_writes - before.log_writes,
        log_reads: after.log_reads - before.log_reads,
        moves: after.moves - before.moves,
        replica: after.replica - before.replica,
        objects: after.objects - before.objects,
        serves: after.serves - before.serves,
    }
}

const DATA: Bytes = Bytes::from_static(&[7; 4096]);

#[test]
fn a_small_durable_write_is_one_message_and_one_log_write() {
    let mut path = Path::new();
    let (took, written) = path.walk(async |fs, file| fs.write(file, 0, DATA, false, false).await);
    assert_eq!(written.expect("written").len, 4096);
    assert_eq!(took, Counts { requests: 1, log_writes: 1, ..Counts::default() });
}

#[test]
fn writes_that_meet_share_a_log_write() {
    let mut path = Path::new();
    let before = path.run.world.counts;
    for at in 0..8 {
        let (fs, file) = (path.fs.clone(), path.file);
        let task = async move { fs.write(file, at * 4096, DATA, false, false).await.map(drop).expect("written") };
        path.run.world.spawn(Node::Client(0), Box::pin(task));
    }
    path.rest(100_000);
    let took = difference(path.run.world.counts, before);
    assert_eq!(took.requests, 8);
    assert!(took.log_writes < 8, "group commit: {took:?}");
}

#[test]
fn a_staged_read_is_one_message_and_no_disk() {
    let mut path = Path::new();
    path.walk(async |fs, file| fs.write(file, 0, DATA, false, false).await.map(drop).expect("written"));
    // What was written to a moment ago is not worth to be remembered.
    path.rest(200_000);
    let (took, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("read"), DATA);
    assert_eq!(took, Counts { requests: 1, ..Counts::default() });
    let (again, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("read"), DATA);
    assert_eq!(again, Counts::default(), "the layout and its bytes are remembered");
}

#[test]
fn destage_is_one_move_of_all_shards_and_one_log_write() {
    let mut path = Path::new();
    path.walk(async |fs, file| fs.write(file, 0, DATA, false, false).await.map(drop).expect("written"));
    // Its pack is opened ahead; the move itself is what counts here.
    let idle = path.run.world.counts;
    let moved = path.run.world.run(20_000_000, |world| world.counts.moves > 0);
    assert!(moved, "old staged bytes move by themselves");
    // The mover has just sent its question.
    let planned = path.run.world.counts;
    assert_eq!(planned.requests - idle.requests, 1, "one read of the staged bytes");
    assert!(path.run.world.run(1_000_000, |world| world.is_destaged()));
    let took = difference(path.run.world.counts, planned);
    // D+P shards; the entry that points to them.
    assert_eq!((took.requests, took.drive_by_task, took.log_writes), (0, 6, 1), "{took:?}");
}

#[test]
fn a_read_from_flash_is_one_message_and_one_shard() {
    let mut path = Path::new();
    path.walk(async |fs, file| fs.write(file, 0, DATA, false, false).await.map(drop).expect("written"));
    assert!(path.run.world.run(20_000_000, |world| world.is_destaged()));
    let (took, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("read"), DATA);
    assert_eq!(took, Counts { requests: 1, drive_by_task: 1, ..Counts::default() });
    let (again, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("read"), DATA);
    assert_eq!(again, Counts { drive_by_task: 1, ..Counts::default() }, "the layout is remembered");
}

#[test]
fn a_read_without_its_shard_asks_as_many_others_as_it_takes() {
    let mut path = Path::new();
    path.walk(async |fs, file| fs.write(file, 0, DATA, false, false).await.map(drop).expect("written"));
    assert!(path.run.world.run(20_000_000, |world| world.is_destaged()));
    path.run.world.lose_drives();
    let (fs, file) = (path.fs.clone(), path.file);
    let task = async move { fs.read(file, 0, 4096).await };
    let read = path.run.wait("a degraded read", Node::Client(0), 30_000_000, task).expect("it ends");
    assert_eq!(read.expect("two of six drives may be missing"), DATA);
}

#[test]
fn stat_and_lookup_are_one_message() {
    let mut path = Path::new();
    let one = Counts { requests: 1, ..Counts::default() };
    let (took, attr) = path.walk(async |fs, file| fs.getattr(file).await);
    assert_eq!((took, attr.expect("attributes").size), (one, 0));
    let (took, found) = path.walk(async |fs, _| fs.lookup(ROOT, b"file").await);
    assert_eq!((took, found.expect("found").ino), (one, path.file));
}

#[test]
fn create_and_unlink_are_one_message_and_one_log_write_each() {
    let mut path = Path::new();
    let one = Counts { requests: 1, log_writes: 1, ..Counts::default() };
    let (took, made) = path.walk(async |fs, _| fs.create(Cred::default(), ROOT, b"new", Create::default()).await);
    assert!(made.is_ok());
    assert_eq!(took, one);
    let (took, gone) = path.walk(async |fs, _| fs.unlink(ROOT, b"new").await);
    assert!(gone.is_ok());
    assert_eq!(took, one);
}

#[test]
fn what_a_lease_covers_is_not_asked_for() {
    let mut path = Path::with_leases();
    let one = Counts { requests: 1, ..Counts::default() };
    let (took, opened) = path.walk(async |fs, file| fs.open(file, false).await);
    assert!(opened.is_ok() && took == Counts::default(), "{took:?}");
    let (took, value) = path.walk(async |fs, file| {
        fs.close(file).await.expect("closed");
        fs.open(file, false).await.expect("opened again");
        fs.close(file).await.expect("closed again");
        let names = fs.listxattr(file).await.expect("listed");
        (names, fs.getxattr(file, b"security.capability").await)
    });
    assert_eq!((took, value.0.len()), (Counts::default(), 0), "references are not told, attributes there are none");
    assert_eq!(value.1.expect_err("there is none").kind(), ErrorKind::NoAttribute);
    path.walk(async |fs, file| fs.setxattr(file, b"user.a", b"1", XattrMode::Any).await.expect("set"));
    let (took, value) = path.walk(async |fs, file| fs.getxattr(file, b"user.a").await.expect("it is there"));
    assert_eq!((took, value), (one, b"1".to_vec()));
}

#[test]
fn references_that_were_given_back_do_not_keep_a_file() {
    let mut path = Path::with_leases();
    let removal = Counts { requests: 1, log_writes: 1, ..Counts::default() };
    path.walk(async |fs, file| {
        fs.open(file, false).await.expect("opened");
        fs.close(file).await.expect("closed");
    });
    let (took, gone) = path.walk(async |fs, _| fs.unlink(ROOT, b"file").await);
    assert!(gone.is_ok());
    assert_eq!(took, removal, "nobody was told of the reference");
    path.walk(async |fs, _| {
        let made = fs.create(Cred::default(), ROOT, b"new", Create { open: true, ..Create::default() }).await;
        fs.close(made.expect("created and opened").ino).await.expect("closed");
    });
    let (took, gone) = path.walk(async |fs, _| fs.unlink(ROOT, b"new").await);
    assert!(gone.is_ok());
    assert_eq!(took, Counts { requests: 2, ..removal }, "the reference went first");
}

#[test]
fn references_are_told_before_the_name_goes() {
    let mut path = Path::with_leases();
    path.walk(async |fs, file| {
        fs.write(file, 0, DATA, false, false).await.expect("written");
        fs.open(file, false).await.expect("opened");
    });
    let (took, gone) = path.walk(async |fs, _| fs.unlink(ROOT, b"file").await);
    assert!(gone.is_ok());
    assert_eq!(took, Counts { requests: 2, log_writes: 1, ..Counts::default() });
    let (_, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("it is open"), DATA);
}

#[test]
fn what_was_opened_before_a_session_was_lost_closes_nothing_that_was_opened_since() {
    let mut path = Path::with_leases();
    path.walk(async |fs, file| {
        fs.write(file, 0, DATA, false, false).await.expect("written");
        fs.open(file, false).await.expect("opened");
        // As when the client was silent for too long.
        fs.end_session().await.expect("ended");
        fs.open(file, false).await.expect("opened again");
        fs.close(file).await.expect("the first one closed");
        fs.unlink(ROOT, b"file").await.expect("removed");
    });
    path.rest(5_000_000);
    let (_, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert_eq!(read.expect("the second one has it open"), DATA);
    path.walk(async |fs, file| fs.close(file).await.expect("the second one closed"));
    path.rest(5_000_000);
    let (_, read) = path.walk(async |fs, file| fs.read(file, 0, 4096).await);
    assert!(read.is_err(), "nobody has it open");
}

#[test]
fn most_names_of_a_directory_come_ahead() {
    const NAMES: usize = 200;
    let mut path = Path::with_leases();
    for at in 0..NAMES {
        let name = format!("n{at}").into_bytes();
        path.walk(async move |fs, _| fs.create(Cred::default(), ROOT, &name, Create::default()).await.map(drop))
            .1
            .expect("created");
    }
    path.fs = path.run.mount(Node::Client(1));
    let (took, found) = path.walk(async |fs, _| {
        for at in 0..NAMES {
            fs.lookup(ROOT, format!("n{at}").as_bytes()).await.expect("it is there");
        }
    });
    assert_eq!(found, ());
    assert!(took.requests < NAMES as u64 / 4, "{took:?}");
}
