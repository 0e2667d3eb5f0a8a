//! What a mover needs of object stores.

use braid_base::Result;
use braid_base::ids::FsId;
use braid_base::msg::job::{BlockRun, ObjectKey};
use bytes::Bytes;

use crate::wire::BoxFuture;

/// Puts objects into stores and removes them.
pub trait Objects: Send + Sync {
    /// Writes the object `key` of `fs`, whose bytes are `data` one after another: the blocks of `runs`, in order. When it
    /// returns, the object is whole in its store, which was asked for its length. Errors: it may be there, or not, or
    /// not yet; it is never to be referred to.
    fn put(&self, key: ObjectKey, fs: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> BoxFuture<Result<()>>;

    /// Removes the object `key`; well if there is none.
    fn remove(&self, key: ObjectKey) -> BoxFuture<Result<()>>;
}
