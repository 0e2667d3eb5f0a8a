//! Anybody <-> host.

use braid_base::msg::event::{Event, EventFilter, Severity};
use braid_base::msg::host::{
    Attached, Healing, HostOp, HostReply, LinkReport, Lost, LostObject, LostParts, Map, Moved, ObjectSeen, ObjectsPage,
    SeatData, SeatReport, StoreOp, StoreReport, Stored, Tiering, Verdict, Ways, Who,
};

use super::{wire_enum, wire_struct};

wire_enum!(Severity, "severity of an event" { 1 = Debug, 2 = Info, 3 = Warning, 4 = Minor, 5 = Major, 6 = Critical });
wire_struct!(Event { id, at_ms, kind, severity, count, text, about });
wire_struct!(EventFilter { severity, types, exclude, from_ms, until_ms, filesystem, most, oldest });

wire_struct!(Map { version, hosts, primaries, drives });
wire_struct!(Who { client, pid, fs, filesystem, point, since_s });
wire_struct!(Attached { cluster, client, fs, root, total_bytes });
wire_struct!(SeatReport { partition, term, applied, log_bytes, replay_bytes, data, failed, waits });
wire_struct!(SeatData {
    used_bytes,
    used_by_fs,
    staged_bytes,
    leaving,
    forced,
    close,
    healing,
    flash_by_fs,
    stored,
    held_writes,
    damaged_objects,
    tiering,
});
wire_struct!(Tiering { flash, short, waiting, due, due_s, moved });
wire_struct!(Moved { demoted, released, fetched, rewritten, reclaimed, cold_reads, cold_bytes });
wire_struct!(Stored { objects, bytes, held, live });
wire_struct!(Healing {
    scrub_runs,
    scrub_done,
    scrub_packs,
    passes,
    scrubbed_bytes,
    damaged,
    mended,
    odd,
    beyond,
    rebuilt_bytes,
    rebuild_bytes_per_s,
    uneven_bytes,
    balanced_bytes,
    balance_bytes_per_s,
});
wire_struct!(Ways { relayed, etcd_by_others });
wire_struct!(LostParts { partitions, parts, more, unchecked });
wire_struct!(Lost { fs, ino, off, len, object });
wire_struct!(LostObject { store, blob, term, missing, since_s });
wire_struct!(ObjectsPage { objects, more });
wire_struct!(ObjectSeen { blob, term, size, present });
wire_struct!(StoreReport { store, upload, download, remove, full });
wire_struct!(LinkReport { up, since_s, last_error });
wire_struct!(StoreOp {
    id,
    key,
    kind,
    took_ms,
    ongoing,
    previous_ms,
    started_ms,
    size,
    results,
    line_errors,
    last_http_error,
    concurrency,
    inode,
});

wire_enum!(HostOp, "question to a host" {
    1 = Map,
    2 = Seats,
    3 = Attach { filesystem },
    4 = Mounts,
    5 = Lost,
    6 = Clock,
    7 = Recall,
    8 = Stores { look },
    9 = StoreOps { store },
    10 = Events { filter },
    11 = Objects { partition, store, after, limit },
    12 = Judge { partition, store, keys },
    13 = Coordinator { path, body },
    14 = Absent,
    15 = Ways,
});

wire_enum!(HostReply, "answer of a host" {
    1 = Map(map),
    2 = Seats(seats),
    3 = Attached(attached),
    4 = Mounts(mounts),
    5 = Lost(said),
    6 = Clock(wall_ms),
    7 = Recalled(json),
    8 = Stores(stores),
    9 = StoreOps(ops),
    10 = Events(events),
    11 = Objects(page),
    12 = Judged(verdicts),
    13 = Coordinator(said),
    14 = Absent(drives),
    15 = Ways(ways),
});

wire_enum!(Verdict, "verdict on an object" {
    1 = Unknown,
    2 = Ahead,
    3 = Elsewhere,
    4 = Passing,
    5 = Whole,
    6 = Missing,
    7 = WrongSize { found, expected },
    8 = Unsure,
});
