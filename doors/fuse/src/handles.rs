//! Which files programs have open through a mount, and whose pages are being put into the kernel.
//!
//! Pages may be put in at an open only while nobody else has the file open: another program could have changed them
//! through a mapping, or read them before it was looked at once more whether they are still good. So an open waits
//! while another one of the same file does that, some microseconds.
//!
//! Each open file description has a number, which comes with its requests and says of which losses it is to be told: of
//! those that come after it (`braid_client`, `losses`). Only what was told is remembered, so usually nothing.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use braid_base::ids::Ino;

use crate::wire::request::Fh;

#[derive(Default)]
struct Handle {
    /// Open references, and opens under way.
    opens: u32,
    is_filled: bool,
    waiting: Vec<Waker>,
}

/// The open files of one mount.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<Ino, Handle>>,
    /// Up to which loss descriptions were told, where their own number does not say so.
    told: Mutex<HashMap<Fh, u64>>,
}

impl Handles {
    /// An open begins; it counts from when this is ready until [`Self::closed`].
    pub(crate) async fn opens(&self, ino: Ino) {
        poll_fn(|cx| {
            let mut handles = self.handles();
            let handle = handles.entry(ino).or_default();
            if handle.is_filled {
                handle.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            handle.opens += 1;
            Poll::Ready(())
        })
        .await;
    }

    /// An open failed, or what it gave is given back.
    pub(crate) fn closed(&self, ino: Ino) {
        let mut handles = self.handles();
        if let Some(handle) = handles.get_mut(&ino) {
            handle.opens = handle.opens.saturating_sub(1);
            if handle.opens == 0 {
                handles.remove(&ino);
            }
        }
    }

    /// Does `fill` while no other open of `ino` begins; `None` if there is one beside that of the caller. It must not wait.
    pub(crate) fn alone<T>(&self, ino: Ino, fill: impl FnOnce() -> T) -> Option<T> {
        self.handles().get_mut(&ino).filter(|handle| handle.opens == 1)?.is_filled = true;
        let filled = fill();
        if let Some(handle) = self.handles().get_mut(&ino) {
            handle.is_filled = false;
            handle.waiting.drain(..).for_each(Waker::wake);
        }
        Some(filled)
    }

    /// Up to which loss a description was told.
    pub(crate) fn since(&self, fh: Fh) -> u64 {
        self.descriptions().get(&fh).copied().unwrap_or(fh.0)
    }

    /// It was told of all up to this one.
    pub(crate) fn told(&self, fh: Fh, since: u64) {
        let mut told = self.descriptions();
        // Who began to wait earlier may end later, and know less.
        if told.get(&fh).map_or(since != fh.0, |known| since > *known) {
            told.insert(fh, since);
        }
    }

    /// The description is gone.
    pub(crate) fn undescribe(&self, fh: Fh) {
        self.descriptions().remove(&fh);
    }

    fn descriptions(&self) -> MutexGuard<'_, HashMap<Fh, u64>> {
        self.told.lock().expect("nothing panics while it holds the numbers")
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<Ino, Handle>> {
        self.open.lock().expect("nothing panics while it holds the handles")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::Ino;

    use super::{Fh, Handles};

    #[tokio::test]
    async fn pages_are_put_in_while_nobody_else_has_the_file_open_or_opens_it() {
        let (handles, file) = (Arc::new(Handles::default()), Ino(7));
        assert!(handles.alone(file, || ()).is_none(), "nobody has it open");
        handles.opens(file).await;
        let (also, opens) = (Arc::clone(&handles), tokio::sync::oneshot::channel());
        let (begun, is_begun) = opens;
        let second = handles.alone(file, || {
            tokio::spawn(async move {
                begun.send(()).expect("the test waits");
                also.opens(file).await;
            })
        });
        // The task runs when this one waits; what it waits for is over by then.
        is_begun.await.expect("it was spawned");
        second.expect("it is the only one").await.expect("it ends");
        assert!(handles.alone(file, || ()).is_none(), "two have it open");
        handles.closed(file);
        assert!(handles.alone(file, || ()).is_some());
        handles.closed(file);
        assert!(handles.handles().is_empty());
    }

    #[test]
    fn a_description_is_remembered_only_when_its_number_does_not_say_what_it_was_told() {
        let (handles, fh) = (Handles::default(), Fh(7));
        handles.told(fh, 7);
        assert!(handles.since(fh) == 7 && handles.descriptions().is_empty());
        handles.told(fh, 0);
        assert_eq!(handles.since(fh), 0, "something was lost before it was opened, and nobody was told");
        handles.told(fh, 9);
        assert_eq!((handles.since(fh), handles.since(Fh(8))), (9, 8));
        handles.told(fh, 0);
        assert_eq!(handles.since(fh), 9, "an fsync that began earlier ended later");
        handles.undescribe(fh);
        assert!(handles.descriptions().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_that_comes_meanwhile_waits_for_it() {
        let (handles, file) = (Arc::new(Handles::default()), Ino(7));
        for _ in 0..200 {
            handles.opens(file).await;
            let also = Arc::clone(&handles);
            let (second, is_open) = handles
                .alone(file, || {
                    let second = tokio::spawn(async move { also.opens(file).await });
                    for _ in 0..100 {
                        std::thread::yield_now();
                    }
                    let is_open = handles.handles()[&file].opens > 1;
                    (second, is_open)
                })
                .expect("it is the only one");
            assert!(!is_open);
            second.await.expect("it ends");
            (0..2).for_each(|_| handles.closed(file));
        }
    }
}
