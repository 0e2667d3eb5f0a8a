//! What the kernel looks up in its second attempt is held open for a moment.
//!
//! A name that others make, remove or replace again and again stands for something else each time, and what was looked up
//! may be gone before the kernel comes back to it. It is told so (`ESTALE`), walks the path once more, and shows
//! `ESTALE` to the program if that happens again. So what is looked up then is opened at once, until something
//! is found in time.

use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use braid_base::ids::Ino;
use braid_base::{Error, ErrorKind};
use braid_client::fs::Entry;
use tokio::runtime::Handle;

use super::{Answer, Calls};

/// How long it is held, milliseconds: until the kernel comes back, on a machine that has other work.
const HELD_MS: u64 = 1_000;
/// What is found and cannot be opened any more is looked up again so often.
const FINDS_MAX: u32 = 64;
/// How long the end of a mount waits until what it held is given back: the client may be cut off.
const LET_GO_MAX: Duration = Duration::from_secs(1);

/// One reference to each inode that is held, and until when, milliseconds.
#[derive(Default)]
pub(super) struct Held(Mutex<Inodes>);

#[derive(Default)]
struct Inodes {
    until: HashMap<Ino, u64>,
    /// The mount is over: nothing is held any more.
    over: bool,
}

/// What becomes of a reference that was just taken.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// It is the one that is held.
    Hold,
    /// There is one already, or the mount is over.
    Close,
}

impl Held {
    fn hold(&self, ino: Ino, until: u64) -> Then {
        let mut inodes = self.inodes();
        if inodes.over || inodes.until.insert(ino, until).is_some() { Then::Close } else { Then::Hold }
    }

    /// Ends the time of `ino` if it is over at `now_ms`; else, until when it is held.
    fn end(&self, ino: Ino, now_ms: u64) -> Result<bool, u64> {
        let mut inodes = self.inodes();
        match inodes.until.get(&ino) {
            Some(until) if now_ms < *until => Err(*until),
            _ => Ok(inodes.until.remove(&ino).is_some()),
        }
    }

    fn end_all(&self) -> Vec<Ino> {
        let mut inodes = self.inodes();
        inodes.over = true;
        inodes.until.drain().map(|(ino, _)| ino).collect()
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.0.lock().expect("nothing panics while it holds the inodes")
    }
}

impl Calls {
    /// As [`Self::lookup`], for a thread that was told `ESTALE` a moment ago; what is found is there for a while.
    pub(crate) async fn lookup_to_hold(self: &Arc<Self>, runtime: &Handle, dir: Ino, name: &[u8]) -> Answer<Entry> {
        let mut finds = 0;
        loop {
            let found = self.lookup(dir, name).await?;
            finds += 1;
            match self.fs.open(found.ino, false).await {
                Ok(attr) => {
                    self.hold_open(runtime, found.ino);
                    return Ok(Entry { ino: found.ino, attr });
                }
                Err(error) if is_gone(&error) && finds < FINDS_MAX => {}
                // Then it is as it would have been for anybody else.
                Err(_) => return Ok(found),
            }
        }
    }

    /// Keeps the reference to `ino` that was just taken for a while, or gives it back if there is one.
    fn hold_open(self: &Arc<Self>, runtime: &Handle, ino: Ino) {
        let until = self.now_ms() + HELD_MS;
        let then = self.held.hold(ino, until);
        let this = Arc::clone(self);
        runtime.spawn(async move {
            if then == Then::Hold && !this.held_to_the_end(ino, until).await {
                return;
            }
            this.let_go(ino).await;
        });
    }

    /// Ready when `ino` has been held long enough; false if somebody else gives it back.
    async fn held_to_the_end(&self, ino: Ino, mut until: u64) -> bool {
        loop {
            self.fs.session().wire().sleep_ms(until.saturating_sub(self.now_ms())).await;
            match self.held.end(ino, self.now_ms()) {
                Ok(is_mine) => return is_mine,
                Err(later) => until = later,
            }
        }
    }

    /// The mount is over: gives back what is held, before the client leaves. It blocks, for [`LET_GO_MAX`] at most.
    pub(crate) fn let_all_go(self: &Arc<Self>, runtime: &Handle) {
        let inos = self.held.end_all();
        if inos.is_empty() {
            return;
        }
        let (this, (done, is_done)) = (Arc::clone(self), sync_channel::<()>(1));
        runtime.spawn(async move {
            for ino in inos {
                this.let_go(ino).await;
            }
            drop(done);
        });
        // Nobody says anything: it hears that the task has ended, however it did.
        let _ = is_done.recv_timeout(LET_GO_MAX);
    }

    async fn let_go(&self, ino: Ino) {
        if let Err(error) = self.fs.close(ino).await {
            tracing::debug!(%ino, %error, "what was held for the kernel could not be closed");
        }
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale)
}

#[cfg(test)]
mod tests {
    use braid_base::ids::Ino;

    use super::{Held, Then};

    #[test]
    fn one_reference_of_each_is_held_and_longer_if_it_is_found_again() {
        let (held, file) = (Held::default(), Ino(7));
        assert_eq!(held.hold(file, 100), Then::Hold);
        assert_eq!(held.hold(file, 150), Then::Close);
        assert_eq!(held.end(file, 100), Err(150));
        assert_eq!(held.end(file, 150), Ok(true));
        assert_eq!(held.end(file, 150), Ok(false), "it was given back");
        assert_eq!(held.hold(file, 300), Then::Hold);
    }

    #[test]
    fn nothing_is_held_when_the_mount_is_over() {
        let (held, file) = (Held::default(), Ino(7));
        assert_eq!(held.hold(file, 100), Then::Hold);
        assert_eq!(held.end_all(), [file]);
        assert_eq!(held.end(file, 200), Ok(false), "its task finds that it was given back");
        assert_eq!(held.hold(file, 300), Then::Close);
    }
}
