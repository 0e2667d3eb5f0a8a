//! Every operation takes effect once: repeated, late, after a restart, over partitions.

use braid_base::attr::{FileType, SetAttr};
use braid_base::ids::{ClientId, Ino, OpId};
use braid_base::keys::Table;
use braid_base::msg::fs::{Cred, Op, RenameMode, Reply, Request};
use braid_base::msg::peer::{Intent, PeerMsg};
use braid_base::{Error, ErrorKind};

use super::check;
use super::world::{Call, FS, Faults, World};

const ME: ClientId = ClientId(1);

fn world(partitions: u16) -> World {
    let mut world = World::new(partitions, 5, Faults::default(), None);
    world.run(ClientId(9), 1, Op::MakeRoot { ino: Ino::root(FS), mode: 0o755 }).expect("the root can be made");
    world
}

fn create(dir: Ino, name: &[u8], kind: FileType) -> Op {
    Op::Create {
        dir,
        name: name.to_vec(),
        kind,
        mode: 0o777,
        umask: 0,
        rdev: 0,
        target: Vec::new(),
        open: false,
        told: None,
        want: 0,
    }
}

fn answer(world: &mut World, seq: u64, done_upto: u64, body: &Op) -> Result<Reply, Error> {
    let mut call: Call = world.begin(OpId { client: ME, seq }, done_upto, body.clone());
    for _ in 0..20_000 {
        if let Some(result) = world.poll(&mut call) {
            return result;
        }
        world.turn();
    }
    panic!("no answer to {body:?}");
}

/// Makes a file of its own, by one operation.
fn make(world: &mut World, seq: u64, done: u64) {
    let body = create(Ino::root(FS), format!("f{seq}").as_bytes(), FileType::File);
    answer(world, seq, done, &body).expect("it can be made");
}

#[test]
fn a_repeated_request_gets_the_same_answer() {
    for partitions in 1..=3 {
        let mut world = world(partitions);
        let root = Ino::root(FS);
        let body = create(root, b"name", FileType::Directory);
        let first = format!("{:?}", answer(&mut world, 1, 0, &body).expect("it can be made"));
        for _ in 0..3 {
            world.restart_all();
            let again = answer(&mut world, 1, 0, &body).expect("no Exists for the same operation");
            assert_eq!(format!("{again:?}"), first);
        }
        let exists = answer(&mut world, 2, 1, &body).map_err(|error| error.kind()).map(drop);
        assert_eq!(exists, Err(ErrorKind::Exists), "another operation is another");
    }
}

#[test]
fn answered_operations_are_forgotten_and_never_run_again() {
    let mut world = world(1);
    let root = Ino::root(FS);
    for seq in 1..=200 {
        make(&mut world, seq, seq - 1);
    }
    assert!(check::rows(&world, Table::Dedup) < 100, "answered ones are deleted on the way");
    let late = create(root, b"late", FileType::File);
    let refused = answer(&mut world, 150, 0, &late).map_err(|error| error.kind()).map(drop);
    assert_eq!(refused, Err(ErrorKind::Stale));
    world.restart_all();
    let refused = answer(&mut world, 100, 0, &late).map_err(|error| error.kind()).map(drop);
    assert_eq!(refused, Err(ErrorKind::Stale), "the mark survives a restart");
    answer(&mut world, 201, 200, &Op::EndSession).expect("a session can end");
    world.now_ms += 60_000;
    assert!(world.settle());
    world.now_ms += 60_000;
    assert!(world.settle());
    let left = check::rows(&world, Table::Dedup);
    assert!(left <= 2, "{left} results are left of a client that is gone (the other client has one)");
}

#[test]
fn rows_of_answered_operations_are_used_again() {
    let mut world = world(1);
    // A burst of which nobody has an answer yet.
    for seq in 1..=100 {
        make(&mut world, seq, 0);
    }
    let most = check::rows(&world, Table::Dedup);
    assert!(most >= 100);
    for seq in 101..=500 {
        make(&mut world, seq, seq - 1);
        // The one that serves next finds them again.
        if seq % 50 == 0 {
            world.restart_all();
        }
    }
    let rows = check::rows(&world, Table::Dedup);
    assert!(rows <= most + 33, "{rows} rows, and the burst had {most}; 32 until it is looked, one for the mark");
    let late = create(Ino::root(FS), b"late", FileType::File);
    for seq in [1, 60, 300, 400] {
        let refused = answer(&mut world, seq, 0, &late).map_err(|error| error.kind()).map(drop);
        assert_eq!(refused, Err(ErrorKind::Stale), "{seq} was answered");
    }
    let again = answer(&mut world, 500, 0, &late).expect("what it was answered at first");
    assert!(matches!(again, Reply::Entry { .. }), "{again:?}");
}

#[test]
fn rows_of_a_large_burst_go_while_the_client_works_and_all_when_it_is_silent() {
    let mut world = world(1);
    for seq in 1..=1_300 {
        make(&mut world, seq, 0);
    }
    assert!(check::rows(&world, Table::Dedup) >= 1_300);
    for seq in 1_301..=1_500 {
        make(&mut world, seq, seq - 1);
    }
    let rows = check::rows(&world, Table::Dedup);
    assert!(rows <= 1_024 + 33, "{rows} rows: 1,024 that are free, 32 until it is looked, and a mark");
    for _ in 0..4 {
        world.now_ms += 60_000;
        assert!(world.settle());
    }
    let rows = check::rows(&world, Table::Dedup);
    assert!(rows <= 4, "{rows} rows of two clients that are silent: their last answers, and marks");
}

#[test]
fn an_operation_that_gets_no_answer_for_long_keeps_no_other_ones() {
    let mut world = world(1);
    let root = Ino::root(FS);
    let make = |name: &str| create(root, name.as_bytes(), FileType::File);
    // Number 1 is refused again and again, and number 3 was carried out; nobody has heard of that.
    let third = format!("{:?}", answer(&mut world, 3, 0, &make("third")).expect("it can be made"));
    for seq in 4..=200 {
        answer(&mut world, seq, 0, &make(&format!("f{seq}"))).expect("it can be made");
    }
    assert!(check::rows(&world, Table::Dedup) > 190);
    let hello = Op::Hello { begin: true, home: None, open: vec![1, 3] };
    answer(&mut world, 201, 200, &hello).map(drop).expect_err("session 0 is none, and what it says of answers counts");
    let rows = check::rows(&world, Table::Dedup);
    for seq in 202..=300 {
        answer(&mut world, seq, 0, &make(&format!("f{seq}"))).expect("it can be made");
    }
    let later = check::rows(&world, Table::Dedup);
    assert!(later <= rows + 33, "one operation keeps its own answer only: 32 rows until it is looked, and a mark");
    let kind = |answered: Result<Reply, Error>| answered.map(drop).map_err(|error| error.kind());
    for _ in 0..2 {
        for seq in [2, 150, 200] {
            assert_eq!(kind(answer(&mut world, seq, 0, &make("late"))), Err(ErrorKind::Stale), "{seq} was answered");
        }
        let again = answer(&mut world, 3, 0, &make("third")).expect("it was not");
        assert_eq!(format!("{again:?}"), third);
        world.restart_all();
    }
    let first = format!("{:?}", answer(&mut world, 1, 0, &make("first")).expect("it has its turn at last"));
    world.restart_all();
    assert_eq!(format!("{:?}", answer(&mut world, 1, 0, &make("first")).expect("once")), first);
    // Everything is answered now; what was said before comes late, and is nothing new.
    answer(&mut world, 301, 300, &make("last")).expect("it can be made");
    drop(answer(&mut world, 201, 200, &hello));
    for seq in 302..=374 {
        answer(&mut world, seq, seq - 1, &make(&format!("f{seq}"))).expect("it can be made");
    }
    for _ in 0..2 {
        for seq in [1, 3] {
            assert_eq!(kind(answer(&mut world, seq, 0, &make("late"))), Err(ErrorKind::Stale), "{seq} is answered now");
        }
        world.restart_all();
    }
}

/// Three partitions, and two directories that are neither at home nor in one partition.
struct Away {
    world: World,
    seq: u64,
    from: Ino,
    to: Ino,
}

impl Away {
    fn new() -> Self {
        let (root, home) = (Ino::root(FS), Ino::root(FS).partition(3));
        let mut away = Self { world: world(3), seq: 0, from: root, to: root };
        let dirs: Vec<Ino> = (b'a'..=b'y').map(|name| away.mkdir(root, &[name])).collect();
        let others: Vec<Ino> = dirs.into_iter().filter(|dir| dir.partition(3) != home).collect();
        away.from = others[0];
        away.to = *others.iter().find(|dir| dir.partition(3) != away.from.partition(3)).expect("they are spread");
        away
    }

    fn run(&mut self, body: &Op) -> Result<Reply, ErrorKind> {
        self.seq += 1;
        answer(&mut self.world, self.seq, 0, body).map_err(|error| error.kind())
    }

    fn mkdir(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let entry = self.run(&create(dir, name, FileType::Directory));
        let Ok(Reply::Entry { ino, .. }) = entry else { panic!("a directory can be made, not {entry:?}") };
        ino
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Op {
        let (from, to, mode) = (from.to_vec(), to.to_vec(), RenameMode::Replace);
        Op::Rename { from_dir: self.from, from, to_dir: self.to, to, mode }
    }

    fn whole_tree(&mut self) -> check::Tree {
        assert!(self.world.settle());
        let tree = check::read(&self.world);
        assert_eq!(check::complaints(&tree), Vec::<String>::new());
        tree
    }
}

#[test]
fn a_directory_move_that_was_passed_on_is_repeated_at_home() {
    let mut away = Away::new();
    let child = away.mkdir(away.from, b"child");
    let body = away.rename(b"child", b"moved");
    for _ in 0..3 {
        let Ok(Reply::Renamed { moved, other: None }) = answer(&mut away.world, 100, 0, &body) else {
            panic!("the same operation succeeds each time");
        };
        assert_eq!(moved, child);
        away.world.restart_all();
    }
    let tree = away.whole_tree();
    assert_eq!(tree.names[&(away.to, b"moved".to_vec())].0, child);
}

#[test]
fn a_late_double_of_a_refused_move_finds_nobody_who_waits() {
    let mut away = Away::new();
    let child = away.mkdir(away.from, b"child");
    let full = away.mkdir(away.to, b"full");
    away.mkdir(full, b"inside");
    let body = away.rename(b"child", b"full");
    assert_eq!(away.run(&body).map(drop), Err(ErrorKind::NotEmpty));
    let op = OpId { client: ME, seq: away.seq };
    away.run(&Op::Rmdir { dir: full, name: b"inside".to_vec() }).expect("now it would be possible");
    let request = Request { op, session: 0, done_upto: 0, fs: FS, cred: Cred::default(), early: false, body };
    let (from, home) = (away.to.partition(3), Ino::root(FS).partition(3));
    away.world.inject(from, home, PeerMsg::Forward { request: Box::new(request) });
    let tree = away.whole_tree();
    assert_eq!(tree.names[&(away.from, b"child".to_vec())].0, child);
}

#[test]
fn no_answer_shows_a_link_count_that_others_know_to_have_changed() {
    let mut away = Away::new();
    let (root, home, other) = (Ino::root(FS), Ino::root(FS).partition(3), away.to.partition(3));
    let mut names = (0..100).map(|number| format!("d{number}").into_bytes());
    let mut local = names.by_ref().map(|name| (away.mkdir(root, &name), name));
    let (dir, name) = local.find(|(dir, _)| dir.partition(3) == home).expect("some are made at home");
    drop(local);
    // Another partition decides whether a directory moves into it.
    let tx = OpId { client: ClientId((1 << 63) + u64::from(other.0)), seq: 1_000_000 };
    let set = Intent::Set { dir, name: b"new".to_vec(), old: None, ino: away.to, kind: FileType::Directory };
    away.world.inject(other, home, PeerMsg::Prepare { tx, fs: FS, client: ME, intents: vec![set] });
    let world = &mut away.world;
    let mut seq = 10_000;
    // The answer to what changes nothing is there at once, unless it is put off.
    let mut at_once = |world: &mut World, body: Op| {
        seq += 1;
        let mut call = world.begin(OpId { client: ME, seq }, 0, body);
        world.poll(&mut call).or_else(|| world.poll(&mut call))
    };
    let promised = (0..20_000).any(|_| {
        world.turn();
        at_once(world, Op::GetAttr { ino: dir }).is_none()
    });
    assert!(promised, "a stat waits for the decision");
    let chmod = Op::SetAttr { ino: dir, set: SetAttr::default() };
    assert!(at_once(world, chmod).is_none(), "and so do others whose answers show attributes");
    assert!(at_once(world, Op::Open { ino: dir, truncate: false }).is_none());
    let found = at_once(world, Op::Lookup { dir: root, name });
    assert!(matches!(&found, Some(Ok(Reply::Entry { ino, attr: None, .. })) if *ino == dir), "{found:?}");
    assert!(world.settle(), "the other one knows nothing of it, so it does not happen");
    assert!(matches!(at_once(world, Op::GetAttr { ino: dir }), Some(Ok(Reply::Attr(attr))) if attr.nlink == 2));
}
