//! What must hold in the views of all partitions when nothing is under way (I16-I18).

use std::collections::BTreeMap;

use braid_base::attr::FileType;
use braid_base::ids::{Ino, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::record::{DentryRec, InodeRec, Record, UsageRec};
use braid_replica::kv::Kv;

use super::world::{FS, World};

/// All names and inodes of a cluster.
#[derive(Default)]
pub struct Tree {
    pub inodes: BTreeMap<Ino, InodeRec>,
    /// Directory and name to inode.
    pub names: BTreeMap<(Ino, Vec<u8>), (Ino, FileType)>,
}

pub fn read(world: &World) -> Tree {
    let mut tree = Tree::default();
    for (number, node) in world.nodes.iter().enumerate() {
        let partition = PartitionId(number as u16);
        let inodes = keys::table(partition, Table::Inode);
        node.kv
            .scan(&inodes, &keys::prefix_end(&inodes), &mut |key, value| {
                let (_, ino) = keys::ino_of(key).expect("an inode key has an inode");
                tree.inodes.insert(ino, InodeRec::decode(value).expect("inodes decode"));
                true
            })
            .expect("a map can be read");
        let dentries = keys::table(partition, Table::Dentry);
        node.kv
            .scan(&dentries, &keys::prefix_end(&dentries), &mut |key, value| {
                let (_, dir) = keys::ino_of(key).expect("a dentry key has a directory");
                let entry = DentryRec::decode(value).expect("entries decode");
                if !entry.name.is_empty() {
                    let old = tree.names.insert((dir, entry.name), (entry.ino, entry.kind));
                    assert!(old.is_none(), "a name is twice in {dir}");
                }
                true
            })
            .expect("a map can be read");
    }
    tree
}

/// Rows left in a table, over all partitions.
pub fn rows(world: &World, table: Table) -> usize {
    let mut count = 0;
    for (number, node) in world.nodes.iter().enumerate() {
        let prefix = keys::table(PartitionId(number as u16), table);
        let counted = node.kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |_, _| {
            count += 1;
            true
        });
        counted.expect("a map can be read");
    }
    count
}

/// What is left where nothing should be, or counted wrong, once nothing is under way.
pub fn leftovers(world: &World, tree: &Tree) -> Option<String> {
    let tables = [Table::Pending, Table::Outcome, Table::Outbox, Table::Orphan];
    if let Some(table) = tables.into_iter().find(|table| rows(world, *table) > 0) {
        return Some(format!("rows are left in {table:?}"));
    }
    let mut inodes = 0;
    for (number, node) in world.nodes.iter().enumerate() {
        let partition = PartitionId(number as u16);
        let usage = node.kv.get(&keys::usage(partition, FS, 0)).expect("a map can be read");
        inodes += usage.map_or(0, |bytes| UsageRec::decode(&bytes).expect("usage decodes").inodes);
        let xattrs = keys::table(partition, Table::Xattr);
        let mut stray = None;
        node.kv
            .scan(&xattrs, &keys::prefix_end(&xattrs), &mut |key, _| {
                stray = keys::ino_of(key).map(|(_, ino)| ino).filter(|ino| !tree.inodes.contains_key(ino));
                stray.is_none()
            })
            .expect("a map can be read");
        if let Some(ino) = stray {
            return Some(format!("{ino} is gone but has attributes"));
        }
    }
    (inodes != tree.inodes.len() as u64).then(|| format!("{inodes} inodes are counted, {} there", tree.inodes.len()))
}

/// Every complaint about the tree; empty if all is well.
pub fn complaints(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let root = Ino::root(FS);
    let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut children: BTreeMap<Ino, u32> = BTreeMap::new();
    for ((dir, name), (ino, kind)) in &tree.names {
        let name = name.escape_ascii();
        *names.entry(*ino).or_default() += 1;
        *children.entry(*dir).or_default() += u32::from(*kind == FileType::Directory);
        match tree.inodes.get(ino) {
            None => found.push(format!("{dir}/{name} stands for {ino}, which is not there")),
            Some(inode) if inode.attr.kind != *kind => found.push(format!("{dir}/{name} has the wrong type")),
            Some(inode) if *kind == FileType::Directory && inode.parent != *dir => {
                found.push(format!("{dir}/{name} is {ino}, whose parent is {}", inode.parent));
            }
            Some(_) => {}
        }
        match tree.inodes.get(dir) {
            Some(inode) if inode.attr.kind == FileType::Directory => {}
            _ => found.push(format!("{dir}/{name} is in no directory")),
        }
    }
    for (ino, inode) in &tree.inodes {
        let own = names.get(ino).copied().unwrap_or(0);
        if inode.flags & InodeRec::PENDING != 0 {
            found.push(format!("{ino} is pending"));
        }
        let (want_names, want_links) = match inode.attr.kind {
            FileType::Directory => (u32::from(*ino != root), 2 + children.get(ino).copied().unwrap_or(0)),
            _ => (own.max(1), own),
        };
        if own != want_names {
            found.push(format!("{ino} ({:?}) has {own} names", inode.attr.kind));
        }
        if inode.attr.nlink != want_links {
            found.push(format!("{ino} has link count {}, not {want_links}", inode.attr.nlink));
        }
        if inode.attr.kind == FileType::Directory && !reaches(tree, *ino, root) {
            found.push(format!("{ino} is on a cycle"));
        }
    }
    found
}

fn reaches(tree: &Tree, ino: Ino, root: Ino) -> bool {
    let mut at = ino;
    for _ in 0..=tree.inodes.len() {
        if at == root {
            return true;
        }
        match tree.inodes.get(&at) {
            Some(inode) => at = inode.parent,
            None => return false,
        }
    }
    false
}
