//! Attributes: look, change, wait for durability.

use braid_base::Result;
use braid_base::attr::{Attr, SetAttr};
use braid_base::ids::Ino;
use braid_base::msg::fs::{Op, Reply};

use super::{Fs, check_range};
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
            return Some(promised);
        }
        self.0.session.leases().and_then(|leases| leases.attr(self.0.fs, ino))
    }

    /// Changes attributes; the answer is what they are then. A new size cuts the file or extends it with a hole.
    /// Errors: `NotFound`, `FileTooBig`, `IsDirectory` (size of a directory), `NoSpace`, `Quota`.
    pub async fn setattr(&self, ino: Ino, set: SetAttr) -> Result<Attr> {
        if !set.access_only {
            // What was written before must not undo it.
            self.settle(ino).await;
        }
        let Some(size) = set.size else {
            return self.ask_attr("setattr", Op::SetAttr { ino, set }).await;
        };
        check_range(size, 0)?;
        // All of the file and not only what lies beyond the cut: a longer file reads zeros where it ended before.
        self.change_all("truncate", ino, Op::SetAttr { ino, set }).await
    }

    /// Returns once everything that was written to `ino`, and every change of names in its partition, is durable.
    /// Errors: what became of earlier writes, told once.
    pub async fn fsync(&self, ino: Ino) -> Result<()> {
        self.names_kept(ino).await;
        self.flush(ino).await?;
        self.ask_done("fsync", Op::Sync { ino }).await
    }

    /// A change answered with attributes, of whose extent nothing is known.
    pub(super) async fn change_all(&self, what: &str, ino: Ino, body: Op) -> Result<Attr> {
        self.change_range(what, ino, body, 0, u64::MAX).await
    }

    /// A change of `[off, off+len)` answered with attributes.
    pub(super) async fn change_range(&self, what: &str, ino: Ino, body: Op, off: u64, len: u64) -> Result<Attr> {
        let changed = self.change((ino, 0), body, |reply| match reply {
            Reply::Attr(attr) => Ok((off, len, attr)),
            other => Err(unexpected(what, &other)),
        });
        let (_, _, attr) = changed.await?;
        Ok(self.amended(attr))
    }
}
