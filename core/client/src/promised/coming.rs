//! Directories that were made here and are being asked for, for this client alone, before anything is promised in them.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use braid_base::ids::Ino;

use super::{DIRS_MAX, Promises, SHARED_MS};

#[derive(Default)]
pub(super) struct Coming {
    /// Those that are being asked for, and who waits.
    asked: HashMap<Ino, Vec<Waker>>,
    /// Those that came, in which nothing was promised yet.
    unused: HashSet<Ino>,
    /// Others wanted to see such a one: until then none is asked for.
    for_others_until: u64,
}

impl Coming {
    /// Something was promised in `dir`.
    pub(super) fn used(&mut self, dir: Ino) {
        self.unused.remove(&dir);
    }

    /// Others want to see `dir`.
    pub(super) fn shared(&mut self, dir: Ino, now_ms: u64) {
        if self.unused.remove(&dir) {
            self.for_others_until = now_ms + SHARED_MS;
        }
    }
}

impl Promises {
    /// `dir` was made: true if it should be asked for, for this client alone. Then [`Self::came`] must follow.
    pub(crate) fn comes(&self, dir: Ino, now_ms: u64) -> bool {
        let coming = &mut self.held().coming;
        let is_wanted = now_ms >= coming.for_others_until;
        if is_wanted {
            coming.asked.insert(dir, Vec::new());
        }
        is_wanted
    }

    /// The answer about such a directory is here.
    pub(crate) fn came(&self, dir: Ino) {
        let mut held = self.held();
        let coming = &mut held.coming;
        if coming.unused.len() >= DIRS_MAX {
            coming.unused.clear();
        }
        coming.unused.insert(dir);
        let wakers = coming.asked.remove(&dir);
        drop(held);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// True if `dir` is being asked for.
    pub(crate) fn is_coming(&self, dir: Ino) -> bool {
        self.held().coming.asked.contains_key(&dir)
    }

    /// Ready when the answer is here.
    pub(crate) async fn arrival(&self, dir: Ino) {
        poll_fn(|cx| match self.held().coming.asked.get_mut(&dir) {
            Some(wakers) => {
                wakers.push(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }
}
