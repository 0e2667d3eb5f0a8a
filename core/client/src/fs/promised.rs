//! Files made and removed without a word, in a directory that this client has for itself (decision 31), and directories
//! removed (decision 60).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_base::attr::{Attr, FileType, Time};
use braid_base::ids::{Ino, PartitionId};
use braid_base::limits::RECALL_MS;
use braid_base::msg::fs::{Cred, FsResult, Op, Reply, Told};
use braid_base::msg::lease::LeaseKind;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::{Asking, Background, Create, Fs};
use crate::join::{both, join_in_bursts, step_back, within};
use crate::leases::Leases;
use crate::promised::{Beside, Promise, Told as Promised, What};

/// How long promises gather in a product before they go to their partition, milliseconds: nobody waits for them.
pub const GATHER_MS: u64 = 50;
/// So many that wait depart at once.
const CROWD: usize = 1_024;
/// The same where a program empties one directory after the other: it waits at the end of each, when it removes that.
const CROWD_OF_A_WALK: usize = 16;
/// Promises of one partition that one task looks after.
const TOGETHER: usize = 128;

impl Fs {
    /// From now on files are made and removed without waiting for the cluster where that can be promised: programs are
    /// told at once, and what was done lasts when `fsync` of the file or its directory returned. What nobody waits for
    /// goes to the cluster after `gather_ms` milliseconds, 1 at least.
    pub fn promise_names(&self, gather_ms: u64) {
        self.0.gather_ms.store(gather_ms.max(1), Ordering::Relaxed);
    }

    /// What it takes to make promises at all.
    fn promising(&self) -> Option<(&dyn Background, &Arc<Leases>)> {
        let background = self.0.background.as_deref().filter(|_| self.0.gather_ms.load(Ordering::Relaxed) > 0)?;
        Some((background, self.0.session.leases()?))
    }

    /// Makes a file without a word, if that can be promised; what it looks like then.
    pub(super) async fn promise_made(&self, cred: Cred, dir: Ino, name: &[u8], what: &Create) -> Option<Result<Attr>> {
        let (background, leases) = self.promising().filter(|_| what.kind == FileType::File)?;
        if !self.make_way(Some((dir, name))).await {
            return None;
        }
        let at = background.wall();
        let made = self.0.promises.make((dir, name), |seen, _| {
            if let Some(Some(_)) = seen {
                return Some(Err(ErrorKind::Exists.into()));
            }
            let (ino, parent, session, is_roomy) = leases.may_make(self.0.fs, dir, name, seen.is_some())?;
            let Create { mode, umask, open, .. } = *what;
            let file = made(&parent, ino, cred, mode & !umask, at);
            let what = What::Made { cred, mode, umask, open };
            Some(Ok(Promise { is_roomy, ..self.promise((dir, name), session, file, what) }))
        });
        self.tend_promises(made.is_some(), CROWD);
        made
    }

    /// Removes a file without a word, if that can be promised; which one it was.
    pub(super) async fn promise_gone(&self, dir: Ino, name: &[u8]) -> Option<Result<Ino>> {
        let gone = self.promise_gone_as(dir, name, |leases, seen, _| match seen {
            Some(Some(file)) => Some(Ok((file.clone(), self.holds_back(dir)?))),
            Some(None) => Some(Err(ErrorKind::NotFound.into())),
            None => leases.may_remove(self.0.fs, dir, name).map(Ok),
        });
        let gone = gone.await;
        let waits = || self.0.siblings.goes(dir) && !self.parent_is_alone(dir);
        let crowd = if gone.is_some() && waits() { CROWD_OF_A_WALK } else { CROWD };
        self.tend_promises(gone.is_some(), crowd);
        gone
    }

    /// Removes a directory without a word: one that this client has for itself, too, and of which it knows that nothing is
    /// in it, or that what was is gone as far as programs were told.
    pub(super) async fn promise_dir_gone(&self, dir: Ino, name: &[u8]) -> Option<Result<Ino>> {
        let gone = self.promise_gone_as(dir, name, |leases, seen, told| match seen {
            Some(Some(_)) => Some(Err(ErrorKind::NotDirectory.into())),
            Some(None) => Some(Err(ErrorKind::NotFound.into())),
            None => {
                let is_gone = |ino: Ino, name: &[u8]| told.is_gone(ino, name);
                let (attr, session) = leases.may_remove_dir(self.0.fs, dir, name, is_gone)?;
                (!told.may_fill(attr.ino)).then_some(Ok((attr, session)))
            }
        });
        let gone = gone.await;
        self.tend_promises(gone.is_some(), CROWD);
        gone
    }

    /// Removes what `may` finds: how it looks, and the session under whose lease that is certain.
    async fn promise_gone_as(
        &self,
        dir: Ino,
        name: &[u8],
        may: impl FnOnce(&Leases, Option<Option<&Attr>>, &Promised<'_>) -> Option<Result<(Attr, u64)>>,
    ) -> Option<Result<Ino>> {
        let (background, leases) = self.promising()?;
        if !self.make_way(None).await {
            return None;
        }
        let at = background.wall();
        let gone = self.0.promises.make((dir, name), |seen, told| {
            let (file, session) = match may(leases, seen, told)? {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let file = Attr { nlink: 0, ctime: at, ..file };
            let _removing = Some(Arc::new(leases.removing(self.0.fs, Some(file.ino))));
            let parent = (file.kind == FileType::Directory).then(|| leases.attr(self.0.fs, dir)).flatten();
            Some(Ok(Promise { parent, _removing, ..self.promise((dir, name), session, file, What::Gone) }))
        });
        gone.map(|gone| gone.map(|file| file.ino))
    }

    /// True if the names beside that of `dir` are for this client alone, so that `dir` can go without a word.
    fn parent_is_alone(&self, dir: Ino) -> bool {
        self.known_parent(dir).is_some_and(|parent| self.holds_back(parent).is_some())
    }

    /// A directory was removed from `dir`, as was the one before: `dir` is asked for, for this client alone, so that those
    /// which follow go without a word.
    pub(super) fn take_to_empty(&self, dir: Ino) {
        let Some((background, _)) = self.promising() else { return };
        if self.holds_back(dir).is_none() && self.alone_wanted(dir) {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                // Without it each is asked for.
                let _ = this.ask(Op::AskLease { ino: dir, kind: LeaseKind::Exclusive }).await;
            }));
        }
    }

    /// Takes a write into a file that was made a moment ago, if it may ride with it: where it went.
    pub(super) fn promise_content(&self, ino: Ino, off: Option<u64>, data: &Bytes) -> Option<u64> {
        let (background, _) = self.promising()?;
        self.0.promises.write(ino, off, data, background.wall())
    }

    /// A directory was just made and is empty: it is asked for, for this client alone, with the numbers that were kept with it.
    pub(super) fn take_alone(&self, dir: Ino) {
        let Some((background, _)) = self.promising() else { return };
        if self.0.promises.comes(dir, self.0.reader.wire().now_ms()) {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                // Without it each name is asked for.
                let _ = this.ask(Op::AskLease { ino: dir, kind: LeaseKind::Exclusive }).await;
                this.0.promises.came(dir);
            }));
        }
    }

    /// Ready when nothing is on its way of `dir` that would answer at once what is about to be asked.
    pub(super) async fn arrived(&self, dir: Ino) {
        if self.0.promises.is_coming(dir) {
            Box::pin(self.0.promises.arrival(dir)).await;
        }
    }

    /// How many inode numbers to ask for with a file that has to be asked for.
    pub(super) fn numbers_wanted(&self, dir: Ino, kind: FileType) -> u16 {
        match self.promising() {
            Some(_) if kind == FileType::File => self.0.promises.numbers(dir, self.0.reader.wire().now_ms()),
            _ => 0,
        }
    }

    /// True if a directory in which a name has to be removed by asking should be for this client alone.
    pub(super) fn alone_wanted(&self, dir: Ino) -> bool {
        self.promising().is_some() && self.0.promises.wants(dir, self.0.reader.wire().now_ms())
    }

    /// Announces an operation; what it may meet is kept first. The removal of a directory meets what was removed from it:
    /// if nothing else was promised, that goes a moment before it and not a round trip ([`Fs::rmdir`]). Errors: `Io` if that
    /// takes too long.
    pub(super) async fn beside(&self, body: &Op) -> Result<Beside<'_>> {
        let (beside, met) = self.0.promises.beside(body);
        if met.is_empty() {
            return Ok(beside);
        }
        match body {
            // Beside others that were promised links are counted in turn.
            Op::Rmdir { dir, name }
                if self.0.promises.are_removals()
                    && !self.is_promised(*dir, name)
                    && self.0.promises.losing_dirs(*dir).is_none() =>
            {
                self.depart();
                step_back().await;
            }
            _ => self.promises_kept(met).await?,
        }
        Ok(beside)
    }

    /// The same for what nobody waits for, however long it takes.
    pub(super) async fn beside_for_good(&self, body: &Op) -> Beside<'_> {
        let (beside, met) = self.0.promises.beside(body);
        self.all_land(&met).await;
        beside
    }

    /// Ready when all that was promised about `ino`, or about names in it, is kept or lost. Errors: `Io` if that takes too
    /// long; it goes on.
    pub async fn names_kept(&self, ino: Ino) -> Result<()> {
        self.promises_kept(self.0.promises.about(ino)).await
    }

    /// The same before a lease on `ino` is given back, however long it takes. But the removal of a directory waits for
    /// another partition than that of the lease, too: if that does not answer, the lease goes first, while its own partition
    /// still waits for it.
    pub(super) async fn names_kept_for_others(&self, ino: Ino) {
        let (dirs, files): (Vec<u64>, Vec<u64>) =
            self.0.promises.about(ino).into_iter().partition(|id| self.0.promises.waits_for_dir(*id));
        self.all_land(&files).await;
        if within(&**self.0.reader.wire(), RECALL_MS / 2, Box::pin(self.all_land(&dirs))).await.is_none() {
            self.0.promises.shared_early(ino);
        }
    }

    /// Ready when all that was promised until now is kept or lost; what was lost is told by `fsync` of its directory. Errors:
    /// as of [`Self::names_kept`].
    pub async fn names_settled(&self) -> Result<()> {
        self.promises_kept(self.0.promises.all()).await
    }

    /// True if `name` in `dir` may come to look otherwise than programs were told: it was promised and not kept yet, or
    /// something in `dir` was lost and nobody was told.
    pub fn is_promised(&self, dir: Ino, name: &[u8]) -> bool {
        self.0.promises.name(dir, name).is_some() || self.0.losses.is_untold(dir)
    }

    /// True for a file that was promised in a directory which this client still has for itself: until that is given back,
    /// which waits for the promise, nobody else hears of the file.
    pub(super) fn is_known_here_only(&self, ino: Ino) -> bool {
        self.0.promises.maker(ino).is_some_and(|(dir, session)| self.holds_back(dir) == Some(session))
    }

    /// This session in `p` is lost, and with it what was promised under it.
    pub(super) fn promises_lost(&self, p: PartitionId, session: u64) {
        let why = Error::new(
            ErrorKind::Io,
            "files made or removed are lost: the cluster heard nothing of this client for too long",
        );
        for promise in self.0.promises.lose((p, session), &why) {
            self.promise_lost(&promise, &why);
        }
    }

    fn promise(&self, (dir, name): (Ino, &[u8]), session: u64, file: Attr, what: What) -> Promise {
        let (partition, name) = (self.0.session.home(dir), name.to_vec());
        Promise { id: 0, partition, session, dir, name, file, what, is_roomy: false, parent: None, _removing: None }
    }

    /// Waits until one more promise may be open; `made`: that a file is made under this name. False if none may for long,
    /// because nothing lands: the partition is to be asked.
    async fn make_way(&self, made: Option<(Ino, &[u8])>) -> bool {
        loop {
            let ids = self.0.promises.in_the_way(made);
            if ids.is_empty() {
                return true;
            }
            self.depart();
            if !Box::pin(self.0.promises.any_lands(&**self.0.reader.wire(), &ids)).await {
                return false;
            }
        }
    }

    async fn promises_kept(&self, ids: Vec<u64>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let left = || self.0.promises.left(&ids);
        Box::pin(self.in_time("what was done with files a moment ago", self.all_land(&ids), left)).await
    }

    async fn all_land(&self, ids: &[u64]) {
        while !ids.is_empty() && Box::pin(self.one_lands(ids)).await {}
    }

    /// Sends what may go, and waits until any has landed; false if none of `ids` is open.
    async fn one_lands(&self, ids: &[u64]) -> bool {
        let Some(landings) = self.0.promises.landings(ids) else { return false };
        self.depart();
        self.0.promises.landing(landings, ids).await;
        true
    }

    /// Somebody looks after promises, from now on until there are none; `crowd` that wait depart at once.
    fn tend_promises(&self, has_more: bool, crowd: usize) {
        let Some(background) = self.0.background.as_ref().filter(|_| has_more) else { return };
        if self.0.promises.is_crowded(crowd) {
            self.depart();
        }
        if self.0.promises.tend() {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                while !this.0.promises.untended() {
                    this.0.reader.wire().sleep_ms(this.0.gather_ms.load(Ordering::Relaxed)).await;
                    this.depart();
                }
            }));
        }
    }

    /// Sends what may go.
    fn depart(&self) {
        let Some(background) = &self.0.background else { return };
        let mut gone = self.0.promises.depart();
        gone.sort_by_key(|promise| promise.partition);
        let of_one = gone.chunk_by(|a, b| a.partition == b.partition);
        for some in of_one.flat_map(|of_one| of_one.chunks(TOGETHER)) {
            let (this, some) = (self.clone(), some.to_vec());
            background.spawn(Box::pin(async move {
                join_in_bursts(some.len().max(1), some.iter().map(|promise| this.keep(promise)).collect()).await;
            }));
        }
    }

    /// Does what was promised.
    async fn keep(&self, promise: &Promise) {
        let (dir, name, file) = (promise.dir, promise.name.clone(), &promise.file);
        let mut is_there = false;
        let result = match promise.what {
            What::Made { cred, mode, umask, open } => {
                let told = Some(Told { ino: file.ino, at: file.btime });
                let (kind, rdev, target) = (FileType::File, 0, Vec::new());
                let body = Op::Create { dir, name, kind, mode, umask, rdev, target, open, told, want: 0 };
                match self.ask_promised(promise.session, cred, body).await {
                    Ok(_) => {
                        is_there = true;
                        self.write_content(promise).await
                    }
                    Err(error) => Err(error),
                }
            }
            What::Gone => {
                let body = if promise.is_dir() {
                    self.emptied(promise).await;
                    Op::Rmdir { dir, name }
                } else {
                    Op::Unlink { dir, name, told: Some(file.ctime), alone: false }
                };
                let was_said = self.say_opens(Some(file.ino), true).await;
                let unlinked = self.ask_promised(promise.session, Cred::default(), body);
                let of_session = |(ino, session)| (session == promise.session).then_some(ino);
                let given: Vec<Ino> = self.0.idle.of(file.ino).into_iter().filter_map(of_session).collect();
                match given.is_empty() {
                    _ if was_said.is_err() => was_said.map(|()| Reply::Done),
                    true => unlinked.await,
                    // References that programs have given back go first, so that the file goes with its name.
                    false => {
                        let closed = Op::Close { inos: given };
                        both(self.ask_promised(promise.session, Cred::default(), closed), unlinked).await.1
                    }
                }
            }
        };
        let error = result.err();
        let opens = matches!(promise.what, What::Made { open: true, .. });
        if let Some(leases) = self.0.session.leases().filter(|_| opens && !is_there) {
            // It may be there all the same, and a program has it open.
            leases.had(self.0.fs, file.ino, promise.session);
        }
        self.0.promises.lands(promise.id);
        if let Some(error) = &error {
            self.promise_lost(promise, error);
        }
        if is_there {
            // Before others may see it, who wait for the landing.
            self.certain_no_more(promise).await;
        }
        let was_closed = self.0.promises.landed(promise.id, error.as_ref());
        if was_closed {
            drop(self.close(file.ino).await);
        }
    }

    /// Ready when what was promised about names in a directory that is removed has landed.
    async fn emptied(&self, promise: &Promise) {
        let mut before = self.0.promises.about(promise.file.ino);
        before.retain(|id| *id < promise.id);
        self.all_land(&before).await;
    }

    /// A file was promised and is there now. Kernels may believe what they were shown of it as long as there are leases:
    /// what the partition gave none for is to be asked for anew. Ready when they know.
    async fn certain_no_more(&self, promise: &Promise) {
        let Promise { dir, name, file, .. } = promise;
        let attr_is = self.is_certain_attr(&Attr { change: u64::MAX, ..file.clone() });
        let name_is = self.is_certain_name(*dir, name, file.ino)
            // Something else was promised about it since.
            || self.0.promises.name(*dir, name) != Some(Some(file.ino));
        if attr_is && name_is {
            return;
        }
        for watcher in self.0.watchers() {
            if !name_is {
                watcher.forget(*dir, std::slice::from_ref(name));
            }
            if !attr_is {
                watcher.forget(file.ino, &[]);
            }
            watcher.forgotten(&[*dir, file.ino]).await;
        }
    }

    /// Writes what rides with a file.
    async fn write_content(&self, promise: &Promise) -> FsResult {
        let mut last = Ok(Reply::Done);
        while last.is_ok()
            && let Some((off, mut parts, at)) = self.0.promises.content(promise.id)
        {
            let whole = if parts.len() == 1 { parts.swap_remove(0) } else { Bytes::from(parts.concat()) };
            let (ino, parts, at) = (promise.file.ino, vec![(off, whole)], Some(at));
            let body = Op::Write { ino, parts, append: false, kill_suid_sgid: false, at };
            let change = self.0.layouts.change(ino);
            last = self.ask_promised(promise.session, Cred::default(), body).await;
            if let Ok(Reply::Wrote { attr, .. }) = &last {
                change.done(0, u64::MAX, attr);
                self.0.show(attr);
            }
        }
        last
    }

    fn ask_promised(&self, session: u64, cred: Cred, body: Op) -> Asking<'_> {
        Box::pin(self.0.session.call_lasting(session, self.0.fs, cred, body))
    }

    /// What a program was told is not so: it hears of it from `fsync`, and its kernel must not go on to say so.
    fn promise_lost(&self, promise: &Promise, error: &Error) {
        let (dir, name) = (promise.dir, String::from_utf8_lossy(&promise.name));
        let what = if matches!(promise.what, What::Gone) { "removal" } else { "file" };
        tracing::error!(%dir, %name, %error, "a {what} that a program was told of is lost");
        for watcher in self.0.watchers() {
            watcher.forget(dir, std::slice::from_ref(&promise.name));
            watcher.forget(promise.file.ino, &[]);
        }
    }
}

/// A file as it is born in `parent`, which has no default ACL; as its partition makes it.
fn made(parent: &Attr, ino: Ino, cred: Cred, mode: u16, at: Time) -> Attr {
    let gid = if parent.mode & 0o2000 != 0 { parent.gid } else { cred.gid };
    let times = Attr { atime: at, mtime: at, ctime: at, btime: at, ..Attr::default() };
    Attr { ino, kind: FileType::File, mode: mode & 0o7777, uid: cred.uid, gid, nlink: 1, change: 1, ..times }
}
