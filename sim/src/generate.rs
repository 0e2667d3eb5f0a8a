//! Chooses the next call of a program: mostly sensible ones, some that must be refused.

use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::limits::CHUNK;
use braid_base::msg::fs::{FallocMode, Name, RenameMode, XattrMode};
use braid_io::chance::Rng;
use bytes::Bytes;

use crate::config::{pick, some};
use crate::model::{Action, Model};

/// Directories of one program, at most: few enough that names meet.
const DIRS_MAX: usize = 8;
/// Inodes of one program, at most.
const NODES_MAX: usize = 40;
/// A file that fills the cluster is about so large at most, bytes.
const FILL_MAX: u64 = 3 << 20;
/// Largest write, bytes.
const WRITE_LARGE: u64 = 900 << 10;

/// Chooses an action of a program that fills the cluster; `full`: it was just told that there is no room.
pub fn greedy(model: &Model, rng: &mut Rng, full: bool) -> Action {
    let scene = Scene { model, dirs: of_kind(model, true), others: of_kind(model, false) };
    if full {
        return scene.make_room(rng);
    }
    if rng.chance(2, 5) { next(model, rng) } else { scene.fill(rng) }
}

/// Where a file is to be from now on, or a part of it.
pub fn tiered(model: &Model, rng: &mut Rng) -> Action {
    let scene = Scene { model, dirs: of_kind(model, true), others: of_kind(model, false) };
    let ino = scene.file(rng);
    let part = rng.chance(1, 3);
    let (off, len) = if part { (offset(rng, scene.size(ino)), some(rng, 20)) } else { (0, u64::MAX) };
    // Some wait until it is so: of the whole file that can be seen.
    let wait_ms = if part || rng.chance(1, 2) { 0 } else { 8_000 };
    if rng.chance(1, 2) { Action::Fetch { ino, off, len, wait_ms } } else { Action::Release { ino, off, len, wait_ms } }
}

/// Chooses an action on `model`.
pub fn next(model: &Model, rng: &mut Rng) -> Action {
    let scene = Scene { model, dirs: of_kind(model, true), others: of_kind(model, false) };
    match rng.below(100) {
        0..18 => scene.create(rng),
        18..40 => scene.write(rng),
        40..54 => scene.read(rng),
        54..60 => scene.cut(rng),
        60..66 => scene.remove(rng),
        66..76 => scene.rename(rng),
        76..80 => Action::Link { ino: scene.any(rng), dir: scene.dir(rng), name: name(rng) },
        80..86 => scene.look(rng),
        86..92 => scene.xattr(rng),
        92..96 => scene.open(rng),
        _ => Action::Chmod { ino: scene.any(rng), mode: rng.below(0o1000) as u16 },
    }
}

struct Scene<'a> {
    model: &'a Model,
    dirs: Vec<Ino>,
    others: Vec<Ino>,
}

fn of_kind(model: &Model, directory: bool) -> Vec<Ino> {
    let fits = |kind| (kind == FileType::Directory) == directory;
    model.nodes().filter(|(_, node)| fits(node.kind)).map(|(ino, _)| ino).collect()
}

impl Scene<'_> {
    fn dir(&self, rng: &mut Rng) -> Ino {
        // Now and then something that is none.
        if rng.chance(1, 40) { self.any(rng) } else { *pick(rng, &self.dirs) }
    }

    fn any(&self, rng: &mut Rng) -> Ino {
        if self.others.is_empty() || rng.chance(1, 6) { *pick(rng, &self.dirs) } else { *pick(rng, &self.others) }
    }

    fn file(&self, rng: &mut Rng) -> Ino {
        let regular = |ino: &&Ino| self.model.node(**ino).is_some_and(|node| node.kind == FileType::File);
        let files: Vec<Ino> = self.others.iter().filter(regular).copied().collect();
        if files.is_empty() || rng.chance(1, 40) { self.any(rng) } else { *pick(rng, &files) }
    }

    /// A name that is there, if the directory has one.
    fn known(&self, rng: &mut Rng, dir: Ino) -> Name {
        let names: Vec<&Name> = self.model.node(dir).map(|node| node.entries.keys().collect()).unwrap_or_default();
        if names.is_empty() || rng.chance(1, 8) { name(rng) } else { (*pick(rng, &names)).clone() }
    }

    fn size(&self, ino: Ino) -> u64 {
        self.model.node(ino).map_or(0, |node| node.content.size)
    }

    fn create(&self, rng: &mut Rng) -> Action {
        if self.dirs.len() + self.others.len() >= NODES_MAX {
            return self.remove(rng);
        }
        let (kind, target) = match rng.below(20) {
            0..5 if self.dirs.len() < DIRS_MAX => (FileType::Directory, Vec::new()),
            5 => (FileType::Symlink, name(rng)),
            6 => (FileType::Fifo, Vec::new()),
            _ => (FileType::File, Vec::new()),
        };
        let mode = if kind == FileType::Symlink { 0o777 } else { rng.below(0o1000) as u16 };
        Action::Create { dir: self.dir(rng), name: name(rng), kind, mode, target }
    }

    fn write(&self, rng: &mut Rng) -> Action {
        let ino = self.file(rng);
        let data = bytes(rng);
        let off = offset(rng, self.size(ino));
        Action::Write { ino, off, data, append: rng.chance(1, 4) }
    }

    fn read(&self, rng: &mut Rng) -> Action {
        let ino = self.file(rng);
        let size = self.size(ino);
        let off = if rng.chance(1, 2) { 0 } else { rng.below(size.min(4 << 20) + 1) };
        let len = if rng.chance(1, 2) { size.min(4 << 20) + 1 } else { rng.below(64 << 10).max(1) };
        Action::Read { ino, off, len }
    }

    /// More at the end of a file, or a little over what is there: the garbage of which lies everywhere.
    fn fill(&self, rng: &mut Rng) -> Action {
        let ino = self.file(rng);
        let size = self.size(ino).min(FILL_MAX);
        let grow = size < 128 << 10 || (size < FILL_MAX && rng.chance(1, 2));
        let len = if grow { (64 << 10) + rng.below(WRITE_LARGE) } else { 4096 * (1 + rng.below(12)) };
        let off = if grow { size / 4096 * 4096 } else { rng.below(size / 4096) * 4096 };
        let mut data = vec![0; len as usize];
        rng.fill(&mut data);
        Action::Write { ino, off, data: Bytes::from(data), append: false }
    }

    /// Takes away much: the name of the largest file, its content, or a part of that.
    fn make_room(&self, rng: &mut Rng) -> Action {
        let held = |ino: &Ino| self.model.node(*ino).map_or(0, |node| node.content.held());
        let Some(ino) = self.others.iter().copied().max_by_key(held) else { return self.remove(rng) };
        match rng.below(4) {
            0 => Action::Truncate { ino, size: 0 },
            1 => Action::Falloc { ino, off: 0, len: 1 << 20, mode: FallocMode::Punch, keep: true },
            _ => {
                let name = |dir: &Ino| {
                    let node = self.model.node(*dir)?;
                    let (name, _) = node.entries.iter().find(|(_, child)| **child == ino)?;
                    Some(Action::Unlink { dir: *dir, name: name.clone() })
                };
                self.dirs.iter().find_map(name).unwrap_or(Action::Truncate { ino, size: 0 })
            }
        }
    }

    fn cut(&self, rng: &mut Rng) -> Action {
        let ino = self.file(rng);
        let size = self.size(ino);
        if rng.chance(1, 3) {
            return Action::Truncate { ino, size: offset(rng, size) };
        }
        let mode = *pick(rng, &[FallocMode::Punch, FallocMode::Punch, FallocMode::Zero, FallocMode::Allocate]);
        let (off, len) = (offset(rng, size), some(rng, 18));
        Action::Falloc { ino, off, len, mode, keep: mode == FallocMode::Punch || rng.chance(1, 2) }
    }

    fn remove(&self, rng: &mut Rng) -> Action {
        let dir = self.dir(rng);
        let name = self.known(rng, dir);
        let found = self.model.node(dir).and_then(|node| self.model.node(*node.entries.get(&name)?));
        let is_dir = found.is_some_and(|node| node.kind == FileType::Directory);
        if is_dir != rng.chance(1, 10) { Action::Rmdir { dir, name } } else { Action::Unlink { dir, name } }
    }

    fn rename(&self, rng: &mut Rng) -> Action {
        let (from_dir, to_dir) = (self.dir(rng), self.dir(rng));
        let from = self.known(rng, from_dir);
        let to = if rng.chance(1, 2) { self.known(rng, to_dir) } else { name(rng) };
        let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        Action::Rename { from_dir, from, to_dir, to, mode: *pick(rng, &modes) }
    }

    fn look(&self, rng: &mut Rng) -> Action {
        let dir = self.dir(rng);
        match rng.below(4) {
            0 => Action::Stat { ino: self.any(rng) },
            1 => Action::List { dir, limit: 1 + rng.below(8) as u32, plus: rng.chance(1, 2) },
            2 => Action::Readlink { ino: self.any(rng) },
            _ => Action::Lookup { dir, name: self.known(rng, dir) },
        }
    }

    fn xattr(&self, rng: &mut Rng) -> Action {
        let ino = self.any(rng);
        let name = format!("user.x{}", rng.below(4)).into_bytes();
        match rng.below(5) {
            0 => Action::GetXattr { ino, name },
            1 => Action::ListXattr { ino },
            2 => Action::RemoveXattr { ino, name },
            _ => {
                let mut value = vec![0; some(rng, 13) as usize];
                rng.fill(&mut value);
                let modes = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                Action::SetXattr { ino, name, value, mode: *pick(rng, &modes) }
            }
        }
    }

    fn open(&self, rng: &mut Rng) -> Action {
        let open: Vec<Ino> = self.model.nodes().filter(|(_, node)| node.opens > 0).map(|(ino, _)| ino).collect();
        if open.is_empty() || (open.len() < 4 && rng.chance(1, 2)) {
            return Action::Open { ino: self.file(rng), truncate: rng.chance(1, 4) };
        }
        Action::Close { ino: *pick(rng, &open) }
    }
}

fn name(rng: &mut Rng) -> Name {
    match rng.below(30) {
        0 => vec![b'l'; 255],
        _ => format!("n{}", rng.below(12)).into_bytes(),
    }
}

/// Data of all sizes, never the same twice.
fn bytes(rng: &mut Rng) -> Bytes {
    let len = match rng.below(20) {
        0..8 => 1 + rng.below(300),
        8..14 => 1 + rng.below(20_000),
        14..18 => (1 + rng.below(4)) * 4096,
        18 => 1 + rng.below(WRITE_LARGE),
        _ => (64 << 10) + rng.below(8) * 4096,
    };
    let mut data = vec![0; len as usize];
    rng.fill(&mut data);
    Bytes::from(data)
}

fn offset(rng: &mut Rng, size: u64) -> u64 {
    match rng.below(16) {
        0..4 => 0,
        4..7 => rng.below(size.min(3 << 20) + 1),
        7..9 => size.min(3 << 20) / 4096 * 4096,
        9..11 => rng.below(16) * 4096,
        11..13 => (1 + rng.below(2)) * CHUNK - rng.below(9000),
        13 => size.min(3 << 20) + rng.below(100_000),
        14 => rng.below(1 << 17),
        _ => {
            if rng.chance(1, 8) {
                (1 << 40) + rng.below(10_000)
            } else {
                rng.below(40_000)
            }
        }
    }
}
