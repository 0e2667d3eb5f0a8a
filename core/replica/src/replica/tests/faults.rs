//! Chance, how bad the world is, and what happened in it.

/// xorshift64*: all chance of a run comes from its seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    pub fn percent(&mut self, odds: u64) -> bool {
        self.below(100) < odds
    }
}

/// How bad the world is; probabilities in per cent, intervals in milliseconds.
#[derive(Clone, Copy)]
pub struct Faults {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    pub late_ms: u64,
    /// Mean time between two of crash, cut link, wiped store.
    pub fault_every_ms: u64,
    pub down_ms: u64,
    pub wiped: u64,
    pub cut_ms: u64,
    pub disk_ms: u64,
    /// Longest time for which a log hangs; 0: none does.
    pub hang_ms: u64,
}

impl Faults {
    pub fn usual() -> Self {
        Self {
            lost: 2,
            doubled: 2,
            late: 2,
            late_ms: 400,
            fault_every_ms: 4000,
            down_ms: 4000,
            wiped: 10,
            cut_ms: 6000,
            disk_ms: 5,
            hang_ms: 0,
        }
    }

    pub fn hanging() -> Self {
        Self { fault_every_ms: 6000, down_ms: 1000, hang_ms: 40_000, ..Self::usual() }
    }

    pub fn nasty() -> Self {
        Self {
            lost: 10,
            doubled: 10,
            late: 10,
            late_ms: 4000,
            fault_every_ms: 1200,
            down_ms: 1500,
            wiped: 20,
            cut_ms: 8000,
            disk_ms: 60,
            hang_ms: 0,
        }
    }

    pub fn none() -> Self {
        Self { lost: 0, doubled: 0, late: 0, fault_every_ms: u64::MAX, ..Self::usual() }
    }
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Tally {
    pub commits: u64,
    pub reads: u64,
    pub crashes: u64,
    pub wipes: u64,
    pub primaries: u64,
    pub truncations: u64,
    pub fetches: u64,
    pub left: u64,
    pub handovers: u64,
    pub hangs: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.reads += other.reads;
        self.crashes += other.crashes;
        self.wipes += other.wipes;
        self.primaries += other.primaries;
        self.truncations += other.truncations;
        self.fetches += other.fetches;
        self.left += other.left;
        self.handovers += other.handovers;
        self.hangs += other.hangs;
    }
}
