//! Open references of clients: the content of an inode outlives its last name while one is held.

use std::collections::HashMap;

use braid_base::ids::{ClientId, FsId, Ino};

/// Counts by inode and client. Volatile: a restarted primary starts empty, and sessions re-assert them (`leases`).
#[derive(Default)]
pub struct Opens {
    counts: HashMap<(FsId, Ino), HashMap<ClientId, u32>>,
}

impl Opens {
    /// Takes a reference.
    pub(crate) fn open(&mut self, fs: FsId, ino: Ino, client: ClientId) {
        *self.counts.entry((fs, ino)).or_default().entry(client).or_default() += 1;
    }

    /// Gives one back; true if it was the last of the inode.
    pub(crate) fn close(&mut self, fs: FsId, ino: Ino, client: ClientId) -> bool {
        let Some(clients) = self.counts.get_mut(&(fs, ino)) else { return false };
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
        if clients.is_empty() {
            self.counts.remove(&(fs, ino));
            return true;
        }
        false
    }

    /// True if anyone holds the inode open.
    pub(crate) fn is_open(&self, fs: FsId, ino: Ino) -> bool {
        self.counts.contains_key(&(fs, ino))
    }

    /// Drops all references of a client; returns the inodes nobody holds any more.
    pub(crate) fn end(&mut self, client: ClientId) -> Vec<(FsId, Ino)> {
        let mut free = Vec::new();
        self.counts.retain(|key, clients| {
            if clients.remove(&client).is_some() && clients.is_empty() {
                free.push(*key);
            }
            !clients.is_empty()
        });
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reference_frees_the_inode() {
        let mut opens = Opens::default();
        let (fs, ino) = (FsId(1), Ino(9));
        opens.open(fs, ino, ClientId(1));
        opens.open(fs, ino, ClientId(1));
        opens.open(fs, ino, ClientId(2));
        assert!(!opens.close(fs, ino, ClientId(1)));
        assert_eq!(opens.end(ClientId(1)), vec![]);
        assert!(opens.is_open(fs, ino));
        assert_eq!(opens.end(ClientId(2)), vec![(fs, ino)]);
        assert!(!opens.close(fs, ino, ClientId(2)), "nobody holds it");
    }
}
