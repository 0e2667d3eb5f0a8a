//! What the kernel of a mount believes of names, without asking: as the door of a mount lets it, and no longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::ids::Ino;
use braid_client::Fs;
use braid_client::fs::Watcher;

/// How long it believes what it was shown, milliseconds: `positive_age` of a mount that says nothing of it.
const BELIEVES_MS: u64 = 1_000;

/// What names stand for, and until when.
type Names = BTreeMap<(Ino, Vec<u8>), (Ino, u64)>;

/// The kernel beside one client.
pub struct Kernel {
    names: Mutex<Names>,
}

impl Kernel {
    /// Beside the client of `fs`, which tells it what to forget.
    pub fn beside(fs: &Fs) -> Arc<Self> {
        let kernel = Arc::new(Self { names: Mutex::default() });
        fs.watch(Arc::downgrade(&kernel) as _);
        kernel
    }

    /// What `name` stands for, as far as it knows.
    pub fn knows(&self, fs: &Fs, dir: Ino, name: &[u8]) -> Option<Ino> {
        let now_ms = fs.session().wire().now_ms();
        let (ino, until_ms) = *self.names().get(&(dir, name.to_vec()))?;
        (now_ms < until_ms).then_some(ino)
    }

    /// A call of its own told what `name` stands for. Without leases the mounts of one process tell each other, and nobody
    /// else is there: not the desk's world.
    pub fn shown(&self, fs: &Fs, dir: Ino, name: &[u8], ino: Ino) {
        if fs.session().leases().is_some() && fs.is_certain_name(dir, name, ino) {
            let until_ms = fs.session().wire().now_ms() + BELIEVES_MS;
            self.names().insert((dir, name.to_vec()), (ino, until_ms));
        }
    }

    /// A call of its own may change what `name` stands for.
    pub fn changes(&self, dir: Ino, name: &[u8]) {
        self.names().remove(&(dir, name.to_vec()));
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Kernel {
    fn forget(&self, ino: Ino, names: &[Vec<u8>]) {
        for name in names {
            self.changes(ino, name);
        }
    }
}
