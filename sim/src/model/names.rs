//! The model's names: create, link, remove, rename.

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::msg::fs::RenameMode;

use super::{Action, Expect, Look, Model, Node, Refusals};

impl Model {
    fn dir(&self, dir: Ino) -> Result<&Node, Refusals> {
        let node = self.get(dir)?;
        if node.kind == FileType::Directory { Ok(node) } else { Err(vec![ErrorKind::NotDirectory]) }
    }

    pub(super) fn find(&self, dir: Ino, name: &[u8]) -> Result<Ino, Refusals> {
        let node = self.dir(dir)?;
        match name {
            b".." => Ok(node.parent),
            _ => node.entries.get(name).copied().ok_or_else(|| vec![ErrorKind::NotFound]),
        }
    }

    fn free(&self, dir: Ino, name: &[u8]) -> Result<(), Refusals> {
        match self.find(dir, name) {
            Ok(_) => Err(vec![ErrorKind::Exists]),
            Err(kinds) if kinds == [ErrorKind::NotFound] => Ok(()),
            Err(kinds) => Err(kinds),
        }
    }

    pub(super) fn expect_create(
        &self,
        dir: Ino,
        name: &[u8],
        kind: FileType,
        mode: u16,
        target: &[u8],
    ) -> Result<Expect, Refusals> {
        self.free(dir, name)?;
        let mut node = Node::new(kind, mode, dir);
        node.target = target.to_vec();
        Ok(Expect::New(node.look()))
    }

    pub(super) fn expect_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Expect, Refusals> {
        let free = self.free(dir, name);
        let node = self.get(ino);
        let allowed = match node {
            Ok(node) if node.kind == FileType::Directory => Err(vec![ErrorKind::NotPermitted]),
            // A name for what has none is refused as if it were gone.
            Ok(node) if node.nlink == 0 => Err(super::gone()),
            Ok(node) => Ok(node),
            Err(kinds) => Err(kinds),
        };
        match (free, allowed) {
            (Ok(()), Ok(node)) => Ok(Expect::Look(Look { nlink: node.nlink + 1, ..node.look() })),
            // Two reasons: either may be named.
            (free, allowed) => Err([free.err(), allowed.err()].into_iter().flatten().flatten().collect()),
        }
    }

    pub(super) fn expect_unlink(&self, dir: Ino, name: &[u8]) -> Result<Expect, Refusals> {
        let ino = self.find(dir, name)?;
        match self.get(ino)?.kind {
            FileType::Directory => Err(vec![ErrorKind::IsDirectory]),
            _ => Ok(Expect::Ino(ino)),
        }
    }

    pub(super) fn expect_rmdir(&self, dir: Ino, name: &[u8]) -> Result<Expect, Refusals> {
        let ino = self.find(dir, name)?;
        match self.get(ino)? {
            node if node.kind != FileType::Directory => Err(vec![ErrorKind::NotDirectory]),
            node if !node.entries.is_empty() => Err(vec![ErrorKind::NotEmpty]),
            _ => Ok(Expect::Ino(ino)),
        }
    }

    pub(super) fn expect_list(&self, dir: Ino) -> Result<Expect, Refusals> {
        let names = self.dir(dir)?.entries.iter().map(|(name, ino)| (name.clone(), *ino)).collect();
        Ok(Expect::Names(names))
    }

    /// All reasons that speak against it are collected: which one is named first is the partition's choice.
    pub(super) fn expect_rename(
        &self,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Expect, Refusals> {
        let mut against = Vec::new();
        let moved = self.find(from_dir, from).map_err(|kinds| against.extend(kinds)).ok();
        let other = match self.find(to_dir, to) {
            Ok(ino) => Some(ino),
            Err(kinds) if kinds == [ErrorKind::NotFound] => None,
            Err(kinds) => {
                against.extend(kinds);
                None
            }
        };
        match (mode, other) {
            (RenameMode::NoReplace, Some(_)) => against.push(ErrorKind::Exists),
            (RenameMode::Exchange, None) => against.push(ErrorKind::NotFound),
            _ => {}
        }
        let Some(moved) = moved else { return Err(against) };
        if let Some(other) = other.filter(|other| *other != moved && mode == RenameMode::Replace) {
            against.extend(self.against_replacing(moved, other));
        }
        if self.is_within(to_dir, moved) {
            against.push(ErrorKind::Invalid);
        }
        // A directory that contains the source is never empty, or would go into itself.
        if other.is_some_and(|other| self.is_within(from_dir, other)) {
            against.push(if mode == RenameMode::Exchange { ErrorKind::Invalid } else { ErrorKind::NotEmpty });
        }
        if against.is_empty() {
            Ok(Expect::Renamed(moved, other.filter(|other| *other != moved)))
        } else {
            Err(against)
        }
    }

    fn against_replacing(&self, moved: Ino, other: Ino) -> Option<ErrorKind> {
        let (moved, other) = (self.node(moved)?, self.node(other)?);
        match (moved.kind == FileType::Directory, other.kind == FileType::Directory) {
            (true, false) => Some(ErrorKind::NotDirectory),
            (false, true) => Some(ErrorKind::IsDirectory),
            (true, true) if !other.entries.is_empty() => Some(ErrorKind::NotEmpty),
            _ => None,
        }
    }

    /// Whether directory `dir` is `top` or lies below it.
    fn is_within(&self, dir: Ino, top: Ino) -> bool {
        let mut at = dir;
        while let Some(node) = self.node(at) {
            if at == top {
                return true;
            }
            if at == self.top {
                return false;
            }
            at = node.parent;
        }
        false
    }

    pub(super) fn apply_names(&mut self, action: &Action, new: Ino) {
        match action {
            Action::Create { dir, name, kind, mode, target } => {
                let mut node = Node::new(*kind, *mode, if *kind == FileType::Directory { *dir } else { Ino(0) });
                node.target.clone_from(target);
                self.nodes.insert(new, node);
                self.put(*dir, name, new);
            }
            Action::Link { ino, dir, name } => {
                self.change(*ino).nlink += 1;
                self.change(*dir).entries.insert(name.clone(), *ino);
            }
            Action::Unlink { dir, name } | Action::Rmdir { dir, name } => {
                if let Some(ino) = self.take(*dir, name) {
                    self.lose_name(ino);
                }
            }
            Action::Rename { from_dir, from, to_dir, to, mode } => self.rename((*from_dir, from), (*to_dir, to), *mode),
            _ => unreachable!("only actions on names come here"),
        }
    }

    fn rename(&mut self, (from_dir, from): (Ino, &[u8]), (to_dir, to): (Ino, &[u8]), mode: RenameMode) {
        let same = self.find(from_dir, from) == self.find(to_dir, to);
        if same {
            return;
        }
        let moved = self.take(from_dir, from).expect("checked by expect()");
        let other = self.take(to_dir, to);
        self.put(to_dir, to, moved);
        match (other, mode) {
            (Some(other), RenameMode::Exchange) => self.put(from_dir, from, other),
            (Some(other), _) => self.lose_name(other),
            (None, _) => {}
        }
    }

    pub(super) fn put(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        self.change(dir).entries.insert(name.to_vec(), ino);
        if self.change(ino).kind == FileType::Directory {
            self.change(ino).parent = dir;
            self.change(dir).nlink += 1;
        }
    }

    pub(super) fn take(&mut self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let ino = self.change(dir).entries.remove(name)?;
        if self.change(ino).kind == FileType::Directory {
            self.change(dir).nlink -= 1;
        }
        Some(ino)
    }

    fn lose_name(&mut self, ino: Ino) {
        let node = self.change(ino);
        node.nlink = if node.kind == FileType::Directory { 0 } else { node.nlink - 1 };
        self.drop_if_unused(ino);
    }
}
