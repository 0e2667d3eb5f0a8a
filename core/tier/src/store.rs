//! What can be asked of an object store.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use braid_base::Result;
use braid_base::store::{Place, StoreSpec};
use bytes::Bytes;

mod cloud;
mod dir;
pub(crate) mod failure;
mod line;
pub(crate) mod probe;
mod removal;
mod sign2;
mod tls;
mod wire;

/// Most objects in one answer of [`Store::list`].
pub const LIST_MAX: usize = 1000;

/// The store that `spec` names. Nothing is asked of it yet.
///
/// Errors: `Refused`: the words of the store cannot be right; the message names the wrong one.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>> {
    let patience = Duration::from_secs(u64::from(spec.errors_timeout_s.max(1)));
    Ok(match &spec.place {
        Place::S3(bucket) => Arc::new(cloud::Cloud::s3(bucket, patience)?),
        Place::Azure(container) => Arc::new(cloud::Cloud::azure(container, patience)?),
        Place::Dir { path } => Arc::new(dir::Dir::new(path)?),
    })
}

/// A future that may be moved between threads and borrows nothing.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An object, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key, without what all keys of the store begin with.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// When it was written, seconds since 1970 by the clock of the store.
    pub modified_s: u64,
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
