//! The key-value view of applied entries: one engine per host, all partitions in it (design 4.3).
//!
//! The log is the durability point. An engine may lose everything since its last [`Kv::flush`], but
//! never a part of a batch, and never a batch while keeping a later one.

pub mod applied;
pub mod batch;
pub mod cached;
pub mod map;
#[cfg(feature = "rocks")]
pub mod rocks;
pub mod staged;

use braid_base::{Error, Result};

use self::batch::Batch;

/// Ordered keys and values of all partitions of a host.
pub trait Kv: Send + Sync {
    /// The value of `key`, `None` if there is none. `Corrupt` or `Io` if the media fails.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Shows each key and value of `from..to` (`to` exclusive) in ascending order until `visit` returns
    /// false. `visit` may read the same engine. Keys applied during the scan may or may not be shown.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Takes over the whole batch or, on an error, nothing. `Stopped` after any earlier failure, except a lack of room
    /// (`NoSpace`): it may be tried again.
    fn apply(&self, batch: &Batch) -> Result<()>;

    /// When it returns, everything applied before the call is durable. Failures as for [`Kv::apply`].
    fn flush(&self) -> Result<()>;

    /// The first damage that was met, if any: what is read elsewhere may still be right.
    fn damage(&self) -> Option<Error> {
        None
    }
}
