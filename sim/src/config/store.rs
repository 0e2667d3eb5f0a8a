//! What goes wrong with the object stores of a run, and what its file system does with them.

use braid_base::limits::BLOCK;
use braid_io::chance::Rng;

use super::pick;
use crate::points::Point;

/// The object stores of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePlan {
    /// Requests that fail, per cent; half of these were carried out all the same.
    pub fails: u64,
    /// Requests that take longer than anybody waits for an answer, per cent.
    pub stalls: u64,
    /// Reads that bring other bytes, or fewer, per cent.
    pub garbles: u64,
    /// Reads that are told that there is no such object, although there is, per cent.
    pub denies_it: u64,
    /// Mean time between moments at which a store does nothing for a while, or refuses; 0 = none, microseconds.
    pub down_every_us: u64,
    /// How long that lasts at most, microseconds.
    pub down_max_us: u64,
    /// Mean time between moments at which objects are lost or damaged for good; 0 = none, microseconds.
    pub lose_every_us: u64,
    /// Mean time between changes of what the file system does with its stores; 0 = none, microseconds.
    pub change_every_us: u64,
    /// What is damaged counts as damaged for an hour already: what is on flash, too, goes into another object at once.
    pub is_old: bool,
    /// An object gets its names with several entries.
    pub names_few: bool,
    /// How long after it was written data goes into an object, seconds.
    pub cue_s: u32,
    /// How long it stays on flash after that, seconds.
    pub retention_s: u32,
    /// Data of one object at most, bytes.
    pub object_bytes: u32,
    /// Flash that the file system may fill in a partition, bytes.
    pub flash_bytes: Option<u64>,
    /// How far ahead of a reader data is brought back, bytes.
    pub prefetch_bytes: u64,
}

impl StorePlan {
    /// That of `seed`. Of eight seeds one really loses objects, besides those whose point needs it: elsewhere every byte must be
    /// had.
    pub fn from_seed(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x71E2);
        let rough = rng.index(4);
        Self {
            fails: [0, 5, 20, 40][rough],
            stalls: [0, 1, 2, 5][rough],
            garbles: *pick(rng, &[0, 2, 10]),
            denies_it: *pick(rng, &[0, 2, 10]),
            down_every_us: *pick(rng, &[0, 4_000_000, 15_000_000]),
            down_max_us: *pick(rng, &[2_000_000, 20_000_000, 150_000_000]),
            lose_every_us: if seed % 8 == 5 { 3_000_000 } else { 0 },
            change_every_us: *pick(rng, &[0, 2_000_000, 8_000_000]),
            is_old: rng.chance(3, 4),
            names_few: rng.chance(1, 2),
            cue_s: rng.below(3) as u32,
            retention_s: 1 + rng.below(4) as u32,
            // What writes while flash is full waits for objects one after the other: of a block each that would take hours.
            object_bytes: (8 + rng.below(57) as u32) * BLOCK as u32,
            flash_bytes: (rng.below(2) == 0).then(|| 1 << (16 + rng.below(4))),
            prefetch_bytes: rng.below(3) << 20,
        }
    }

    /// What leads to `point`, if that comes seldom by itself.
    pub(super) fn leads_to(&mut self, point: Point) {
        match point {
            Point::PartlyNamed => {
                (self.names_few, self.cue_s, self.object_bytes) = (true, 2, 64 * BLOCK as u32);
            }
            Point::SaveProposed | Point::DamageTold => (self.lose_every_us, self.is_old) = (2_000_000, true),
            Point::LeaveProposed | Point::LeaveLogged | Point::StoreEmptied => self.change_every_us = 2_000_000,
            _ => {}
        }
    }

    /// True if writes may be refused because nothing went into an object for a minute: a store is away for that long, or
    /// most of the time (seed 2723); or what lies beside a lost object stays on flash, which then has no room for a write that
    /// is larger than the rest (2783).
    pub fn may_refuse(&self) -> bool {
        let (every, most) = (self.down_every_us, self.down_max_us);
        let is_away = every > 0 && (most > 40_000_000 || most > 4 * every);
        is_away || (self.lose_every_us > 0 && self.flash_bytes.is_some())
    }
}
