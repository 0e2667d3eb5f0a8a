//! Client <-> partition.

use braid_base::Result;
use braid_base::ids::Term;
use braid_base::msg::fs::{
    Ages, Cred, DirEntry, FallocMode, Laid, Layout, LockKind, LockSpec, Op, RenameMode, Reply, Request, Residency,
    TierWant, Told, XattrMode,
};

use super::{Encoded, Field, In, Out, wire_enum, wire_struct};

/// A request and the term that it is meant for.
pub(crate) fn encode_request(term: Term, request: &Request) -> Encoded {
    let mut out = Out::new();
    term.put(&mut out);
    request.put(&mut out);
    out.finish()
}

/// Who asks over a socket does not fall with the host: its answers wait until what they tell of is durable. That it
/// might be otherwise cannot even be said.
impl Field for Request {
    fn put(&self, out: &mut Out) {
        let Self { op, session, done_upto, fs, cred, early: _, body } = self;
        op.put(out);
        session.put(out);
        done_upto.put(out);
        fs.put(out);
        cred.put(out);
        body.put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        Ok(Self {
            op: Field::take(from)?,
            session: Field::take(from)?,
            done_upto: Field::take(from)?,
            fs: Field::take(from)?,
            cred: Field::take(from)?,
            early: false,
            body: Field::take(from)?,
        })
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        Self {
            op: Field::any(rng),
            session: Field::any(rng),
            done_upto: Field::any(rng),
            fs: Field::any(rng),
            cred: Field::any(rng),
            early: false,
            body: Field::any(rng),
        }
    }
}

wire_struct!(Laid { at, epoch, len });
wire_struct!(Told { ino, at });
wire_struct!(Cred { uid, gid });
wire_struct!(LockSpec { owner, pid, start, end, kind, flock });
wire_enum!(LockKind, "lock kind" { 1 = Read, 2 = Write, 3 = Unlock });
wire_enum!(RenameMode, "rename mode" { 1 = Replace, 2 = NoReplace, 3 = Exchange });
wire_enum!(XattrMode, "attribute mode" { 1 = Any, 2 = Create, 3 = Replace });
wire_enum!(FallocMode, "allocation mode" { 1 = Allocate, 2 = Punch, 3 = Zero });
wire_struct!(DirEntry { ino, kind, cookie, name, attr });
wire_struct!(Layout { size, extents, packs, inline, fresh_ms });
wire_struct!(Residency { write_cache, read_cache, object, ages, next });
wire_struct!(Ages { now_s, unmerged, fresh_s, copied_s, read_s, lost, leaving });
wire_enum!(TierWant, "place to be" { 1 = Flash, 2 = Object });

wire_enum!(Op, "operation" {
    1 = Lookup { dir, name },
    2 = GetAttr { ino },
    3 = SetAttr { ino, set },
    4 = Create { dir, name, kind, mode, umask, rdev, target, open, told, want },
    5 = Readlink { ino },
    6 = Link { ino, dir, name },
    7 = Unlink { dir, name, told, alone },
    8 = Rmdir { dir, name },
    9 = Rename { from_dir, from, to_dir, to, mode },
    10 = Readdir { dir, cookie, limit, plus },
    11 = Open { ino, truncate },
    12 = Close { inos },
    13 = Write { ino, parts, append, kill_suid_sgid, at },
    14 = Layout { ino, off, len, recall },
    15 = NextData { ino, off },
    16 = ReadStage { at, poff, len },
    17 = Fallocate { ino, off, len, mode, keep_size },
    18 = SetXattr { ino, name, value, mode },
    19 = GetXattr { ino, name },
    20 = ListXattr { ino },
    21 = RemoveXattr { ino, name },
    22 = Lock { ino, lock, wait },
    23 = CancelLock { ino, seq },
    24 = TestLock { ino, lock },
    25 = UnlockOwner { ino, owner, flock },
    26 = Statfs,
    27 = Sync { ino },
    28 = MakeRoot { ino, mode },
    29 = EndSession,
    30 = Hello { begin, home, open },
    31 = Reassert { holdings },
    32 = ReleaseLease { leases },
    33 = AskLease { ino, kind },
    34 = GetSpace { ino, bytes, back },
    35 = CommitWrite { ino, off, stripes, kill_suid_sgid, at },
    36 = Accessed { files },
    37 = ReadObject { at, len, more },
    38 = Residency { ino, from },
    39 = Tier { ino, off, len, want },
});

wire_enum!(Reply, "answer" {
    1 = Done,
    2 = Attr(attr),
    3 = Entry { ino, kind, attr },
    4 = Unlinked { ino },
    5 = Renamed { moved, other },
    6 = Entries { entries, end },
    7 = Wrote { off, attr },
    8 = Layout(layout),
    9 = Data(bytes),
    10 = Value(value),
    11 = Names(names),
    12 = Locked(lock),
    13 = Usage { bytes, inodes, total_bytes },
    14 = Session { reassert },
    15 = Space(ranges),
    16 = Residency(residency),
});
