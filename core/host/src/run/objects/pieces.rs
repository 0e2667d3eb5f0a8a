//! The pieces of objects that are here or on their way, and how long objects are.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_base::limits::{BLOCK, OBJECT_READ_MAX};
use braid_base::msg::job::ObjectKey;
use braid_base::{Error, ErrorKind, Result};
use braid_tier::blob::PIECE;
use bytes::Bytes;
use tokio::sync::watch;

/// Bytes of pieces that stay here.
const BYTES_MAX: usize = 64 << 20;
/// Pieces that are got with one request at most: those of one such group of an object, whoever asks for which of them first.
/// A request costs a store as much as half a MiB, and the one who pays for it something, too; but the first byte of a large
/// one is not told before its last.
pub(super) const TOGETHER: u64 = OBJECT_READ_MAX / PIECE;
/// How long a failure is told to those who ask.
pub(super) const FAILED: Duration = Duration::from_secs(1);
/// Objects whose length is remembered, at most; beyond, all start afresh.
const LENGTHS_MAX: usize = 65_536;

/// The beginning of a piece, or all of it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The first byte of the object's data in it.
    pub start: u64,
    /// The end of what is here of its data, exclusive.
    pub end: u64,
    /// Its descriptor, and the data. Not checked.
    pub got: Bytes,
}

/// What came, or nothing yet.
type Came = Option<Result<Piece>>;
type Key = (ObjectKey, u64);

/// A piece that comes.
pub(super) struct Comes(watch::Receiver<Came>);

/// What is to be asked for, and where it is put when it is here.
pub(super) struct Sender {
    /// Of the object's data.
    pub range: Range<u64>,
    at: Key,
    sender: Arc<watch::Sender<Came>>,
}

impl Comes {
    /// The piece, once it is here.
    pub(super) async fn wait(&mut self) -> Result<Piece> {
        let ended = |_| Error::new(ErrorKind::Stopped, "the host stopped before the object came");
        let came = self.0.wait_for(Option::is_some).await.map_err(ended)?;
        came.clone().unwrap_or_else(|| Err(ErrorKind::Stopped.into()))
    }
}

struct Held {
    sender: Arc<watch::Sender<Came>>,
    /// Up to where its data was asked for.
    end: u64,
    /// When it was last of use.
    stamp: u64,
    /// Of it in memory.
    bytes: usize,
}

/// All of them.
#[derive(Default)]
pub(super) struct Pieces {
    held: HashMap<Key, Held>,
    /// Those that are here, the one that was of no use for the longest time first.
    order: BTreeMap<u64, Key>,
    stamp: u64,
    bytes: usize,
    /// Bytes of data of objects.
    lengths: HashMap<ObjectKey, u64>,
}

impl Pieces {
    /// The piece that holds `wanted`. If it is neither here nor on its way, also what is to be asked for, with one request:
    /// that piece, and those behind it that hold something up to `upto` and are not here either.
    pub(super) fn find(&mut self, key: ObjectKey, wanted: &Range<u64>, upto: u64) -> (Comes, Vec<Sender>) {
        let number = wanted.start / PIECE;
        if let Some(held) = self.held.get_mut(&(key, number)).filter(|held| held.end >= wanted.end) {
            let comes = Comes(held.sender.subscribe());
            if held.bytes > 0 {
                self.stamp += 1;
                self.order.remove(&held.stamp);
                held.stamp = self.stamp;
                self.order.insert(held.stamp, (key, number));
            }
            return (comes, Vec::new());
        }
        self.remove((key, number));
        let (comes, first) = self.ask((key, number), wanted.end);
        let mut asked = vec![first];
        let group = number - number % TOGETHER..number - number % TOGETHER + TOGETHER;
        for next in number + 1..group.end.min(upto.div_ceil(PIECE)) {
            let whole = asked.last().is_some_and(|last| last.range.end == next * PIECE);
            if !whole || self.held.contains_key(&(key, next)) {
                break;
            }
            asked.push(self.ask((key, next), upto.min((next + 1) * PIECE)).1);
        }
        (comes, asked)
    }

    /// A piece is asked for, of which the bytes up to `end` are wanted.
    fn ask(&mut self, (key, number): Key, end: u64) -> (Comes, Sender) {
        let start = number * PIECE;
        // Nobody else is wrong about the length of an object than the one who damaged it.
        let end = self.lengths.get(&key).map_or(start + PIECE, |len| (*len).min(start + PIECE).max(end));
        let end = end.next_multiple_of(BLOCK as u64);
        let (sender, comes) = watch::channel(None);
        let sender = Arc::new(sender);
        self.held.insert((key, number), Held { sender: Arc::clone(&sender), end, stamp: 0, bytes: 0 });
        (Comes(comes), Sender { range: start..end, at: (key, number), sender })
    }

    /// What was asked for came, or did not.
    pub(super) fn came(&mut self, to: &Sender, came: Result<Piece>) {
        to.sender.send_replace(Some(came.clone()));
        let Some(held) = self.held.get_mut(&to.at).filter(|held| Arc::ptr_eq(&held.sender, &to.sender)) else { return };
        let Ok(piece) = came else { return };
        self.stamp += 1;
        (held.stamp, held.bytes, held.end) = (self.stamp, piece.got.len(), piece.end);
        self.bytes += held.bytes;
        self.order.insert(self.stamp, to.at);
        while self.bytes > BYTES_MAX
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            // Those that came with it lie in the same memory.
            let (key, number) = *oldest;
            let first = number - number % TOGETHER;
            for at in (first..first + TOGETHER).map(|number| (key, number)) {
                if self.held.get(&at).is_some_and(|held| held.bytes > 0) {
                    self.remove(at);
                }
            }
        }
    }

    /// A failure was told for long enough.
    pub(super) fn forget_failed(&mut self, to: &Sender) {
        if self.held.get(&to.at).is_some_and(|held| Arc::ptr_eq(&held.sender, &to.sender)) {
            self.remove(to.at);
        }
    }

    /// The piece is damaged: it is asked for anew.
    pub(super) fn forget(&mut self, key: ObjectKey, piece: &Piece) {
        let at = (key, piece.start / PIECE);
        let same = |came: &Came| matches!(came, Some(Ok(held)) if held.got.as_ptr() == piece.got.as_ptr());
        if self.held.get(&at).is_some_and(|held| same(&held.sender.borrow())) {
            self.remove(at);
        }
    }

    /// The object is damaged, or not there: all of it is asked for anew.
    pub(super) fn forget_all(&mut self, key: ObjectKey) {
        let of: Vec<Key> = self.held.keys().filter(|(of, _)| *of == key).copied().collect();
        of.into_iter().for_each(|at| self.remove(at));
    }

    /// An object has so many bytes of data.
    pub(super) fn learn(&mut self, key: ObjectKey, bytes: u64) {
        if self.lengths.len() >= LENGTHS_MAX && !self.lengths.contains_key(&key) {
            self.lengths.clear();
        }
        self.lengths.insert(key, bytes);
    }

    fn remove(&mut self, at: Key) {
        if let Some(held) = self.held.remove(&at) {
            self.bytes -= held.bytes;
            self.order.remove(&held.stamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::{BYTES_MAX, PIECE, Piece, Pieces, Sender};
    use braid_base::ErrorKind;
    use braid_base::ids::{BlobId, PartitionId, StoreId, Term};
    use braid_base::msg::job::ObjectKey;
    use bytes::Bytes;

    fn key(serial: u64) -> ObjectKey {
        ObjectKey { store: StoreId(1), blob: BlobId::new(PartitionId(0), serial), term: Term(1) }
    }

    fn is_asked(pieces: &mut Pieces, serial: u64, wanted: Range<u64>) -> Option<(Range<u64>, Sender)> {
        let asked = pieces.find(key(serial), &wanted, wanted.end).1.pop();
        asked.map(|to| (to.range.clone(), to))
    }

    #[test]
    fn pieces_that_follow_each_other_come_with_one_request() {
        let mut pieces = Pieces::default();
        let mut asked = |wanted: Range<u64>, upto: u64| {
            let (_, asked) = pieces.find(key(1), &(wanted.start * PIECE..wanted.end * PIECE - 5), upto * PIECE - 5);
            asked.iter().map(|to| (to.range.start / PIECE, to.range.end / PIECE)).collect::<Vec<_>>()
        };
        assert_eq!(asked(6..7, 7), [(6, 7)]);
        assert_eq!(asked(1..2, 9), [(1, 2), (2, 3), (3, 4)], "up to the end of its group");
        assert_eq!(asked(4..5, 9), [(4, 5), (5, 6)], "up to one that is on its way");
        assert_eq!(asked(2..3, 9), [], "it is on its way");
        assert_eq!(asked(0..1, 9), [(0, 1)]);
        pieces.learn(key(2), 5 * PIECE + 4096);
        let (_, asked) = pieces.find(key(2), &(4 * PIECE..5 * PIECE), 5 * PIECE + 10);
        assert_eq!(
            asked.last().map(|to| to.range.clone()),
            Some(5 * PIECE..5 * PIECE + 4096),
            "no further than it is long"
        );
    }

    #[test]
    fn one_request_serves_all_who_want_a_piece() {
        let mut pieces = Pieces::default();
        let (range, sender) = is_asked(&mut pieces, 1, 5..10).expect("nothing is here");
        assert_eq!(range, 0..PIECE);
        assert!(is_asked(&mut pieces, 1, 0..PIECE).is_none(), "it is on its way");
        assert!(is_asked(&mut pieces, 1, PIECE..PIECE + 1).is_some() && is_asked(&mut pieces, 2, 0..1).is_some());
        // The object was shorter: only what was wanted came.
        pieces.came(&sender, Ok(Piece { start: 0, end: 4096, got: Bytes::from(vec![0; 8192]) }));
        assert!(is_asked(&mut pieces, 1, 0..4096).is_none());
        pieces.learn(key(1), 12_288);
        let (range, sender) = is_asked(&mut pieces, 1, 4096..8192).expect("that did not come");
        assert_eq!(range, 0..12_288, "all that there is");
        pieces.came(&sender, Err(ErrorKind::Io.into()));
        assert!(is_asked(&mut pieces, 1, 0..1).is_none(), "the failure is told");
        pieces.forget_failed(&sender);
        assert!(is_asked(&mut pieces, 1, 0..1).is_some());
    }

    #[test]
    fn what_was_of_no_use_for_the_longest_time_goes() {
        let (mut pieces, count) = (Pieces::default(), BYTES_MAX as u64 / PIECE);
        for serial in 1..=count + 1 {
            let (range, sender) = is_asked(&mut pieces, serial, 0..PIECE).expect("new");
            let got = Bytes::from(vec![0; PIECE as usize]);
            pieces.came(&sender, Ok(Piece { start: range.start, end: range.end, got }));
            assert!(is_asked(&mut pieces, 1, 0..1).is_none(), "the first one is wanted all the time");
        }
        assert_eq!((pieces.bytes, pieces.order.len()), (BYTES_MAX, count as usize));
        let here = pieces.find(key(3), &(0..1), 1).0;
        let piece = here.0.borrow().clone().expect("here").expect("well");
        pieces.forget(key(3), &piece);
        assert!(is_asked(&mut pieces, 3, 0..1).is_some(), "it was damaged");
        assert!(is_asked(&mut pieces, 2, 0..1).is_some(), "it went");
    }
}
