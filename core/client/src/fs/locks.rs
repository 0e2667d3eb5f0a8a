//! Locks: `fcntl` ranges and `flock`.

use std::future::Future;

use braid_base::Result;
use braid_base::ids::Ino;
use braid_base::msg::fs::{LockSpec, Op, Reply};

use super::Fs;
use crate::session::{LockEnd, unexpected};

impl Fs {
    /// Takes, changes or gives up a lock without waiting. Errors: `WouldBlock` if another owner holds it.
    pub async fn lock(&self, ino: Ino, lock: LockSpec) -> Result<()> {
        self.ask_done("lock", Op::Lock { ino, lock, wait: false }).await
    }

    /// Takes a lock, waiting for it as long as it takes or until `interrupted` comes. Errors: `Deadlock`.
    pub async fn lock_wait(&self, ino: Ino, lock: LockSpec, interrupted: impl Future<Output = ()>) -> Result<LockEnd> {
        self.names_kept(ino).await?;
        self.0.session.lock(self.0.fs, ino, lock, interrupted).await
    }

    /// The first lock that conflicts with `lock`, if any.
    pub async fn test_lock(&self, ino: Ino, lock: LockSpec) -> Result<Option<LockSpec>> {
        match self.ask(Op::TestLock { ino, lock }).await? {
            Reply::Locked(found) => Ok(found),
            other => Err(unexpected("test lock", &other)),
        }
    }

    /// Gives up all locks of `owner` on `ino`.
    pub async fn unlock_owner(&self, ino: Ino, owner: u64, flock: bool) -> Result<()> {
        self.ask_done("unlock", Op::UnlockOwner { ino, owner, flock }).await
    }
}
