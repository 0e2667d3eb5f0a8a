//! The client library's way out, into the simulated world.

use std::sync::Arc;

use braid_base::ids::{ClientId, DriveId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::lease::Answer;
use braid_client::{BoxFuture, PushSink, Wire};

use crate::board::{Board, Node, Sent, Slot};

/// A clock that runs a little wrong and started somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// How much faster than the world's, parts per million (negative: slower).
    pub drift_ppm: i64,
    /// What it showed at the start, microseconds.
    pub start_us: u64,
}

impl Clock {
    /// Milliseconds it shows when the world's clock shows `now_us`.
    pub fn ms(&self, now_us: u64) -> u64 {
        self.us(now_us) / 1000
    }

    /// The same in microseconds.
    pub fn us(&self, now_us: u64) -> u64 {
        let run = i128::from(now_us) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        self.start_us + u64::try_from(run).unwrap_or(0)
    }

    /// When the world's clock shows `now_us`: what it will show after this clock has run for `ms`.
    pub fn after(&self, now_us: u64, ms: u64) -> u64 {
        let run = i128::from(ms) * 1_000_000_000 / i128::from(1_000_000 + self.drift_ppm);
        // Rounded up: a sleeper must not wake before its own clock says so.
        now_us.saturating_add(u64::try_from(run).unwrap_or(u64::MAX)).saturating_add(1)
    }
}

/// The wire of one node.
pub struct SimWire {
    /// The meeting point.
    pub board: Board,
    /// Whose wire it is.
    pub node: Node,
    /// Its clock.
    pub clock: Clock,
    /// Partitions in the cluster.
    pub partitions: u16,
}

impl Wire for SimWire {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        let slot = Slot::new();
        self.board.send(Sent::Partition(self.node, p, req, slot.clone()));
        Box::pin(slot)
    }

    fn listen(&self, client: ClientId, to: Arc<dyn PushSink>) -> bool {
        self.board.listen(client, self.node, &to);
        true
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        let slot = Slot::new();
        self.board.send(Sent::Drive(self.node, d, op, slot.clone()));
        Box::pin(slot)
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        let slot = Slot::new();
        let until = self.clock.after(self.board.now_us(), ms);
        self.board.send(Sent::Sleep(until, slot.clone()));
        Box::pin(slot)
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn now_ms(&self) -> u64 {
        self.clock.ms(self.board.now_us())
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn a_sleeper_never_wakes_early_on_its_own_clock() {
        for drift_ppm in [-50_000, -1, 0, 1, 50_000] {
            let clock = Clock { drift_ppm, start_us: 777 };
            for now_us in [0, 1, 999, 123_456_789] {
                for ms in [0, 1, 10, 5_000] {
                    assert!(clock.ms(clock.after(now_us, ms)) >= clock.ms(now_us) + ms);
                }
            }
        }
    }
}
