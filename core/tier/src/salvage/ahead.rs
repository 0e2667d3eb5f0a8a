//! Several things at once, whose ends are taken in the order in which they began.

use std::collections::VecDeque;

use braid_base::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

/// Work under way, a bounded number; it ends with this.
pub(super) struct Ahead<T> {
    running: VecDeque<JoinHandle<Result<T>>>,
    most: usize,
}

impl<T: Send + 'static> Ahead<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { running: VecDeque::with_capacity(most), most }
    }

    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.most
    }

    /// Begins `work`; there is room.
    pub(super) fn push(&mut self, work: impl Future<Output = Result<T>> + Send + 'static) {
        assert!(!self.is_full(), "more work at once than was said");
        self.running.push_back(tokio::spawn(work));
    }

    /// How the oldest one ended; none: none is under way.
    pub(super) async fn next(&mut self) -> Option<Result<T>> {
        let done = self.running.front_mut()?.await;
        self.running.pop_front();
        let ended = |error| Err(Error::new(ErrorKind::Stopped, format!("a read of the bucket did not end: {error}")));
        Some(done.unwrap_or_else(ended))
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}
