//! The plain reference: a tree in memory that says what every call must give.

mod action;
mod content;
mod names;

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::limits::FILE_MAX;
use braid_base::msg::fs::{FallocMode, XattrMode};

pub use action::{Action, Answer, Expect, Look, Refusals};
pub use content::Content;

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: FileType,
    /// Low 12 bits.
    pub mode: u16,
    /// Names of a file; 2 and one for each child directory of a directory.
    pub nlink: u32,
    /// Bytes of a file.
    pub content: Content,
    /// Names of a directory.
    pub entries: BTreeMap<Vec<u8>, Ino>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// Parent of a directory.
    pub parent: Ino,
    /// Open references held.
    pub opens: u32,
}

/// A subtree that one program has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its top directory; its own name is not part of the model.
    pub top: Ino,
    /// The parent of the top.
    pub above: Ino,
    nodes: BTreeMap<Ino, Node>,
}

impl Node {
    /// Something new without names in it.
    pub fn new(kind: FileType, mode: u16, parent: Ino) -> Self {
        let nlink = if kind == FileType::Directory { 2 } else { 1 };
        Self {
            kind,
            mode,
            nlink,
            content: Content::default(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
            parent,
            opens: 0,
        }
    }

    /// What stat shows.
    pub fn look(&self) -> Look {
        let size = match self.kind {
            FileType::File => self.content.size,
            FileType::Symlink => self.target.len() as u64,
            _ => 0,
        };
        Look { kind: self.kind, mode: self.mode, nlink: self.nlink, size }
    }
}

/// An inode that is gone: its number is never used again.
fn gone() -> Refusals {
    vec![ErrorKind::Stale, ErrorKind::NotFound]
}

impl Model {
    /// An empty directory `top` with permission bits `mode`, under `above`.
    pub fn new(top: Ino, above: Ino, mode: u16) -> Self {
        let nodes = BTreeMap::from([(top, Node::new(FileType::Directory, mode, above))]);
        Self { top, above, nodes }
    }

    /// All inodes, those without names too.
    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    /// One inode.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// Forgets inodes that have no name: nobody may hold them open any more.
    pub fn forget_nameless(&mut self) {
        let top = self.top;
        self.nodes.retain(|ino, node| node.nlink > 0 || *ino == top);
        self.nodes.values_mut().for_each(|node| node.opens = 0);
    }

    fn get(&self, ino: Ino) -> Result<&Node, Refusals> {
        self.nodes.get(&ino).ok_or_else(gone)
    }

    fn file(&self, ino: Ino) -> Result<&Node, Refusals> {
        let node = self.get(ino)?;
        match node.kind {
            FileType::File => Ok(node),
            FileType::Directory => Err(vec![ErrorKind::IsDirectory, ErrorKind::Invalid]),
            _ => Err(vec![ErrorKind::Invalid]),
        }
    }

    /// True if it is a regular file.
    pub fn is_file(&self, ino: Ino) -> bool {
        self.node(ino).is_some_and(|node| node.kind == FileType::File)
    }

    /// What a file holds, to be replaced.
    pub fn content_mut(&mut self, ino: Ino) -> Option<&mut Content> {
        self.nodes.get_mut(&ino).map(|node| &mut node.content)
    }

    /// `name` stands for this again, as it did before: what it stands for now is undone.
    pub fn put_back(&mut self, dir: Ino, name: &[u8], state: Option<(Ino, Node)>) {
        let now = self.node(dir).and_then(|node| node.entries.get(name)).copied();
        let was = state.as_ref().map(|(ino, _)| *ino);
        if now == was || self.node(dir).is_none() {
            return;
        }
        if now.is_some() {
            let ino = self.take(dir, name);
            ino.map(|ino| self.nodes.remove(&ino));
        }
        if let Some((ino, node)) = state {
            self.nodes.insert(ino, Node { opens: 0, ..node });
            self.put(dir, name, ino);
        }
    }

    fn change(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("checked by expect() before apply()")
    }

    /// What `action` must give now.
    pub fn expect(&self, action: &Action) -> Result<Expect, Refusals> {
        match action {
            Action::Create { dir, name, kind, mode, target } => self.expect_create(*dir, name, *kind, *mode, target),
            Action::Link { ino, dir, name } => self.expect_link(*ino, *dir, name),
            Action::Unlink { dir, name } => self.expect_unlink(*dir, name),
            Action::Rmdir { dir, name } => self.expect_rmdir(*dir, name),
            Action::Rename { from_dir, from, to_dir, to, mode } => {
                self.expect_rename((*from_dir, from), (*to_dir, to), *mode)
            }
            Action::Lookup { dir, name } => Ok(Expect::Ino(self.find(*dir, name)?)),
            Action::List { dir, .. } => self.expect_list(*dir),
            Action::Stat { ino } | Action::Chmod { ino, .. } => {
                let mut look = self.get(*ino)?.look();
                if let Action::Chmod { mode, .. } = action {
                    look.mode = *mode;
                }
                Ok(Expect::Look(look))
            }
            Action::Readlink { ino } => match self.get(*ino)? {
                node if node.kind == FileType::Symlink => Ok(Expect::Bytes(node.target.clone())),
                _ => Err(vec![ErrorKind::Invalid]),
            },
            Action::Close { ino } | Action::Fsync { ino } => self.get(*ino).map(|_| Expect::Done),
            Action::Fetch { ino, .. } | Action::Release { ino, .. } => self.file(*ino).map(|_| Expect::Done),
            Action::SetXattr { .. }
            | Action::GetXattr { .. }
            | Action::ListXattr { .. }
            | Action::RemoveXattr { .. } => self.expect_xattr(action),
            _ => self.expect_content(action),
        }
    }

    fn expect_content(&self, action: &Action) -> Result<Expect, Refusals> {
        let look = |node: &Node, size| Look { size, ..node.look() };
        match action {
            Action::Write { ino, off, data, append } => {
                let node = self.file(*ino)?;
                let off = if *append { node.content.size } else { *off };
                let end = if data.is_empty() { 0 } else { off + data.len() as u64 };
                Ok(Expect::Wrote { off, size: node.content.size.max(end) })
            }
            Action::Read { ino, off, len } => Ok(Expect::Bytes(self.file(*ino)?.content.read(*off, *len))),
            Action::Truncate { ino, size } => Ok(Expect::Look(look(self.file(*ino)?, *size))),
            Action::Falloc { ino, off, len, mode, keep } => {
                let node = self.file(*ino)?;
                if off + len > FILE_MAX {
                    return Err(vec![ErrorKind::FileTooBig]);
                }
                let grows = *mode != FallocMode::Punch && !keep;
                let size = if grows { node.content.size.max(off + len) } else { node.content.size };
                Ok(Expect::Look(look(node, size)))
            }
            Action::Open { ino, truncate } => {
                let node = self.get(*ino)?;
                match (node.kind, truncate) {
                    (FileType::File, true) => Ok(Expect::Look(look(node, 0))),
                    // O_TRUNC means nothing to a pipe or a device; the kernel refuses it for directories itself.
                    _ => Ok(Expect::Look(node.look())),
                }
            }
            _ => unreachable!("every other action is handled by expect()"),
        }
    }

    fn expect_xattr(&self, action: &Action) -> Result<Expect, Refusals> {
        let missing = || vec![ErrorKind::NoAttribute];
        match action {
            Action::SetXattr { ino, name, mode, .. } => match (mode, self.get(*ino)?.xattrs.contains_key(name)) {
                (XattrMode::Create, true) => Err(vec![ErrorKind::Exists]),
                (XattrMode::Replace, false) => Err(missing()),
                _ => Ok(Expect::Done),
            },
            Action::GetXattr { ino, name } => {
                self.get(*ino)?.xattrs.get(name).cloned().map(Expect::Bytes).ok_or_else(missing)
            }
            Action::ListXattr { ino } => Ok(Expect::Xattrs(self.get(*ino)?.xattrs.keys().cloned().collect())),
            Action::RemoveXattr { ino, name } => match self.get(*ino)?.xattrs.contains_key(name) {
                true => Ok(Expect::Done),
                false => Err(missing()),
            },
            _ => unreachable!("only actions on extended attributes come here"),
        }
    }

    /// Carries out an action that [`Model::expect`] allows; `new` is the number of what it makes.
    pub fn apply(&mut self, action: &Action, new: Ino) {
        match action {
            Action::Create { .. }
            | Action::Link { .. }
            | Action::Unlink { .. }
            | Action::Rmdir { .. }
            | Action::Rename { .. } => self.apply_names(action, new),
            Action::Chmod { ino, mode } => self.change(*ino).mode = *mode,
            Action::Write { ino, off, data, append } => {
                let content = &mut self.change(*ino).content;
                let off = if *append { content.size } else { *off };
                content.write(off, data);
            }
            Action::Truncate { ino, size } => self.change(*ino).content.resize(*size),
            Action::Falloc { ino, off, len, mode, keep } => {
                let content = &mut self.change(*ino).content;
                if *mode != FallocMode::Allocate {
                    content.punch(*off, off + len);
                }
                if *mode != FallocMode::Punch && !keep {
                    content.size = content.size.max(off + len);
                }
            }
            Action::Open { ino, truncate } => {
                let node = self.change(*ino);
                // What becomes of an open directory that is removed is not promised.
                node.opens += u32::from(node.kind != FileType::Directory);
                if *truncate {
                    node.content.resize(0);
                }
            }
            Action::Close { ino } => {
                let node = self.change(*ino);
                node.opens = node.opens.saturating_sub(1);
                self.drop_if_unused(*ino);
            }
            Action::SetXattr { ino, name, value, .. } => {
                self.change(*ino).xattrs.insert(name.clone(), value.clone());
            }
            Action::RemoveXattr { ino, name } => {
                self.change(*ino).xattrs.remove(name);
            }
            _ => {}
        }
    }

    fn drop_if_unused(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.nlink == 0 && node.opens == 0) {
            self.nodes.remove(&ino);
        }
    }
}
