//! A plain tree in memory, with the rules of POSIX and nothing of partitions.

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::msg::fs::RenameMode;

pub type Name = Vec<u8>;
pub type Done = Result<(), ErrorKind>;

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileType,
    pub nlink: u32,
    pub parent: Ino,
    pub names: BTreeMap<Name, Ino>,
}

/// Inodes by the numbers that the real thing gave them.
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
}

impl Model {
    pub fn new(root: Ino) -> Self {
        let mut model = Self { nodes: BTreeMap::new() };
        model.nodes.insert(root, Node { kind: FileType::Directory, nlink: 2, parent: root, names: BTreeMap::new() });
        model
    }

    pub fn dirs(&self) -> Vec<Ino> {
        self.of(|kind| kind == FileType::Directory)
    }

    pub fn files(&self) -> Vec<Ino> {
        self.of(|kind| kind != FileType::Directory)
    }

    fn of(&self, what: impl Fn(FileType) -> bool) -> Vec<Ino> {
        self.nodes.iter().filter(|(_, node)| what(node.kind)).map(|(ino, _)| *ino).collect()
    }

    fn dir(&self, ino: Ino) -> Result<&Node, ErrorKind> {
        let node = self.nodes.get(&ino).ok_or(ErrorKind::Stale)?;
        if node.kind == FileType::Directory { Ok(node) } else { Err(ErrorKind::NotDirectory) }
    }

    fn kind(&self, ino: Ino) -> FileType {
        self.nodes[&ino].kind
    }

    pub fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino, ErrorKind> {
        self.dir(dir)?.names.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    pub fn may_create(&self, dir: Ino, name: &Name) -> Done {
        if self.dir(dir)?.names.contains_key(name) { Err(ErrorKind::Exists) } else { Ok(()) }
    }

    pub fn create(&mut self, dir: Ino, name: &Name, kind: FileType, ino: Ino) {
        let nlink = if kind == FileType::Directory { 2 } else { 1 };
        let fresh = Node { kind, nlink, parent: dir, names: BTreeMap::new() };
        assert!(self.nodes.insert(ino, fresh).is_none(), "{ino} was given twice");
        self.set(dir, name, ino);
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &Name) -> Done {
        self.may_create(dir, name)?;
        let node = self.nodes.get_mut(&ino).ok_or(ErrorKind::Stale)?;
        if node.kind == FileType::Directory {
            return Err(ErrorKind::NotPermitted);
        }
        node.nlink += 1;
        self.set(dir, name, ino);
        Ok(())
    }

    pub fn unlink(&mut self, dir: Ino, name: &Name) -> Result<Ino, ErrorKind> {
        let ino = self.lookup(dir, name)?;
        if self.kind(ino) == FileType::Directory {
            return Err(ErrorKind::IsDirectory);
        }
        self.clear(dir, name);
        self.dropped(ino);
        Ok(ino)
    }

    pub fn rmdir(&mut self, dir: Ino, name: &Name) -> Result<Ino, ErrorKind> {
        let ino = self.lookup(dir, name)?;
        if self.kind(ino) != FileType::Directory {
            return Err(ErrorKind::NotDirectory);
        }
        if !self.nodes[&ino].names.is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.clear(dir, name);
        self.nodes.remove(&ino);
        Ok(ino)
    }

    pub fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), mode: RenameMode) -> Result<Option<Ino>, ErrorKind> {
        self.dir(from.0)?;
        self.dir(to.0)?;
        let ino = self.lookup(from.0, from.1)?;
        let other = self.lookup(to.0, to.1).ok();
        match (mode, other) {
            (RenameMode::NoReplace, Some(_)) => return Err(ErrorKind::Exists),
            (RenameMode::Exchange, None) => return Err(ErrorKind::NotFound),
            (_, Some(other)) if other == ino => return Ok(None),
            _ => {}
        }
        let is_dir = |ino| self.kind(ino) == FileType::Directory;
        if let (Some(other), RenameMode::Replace) = (other, mode) {
            match (is_dir(ino), is_dir(other)) {
                (true, false) => return Err(ErrorKind::NotDirectory),
                (false, true) => return Err(ErrorKind::IsDirectory),
                _ => {}
            }
        }
        if is_dir(ino) && from.0 != to.0 && self.is_above(ino, to.0) {
            return Err(ErrorKind::Invalid);
        }
        let swapped = other.filter(|_| mode == RenameMode::Exchange);
        if swapped.is_some_and(|other| is_dir(other) && from.0 != to.0 && self.is_above(other, from.0)) {
            return Err(ErrorKind::Invalid);
        }
        if swapped.is_none() && other.is_some_and(|other| !self.nodes[&other].names.is_empty()) {
            return Err(ErrorKind::NotEmpty);
        }
        self.clear(from.0, from.1);
        if let Some(other) = other {
            self.clear(to.0, to.1);
            match swapped {
                Some(_) => self.set(from.0, from.1, other),
                None if is_dir_of(self, other) => drop(self.nodes.remove(&other)),
                None => self.dropped(other),
            }
        }
        self.set(to.0, to.1, ino);
        Ok(other)
    }

    fn is_above(&self, ino: Ino, dir: Ino) -> bool {
        let mut at = dir;
        loop {
            if at == ino {
                return true;
            }
            let parent = self.nodes[&at].parent;
            if parent == at {
                return false;
            }
            at = parent;
        }
    }

    fn set(&mut self, dir: Ino, name: &Name, ino: Ino) {
        let is_dir = is_dir_of(self, ino);
        if is_dir {
            self.node(ino).parent = dir;
        }
        let node = self.node(dir);
        node.nlink += u32::from(is_dir);
        node.names.insert(name.clone(), ino);
    }

    fn clear(&mut self, dir: Ino, name: &Name) {
        let ino = self.node(dir).names.remove(name).expect("the caller has looked");
        let is_dir = is_dir_of(self, ino);
        self.node(dir).nlink -= u32::from(is_dir);
    }

    fn dropped(&mut self, ino: Ino) {
        let node = self.node(ino);
        node.nlink -= 1;
        if node.nlink == 0 {
            self.nodes.remove(&ino);
        }
    }

    fn node(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("the model is whole")
    }
}

fn is_dir_of(model: &Model, ino: Ino) -> bool {
    model.kind(ino) == FileType::Directory
}
