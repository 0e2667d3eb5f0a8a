//! The files of whole trees: links are not followed, other file systems not entered.

use std::fs::{self, ReadDir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec;

use rustix::io::Errno;

/// A path that cannot be dealt with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Trouble {
    /// Which.
    pub path: PathBuf,
    /// Why, without the path.
    pub reason: String,
}

impl Trouble {
    pub fn new(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }

    /// True if nothing is there.
    pub fn is_missing(&self) -> bool {
        self.reason == io::Error::from(Errno::NOENT).to_string()
    }
}

/// All regular files at and below some paths, one directory after the other.
pub struct Tree {
    roots: vec::IntoIter<PathBuf>,
    /// Looks at each of these paths first: why it cannot be dealt with.
    check: fn(&Path) -> Result<(), String>,
    /// The device that is not left.
    device: u64,
    dirs: Vec<PathBuf>,
    open: Option<(PathBuf, ReadDir)>,
}

impl Tree {
    /// Those of `roots` and below; `check` says first why one of them is nothing to begin with.
    pub fn new(roots: Vec<PathBuf>, check: fn(&Path) -> Result<(), String>) -> Self {
        Self { roots: roots.into_iter(), check, device: 0, dirs: Vec::new(), open: None }
    }

    /// The next of the paths that were named, if it is a file; a directory is looked at next.
    fn root(&mut self, path: PathBuf) -> Option<Result<PathBuf, Trouble>> {
        if let Err(reason) = (self.check)(&path) {
            return Some(Err(Trouble::new(&path, reason)));
        }
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) => return Some(Err(Trouble::new(&path, error))),
        };
        match found.file_type() {
            kind if kind.is_file() => Some(Ok(path)),
            kind if kind.is_dir() => {
                self.device = found.dev();
                self.dirs.push(path);
                None
            }
            kind if kind.is_symlink() => {
                Some(Err(Trouble::new(&path, "links are not followed: name what it points to")))
            }
            _ => Some(Err(Trouble::new(&path, "neither a file nor a directory"))),
        }
    }

    /// The next entry of the open directory, if it is a file.
    fn entry(&mut self, entry: io::Result<fs::DirEntry>, dir: &Path) -> Option<Result<PathBuf, Trouble>> {
        let kind = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
        let (path, kind) = match kind {
            Ok(found) => found,
            Err(error) => return Some(Err(Trouble::new(dir, error))),
        };
        if kind.is_file() {
            return Some(Ok(path));
        }
        if kind.is_dir() {
            match fs::symlink_metadata(&path) {
                Ok(found) if found.dev() == self.device => self.dirs.push(path),
                Ok(_) => {}
                Err(error) => return Some(Err(Trouble::new(&path, error))),
            }
        }
        None
    }
}

impl Iterator for Tree {
    type Item = Result<PathBuf, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let found = if let Some((dir, mut open)) = self.open.take() {
                match open.next() {
                    Some(entry) => {
                        let found = self.entry(entry, &dir);
                        self.open = Some((dir, open));
                        found
                    }
                    None => None,
                }
            } else if let Some(dir) = self.dirs.pop() {
                match fs::read_dir(&dir) {
                    Ok(open) => {
                        self.open = Some((dir, open));
                        None
                    }
                    Err(error) => Some(Err(Trouble::new(&dir, error))),
                }
            } else {
                let root = self.roots.next()?;
                self.root(root)
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tree, Trouble};
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn files_of_trees() {
        let dir = tempfile::tempdir().expect("dir");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b/c")).expect("mkdir");
        for file in ["one", "a/two", "a/b/c/three"] {
            fs::write(at(file), "").expect("write");
        }
        std::os::unix::fs::symlink("one", at("a/link")).expect("link");
        let all = |roots: &[PathBuf]| {
            let (mut files, mut troubles) = (Vec::new(), Vec::new());
            for found in Tree::new(roots.to_vec(), |path| if path.ends_with("no") { Err("no".into()) } else { Ok(()) })
            {
                match found {
                    Ok(path) => files.push(path),
                    Err(trouble) => troubles.push(trouble),
                }
            }
            files.sort();
            (files, troubles)
        };
        assert_eq!(all(&[at("")]), (vec![at("a/b/c/three"), at("a/two"), at("one")], vec![]));
        let (files, troubles) = all(&[at("one"), at("none"), at("a/link"), at("no"), at("a/b")]);
        assert_eq!(files, [at("a/b/c/three"), at("one")]);
        let reasons: Vec<&str> = troubles.iter().map(|Trouble { reason, .. }| reason.as_str()).collect();
        assert!(matches!(reasons[..], [none, link, "no"] if none.contains("No such") && link.contains("not followed")));
    }
}
