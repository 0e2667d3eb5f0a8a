//! One client of the test: a lease core, a clock of its own, operations that are repeated until they are answered.

use std::collections::BTreeMap;

use braid_base::attr::{FileType, SetAttr, Time};
use braid_base::ids::{ClientId, FsId, Ino, OpId, PartitionId, Term};
use braid_base::msg::fs::{Cred, Op, RenameMode, Request};
use braid_base::msg::lease::LeaseKind;
use braid_client::leases::{Core, CoreMutation};
use braid_io::chance::Rng;

pub const FS: FsId = FsId(1);
const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// An operation that is not answered yet.
pub struct Pending {
    pub body: Op,
    pub p: PartitionId,
    /// Under this session only.
    pub fixed: Option<u64>,
    pub resend_ms: u64,
    /// It writes what was held back.
    pub flushes: bool,
}

/// A change held back.
#[derive(Clone, Copy, Debug)]
pub struct Dirty {
    pub session: u64,
    pub change: u64,
    pub lost: bool,
}

pub struct Client {
    pub id: ClientId,
    pub core: Core,
    drift_ppm: i64,
    start_ms: u64,
    pub seq: u64,
    pub pending: BTreeMap<u64, Pending>,
    pub terms: Vec<Term>,
    /// Nothing gets out or in until then.
    pub cut_until: u64,
    /// It does nothing until then; what arrives waits.
    pub stopped_until: u64,
    pub dirty: BTreeMap<Ino, Dirty>,
}

impl Client {
    pub fn new(number: u64, partitions: u16, rng: &mut Rng, broken: Option<CoreMutation>) -> Self {
        let id = ClientId(number);
        let mut core = Core::new(id, partitions, None);
        core.leave_out(broken);
        Self {
            id,
            core,
            drift_ppm: [-50_000, 0, 50_000][rng.next_u64() as usize % 3],
            start_ms: rng.next_u64() % 1_000_000,
            seq: 0,
            pending: BTreeMap::new(),
            terms: vec![Term(1); usize::from(partitions)],
            cut_until: 0,
            stopped_until: 0,
            dirty: BTreeMap::new(),
        }
    }

    /// What its clock shows when the world's shows `now_ms`.
    pub fn now(&self, now_ms: u64) -> u64 {
        self.start_ms + (now_ms as i64 + now_ms as i64 * self.drift_ppm / 1_000_000) as u64
    }

    pub fn request(&self, seq: u64, session: u64, body: Op) -> Request {
        let done_upto = self.pending.keys().next().map_or(self.seq, |first| first - 1);
        let op = OpId { client: self.id, seq };
        Request { op, session, done_upto: done_upto.min(seq - 1), fs: FS, cred: Cred::default(), early: false, body }
    }

    /// True if a change of its own may be changing this now.
    pub fn is_changing(&self, ino: Ino) -> bool {
        self.pending.values().any(|pending| match &pending.body {
            // Their targets are not known: any file may lose or gain by them.
            Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Link { .. } => true,
            Op::Create { dir, .. } => *dir == ino,
            Op::SetAttr { ino: of, .. } | Op::Open { ino: of, truncate: true } => *of == ino,
            _ => false,
        })
    }

    /// What to do next, at random.
    pub fn wish(&mut self, rng: &mut Rng, dirs: &[Ino], files: &[Ino], now_ms: u64) -> Option<Op> {
        let mut pick = |list: &[Ino]| list.get(rng.next_u64() as usize % list.len().max(1)).copied();
        let (dir, other, file) = (pick(dirs)?, pick(dirs)?, pick(files));
        let name = NAMES[rng.next_u64() as usize % NAMES.len()].to_vec();
        let to = NAMES[rng.next_u64() as usize % NAMES.len()].to_vec();
        // A directory for this client alone, now and then.
        let alone = rng.next_u64().is_multiple_of(3);
        let create = |kind, open| {
            let (rdev, target, told, want) = (0, Vec::new(), None, if alone { 16 } else { 0 });
            Op::Create { dir, name: name.clone(), kind, mode: 0o644, umask: 0, rdev, target, open, told, want }
        };
        Some(match rng.next_u64() % 20 {
            0..3 => Op::GetAttr { ino: file.unwrap_or(dir) },
            3 => Op::GetAttr { ino: dir },
            4..8 => Op::Lookup { dir, name },
            8..11 => create(FileType::File, rng.next_u64().is_multiple_of(2)),
            11 => create(FileType::Directory, false),
            // What is held back is checked against the inode's count of changes: names of its own leave it alone.
            12..16 if !self.dirty.is_empty() => Op::Readdir { dir, cookie: 0, limit: 100, plus: true },
            12 => Op::Unlink { dir, name, told: None, alone },
            13 => Op::Rmdir { dir, name },
            14 => {
                let mode = if rng.next_u64().is_multiple_of(4) { RenameMode::Exchange } else { RenameMode::Replace };
                Op::Rename { from_dir: dir, from: name, to_dir: other, to, mode }
            }
            15 => Op::Link { ino: file?, dir, name },
            16 => Op::Readdir { dir, cookie: 0, limit: 100, plus: true },
            17 => {
                let ino = file.filter(|ino| !self.dirty.contains_key(ino))?;
                let mode = (rng.next_u64() % 512) as u16;
                Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
            }
            18 => Op::AskLease { ino: file?, kind: LeaseKind::Exclusive },
            _ => {
                self.hold_back(file?, now_ms);
                return None;
            }
        })
    }

    /// Changes a file in memory, if that is allowed.
    fn hold_back(&mut self, ino: Ino, now_ms: u64) {
        let now = self.now(now_ms);
        if self.core.lease(FS, ino, now) != Some(LeaseKind::Exclusive) || self.is_changing(ino) {
            return;
        }
        let Some(change) = self.core.attr(FS, ino, now).map(|attr| attr.change) else { return };
        let session = self.core.session(ino.partition(self.terms.len() as u16));
        self.dirty.entry(ino).or_insert(Dirty { session, change, lost: false });
    }

    /// The write of what was held back.
    pub fn flush(ino: Ino) -> Op {
        let to = braid_base::attr::SetTime::To(Time { sec: 7, nsec: 7 });
        Op::SetAttr { ino, set: SetAttr { mtime: Some(to), ..SetAttr::default() } }
    }
}

/// The names that are used.
pub fn names() -> impl Iterator<Item = &'static [u8]> {
    NAMES.into_iter()
}
