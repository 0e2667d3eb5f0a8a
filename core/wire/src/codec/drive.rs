//! Client <-> drive target.

use braid_base::msg::drive::{DriveOp, DriveReply, DriveStat, ShardId, Trouble};

use super::{wire_enum, wire_struct};

wire_struct!(ShardId { pack, shard });
wire_struct!(DriveStat { slots, free, shard_bytes, corrupt, errors, trouble });
wire_enum!(Trouble, "trouble of a drive" { 1 = Slow, 2 = Failing, 3 = Full });

wire_enum!(DriveOp, "drive operation" {
    1 = Create { id, data, parity, class, term, fs },
    2 = Put { id, block, crcs, data },
    3 = Read { id, block, count },
    4 = Drop { id, term },
    5 = Report { partition },
    6 = Stat,
    7 = Written { id },
});

wire_enum!(DriveReply, "drive answer" {
    1 = Done,
    2 = Data { data, crcs },
    3 = Shards(shards),
    4 = Stat(stat),
    5 = Written(runs),
});
