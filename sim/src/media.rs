//! Reads the drives of a world at rest, at once, through targets opened for nothing else.

use std::collections::BTreeMap;

use braid_base::crc::crc32c;
use braid_base::ids::DriveId;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, ShardId};
use braid_base::msg::job::ObjectKey;
use braid_base::record::{Placement, StripeAt};
use braid_drive::{Effect, Event, OpToken, Target};
use braid_io::clock::Now;
use braid_io::file::ReadAt;
use braid_io::reactor::IoDone;

use crate::fsck::Media;
use crate::world::{DriveNode, World};

/// The drives, and the object stores.
pub struct Drives<'a> {
    world: &'a World,
    targets: BTreeMap<DriveId, (Target, &'a DriveNode)>,
    next: u64,
}

impl<'a> Drives<'a> {
    /// Opens all drives that can be opened.
    pub fn new(world: &'a World) -> Self {
        let nodes = world.drives();
        let open = |(id, node): (usize, &'a DriveNode)| {
            let opened = braid_drive::open(&node.disk.view(node.file), None, false, Now::default()).ok()?;
            Some((DriveId(id as u32), (opened.target, node)))
        };
        Self { world, targets: nodes.iter().enumerate().filter_map(open).collect(), next: 0 }
    }

    fn read(&mut self, drive: DriveId, op: DriveOp) -> Option<DriveReply> {
        self.next += 1;
        let token = OpToken(self.next);
        let (target, node) = self.targets.get_mut(&drive)?;
        let mut events = vec![Event::Op { token, op }];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            target.step(Now::default(), event, &mut out);
            for effect in out {
                match effect {
                    Effect::Read { token, off, len } => {
                        let result = node.disk.view(node.file).read_at(off, len).map(IoDone::Read);
                        events.push(Event::Io { token, result });
                    }
                    Effect::Reply { token: of, result } if of == token => return result.ok(),
                    other => panic!("a read asks for nothing but reads, found {other:?}"),
                }
            }
        }
        None
    }
}

impl Media for Drives<'_> {
    fn readable_shards(&mut self, stripe: StripeAt, place: &Placement) -> usize {
        let mut readable = 0;
        for (shard, drive) in place.drives.iter().enumerate() {
            let id = ShardId { pack: stripe.pack, shard: shard as u8 };
            let op = DriveOp::Read { id, block: stripe.sb, count: stripe.ul };
            if let Some(DriveReply::Data { data, crcs }) = self.read(*drive, op) {
                let whole = data.len() == usize::from(stripe.ul) * BLOCK;
                let right = data.chunks(BLOCK).zip(&crcs).all(|(block, crc)| crc32c(block) == *crc);
                readable += usize::from(whole && right);
            }
        }
        readable
    }

    fn object(&mut self, key: ObjectKey) -> Option<u64> {
        self.world.object_size(key)
    }
}
