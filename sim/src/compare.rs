//! Looks at a whole subtree through the client library and compares it with its model.

use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::limits::LAYOUT_BYTES_MAX;
use braid_base::record::Place;
use braid_base::{Error, ErrorKind};
use braid_client::Fs;
use braid_io::chance::Rng;

use crate::board::Board;
use crate::model::{Look, Model, Node};
use crate::perform::{difference, is_unreadable, list};

/// A look that failed for reasons of the world is repeated so often.
const TRIES: u32 = 40;
/// Pause between two tries, milliseconds.
const PAUSE_MS: u64 = 2_000;

/// Somebody who looks at a whole tree.
pub struct Inspector<'a> {
    /// How.
    pub fs: &'a Fs,
    /// For sizes of reads and listings.
    pub rng: &'a mut Rng,
    /// The tree might also look like this: its data is looked for too.
    pub rival: Option<&'a Model>,
    /// Where it stands what object stores lost.
    pub board: &'a Board,
}

/// What differs, in words.
pub type Difference = Result<(), String>;

impl Inspector<'_> {
    /// Every name, attribute, xattr and byte of `model`.
    pub async fn compare(&mut self, model: &Model) -> Difference {
        let mut pending = vec![(model.top, model.above)];
        while let Some((dir, parent)) = pending.pop() {
            self.directory(model, dir, parent, &mut pending).await?;
        }
        Ok(())
    }

    async fn directory(&mut self, model: &Model, dir: Ino, parent: Ino, pending: &mut Vec<(Ino, Ino)>) -> Difference {
        let Some(node) = model.node(dir) else { return Err(format!("{dir} is not in the model")) };
        let limit = 1 + self.rng.below(40) as u32;
        let mut found = self.try_hard("list", dir, async |fs: &Fs| list(fs, dir, limit, true).await).await?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let names: Vec<(Vec<u8>, Ino)> = found.iter().map(|(name, ino, _)| (name.clone(), *ino)).collect();
        let expected: Vec<(Vec<u8>, Ino)> = node.entries.iter().map(|(name, ino)| (name.clone(), *ino)).collect();
        if names != expected {
            return Err(format!("{dir}: expected the names {}, found {}", show(&expected), show(&names)));
        }
        let above = self.try_hard("parent of", dir, async |fs: &Fs| fs.parent(dir).await).await?;
        if above != parent {
            return Err(format!("{dir}: expected the parent {parent}, found {above}"));
        }
        self.attributes(dir, node).await?;
        for (name, ino, attr) in &found {
            let Some(child) = model.node(*ino) else { return Err(format!("{ino} is not in the model")) };
            if attr.as_ref().map(Look::of) != Some(child.look()) {
                let name = crate::trace::text(name);
                return Err(format!("{dir}/{name} {ino}: expected {:?}, found {attr:?}", child.look()));
            }
            if child.kind == FileType::Directory {
                pending.push((*ino, dir));
            } else {
                self.attributes(*ino, child).await?;
                self.content(*ino, child).await?;
            }
        }
        Ok(())
    }

    async fn attributes(&mut self, ino: Ino, node: &Node) -> Difference {
        let attr = self.try_hard("stat", ino, async |fs: &Fs| fs.getattr(ino).await).await?;
        if Look::of(&attr) != node.look() {
            return Err(format!("{ino}: expected {:?}, found {attr:?}", node.look()));
        }
        let mut names = self.try_hard("listxattr", ino, async |fs: &Fs| fs.listxattr(ino).await).await?;
        names.sort_unstable();
        if names != node.xattrs.keys().cloned().collect::<Vec<_>>() {
            return Err(format!("{ino}: expected the attributes {:?}, found {names:?}", node.xattrs.keys()));
        }
        for (name, value) in &node.xattrs {
            let found = self.try_hard("getxattr", ino, async |fs: &Fs| fs.getxattr(ino, name).await).await?;
            if found != *value {
                return Err(format!("{ino} attribute {}: {}", crate::trace::text(name), difference(value, &found)));
            }
        }
        Ok(())
    }

    async fn content(&mut self, ino: Ino, node: &Node) -> Difference {
        match node.kind {
            FileType::Symlink => {
                let target = self.try_hard("readlink", ino, async |fs: &Fs| fs.readlink(ino).await).await?;
                if target != node.target {
                    return Err(format!("{ino}: the target of the symlink differs"));
                }
            }
            FileType::File => {
                let rival = self.rival.and_then(|rival| rival.node(ino)).map(|node| &node.content);
                for (from, to) in node.content.ranges(rival) {
                    let mut at = from;
                    while at < to {
                        let len = (to - at).min(1 + self.rng.below(2 << 20));
                        self.bytes(ino, node, (at, at + len)).await?;
                        at += len;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The bytes `[from, to)` of a file: all are there but those that an object store lost and that were nowhere else.
    async fn bytes(&mut self, ino: Ino, node: &Node, (from, to): (u64, u64)) -> Difference {
        let mut at = from;
        for (first, end) in lost_bytes(self.fs, self.board, ino, (from, to)).await? {
            self.there(ino, node, (at, first)).await?;
            let (found, expected) =
                (self.fs.read(ino, first, end - first).await, node.content.read(first, end - first));
            match found {
                Ok(found) if found != expected => {
                    let what = difference(&expected, &found);
                    return Err(format!("{ino} at {first}: is lost, and read all the same: {what}"));
                }
                Err(error) if !is_unreadable(&error) => {
                    return Err(format!("read {ino} failed: {:?}: {error}", error.kind()));
                }
                _ => {}
            }
            at = end;
        }
        self.there(ino, node, (at, to)).await
    }

    async fn there(&mut self, ino: Ino, node: &Node, (from, to): (u64, u64)) -> Difference {
        if from >= to {
            return Ok(());
        }
        let found = self.try_hard("read", ino, async |fs: &Fs| fs.read(ino, from, to - from).await).await;
        let found = match found {
            Ok(found) => found,
            // It left flash since it was asked for, before anybody knew that its copy is lost.
            Err(_) if !lost_bytes(self.fs, self.board, ino, (from, to)).await?.is_empty() => return Ok(()),
            Err(what) => return Err(what),
        };
        let expected = node.content.read(from, to - from);
        if expected != found {
            return Err(format!("{ino} at {from}: {}", difference(&expected, &found)));
        }
        Ok(())
    }

    /// Repeats while the world is in the way.
    async fn try_hard<T>(
        &self,
        what: &str,
        ino: Ino,
        look: impl AsyncFn(&Fs) -> Result<T, Error>,
    ) -> Result<T, String> {
        let mut tries = 0;
        loop {
            tries += 1;
            match look(self.fs).await {
                Ok(found) => return Ok(found),
                Err(error) if is_unreadable(&error) && tries < TRIES => {
                    self.fs.session().wire().sleep_ms(PAUSE_MS).await;
                }
                Err(error) => return Err(format!("{what} {ino} failed: {:?}: {error}", error.kind())),
            }
        }
    }
}

/// What of the bytes `[from, to)` of a file is lost: an object store lost it, and it is nowhere else but on a drive alone.
/// In order, apart.
pub async fn lost_bytes(fs: &Fs, board: &Board, ino: Ino, (from, to): (u64, u64)) -> Result<Vec<(u64, u64)>, String> {
    if !board.has_lost() {
        return Ok(Vec::new());
    }
    let mut lost: Vec<(u64, u64)> = Vec::new();
    let mut at = from;
    while at < to {
        let len = LAYOUT_BYTES_MAX.min(to - at);
        let mut tries = 0;
        let layout = loop {
            tries += 1;
            match fs.layout(ino, at, len).await {
                Ok(layout) => break layout,
                Err(error) if error.kind() == ErrorKind::Io && tries < TRIES => {
                    fs.session().wire().sleep_ms(PAUSE_MS).await;
                }
                Err(error) => return Err(format!("layout of {ino}: {:?}: {error}", error.kind())),
            }
        };
        let is_bare = |pack| layout.packs.iter().any(|(id, place)| *id == pack && place.parity == 0);
        for (start, extent) in &layout.extents {
            let copy = match extent.place {
                Place::Object(at) => Some(at),
                Place::Flash { stripe, copy, .. } => copy.filter(|_| is_bare(stripe.pack)),
                Place::Stage { .. } => None,
            };
            let Some(copy) = copy else { continue };
            let parts = board.lost_of(copy, extent.len).into_iter();
            let parts = parts.map(|(a, b)| ((start + a).max(at), (start + b).min(at + len)));
            lost.extend(parts.filter(|(a, b)| a < b));
        }
        at += len;
    }
    lost.sort_unstable();
    Ok(lost)
}

fn show(names: &[(Vec<u8>, Ino)]) -> String {
    let names: Vec<String> = names.iter().map(|(name, ino)| format!("{}={ino}", crate::trace::text(name))).collect();
    names.join(" ")
}
