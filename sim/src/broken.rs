//! Rules that a run may leave out, one at a time, to prove that the audit sees what each rule is for. The names in
//! brackets are those of the models.

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::crc::crc32c;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use bytes::Bytes;

/// A rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// One of operations that span partitions (noabortlog, nolock, unlockontimeout) or that take effect once.
    #[cfg(feature = "broken")]
    Names(braid_meta::Variant),
    /// One of sessions and leases (nomarker, nowait, expirefast).
    #[cfg(feature = "broken")]
    Leases(braid_meta::LeaseMutation),
    /// One of file data (uptonow, relocnocas, regrant, reusegrant, lategrantok, nogc).
    #[cfg(feature = "broken")]
    Data(braid_meta::Mutation),
    /// One of replication (addlate, dropearly, nolease, forgetpromise, discardtail, nowait).
    #[cfg(feature = "broken")]
    Members(braid_replica::replica::variant::Variant),
    /// One of names that a client promises (givebackfirst, beside).
    Promises(braid_client::PromiseMutation),
    /// One of open references that partitions are not told of (opensafter, namesbefore).
    Opens(braid_client::leases::CoreMutation),
    /// A move is reported as done before the drives acknowledged (earlyack).
    EarlyAck,
    /// A block or shard that is not there reads as zeros (lazyzero).
    LazyZero,
    /// A shard that is gone is taken for the one that has its slot now (slotaddr).
    SlotAddress,
    /// What only silent drives have is left out of a shard that is made anew, though nobody abandoned them.
    GiveUpSilent,
    /// Entries count as durable while they are on their way to the disk.
    ReplyEarly,
    /// Partitions hear of a flush of the view that never happened.
    FlushUntrue,
    /// A request of an earlier term is taken like one of now.
    AnyTerm,
    /// A start acts upon what it finds in its log without making it durable.
    Unsettled,
}

/// What a drive without the rule [`Broken::LazyZero`] answers.
pub fn lazy_zero(op: &DriveOp, result: DriveResult) -> DriveResult {
    match (op, &result) {
        (DriveOp::Read { count, .. }, Err(error))
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) =>
        {
            let count = usize::from(*count);
            let crcs = vec![crc32c(&[0; BLOCK]); count];
            Ok(DriveReply::Data { data: Bytes::from(vec![0; count * BLOCK]), crcs })
        }
        _ => result,
    }
}

/// Which shard took the slot of which: for [`Broken::SlotAddress`].
#[derive(Default)]
pub struct Aliases {
    /// Shards that were dropped and whose slots nobody has taken yet.
    empty: Vec<ShardId>,
    /// The successor of each shard that is gone.
    next: BTreeMap<ShardId, ShardId>,
}

impl Aliases {
    /// What becomes of an operation that names a slot instead of a shard.
    pub fn of(&mut self, op: DriveOp) -> DriveOp {
        match op {
            DriveOp::Drop { id, .. } if !self.next.contains_key(&id) && !self.empty.contains(&id) => {
                self.empty.push(id);
                op
            }
            DriveOp::Create { id, .. } => {
                if let Some(before) = self.empty.pop().filter(|before| *before != id) {
                    self.next.insert(before, id);
                }
                op
            }
            DriveOp::Read { id, block, count } => DriveOp::Read { id: self.present(id), block, count },
            other => other,
        }
    }

    fn present(&self, id: ShardId) -> ShardId {
        let mut at = id;
        while let Some(next) = self.next.get(&at) {
            at = *next;
        }
        at
    }
}
