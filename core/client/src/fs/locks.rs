//! Locks: `fcntl` ranges and `flock`.

use std::future::Future;

use braid_base::ids::Ino;
use braid_base::msg::fs::{LockSpec, Op, Reply};
use braid_base::{ErrorKind, Result};

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

    /// The same for an owner that is gone: nobody waits, and it goes on for as long as the session lives.
    pub async fn unlock_gone(&self, ino: Ino, owner: u64, flock: bool) -> Result<()> {
        let session = self.0.session.leases().map(|leases| leases.session(self.0.session.home(ino)));
        match self.ask_under(session.filter(|session| *session > 0), Op::UnlockOwner { ino, owner, flock }).await {
            Ok(Reply::Done) => Ok(()),
            Ok(other) => Err(unexpected("unlock", &other)),
            // They went with it.
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
            Err(error) => Err(error),
        }
    }
}
