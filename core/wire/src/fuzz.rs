//! Every message that may come in, changed in every way that chance finds: no panic, no more memory than the bytes are
//! worth, an error of the one kind; and what is a message in spite of it goes there and back.
//!
//! `BRAID_FUZZ_RUNS=100` tries a hundred times as much, `BRAID_FUZZ_SEED` other changes.

use std::fmt::Debug;

use braid_base::ids::{PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::host::{HostOp, HostResult};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind};
use braid_io::buf::gather;
use braid_io::chance::Rng;
use braid_replica::replica::event::Msg;
use bytes::Bytes;

use crate::codec::{Encoded, Field, Message};
use crate::frame::{HEADER, Header, Kind};
use crate::hello::{Hello, Welcome};
use crate::intake::Intake;
use crate::limits::{DATA_MAX, HELLO_MAX, META_MAX, READ_AT_ONCE};

/// Inputs of one message in one run.
const INPUTS: u64 = 3_000;
/// Bytes behind a list that lies about its length.
const TAIL: usize = 1 << 20;
/// Memory that a message may take for each of its bytes: an empty name in a list is four bytes, and a `Vec` of 24 whose
/// list may have twice the room it needs, after it was copied from one of half the size.
const WORTH: usize = 64;

/// One type of message.
struct Subject {
    name: &'static str,
    any: fn(&mut Rng) -> (Vec<u8>, Bytes),
    /// Decodes it, and tries what came of it.
    decode: fn(&[u8], Bytes) -> Option<Error>,
}

fn subject<M: Field + Debug>(name: &'static str) -> Subject {
    let any = |rng: &mut Rng| {
        let value = M::any(rng);
        let Encoded { meta, data } = value.encode();
        let back = M::decode(&meta, gather(&data)).expect("own bytes decode");
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
        (meta, gather(&data))
    };
    let decode = |meta: &[u8], data: Bytes| match M::decode(meta, data) {
        Ok(value) => {
            let there = value.encode();
            let back = M::decode(&there.meta, gather(&there.data)).expect("own bytes decode").encode();
            assert!(there.meta == back.meta && gather(&there.data) == gather(&back.data), "{value:?}");
            None
        }
        Err(error) => Some(error),
    };
    Subject { name, any, decode }
}

/// What frames of each kind carry. A new kind does not compile until it says so here.
fn carried_by(kind: Kind) -> Vec<Subject> {
    match kind {
        Kind::Hello => vec![subject::<Hello>("hello")],
        Kind::Welcome => vec![subject::<Welcome>("welcome")],
        Kind::AskPartition => vec![subject::<(Term, Request)>("request")],
        Kind::AskDrive => vec![subject::<DriveOp>("drive operation")],
        Kind::Answer => vec![
            subject::<Answer>("answer of a partition"),
            subject::<DriveResult>("answer of a drive"),
            subject::<HostResult>("answer of a host"),
        ],
        // Nobody looks at what they carry.
        Kind::Ping | Kind::Pong | Kind::Carried => vec![],
        Kind::Push => vec![subject::<Push>("push")],
        Kind::AskHost => vec![subject::<HostOp>("question to a host")],
        Kind::Replica => vec![subject::<Msg>("message of a replica")],
        Kind::Peer => vec![subject::<(PartitionId, PeerMsg)>("message of a partition")],
    }
}

fn kinds() -> Vec<Kind> {
    (0..=u8::MAX).filter_map(Kind::from_u8).collect()
}

fn subjects() -> Vec<Subject> {
    kinds().into_iter().flat_map(carried_by).collect()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

pub(crate) fn runs() -> u64 {
    number("BRAID_FUZZ_RUNS", 1)
}

pub(crate) fn chance() -> Rng {
    Rng::new(number("BRAID_FUZZ_SEED", 4711))
}

/// Numbers at which lengths and counts go wrong.
fn extreme(rng: &mut Rng, len: usize) -> u64 {
    let len = len as u64;
    [0, 1, len, len + 1, len.wrapping_sub(4), 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX), u64::MAX]
        [rng.index(12)]
}

/// Changes `bytes` somewhere.
pub(crate) fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.index(bytes.len().max(1)).min(bytes.len());
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.extend((0..rng.below(40)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>()),
        2 => drop(bytes.splice(at..at, [0; 4])),
        3 => drop(bytes.drain(at..(at + 1 + rng.index(8)).min(bytes.len()))),
        4 | 5 => {
            let (value, wide) = (extreme(rng, bytes.len()), rng.chance(1, 4));
            let end = (at + if wide { 8 } else { 4 }).min(bytes.len());
            let len = end - at;
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        6 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = rng.next_u64() as u8),
        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
    }
}

pub(crate) fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(most) as usize];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn every_message_changed_in_any_way_is_corrupt_or_another_message() {
    let mut rng = chance();
    for Subject { name, any, decode } in subjects() {
        let (mut wrong, mut right) = (0_u64, 0_u64);
        for _ in 0..runs() * INPUTS {
            let (mut meta, mut data) = any(&mut rng);
            match rng.below(10) {
                0 => meta = noise(&mut rng, 200),
                // The rest of another one.
                1 => {
                    let other = any(&mut rng).0;
                    meta.truncate(rng.index(meta.len() + 1));
                    meta.extend_from_slice(&other[rng.index(other.len() + 1)..]);
                }
                2 => data = Bytes::from(noise(&mut rng, 6000)),
                3 => data = data.slice(..rng.index(data.len() + 1)),
                _ => (0..=rng.below(3)).for_each(|_| change(&mut rng, &mut meta)),
            }
            match decode(&meta, data) {
                Some(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
                    wrong += 1;
                }
                None => right += 1,
            }
        }
        assert!(wrong > 0 && right > 0, "{name}: {wrong} were refused and {right} taken: nothing was tried");
    }
}

/// Peak of the address space of this process, bytes: memory that was asked for counts, whether it was touched or not.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).expect("it tells its peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// In a process of its own: the peak is that of all threads, and never falls.
#[test]
fn a_list_that_lies_about_its_length_takes_no_more_than_its_bytes_are_worth() {
    const ALONE: &str = "BRAID_FUZZ_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "fuzz::a_list_that_lies_about_its_length_takes_no_more_than_its_bytes_are_worth";
        let again = std::env::current_exe().expect("this program");
        let args = ["--exact", name, "--nocapture", "--test-threads", "1"];
        let done = std::process::Command::new(again).args(args).env(ALONE, "1").output().expect("it starts");
        let words = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && words.contains("1 passed"), "{words}");
        return;
    }
    let mut rng = chance();
    for Subject { name, any, decode } in subjects() {
        for _ in 0..runs() * 40 {
            let (meta, _) = any(&mut rng);
            // Any four bytes may be a count.
            let at = rng.index(meta.len().saturating_sub(3).max(1));
            let mut lie = meta[..at].to_vec();
            let count = [u32::MAX, TAIL as u32, 1 << 24][rng.index(3)];
            lie.extend_from_slice(&count.to_le_bytes());
            let filler = [0, 1, rng.next_u64() as u8][rng.index(3)];
            lie.resize(lie.len() + TAIL, filler);
            let before = peak_bytes();
            let _ = decode(&lie, Bytes::new());
            let taken = peak_bytes() - before;
            assert!(taken <= WORTH * TAIL, "{name}: {taken} bytes for {} bytes, a count at {at}", lie.len());
        }
    }
}

/// The header, with a checksum that fits whatever it says.
fn sealed(mut head: [u8; HEADER]) -> [u8; HEADER] {
    let crc = braid_base::crc::crc32c(&head[..HEADER - 4]);
    head[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    head
}

fn any_kind(rng: &mut Rng) -> Kind {
    let all = kinds();
    all[rng.index(all.len())]
}

fn frame(rng: &mut Rng) -> Vec<u8> {
    let kind = any_kind(rng);
    let (meta, data) = carried_by(kind).first().map(|subject| (subject.any)(rng)).unwrap_or_default();
    let message = Encoded { meta, data: vec![data] };
    let header = Header::of(kind, rng.next_u64(), rng.next_u64() as u32, &message, rng.chance(1, 2));
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(&message.meta);
    bytes.extend_from_slice(&message.data[0]);
    bytes
}

#[test]
fn a_header_of_any_bytes_is_corrupt_or_within_the_limits() {
    let mut rng = chance();
    let (mut wrong, mut right) = (0, 0);
    for _ in 0..runs() * 20 * INPUTS {
        let kind = any_kind(&mut rng);
        let mut bytes = Header::of(kind, rng.next_u64(), 7, &Encoded::default(), false).encode().to_vec();
        match rng.below(4) {
            0 => rng.fill(&mut bytes),
            1 => bytes[20 + 4 * rng.index(2)..][..4].copy_from_slice(&extreme(&mut rng, META_MAX).to_le_bytes()[..4]),
            _ => (0..=rng.below(3)).for_each(|_| change(&mut rng, &mut bytes)),
        }
        bytes.resize(HEADER, 0);
        let head = bytes.try_into().expect("it was made so long");
        match Header::decode(&if rng.chance(7, 8) { sealed(head) } else { head }) {
            Ok(header) => {
                right += 1;
                assert!(header.meta_len as usize <= META_MAX && header.data_len as usize <= DATA_MAX);
                assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
            Err(error) => {
                wrong += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            }
        }
    }
    assert!(wrong > 0 && right > 0, "{wrong} were refused and {right} taken: nothing was tried");
}

#[test]
fn a_stream_of_frames_changed_anywhere_gives_those_before_and_then_ends() {
    let mut rng = chance();
    let mut cut_short = 0;
    for round in 0..runs() * INPUTS / 4 {
        let known = rng.chance(3, 4);
        let frames: Vec<Vec<u8>> = (0..4).map(|_| frame(&mut rng)).collect();
        let mut bytes = frames.concat();
        let at = rng.index(bytes.len());
        let mut rest = bytes.split_off(at);
        change(&mut rng, &mut rest);
        bytes.extend_from_slice(&rest);
        let whole = frames.iter().scan(0, |end, frame| Some(*end + frame.len()).inspect(|next| *end = *next));
        let whole = whole.take_while(|end| *end <= at).count();
        let mut intake = Intake::new();
        if known {
            intake.trust();
        }
        let (mut seen, mut left) = (0, &bytes[..]);
        let ended = loop {
            match intake.next() {
                Ok(Some(frame)) => {
                    seen += 1;
                    assert!(known || frame.header.frame_len() <= HELLO_MAX);
                    continue;
                }
                Err(error) => break Some(error),
                Ok(None) if left.is_empty() => break None,
                Ok(None) => {}
            }
            let (buf, room) = intake.room();
            // Who is not known yet gets no more memory than a handshake takes.
            assert!(room > 0 && (known || buf.capacity() <= 2 * READ_AT_ONCE), "round {round}");
            let (now, later) = left.split_at(room.min(1 + rng.index(20_000)).min(left.len()));
            buf.extend(now);
            left = later;
        };
        if let Some(error) = &ended {
            cut_short += 1;
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        assert!(!known || seen >= whole, "round {round}: {seen} of {whole} frames before the change at {at}");
    }
    assert!(cut_short > 0, "no change was found");
}
