//! Names: look up, create, link, remove, rename.

use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_base::limits::SYMLINK_MAX;
use braid_base::msg::fs::{Cred, FsResult, Op, RenameMode, Reply};
use braid_base::{Error, ErrorKind, Result};

use super::behind::answered;
use super::{Entry, Fs, check_name};
use crate::join::beside;
use crate::session::unexpected;
use crate::wire::BoxFuture;

/// A name whose inode was gone when it was asked for is looked up again so often.
const LOOKUPS_MAX: u32 = 8;

/// What to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Create {
    /// What it is.
    pub kind: FileType,
    /// Low 12 bits of the mode, before the umask.
    pub mode: u16,
    /// The caller's umask; a default ACL of the directory replaces it.
    pub umask: u16,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symlink, 1..=4095 bytes.
    pub target: Vec<u8>,
    /// Take an open reference too: give it back with [`Fs::close`].
    pub open: bool,
}

/// What a rename did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The inode that has the new name.
    pub moved: Ino,
    /// The inode that lost it: replaced, or now under the old name.
    pub other: Option<Ino>,
}

impl Fs {
    /// The inode called `name` in `dir`; `.` is `dir` itself, `..` its parent (of the root: the root).
    /// Errors: `NotFound`, `NotDirectory`, `NameTooLong`.
    pub async fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Entry> {
        match name {
            b"." => return Ok(Entry { ino: dir, attr: self.getattr(dir).await? }),
            b".." => {
                let parent = self.parent(dir).await?;
                return Ok(Entry { ino: parent, attr: self.getattr(parent).await? });
            }
            _ => check_name(name)?,
        }
        self.walks(dir);
        self.arrived(dir).await;
        let promised = || self.0.promises.name(dir, name);
        match promised().or_else(|| self.0.session.leases().and_then(|leases| leases.name(self.0.fs, dir, name))) {
            Some(None) => return Err(ErrorKind::NotFound.into()),
            // The name is certain, its inode may have to be asked for: of a listing without attributes.
            Some(Some(ino)) => {
                match self.known(ino) {
                    Some(_) => self.0.ahead.hit(dir),
                    None => self.list_ahead(dir),
                }
                if let Some(attr) = answered(self.getattr(ino).await)? {
                    return Ok(Entry { ino, attr });
                }
            }
            None => {}
        }
        let mut tries = 0;
        loop {
            let reply = self.ask(Op::Lookup { dir, name: name.to_vec() }).await?;
            self.list_ahead(dir);
            match self.entry("lookup", reply).await {
                // It lost its last name before its partition was asked: the name stands for something else by now, or
                // for nothing.
                Err(error) if error.kind() == ErrorKind::Stale && tries < LOOKUPS_MAX => tries += 1,
                found => return found,
            }
        }
    }

    /// The inode of `dir`'s parent, without its attributes.
    pub async fn parent(&self, dir: Ino) -> Result<Ino> {
        if dir == self.root() {
            return Ok(dir);
        }
        if let Some(parent) = self.known_parent(dir) {
            return Ok(parent);
        }
        match self.ask(Op::Lookup { dir, name: b"..".to_vec() }).await? {
            Reply::Entry { ino, .. } => Ok(ino),
            other => Err(unexpected("lookup of the parent", &other)),
        }
    }

    /// Creates `name` in `dir` for `cred`. Errors: `Exists`, `NotFound` (the directory), `NotDirectory`,
    /// `NameTooLong`, `NoSpace`, `Quota`.
    pub async fn create(&self, cred: Cred, dir: Ino, name: &[u8], what: Create) -> Result<Entry> {
        check_name(name)?;
        if what.kind == FileType::Symlink && !(1..=SYMLINK_MAX).contains(&what.target.len()) {
            let kind = if what.target.is_empty() { ErrorKind::NotFound } else { ErrorKind::NameTooLong };
            return Err(Error::new(kind, format!("a symlink's target has 1 to {SYMLINK_MAX} bytes")));
        }
        self.arrived(dir).await;
        if let Some(promised) = self.promise_made(cred, dir, name, &what).await {
            return promised.map(|attr| Entry { ino: attr.ino, attr });
        }
        let Create { kind, mode, umask, rdev, target, open } = what;
        let want = self.numbers_wanted(dir, kind);
        let body = Op::Create { dir, name: name.to_vec(), kind, mode, umask, rdev, target, open, told: None, want };
        let reply = self.ask_as(cred, body).await?;
        let entry = self.entry("create", reply).await?;
        if kind == FileType::Directory {
            self.take_alone(entry.ino);
        }
        Ok(entry)
    }

    /// Creates a directory.
    pub async fn mkdir(&self, cred: Cred, dir: Ino, name: &[u8], mode: u16, umask: u16) -> Result<Entry> {
        let what = Create { kind: FileType::Directory, mode, umask, ..Create::default() };
        self.create(cred, dir, name, what).await
    }

    /// Creates a symbolic link to `target`.
    pub async fn symlink(&self, cred: Cred, dir: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        let what = Create { kind: FileType::Symlink, mode: 0o777, target: target.to_vec(), ..Create::default() };
        self.create(cred, dir, name, what).await
    }

    /// The target of a symbolic link. Errors: `Invalid` if `ino` is none.
    pub async fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.ask(Op::Readlink { ino }).await? {
            Reply::Value(target) => Ok(target),
            other => Err(unexpected("readlink", &other)),
        }
    }

    /// Gives `ino` one more name. Errors: `Exists`, `NotPermitted` (a directory), `TooManyLinks`, `CrossDevice`.
    pub async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let reply = self.ask(Op::Link { ino, dir, name: name.to_vec() }).await?;
        self.entry("link", reply).await
    }

    /// Removes the name of something that is not a directory; the inode that lost it. Its content stays while it
    /// has other names or is open. Errors: `NotFound`, `IsDirectory`.
    pub async fn unlink(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        check_name(name)?;
        if let Some(promised) = self.promise_gone(dir, name).await {
            return promised;
        }
        let alone = self.alone_wanted(dir);
        let is_new = alone && self.holds_back(dir).is_none();
        let body = Op::Unlink { dir, name: name.to_vec(), told: None, alone };
        let ino = self.unlinked("unlink", (dir, name), body).await?;
        if alone {
            // What is found there from now on is for this client alone, too: the next ones need not be asked for.
            if is_new && self.holds_back(dir).is_some() {
                self.0.ahead.does_not_do(dir);
            }
            self.list_ahead(dir);
        }
        Ok(ino)
    }

    /// Removes an empty directory. Errors: `NotFound`, `NotDirectory`, `NotEmpty`.
    pub async fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        check_name(name)?;
        if let Some(promised) = self.promise_dir_gone(dir, name).await {
            return promised.inspect(|gone| self.0.siblings.removed(dir, *gone));
        }
        let waits = !self.0.promises.all().is_empty();
        let body = Op::Rmdir { dir, name: name.to_vec() };
        let gone = match self.unlinked("rmdir", (dir, name), body.clone()).await {
            // It may have overtaken what was removed from it.
            Err(error) if error.kind() == ErrorKind::NotEmpty && waits => {
                self.names_settled().await?;
                self.unlinked("rmdir", (dir, name), body).await
            }
            gone => gone,
        }?;
        if self.0.siblings.goes(gone) {
            self.take_to_empty(dir);
        }
        self.0.siblings.removed(dir, gone);
        Ok(gone)
    }

    /// Renames. Errors: `NotFound`, `Exists` (with `NoReplace`), `NotEmpty`, `IsDirectory`, `NotDirectory`,
    /// `Invalid` (a directory into itself), `CrossDevice`.
    pub async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<Renamed> {
        check_name(from)?;
        check_name(to)?;
        let body = Op::Rename { from_dir, from: from.to_vec(), to_dir, to: to.to_vec(), mode };
        match Box::pin(self.ask_unheld((to_dir, to), body)).await? {
            Reply::Renamed { moved, other } => Ok(Renamed { moved, other }),
            other => Err(unexpected("rename", &other)),
        }
    }

    async fn unlinked(&self, what: &str, name: (Ino, &[u8]), body: Op) -> Result<Ino> {
        match Box::pin(self.ask_unheld(name, body)).await? {
            Reply::Unlinked { ino } => Ok(ino),
            other => Err(unexpected(what, &other)),
        }
    }

    /// Asks for a change after which a name no longer stands for what it does: references to that which programs have
    /// given back go first, so that what nobody has open any more goes at once; those that they have, too, so that it stays.
    async fn ask_unheld(&self, (dir, name): (Ino, &[u8]), body: Op) -> FsResult {
        let Some(leases) = self.0.session.leases() else { return self.ask(body).await };
        // Until it is done the name may come to stand for another file.
        let _removing = leases.removing(self.0.fs, None);
        let ino = match leases.name(self.0.fs, dir, name) {
            Some(known) => known,
            None if leases.owes(self.0.fs) => match self.lookup(dir, name).await {
                Ok(found) => Some(found.ino),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        // A file that is renamed may be under a name that is being removed.
        if let Op::Rename { from_dir, from, .. } = &body {
            self.say_opens(leases.name(self.0.fs, *from_dir, from).flatten(), false).await?;
        }
        self.say_opens(ino, false).await?;
        let given = ino.map(|ino| self.0.idle.of(ino)).unwrap_or_default();
        let Some((_, session)) = given.first() else { return self.ask(body).await };
        let (this, session, inos) = (self.clone(), *session, given.iter().map(|(ino, _)| *ino).collect());
        let mut closing: BoxFuture<()> = Box::pin(async move { this.close_all(session, inos).await });
        let (is_closed, done) = beside(&mut closing, self.ask(body)).await;
        if let Some(background) = self.afterwards().filter(|_| !is_closed) {
            background.spawn(closing);
        }
        done
    }

    /// Tells the partition what programs have open of `ino`, before a name of it goes; `lasts`: no program waits.
    pub(super) async fn say_opens(&self, ino: Option<Ino>, lasts: bool) -> Result<()> {
        let (Some(leases), Some(ino)) = (self.0.session.leases(), ino) else { return Ok(()) };
        let owed = leases.owed_before_removal(self.0.fs, ino);
        if owed.is_empty() {
            return Ok(());
        }
        Box::pin(self.0.session.say(owed, lasts)).await
    }
}
