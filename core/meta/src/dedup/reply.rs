//! The bytes of a kept answer: `version u8 | seq u64 | tag u8 | fields`.
//!
//! Version 1 had no `seq`: the number of its operation is that of its row.

use braid_base::attr::{Attr, FileType};
use braid_base::codec::{Reader, Writer};
use braid_base::ids::Ino;
use braid_base::msg::fs::Reply;
use braid_base::record::{InodeRec, Record};
use braid_base::{Error, ErrorKind, Result};

const VERSION: u8 = 2;
const WITHOUT_SEQ: u8 = 1;
const DONE: u8 = 1;
const ATTR: u8 = 2;
const ENTRY: u8 = 3;
const UNLINKED: u8 = 4;
const RENAMED: u8 = 5;
const WROTE: u8 = 6;
const FORWARDED: u8 = 7;

/// What table 41 says about an operation.
pub(super) enum Stored {
    /// It took effect here with this answer.
    Reply(Reply),
    /// The home partition runs it.
    Forwarded,
}

/// The bytes of `reply` to operation `seq`; `None` for answers of operations that may as well run again.
pub(super) fn encode(seq: u64, reply: &Reply) -> Option<Vec<u8>> {
    let mut w = Writer::with_capacity(160);
    w.put_u8(VERSION).put_u64(seq);
    match reply {
        Reply::Done => {
            w.put_u8(DONE);
        }
        Reply::Attr(attr) => put_attr(w.put_u8(ATTR), attr),
        Reply::Entry { ino, kind, attr } => {
            w.put_u8(ENTRY).put_u64(ino.0).put_u8(*kind as u8).put_u8(u8::from(attr.is_some()));
            if let Some(attr) = attr {
                put_attr(&mut w, attr);
            }
        }
        Reply::Unlinked { ino } => {
            w.put_u8(UNLINKED).put_u64(ino.0);
        }
        Reply::Renamed { moved, other } => {
            w.put_u8(RENAMED).put_u64(moved.0).put_u64(other.unwrap_or_default().0);
        }
        Reply::Wrote { off, attr } => put_attr(w.put_u8(WROTE).put_u64(*off), attr),
        _ => return None,
    }
    Some(w.finish())
}

pub(super) fn encode_forwarded(seq: u64) -> Vec<u8> {
    let mut w = Writer::with_capacity(10);
    w.put_u8(VERSION).put_u64(seq).put_u8(FORWARDED);
    w.finish()
}

/// The number of the operation whose answer stands in row `row`.
pub(super) fn seq_of(row: u64, bytes: &[u8]) -> Result<u64> {
    take_seq(row, &mut Reader::new(bytes))
}

/// Takes what stands before the tag off `r`.
fn take_seq(row: u64, r: &mut Reader<'_>) -> Result<u64> {
    if r.clone().u8()? == WITHOUT_SEQ {
        return r.u8().map(|_| row);
    }
    r.version(VERSION, "kept answer")?;
    r.u64()
}

impl Stored {
    /// What stands in row `row`, and the number of the operation that it is about.
    pub(super) fn decode(row: u64, bytes: &[u8]) -> Result<(u64, Self)> {
        let r = &mut Reader::new(bytes);
        let seq = take_seq(row, r)?;
        let reply = match r.u8()? {
            DONE => Reply::Done,
            ATTR => Reply::Attr(attr(r)?),
            ENTRY => {
                let (ino, kind, known) = (Ino(r.u64()?), kind(r)?, r.u8()? != 0);
                Reply::Entry { ino, kind, attr: known.then(|| attr(r)).transpose()? }
            }
            UNLINKED => Reply::Unlinked { ino: Ino(r.u64()?) },
            RENAMED => {
                let (moved, other) = (Ino(r.u64()?), Ino(r.u64()?));
                Reply::Renamed { moved, other: (other.0 != 0).then_some(other) }
            }
            WROTE => Reply::Wrote { off: r.u64()?, attr: attr(r)? },
            FORWARDED => return Ok((seq, Self::Forwarded)),
            other => return Err(Error::new(ErrorKind::Corrupt, format!("kept answer: unknown tag {other}"))),
        };
        Ok((seq, Self::Reply(reply)))
    }
}

/// Attributes have one form on disk, that of the inode record; its number stands before it.
fn put_attr(w: &mut Writer, attr: &Attr) {
    w.put_u64(attr.ino.0).put_bytes(&InodeRec { attr: attr.clone(), ..InodeRec::default() }.encode());
}

fn attr(r: &mut Reader<'_>) -> Result<Attr> {
    let ino = Ino(r.u64()?);
    Ok(Attr { ino, ..InodeRec::decode(r.bytes()?)?.attr })
}

fn kind(r: &mut Reader<'_>) -> Result<FileType> {
    let number = r.u8()?;
    FileType::from_u8(number).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, format!("kept answer: expected a file type 1..7, found {number}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Stored, encode, encode_forwarded, seq_of};
    use crate::drawn::{b, bytes, n};
    use braid_base::attr::{Attr, FileType, Time};
    use braid_base::ids::Ino;
    use braid_base::msg::fs::Reply;
    use braid_base::record::{InodeRec, Record};

    #[test]
    fn answers_round_trip() {
        let attr = Attr { ino: Ino(7), mode: 0o640, size: 9, mtime: Time { sec: 3, nsec: 4 }, ..Attr::default() };
        let replies = [
            Reply::Done,
            Reply::Attr(attr.clone()),
            Reply::Entry { ino: Ino(7), kind: FileType::Directory, attr: Some(attr.clone()) },
            Reply::Entry { ino: Ino(8), kind: FileType::File, attr: None },
            Reply::Unlinked { ino: Ino(9) },
            Reply::Renamed { moved: Ino(1), other: None },
            Reply::Renamed { moved: Ino(1), other: Some(Ino(2)) },
            Reply::Wrote { off: 77, attr },
        ];
        for reply in replies {
            let bytes = encode(77, &reply).expect("these are kept");
            // As an earlier release wrote it.
            let old = [&[1], &bytes[9..]].concat();
            for (bytes, seq) in [(bytes, 77), (old, 3)] {
                let Ok((found, Stored::Reply(back))) = Stored::decode(3, &bytes) else { panic!("own bytes decode") };
                assert_eq!(format!("{back:?}"), format!("{reply:?}"));
                assert_eq!((found, seq_of(3, &bytes).expect("it has one")), (seq, seq));
                assert!(Stored::decode(3, &bytes[..bytes.len() - 1]).is_err());
            }
        }
    }

    #[test]
    fn answers_are_as_drawn() {
        let attr = Attr { ino: Ino(7), mode: 0o640, size: 9, ..Attr::default() };
        let inode = InodeRec { attr: attr.clone(), ..InodeRec::default() }.encode();
        let known = [n("attr_ino", 7u8), b("inode", &inode)];
        let entry = |known: u8| vec![n("ino", 8u8), n("type", 2u8), n("known", known)];
        let (ino, kind) = (Ino(8), FileType::Directory);
        let drawn = [
            ("reply-done", vec![], Reply::Done),
            ("reply-attr", known.to_vec(), Reply::Attr(attr.clone())),
            ("reply-entry", [entry(1), known.to_vec()].concat(), Reply::Entry { ino, kind, attr: Some(attr.clone()) }),
            ("reply-entry", entry(0), Reply::Entry { ino, kind, attr: None }),
            ("reply-unlinked", vec![n("ino", 8u8)], Reply::Unlinked { ino }),
            ("reply-renamed", vec![n("moved", 8u8), n("other", 0u8)], Reply::Renamed { moved: ino, other: None }),
            ("reply-wrote", [vec![n("off", 77u8)], known.to_vec()].concat(), Reply::Wrote { off: 77, attr }),
        ];
        for (name, fields, reply) in drawn {
            let fields = [vec![n("seq", 5u64)], fields].concat();
            assert_eq!(Some(bytes(name, &fields)), encode(5, &reply), "{name}");
        }
        assert_eq!(bytes("reply-forwarded", &[n("seq", 5u64)]), encode_forwarded(5));
    }
}
