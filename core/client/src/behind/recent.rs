//! What is remembered of files for a while: how long the stream is that their last write belongs to, and how they
//! looked after the last flight. Bounded, and forgotten by and by.

use std::collections::HashMap;

use braid_base::attr::Attr;
use braid_base::ids::Ino;

/// Writes of so many bytes belong to one stream also if they are only near each other: programs that keep several in
/// flight have them arrive out of order.
const LARGE_BYTES: u64 = 64 << 10;
/// How near.
const NEAR_BYTES: u64 = 4 << 20;
/// Who writes a file that others look at, writes through for so long: taking the lease back from them for each write
/// would cost both more, milliseconds.
const SHARED_MS: u64 = 1_000;
/// Files remembered of each generation; two are kept.
const FILES_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct Recent {
    /// Where the last write ended, and how many bytes were written in a row until then.
    streams: Aging<(u64, u64)>,
    attrs: Aging<Attr>,
    /// Until when it is not worth while to hold bytes of the file back, milliseconds.
    shared: Aging<u64>,
}

impl Recent {
    /// Bytes `[off, end)` of `ino` are written: how many bytes that makes in a row. Large ones may come in any order.
    pub(super) fn wrote(&mut self, ino: Ino, (off, end): (u64, u64)) -> u64 {
        let len = end - off;
        let streak = match self.streams.get(ino) {
            Some((at, streak)) if *at == off || (len >= LARGE_BYTES && at.abs_diff(off) <= NEAR_BYTES) => streak + len,
            _ => len,
        };
        self.streams.put(ino, (end, streak));
        streak
    }

    /// Another client wanted to see the file.
    pub(super) fn wanted(&mut self, ino: Ino, now_ms: u64) {
        self.shared.put(ino, now_ms + SHARED_MS);
    }

    /// True if it may want that again soon.
    pub(super) fn is_shared(&self, ino: Ino, now_ms: u64) -> bool {
        self.shared.get(ino).is_some_and(|until| now_ms < *until)
    }

    /// A flight of the file made it look like `attr`.
    pub(super) fn committed(&mut self, attr: Attr) {
        if self.attrs.get(attr.ino).is_none_or(|known| known.change < attr.change) {
            self.attrs.put(attr.ino, attr);
        }
    }

    /// How the file looked after a flight, if that is newer than `attr`.
    pub(super) fn newer(&self, attr: &Attr) -> Option<Attr> {
        self.attrs.get(attr.ino).filter(|known| known.change > attr.change).cloned()
    }
}

/// Two generations: when the young one is full, it becomes the old one, and the old one is forgotten.
struct Aging<T> {
    young: HashMap<Ino, T>,
    old: HashMap<Ino, T>,
}

impl<T> Default for Aging<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Aging<T> {
    fn get(&self, ino: Ino) -> Option<&T> {
        self.young.get(&ino).or_else(|| self.old.get(&ino))
    }

    fn put(&mut self, ino: Ino, value: T) {
        if self.young.len() >= FILES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, value);
    }
}
