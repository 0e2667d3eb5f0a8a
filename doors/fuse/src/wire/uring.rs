//! Requests over io_uring: a queue per processor, each with a ring and a thread.
//!
//! The kernel puts a request into the queue of the processor that asks. It copies it into a tray that it was lent, and
//! takes the tray with the reply back in the same command that lends it for the next request. That command must come
//! from the thread of the queue, so whoever replies fills the tray and puts it into the queue's lane.
//!
//! A request that waits keeps its tray. So a queue keeps some trays free and makes more when they run short: else
//! those who wait for a lock could keep out the one who gives it up. Early, because the kernel gives a new tray no
//! request that waits already. Forgetting, interrupts and notices go over the device as ever.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_base::burst::{self, BURST_MAX, Due};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno as Os;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::abi::{self, IN_HEADER_BYTES, OUT_HEADER_BYTES};
use super::buffer::{Buffer, Pool};
use super::inflight::Way;
use super::reply::Devices;
use super::ring::{Event, Ring, Tray};
use super::session::{Serve, take};

/// Trays of a queue at the start, how many should be free, and the most.
const TRAYS_FIRST: usize = 64;
const TRAYS_FREE: usize = 32;
const TRAYS_MAX: usize = 1024;
/// io_uring may refuse so often in a row.
const FAILURES_MAX: usize = 100;
/// Where the kernel says whether it takes requests over io_uring, and how many queues it wants.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

/// The way to the thread of a queue.
#[derive(Debug)]
pub(crate) struct Lane {
    shelf: Mutex<Shelf>,
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Trays with replies.
    done: Vec<Tray>,
    /// The thread sleeps, or is about to.
    asleep: bool,
    /// The kernel takes no more.
    closed: bool,
}

impl Lane {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shelf: Mutex::default(), bell })
    }

    /// Passes a reply on, together with the others of a burst. `false`: the kernel does not take it any more.
    pub(crate) fn give(self: &Arc<Self>, tray: Tray) -> bool {
        let mut shelf = self.shelf();
        if shelf.closed {
            return false;
        }
        shelf.done.push(tray);
        // Rung once, whoever gives more.
        let sleeps = std::mem::take(&mut shelf.asleep);
        drop(shelf);
        if sleeps && !burst::put_off(self) {
            self.ring();
        }
        true
    }

    /// The connection is closed: the thread ends as soon as the kernel has given back every tray.
    pub(crate) fn close(&self) {
        self.shelf().closed = true;
        self.ring();
    }

    fn ring(&self) {
        // It can only fail when it was rung 2^64 times.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Moves the replies to `into`. Without any, the thread may sleep from now on: it will be roused.
    fn collect(&self, into: &mut Vec<Tray>) -> bool {
        let mut shelf = self.shelf();
        std::mem::swap(&mut shelf.done, into);
        shelf.asleep = into.is_empty();
        !into.is_empty()
    }

    /// The thread is up. Whether the connection is closed.
    fn is_up(&self) -> bool {
        let mut shelf = self.shelf();
        shelf.asleep = false;
        shelf.closed
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due for Lane {
    fn due(self: Arc<Self>) {
        self.ring();
    }
}

/// A ring and a lane for each queue that the kernel wants. Errors: why this process cannot have them, and what to do.
pub(crate) fn open() -> Result<(Vec<Ring>, Vec<Arc<Lane>>), String> {
    match fs::read_to_string(ENABLED) {
        Ok(said) if said.trim() == "Y" => {}
        Ok(_) => {
            return Err(format!(
                "this host has it switched off; switch it on with `echo 1 > {ENABLED}` (for good: fuse.enable_uring=1 on \
                 the kernel's command line) and mount again"
            ));
        }
        Err(_) => {
            return Err(
                "this kernel does not have it; Linux 6.14 or later with CONFIG_FUSE_IO_URING is needed".to_owned()
            );
        }
    }
    let processors = fs::read_to_string(PROCESSORS).ok().and_then(|list| count(list.trim()));
    let processors =
        processors.ok_or_else(|| format!("{PROCESSORS} does not tell how many processors there can be"))?;
    let rings: io::Result<Vec<Ring>> = (0..processors).map(|_| Ring::new(TRAYS_MAX as u32)).collect();
    let lanes: io::Result<Vec<_>> = (0..processors).map(|_| Lane::new().map(Arc::new)).collect();
    match (rings, lanes) {
        (Ok(rings), Ok(lanes)) => Ok((rings, lanes)),
        (Err(error), _) | (_, Err(error)) => Err(format!(
            "this process may not use io_uring ({error}); look at the sysctl kernel.io_uring_disabled and, in a \
             container, at its seccomp profile"
        )),
    }
}

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Makes the kernel go on over the device: it does so when a registration fails. For when a queue cannot have a thread.
pub(crate) fn refuse(device: BorrowedFd<'_>) -> io::Result<()> {
    let (mut ring, bell) = (Ring::new(TRAYS_MAX as u32)?, Lane::new()?.bell);
    ring.start(bell.as_fd())?;
    // There is no such queue.
    ring.lend(device, Tray::new(usize::from(u16::MAX), abi::uring::PAYLOAD_BYTES_MIN)?);
    ring.wait()?;
    while ring.next(bell.as_fd()).is_some() {}
    Ok(())
}

/// One queue at work.
pub(crate) struct Queue<'a> {
    pub(crate) devices: &'a Arc<Devices>,
    pub(crate) lane: usize,
    pub(crate) ring: Ring,
    pub(crate) pool: &'a Arc<Pool>,
    /// Most bytes behind the headers of a request or reply.
    pub(crate) payload_bytes: usize,
}

/// How it stands with a queue.
#[derive(Default)]
struct State {
    /// Trays that the kernel knows.
    known: usize,
    /// The connection is closed.
    ended: bool,
    /// The kernel did not want a tray.
    refused: bool,
}

impl Queue<'_> {
    /// Has `server` serve requests until the kernel closes the connection. Errors: those of io_uring.
    pub(crate) fn serve(mut self, server: &impl Serve) -> io::Result<()> {
        let lane = &self.devices.lanes[self.lane];
        let outcome = self.serve_until_closed(lane, server);
        if let Err(error) = &outcome {
            tracing::error!(%error, queue = self.lane, "requests of one processor are not served any more");
        }
        // Nobody takes replies from here any more.
        lane.close();
        lane.collect(&mut Vec::new());
        outcome
    }

    fn serve_until_closed(&mut self, lane: &Lane, server: &impl Serve) -> io::Result<()> {
        self.stay_on_processor();
        let (mut state, mut done, mut failures) = (State::default(), Vec::new(), 0);
        let mut buffer = self.pool.buffer();
        let started = self.ring.start(lane.bell.as_fd());
        if started.is_ok() {
            self.grow(&mut state, TRAYS_FIRST);
        }
        if state.known == 0 {
            tracing::warn!(?started, "no memory for requests over io_uring: this mount goes on over /dev/fuse");
            return refuse(self.devices.files[0].as_fd());
        }
        loop {
            while lane.collect(&mut done) {
                done.drain(..).for_each(|tray| self.ring.lend(self.devices.files[0].as_fd(), tray));
            }
            if self.ring.lent() == 0 && (state.ended || state.known == 0) {
                return Ok(());
            }
            match self.ring.wait() {
                Ok(()) => failures = 0,
                Err(error) if failures == FAILURES_MAX => return Err(error),
                Err(_) => failures += 1,
            }
            state.ended |= lane.is_up();
            while burst::run(|| self.take_some(lane, &mut state, &mut buffer, server)) {}
            self.grow(&mut state, TRAYS_FREE);
        }
    }

    /// Takes what the kernel has said, some at a time. Whether there may be more.
    fn take_some(&mut self, lane: &Lane, state: &mut State, buffer: &mut Buffer, server: &impl Serve) -> bool {
        for _ in 0..BURST_MAX {
            match self.ring.next(lane.bell.as_fd()) {
                Some(Event::Back(tray, result)) => self.back(tray, result, state, buffer, server),
                Some(_) => {}
                None => return false,
            }
        }
        true
    }

    /// The kernel gives this queue what is asked on one processor: it is answered fastest from there. A thread that
    /// was started from here would stay there, too; no step of a request starts one.
    fn stay_on_processor(&self) {
        if self.lane >= CpuSet::MAX_CPU {
            return;
        }
        let mut set = CpuSet::new();
        set.set(self.lane);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::debug!(processor = self.lane, %error, "a queue's thread runs anywhere");
        }
    }

    /// Sees to it that the kernel has `free` trays.
    fn grow(&mut self, state: &mut State, free: usize) {
        while self.ring.lent() < free && state.known < TRAYS_MAX && !state.ended && !state.refused {
            match Tray::new(self.lane, self.payload_bytes) {
                Ok(tray) => self.ring.lend(self.devices.files[0].as_fd(), tray),
                Err(_) => return,
            }
            state.known += 1;
        }
    }

    fn back(
        &mut self,
        tray: Tray,
        result: Result<(), Os>,
        state: &mut State,
        buffer: &mut Buffer,
        server: &impl Serve,
    ) {
        match result {
            Ok(()) => return self.request(tray, buffer, server),
            Err(Os::AGAIN | Os::INTR) => return self.ring.lend(self.devices.files[0].as_fd(), tray),
            Err(Os::NOTCONN | Os::CONNABORTED | Os::CANCELED) => state.ended = true,
            Err(error) if tray.commit == 0 => {
                if !state.refused {
                    tracing::warn!(%error, queue = self.lane, "the kernel refused a way for requests over io_uring");
                }
                state.refused = true;
            }
            Err(error) => tracing::warn!(unique = tray.commit, %error, "the kernel did not take a reply over io_uring"),
        }
        state.known = state.known.saturating_sub(1);
    }

    /// Hands the request in `tray` to `server`.
    fn request(&mut self, mut tray: Tray, buffer: &mut Buffer, server: &impl Serve) {
        tray.commit = word(tray.head(), abi::uring::COMMIT_AT);
        let unanswered = match gather(&tray, buffer) {
            Some(len) => take(self.devices, Way::Ring(tray), buffer, len, server),
            None => {
                tracing::error!("what the kernel sent over io_uring is no request");
                Some(Way::Ring(tray))
            }
        };
        if let Some(Way::Ring(mut tray)) = unanswered {
            let unique = tray.commit;
            answer(&mut tray, unique, -libc::EIO, &[]);
            self.ring.lend(self.devices.files[0].as_fd(), tray);
        }
    }
}

/// Puts the parts of the request in `tray` together in `buffer`, as a device gives them: its bytes.
fn gather(tray: &Tray, buffer: &mut Buffer) -> Option<usize> {
    let (head, payload) = (tray.head(), tray.payload());
    let len = number(head, 0);
    let payload = payload.get(..number(head, abi::uring::PAYLOAD_AT))?;
    let op = len.checked_sub(IN_HEADER_BYTES)?.checked_sub(payload.len())?;
    let room = buffer.room();
    if op > abi::uring::OP_BYTES || len > room.len() {
        return None;
    }
    room[..IN_HEADER_BYTES].copy_from_slice(&head[..IN_HEADER_BYTES]);
    room[IN_HEADER_BYTES..][..op].copy_from_slice(&head[abi::uring::OP_AT..][..op]);
    room[IN_HEADER_BYTES + op..len].copy_from_slice(payload);
    Some(len)
}

/// Puts the reply to request `unique` into `tray`.
pub(crate) fn answer(tray: &mut Tray, unique: u64, error: i32, body: &[u8]) {
    let fits = tray.payload().len() >= body.len();
    let (error, body) = if fits { (error, body) } else { (-libc::EIO, &[][..]) };
    if !fits {
        tracing::warn!(unique, "a reply is larger than the kernel asked for");
    }
    tray.payload_mut()[..body.len()].copy_from_slice(body);
    let head = tray.head_mut();
    head[..4].copy_from_slice(&((OUT_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..16].copy_from_slice(&unique.to_ne_bytes());
    head[abi::uring::PAYLOAD_AT..][..4].copy_from_slice(&(body.len() as u32).to_ne_bytes());
}

fn number(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_ne_bytes(bytes) as usize
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Lane, answer, burst, count, gather, number, word};
    use crate::wire::abi::{self, op};
    use crate::wire::buffer::Pool;
    use crate::wire::request::{Header, Write};
    use crate::wire::ring::Tray;

    /// A tray with a request as the kernel puts it there: header, words of its kind, payload.
    fn tray(opcode: u32, words: &[u8], payload: &[u8]) -> Tray {
        let mut tray = Tray::new(0, 1 << 20).expect("memory");
        let len = (abi::IN_HEADER_BYTES + words.len() + payload.len()) as u32;
        tray.payload_mut()[..payload.len()].copy_from_slice(payload);
        let head = tray.head_mut();
        head[..4].copy_from_slice(&len.to_ne_bytes());
        head[4..8].copy_from_slice(&opcode.to_ne_bytes());
        head[8..16].copy_from_slice(&6u64.to_ne_bytes());
        head[abi::uring::OP_AT..][..words.len()].copy_from_slice(words);
        head[abi::uring::COMMIT_AT..][..8].copy_from_slice(&6u64.to_ne_bytes());
        head[abi::uring::PAYLOAD_AT..][..4].copy_from_slice(&(payload.len() as u32).to_ne_bytes());
        tray
    }

    #[test]
    fn a_request_is_put_together_as_a_device_gives_it() {
        let mut buffer = Pool::new(1 << 20).buffer();
        let lookup = tray(op::LOOKUP, b"", b"name\0");
        let len = gather(&lookup, &mut buffer).expect("whole");
        let header = Header::parse(buffer.request(len)).expect("whole");
        assert_eq!((header.opcode, header.unique, header.body(buffer.request(len))), (op::LOOKUP, 6, &b"name\0"[..]));
        let mut words = [0; abi::WRITE_IN_BYTES];
        words[16..20].copy_from_slice(&(1u32 << 20).to_ne_bytes());
        let data = vec![7; 1 << 20];
        let len = gather(&tray(op::WRITE, &words, &data), &mut buffer).expect("the largest write has room");
        let body = Header::parse(buffer.request(len)).expect("whole").body(buffer.request(len)).to_vec();
        assert_eq!(Write::parse(&body).map(|write| write.size), Some(1 << 20));
        let taken = buffer.take_data(1 << 20);
        assert!(taken[..] == data[..] && (taken.as_ptr() as usize).is_multiple_of(4096));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let mut buffer = Pool::new(1 << 20).buffer();
        for (at, wrong) in
            [(0, 0u32), (0, 39), (0, 44), (0, 40 + 129 + 5), (0, u32::MAX), (abi::uring::PAYLOAD_AT, u32::MAX)]
        {
            let mut tray = tray(op::LOOKUP, b"", b"name\0");
            tray.head_mut()[at..at + 4].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(gather(&tray, &mut buffer), None, "{wrong} at {at}");
        }
    }

    #[test]
    fn a_reply_has_its_header_and_the_length_of_its_body() {
        let mut tray = tray(op::LOOKUP, b"", b"name\0");
        answer(&mut tray, 6, 0, b"body");
        assert_eq!((number(tray.head(), 4), word(tray.head(), 8)), (0, 6));
        assert_eq!((number(tray.head(), abi::uring::PAYLOAD_AT), &tray.payload()[..4]), (4, &b"body"[..]));
        assert_eq!(word(tray.head(), abi::uring::COMMIT_AT), 6, "it stays");
        answer(&mut tray, 6, 0, &vec![1; (1 << 20) + 1]);
        assert_eq!(tray.head()[4..8], (-libc::EIO).to_ne_bytes(), "more than the kernel has room for");
    }

    #[test]
    fn a_sleeper_is_rung_once_and_a_closed_lane_takes_nothing() {
        let lane = Arc::new(Lane::new().expect("an eventfd"));
        let (mut done, mut rung) = (Vec::new(), [0; 8]);
        assert!(!lane.collect(&mut done));
        assert!(lane.give(tray(op::LOOKUP, b"", b"a\0")) && lane.give(tray(op::LOOKUP, b"", b"b\0")));
        rustix::io::read(&lane.bell, &mut rung).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(rung), 1, "the second found it up");
        assert!(lane.collect(&mut done) && done.len() == 2 && !lane.is_up());
        assert!(lane.give(tray(op::LOOKUP, b"", b"c\0")) && rustix::io::read(&lane.bell, &mut rung).is_err());
        done.clear();
        assert!(lane.collect(&mut done));
        done.clear();
        assert!(!lane.collect(&mut done));
        burst::run(|| {
            assert!(lane.give(tray(op::LOOKUP, b"", b"d\0")) && rustix::io::read(&lane.bell, &mut rung).is_err());
        });
        rustix::io::read(&lane.bell, &mut rung).expect("it was rung at the end of the burst");
        lane.close();
        assert!(lane.is_up() && !lane.give(tray(op::LOOKUP, b"", b"e\0")));
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!((count("0"), count("0-1"), count("0-3,8,10-11")), (Some(1), Some(2), Some(7)));
        assert_eq!((count(""), count("3-1"), count("many")), (None, None, None));
    }
}
