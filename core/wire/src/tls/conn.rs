//! One TLS connection without its socket: bytes that came in are decrypted where they lie, what goes out is encrypted
//! into a buffer of the caller.

use std::io::IoSlice;
use std::sync::{Mutex, PoisonError};

use braid_io::buf::AlignedBuf;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error};

use crate::limits::{PIECES_AT_ONCE, WRITE_AT_ONCE};

/// Plaintext in a record.
const RECORD: usize = 16 << 10;
/// Kept free before what is read, for the beginning of a record that came earlier.
const HEAD: usize = 20 << 10;
/// Bytes read at once.
const READ: usize = WRITE_AT_ONCE;
/// A buffer takes what was read at once, or what is written at once with all that TLS adds.
const SPAN: usize = HEAD + READ;
/// Idle buffers kept for all connections. A connection at rest has none.
const IDLE_MAX: usize = 32;

/// Alerts, key updates and handshake messages that wait; a handshake takes less than half of it.
const CONTROL_MAX: usize = 16 << 10;
/// Records of a batch: a piece can end one, and begin one of its own, besides those that are full.
const RECORDS_MAX: usize = 2 * PIECES_AT_ONCE + WRITE_AT_ONCE / RECORD;
/// What a record adds: its header, its type, its tag.
const RECORD_ADDS: usize = 5 + 1 + 16;

const _: () = assert!(RECORDS_MAX * RECORD_ADDS + WRITE_AT_ONCE + CONTROL_MAX <= SPAN);

/// The state of rustls, and the bytes that are on their way through it.
pub(super) struct Conn {
    side: Side,
    input: Input,
    /// Decrypted, and not fetched yet: the rest of a record, or what lay before a reader when something was encrypted.
    spill: Vec<u8>,
    spill_from: usize,
    /// Handshake messages, alerts, key updates: they go out before what is encrypted next.
    control: Vec<u8>,
    /// Everything in `input` was looked at; the rest is the beginning of a record.
    drained: bool,
    ended: bool,
    failed: Option<Error>,
}

pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What came of one look at the input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Something; look again.
    Moved,
    /// Nothing more to do; what is to be encrypted may be.
    Ready,
    /// The handshake waits for the other side.
    Blocked,
    /// The other side has said that it says no more.
    Ended,
}

impl Conn {
    pub(super) fn new(side: Side) -> Self {
        let (spill, control) = (Vec::new(), Vec::new());
        let (input, drained) = (Input::default(), false);
        Self { side, input, spill, spill_from: 0, control, drained, ended: false, failed: None }
    }

    /// Moves what is decrypted, then decrypts what is here, into `buf`, at most `most` bytes. 0: nothing is here.
    pub(super) fn read(&mut self, buf: &mut AlignedBuf, most: usize) -> Result<usize, Error> {
        let most = most.min(buf.capacity() - buf.len());
        let mut got = most.min(self.spill.len() - self.spill_from);
        buf.extend(&self.spill[self.spill_from..self.spill_from + got]);
        self.spill_from += got;
        if self.spill_from == self.spill.len() {
            self.spill.clear();
            self.spill.shrink_to(RECORD);
            self.spill_from = 0;
        }
        while got < most {
            let (had, room) = (buf.len(), most - got);
            let spill = &mut self.spill;
            let mut text = |bytes: &[u8]| {
                let now = bytes.len().min(room - (buf.len() - had));
                buf.extend(&bytes[..now]);
                spill.extend_from_slice(&bytes[now..]);
            };
            let turn = look(&mut self.side, &mut self.input, &mut self.control, &mut text, None);
            got += buf.len() - had;
            if self.note(turn)? != Turn::Moved {
                break;
            }
        }
        Ok(got)
    }

    /// Looks at what is here once; what it decrypts waits.
    pub(super) fn step(&mut self) -> Result<Turn, Error> {
        self.step_and(None)
    }

    fn step_and(&mut self, sealing: Option<&mut Sealing<'_>>) -> Result<Turn, Error> {
        let spill = &mut self.spill;
        let mut text = |bytes: &[u8]| spill.extend_from_slice(bytes);
        let turn = look(&mut self.side, &mut self.input, &mut self.control, &mut text, sealing);
        self.note(turn)
    }

    /// Whether [`Self::read`] has something to tell without more input.
    pub(super) fn has_more(&self) -> bool {
        !self.drained || !self.spill.is_empty() || self.ended
    }

    /// The other side says no more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Adds what was read from the socket into `buffer`.
    pub(super) fn take_in(&mut self, buffer: Buffer, got: usize) -> Result<(), Error> {
        self.drained = false;
        self.input.refill(buffer, got)
    }

    /// Encrypts `pieces` into `out`, which is empty; returns how many bytes of them it took.
    pub(super) fn seal(&mut self, pieces: &[IoSlice<'_>], out: &mut Output) -> Result<usize, Error> {
        let mut sealing = Sealing { pieces, taken: 0, close: false, out };
        self.finish(&mut sealing)?;
        Ok(sealing.taken)
    }

    /// Says that nothing more will come.
    pub(super) fn seal_end(&mut self, out: &mut Output) -> Result<(), Error> {
        self.finish(&mut Sealing { pieces: &[], taken: 0, close: true, out })
    }

    fn finish(&mut self, sealing: &mut Sealing<'_>) -> Result<(), Error> {
        // Only with everything here looked at does rustls encrypt.
        while let Turn::Moved = self.step()? {}
        self.say(sealing.out);
        match self.step_and(Some(sealing))? {
            Turn::Ready => Ok(()),
            _ => Err(Error::General("the connection has ended".to_owned())),
        }
    }

    /// Moves to `out` what waits to be said.
    pub(super) fn say(&mut self, out: &mut Output) {
        if !self.control.is_empty() {
            out.put(&self.control);
            self.control.clear();
        }
    }

    /// What both sides know of the connection.
    pub(super) fn common(&self) -> &CommonState {
        match &self.side {
            Side::Client(conn) => conn,
            Side::Server(conn) => conn,
        }
    }

    fn note(&mut self, turn: Result<Turn, Error>) -> Result<Turn, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.control.len() > CONTROL_MAX {
            return self.fail(Error::General("too much to answer".to_owned()));
        }
        match turn {
            Ok(Turn::Moved) => Ok(Turn::Moved),
            Ok(turn) => {
                self.drained = true;
                self.ended |= turn == Turn::Ended;
                Ok(turn)
            }
            Err(error) => {
                // It left an alert for the other side.
                let mut text = |_: &[u8]| {};
                while let Ok(Turn::Moved) = look(&mut self.side, &mut self.input, &mut self.control, &mut text, None) {}
                self.fail(error)
            }
        }
    }

    fn fail(&mut self, error: Error) -> Result<Turn, Error> {
        self.failed = Some(error.clone());
        Err(error)
    }
}

/// Lets rustls look at the input once.
fn look(
    side: &mut Side,
    input: &mut Input,
    control: &mut Vec<u8>,
    text: &mut dyn FnMut(&[u8]),
    sealing: Option<&mut Sealing<'_>>,
) -> Result<Turn, Error> {
    let bytes = input.bytes();
    let (discard, turn) = match side {
        Side::Client(conn) => act(conn.process_tls_records(bytes), control, text, sealing),
        Side::Server(conn) => act(conn.process_tls_records(bytes), control, text, sealing),
    };
    input.discard(discard);
    turn
}

/// Does what rustls wants; also says how many bytes of the input are done with.
fn act<D>(
    status: UnbufferedStatus<'_, '_, D>,
    control: &mut Vec<u8>,
    text: &mut dyn FnMut(&[u8]),
    sealing: Option<&mut Sealing<'_>>,
) -> (usize, Result<Turn, Error>) {
    let mut discard = status.discard;
    let turn = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    text(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Turn::Moved),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let at = control.len();
            match data.encode(&mut []) {
                Err(EncodeError::InsufficientSize(need)) => {
                    control.resize(at + need.required_size, 0);
                    match data.encode(&mut control[at..]) {
                        Ok(_) => Ok(Turn::Moved),
                        Err(error) => Err(Error::General(error.to_string())),
                    }
                }
                Ok(_) => Ok(Turn::Moved),
                Err(error) => Err(Error::General(error.to_string())),
            }
        }
        // It is in `control`, which keeps the order.
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Turn::Moved)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            sealing.map_or(Ok(()), |sealing| sealing.run(&mut traffic)).map(|()| Turn::Ready)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Turn::Blocked),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Turn::Ended),
        Ok(_) => Err(Error::General("a state that nobody asked for".to_owned())),
        Err(error) => Err(error),
    };
    (discard, turn)
}

/// What is to be encrypted.
struct Sealing<'a> {
    pieces: &'a [IoSlice<'a>],
    /// Bytes of them that were.
    taken: usize,
    close: bool,
    out: &'a mut Output,
}

impl Sealing<'_> {
    fn run<D>(&mut self, traffic: &mut WriteTraffic<'_, D>) -> Result<(), Error> {
        if self.close {
            return self.out.add(|room| traffic.queue_close_notify(room));
        }
        // Small pieces share a record: a message is a header and a few bytes as often as not.
        let mut small: Vec<u8> = Vec::new();
        for piece in self.pieces {
            let piece = &piece[..piece.len().min(WRITE_AT_ONCE - self.taken)];
            if small.len() + piece.len() > RECORD {
                self.out.add(|room| traffic.encrypt(&small, room))?;
                small.clear();
            }
            if piece.len() < RECORD {
                small.extend_from_slice(piece);
            } else {
                self.out.add(|room| traffic.encrypt(piece, room))?;
            }
            self.taken += piece.len();
        }
        self.out.add(|room| traffic.encrypt(&small, room))
    }
}

/// What came in and is not decrypted yet.
#[derive(Default)]
struct Input {
    buffer: Option<Buffer>,
    from: usize,
    to: usize,
}

impl Input {
    fn bytes(&mut self) -> &mut [u8] {
        let (from, to) = (self.from, self.to);
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer.0[from..to])
    }

    fn discard(&mut self, count: usize) {
        self.from += count;
        assert!(self.from <= self.to, "rustls discards what it was given");
        if self.from == self.to {
            *self = Self::default();
        }
    }

    /// What is left goes before what was read.
    fn refill(&mut self, mut buffer: Buffer, got: usize) -> Result<(), Error> {
        let left = self.bytes();
        let Some(from) = HEAD.checked_sub(left.len()) else {
            return Err(Error::General("a handshake message is too long".to_owned()));
        };
        buffer.0[from..HEAD].copy_from_slice(left);
        *self = Self { buffer: Some(buffer), from, to: HEAD + got };
        Ok(())
    }
}

/// What is encrypted and not written yet.
#[derive(Default)]
pub(super) struct Output {
    buffer: Option<Buffer>,
    from: usize,
    to: usize,
}

impl Output {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.0[self.from..self.to])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// So many bytes were written.
    pub(super) fn written(&mut self, count: usize) {
        self.from += count;
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let room = self.room();
        room[..bytes.len()].copy_from_slice(bytes);
        self.to += bytes.len();
    }

    fn add(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<usize, EncryptError>) -> Result<(), Error> {
        let added = fill(self.room()).map_err(|error| Error::General(error.to_string()))?;
        self.to += added;
        Ok(())
    }

    fn room(&mut self) -> &mut [u8] {
        let to = self.to;
        &mut self.buffer.get_or_insert_with(Buffer::take).0[to..]
    }
}

/// Memory for one direction of a connection while something is under way there. Recycled.
pub(super) struct Buffer(Vec<u8>);

static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Buffer {
    pub(super) fn take() -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(idle.unwrap_or_else(|| vec![0; SPAN]))
    }

    /// Where to read into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.0[HEAD..]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(bytes);
        }
    }
}
