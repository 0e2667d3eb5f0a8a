//! Partition <-> partition.

use braid_base::msg::peer::{Answer, Intent, NewDir, Note, PeerMsg, Question};

use super::{wire_enum, wire_struct};

wire_enum!(PeerMsg, "message of a partition" {
    1 = Ask { tx, number, fs, what },
    2 = Told { tx, number, answer },
    3 = Prepare { tx, fs, client, intents },
    4 = Prepared { tx, result },
    5 = Decide { tx, commit },
    6 = Finished { tx },
    7 = Undecided { tx },
    8 = Forward { request },
    9 = Forwarded { op, result },
    10 = Note { seq, fs, client, note },
    11 = Noted { upto },
});
wire_enum!(Question, "question of a partition" { 1 = Name { dir, name }, 2 = Parent { dir } });
wire_enum!(Answer, "what a partition is told" { 1 = Name { quota, entry }, 2 = Parent(ino) });
wire_enum!(Intent, "intent" {
    1 = Clear { dir, name, ino, kind },
    2 = Set { dir, name, old, ino, kind },
    3 = MakeDir(dir),
    4 = Link { ino, quota },
    5 = RemoveDir { ino },
    6 = Reparent { ino, from, to },
    7 = Wanted { op },
});
wire_struct!(NewDir { ino, attr, parent, quota, xattrs });
wire_enum!(Note, "note of a partition" { 1 = Unlinked { ino, at }, 2 = Renamed { ino, at } });
