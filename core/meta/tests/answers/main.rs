//! What an answer brings with it, and when it comes: before it is durable for who asked for that, in order, and never
//! beyond what may be lost; with leases and numbers for who may make files on its own.

mod waits;

use std::sync::Arc;

use braid_base::ErrorKind;
use braid_base::attr::{FileType, Time};
use braid_base::ids::{ClientId, DriveId, FsId, HostId, Index, Ino, OpId, PartitionId, Term};
use braid_base::limits::NUMBERS_WITH_DIR;
use braid_base::msg::fs::{Cred, FsResult, LockKind, LockSpec, Op, Reply, Request, Told};
use braid_base::msg::lease::{Answer, Grant, LeaseKind, Numbers, Push, PushBody, Release};
use braid_base::msg::peer::{Note, PeerMsg};
use braid_meta::{Config, Effect, Entry, Event, Now, Partition, Token};
use braid_replica::{Kv, MapKv};
use bytes::Bytes;

const FS: FsId = FsId(1);

struct World {
    now_ms: u64,
    partition: Partition,
    kv: Arc<MapKv>,
    asked: u64,
    proposed: Vec<Entry>,
    answers: Vec<(u64, FsResult)>,
    /// With the last answer.
    grants: Vec<Grant>,
    pushes: Vec<Push>,
    /// To other partitions.
    told: Vec<PeerMsg>,
}

fn config(term: Term) -> Config {
    Config {
        partition: PartitionId(0),
        partitions: 1,
        host: HostId(1),
        term,
        data: 1,
        parity: 0,
        shard_bytes: 1 << 20,
        drives: vec![DriveId(1)].into(),
        capacity_bytes: 1 << 40,
    }
}

impl World {
    fn new() -> Self {
        let kv = Arc::new(MapKv::new());
        let mut partition = Partition::open(config(Term(1)), kv.clone(), Index(0)).expect("an empty view");
        partition.set_alone(true);
        let mut world = Self {
            now_ms: 0,
            partition,
            kv,
            asked: 0,
            proposed: Vec::new(),
            answers: Vec::new(),
            grants: Vec::new(),
            pushes: Vec::new(),
            told: Vec::new(),
        };
        world.ask(false, Op::MakeRoot { ino: Ino::root(FS), mode: 0o755 });
        world.commit();
        world
    }

    /// Asks; the number of the request.
    fn ask(&mut self, early: bool, body: Op) -> u64 {
        self.ask_as(ClientId(1), 0, early, body)
    }

    fn ask_as(&mut self, client: ClientId, session: u64, early: bool, body: Op) -> u64 {
        let (token, request) = self.request(client, session, early, body);
        self.step(Event::Request(token, request));
        self.asked
    }

    fn request(&mut self, client: ClientId, session: u64, early: bool, body: Op) -> (Token, Request) {
        self.asked += 1;
        let op = OpId { client, seq: self.asked };
        let request = Request { op, session, done_upto: self.asked - 1, fs: FS, cred: Cred::default(), early, body };
        (Token(self.asked), request)
    }

    /// Asks as a client with a session; the answer, if it comes, with what it brings.
    fn tell(&mut self, client: ClientId, body: Op) -> Option<FsResult> {
        self.answers.clear();
        self.ask_as(client, 1, false, body);
        self.commit();
        self.answers.pop().map(|(_, result)| result)
    }

    fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        let now = Now { mono_ms: self.now_ms, ..Now::default() };
        self.partition.step(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply(token, Answer { result, grants, .. }) => {
                    self.answers.push((token.0, result));
                    self.grants = grants;
                }
                Effect::Push(push) => self.pushes.push(push),
                Effect::Peer(_, message) => self.told.push(message),
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

    /// Another primary takes over; everything is committed.
    fn fail_over(&mut self) {
        let applied = Index(self.partition.next_index().0 - 1);
        self.partition = Partition::open(config(Term(2)), self.kv.clone(), applied).expect("a view of ours");
    }

    fn answered(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.answers).into_iter().map(|(number, _)| number).collect()
    }

    fn create(&mut self, early: bool, name: &str) -> u64 {
        self.ask(early, creates(name))
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

fn creates(name: &str) -> Op {
    let (dir, name, kind) = (Ino::root(FS), name.as_bytes().to_vec(), FileType::File);
    let (mode, umask, rdev, target) = (0o644, 0, 0, Vec::new());
    Op::Create { dir, name, kind, mode, umask, rdev, target, open: false, told: None, want: 0 }
}

#[test]
fn early_answers_of_a_burst_follow_the_proposal_of_what_they_say() {
    let mut world = World::new();
    let mut effects = Vec::new();
    for body in [creates("a"), creates("b"), creates("a")] {
        let (token, request) = world.request(ClientId(1), 0, true, body);
        world.partition.step(Now::default(), Event::Gather(token, request), &mut effects);
    }
    use Effect::{Propose, Reply};
    let [Propose(_), Reply(_, a), Propose(_), Reply(_, b), Reply(_, again)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(a.result.is_ok() && b.result.is_ok() && again.result.is_err() && again.term == Term(1));
    effects.clear();
    world.partition.step(Now::default(), Event::Gathered, &mut effects);
    assert!(effects.is_empty(), "{effects:?}");
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

const A: ClientId = ClientId(11);
const B: ClientId = ClientId(12);

fn create(name: &str, told: Option<Told>, want: u16) -> Op {
    let (dir, name, kind) = (Ino::root(FS), name.as_bytes().to_vec(), FileType::File);
    let (mode, umask, rdev, target) = (0o640, 0o022, 0, Vec::new());
    Op::Create { dir, name, kind, mode, umask, rdev, target, open: false, told, want }
}

/// Two clients with sessions; the first has the root for itself, and these numbers.
fn alone() -> (World, Numbers, u64) {
    let mut world = World::new();
    for client in [A, B] {
        world
            .tell(client, Op::Hello { begin: true, home: None, open: Vec::new() })
            .expect("answered")
            .expect("a session");
    }
    world.tell(A, create("a", None, 50)).expect("answered").expect("made");
    let root = world.grants.iter().find(|grant| grant.ino == Ino::root(FS)).expect("a lease on the root").clone();
    assert_eq!((root.kind, root.numbers.count), (LeaseKind::Exclusive, 50));
    (world, root.numbers, root.seq)
}

#[test]
fn who_has_a_directory_for_itself_makes_files_with_numbers_and_times_of_its_own() {
    let (mut world, numbers, _) = alone();
    let told = Told { ino: Ino(numbers.first.0 + 49), at: Time { sec: 77, nsec: 5 } };
    let made = world.tell(A, create("b", Some(told), 0)).expect("answered").expect("made");
    let Reply::Entry { ino, attr: Some(attr), .. } = made else { panic!("{made:?}") };
    assert_eq!((ino, attr.btime, attr.mtime, attr.mode, attr.change), (told.ino, told.at, told.at, 0o640, 1));
    let kinds: Vec<LeaseKind> = world.grants.iter().map(|grant| grant.kind).collect();
    assert_eq!(kinds, [LeaseKind::Exclusive; 2], "it will change what is in it");
    let unlink =
        Op::Unlink { dir: Ino::root(FS), name: b"b".to_vec(), told: Some(Time { sec: 78, nsec: 0 }), alone: true };
    world.tell(A, unlink).expect("answered").expect("removed");
    assert_eq!(world.grants[0].attr.mtime.sec, 78);
    let late = Told { ino: numbers.first, at: Time { sec: 70, nsec: 0 } };
    world.tell(A, create("late", Some(late), 0)).expect("answered").expect("made");
    assert_eq!(world.grants[0].attr.mtime.sec, 78, "told before, done after: no time goes back");
    world.tell(A, create("c", None, 0)).expect("answered").expect("made");
    assert!(world.grants.iter().all(|grant| grant.ino.seq() <= 1 || grant.ino.0 > told.ino.0), "{:?}", world.grants);
}

#[test]
fn numbers_that_were_not_lent_or_are_in_use_are_refused() {
    let (mut world, numbers, _) = alone();
    let at = Time::default();
    let refused = |world: &mut World, ino: Ino| {
        let answer = world.tell(A, create("x", Some(Told { ino, at }), 0)).expect("answered");
        answer.is_err_and(|error| error.kind() == ErrorKind::Invalid)
    };
    assert!(refused(&mut world, Ino(numbers.first.0 + 50)), "never lent");
    assert!(refused(&mut world, Ino(numbers.first.0 - 1)), "the first file has it");
    assert!(refused(&mut world, Ino::root(FS)) && refused(&mut world, Ino(numbers.first.0 | 1 << 50)));
    assert!(!refused(&mut world, numbers.first));
}

#[test]
fn whoever_looks_at_names_waits_until_the_directory_is_everybodys() {
    let (mut world, numbers, seq) = alone();
    let look = Op::Lookup { dir: Ino::root(FS), name: b"b".to_vec() };
    let list = Op::Readdir { dir: Ino::root(FS), cookie: 0, limit: 9, plus: false };
    assert!(world.tell(B, list).is_none() && world.tell(B, look).is_none());
    let asked: Vec<(ClientId, Option<LeaseKind>)> = world
        .pushes
        .drain(..)
        .map(|push| match push.body {
            PushBody::Recall { keep, .. } => (push.to, keep),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asked, [(A, Some(LeaseKind::Shared))], "once");
    let told = Told { ino: numbers.first, at: Time::default() };
    world.tell(A, create("b", Some(told), 10)).expect("answered").expect("made: it was promised before");
    assert!(world.grants.iter().all(|grant| grant.numbers.count == 0), "others want it");
    world.answers.clear();
    let release = Release { fs: FS, ino: Ino::root(FS), seq, keep: Some(LeaseKind::Shared) };
    world.ask_as(A, 1, false, Op::ReleaseLease { leases: vec![release] });
    world.commit();
    let found = world.answers.iter().filter(|(_, result)| match result {
        Ok(Reply::Entry { ino, .. }) => *ino == numbers.first,
        Ok(Reply::Entries { entries, .. }) => entries.len() == 2,
        _ => false,
    });
    assert_eq!(found.count(), 2, "{:?}", world.answers);
}

/// A primary that was stopped could hear nobody: when it goes on, what clients have said meanwhile still waits to be read.
#[test]
fn a_primary_that_was_stopped_blames_nobody() {
    for stopped in [true, false] {
        let (mut world, ..) = alone();
        world.now_ms = 1_000;
        world.step(Event::Tick);
        assert!(world.tell(B, Op::Lookup { dir: Ino::root(FS), name: b"b".to_vec() }).is_none());
        if !stopped {
            // It goes on, and hears of A, but not that the lease is given back.
            for _ in 0..40 {
                world.now_ms += 1_000;
                world.step(Event::Tick);
                drop(world.tell(A, Op::Hello { begin: false, home: None, open: Vec::new() }));
            }
        }
        world.now_ms += 40_000;
        world.step(Event::Tick);
        world.step(Event::Tick);
        let hello = world.tell(A, Op::Hello { begin: false, home: None, open: Vec::new() }).expect("answered");
        assert_eq!(hello.is_ok(), stopped, "A was asked for its lease: {hello:?}");
    }
}

/// A asks `body` and hears no answer, loses its session while B `goes_on`, and asks the same under its next one.
fn asks_again_in_a_new_session(world: &mut World, body: &Op, goes_on: impl FnOnce(&mut World)) -> (FsResult, FsResult) {
    let first = world.tell(A, body.clone()).expect("answered");
    let seq = world.asked;
    for _ in 0..40 {
        world.now_ms += 1_000;
        world.step(Event::Tick);
        drop(world.tell(B, Op::Hello { begin: false, home: None, open: Vec::new() }));
    }
    goes_on(world);
    let hello = Op::Hello { begin: true, home: None, open: Vec::new() };
    for (number, body) in [(world.asked + 1, &hello), (seq, body)] {
        let (op, session, done_upto, body) = (OpId { client: A, seq: number }, 2, seq - 1, body.clone());
        let request = Request { op, session, done_upto, fs: FS, cred: Cred::default(), early: false, body };
        world.step(Event::Request(Token(number), request));
        world.commit();
    }
    (first, world.answers.pop().expect("answered").1)
}

/// Its answer is in no entry: who hears it in a new session would believe to have what is somebody else's by then.
#[test]
fn a_lock_that_ended_with_its_session_is_not_told_once_more() {
    let (mut world, ..) = alone();
    let ino = Ino::root(FS);
    let lock = |owner| {
        let lock = LockSpec { owner, pid: 1, start: 0, end: 9, kind: LockKind::Write, flock: false };
        Op::Lock { ino, lock, wait: false }
    };
    let (first, again) = asks_again_in_a_new_session(&mut world, &lock(1), |world| {
        world.tell(B, lock(2)).expect("answered").expect("A is gone, and its lock");
    });
    assert!(first.is_ok());
    assert_eq!(again.map(drop).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
}

/// The answer is in an entry, the open reference that it tells of is not.
#[test]
fn a_file_that_was_made_and_opened_is_open_when_that_is_told_once_more() {
    let (mut world, ..) = alone();
    let Op::Create { dir, name, kind, mode, umask, rdev, target, told, want, .. } = create("x", None, 0) else {
        panic!("it creates")
    };
    let body = Op::Create { dir, name: name.clone(), kind, mode, umask, rdev, target, open: true, told, want };
    let (first, again) = asks_again_in_a_new_session(&mut world, &body, |_| {});
    let (Ok(Reply::Entry { ino, .. }), Ok(Reply::Entry { ino: same, .. })) = (first, again) else { panic!("made") };
    assert_eq!(ino, same);
    world.tell(B, Op::Unlink { dir, name, told: None, alone: false }).expect("answered").expect("removed");
    let attr = |world: &mut World| {
        world.answers.clear();
        world.ask_as(A, 2, false, Op::GetAttr { ino });
        world.answers.pop().expect("answered").1.is_ok()
    };
    assert!(attr(&mut world), "it is open");
    world.ask_as(A, 2, false, Op::Close { inos: vec![ino] });
    for _ in 0..3 {
        world.commit();
        world.now_ms += 1_000;
        world.step(Event::Tick);
    }
    assert!(!attr(&mut world), "once");
}

/// Notes of another partition about a file that somebody remembers: taken as soon as that is given back, all that came.
#[test]
fn notes_that_waited_for_a_lease_do_not_wait_to_be_sent_again() {
    let (mut world, numbers, _) = alone();
    let told = Told { ino: numbers.first, at: Time::default() };
    world.tell(A, create("b", Some(told), 0)).expect("answered").expect("made");
    let lease = world.grants.iter().find(|grant| grant.ino == numbers.first).expect("a lease on the file").clone();
    let note = |seq, sec| {
        let note = Note::Renamed { ino: numbers.first, at: Time { sec, nsec: 0 } };
        Event::Peer(PartitionId(1), PeerMsg::Note { seq, fs: FS, client: B, note })
    };
    for (seq, sec) in [(1, 70), (3, 90), (2, 80), (2, 80)] {
        world.step(note(seq, sec));
        world.commit();
    }
    assert!(world.told.is_empty(), "A may count on what it knows: {:?}", world.told);
    let recalls = world.pushes.iter().filter(|push| push.to == A).count();
    assert_eq!(recalls, 1);
    let release = Release { fs: FS, ino: numbers.first, seq: lease.seq, keep: None };
    world.ask_as(A, 1, false, Op::ReleaseLease { leases: vec![release] });
    world.commit();
    let acknowledged = |world: &mut World| -> Vec<u64> {
        let upto = |told| match told {
            PeerMsg::Noted { upto } => upto,
            other => panic!("{other:?}"),
        };
        world.told.drain(..).map(upto).collect()
    };
    assert_eq!(acknowledged(&mut world), [1, 2, 3]);
    world.step(note(2, 80));
    assert_eq!(acknowledged(&mut world), [3], "what comes again is acknowledged again");
    let attr = world.tell(B, Op::GetAttr { ino: numbers.first }).expect("answered").expect("it is there");
    assert!(matches!(&attr, Reply::Attr(attr) if attr.ctime.sec == 90), "{attr:?}");
}

#[test]
fn what_waited_for_a_lease_is_answered_early_only_if_it_is_still_alone_by_then() {
    for still in [true, false] {
        let (mut world, _, seq) = alone();
        world.answered();
        let asked = world.ask_as(B, 1, true, create("b", None, 0));
        assert_eq!((world.answered(), world.proposed.len()), (vec![], 0), "the root is recalled first");
        world.partition.set_alone(still);
        let release = Release { fs: FS, ino: Ino::root(FS), seq, keep: None };
        let released = world.ask_as(A, 1, false, Op::ReleaseLease { leases: vec![release] });
        let mut answered = world.answered();
        answered.retain(|number| *number != released);
        assert_eq!((answered, world.proposed.len()), (if still { vec![asked] } else { vec![] }, 1));
        world.commit();
        assert_eq!(world.answered().contains(&asked), !still);
    }
}

#[test]
fn access_times_move_together_and_not_behind_what_a_program_said() {
    let (mut world, numbers, _) = alone();
    let at = |sec| Time { sec, nsec: 0 };
    let files: Vec<Ino> = (0..3).map(|n| Ino(numbers.first.0 + n)).collect();
    for (ino, name) in files.iter().zip(["x", "y", "z"]) {
        world.tell(A, create(name, Some(Told { ino: *ino, at: at(50) }), 0)).expect("answered").expect("made");
    }
    let gone = Ino(numbers.first.0 + 40);
    let read = vec![(files[0], at(60)), (files[1], at(40)), (gone, at(60)), (files[2], at(50))];
    world.tell(A, Op::Accessed { files: read }).expect("answered").expect("done");
    let seen: Vec<(Ino, i64, u64)> =
        world.grants.iter().map(|grant| (grant.ino, grant.attr.atime.sec, grant.attr.change)).collect();
    assert_eq!(seen, [(files[0], 60, 2), (files[1], 50, 1), (files[2], 50, 1)], "one was read before it changed");
    assert!(world.pushes.is_empty(), "who asked sees it in the answer");
    let many = vec![(files[0], at(70)); 257];
    assert!(world.tell(A, Op::Accessed { files: many }).expect("answered").is_err());
}

#[test]
fn a_new_directory_is_given_to_who_asks_with_the_numbers_that_were_kept_with_it() {
    let (mut world, ..) = alone();
    let mkdir = match create("d", None, 0) {
        Op::Create { dir, name, mode, umask, rdev, target, open, told, want, .. } => {
            Op::Create { dir, name, kind: FileType::Directory, mode, umask, rdev, target, open, told, want }
        }
        other => other,
    };
    let made = world.tell(A, mkdir).expect("answered").expect("made");
    let Reply::Entry { ino: dir, .. } = made else { panic!("{made:?}") };
    let ask = |world: &mut World, client| {
        world.tell(client, Op::AskLease { ino: dir, kind: LeaseKind::Exclusive }).expect("answered").expect("given");
        let grant = world.grants.iter().find(|grant| grant.ino == dir).expect("a lease").clone();
        (grant.kind, grant.empty, grant.numbers)
    };
    let (kind, _, numbers) = ask(&mut world, A);
    assert_eq!((kind, numbers.first, numbers.count), (LeaseKind::Exclusive, Ino(dir.0 + 1), NUMBERS_WITH_DIR));
    assert_eq!(ask(&mut world, A).2.count, 0, "once");
    let file = |name: &str, ino| match create(name, Some(Told { ino, at: Time::default() }), 0) {
        Op::Create { name, kind, mode, umask, rdev, target, open, told, want, .. } => {
            Op::Create { dir, name, kind, mode, umask, rdev, target, open, told, want }
        }
        other => other,
    };
    world.tell(A, file("f", Ino(dir.0 + u64::from(NUMBERS_WITH_DIR)))).expect("answered").expect("lent");
    world.tell(A, file("g", Ino(dir.0 + 1))).expect("answered").expect("lent");
    let beyond = world.tell(A, file("h", Ino(dir.0 + 1 + u64::from(NUMBERS_WITH_DIR)))).expect("answered");
    assert!(beyond.is_err(), "never lent");
    let Reply::Entry { ino, .. } = world.tell(A, create("next", None, 0)).expect("answered").expect("made") else {
        panic!("no entry")
    };
    assert!(ino.vp() != dir.vp() || ino.0 > dir.0 + u64::from(NUMBERS_WITH_DIR), "{ino} was lent with {dir}");
}
