//! Word to the kernel that nobody asked for.

use std::io;
use std::sync::Arc;

use super::abi;
use super::encode::Body;
use super::reply::Devices;
use super::request::Node;

/// Tells the kernel of one mount what to forget, or what it need not ask for. A notice that something is to be forgotten
/// can wait until the kernel has the reply to a request, so it must not come from a thread that answers requests.
#[derive(Clone)]
pub(crate) struct Notifier(pub(crate) Arc<Devices>);

impl Notifier {
    /// Forget the attributes of `node`, and its pages from byte `off` on: `len` bytes, or all if that is 0. With `off`
    /// below 0 the pages stay. Errors: as the kernel gives them; it need not know the inode.
    pub(crate) fn inval_inode(&self, node: Node, off: i64, len: i64) -> io::Result<()> {
        self.0.notify(abi::NOTIFY_INVAL_INODE, Body::new().inval_inode(node, off, len).bytes())
    }

    /// Forget `name` in `dir`. Errors: as of [`Self::inval_inode`].
    pub(crate) fn inval_entry(&self, dir: Node, name: &[u8]) -> io::Result<()> {
        self.0.notify(abi::NOTIFY_INVAL_ENTRY, Body::new().inval_entry(dir, name).bytes())
    }

    /// Have `data` as the pages of `node` from its first byte on. Waits for nothing but reads of these pages. Errors: as of
    /// [`Self::inval_inode`].
    pub(crate) fn store(&self, node: Node, data: &[u8]) -> io::Result<()> {
        self.0.notify_data(abi::NOTIFY_STORE, Body::new().store(node, 0, data.len() as u32).bytes(), data)
    }
}
