//! The pack table: which packs there are, what may be lent from them, how much of them is in use.
//!
//! Life of a pack (design 5.6, I7-I10):
//! 1. *Creating*: its record is logged, then its shards are asked of their drives.
//! 2. *Lending*: every drive has answered. Ranges are lent once, in ascending order; the cursor is in memory only,
//!    so a restarted primary lends nothing from packs that it finds open.
//! 3. *Closing*: full, or a drive or a move of it failed. Moves under way still come back.
//! 4. *Sealed*: logged once nothing is lent. References can only become fewer from here.
//! 5. *Dead*: a scan of its hints found no reference; logged, then its shards are dropped.
//! 6. Every shard is confirmed dropped: its stripe, hint and pack records go.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{PackId, PartitionId};
use braid_base::keys::{self, Table};
use braid_base::limits::BLOCK;
use braid_base::record::{Extent, PackClass, PackRec, PackState, Place, Placement, Record, StripeAt};
use braid_base::{Error, ErrorKind, Result};
use braid_replica::kv::Kv;

use crate::config::{Config, DriveSet};
use crate::data;
use crate::data::drives::Drives;
use crate::txn::Txn;

/// Where a pack stands, in memory.
#[derive(Clone, Debug)]
pub(crate) enum Life {
    /// These shards have not answered yet.
    Creating { missing: BTreeSet<u8>, since_ms: u64, asked_ms: u64 },
    /// Blocks of each shard that are lent.
    Lending { cursor: u16 },
    /// Nothing more is lent.
    Closing,
    /// Logged as sealed; how far the scan for references is.
    Sealed { scan: Scan },
    /// Logged as dead; these shards are not confirmed as dropped.
    Dead { missing: BTreeSet<u8>, asked_ms: u64 },
}

/// A scan of a pack's hints, in steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// The hint to go on with; `None`: from the first.
    pub next: Option<Vec<u8>>,
    /// Bytes referenced so far.
    pub found: u64,
}

/// A pack.
#[derive(Clone, Debug)]
pub(crate) struct Pack {
    pub rec: PackRec,
    pub life: Life,
    /// Stripes lent to moves that have not ended.
    pub lent: u32,
}

impl Pack {
    /// True if it has no parity, because all that lies in it is in an object as well (`tier/bare`).
    pub fn is_bare(&self) -> bool {
        self.rec.class == PackClass::Cache && self.rec.place.parity == 0
    }
}

/// All packs of the partition.
pub(crate) struct Packs {
    pub table: BTreeMap<PackId, Pack>,
    /// Packs that need a step of care.
    pub care: BTreeSet<PackId>,
    /// The drives and what is known of them.
    pub drives: Drives,
    /// Blocks of one shard.
    pub shard_blocks: u16,
    /// Number of the newest pack.
    pub newest: u64,
    /// Open packs of which nothing is in use: how much of each was lent at the last look, and for how many looks.
    pub idle: BTreeMap<PackId, (u16, u32)>,
    /// When to look again.
    pub idle_due_ms: u64,
}

/// Name of the counter in table Meta.
pub(crate) const COUNTER: &str = "pack";

impl Packs {
    /// Reads table 20.
    pub fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let p: PartitionId = config.partition;
        let newest = data::counter(kv, p, COUNTER, "pack")?;
        let mut packs = Self {
            table: BTreeMap::new(),
            care: BTreeSet::new(),
            drives: Drives::new(config),
            shard_blocks: u16::try_from(config.shard_bytes / BLOCK as u64).unwrap_or(u16::MAX),
            newest,
            idle: BTreeMap::new(),
            idle_due_ms: 0,
        };
        let mut bad = None;
        let prefix = keys::table(p, Table::Pack);
        kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |key, value| {
            match (keys::pack_of(p, key), PackRec::decode(value)) {
                (Some(id), Ok(rec)) => packs.found(id, rec),
                (_, Err(error)) => bad = Some(error),
                (None, _) => bad = Some(Error::new(ErrorKind::Corrupt, "pack: the key is too short")),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok(packs), Err)
    }

    fn found(&mut self, id: PackId, rec: PackRec) {
        let life = match rec.state {
            // Lent from by an earlier primary, nobody knows how far: nothing is lent from it again.
            PackState::Open => Life::Closing,
            PackState::Sealed => Life::Sealed { scan: Scan::default() },
            PackState::Dead => Life::Dead { missing: (0..shards(&rec.place)).collect(), asked_ms: 0 },
        };
        if !matches!(life, Life::Sealed { .. }) || rec.live_upper == 0 {
            self.care.insert(id);
        }
        self.table.insert(id, Pack { rec, life, lent: 0 });
    }

    /// Where the shards of a pack are. `Corrupt` if there is no such pack: something points to nowhere.
    pub fn place(&self, id: PackId) -> Result<&Placement> {
        let found = self.table.get(&id).map(|pack| &pack.rec.place);
        found.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("a pointer names {id}, which does not exist")))
    }

    /// See [`Pack::is_bare`].
    pub fn is_bare(&self, id: PackId) -> bool {
        self.table.get(&id).is_some_and(Pack::is_bare)
    }

    /// Free logical blocks in packs of `class` that lend, and in those that soon will; and how many such packs.
    pub fn room(&self, class: PackClass) -> (u64, u64, usize) {
        let (mut now, mut soon, mut count) = (0, 0, 0);
        for pack in self.table.values().filter(|pack| pack.rec.class == class) {
            let width = u64::from(pack.rec.place.data);
            match pack.life {
                Life::Lending { cursor } => now += width * u64::from(self.shard_blocks - cursor),
                Life::Creating { .. } => soon += width * u64::from(self.shard_blocks),
                _ => continue,
            }
            count += 1;
        }
        (now, soon, count)
    }

    /// True while the drives of some pack were not all heard that is not of garbage collection.
    pub fn is_creating(&self) -> bool {
        let is_for_others = |pack: &Pack| pack.rec.class != PackClass::Gc;
        self.table.values().any(|pack| matches!(pack.life, Life::Creating { .. }) && is_for_others(pack))
    }

    /// Ranges for `blocks` logical blocks in stripes of at most `stripe` blocks, and how many blocks each takes.
    /// They are not lent yet. Fewer than asked for if there is not room enough.
    pub fn carve(&self, class: PackClass, mut blocks: u32, stripe: u32) -> Vec<(StripeAt, u32)> {
        let lends = |(id, pack): (&PackId, &Pack)| match pack.life {
            Life::Lending { cursor } if pack.rec.class == class => Some((*id, cursor, u32::from(pack.rec.place.data))),
            _ => None,
        };
        let mut open: Vec<(PackId, u16, u32)> = self.table.iter().filter_map(lends).collect();
        // Packs of that class lie on one drive each: neighbours go to different ones.
        let by_turns = class == PackClass::Cache;
        let (mut ranges, mut at) = (Vec::new(), 0);
        while blocks > 0
            && let Some((id, cursor, width)) = open.get_mut(at)
        {
            let take = blocks.min(stripe).min(*width * u32::from(self.shard_blocks - *cursor));
            let ul = take.div_ceil(*width) as u16;
            ranges.push((StripeAt { pack: *id, sb: *cursor, ul }, take));
            *cursor += ul;
            blocks -= take;
            if *cursor >= self.shard_blocks {
                open.remove(at);
            } else if by_turns {
                at += 1;
            }
            at = if at < open.len() { at } else { 0 };
        }
        ranges
    }

    /// Lends a range; it comes back with [`Packs::returned`] and is never lent again (I7).
    pub fn lend(&mut self, stripe: StripeAt) {
        let pack = self.table.get_mut(&stripe.pack).expect("a range is carved from a pack of the table");
        let Life::Lending { cursor } = &mut pack.life else { panic!("{}: lends nothing", stripe.pack) };
        assert!(*cursor == stripe.sb && stripe.ul > 0, "{}: ranges are lent once and in order", stripe.pack);
        *cursor += stripe.ul;
        pack.lent += 1;
        if *cursor >= self.shard_blocks {
            pack.life = Life::Closing;
            self.care.insert(stripe.pack);
        }
    }

    /// The move that had the range ended.
    pub fn returned(&mut self, stripe: StripeAt) {
        if let Some(pack) = self.table.get_mut(&stripe.pack) {
            assert!(pack.lent > 0, "{}: more ranges come back than were lent", stripe.pack);
            pack.lent -= 1;
        }
    }

    /// What must never be done ([`crate::data::Mutation::LendAgain`]): the range can be lent again.
    pub fn rewind(&mut self, stripe: StripeAt) {
        if let Some(Pack { life: Life::Lending { cursor }, .. }) = self.table.get_mut(&stripe.pack) {
            *cursor = stripe.sb.min(*cursor);
        }
    }

    /// Nothing more is lent from the pack; with `moved` what is lent cannot be committed any more either (I12).
    pub fn close(&mut self, id: PackId, moved: bool) {
        let Some(pack) = self.table.get_mut(&id) else { return };
        if moved && matches!(pack.life, Life::Lending { .. } | Life::Closing) {
            pack.rec.place.epoch.0 += 1;
        }
        if matches!(pack.life, Life::Lending { .. }) {
            pack.life = Life::Closing;
            self.care.insert(id);
        }
    }

    /// Pointers changed: counts what bases and slices refer to in every pack, exactly.
    pub fn recount(&mut self, t: &mut Txn<'_>, changes: PackChanges) {
        for (id, change) in changes.0 {
            let Some(pack) = self.table.get_mut(&id).filter(|_| change != 0) else { continue };
            assert!(change < 0 || pack.lent > 0, "{id}: only ranges that are lent gain references");
            pack.rec.live_upper = pack.rec.live_upper.saturating_add_signed(change);
            t.write(keys::pack(t.partition, id), &pack.rec);
            if pack.rec.live_upper == 0 && matches!(pack.life, Life::Sealed { .. }) {
                self.care.insert(id);
            }
        }
    }

    /// The drives that may be used changed: packs that still change and lie on others are closed.
    pub fn set_drives(&mut self, set: DriveSet, parity: u8) {
        self.drives.set(set, parity);
        let lost = |pack: &Pack| pack.rec.place.drives.iter().any(|drive| !self.drives.is_usable(*drive));
        let open: Vec<PackId> =
            self.table.iter().filter(|(_, p)| is_open(&p.life) && lost(p)).map(|(id, _)| *id).collect();
        for id in open {
            self.close(id, true);
            // One that is still being created is found by its care.
            self.care.insert(id);
        }
    }
}

/// By how many bytes what refers to packs changed.
#[derive(Default)]
pub(crate) struct PackChanges(BTreeMap<PackId, i64>);

/// Packs whose changes are gathered at most: their records come on top of what bounds an entry.
const GATHERED_MAX: usize = 256;

impl PackChanges {
    /// So many are gathered that they ought to be booked.
    pub fn is_full(&self) -> bool {
        self.0.len() >= GATHERED_MAX
    }

    /// `after` refers to them now, and `before` no more.
    pub fn count(&mut self, before: &[Extent], after: &[Extent]) {
        for (extents, sign) in [(before, -1), (after, 1)] {
            for extent in extents {
                if let Place::Flash { stripe, .. } = extent.place {
                    *self.0.entry(stripe.pack).or_default() += sign * i64::from(extent.len);
                }
            }
        }
    }
}

/// True while the pack still gains content.
fn is_open(life: &Life) -> bool {
    matches!(life, Life::Creating { .. } | Life::Lending { .. } | Life::Closing)
}

/// D+P.
pub(crate) fn shards(place: &Placement) -> u8 {
    place.drives.len() as u8
}
