//! Bytes that programs wrote and that have not reached the cluster yet: gathered into runs, sent in flights.
//!
//! 1. [`Behind::take`] adds a write to the run that it continues, or begins one if it looks like part of a stream.
//! 2. A run that is long or old enough, or that somebody waits for, takes off: it becomes a [`Flight`].
//! 3. [`Behind::landed`] says how the flight ended. Its bytes are kept until then, and reads see them.
//!
//! Runs and flights of a file never overlap: a write over bytes that are still here has to wait until they landed.
//! So flights may land in any order.
//!
//! What a program sees of a file is what the partition says with this laid over it: [`Behind::over`] for bytes,
//! [`Behind::amend`] for attributes.

mod file;
mod recent;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use braid_base::attr::{Attr, Time, without_set_id};
use braid_base::ids::Ino;
use braid_base::limits::{DIRECT_MIN, WRITE_MAX};
use braid_base::{Error, Result};
use bytes::Bytes;

use file::File;
use recent::Recent;

use crate::landings::{self, Landings};
use crate::losses::{Losses, Lost};
use crate::wakers;
use crate::wire::Wire;

/// A run of this many bytes takes off by itself: enough for a few stripes, so that one entry names them all.
pub(crate) const FLIGHT_BYTES: u64 = 4 << 20;
/// Runs of one file; one more sends off the one that was touched longest ago.
const RUNS_MAX: usize = 16;
/// What nobody adds to for so long takes off, milliseconds.
pub(crate) const AGE_MS: u64 = 500;

/// The dirty bytes of all files of one client.
pub(crate) struct Behind {
    /// How much may be here before writers wait, bytes; 0: nothing is held back.
    bytes_max: usize,
    losses: Arc<Losses>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    files: HashMap<Ino, File>,
    recent: Recent,
    bytes: usize,
    next: u64,
    landings: Landings,
    /// Somebody looks after what grows old.
    tended: bool,
}

/// What came of a write.
pub(crate) enum Take {
    /// It is here; these take off now.
    Taken(Vec<Flight>),
    /// It lies over bytes that are here: these must land first.
    Overlaps,
    /// It is no part of a stream: it should go its own way now.
    Alone,
    /// It would be taken, but nothing was promised for it.
    NoRoom,
    /// It would be taken, but more is here than should be.
    Full,
}

/// A run on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) ino: Ino,
    pub(crate) off: u64,
    /// The bytes, in pieces as they came.
    pub(crate) parts: Vec<Bytes>,
    /// When the file was last written.
    pub(crate) at: Time,
    /// The write takes the set-id bits off.
    pub(crate) kill: bool,
    /// The session under whose lease the bytes were taken; 0: nobody else uses the file system.
    pub(crate) session: u64,
}

impl Flight {
    /// Bytes in all.
    pub(crate) fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl Behind {
    pub(crate) fn new(bytes_max: usize, losses: Arc<Losses>) -> Self {
        Self { bytes_max, losses, held: Mutex::default() }
    }

    /// False if nothing is ever held back here.
    pub(crate) fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// A program writes `data` (not empty) at `off`. `promise` is asked once it is sure to be taken: it is told
    /// the session of what is here of the file already, and says the one of this write, which is no other.
    pub(crate) fn take(
        &self,
        ino: Ino,
        (off, data): (u64, &Bytes),
        kill: bool,
        (now_ms, at): (u64, Time),
        promise: impl FnOnce(Option<u64>) -> Option<u64>,
    ) -> Take {
        assert!(data.len() <= WRITE_MAX, "one entry of the log must be able to hold it");
        let mut held = self.held();
        let Held { files, recent, bytes, next, .. } = &mut *held;
        let end = off + data.len() as u64;
        let streak = recent.wrote(ino, (off, end));
        if let Some(file) = files.get(&ino)
            && file.overlaps(off, end)
        {
            return Take::Overlaps;
        }
        let joins = files.get(&ino).is_some_and(|file| file.joins(off, end));
        // What is no stream would be lent room that it does not use: it rides in the log.
        if !joins && streak < DIRECT_MIN as u64 {
            return Take::Alone;
        }
        if *bytes > self.bytes_max {
            return Take::Full;
        }
        let before = files.get(&ino).filter(|file| file.end() > 0).map(|file| file.session);
        let Some(session) = promise(before) else { return Take::NoRoom };
        let file = files.entry(ino).or_default();
        file.session = session;
        file.add(off, data.clone(), now_ms);
        file.written = at;
        file.kill |= kill;
        *bytes += data.len();
        let mut flights = Vec::new();
        while let Some((off, parts)) = file.ready(RUNS_MAX, FLIGHT_BYTES) {
            flights.push(file.depart(ino, next, off, parts));
        }
        Take::Taken(flights)
    }

    /// What is here of files that are `gone`, taken under the session that is told with each, is lost: no flight may bring
    /// it. Bytes that nobody waits for any more, by file; the programs that wrote them are to be told.
    pub(crate) fn lose(&self, gone: impl Fn(Ino, u64) -> bool, why: &Error) -> Vec<(Ino, u64)> {
        let mut held = self.held();
        let Held { files, bytes, landings, .. } = &mut *held;
        let mut lost = Vec::new();
        for (ino, file) in files.iter_mut().filter(|(ino, file)| gone(**ino, file.session)) {
            let runs = file.take_all();
            let len: usize = runs.iter().flat_map(|(_, parts)| parts).map(Bytes::len).sum();
            if len > 0 {
                *bytes -= len;
                self.losses.add(*ino, Lost::Bytes, why);
                lost.push((*ino, len as u64));
            }
        }
        files.retain(|_, file| !file.is_clean());
        let wakers = landings.wakers.take();
        drop(held);
        wakers.into_iter().for_each(Waker::wake);
        lost
    }

    /// Everything of `ino` takes off.
    pub(crate) fn send(&self, ino: Ino) -> Vec<Flight> {
        let mut held = self.held();
        let Held { files, next, .. } = &mut *held;
        let Some(file) = files.get_mut(&ino) else { return Vec::new() };
        file.take_all().into_iter().map(|(off, parts)| file.depart(ino, next, off, parts)).collect()
    }

    /// What was last touched at or before `before_ms` takes off.
    pub(crate) fn send_old(&self, before_ms: u64) -> Vec<Flight> {
        let mut held = self.held();
        let Held { files, next, .. } = &mut *held;
        let mut flights = Vec::new();
        for (ino, file) in files.iter_mut() {
            for (off, parts) in file.take_old(before_ms) {
                flights.push(file.depart(*ino, next, off, parts));
            }
        }
        flights
    }

    /// A flight ended: the file looks like that now, or why its bytes are lost.
    pub(crate) fn landed(&self, flight: &Flight, result: Result<Option<Attr>>) {
        let mut held = self.held();
        let Held { files, recent, bytes, landings, .. } = &mut *held;
        *bytes -= flight.len() as usize;
        if let Some(file) = files.get_mut(&flight.ino) {
            file.land(flight.off);
            match result {
                Ok(Some(attr)) => recent.committed(attr),
                Ok(None) => {}
                Err(error) => self.losses.add(flight.ino, Lost::Bytes, &error),
            }
            if file.is_clean() {
                files.remove(&flight.ino);
            }
        }
        let wakers = landings.add();
        drop(held);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The number of the flight that took off last.
    pub(crate) fn last(&self) -> u64 {
        self.held().next
    }

    /// `len` bytes of a flight have reached the cluster.
    pub(crate) fn came_on(&self, flight: &Flight, len: u64) {
        if let Some(file) = self.held().files.get_mut(&flight.ino) {
            file.came_on(flight.off, len);
        }
    }

    /// Bytes in flights of `ino` up to number `last` that have not reached the cluster.
    pub(crate) fn left(&self, ino: Ino, last: u64) -> u64 {
        self.held().files.get(&ino).map_or(0, |file| file.left(last))
    }

    /// Ready when all flights of `ino` up to number `last` have landed.
    pub(crate) async fn landing(&self, ino: Ino, last: u64) {
        let has_landed = |held: &mut Held| held.files.get(&ino).is_none_or(|file| !file.is_flying(last));
        wakers::wait(&self.held, |held| &mut held.landings.wakers, has_landed).await;
    }

    /// True if more is here than should be.
    pub(crate) fn is_full(&self) -> bool {
        self.held().bytes > self.bytes_max
    }

    /// Ready when there is room for more, or another flight has landed. False if none does for long.
    pub(crate) async fn any_lands(&self, wire: &dyn Wire) -> bool {
        let has_room = |held: &Held| held.bytes <= self.bytes_max;
        landings::one_more(wire, &self.held, |held| &mut held.landings, has_room).await
    }

    /// Another client wants to see `ino`.
    pub(crate) fn wanted(&self, ino: Ino, now_ms: u64) {
        self.held().recent.wanted(ino, now_ms);
    }

    /// True if another client wanted to see `ino` a short time ago.
    pub(crate) fn is_shared(&self, ino: Ino, now_ms: u64) -> bool {
        self.held().recent.is_shared(ino, now_ms)
    }

    /// True if bytes of `ino` are here.
    pub(crate) fn is_dirty(&self, ino: Ino) -> bool {
        self.held().files.get(&ino).is_some_and(|file| file.end() > 0)
    }

    /// Dirty pieces within `[off, end)`, sorted, and where the last dirty byte of the file ends (0: none).
    pub(crate) fn over(&self, ino: Ino, off: u64, end: u64) -> (Vec<(u64, Bytes)>, u64) {
        self.held().files.get(&ino).map_or((Vec::new(), 0), |file| (file.within(off, end), file.end()))
    }

    /// Makes of what the partition said what programs of this client should see: not older than what it answered to
    /// a flight, and with what is dirty on top.
    pub(crate) fn amend(&self, attr: &mut Attr) {
        let held = self.held();
        if let Some(newer) = held.recent.newer(attr) {
            *attr = newer;
        }
        if let Some(file) = held.files.get(&attr.ino).filter(|file| file.end() > 0) {
            attr.size = attr.size.max(file.end());
            (attr.mtime, attr.ctime) = (file.written, file.written);
            if file.kill {
                attr.mode = without_set_id(attr.mode);
            }
        }
    }

    /// True once: from now on the caller looks after what grows old, until [`Self::untended`].
    pub(crate) fn tend(&self) -> bool {
        !std::mem::replace(&mut self.held().tended, true)
    }

    /// True if nothing is left to look after; the caller then stops.
    pub(crate) fn untended(&self) -> bool {
        let mut held = self.held();
        held.tended = held.bytes > 0;
        !held.tended
    }

    /// Files with dirty bytes.
    pub(crate) fn files(&self) -> Vec<Ino> {
        self.held().files.keys().copied().collect()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the dirty bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::ANYBODY;

    const INO: Ino = Ino(7);

    fn behind() -> Behind {
        Behind::new(1 << 30, Arc::default())
    }

    fn bytes(len: usize) -> Bytes {
        Bytes::from(vec![1; len])
    }

    fn flights(take: Take) -> Option<Vec<(u64, u64)>> {
        match take {
            Take::Taken(flights) => Some(flights.iter().map(|flight| (flight.off, flight.len())).collect()),
            Take::Overlaps | Take::Alone | Take::NoRoom | Take::Full => None,
        }
    }

    fn write(behind: &Behind, off: u64, len: usize) -> Option<Vec<(u64, u64)>> {
        flights(behind.take(INO, (off, &bytes(len)), false, (0, Time::default()), |_| Some(0)))
    }

    #[test]
    fn writes_go_alone_until_they_are_a_stream() {
        let behind = behind();
        for at in [900, 3, 4, 5, 6, 7] {
            assert_eq!(write(&behind, at * 100_000, 100_000), None, "{at}");
        }
        assert_eq!(write(&behind, 800_000, 100_000), Some(vec![]), "600,000 bytes in a row");
        assert_eq!(write(&behind, 900_000, 100), Some(vec![]));
        assert_eq!(behind.over(INO, 0, u64::MAX), (behind.over(INO, 800_000, 900_100).0, 900_100));
        assert!(matches!(
            behind.take(INO, (900_050, &bytes(1)), false, (0, Time::default()), |_| Some(0)),
            Take::Overlaps
        ));
    }

    #[test]
    fn runs_that_meet_become_one_and_take_off_when_they_are_long() {
        let behind = behind();
        for at in [1u64, 3, 0, 2] {
            assert_eq!(
                write(&behind, at << 20, 1 << 20),
                if at == 2 { Some(vec![(0, 4 << 20)]) } else { Some(vec![]) }
            );
        }
        assert!(behind.is_dirty(INO));
        let sent = behind.send(INO);
        assert!(sent.is_empty(), "it flies already");
    }

    #[test]
    fn attributes_and_bytes_are_amended_until_landed_and_never_go_back() {
        let behind = behind();
        assert_eq!(write(&behind, 0, 700_000), Some(vec![]));
        let mut old = Attr { ino: INO, size: 10, change: 5, ..Attr::default() };
        let before = old.clone();
        behind.amend(&mut old);
        assert_eq!(old.size, 700_000);
        let flight = behind.send(INO).remove(0);
        assert_eq!(behind.over(INO, 699_999, 800_000).0.len(), 1);
        let new = Attr { size: 700_000, change: 6, ..before.clone() };
        behind.landed(&flight, Ok(Some(new.clone())));
        assert_eq!(behind.over(INO, 0, u64::MAX), (Vec::new(), 0));
        let mut late = before;
        behind.amend(&mut late);
        assert_eq!(late, new, "an answer given before the landing is out of date");
    }

    #[test]
    fn an_error_is_told_once() {
        let behind = behind();
        assert_eq!(write(&behind, 0, 700_000), Some(vec![]));
        let flight = behind.send(INO).remove(0);
        behind.landed(&flight, Err(braid_base::ErrorKind::NoSpace.into()));
        let told = || behind.losses.tell(INO, ANYBODY).map(|(_, error)| error.kind());
        assert_eq!((told(), told()), (Some(braid_base::ErrorKind::NoSpace), None));
        assert!(behind.files().is_empty());
    }

    #[test]
    fn what_was_taken_in_the_next_session_stays() {
        let behind = behind();
        let take = |ino: Ino, session: u64| {
            let taken = behind.take(ino, (0, &bytes(1 << 20)), false, (0, Time::default()), |_| Some(session));
            assert!(matches!(taken, Take::Taken(_)));
        };
        take(INO, 1);
        take(Ino(8), 2);
        let lose = |session: u64| behind.lose(|_, under| under == session, &braid_base::ErrorKind::Io.into());
        assert_eq!(lose(1), [(INO, 1 << 20)]);
        assert!(behind.losses.is_untold(INO) && !behind.losses.is_untold(Ino(8)) && behind.is_dirty(Ino(8)));
        assert_eq!((lose(1), lose(2)), (vec![], vec![(Ino(8), 1 << 20)]));
    }

    #[test]
    fn what_is_left_alone_grows_old() {
        let behind = behind();
        assert!(matches!(behind.take(INO, (0, &bytes(1 << 20)), false, (10, Time::default()), |_| None), Take::NoRoom));
        behind.take(INO, (0, &bytes(1 << 20)), false, (10, Time::default()), |_| Some(0));
        assert!(behind.tend() && !behind.tend());
        assert!(behind.send_old(9).is_empty());
        assert!(!behind.untended());
        assert_eq!(behind.send_old(10).len(), 1);
    }
}
