//! Sessions and leases.

use braid_base::msg::lease::{Answer, Grant, Holdings, LeaseKind, Numbers, Push, PushBody, Release};

use super::{wire_enum, wire_struct};

wire_enum!(LeaseKind, "lease kind" { 1 = Shared, 2 = Exclusive });
wire_struct!(Grant { ino, kind, seq, attr, empty, numbers, roomy });
wire_struct!(Numbers { first, count });
wire_struct!(Answer { term, grants, result });
wire_struct!(Release { fs, ino, seq, keep });
wire_struct!(Holdings { opens, writes, locks });
wire_struct!(Push { to, session, from, term, body });
wire_enum!(PushBody, "unasked message" { 1 = Recall { fs, ino, seq, keep }, 2 = Evicted, 3 = Reassert, 4 = Refresh { fs, ino } });
