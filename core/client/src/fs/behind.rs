//! Write-behind: a write returns when its bytes are here; they go to the cluster in large flights (design 5.7).
//!
//! What a program is promised is what POSIX promises: others see the bytes at once, because every call of this client
//! looks here first; they last when `fsync` returned. An error that comes later is told by the next `fsync` or close.
//! Room is lent ahead of need, so a file system that is full says so when the write is made.
//!
//! A partition that does not answer loses nothing: what was taken is sent until it has landed, or the session is lost under
//! which it was taken. Who waits for that waits for the deadline of a call ([`Fs::in_time`]), and may wait once more.

use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Weak};

use braid_base::attr::{Attr, Time};
use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::limits::{WRITE_MAX, WRITE_PARTS_MAX};
use braid_base::msg::fs::Op;
use braid_base::msg::lease::LeaseKind;
use braid_base::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};

use super::{Fs, Written};
use crate::behind::{AGE_MS, FLIGHT_BYTES, Flight, Take};
use crate::join::{join_bounded, within};
use crate::losses::ANYBODY;
use crate::session::Session;
use crate::wire::BoxFuture;

/// What is left of a stream goes straight to the drives if it is at least this long, because room was lent for it;
/// six shards of less would be next to nothing each.
const TAIL_MIN: usize = 64 << 10;
/// Most bytes that one entry names: two runs that met.
const PIECE_BYTES: u64 = 2 * FLIGHT_BYTES;
/// Files that are flushed at a time when all are.
const FILES_AT_ONCE: usize = 32;

/// Where work goes on after a call returned, and the clock for the times of files.
pub trait Background: Send + Sync + 'static {
    /// Runs `work` to its end beside everything else.
    fn spawn(&self, work: BoxFuture<()>);

    /// Wall-clock time.
    fn wall(&self) -> Time;
}

/// Shows programs more than this client does: a kernel with caches of its own.
pub trait Watcher: Send + Sync + 'static {
    /// Bytes of a file that were written earlier reached the cluster: it looks like `attr`.
    fn changed(&self, attr: &Attr) {
        let _ = attr;
    }

    /// What was shown of `ino`, and of these names in it, may soon be no longer true. Returns at once.
    fn forget(&self, ino: Ino, names: &[Vec<u8>]) {
        let _ = (ino, names);
    }

    /// Ready when no program sees any more what was to be forgotten of these until now; it waits for a short time at
    /// most.
    fn forgotten(&self, inos: &[Ino]) -> BoxFuture<()> {
        let _ = inos;
        Box::pin(ready(()))
    }
}

impl Fs {
    /// Like [`Fs::new`], and up to `bytes_max` written bytes may be here before writers wait. All programs that use
    /// the file system must do so through this one `Fs` and its clones.
    pub fn with_write_behind(
        session: Arc<Session>,
        fs: FsId,
        root: Ino,
        background: Arc<dyn Background>,
        bytes_max: usize,
    ) -> Self {
        Self::make(session, fs, root, Some(background), bytes_max)
    }

    /// From now on, while it lives, `watcher` hears of what reaches the cluster late.
    pub fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = self.0.watchers.lock().expect("nothing panics while it holds the watchers");
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(watcher);
    }

    /// Writes back everything that is here. Errors: the first; of what is lost each file is told by its `fsync`, too.
    pub async fn flush_all(&self) -> Result<()> {
        let named = self.names_settled().await;
        let files = self.0.behind.files();
        let done = join_bounded(FILES_AT_ONCE, files.into_iter().map(|ino| self.settle(ino)).collect()).await;
        done.into_iter().fold(named, Result::and)?;
        self.0.losses.any_untold().map_or(Ok(()), Err)
    }

    /// Waits until all that was written to `ino` so far has reached the cluster. Errors: what became of earlier writes,
    /// if nobody was told; `Io` if it has not reached the cluster in time, which loses nothing.
    pub async fn flush(&self, ino: Ino) -> Result<()> {
        self.settle(ino).await?;
        self.written_well(ino, ANYBODY).1
    }

    /// The number of a new open file description of `ino`, unlike any other's, and the one since which it is to be told what
    /// is lost: for [`Self::written_well`] and [`Self::fsync_since`].
    pub fn describe(&self, ino: Ino) -> (u64, u64) {
        self.0.losses.describe(ino)
    }

    /// What went wrong with earlier writes to `ino`, or with names in it, that a description was not told of which was told
    /// of all up to `since`; and up to where it is told now.
    pub fn written_well(&self, ino: Ino, since: u64) -> (u64, Result<()>) {
        match self.0.losses.tell(ino, since) {
            Some((number, error)) => (number, Err(error)),
            None => (since, Ok(())),
        }
    }

    /// Ready when what is here of `ino` has landed, for good or ill. Errors: `Io` if that takes too long.
    pub(super) async fn settle(&self, ino: Ino) -> Result<()> {
        let behind = &self.0.behind;
        if !behind.is_dirty(ino) {
            return Ok(());
        }
        self.launch(behind.send(ino));
        let (last, home) = (behind.last(), self.0.session.home(ino));
        let left = || (behind.left(ino, last), vec![home]);
        self.in_time("what was written before", behind.landing(ino, last), left).await
    }

    /// The same, however long it takes: until the session is lost.
    pub(super) async fn settle_for_good(&self, ino: Ino) {
        self.launch(self.0.behind.send(ino));
        self.0.behind.landing(ino, self.0.behind.last()).await;
    }

    /// Waits for work that goes on beside calls. Errors: `Io` if for the deadline of a call nothing of what `left`
    /// counts is done, and none of its partitions says that it has its turn; the work goes on.
    pub(super) async fn in_time(
        &self,
        what: &str,
        work: impl Future<Output = ()>,
        left: impl Fn() -> (u64, Vec<PartitionId>),
    ) -> Result<()> {
        let (session, mut work) = (&self.0.session, pin!(work));
        let (mut before, deadline_ms) = (left().0, session.patience().deadline_ms);
        loop {
            if within(&**session.wire(), deadline_ms, work.as_mut()).await.is_some() {
                return Ok(());
            }
            let (now, homes) = left();
            if now >= before && !homes.iter().any(|p| session.is_held(*p)) {
                let text =
                    format!("{what} has not reached the cluster within {deadline_ms} ms, and is on its way still");
                return Err(Error::new(ErrorKind::Io, text));
            }
            before = now;
        }
    }

    /// Takes a write, if it may be held back: `None` if it must be made now, over nothing that is still here. Errors:
    /// `Io` if the partition gave no answer in time; nobody should wait once more then, and nothing was taken.
    pub(super) async fn write_behind(&self, ino: Ino, off: u64, data: &Bytes, kill: bool) -> Result<Option<Written>> {
        let Some(background) = &self.0.background else { return Ok(None) };
        let now = (self.0.reader.wire().now_ms(), background.wall());
        let (p, len) = (self.0.session.home(ino), data.len() as u64);
        let promise = |before: Option<u64>| {
            let session = self.holds_back(ino).filter(|session| before.is_none_or(|before| before == *session))?;
            self.0.lent.promise(p, len, now.0).then_some(session)
        };
        let mut asked = false;
        loop {
            match self.0.behind.take(ino, (off, data), kill, now, promise) {
                Take::Taken(flights) => {
                    self.launch(flights);
                    self.tend();
                    return Ok(Some(Written { off, len, attr: None }));
                }
                Take::Overlaps => self.settle(ino).await?,
                Take::Full if Box::pin(self.has_room()).await => {}
                Take::NoRoom if !asked && Box::pin(self.prepare(ino, len, now.0)).await? => asked = true,
                // Without room for sure the partition has to say whether there is some.
                Take::NoRoom | Take::Alone | Take::Full => return Ok(None),
            }
        }
    }

    /// Waits for room for more; false if none comes, because nothing lands. Who writes then does so by himself.
    async fn has_room(&self) -> bool {
        let behind = &self.0.behind;
        self.launch(behind.send_old(u64::MAX));
        while behind.is_full() && behind.any_lands(&**self.0.reader.wire()).await {}
        !behind.is_full()
    }

    /// The session under which writes to a file, or names in a directory, may be held back now; only one client at a time
    /// may, and others that want to see it have it written first.
    pub(super) fn holds_back(&self, ino: Ino) -> Option<u64> {
        self.lease(ino).filter(|(kind, _)| *kind == LeaseKind::Exclusive).map(|(_, session)| session)
    }

    /// Has what it takes to hold a write of `len` bytes back: the lease, and room. False if it cannot be had now. Errors:
    /// as of [`Self::write_behind`].
    async fn prepare(&self, ino: Ino, len: u64, now_ms: u64) -> Result<bool> {
        if self.holds_back(ino).is_none() {
            if !self.may_be_certain(ino) || self.0.behind.is_shared(ino, now_ms) {
                return Ok(false);
            }
            let asked = self.ask(Op::AskLease { ino, kind: LeaseKind::Exclusive }).await;
            if self.holds_back(ino).is_none() {
                return answered(asked).map(|_| false);
            }
        }
        Ok(self.0.lent.has(self.0.session.home(ino), len, now_ms) || self.borrow(ino, len, now_ms).await?)
    }

    /// What programs should see of what the partition said.
    pub(super) fn amended(&self, mut attr: Attr) -> Attr {
        if self.0.behind.is_on() {
            self.0.behind.amend(&mut attr);
        }
        self.0.promises.amend(&mut attr);
        self.0.accessed.amend(&mut attr);
        attr
    }

    /// Lays what is here over bytes `[off, off+len)` of `ino`, which `below` reads.
    pub(super) async fn read_over(
        &self,
        ino: Ino,
        off: u64,
        len: u64,
        below: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        let (pieces, dirty_end) = match self.0.behind.is_on() {
            true => self.0.behind.over(ino, off, off.saturating_add(len)),
            false => (Vec::new(), 0),
        };
        if let [(at, bytes)] = &pieces[..]
            && *at == off
            && bytes.len() as u64 == len
        {
            return Ok(bytes.clone());
        }
        let below = below.await?;
        let seen = dirty_end.saturating_sub(off).min(len) as usize;
        if pieces.is_empty() && seen <= below.len() {
            return Ok(below);
        }
        let mut out = BytesMut::from(below);
        if out.len() < seen {
            out.resize(seen, 0);
        }
        for (at, bytes) in pieces {
            let from = (at - off) as usize;
            out[from..from + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(out.freeze())
    }

    pub(super) fn launch(&self, flights: Vec<Flight>) {
        let Some(background) = &self.0.background else { return };
        for flight in flights {
            let this = self.clone();
            background.spawn(Box::pin(async move { this.fly(flight).await }));
        }
    }

    /// Somebody looks after what grows old, from now on until nothing is here.
    fn tend(&self) {
        if let Some(background) = &self.0.background
            && self.0.behind.tend()
        {
            let this = self.clone();
            background.spawn(Box::pin(async move {
                let wire = this.0.reader.wire();
                while !this.0.behind.untended() {
                    wire.sleep_ms(AGE_MS / 2).await;
                    this.launch(this.0.behind.send_old(wire.now_ms().saturating_sub(AGE_MS)));
                }
            }));
        }
    }

    async fn fly(&self, flight: Flight) {
        let mut promised = flight.len();
        let sent = self.send(&flight, &mut promised).await;
        self.0.lent.redeem(self.0.session.home(flight.ino), promised);
        let result = match sent {
            Ok(attr) => {
                self.0.show(&attr);
                Ok(Some(attr))
            }
            // Its last name and its last reference are gone: so are its bytes.
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => Ok(None),
            Err(error) => {
                tracing::error!(ino = %flight.ino, off = flight.off, len = flight.len(), %error, "written bytes are lost");
                Err(error)
            }
        };
        self.0.behind.landed(&flight, result);
    }

    /// The bytes of a flight go to the cluster: straight to the drives, or through the log if they are few or the
    /// straight way is not open. `promised` counts down what of it still has room kept for it: until its ranges are cut,
    /// nobody else must get them.
    async fn send(&self, flight: &Flight, promised: &mut u64) -> Result<Attr> {
        let (p, mut last) = (self.0.session.home(flight.ino), None);
        for (off, parts) in cut(flight, PIECE_BYTES) {
            let len: usize = parts.iter().map(Bytes::len).sum();
            *promised -= len as u64;
            let done = match len >= TAIL_MIN {
                true => {
                    let how = (flight.kill, Some(flight.at));
                    self.write_direct(flight.ino, off, &parts, how, Some(flight.session)).await
                }
                false => {
                    self.0.lent.abandon(p, len as u64, self.0.reader.wire().now_ms());
                    None
                }
            };
            last = match done {
                Some(done) => {
                    let attr = done?.attr;
                    self.0.behind.came_on(flight, len as u64);
                    attr
                }
                None => self.write_parts(flight, off, parts).await?,
            };
        }
        last.ok_or_else(|| Error::new(ErrorKind::Io, "a flight without bytes"))
    }

    /// The same through the log; parts are at most `WRITE_MAX` bytes each.
    async fn write_parts(&self, flight: &Flight, off: u64, parts: Vec<Bytes>) -> Result<Option<Attr>> {
        let (mut last, mut end, mut left) = (None, off, parts.into_iter().peekable());
        while left.peek().is_some() {
            let (mut entry, mut len) = (Vec::new(), 0);
            while entry.len() < WRITE_PARTS_MAX
                && let Some(part) = left.next_if(|part| len + part.len() <= WRITE_MAX)
            {
                len += part.len();
                entry.push((end, part.clone()));
                end += part.len() as u64;
            }
            let (ino, kill_suid_sgid, at) = (flight.ino, flight.kill, Some(flight.at));
            let body = Op::Write { ino, parts: entry, append: false, kill_suid_sgid, at };
            last = self.wrote("write", (ino, Some(flight.session)), body, len as u64).await?.attr;
            self.0.behind.came_on(flight, len as u64);
        }
        Ok(last)
    }
}

/// Whatever was answered; the error if nothing was.
pub(super) fn answered<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(_) => Ok(None),
    }
}

/// A flight in pieces of at most `most` bytes, each with its offset.
fn cut(flight: &Flight, most: u64) -> Vec<(u64, Vec<Bytes>)> {
    let (mut pieces, mut at): (Vec<(u64, Vec<Bytes>)>, _) = (Vec::new(), flight.off);
    let mut room = 0;
    for part in &flight.parts {
        let mut left = part.clone();
        while !left.is_empty() {
            if room == 0 {
                pieces.push((at, Vec::new()));
                room = most as usize;
            }
            let head = left.split_to(left.len().min(room));
            (at, room) = (at + head.len() as u64, room - head.len());
            if let Some((_, parts)) = pieces.last_mut() {
                parts.push(head);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::cut;
    use crate::behind::Flight;
    use braid_base::attr::Time;
    use braid_base::ids::Ino;
    use bytes::Bytes;

    #[test]
    fn a_flight_is_cut_without_losing_a_byte() {
        let parts = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defgh"), Bytes::from_static(b"i")];
        let flight = Flight { ino: Ino(1), off: 100, parts, at: Time::default(), kill: false, session: 0 };
        let cut: Vec<(u64, Vec<u8>)> = cut(&flight, 4).into_iter().map(|(off, parts)| (off, parts.concat())).collect();
        assert_eq!(cut, [(100, b"abcd".to_vec()), (104, b"efgh".to_vec()), (108, b"i".to_vec())]);
    }
}
