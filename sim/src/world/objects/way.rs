//! The way of a host's movers to the stores.

use std::sync::{Arc, Weak};

use braid_base::ids::FsId;
use braid_base::limits::BLOCK;
use braid_base::msg::job::{BlockRun, ObjectKey};
use braid_base::{Error, ErrorKind, Result};
use braid_client::objects::Objects;
use braid_client::wire::{BoxFuture, Wire};
use bytes::Bytes;

use super::{Bucket, Fate};
use crate::board::{At, Board, Node, Sent, Slot, Work};
use crate::deeds::Deed;
use crate::points::Point;

/// The way of one partition's mover.
pub(crate) struct Way {
    pub bucket: Bucket,
    pub wire: Arc<dyn Wire>,
    pub board: Board,
    /// Whose mover it is, and in which life of its host.
    pub at: At,
    pub life: u64,
}

impl Way {
    fn passes(&self, point: Point) {
        self.board.send(Sent::Passed(self.at, self.life, point));
    }

    /// The store does `work` after a while, whatever becomes of the sender, who then hears how it went.
    fn send(
        &self,
        fate: Fate,
        work: impl FnOnce(&Bucket, bool) -> Result<()> + Send + 'static,
    ) -> BoxFuture<Result<()>> {
        let Fate { wait_ms, works, says } = fate;
        let (bucket, board, wait, told) =
            (self.bucket.clone(), self.board.clone(), self.wire.sleep_ms(wait_ms), Slot::new());
        let (sender, tell) = (Arc::new(()), told.clone());
        let waits: Weak<()> = Arc::downgrade(&sender);
        let store = async move {
            wait.await;
            let late = waits.upgrade().is_none();
            if late && works {
                board.did(Deed::ArrivedLate);
            }
            let done = if works { work(&bucket, late) } else { Ok(()) };
            tell.fill(says.and(done));
        };
        self.board.send(Sent::Spawn(Node::Store, Work(Box::pin(store))));
        Box::pin(async move {
            let _sender = sender;
            told.await
        })
    }
}

impl Objects for Way {
    fn put(&self, key: ObjectKey, _: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> BoxFuture<Result<()>> {
        let bytes = Bytes::from(data.concat());
        let blocks: usize = runs.iter().map(|run| run.blocks as usize).sum();
        let (fate, cut) = {
            let mut inner = self.bucket.lock();
            if blocks * BLOCK != bytes.len() {
                inner.wrong.push(format!("{key:?} has {} bytes in {blocks} blocks", bytes.len()));
            }
            let cut = inner.rng.below(200) < inner.plan_now().garbles;
            (inner.fate(key.store, true), cut)
        };
        self.passes(Point::ObjectSent);
        self.send(fate, move |bucket, _| {
            let len = if cut { bytes.len() - BLOCK } else { bytes.len() };
            bucket.lock().put(key, bytes.slice(..len));
            // Its length is asked for when it was sent.
            if cut { Err(Error::new(ErrorKind::Corrupt, format!("object {key:?} has {len} bytes"))) } else { Ok(()) }
        })
    }

    fn remove(&self, key: ObjectKey) -> BoxFuture<Result<()>> {
        let fate = self.bucket.lock().fate(key.store, false);
        self.passes(Point::RemovalSent);
        self.send(fate, move |bucket, _| {
            bucket.lock().there.remove(&key);
            Ok(())
        })
    }
}
