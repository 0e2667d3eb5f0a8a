//! Attributes: look, change, wait for durability.

use std::collections::BTreeMap;

use braid_base::Result;
use braid_base::attr::{Attr, SetAttr, SetTime, Time};
use braid_base::ids::{Ino, PartitionId};
use braid_base::limits::ACCESSED_MAX;
use braid_base::msg::fs::{Op, Reply};

use super::{Fs, check_range};
use crate::accessed::ACCESSED_MS;
use crate::losses::ANYBODY;
use crate::session::unexpected;

impl Fs {
    /// The attributes of `ino`, from memory if they are certain. Errors: `NotFound`.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        if let Some(attr) = self.known(ino) {
            return Ok(self.amended(attr));
        }
        self.ask_attr("getattr", Op::GetAttr { ino }).await
    }

    /// The attributes of `ino` as the cluster has them or was promised to have, if they are certain.
    pub(super) fn known(&self, ino: Ino) -> Option<Attr> {
        if let Some(promised) = self.0.promises.file(ino) {
            return promised;
        }
        if let Some(looks) = self.0.promises.losing_dirs(ino) {
            return looks;
        }
        self.0.session.leases().and_then(|leases| leases.attr(self.0.fs, ino))
    }

    /// Changes attributes; the answer is what they are then. A new size cuts the file or extends it with a hole.
    /// Errors: `NotFound`, `FileTooBig`, `IsDirectory` (size of a directory), `NoSpace`, `Quota`.
    pub async fn setattr(&self, ino: Ino, set: SetAttr) -> Result<Attr> {
        if !set.access_only {
            // What was written or read before must not undo it.
            self.0.accessed.forget(ino);
            self.settle(ino).await?;
        }
        let Some(size) = set.size else {
            return self.ask_attr("setattr", Op::SetAttr { ino, set }).await;
        };
        check_range(size, 0)?;
        // All of the file and not only what lies beyond the cut: a longer file reads zeros where it ended before.
        self.change_all("truncate", ino, Op::SetAttr { ino, set }).await
    }

    /// A file was read: its access time moves, in this client at once. Errors: as of [`Self::setattr`] where nothing goes on
    /// beside calls.
    pub async fn accessed(&self, ino: Ino) -> Result<()> {
        let Some(background) = &self.0.background else {
            let set = SetAttr { atime: Some(SetTime::Now), access_only: true, ..SetAttr::default() };
            let attr = self.setattr(ino, set).await?;
            self.0.show(&attr);
            return Ok(());
        };
        self.0.accessed.note(ino, background.wall());
        if self.0.accessed.tend() {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                while !this.0.accessed.untended() {
                    this.0.reader.wire().sleep_ms(ACCESSED_MS).await;
                    this.tell_accessed().await;
                }
            }));
        }
        Ok(())
    }

    /// Tells the partitions what was read.
    pub(super) async fn tell_accessed(&self) {
        let mut homes: BTreeMap<PartitionId, Vec<(Ino, Time)>> = BTreeMap::new();
        for (ino, at) in self.0.accessed.all() {
            homes.entry(self.0.session.home(ino)).or_default().push((ino, at));
        }
        for files in homes.values().flat_map(|files| files.chunks(ACCESSED_MAX)) {
            if let Err(error) = self.ask(Op::Accessed { files: files.to_vec() }).await {
                tracing::debug!(%error, "access times could not be moved");
            }
            self.0.accessed.told(files);
            let Some(leases) = self.0.session.leases() else { continue };
            for (ino, at) in files {
                if let Some(attr) = leases.attr(self.0.fs, *ino).filter(|attr| attr.atime == *at) {
                    self.0.show(&attr);
                }
            }
        }
    }

    /// Returns once everything that was written to `ino`, and every change of its names or of those in it, is durable.
    /// Errors: what became of earlier writes, if nobody was told; `Io` if that takes too long, which loses nothing: a later
    /// one may succeed, and then all of it is durable.
    pub async fn fsync(&self, ino: Ino) -> Result<()> {
        self.fsync_since(ino, ANYBODY).await.1
    }

    /// The same for a description, as of [`Self::written_well`].
    pub async fn fsync_since(&self, ino: Ino, since: u64) -> (u64, Result<()>) {
        let arrived = async {
            self.names_kept(ino).await?;
            self.settle(ino).await
        };
        if let Err(error) = arrived.await {
            return (since, Err(error));
        }
        let (told, well) = self.written_well(ino, since);
        if well.is_err() || self.is_durable(ino) {
            return (told, well);
        }
        (told, self.ask_done("fsync", Op::Sync { ino }).await)
    }

    /// Whether `ino` is durable without a word: whoever lives apart from its partition is answered when what it did or
    /// saw is durable, and under a lease nobody else has changed, or holds back, what it has not seen.
    fn is_durable(&self, ino: Ino) -> bool {
        let is_held = || self.0.session.leases().is_some_and(|leases| leases.held(self.0.fs, ino).is_some());
        !self.0.session.shares_fate() && is_held()
    }

    /// A change answered with attributes, of whose extent nothing is known.
    pub(super) async fn change_all(&self, what: &str, ino: Ino, body: Op) -> Result<Attr> {
        self.change_range(what, ino, body, 0, u64::MAX).await
    }

    /// A change of `[off, off+len)` answered with attributes.
    pub(super) async fn change_range(&self, what: &str, ino: Ino, body: Op, off: u64, len: u64) -> Result<Attr> {
        let changed = self.change((ino, None), body, |reply| match reply {
            Reply::Attr(attr) => Ok((off, len, attr)),
            other => Err(unexpected(what, &other)),
        });
        let (_, _, attr) = changed.await?;
        Ok(self.amended(attr))
    }
}
