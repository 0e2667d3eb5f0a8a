//! Many clients at once: nobody knows the order, but in the end every name is there once, every count is right and
//! the directories are a tree.

use braid_base::attr::FileType;
use braid_base::ids::{ClientId, Ino, OpId};
use braid_base::msg::fs::{Op, RenameMode, Reply};
use braid_base::{Error, ErrorKind};
use braid_meta::Variant;

use super::check;
use super::world::{Call, FS, Faults, Rng, World};

struct Client {
    id: ClientId,
    seq: u64,
    call: Option<Call>,
}

struct Crowd {
    world: World,
    rng: Rng,
    clients: Vec<Client>,
    /// Every inode that any client ever saw, dead or alive.
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    done: usize,
    failed: usize,
}

impl Crowd {
    fn new(partitions: u16, seed: u64, faults: Faults, variant: Option<Variant>) -> Self {
        let root = Ino::root(FS);
        let mut world = World::new(partitions, seed, faults, variant);
        world.run(ClientId(99), 1, Op::MakeRoot { ino: root, mode: 0o755 }).expect("the root can be made");
        let clients = (1..=5).map(|id| Client { id: ClientId(id), seq: 0, call: None }).collect();
        let rng = Rng::new(seed ^ 0x5EED);
        Self { world, rng, clients, dirs: vec![root], files: Vec::new(), done: 0, failed: 0 }
    }

    fn body(&mut self) -> Op {
        let rng = &mut self.rng;
        let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let (dir, to_dir) = (*rng.pick(&self.dirs), *rng.pick(&self.dirs));
        let (name, to) = (rng.pick(&names).to_vec(), rng.pick(&names).to_vec());
        let create = |kind| {
            let (dir, name, target) = (dir, name.clone(), Vec::new());
            Op::Create { dir, name, kind, mode: 0o777, umask: 0, rdev: 0, target, open: false, told: None, want: 0 }
        };
        match rng.below(12) {
            0..2 => create(FileType::File),
            2..5 => create(FileType::Directory),
            5 => Op::Unlink { dir, name, told: None, alone: false },
            6 => Op::Rmdir { dir, name },
            7 if !self.files.is_empty() => Op::Link { ino: *rng.pick(&self.files), dir, name },
            _ => {
                let mode = *rng.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::Exchange]);
                Op::Rename { from_dir: dir, from: name, to_dir, to, mode }
            }
        }
    }

    fn play(&mut self, operations: usize) {
        let mut turns = 0;
        while self.done + self.failed < operations || self.clients.iter().any(|client| client.call.is_some()) {
            turns += 1;
            assert!(turns < 3_000_000, "{} of {operations} operations are answered", self.done + self.failed);
            self.world.turn();
            let at = self.rng.below(self.clients.len());
            let is_over = self.done + self.failed >= operations;
            if self.clients[at].call.is_none() && !is_over {
                let body = self.body();
                let client = &mut self.clients[at];
                client.seq += 1;
                let op = OpId { client: client.id, seq: client.seq };
                client.call = Some(self.world.begin(op, client.seq - 1, body));
            }
            let Some(mut call) = self.clients[at].call.take() else { continue };
            match self.world.poll(&mut call) {
                None => self.clients[at].call = Some(call),
                Some(Ok(reply)) => {
                    self.done += 1;
                    self.saw(&reply);
                }
                Some(Err(error)) => self.refused(&call, &error),
            }
        }
    }

    fn saw(&mut self, reply: &Reply) {
        let Reply::Entry { ino, kind, .. } = reply else { return };
        let list = if *kind == FileType::Directory { &mut self.dirs } else { &mut self.files };
        if !list.contains(ino) {
            list.push(*ino);
        }
    }

    fn refused(&mut self, call: &Call, error: &Error) {
        self.failed += 1;
        if error.kind() == ErrorKind::Stale {
            // Some directory of it is gone, or a file to link: ask for it less often.
            let gone = call.body.route();
            self.dirs.retain(|dir| Some(*dir) != gone || *dir == Ino::root(FS));
        }
        let expected = [
            ErrorKind::NotFound,
            ErrorKind::Exists,
            ErrorKind::NotDirectory,
            ErrorKind::IsDirectory,
            ErrorKind::NotEmpty,
            ErrorKind::Invalid,
            ErrorKind::Stale,
        ];
        assert!(expected.contains(&error.kind()), "no client should see {error:?}");
    }

    fn finish(&mut self) -> Result<(), String> {
        // What is left must also be resumed by primaries that know nothing but their view.
        self.world.restart_all();
        if !self.world.settle() {
            return Err("operations or notes are left for ever".to_owned());
        }
        let tree = check::read(&self.world);
        if let Some(first) = check::complaints(&tree).first() {
            return Err(first.clone());
        }
        check::leftovers(&self.world, &tree).map_or(Ok(()), Err)
    }
}

fn play(partitions: u16, seed: u64, operations: usize, faults: Faults) {
    let mut crowd = Crowd::new(partitions, seed, faults, None);
    crowd.play(operations);
    assert!(crowd.done * 10 > operations, "only {} of {operations} operations did anything", crowd.done);
    if let Err(complaint) = crowd.finish() {
        panic!("{partitions} partitions, seed {seed}: {complaint}");
    }
}

#[test]
fn a_crowd_leaves_one_partition_whole() {
    (0..20).for_each(|seed| play(1, seed, 300, Faults { restarts: 5, ..Faults::default() }));
}

#[test]
fn a_crowd_leaves_several_partitions_whole() {
    (0..60).for_each(|seed| play(2, 100 + seed, 250, Faults::default()));
    (0..60).for_each(|seed| play(3, 200 + seed, 250, Faults::default()));
}

fn rough(seeds: std::ops::Range<u64>) {
    seeds.for_each(|seed| play(2 + (seed % 3) as u16, seed, 120, Faults::of(seed)));
}

#[test]
fn a_crowd_in_a_rough_network_with_restarts() {
    rough(1_000..1_400);
}

#[test]
#[ignore = "minutes; run with --ignored after a change of the protocol"]
fn a_crowd_in_a_rough_network_for_a_long_time() {
    rough(10_000..16_000);
}
