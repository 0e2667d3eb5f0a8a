//! Names: the directories form one tree, parents agree, links are counted, usage adds up.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::attr::FileType;
use braid_base::ids::{Ino, Vp};
use braid_base::keys::name_cookie;
use braid_base::record::InodeRec;

use super::{Finding, Tables};

/// All inodes of all partitions, and who names them.
struct Names<'a> {
    inodes: BTreeMap<Ino, &'a InodeRec>,
    /// Directory of each name of an inode.
    named: BTreeMap<Ino, Vec<Ino>>,
    orphans: BTreeSet<Ino>,
}

pub(super) fn check(tables: &[Tables], partitions: u16, findings: &mut Vec<Finding>) {
    let mut names = Names { inodes: BTreeMap::new(), named: BTreeMap::new(), orphans: BTreeSet::new() };
    for part in tables {
        names.inodes.extend(part.inodes.iter().map(|(ino, rec)| (*ino, rec)));
        names.orphans.extend(part.orphans.keys());
        for ((dir, _), dentry) in &part.dentries {
            names.named.entry(dentry.ino).or_default().push(*dir);
        }
    }
    for part in tables {
        in_place(part, partitions, findings);
        usage(part, findings);
    }
    for part in tables {
        dentries(part, &names, findings);
    }
    for (ino, rec) in &names.inodes {
        links(*ino, rec, &names, findings);
    }
    tree(&names, findings);
}

fn add(findings: &mut Vec<Finding>, rule: &'static str, what: String) {
    findings.push(Finding { rule, what });
}

/// Records stand in the partition that owns them, and belong to an inode that is there.
fn in_place(part: &Tables, partitions: u16, findings: &mut Vec<Finding>) {
    let id = part.id;
    let owners = part.inodes.keys().chain(part.dentries.keys().map(|(dir, _)| dir)).chain(part.xattrs.keys());
    for ino in owners.filter(|ino| ino.partition(partitions) != id) {
        add(findings, "I11", format!("{id} holds a record of {ino}, which belongs to {}", ino.partition(partitions)));
    }
    let with_data = part.bases.keys().map(|(ino, _)| ino).chain(part.slices.keys().map(|(ino, _)| ino));
    for ino in with_data.chain(part.punches.keys()).chain(part.xattrs.keys()) {
        if !part.inodes.contains_key(ino) && !part.orphans.contains_key(ino) {
            add(findings, "I18", format!("{id} holds content of {ino}, which does not exist"));
        }
    }
    if part.unfinished > 0 {
        let unfinished = part.unfinished;
        add(findings, "I18", format!("{id} holds {unfinished} records of operations that are not finished"));
    }
}

fn usage(part: &Tables, findings: &mut Vec<Finding>) {
    let inodes = part.inodes.len() as u64;
    let bytes: u64 = part.inodes.values().map(InodeRec::charged).sum();
    if (part.usage.inodes, part.usage.bytes) != (inodes, bytes) {
        let (id, usage) = (part.id, part.usage);
        add(findings, "I21", format!("{id}: expected a usage of {bytes} bytes in {inodes} inodes, found {usage:?}"));
    }
}

fn dentries(part: &Tables, names: &Names<'_>, findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for ((dir, cookie), dentry) in &part.dentries {
        let name = String::from_utf8_lossy(&dentry.name);
        if name_cookie(&dentry.name) >> 8 != cookie >> 8 {
            add(findings, "I17", format!("{dir}/{name} stands at the cookie {cookie:#x} of another name"));
        }
        if !seen.insert((*dir, &dentry.name)) {
            add(findings, "I17", format!("{dir}/{name} is there twice"));
        }
        match names.inodes.get(dir) {
            None => add(findings, "I17", format!("{dir}/{name}: the directory does not exist")),
            Some(rec) if rec.attr.kind != FileType::Directory => {
                add(findings, "I17", format!("{dir}/{name}: {dir} is not a directory but {:?}", rec.attr.kind));
            }
            Some(_) => {}
        }
        match names.inodes.get(&dentry.ino) {
            None => add(findings, "I17", format!("{dir}/{name} names {}, which does not exist", dentry.ino)),
            Some(rec) if rec.attr.kind != dentry.kind => {
                add(
                    findings,
                    "I17",
                    format!("{dir}/{name} says {:?}, {} is {:?}", dentry.kind, dentry.ino, rec.attr.kind),
                );
            }
            Some(rec) if rec.flags & (InodeRec::PENDING | InodeRec::DYING) != 0 => {
                add(findings, "I17", format!("{dir}/{name} names {} with flags {:#x}", dentry.ino, rec.flags));
            }
            Some(rec) if rec.attr.kind == FileType::Directory && rec.parent != *dir => {
                let parent = rec.parent;
                add(findings, "I17", format!("{dir}/{name} names {}, whose parent is {parent}", dentry.ino));
            }
            Some(_) => {}
        }
    }
}

fn links(ino: Ino, rec: &InodeRec, names: &Names<'_>, findings: &mut Vec<Finding>) {
    let named = names.named.get(&ino).map_or(0, Vec::len);
    let found = rec.attr.nlink;
    if rec.attr.kind != FileType::Directory {
        if found as usize != named {
            add(findings, "I18", format!("{ino}: expected {named} links, as many as names, found {found}"));
        }
        if found == 0 && !names.orphans.contains(&ino) {
            add(findings, "I18", format!("{ino} has no name and is no orphan"));
        }
        return;
    }
    let is_child_dir = |rec: &&InodeRec| rec.attr.kind == FileType::Directory && rec.parent == ino;
    let children =
        names.inodes.values().filter(|rec| is_child_dir(rec) && rec.attr.nlink > 0 && rec.attr.ino != ino).count();
    if found > 0 && found as usize != children + 2 {
        add(findings, "I18", format!("directory {ino}: expected {} links, found {found}", children + 2));
    }
}

/// Every directory hangs below the root, under one name; nothing else is without a name but orphans.
fn tree(names: &Names<'_>, findings: &mut Vec<Finding>) {
    for (ino, rec) in &names.inodes {
        let named = names.named.get(ino).map_or(0, Vec::len);
        if is_root(*ino, rec) {
            if named != 0 {
                add(findings, "I17", format!("the root {ino} has a name"));
            }
            continue;
        }
        if named == 0 && !names.orphans.contains(ino) {
            add(findings, "I17", format!("{ino} ({:?}, {} links) has no name", rec.attr.kind, rec.attr.nlink));
        }
        if rec.attr.kind != FileType::Directory || named == 0 {
            continue;
        }
        if named != 1 {
            add(findings, "I17", format!("directory {ino} has {named} names"));
        }
        let (mut at, mut steps) = (*ino, 0);
        while let Some(above) = names.inodes.get(&at).filter(|rec| !is_root(at, rec)).map(|rec| rec.parent) {
            (at, steps) = (above, steps + 1);
            if steps > names.inodes.len() {
                add(findings, "I17", format!("directory {ino} is in a circle and not below the root"));
                break;
            }
        }
    }
}

/// Sequence number 1 of its virtual partition, and its own parent (or none).
fn is_root(ino: Ino, rec: &InodeRec) -> bool {
    ino == Ino::new(Vp(ino.vp().0), 1) && (rec.parent == ino || rec.parent == Ino(0))
}
