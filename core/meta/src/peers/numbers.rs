//! Numbers of operations that this partition coordinates: each is used once, also over restarts.

use braid_base::Result;
use braid_base::codec::Reader;
use braid_base::ids::{ClientId, OpId, PartitionId};
use braid_base::keys;
use braid_replica::kv::Kv;

use crate::peers::COORDINATOR;
use crate::txn::Txn;

/// Numbers set aside with one write; a restart skips what is left of them.
const BLOCK: u64 = 1_024;
/// Name of the partition-wide value: the last number set aside.
const LAST: &str = "coordinated";

/// The next number, and the last one that is set aside.
pub(crate) struct Numbers {
    client: ClientId,
    next: u64,
    last: u64,
}

impl Numbers {
    pub(crate) fn load(partition: PartitionId, kv: &dyn Kv) -> Result<Self> {
        let stored = kv.get(&keys::meta(partition, LAST))?;
        let last = stored.map_or(Ok(0), |bytes| Reader::new(&bytes).u64())?;
        Ok(Self { client: ClientId(COORDINATOR | u64::from(partition.0)), next: last + 1, last })
    }

    /// A new number; what this transaction sends waits until it is set aside for good.
    pub(crate) fn next(&mut self, t: &mut Txn<'_>) -> OpId {
        if self.next > self.last {
            self.last = self.next + BLOCK - 1;
            t.put(keys::meta(t.partition, LAST), self.last.to_le_bytes().to_vec());
        }
        let seq = self.next;
        self.next += 1;
        wait_for(t);
        OpId { client: self.client, seq }
    }
}

/// What this transaction sends waits until all numbers given so far are set aside for good: a message whose
/// number could be given again after a restart would be taken for another one's.
pub(super) fn wait_for(t: &Txn<'_>) {
    crate::peers::wait_for(t, &keys::meta(t.partition, LAST));
}
