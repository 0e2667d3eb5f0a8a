//! Names: create, mkdir, rename, link, unlink, rmdir, each followed by fsync of the directory.

use super::log::{Line, Log};
use crate::Outcome;
use crate::chance::{Chance, pattern};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const NAMES: u64 = 40;
const FOLDERS: u64 = 5;
const BYTES_MAX: u64 = 24_000;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Folder,
    /// Content is the pattern of `id`, `len` bytes, after 16 bytes that hold both.
    File {
        id: u64,
        len: u64,
    },
    /// A file that holds something else, as one has whose create was cut short.
    Half,
}

/// Path below the worker's folder ("d1/n7") to node.
type Tree = BTreeMap<String, Node>;

#[derive(Debug, Clone, PartialEq)]
enum Op {
    Create { path: String, id: u64, len: u64 },
    Mkdir { path: String },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
}

/// Works until `stop`; the operations that were acknowledged.
pub fn work(dir: &Path, log: &mut Log, seed: u64, stop: &AtomicBool) -> Outcome<u64> {
    let mut chance = Chance::new(seed);
    log.operation("start", || {
        fs::create_dir_all(dir)?;
        File::open(dir)?.sync_all()
    })?;
    let mut tree = Tree::new();
    let mut id = 0;
    while !stop.load(Ordering::Relaxed) {
        id += 1;
        if let Some(op) = choose(&tree, &mut chance, id) {
            log.operation(&op.to_words(), || op.perform(dir))?;
            op.apply(&mut tree);
        }
    }
    Ok(log.operations())
}

/// An operation that must succeed on `tree`, or nothing when chance picked one that cannot.
fn choose(tree: &Tree, chance: &mut Chance, id: u64) -> Option<Op> {
    let folder = format!("d{}", chance.below(FOLDERS));
    let (path, other) = (file_path(chance), file_path(chance));
    let has_parent = |path: &str| path.split_once('/').is_none_or(|(parent, _)| tree.contains_key(parent));
    let is_file = |path: &str| matches!(tree.get(path), Some(Node::File { .. }));
    let empty = |folder: &str| !tree.keys().any(|path| path.starts_with(&format!("{folder}/")));
    match chance.below(10) {
        0..=3 if has_parent(&path) && !tree.contains_key(&path) => {
            Some(Op::Create { path, id, len: chance.below(BYTES_MAX) })
        }
        4 | 5 if is_file(&path) && path != other && has_parent(&other) => Some(Op::Rename { from: path, to: other }),
        6 if is_file(&path) && has_parent(&other) && !tree.contains_key(&other) => {
            Some(Op::Link { from: path, to: other })
        }
        7 if is_file(&path) => Some(Op::Unlink { path }),
        8 if !tree.contains_key(&folder) => Some(Op::Mkdir { path: folder }),
        9 if tree.contains_key(&folder) && empty(&folder) => Some(Op::Rmdir { path: folder }),
        _ => None,
    }
}

fn file_path(chance: &mut Chance) -> String {
    let name = chance.below(NAMES);
    match chance.below(FOLDERS + 1) {
        FOLDERS => format!("n{name}"),
        folder => format!("d{folder}/n{name}"),
    }
}

impl Op {
    fn to_words(&self) -> String {
        match self {
            Op::Create { path, id, len } => format!("create {path} {id} {len}"),
            Op::Mkdir { path } => format!("mkdir {path}"),
            Op::Rename { from, to } => format!("rename {from} {to}"),
            Op::Link { from, to } => format!("link {from} {to}"),
            Op::Unlink { path } => format!("unlink {path}"),
            Op::Rmdir { path } => format!("rmdir {path}"),
        }
    }

    fn of_line(line: &Line) -> Outcome<Op> {
        let word = |at: usize| line.words.get(at).cloned().ok_or_else(|| format!("log line {:?} is short", line.words));
        Ok(match line.words[0].as_str() {
            "create" => Op::Create { path: word(1)?, id: line.number(2)?, len: line.number(3)? },
            "mkdir" => Op::Mkdir { path: word(1)? },
            "rename" => Op::Rename { from: word(1)?, to: word(2)? },
            "link" => Op::Link { from: word(1)?, to: word(2)? },
            "unlink" => Op::Unlink { path: word(1)? },
            "rmdir" => Op::Rmdir { path: word(1)? },
            other => return Err(format!("the log has an unknown operation '{other}'")),
        })
    }

    fn perform(&self, dir: &Path) -> std::io::Result<()> {
        match self {
            Op::Create { path, id, len } => {
                let mut file = File::create_new(dir.join(path))?;
                file.write_all(&content(*id, *len))?;
                file.sync_all()?;
                sync_parent(dir, path)
            }
            Op::Mkdir { path } => fs::create_dir(dir.join(path)).and_then(|()| sync_parent(dir, path)),
            Op::Rename { from, to } => {
                fs::rename(dir.join(from), dir.join(to))?;
                sync_parent(dir, from)?;
                sync_parent(dir, to)
            }
            Op::Link { from, to } => fs::hard_link(dir.join(from), dir.join(to)).and_then(|()| sync_parent(dir, to)),
            Op::Unlink { path } => fs::remove_file(dir.join(path)).and_then(|()| sync_parent(dir, path)),
            Op::Rmdir { path } => fs::remove_dir(dir.join(path)).and_then(|()| sync_parent(dir, path)),
        }
    }

    fn apply(self, tree: &mut Tree) {
        match self {
            Op::Create { path, id, len } => {
                tree.insert(path, Node::File { id, len });
            }
            Op::Mkdir { path } => {
                tree.insert(path, Node::Folder);
            }
            Op::Rename { from, to } => {
                // A rename of one name onto another name of the same file leaves both (POSIX).
                if tree.get(&from) != tree.get(&to)
                    && let Some(node) = tree.remove(&from)
                {
                    tree.insert(to, node);
                }
            }
            Op::Link { from, to } => {
                if let Some(node) = tree.get(&from).cloned() {
                    tree.insert(to, node);
                }
            }
            Op::Unlink { path } | Op::Rmdir { path } => {
                tree.remove(&path);
            }
        }
    }
}

fn sync_parent(dir: &Path, path: &str) -> std::io::Result<()> {
    let path = dir.join(path);
    File::open(path.parent().unwrap_or(dir))?.sync_all()
}

fn content(id: u64, len: u64) -> Vec<u8> {
    [&id.to_le_bytes()[..], &len.to_le_bytes()[..], &pattern(id, 0, len)].concat()
}

fn node_of(bytes: &[u8]) -> Node {
    let number = |at: usize| bytes.get(at..at + 8).and_then(|part| Some(u64::from_le_bytes(part.try_into().ok()?)));
    match (number(0), number(8)) {
        (Some(id), Some(len)) if len <= BYTES_MAX && content(id, len) == bytes => Node::File { id, len },
        _ => Node::Half,
    }
}

/// Compares the tree below `dir` with what the log promises: the state before the last operation that was
/// not acknowledged, or after it, and nothing between.
pub fn check(dir: &Path, lines: &[Line]) -> Outcome<()> {
    let mut tree = Tree::new();
    let mut open = None;
    for line in lines.iter().skip(1) {
        let op = Op::of_line(line)?;
        if line.done { op.apply(&mut tree) } else { open = Some(op) }
    }
    if lines.first().is_none_or(|line| !line.done) {
        return Ok(());
    }
    judge(&tree, open, found(dir)?)
}

fn judge(before: &Tree, open: Option<Op>, mut found: Tree) -> Outcome<()> {
    let mut after = before.clone();
    if let Some(op) = open.clone() {
        op.apply(&mut after);
    }
    // A create that was cut short may have its name and any part of its bytes.
    if let Some(Op::Create { path, .. }) = &open
        && found.get(path) == Some(&Node::Half)
    {
        found.remove(path);
    }
    if found == *before || found == after {
        return Ok(());
    }
    let names = before.keys().chain(found.keys());
    let wrong = names.filter(|name| before.get(*name) != found.get(*name) && after.get(*name) != found.get(*name));
    let wrong: Vec<String> = wrong
        .map(|name| format!("{name}: promised {:?}, found {:?}", before.get(name), found.get(name)))
        .take(5)
        .collect();
    Err(format!("neither before nor after {open:?}: {}", wrong.join("; ")))
}

fn found(dir: &Path) -> Outcome<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![String::new()];
    while let Some(folder) = open.pop() {
        let place = dir.join(&folder);
        let say = |error: std::io::Error| format!("{}: {error}", place.display());
        for entry in fs::read_dir(&place).map_err(say)? {
            let entry = entry.map_err(say)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let node = if entry.file_type().map_err(say)?.is_dir() {
                open.push(path.clone());
                Node::Folder
            } else {
                node_of(&fs::read(entry.path()).map_err(say)?)
            };
            tree.insert(path, node);
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[(&str, u64)]) -> Tree {
        names.iter().map(|(name, id)| ((*name).to_owned(), Node::File { id: *id, len: 5 })).collect()
    }

    #[test]
    fn an_open_rename_is_before_or_after_and_never_between() {
        let open = || Some(Op::Rename { from: "a".to_owned(), to: "b".to_owned() });
        let before = tree(&[("a", 1), ("b", 2)]);
        assert_eq!(judge(&before, open(), before.clone()), Ok(()));
        assert_eq!(judge(&before, open(), tree(&[("b", 1)])), Ok(()));
        assert!(judge(&before, open(), tree(&[("a", 1), ("b", 1)])).is_err());
        assert!(judge(&before, open(), tree(&[("b", 2)])).is_err());
        assert!(judge(&before, None, tree(&[("b", 1)])).is_err());
    }

    #[test]
    fn only_an_open_create_may_be_half() {
        let open = Op::Create { path: "c".to_owned(), id: 9, len: 5 };
        let before = tree(&[("a", 1)]);
        let mut half = before.clone();
        half.insert("c".to_owned(), Node::Half);
        assert_eq!(judge(&before, Some(open), half.clone()), Ok(()));
        assert!(judge(&before, None, half).is_err());
    }

    #[test]
    fn content_names_itself() {
        assert_eq!(node_of(&content(7, 100)), Node::File { id: 7, len: 100 });
        assert_eq!(node_of(&content(7, 100)[..50]), Node::Half);
        assert_eq!(node_of(&[]), Node::Half);
    }
}
