//! One client, one operation at a time: whatever happens to messages and primaries, each answer, each lookup and
//! each listing must be that of a plain tree.

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::attr::{Attr, FileType};
use braid_base::ids::{ClientId, Ino};
use braid_base::msg::fs::{FsResult, Op, RenameMode, Reply, XattrMode};
use braid_meta::Variant;

use super::check;
use super::model::{Model, Name};
use super::world::{FS, Faults, Rng, World};

pub struct Sequence {
    pub world: World,
    pub model: Model,
    rng: Rng,
    seq: u64,
    /// The last attributes seen of inodes that nothing has changed since.
    known: BTreeMap<Ino, Attr>,
}

const CLIENT: ClientId = ClientId(1);

/// Version 2; owner, user 42, group, mask and others may do everything.
const DEFAULT_ACL: [&[u8]; 6] = [
    &[2, 0, 0, 0],
    &[0x01, 0, 7, 0, 0, 0, 0, 0],
    &[0x02, 0, 7, 0, 42, 0, 0, 0],
    &[0x04, 0, 7, 0, 0, 0, 0, 0],
    &[0x10, 0, 7, 0, 0, 0, 0, 0],
    &[0x20, 0, 7, 0, 0, 0, 0, 0],
];

/// Why a run stopped: what the real thing did that the plain tree did not.
pub type Difference = String;

impl Sequence {
    pub fn new(partitions: u16, seed: u64, faults: Faults, variant: Option<Variant>) -> Self {
        let root = Ino::root(FS);
        let world = World::new(partitions, seed, faults, variant);
        let mut sequence =
            Self { world, model: Model::new(root), rng: Rng::new(seed ^ 0xABCD), seq: 0, known: BTreeMap::new() };
        sequence.run(Op::MakeRoot { ino: root, mode: 0o755 }).expect("the root can be made");
        // Inherited by everything: attributes must come and go with their inodes.
        let (name, value) = (b"system.posix_acl_default".to_vec(), DEFAULT_ACL.concat());
        sequence.run(Op::SetXattr { ino: root, name, value, mode: XattrMode::Any }).expect("a list can be set");
        sequence
    }

    pub fn run(&mut self, body: Op) -> FsResult {
        self.seq += 1;
        self.world.run(CLIENT, self.seq, body)
    }

    fn dir(&mut self) -> Ino {
        let dirs = self.model.dirs();
        *self.rng.pick(&dirs)
    }

    fn name(&mut self) -> Name {
        let names: [&[u8]; 6] = [b"a", b"b", b"c", b"dd", b"258c3f35be4b30", b"09235a49f57c32"];
        self.rng.pick(&names).to_vec()
    }

    /// One random operation on both.
    pub fn step(&mut self) -> Result<(), Difference> {
        let (dir, name) = (self.dir(), self.name());
        match self.rng.below(14) {
            0..2 => self.create(dir, name, FileType::File),
            2..5 => self.create(dir, name, FileType::Directory),
            5 => self.unlink(dir, name),
            6 => self.rmdir(dir, name),
            7 => self.link(dir, name),
            8..12 => {
                let (to_dir, to) = (self.dir(), self.name());
                let mode = *self.rng.pick(&[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ]);
                self.rename((dir, name), (to_dir, to), mode)
            }
            12 => self.compare_listing(dir),
            _ => self.compare_attr(),
        }?;
        let (dir, name) = (self.dir(), self.name());
        self.compare_lookup(dir, name)
    }

    fn create(&mut self, dir: Ino, name: Name, kind: FileType) -> Result<(), Difference> {
        let (target, mode, umask, rdev) = (Vec::new(), 0o777, 0o022, 0);
        let real = self.run(Op::Create {
            dir,
            name: name.clone(),
            kind,
            mode,
            umask,
            rdev,
            target,
            open: false,
            told: None,
            want: 0,
        });
        let want = self.model.may_create(dir, &name);
        same("create", &real, &want)?;
        if let Ok(Reply::Entry { ino, .. }) = real {
            self.model.create(dir, &name, kind, ino);
            self.changed(&[dir]);
        }
        Ok(())
    }

    fn link(&mut self, dir: Ino, name: Name) -> Result<(), Difference> {
        let files = self.model.files();
        if files.is_empty() {
            return Ok(());
        }
        let ino = *self.rng.pick(&files);
        let real = self.run(Op::Link { ino, dir, name: name.clone() });
        let want = self.model.link(ino, dir, &name);
        same("link", &real, &want)?;
        if let Ok(Reply::Entry { attr: Some(attr), .. }) = &real {
            let want = self.model.nodes[&ino].nlink;
            if attr.nlink != want {
                return Err(format!("link of {ino} answers link count {}, not {want}", attr.nlink));
            }
        }
        self.changed(&[dir, ino]);
        Ok(())
    }

    fn unlink(&mut self, dir: Ino, name: Name) -> Result<(), Difference> {
        let real = self.run(Op::Unlink { dir, name: name.clone(), told: None, alone: false });
        let want = self.model.unlink(dir, &name);
        same("unlink", &real, &want)?;
        if let (Ok(Reply::Unlinked { ino }), Ok(want)) = (real, want) {
            self.changed(&[dir, ino]);
            if ino != want {
                return Err(format!("unlink answers {ino}, not {want}"));
            }
        }
        Ok(())
    }

    fn rmdir(&mut self, dir: Ino, name: Name) -> Result<(), Difference> {
        let real = self.run(Op::Rmdir { dir, name: name.clone() });
        let want = self.model.rmdir(dir, &name);
        same("rmdir", &real, &want)?;
        if let Ok(ino) = want {
            self.changed(&[dir, ino]);
        }
        Ok(())
    }

    fn rename(&mut self, from: (Ino, Name), to: (Ino, Name), mode: RenameMode) -> Result<(), Difference> {
        let moved = self.model.lookup(from.0, &from.1).ok();
        let body = Op::Rename { from_dir: from.0, from: from.1.clone(), to_dir: to.0, to: to.1.clone(), mode };
        let real = self.run(body);
        let want = self.model.rename((from.0, &from.1), (to.0, &to.1), mode);
        same("rename", &real, &want)?;
        if let Ok(other) = want {
            self.changed(&[from.0, to.0]);
            self.changed(&moved.into_iter().chain(other).collect::<Vec<_>>());
            // What a client saw to be gone must stay gone, what it saw must stay.
            self.compare_lookup(from.0, from.1)?;
            self.compare_lookup(to.0, to.1)?;
        }
        Ok(())
    }

    fn changed(&mut self, inos: &[Ino]) {
        for ino in inos {
            self.known.remove(ino);
        }
    }

    fn compare_lookup(&mut self, dir: Ino, name: Name) -> Result<(), Difference> {
        let real = self.run(Op::Lookup { dir, name: name.clone() });
        let want = self.model.lookup(dir, &name);
        same("lookup", &real, &want)?;
        match (real, want) {
            (Ok(Reply::Entry { ino, .. }), Ok(want)) if ino != want => {
                Err(format!("lookup of {} in {dir} finds {ino}, not {want}", name.escape_ascii()))
            }
            _ => Ok(()),
        }
    }

    fn compare_listing(&mut self, dir: Ino) -> Result<(), Difference> {
        let (mut names, mut cookie, mut at_end) = (BTreeMap::new(), 0, false);
        while !at_end {
            let limit = 1 + self.rng.below(4) as u32;
            let real = self.run(Op::Readdir { dir, cookie, limit, plus: self.seq.is_multiple_of(2) });
            let Ok(Reply::Entries { entries, end }) = real else { return Err(format!("readdir: {real:?}")) };
            at_end = end;
            for entry in entries {
                if entry.cookie <= cookie {
                    return Err(format!("cookie {} after {cookie}", entry.cookie));
                }
                cookie = entry.cookie;
                names.insert(entry.name, entry.ino);
            }
        }
        let want = &self.model.nodes[&dir].names;
        if names == *want { Ok(()) } else { Err(format!("listing of {dir}: {names:?}, not {want:?}")) }
    }

    fn compare_attr(&mut self) -> Result<(), Difference> {
        let all: Vec<Ino> = self.model.nodes.keys().copied().collect();
        let ino = *self.rng.pick(&all);
        let real = self.run(Op::GetAttr { ino });
        let Ok(Reply::Attr(attr)) = real else { return Err(format!("getattr of {ino}: {real:?}")) };
        let node = &self.model.nodes[&ino];
        if (attr.ino, attr.kind, attr.nlink) != (ino, node.kind, node.nlink) {
            return Err(format!("{ino} is {attr:?}, not {:?} with {} links", node.kind, node.nlink));
        }
        if let Some(known) = self.known.insert(ino, attr.clone())
            && known != attr
        {
            return Err(format!("nothing changed {ino}, but {known:?} became {attr:?}"));
        }
        Ok(())
    }

    /// Every rule that the views must obey once nothing is under way.
    pub fn finish(&mut self) -> Result<(), Difference> {
        if !self.world.settle() {
            return Err("operations or notes are left for ever".to_owned());
        }
        let tree = check::read(&self.world);
        if let Some(first) = check::complaints(&tree).first() {
            return Err(first.clone());
        }
        let want: Vec<Ino> = self.model.nodes.keys().copied().collect();
        let found: Vec<Ino> = tree.inodes.keys().copied().collect();
        if found != want {
            return Err(format!("inodes {found:?}, not {want:?}"));
        }
        check::leftovers(&self.world, &tree).map_or(Ok(()), Err)
    }
}

fn same<T>(what: &str, real: &FsResult, want: &Result<T, ErrorKind>) -> Result<(), Difference> {
    let real_kind = real.as_ref().err().map(braid_base::Error::kind);
    let want_kind = want.as_ref().err().copied();
    if real_kind == want_kind {
        return Ok(());
    }
    Err(format!("{what}: {real:?}, not {want_kind:?}"))
}

/// Runs `steps` operations of `seed`.
pub fn play(
    partitions: u16,
    seed: u64,
    steps: usize,
    faults: Faults,
    variant: Option<Variant>,
) -> Result<(), Difference> {
    let mut sequence = Sequence::new(partitions, seed, faults, variant);
    for step in 0..steps {
        sequence.step().map_err(|difference| format!("step {step}: {difference}"))?;
    }
    sequence.finish()
}

fn seeds(partitions: u16, seeds: std::ops::Range<u64>, steps: usize, faults: Faults) {
    for seed in seeds {
        if let Err(difference) = play(partitions, seed, steps, faults, None) {
            panic!("{partitions} partitions, seed {seed}: {difference}");
        }
    }
}

fn rough(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(difference) = play(2 + (seed % 3) as u16, seed, 120, Faults::of(seed), None) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn one_partition_is_a_plain_tree() {
    seeds(1, 0..10, 1_500, Faults::default());
    seeds(1, 10..30, 300, Faults { restarts: 10, ..Faults::default() });
}

#[test]
fn several_partitions_are_a_plain_tree() {
    seeds(2, 100..110, 400, Faults::default());
    seeds(3, 200..210, 400, Faults::default());
}

#[test]
fn a_rough_network_and_restarts_change_nothing() {
    rough(1_000..1_400);
}

#[test]
#[ignore = "minutes; run with --ignored after a change of the protocol"]
fn a_rough_network_and_restarts_change_nothing_for_a_long_time() {
    rough(10_000..16_000);
}

/// The seeds that are clean with all rules show what each rule is for.
#[test]
fn each_rule_left_out_is_noticed() {
    let all = 3_000..3_060;
    rough(all.clone());
    for variant in [Variant::NoAbortLog, Variant::NoLock, Variant::UnlockOnTimeout] {
        let mut differences = all
            .clone()
            .filter_map(|seed| play(2 + (seed % 3) as u16, seed, 120, Faults::of(seed), Some(variant)).err());
        assert!(differences.next().is_some(), "{variant:?}: 60 seeds show nothing");
    }
}
