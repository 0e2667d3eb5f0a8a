//! What can be asked of an object store.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use braid_base::Result;
use bytes::Bytes;

/// A future that may be moved between threads and borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An object, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key, without what all keys of the store begin with.
    pub key: String,
    /// Its bytes.
    pub size: u64,
}

/// An object store. Keys have no slash at their ends; what all keys of the store begin with is the store's own matter.
///
/// Errors: `NotFound` (no such object, or no such bucket: the message tells), `AccessDenied`, `Quota` (the store takes
/// no more: 507, or a 403 that says so), `TimedOut`, `Io` (anything else that may pass), `Refused` (wrong set-up).
pub trait Store: Send + Sync + 'static {
    /// Writes an object whose bytes are `parts` one after another; there is none of this key yet. Done: it can be read.
    fn put(&self, key: &str, parts: Vec<Bytes>) -> BoxFuture<Result<()>>;

    /// Bytes `range` of an object, all of them; none: the whole object. `Range`: the object ends before.
    fn get(&self, key: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>>;

    /// How many bytes an object has.
    fn size(&self, key: &str) -> BoxFuture<Result<u64>>;

    /// Removes an object; well if there is none.
    fn delete(&self, key: &str) -> BoxFuture<Result<()>>;

    /// At most 1,000 objects whose keys begin with `prefix`, those after the key `after`, in order.
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxFuture<Result<Vec<Listed>>>;
}
