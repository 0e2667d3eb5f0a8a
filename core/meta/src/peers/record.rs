//! Stored forms: promises (table 30), decisions (31), notes on the way (32).

use braid_base::attr::{Attr, FileType, Time};
use braid_base::codec::{Reader, Writer};
use braid_base::ids::{ClientId, FsId, Ino, OpId, PartitionId};
use braid_base::msg::peer::{Intent, NewDir, Note};
use braid_base::record::{InodeRec, Record};
use braid_base::{Error, ErrorKind, Result};

/// What a participant has promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingRec {
    pub(crate) fs: FsId,
    pub(crate) intents: Vec<Intent>,
}

/// What was decided, until every participant has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeRec {
    pub(crate) commit: bool,
    /// It moves a directory: the next such move waits for it.
    pub(crate) moves: bool,
    pub(crate) participants: Vec<PartitionId>,
}

/// A note that its receiver has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoteRec {
    /// The operation whose answer waits for it.
    pub(crate) op: OpId,
    pub(crate) fs: FsId,
    pub(crate) note: Note,
}

const CLEAR: u8 = 1;
const SET: u8 = 2;
const MAKE_DIR: u8 = 3;
const LINK: u8 = 4;
const REMOVE_DIR: u8 = 5;
const REPARENT: u8 = 6;
const WANTED: u8 = 7;

const UNLINKED: u8 = 1;
const RENAMED: u8 = 2;

impl Record for PendingRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(64);
        w.put_u8(1).put_u32(self.fs.0).put_u32(self.intents.len() as u32);
        for intent in &self.intents {
            put_intent(&mut w, intent);
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "promise")?;
        let fs = FsId(r.u32()?);
        let count = r.u32()?;
        Ok(Self { fs, intents: (0..count).map(|_| intent(r)).collect::<Result<_>>()? })
    }
}

impl Record for OutcomeRec {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(16);
        w.put_u8(1).put_u8(u8::from(self.commit)).put_u8(u8::from(self.moves));
        w.put_u16(self.participants.len() as u16);
        for participant in &self.participants {
            w.put_u16(participant.0);
        }
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "decision")?;
        let (commit, moves, count) = (r.u8()? != 0, r.u8()? != 0, r.u16()?);
        let participants = (0..count).map(|_| Ok(PartitionId(r.u16()?))).collect::<Result<_>>()?;
        Ok(Self { commit, moves, participants })
    }
}

impl Record for NoteRec {
    fn encode(&self) -> Vec<u8> {
        let (tag, ino, at) = match self.note {
            Note::Unlinked { ino, at } => (UNLINKED, ino, at),
            Note::Renamed { ino, at } => (RENAMED, ino, at),
        };
        let mut w = Writer::with_capacity(48);
        w.put_u8(1).put_u64(self.op.client.0).put_u64(self.op.seq).put_u32(self.fs.0);
        w.put_u8(tag).put_u64(ino.0).put_i64(at.sec).put_u32(at.nsec);
        w.finish()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let r = &mut Reader::new(bytes);
        r.version(1, "note")?;
        let op = OpId { client: ClientId(r.u64()?), seq: r.u64()? };
        let (fs, tag, ino) = (FsId(r.u32()?), r.u8()?, Ino(r.u64()?));
        let at = Time { sec: r.i64()?, nsec: r.u32()? };
        let note = match tag {
            UNLINKED => Note::Unlinked { ino, at },
            RENAMED => Note::Renamed { ino, at },
            other => return Err(unknown("note", other)),
        };
        Ok(Self { op, fs, note })
    }
}

fn put_intent(w: &mut Writer, intent: &Intent) {
    match intent {
        Intent::Clear { dir, name, ino, kind } => {
            w.put_u8(CLEAR).put_u64(dir.0).put_bytes(name);
            put_entry(w, *ino, *kind);
        }
        Intent::Set { dir, name, old, ino, kind } => {
            w.put_u8(SET).put_u64(dir.0).put_bytes(name).put_u8(u8::from(old.is_some()));
            if let Some((ino, kind)) = old {
                put_entry(w, *ino, *kind);
            }
            put_entry(w, *ino, *kind);
        }
        Intent::MakeDir(dir) => {
            w.put_u8(MAKE_DIR).put_u64(dir.ino.0);
            let inode =
                InodeRec { attr: dir.attr.clone(), parent: dir.parent, quota: dir.quota, ..InodeRec::default() };
            w.put_bytes(&inode.encode()).put_u32(dir.xattrs.len() as u32);
            for (name, value) in &dir.xattrs {
                w.put_bytes(name).put_bytes(value);
            }
        }
        Intent::Link { ino, quota } => {
            w.put_u8(LINK).put_u64(ino.0).put_u64(*quota);
        }
        Intent::RemoveDir { ino } => {
            w.put_u8(REMOVE_DIR).put_u64(ino.0);
        }
        Intent::Reparent { ino, from, to } => {
            w.put_u8(REPARENT).put_u64(ino.0).put_u64(from.0).put_u64(to.0);
        }
        Intent::Wanted { op } => {
            w.put_u8(WANTED).put_u64(op.client.0).put_u64(op.seq);
        }
    }
}

fn intent(r: &mut Reader<'_>) -> Result<Intent> {
    Ok(match r.u8()? {
        CLEAR => {
            let (dir, name) = (Ino(r.u64()?), r.bytes()?.to_vec());
            let (ino, kind) = entry(r)?;
            Intent::Clear { dir, name, ino, kind }
        }
        SET => {
            let (dir, name, has_old) = (Ino(r.u64()?), r.bytes()?.to_vec(), r.u8()? != 0);
            let old = has_old.then(|| entry(r)).transpose()?;
            let (ino, kind) = entry(r)?;
            Intent::Set { dir, name, old, ino, kind }
        }
        MAKE_DIR => {
            let (ino, inode, count) = (Ino(r.u64()?), InodeRec::decode(r.bytes()?)?, r.u32()?);
            let xattrs = (0..count).map(|_| Ok((r.bytes()?.to_vec(), r.bytes()?.to_vec()))).collect::<Result<_>>()?;
            let attr = Attr { ino, ..inode.attr };
            Intent::MakeDir(Box::new(NewDir { ino, attr, parent: inode.parent, quota: inode.quota, xattrs }))
        }
        LINK => Intent::Link { ino: Ino(r.u64()?), quota: r.u64()? },
        REMOVE_DIR => Intent::RemoveDir { ino: Ino(r.u64()?) },
        REPARENT => Intent::Reparent { ino: Ino(r.u64()?), from: Ino(r.u64()?), to: Ino(r.u64()?) },
        WANTED => Intent::Wanted { op: OpId { client: ClientId(r.u64()?), seq: r.u64()? } },
        other => return Err(unknown("intent", other)),
    })
}

fn put_entry(w: &mut Writer, ino: Ino, kind: FileType) {
    w.put_u64(ino.0).put_u8(kind as u8);
}

fn entry(r: &mut Reader<'_>) -> Result<(Ino, FileType)> {
    let (ino, number) = (Ino(r.u64()?), r.u8()?);
    Ok((ino, FileType::from_u8(number).ok_or_else(|| unknown("file type", number))?))
}

fn unknown(what: &str, found: u8) -> Error {
    Error::new(ErrorKind::Corrupt, format!("operation across partitions: unknown {what} {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{Value, b, bytes, n};

    fn round_trip<R: Record + PartialEq + std::fmt::Debug>(record: &R) {
        let bytes = record.encode();
        assert_eq!(&R::decode(&bytes).expect("own bytes decode"), record);
        for cut in 0..bytes.len() {
            assert!(R::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn stored_forms_round_trip_and_refuse_cut_bytes() {
        let (dir, name, kind) = (Ino(3), b"name".to_vec(), FileType::Symlink);
        let attr = Attr { ino: Ino(4), kind: FileType::Directory, mode: 0o755, nlink: 2, ..Attr::default() };
        let xattrs = vec![(b"user.a".to_vec(), b"1".to_vec())];
        let intents = vec![
            Intent::Clear { dir, name: name.clone(), ino: Ino(4), kind },
            Intent::Set { dir, name: name.clone(), old: None, ino: Ino(4), kind },
            Intent::Set { dir, name, old: Some((Ino(5), FileType::File)), ino: Ino(4), kind },
            Intent::MakeDir(Box::new(NewDir { ino: Ino(4), attr, parent: dir, quota: 6, xattrs })),
            Intent::Link { ino: Ino(4), quota: 7 },
            Intent::RemoveDir { ino: Ino(4) },
            Intent::Reparent { ino: Ino(4), from: Ino(5), to: Ino(6) },
            Intent::Wanted { op: OpId { client: ClientId(8), seq: 9 } },
        ];
        round_trip(&PendingRec { fs: FsId(1), intents });
        let participants = vec![PartitionId(1), PartitionId(7)];
        round_trip(&OutcomeRec { commit: true, moves: true, participants });
        let at = Time { sec: 5, nsec: 6 };
        let op = OpId { client: ClientId(8), seq: 9 };
        round_trip(&NoteRec { op, fs: FsId(1), note: Note::Unlinked { ino: Ino(4), at } });
        round_trip(&NoteRec { op, fs: FsId(1), note: Note::Renamed { ino: Ino(4), at } });
    }

    /// Name of the drawn layout, its fields, and the intent they draw.
    type Drawn = (&'static str, Vec<(String, Value)>, Intent);

    fn intents() -> Vec<Drawn> {
        let (dir, name, kind) = (Ino(3), b"name".to_vec(), FileType::Symlink);
        let attr = Attr { ino: Ino(4), mode: 0o755, ..Attr::default() };
        let inode = InodeRec { attr: attr.clone(), parent: dir, quota: 6, ..InodeRec::default() }.encode();
        let xattrs = vec![(b"user.a".to_vec(), b"1".to_vec())];
        let (d, f, i, t) = (n("dir", 3u8), b("name", b"name"), n("ino", 4u8), n("type", 3u8));
        let set = |old: Option<(Ino, FileType)>| Intent::Set { dir, name: name.clone(), old, ino: Ino(4), kind };
        let mut replacing = vec![d.clone(), f.clone(), n("replaces", 1u8), n("old_ino", 5u8), n("old_type", 1u8)];
        replacing.extend([i.clone(), t.clone()]);
        let made = vec![i.clone(), b("inode", &inode), n("count", 1u8), b("xattr", b"user.a"), b("value", b"1")];
        let make_dir = Intent::MakeDir(Box::new(NewDir { ino: Ino(4), attr, parent: dir, quota: 6, xattrs }));
        let reparent = Intent::Reparent { ino: Ino(4), from: Ino(5), to: Ino(6) };
        let wanted = Intent::Wanted { op: OpId { client: ClientId(8), seq: 9 } };
        let clear = Intent::Clear { dir, name: name.clone(), ino: Ino(4), kind };
        vec![
            ("intent-clear", vec![d.clone(), f.clone(), i.clone(), t.clone()], clear),
            ("intent-set", vec![d, f, n("replaces", 0u8), i.clone(), t], set(None)),
            ("intent-set", replacing, set(Some((Ino(5), FileType::File)))),
            ("intent-make-dir", made, make_dir),
            ("intent-link", vec![i.clone(), n("quota", 7u8)], Intent::Link { ino: Ino(4), quota: 7 }),
            ("intent-remove-dir", vec![i.clone()], Intent::RemoveDir { ino: Ino(4) }),
            ("intent-reparent", vec![i, n("from", 5u8), n("to", 6u8)], reparent),
            ("intent-wanted", vec![n("client", 8u8), n("seq", 9u8)], wanted),
        ]
    }

    #[test]
    fn stored_forms_are_as_drawn() {
        for (name, fields, intent) in intents() {
            let fields = [n("fs", 1u8), n("count", 1u8), b("intents", &bytes(name, &fields))];
            let record = PendingRec { fs: FsId(1), intents: vec![intent] };
            assert_eq!(bytes("pending", &fields), record.encode(), "{name}");
        }
        let participants = vec![PartitionId(1), PartitionId(7)];
        let fields = [n("commit", 0u8), n("moves", 1u8), n("count", 2u8), n("participant", 1u8), n("participant", 7u8)];
        assert_eq!(bytes("outcome", &fields), OutcomeRec { commit: false, moves: true, participants }.encode());
        let (at, op) = (Time { sec: -5, nsec: 6 }, OpId { client: ClientId(8), seq: 9 });
        let ino = Ino(4);
        for (tag, note) in [(1u8, Note::Unlinked { ino, at }), (2, Note::Renamed { ino, at })] {
            let mut fields = vec![n("client", 8u8), n("seq", 9u8), n("fs", 1u8), n("tag", tag), n("ino", 4u8)];
            fields.extend([n("at_s", -5i64 as u64), n("at_ns", 6u8)]);
            assert_eq!(bytes("note", &fields), NoteRec { op, fs: FsId(1), note }.encode());
        }
    }
}
