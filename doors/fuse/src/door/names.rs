//! Requests about names and directories.

use std::sync::Arc;
use std::time::Duration;

use braid_base::attr::{Attr, FileType};
use braid_base::ids::Ino;
use braid_base::msg::fs::RenameMode;
use braid_client::fs::Create;

use super::{Door, cred, open_flags};
use crate::attrs::{kind, kind_of_mode, permissions};
use crate::calls::{Calls, Came};
use crate::listing::{self, Listing};
use crate::wire::encode::{Body, Entry as Shown, Listed};
use crate::wire::errno::Errno;
use crate::wire::reply::Reply;
use crate::wire::request::{Header, Node};

impl Door {
    pub(super) fn lookup(&self, header: &Header, name: &[u8], reply: Reply) {
        let (dir, name) = (self.calls.numbers.inode(header.node), name.to_vec());
        let holds = reply.follows_stale(header.tid).then(|| self.runtime.clone());
        self.start_entry(reply, move |calls| async move {
            let found = match holds {
                None => calls.lookup(dir, &name).await,
                Some(runtime) => Box::pin(calls.lookup_to_hold(&runtime, dir, &name)).await,
            };
            match found {
                Ok(found) => Ok(calls.shown(dir, &name, &found)),
                Err(Errno::ENOENT) => calls.shown_absence(dir).ok_or(Errno::ENOENT),
                Err(errno) => Err(errno),
            }
        });
    }

    pub(super) fn mknod(&self, header: &Header, name: &[u8], modes: (u32, u32), rdev: u32, reply: Reply) {
        let Some(kind) = kind_of_mode(modes.0) else { return reply.error(Errno::EINVAL) };
        let (mode, umask) = (permissions(modes.0), permissions(modes.1));
        self.make(header, name, Create { kind, mode, umask, rdev, ..Create::default() }, reply);
    }

    pub(super) fn mkdir(&self, header: &Header, name: &[u8], modes: (u32, u32), reply: Reply) {
        let (mode, umask) = (permissions(modes.0), permissions(modes.1));
        self.make(header, name, Create { kind: FileType::Directory, mode, umask, ..Create::default() }, reply);
    }

    pub(super) fn symlink(&self, header: &Header, name: &[u8], target: &[u8], reply: Reply) {
        let target = target.to_vec();
        let what = Create { kind: FileType::Symlink, mode: 0o777, target, ..Create::default() };
        self.make(header, name, what, reply);
    }

    /// Makes something that is not opened with it.
    fn make(&self, header: &Header, name: &[u8], what: Create, reply: Reply) {
        let (cred, dir, name) = (cred(header), self.calls.numbers.inode(header.node), name.to_vec());
        self.start_entry(reply, |calls| async move {
            let made = calls.make(cred, dir, &name, what).await?;
            Ok(calls.shown(dir, &name, &made))
        });
    }

    pub(super) fn create(&self, header: &Header, name: &[u8], modes: (u32, u32), flags: i32, reply: Reply) {
        let (cred, numbers, flags) = (cred(header), self.calls.numbers, self.calls.flags(flags));
        let (dir, name, modes) =
            (numbers.inode(header.node), name.to_vec(), (permissions(modes.0), permissions(modes.1)));
        let work = |calls: Arc<Calls>| async move {
            let (entry, keep) = calls.create(cred, dir, &name, modes, flags).await?;
            Ok((entry.ino, calls.shown(dir, &name, &entry), keep))
        };
        let (calls, runtime) = (Arc::clone(&self.calls), self.runtime.clone());
        self.start(reply, work, move |reply, (ino, entry, keep): (Ino, Shown, bool)| {
            let fh = calls.describe(ino);
            let body = Body::new().entry(&entry).opened(fh, open_flags(flags, keep));
            Self::hand_over(calls, &runtime, (ino, fh), reply, &body);
        });
    }

    pub(super) fn remove(&self, header: &Header, name: &[u8], is_dir: bool, reply: Reply) {
        let (dir, name) = (self.calls.numbers.inode(header.node), name.to_vec());
        self.start_empty(reply, |calls| async move { calls.remove(dir, &name, is_dir).await });
    }

    pub(super) fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), flags: u32, reply: Reply) {
        let mode = match flags {
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            0 => RenameMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let numbers = self.calls.numbers;
        let (from_dir, from) = (numbers.inode(from.0), from.1.to_vec());
        let (to_dir, to) = (numbers.inode(to.0), to.1.to_vec());
        let calls = Arc::clone(&self.calls);
        let work = |calls: Arc<Calls>| async move { calls.rename((from_dir, &from), (to_dir, &to), mode).await };
        self.start(reply, work, move |reply, came: Vec<Came>| {
            reply.ok();
            calls.came(came);
        });
    }

    pub(super) fn link(&self, header: &Header, node: Node, name: &[u8], reply: Reply) {
        let numbers = self.calls.numbers;
        let (ino, dir, name) = (numbers.inode(node), numbers.inode(header.node), name.to_vec());
        self.start_entry(reply, |calls| async move {
            let linked = calls.link(ino, dir, &name).await?;
            Ok(calls.shown(dir, &name, &linked))
        });
    }

    pub(super) fn readdir(&self, header: &Header, off: u64, room: u32, reply: Reply) {
        let (dir, numbers) = (self.calls.numbers.inode(header.node), self.calls.numbers);
        let work = |calls: Arc<Calls>| async move { listing::after(&calls, dir, off, room, false).await };
        self.start(reply, work, move |reply, list: Listing| {
            let dots = list.dots.iter().map(|(cookie, ino, name)| (*cookie, *ino, FileType::Directory, *name));
            let names = list.names.iter().map(|e| (e.cookie, e.ino, e.kind, &e.name[..]));
            let mut listed = Listed::new(room);
            let mut all = dots.chain(names);
            while all
                .next()
                .is_some_and(|(cookie, ino, of, name)| listed.add(numbers.show(ino), cookie, kind(of), name))
            {
            }
            reply.data(listed.bytes());
        });
    }

    pub(super) fn readdirplus(&self, header: &Header, off: u64, room: u32, reply: Reply) {
        let (dir, calls) = (self.calls.numbers.inode(header.node), Arc::clone(&self.calls));
        let work = |calls: Arc<Calls>| async move { listing::after(&calls, dir, off, room, true).await };
        self.start(reply, work, move |reply, list: Listing| {
            let directory = |ino| Attr { ino, kind: FileType::Directory, ..Attr::default() };
            // The kernel takes no attributes from the dots, only number and type.
            let dot = |ino| calls.numbers.entry(&directory(ino), (Duration::ZERO, Duration::ZERO));
            let dots = list.dots.iter().map(|(cookie, ino, name)| (*cookie, dot(*ino), *name));
            // A name without attributes is gone since it was listed.
            let names = list
                .names
                .iter()
                .filter_map(|e| Some((e.cookie, calls.shown_attr(dir, &e.name, e.attr.as_ref()?), &e.name[..])));
            let mut listed = Listed::new(room);
            let mut all = dots.chain(names);
            while all.next().is_some_and(|(cookie, entry, name)| listed.add_entry(cookie, name, &entry)) {}
            reply.data(listed.bytes());
        });
    }
}
