//! Bytes in, frames out.
//!
//! Small frames are cut out of one buffer that is used again and again. The data part of a large one is received
//! straight into aligned memory of its own, so that a drive can write it, or a program get it, without another copy.

use braid_base::{Error, ErrorKind, Result};
use braid_io::buf::AlignedBuf;
use bytes::Bytes;

use crate::frame::{Frame, HEADER, Header};
use crate::limits::{BULK_MIN, HELLO_MAX, READ_AT_ONCE};

/// What was received and is no frame yet.
pub(crate) struct Intake {
    /// Bytes from the start of a frame on; `from` of them were taken.
    buf: AlignedBuf,
    from: usize,
    /// A frame whose data part is being received.
    large: Option<Large>,
    /// Bytes that the next frame needs in `buf`, as far as is known.
    wanted: usize,
    /// No frame may be longer.
    frame_max: usize,
}

struct Large {
    header: Header,
    meta: Bytes,
    data: AlignedBuf,
}

impl Intake {
    /// Nothing yet; frames may be as long as a handshake.
    pub(crate) fn new() -> Self {
        Self { buf: AlignedBuf::with_capacity(READ_AT_ONCE), from: 0, large: None, wanted: 0, frame_max: HELLO_MAX }
    }

    /// The other side is known: frames of any size.
    pub(crate) fn trust(&mut self) {
        self.frame_max = usize::MAX;
    }

    /// The other side is known, and sends no frames longer than this.
    pub(crate) fn trust_up_to(&mut self, bytes: usize) {
        self.frame_max = bytes;
    }

    /// Bytes without which no frame can be taken: many only where the data part of a large one is under way.
    pub(crate) fn awaited(&self) -> usize {
        self.large.as_ref().map_or(1, |large| large.header.data_len as usize - large.data.len())
    }

    /// Where the next bytes belong, and how many at most. Call [`Self::next`] until it has none first.
    pub(crate) fn room(&mut self) -> (&mut AlignedBuf, usize) {
        if let Some(large) = &mut self.large {
            let most = large.header.data_len as usize - large.data.len();
            return (&mut large.data, most);
        }
        if self.from > 0 {
            self.buf.consume(self.from);
            self.from = 0;
        }
        let most = self.wanted.max(READ_AT_ONCE) - self.buf.len();
        (&mut self.buf, most)
    }

    /// The next whole frame, checked. `Corrupt`: what came is none, and nothing after it can be read either.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>> {
        if let Some(large) = self.large.take_if(|large| large.data.len() == large.header.data_len as usize) {
            let (header, meta, data) = (large.header, large.meta, large.data.into_bytes());
            header.check(&meta, &data)?;
            return Ok(Some(Frame { header, meta, data }));
        }
        let rest = &self.buf[self.from..];
        let (None, Some(head)) = (&self.large, rest.first_chunk::<HEADER>()) else { return Ok(None) };
        let header = Header::decode(head)?;
        if header.frame_len() > self.frame_max {
            let words =
                format!("frames have at most {} bytes here, one of {} came", self.frame_max, header.frame_len());
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        let (meta_end, data_len) = (HEADER + header.meta_len as usize, header.data_len as usize);
        let in_one = if data_len < BULK_MIN { header.frame_len() } else { meta_end };
        if rest.len() < in_one {
            self.make_room(in_one);
            return Ok(None);
        }
        self.wanted = 0;
        let meta = Bytes::copy_from_slice(&rest[HEADER..meta_end]);
        if data_len < BULK_MIN {
            let data = aligned(&rest[meta_end..meta_end + data_len]);
            self.from += in_one;
            header.check(&meta, &data)?;
            return Ok(Some(Frame { header, meta, data }));
        }
        let here = data_len.min(rest.len() - meta_end);
        let mut data = AlignedBuf::with_capacity(data_len);
        data.extend(&rest[meta_end..meta_end + here]);
        self.from += meta_end + here;
        self.large = Some(Large { header, meta, data });
        self.next()
    }

    /// Makes room for a frame of `bytes` bytes; a buffer that grew for one long frame shrinks again later.
    fn make_room(&mut self, bytes: usize) {
        self.wanted = bytes;
        let wanted = bytes.max(READ_AT_ONCE);
        if self.buf.capacity() < wanted || (self.buf.capacity() > 4 * READ_AT_ONCE && wanted == READ_AT_ONCE) {
            let mut buf = AlignedBuf::with_capacity(wanted);
            let rest = self.buf.len() - self.from;
            if rest <= buf.capacity() {
                buf.extend(&self.buf[self.from..]);
                (self.buf, self.from) = (buf, 0);
            }
        }
    }
}

fn aligned(bytes: &[u8]) -> Bytes {
    if bytes.is_empty() { Bytes::new() } else { AlignedBuf::copy_of(bytes).into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::Intake;
    use crate::codec::Encoded;
    use crate::frame::{Header, Kind};
    use braid_base::ErrorKind;
    use braid_io::buf::is_aligned;
    use braid_io::chance::Rng;
    use bytes::Bytes;

    fn frame(id: u64, meta: usize, data: usize) -> Vec<u8> {
        let message = Encoded { meta: vec![id as u8; meta], data: vec![Bytes::from(vec![!id as u8; data])] };
        let mut bytes = Header::of(Kind::Answer, id, 0, &message, true).encode().to_vec();
        bytes.extend_from_slice(&message.meta);
        message.data.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// Puts as much of `bytes` as there is room for, at most `most`.
    fn feed(intake: &mut Intake, bytes: &mut &[u8], most: usize) {
        let (buf, room) = intake.room();
        assert!(room > 0, "there is always room after the frames were taken");
        let (now, rest) = bytes.split_at(room.min(most).min(bytes.len()));
        buf.extend(now);
        *bytes = rest;
    }

    #[test]
    fn frames_come_out_whole_however_they_come_in() {
        let mut rng = Rng::new(3);
        for round in 0..30 {
            let sizes: Vec<(usize, usize)> = (0..20)
                .map(|_| match rng.below(8) {
                    0 => (rng.below(300_000) as usize, 0),
                    1 => (10, 32_768 + rng.below(1 << 20) as usize),
                    2 => (10, 32_767),
                    _ => (rng.below(200) as usize, rng.below(5000) as usize),
                })
                .collect();
            let whole: Vec<u8> = sizes.iter().zip(1..).flat_map(|((meta, data), id)| frame(id, *meta, *data)).collect();
            let (mut intake, mut rest, mut seen) = (Intake::new(), &whole[..], 0);
            intake.trust();
            while seen < sizes.len() {
                feed(&mut intake, &mut rest, if round % 2 == 0 { 1 + rng.below(100_000) as usize } else { usize::MAX });
                while let Some(frame) = intake.next().expect("good frames") {
                    let (meta, data) = sizes[seen];
                    seen += 1;
                    assert_eq!((frame.header.id, frame.meta.len(), frame.data.len()), (seen as u64, meta, data));
                    assert!(
                        frame.meta.iter().all(|b| *b == seen as u8) && frame.data.iter().all(|b| *b == !seen as u8)
                    );
                    assert!(data == 0 || is_aligned(&frame.data));
                }
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn noise_and_changed_bytes_are_corrupt_and_strangers_are_short() {
        let good = frame(5, 100, 40_000);
        for at in (0..164).step_by(3).chain([200, 30_000]) {
            let mut wrong = good.clone();
            wrong[at] ^= 0x40;
            let (mut intake, mut rest) = (Intake::new(), &wrong[..]);
            intake.trust();
            let found = loop {
                feed(&mut intake, &mut rest, usize::MAX);
                match intake.next() {
                    Ok(None) if !rest.is_empty() => {}
                    end => break end.map(|frame| frame.is_some()),
                }
            };
            assert_eq!(found.map_err(|e| e.kind()), Err(ErrorKind::Corrupt), "byte {at}");
        }
        let (mut intake, mut rest) = (Intake::new(), &good[..]);
        feed(&mut intake, &mut rest, usize::MAX);
        assert_eq!(intake.next().map_err(|e| e.kind()).err(), Some(ErrorKind::Corrupt), "too long for a handshake");
    }
}
