//! Answers given before they are durable: at once for who asked for that, in order, and never beyond what may be lost.

use std::sync::Arc;

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, DriveId, FsId, HostId, Index, Ino, OpId, PartitionId, Term};
use braid_base::msg::fs::{Cred, FsResult, Op, Reply, Request};
use braid_meta::{Config, Effect, Entry, Event, Now, Partition, Token};
use braid_replica::{Kv, MapKv};
use bytes::Bytes;

const FS: FsId = FsId(1);

struct World {
    partition: Partition,
    kv: Arc<MapKv>,
    asked: u64,
    proposed: Vec<Entry>,
    answers: Vec<(u64, FsResult)>,
}

impl World {
    fn new() -> Self {
        let config = Config {
            partition: PartitionId(0),
            partitions: 1,
            host: HostId(1),
            term: Term(1),
            data: 1,
            parity: 0,
            shard_bytes: 1 << 20,
            drives: vec![DriveId(1)].into(),
            capacity_bytes: 1 << 40,
        };
        let kv = Arc::new(MapKv::new());
        let partition = Partition::open(config, kv.clone(), Index(0)).expect("an empty view");
        let mut world = Self { partition, kv, asked: 0, proposed: Vec::new(), answers: Vec::new() };
        world.ask(false, Op::MakeRoot { ino: Ino::root(FS), mode: 0o755 });
        world.commit();
        world
    }

    /// Asks; the number of the request.
    fn ask(&mut self, early: bool, body: Op) -> u64 {
        self.asked += 1;
        let op = OpId { client: ClientId(1), seq: self.asked };
        let request = Request { op, session: 0, done_upto: self.asked - 1, fs: FS, cred: Cred::default(), early, body };
        self.step(Event::Request(Token(self.asked), request));
        self.asked
    }

    fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.partition.step(Now::default(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply(token, result) => self.answers.push((token.0, result.result)),
                Effect::Propose(entry) => self.proposed.push(entry),
                _ => {}
            }
        }
    }

    fn commit(&mut self) {
        for Entry { index, batch, .. } in std::mem::take(&mut self.proposed) {
            self.kv.apply(&batch).expect("a map takes everything");
            self.step(Event::Committed(index));
            self.step(Event::Applied(index));
        }
    }

    fn answered(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.answers).into_iter().map(|(number, _)| number).collect()
    }

    fn create(&mut self, early: bool, name: &str) -> u64 {
        let (dir, name, kind) = (Ino::root(FS), name.as_bytes().to_vec(), FileType::File);
        let (mode, umask, rdev, target) = (0o644, 0, 0, Vec::new());
        self.ask(early, Op::Create { dir, name, kind, mode, umask, rdev, target, open: false })
    }

    fn file(&mut self, name: &str) -> Ino {
        self.create(true, name);
        match self.answers.pop() {
            Some((_, Ok(Reply::Entry { ino, .. }))) => ino,
            other => panic!("no file: {other:?}"),
        }
    }

    fn write(&mut self, early: bool, ino: Ino, len: usize) -> u64 {
        let parts = vec![(0, Bytes::from(vec![1; len]))];
        self.ask(early, Op::Write { ino, parts, append: false, kill_suid_sgid: false, at: None })
    }
}

#[test]
fn an_early_answer_comes_at_once_and_shows_what_is_on_its_way() {
    let mut world = World::new();
    world.answered();
    let made = world.create(true, "a");
    let again = world.create(true, "a");
    let seen = world.ask(true, Op::Lookup { dir: Ino::root(FS), name: b"a".to_vec() });
    assert!(matches!(&world.answers[1].1, Err(error) if error.kind() == braid_base::ErrorKind::Exists));
    assert_eq!(world.answered(), [made, again, seen]);
    world.commit();
    assert_eq!(world.answered(), [], "nobody is answered twice");
}

#[test]
fn who_did_not_ask_for_it_waits_even_behind_an_early_one() {
    let mut world = World::new();
    world.answered();
    let made = world.create(true, "a");
    let late = world.create(false, "b");
    let seen = world.ask(false, Op::Lookup { dir: Ino::root(FS), name: b"a".to_vec() });
    assert_eq!(world.answered(), [made]);
    world.commit();
    assert_eq!(world.answered(), [late, seen]);
}

#[test]
fn sync_waits_for_everything_before_it() {
    let mut world = World::new();
    let ino = world.file("a");
    world.commit();
    world.answered();
    let wrote = world.write(true, ino, 100);
    let sync = world.ask(true, Op::Sync { ino });
    assert_eq!(world.answered(), [wrote]);
    world.commit();
    assert_eq!(world.answered(), [sync]);
    let idle = world.ask(true, Op::Sync { ino });
    assert_eq!(world.answered(), [idle], "nothing is on its way");
}

#[test]
fn what_may_be_lost_is_bounded() {
    let mut world = World::new();
    let ino = world.file("a");
    world.commit();
    world.answered();
    let early = (0..40).map(|_| world.write(true, ino, 1 << 20)).collect::<Vec<_>>();
    let told = world.answered();
    assert!(told.len() == 16 && early.starts_with(&told), "{} of 40 MiB were answered early", told.len());
    let seen = world.ask(true, Op::GetAttr { ino });
    assert_eq!(world.answered(), [seen], "reads go on: they add nothing to what may be lost");
    world.commit();
    assert_eq!(world.answered(), early[16..]);
    let names = (0..2_000).map(|n| world.create(true, &format!("f{n}"))).count();
    let told = world.answered().len();
    assert!(told == 1_024 && names == 2_000, "{told} of 2,000 were answered early");
}
