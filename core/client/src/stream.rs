//! Reading objects ahead: whoever reads a file from front to back straight from its objects would wait for the store once
//! for each MiB. So what follows is asked for while he reads, as much at a time as a store answers.
//!
//! What was fetched is found by its place in an object, which never holds anything else: whatever happens to a file, its
//! layout says which bytes are its own.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use braid_base::ids::{BlobId, Ino};
use braid_base::limits::CHUNK;
use braid_base::record::ObjectAt;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

/// How much is fetched ahead at least, and at most, bytes; between them it is [`TIMES`] what was read so far: who reads the
/// head of a file does not want the rest of it, and a store that is far away is to have much to do soon.
const AHEAD: (u64, u64) = (4 * CHUNK, 128 * CHUNK);
const TIMES: u64 = 4;
/// Reads that follow each other before anything is fetched ahead.
const FOLLOWING_MIN: u32 = 2;
/// How far from the end of the last read one may begin and still follow it, bytes: programs and kernels send several at a time.
const NEAR: u64 = 2 * CHUNK;
/// Places in one file where somebody reads, at most.
const TRAILS_MAX: usize = 4;
/// Files that are watched; beyond, all start afresh.
const FILES_MAX: usize = 1_024;
/// Bytes that are fetched or on their way, at most: the oldest go first. Half of it is shared by who reads just now, so that
/// nothing goes before it was read.
const BYTES_MAX: u64 = 2 * AHEAD.1;
/// Who reads just now: the files for which something was fetched the last so many times.
const ASKS: usize = (BYTES_MAX / 2 / AHEAD.0) as usize;

/// Who reads where, and what was fetched for it.
#[derive(Default)]
pub(crate) struct Streams(Mutex<State>);

#[derive(Default)]
struct State {
    files: HashMap<Ino, VecDeque<Trail>>,
    /// For whom something was fetched, the last ones, and how many they are.
    asks: VecDeque<Ino>,
    readers: u64,
    /// By where they begin. The name of an object says which partition it is of.
    parts: BTreeMap<(BlobId, u32), Arc<Fetched>>,
    /// Oldest first; may name some that are gone.
    order: VecDeque<(BlobId, u32)>,
    bytes: u64,
}

/// A place where a file is being read.
#[derive(Default)]
struct Trail {
    /// Where it was begun to be read, and the furthest that was.
    first: u64,
    next: u64,
    reads: u32,
    /// Up to where it was fetched.
    upto: u64,
}

/// A part of an object that is here or on its way.
pub(crate) struct Fetched {
    at: ObjectAt,
    len: u32,
    state: Mutex<(Option<Result<Bytes>>, Vec<Waker>)>,
}

/// The one who fetches it; dropped without a result, nobody waits any more.
pub(crate) struct Fetching(Arc<Fetched>);

impl Streams {
    /// `[off, off+len)` of `ino` is read; what is to be fetched now, as bytes of the file, if anything.
    pub(crate) fn read(&self, ino: Ino, off: u64, len: u64) -> Option<(u64, u64)> {
        let state = &mut *self.state();
        if state.files.len() >= FILES_MAX && !state.files.contains_key(&ino) {
            state.files.clear();
        }
        let trails = state.files.entry(ino).or_default();
        let end = off.saturating_add(len);
        let near = |trail: &Trail| off <= trail.next.saturating_add(NEAR) && end.saturating_add(NEAR) >= trail.next;
        let Some(at) = trails.iter().position(near) else {
            if trails.len() >= TRAILS_MAX {
                trails.pop_front();
            }
            trails.push_back(Trail { first: off, next: end, reads: 1, upto: 0 });
            return None;
        };
        let trail = &mut trails[at];
        trail.next = trail.next.max(end);
        trail.reads = trail.reads.saturating_add(1);
        // Little by little: a store that gets everything at once has nothing to do until half of it was read.
        let share = BYTES_MAX / 2 / state.readers.max(1);
        let window = (TIMES * trail.next.saturating_sub(trail.first)).min(share).clamp(AHEAD.0, AHEAD.1);
        if trail.reads < FOLLOWING_MIN || trail.next.saturating_add(window / 8 * 7) <= trail.upto {
            return None;
        }
        let from = trail.upto.max(trail.next);
        trail.upto = trail.next.saturating_add(window).next_multiple_of(CHUNK).max(from);
        let upto = trail.upto;
        state.asked(ino);
        Some((from, upto))
    }

    /// The last `bytes` before `upto`, up to which `ino` was to be fetched, are fetched with what follows them, so that it
    /// takes one request less. False if that was asked for already.
    pub(crate) fn put_off(&self, ino: Ino, upto: u64, bytes: u64) -> bool {
        let mut state = self.state();
        let mut trails = state.files.get_mut(&ino).into_iter().flatten();
        let Some(trail) = trails.find(|trail| trail.upto == upto && trail.next + bytes <= upto) else { return false };
        trail.upto -= bytes;
        true
    }

    /// The part of an object is to be fetched, unless it is here or on its way.
    pub(crate) fn begin(&self, at: ObjectAt, len: u32) -> Option<Fetching> {
        let mut state = self.state();
        if state.find(at, len).is_some() {
            return None;
        }
        let fetched = Arc::new(Fetched { at, len, state: Mutex::default() });
        state.remove((at.blob, at.off));
        state.bytes += u64::from(len);
        state.parts.insert((at.blob, at.off), Arc::clone(&fetched));
        state.order.push_back((at.blob, at.off));
        while state.bytes > BYTES_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.remove(oldest);
        }
        Some(Fetching(fetched))
    }

    /// The part of an object, if it was fetched or is on its way. Who reads up to its end is the last one.
    pub(crate) fn take(&self, at: ObjectAt, len: u32) -> Option<Arc<Fetched>> {
        let mut state = self.state();
        let found = state.find(at, len)?;
        if at.off + len == found.at.off + found.len {
            state.remove((found.at.blob, found.at.off));
        }
        Some(found)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it holds the streams")
    }
}

impl State {
    /// Something is fetched for `ino`.
    fn asked(&mut self, ino: Ino) {
        self.asks.push_back(ino);
        if self.asks.len() > ASKS {
            self.asks.pop_front();
        }
        self.readers = self.asks.iter().collect::<HashSet<_>>().len() as u64;
    }

    fn find(&self, at: ObjectAt, len: u32) -> Option<Arc<Fetched>> {
        let ((blob, _), found) = self.parts.range(..=(at.blob, at.off)).next_back()?;
        let end = u64::from(found.at.off) + u64::from(found.len);
        (*blob == at.blob && u64::from(at.off) + u64::from(len) <= end).then(|| Arc::clone(found))
    }

    fn remove(&mut self, key: (BlobId, u32)) {
        if let Some(gone) = self.parts.remove(&key) {
            self.bytes -= u64::from(gone.len);
        }
        // Names of those that are gone would make it grow for ever.
        if self.order.len() > 64 + 2 * self.parts.len() {
            let Self { order, parts, .. } = self;
            order.retain(|key| parts.contains_key(key));
        }
    }
}

impl Fetched {
    /// Bytes of it, which it holds, once they are here.
    pub(crate) async fn bytes(&self, at: ObjectAt, len: u32) -> Result<Bytes> {
        let whole = poll_fn(|cx| {
            let (result, wakers) = &mut *self.state.lock().expect("nothing panics while it holds a part");
            match result {
                Some(result) => Poll::Ready(result.clone()),
                None => {
                    wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        let (whole, from) = (whole.await?, (at.off - self.at.off) as usize);
        Ok(whole.slice(from..from + len as usize))
    }

    fn set(&self, result: Result<Bytes>) {
        let (state, wakers) = &mut *self.state.lock().expect("nothing panics while it holds a part");
        if state.is_none() {
            *state = Some(result);
        }
        wakers.drain(..).for_each(Waker::wake);
    }
}

impl Fetching {
    /// It came, or did not.
    pub(crate) fn done(self, result: Result<Bytes>) {
        let (expected, at) = (self.0.len as usize, self.0.at);
        self.0.set(result.and_then(|bytes| match bytes.len() == expected {
            true => Ok(bytes),
            false => Err(Error::new(ErrorKind::Io, format!("{}: expected {expected} bytes of it", at.blob))),
        }));
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.set(Err(Error::new(ErrorKind::Stopped, "nobody fetches it any more")));
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, BYTES_MAX, CHUNK, Streams};
    use braid_base::ids::{BlobId, Ino, PartitionId};
    use braid_base::record::ObjectAt;

    const INO: Ino = Ino(7);

    #[test]
    fn a_reader_from_front_to_back_gets_more_and_more_ahead_of_him() {
        let (streams, mut upto, mut most) = (Streams::default(), 0, 0);
        for off in (0..200 * CHUNK).step_by(128 << 10) {
            if let Some((from, to)) = streams.read(INO, off, 128 << 10) {
                assert!(from >= upto && from >= off && to > from, "{from}..{to} at {off}");
                upto = to;
            }
            assert!(off < CHUNK || upto > off, "what comes next was asked for");
            most = most.max(upto.saturating_sub(off));
        }
        assert!((AHEAD.1..=AHEAD.1 + CHUNK).contains(&most), "{most}");
    }

    #[test]
    fn what_is_put_off_comes_with_what_follows() {
        let streams = Streams::default();
        let mut asked = (0..8).filter_map(|n| streams.read(INO, n * 4096, 4096));
        let (_, first) = asked.next().expect("he reads from front to back");
        assert!(streams.put_off(INO, first, CHUNK) && !streams.put_off(INO, first, CHUNK), "once");
        let (next, second) = (0..64).find_map(|n| streams.read(INO, n * (128 << 10), 128 << 10)).expect("he reads on");
        assert_eq!(next, first - CHUNK);
        assert!(!streams.put_off(Ino(8), second, CHUNK), "another file");
        assert!(!streams.put_off(INO, second, second), "he is further already");
    }

    #[test]
    fn many_who_read_lose_nothing_that_was_fetched_for_them() {
        for readers in [2, 5, 24] {
            let (streams, mut fetched, mut again) = (Streams::default(), vec![0; readers], 0);
            let at = |reader: usize, off: u64| ObjectAt {
                blob: BlobId::new(PartitionId(0), reader as u64 + 1),
                off: off as u32,
            };
            for off in (0..256 * CHUNK).step_by(CHUNK as usize) {
                for (reader, fetched) in fetched.iter_mut().enumerate() {
                    if let Some((from, to)) = streams.read(Ino(reader as u64 + 1), off, CHUNK) {
                        for off in (from..to).step_by(CHUNK as usize) {
                            drop(streams.begin(at(reader, off), CHUNK as u32));
                        }
                        *fetched = to;
                    }
                    again += u32::from(off < *fetched && streams.take(at(reader, off), CHUNK as u32).is_none());
                }
            }
            // The first two reads are not ahead of anything; who begins does not know of the others yet.
            assert!(again <= 3 * readers as u32, "{readers} readers: {again} pieces were fetched in vain");
        }
    }

    #[test]
    fn reads_here_and_there_fetch_nothing() {
        let streams = Streams::default();
        let asked = (0..100).filter_map(|n| streams.read(INO, n * 7919 % 100 * 64 * CHUNK, 4096)).count();
        assert_eq!(asked, 0);
    }

    #[test]
    fn a_part_is_fetched_once_and_the_oldest_go() {
        let streams = Streams::default();
        let at = |off| ObjectAt { blob: BlobId::new(PartitionId(0), 3), off };
        let first = streams.begin(at(0), CHUNK as u32).expect("not there yet");
        assert!(streams.begin(at(0), 4096).is_none() && streams.begin(at(8192), 4096).is_none(), "it is on its way");
        assert!(streams.take(at(CHUNK as u32), 1).is_none());
        assert!(streams.take(at(4096), 4096).is_some() && streams.take(at(4096), 4096).is_some());
        assert!(streams.take(at(4096), CHUNK as u32 - 4096).is_some());
        assert!(streams.take(at(4096), 4096).is_none(), "it was read to its end");
        drop(first);
        for n in 0..=BYTES_MAX / CHUNK {
            assert!(streams.begin(at((n * CHUNK) as u32), CHUNK as u32).is_some());
        }
        assert!(streams.take(at(0), 1).is_none() && streams.take(at(CHUNK as u32), 1).is_some());
        assert_eq!(streams.state().bytes, BYTES_MAX);
    }
}
