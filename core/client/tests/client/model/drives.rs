//! Drives in memory with the semantics of the real ones, and ways to break them.

use std::collections::{HashMap, HashSet};
use std::future::{pending, ready};
use std::sync::Mutex;

use braid_base::ErrorKind;
use braid_base::crc::{block_crcs, crc32c};
use braid_base::ids::DriveId;
use braid_base::limits::BLOCK;
use braid_base::msg::drive::{DriveOp, DriveReply, DriveResult, ShardId};
use braid_client::BoxFuture;
use bytes::{Bytes, BytesMut};

/// What is wrong with a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers `Io` at once.
    Broken,
    /// Never answers.
    Silent,
    /// Forgot all shards.
    Empty,
    /// Delivers a flipped bit with the old checksums.
    Lies,
    /// Delivers fewer bytes than asked for.
    Short,
    /// Finds the damage itself.
    Corrupt,
}

#[derive(Default)]
pub struct Drives(Mutex<State>);

/// Each block's bytes and checksum.
type Blocks = HashMap<u16, (Bytes, u32)>;

/// Blocks with their checksums.
type Shard = HashMap<u16, (Bytes, u32)>;

#[derive(Default)]
struct State {
    shards: HashMap<DriveId, HashMap<ShardId, Blocks>>,
    faults: HashMap<DriveId, Fault>,
    reads: Vec<(DriveId, ShardId, u16, u16)>,
    puts_refused: HashSet<DriveId>,
    busy_puts: usize,
    /// Blocks that do not match their checksums, until they are written again.
    rotten: HashSet<(DriveId, ShardId, u16)>,
    /// Shards that are gone when they are read next.
    going: HashSet<ShardId>,
    /// Blocks that cannot be read.
    unreadable: HashSet<(DriveId, ShardId, u16)>,
}

impl Drives {
    pub fn break_it(&self, d: u32, fault: Fault) {
        self.0.lock().expect("drives").faults.insert(DriveId(d), fault);
    }

    pub fn mend_all(&self) {
        self.0.lock().expect("drives").faults.clear();
    }

    /// The block does not match its checksum any more.
    pub fn rot(&self, d: DriveId, id: ShardId, block: u16) {
        self.0.lock().expect("drives").rotten.insert((d, id, block));
    }

    /// The sectors under the block cannot be read any more.
    pub fn wear_out(&self, d: DriveId, id: ShardId, block: u16) {
        self.0.lock().expect("drives").unreadable.insert((d, id, block));
    }

    /// The shard is dropped just before it is read next.
    pub fn drop_at_read(&self, id: ShardId) {
        self.0.lock().expect("drives").going.insert(id);
    }

    /// Blocks that do not match their checksums.
    pub fn rotten(&self) -> usize {
        self.0.lock().expect("drives").rotten.len()
    }

    /// Other bytes in a block than were written, with the checksum of these.
    pub fn forge(&self, d: DriveId, id: ShardId, block: u16, byte: u8) {
        let data = Bytes::from(vec![byte; BLOCK]);
        let crc = crc32c(&data);
        let mut state = self.0.lock().expect("drives");
        let shard = state.shards.get_mut(&d).and_then(|shards| shards.get_mut(&id)).expect("a shard");
        shard.insert(block, (data, crc)).expect("a block that was written");
    }

    /// The next `count` writes answer `Busy`.
    pub fn busy_puts(&self, count: usize) {
        self.0.lock().expect("drives").busy_puts = count;
    }

    /// The reads since the last call.
    pub fn reads(&self) -> Vec<(DriveId, ShardId, u16, u16)> {
        std::mem::take(&mut self.0.lock().expect("drives").reads)
    }

    pub fn drop_all_shards(&self) {
        self.0.lock().expect("drives").shards.clear();
    }

    pub fn ask(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        let mut state = self.0.lock().expect("drives");
        if let DriveOp::Read { id, block, count } = op {
            state.reads.push((d, id, block, count));
            if state.going.contains(&id) {
                state.shards.entry(d).or_default().remove(&id);
            }
        }
        match state.faults.get(&d) {
            Some(Fault::Silent) => Box::pin(pending()),
            Some(Fault::Broken) => Box::pin(ready(Err(ErrorKind::Io.into()))),
            _ => Box::pin(ready(state.apply(d, op))),
        }
    }
}

impl State {
    fn apply(&mut self, d: DriveId, op: DriveOp) -> DriveResult {
        let fault = self.faults.get(&d).copied();
        let shards = self.shards.entry(d).or_default();
        match op {
            DriveOp::Create { id, .. } => {
                shards.entry(id).or_default();
            }
            DriveOp::Put { id, block, crcs, data } => {
                if self.busy_puts > 0 {
                    self.busy_puts -= 1;
                    return Err(ErrorKind::Busy.into());
                }
                if data.len() % BLOCK != 0 || block_crcs(&data) != crcs {
                    return Err(ErrorKind::Invalid.into());
                }
                let shard = shards.get_mut(&id).ok_or(ErrorKind::NotFound)?;
                for (at, crc) in crcs.into_iter().enumerate() {
                    let bytes = data.slice(at * BLOCK..(at + 1) * BLOCK);
                    self.rotten.remove(&(d, id, block + at as u16));
                    match shard.get(&(block + at as u16)) {
                        Some((old, _)) if *old != bytes => return Err(ErrorKind::Exists.into()),
                        _ => shard.insert(block + at as u16, (bytes, crc)),
                    };
                }
            }
            DriveOp::Read { id, block, count } => {
                let shard = shards.get(&id).filter(|_| fault != Some(Fault::Empty)).ok_or(ErrorKind::NotFound)?;
                let (mut data, mut crcs) = (BytesMut::new(), Vec::new());
                for at in block..block + count {
                    if self.rotten.contains(&(d, id, at)) {
                        return Err(ErrorKind::Corrupt.into());
                    }
                    if self.unreadable.contains(&(d, id, at)) {
                        return Err(ErrorKind::Io.into());
                    }
                    let (bytes, crc) = shard.get(&at).ok_or(ErrorKind::Invalid)?;
                    assert_eq!(crc32c(bytes), *crc, "the model's memory is sound");
                    data.extend_from_slice(bytes);
                    crcs.push(*crc);
                }
                match fault {
                    Some(Fault::Lies) => {
                        let bit = data.len() / 2;
                        data[bit] ^= 0x10;
                    }
                    Some(Fault::Short) => data.truncate(data.len() - 1),
                    Some(Fault::Corrupt) => return Err(ErrorKind::Corrupt.into()),
                    _ => {}
                }
                return Ok(DriveReply::Data { data: data.freeze(), crcs });
            }
            DriveOp::Drop { id, .. } => {
                shards.remove(&id);
            }
            DriveOp::Written { id } => {
                let shard = shards.get(&id).filter(|_| fault != Some(Fault::Empty)).ok_or(ErrorKind::NotFound)?;
                let mut blocks: Vec<u16> = shard.keys().copied().collect();
                blocks.sort_unstable();
                return Ok(DriveReply::Written(blocks.into_iter().map(|block| (block, 1, true)).collect()));
            }
            DriveOp::Report { .. } | DriveOp::Stat => return Err(ErrorKind::Unsupported.into()),
        }
        Ok(DriveReply::Done)
    }
}
