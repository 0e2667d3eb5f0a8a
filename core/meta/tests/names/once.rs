//! Every operation takes effect once: repeated, late, after a restart, over partitions.

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, Ino, OpId};
use braid_base::keys::Table;
use braid_base::msg::fs::{Op, RenameMode, Reply};
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
    Op::Create { dir, name: name.to_vec(), kind, mode: 0o777, umask: 0, rdev: 0, target: Vec::new(), open: false }
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
        let body = create(root, format!("f{seq}").as_bytes(), FileType::File);
        answer(&mut world, seq, seq - 1, &body).expect("it can be made");
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
fn a_directory_move_that_was_passed_on_is_repeated_at_home() {
    let mut world = world(3);
    let root = Ino::root(FS);
    let mut seq = 0;
    let mut made = |world: &mut World, dir, name: &[u8]| {
        seq += 1;
        let entry = answer(world, seq, 0, &create(dir, name, FileType::Directory)).expect("it can be made");
        let Reply::Entry { ino, .. } = entry else { panic!("create answers with an entry") };
        ino
    };
    let dirs: Vec<Ino> = (0..6u8).map(|i| made(&mut world, root, &[b'a' + i])).collect();
    let home = root.partition(3);
    let away: Vec<Ino> = dirs.into_iter().filter(|dir| dir.partition(3) != home).collect();
    assert!(away.len() >= 2, "directories are spread");
    let child = made(&mut world, away[0], b"child");
    let mode = RenameMode::Replace;
    let body = Op::Rename { from_dir: away[0], from: b"child".to_vec(), to_dir: away[1], to: b"moved".to_vec(), mode };
    for _ in 0..3 {
        let Ok(Reply::Renamed { moved, other: None }) = answer(&mut world, 100, 0, &body) else {
            panic!("the same operation succeeds each time");
        };
        assert_eq!(moved, child);
        world.restart_all();
    }
    assert!(world.settle());
    let tree = check::read(&world);
    assert_eq!(check::complaints(&tree), Vec::<String>::new());
    assert_eq!(tree.names[&(away[1], b"moved".to_vec())].0, child);
}
