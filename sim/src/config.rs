//! What one run is like, all of it drawn from the seed.

mod store;

use braid_base::ids::PartitionId;
use braid_cluster::capacity::net_bytes;
use braid_cluster::facts::Protection;
use braid_cluster::setup::bounds::slots_min;
use braid_io::chance::Rng;

use crate::broken::Broken;
use crate::points::Point;
use crate::wire::Clock;

pub use store::StorePlan;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Where everything random comes from.
    pub seed: u64,
    /// Partitions of the cluster.
    pub partitions: u16,
    /// Hosts; partitions and drives are dealt out to them. Each has one metadata disk and one key-value view.
    pub hosts: u32,
    /// Replicas of each partition, on as many hosts.
    pub members: u32,
    /// Drives.
    pub drives: u32,
    /// Data shards of a pack.
    pub data: u8,
    /// Parity shards of a pack.
    pub parity: u8,
    /// Data bytes of a shard.
    pub shard_bytes: u64,
    /// Slots of a drive.
    pub slots: u64,
    /// Bytes that users may fill in one partition.
    pub capacity_bytes: u64,
    /// Size of a log segment, bytes.
    pub segment_bytes: u64,
    /// Staged bytes that a partition keeps in memory.
    pub stage_cache_bytes: usize,
    /// Log size above which old staged bytes are moved out.
    pub log_soft_bytes: u64,
    /// Client processes.
    pub clients: u32,
    /// Concurrent programs of each client.
    pub hands: u32,
    /// Operations of each program.
    pub ops: u32,
    /// Programs fill the cluster up, are told so, remove something, and go on.
    pub fills: bool,
    /// Clients have sessions and leases, and meet on a file that they all read and write.
    pub leases: bool,
    /// Clients work on shared names and files, and what they were answered is judged in the end.
    pub desk: bool,
    /// The file system has an object store.
    pub tiered: bool,
    /// What that is like.
    pub store: StorePlan,
    /// Drives that are away are emptied, or abandoned.
    pub gives_up: bool,
    /// Bytes that a client with leases holds back.
    pub behind_bytes: usize,
    /// Clients make and remove files without a word where they may, and tell the cluster after so long; 0: they do not.
    pub gather_ms: u64,
    /// Staged bytes of a partition above which writes are held back, and half of which start a move.
    pub stage_cap_bytes: u64,
    /// Age at which staged bytes are moved to the drives, milliseconds.
    pub stage_age_ms: u64,
    /// A rule left out.
    pub broken: Option<Broken>,
    /// How messages travel.
    pub net: Net,
    /// What goes wrong.
    pub faults: FaultPlan,
}

/// How messages travel between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Fastest, microseconds.
    pub min_us: u64,
    /// Slowest of the ordinary ones, microseconds.
    pub max_us: u64,
    /// Lost, per 10,000.
    pub lost: u64,
    /// Delivered twice, per 10,000.
    pub doubled: u64,
    /// Delivered up to `late_us` later, per 10,000.
    pub late: u64,
    /// How late, microseconds.
    pub late_us: u64,
}

/// What goes wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Hosts lose power at the so-many-th passing of these points.
    pub at_points: Vec<(Point, u64)>,
    /// Mean time between power losses at random moments, microseconds; 0 = none.
    pub crash_every_us: u64,
    /// Longest time that a host stays off.
    pub down_max_us: u64,
    /// Mean time between kills of a client process; 0 = none.
    pub kill_every_us: u64,
    /// Mean time between flushes of a key-value view.
    pub flush_every_us: u64,
    /// Drives that may die, lie and fail: never more than the parity of a pack.
    pub bad_drives: Vec<u32>,
    /// Mean time between deaths of a bad drive; 0 = none.
    pub drive_death_every_us: u64,
    /// Mean time between bit flips on a bad drive; 0 = none.
    pub flip_every_us: u64,
    /// I/O errors of a bad drive, per 10,000.
    pub drive_errors: u64,
    /// Write errors of a host's metadata disk, per 10,000.
    pub log_errors: u64,
    /// Mean time between moments at which a metadata disk is full for a while; 0 = none.
    pub log_full_every_us: u64,
    /// Mean time between moments at which a key-value view has no room for a while; 0 = none.
    pub view_full_every_us: u64,
    /// Mean time between jumps of a host's wall clock; 0 = none.
    pub wall_jump_every_us: u64,
    /// Mean time between moments at which a host does not reach another one for a while; 0 = none.
    pub cut_every_us: u64,
    /// Mean time between moments at which a metadata disk begins to hang, one at a time: for a while, or until its host
    /// loses power; 0 = none.
    pub hang_every_us: u64,
    /// Mean time between moments at which a host loses its metadata disk; 0 = none.
    pub wipe_every_us: u64,
    /// Mean time between moments at which a host stops in order, or a replica should be elsewhere; 0 = none.
    pub leave_every_us: u64,
    /// Largest drift of a clock, parts per million.
    pub drift_ppm: u64,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self {
            at_points: Vec::new(),
            crash_every_us: 0,
            down_max_us: 1_000_000,
            kill_every_us: 0,
            flush_every_us: 5_000_000,
            bad_drives: Vec::new(),
            drive_death_every_us: 0,
            flip_every_us: 0,
            drive_errors: 0,
            log_errors: 0,
            log_full_every_us: 0,
            view_full_every_us: 0,
            wall_jump_every_us: 0,
            cut_every_us: 0,
            hang_every_us: 0,
            wipe_every_us: 0,
            leave_every_us: 0,
            drift_ppm: 0,
        }
    }
}

impl Net {
    /// A network that loses nothing.
    pub const CALM: Self = Self { min_us: 20, max_us: 200, lost: 0, doubled: 0, late: 0, late_us: 0 };
}

impl SimConfig {
    /// A small cluster in which nothing goes wrong.
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            partitions: 3,
            hosts: 1,
            members: 1,
            drives: 6,
            data: 4,
            parity: 2,
            shard_bytes: 256 << 10,
            slots: 64,
            capacity_bytes: 1 << 30,
            segment_bytes: 8 << 20,
            stage_cache_bytes: 4 << 20,
            log_soft_bytes: 32 << 20,
            clients: 2,
            hands: 1,
            ops: 150,
            fills: false,
            leases: false,
            desk: false,
            tiered: false,
            store: StorePlan::default(),
            gives_up: false,
            behind_bytes: 0,
            gather_ms: 0,
            stage_cap_bytes: 64 << 20,
            stage_age_ms: 10_000,
            broken: None,
            net: Net::CALM,
            faults: FaultPlan::none(),
        }
    }

    /// The run of `seed`: of four runs one fills its drives, of two one has clients with leases, which hold bytes back
    /// in every other of them.
    pub fn from_seed(seed: u64) -> Self {
        let config = Self::plain(seed);
        let leases = seed % 8 < 4;
        let behind_bytes = if leases && seed.is_multiple_of(2) { 2 << 20 } else { 0 };
        let gather_ms = if behind_bytes > 0 { gather_ms(seed) } else { 0 };
        let mut config = Self { leases, behind_bytes, gather_ms, ..config };
        if gather_ms >= 500 {
            config.faults.kill_every_us = 3_000_000;
        }
        if leases {
            // After each of them a partition waits for those who had leases: more would leave no time for anything else.
            config.faults.crash_every_us *= 10;
        }
        if seed % 4 == 1 { config.full() } else { config }
    }

    /// The same with drives so small that they fill.
    fn full(self) -> Self {
        let rng = &mut Rng::new(self.seed ^ 0xF011);
        let shard_bytes = *pick(rng, &[64 << 10, 128 << 10]);
        let slots = (*pick(rng, &[3 << 20, 6 << 20]) / shard_bytes).max(slots_min(self.partitions));
        let raw = slots * shard_bytes * u64::from(self.drives);
        let protection = Protection { data: self.data, parity: self.parity };
        let net = net_bytes(raw, protection, self.drives as usize, 0) / u64::from(self.partitions);
        // What a cluster gives its users, or more than there is: then it is the drives that say no.
        let capacity_bytes = *pick(rng, &[net, net, 2 * net]);
        let stage_cap_bytes = *pick(rng, &[256 << 10, 1 << 20, 4 << 20]);
        // Calls are larger here than elsewhere: fewer of them fill the drives.
        let (clients, hands, ops) = (2, 1, self.ops.min(90));
        let full = Self { fills: true, clients, hands, ops, shard_bytes, slots, capacity_bytes, ..self };
        Self { stage_cap_bytes, stage_age_ms: 300, ..full }
    }

    /// The same as it was before clients could make files without a word.
    pub fn without_promises(mut self) -> Self {
        self.gather_ms = 0;
        self.faults.kill_every_us = Self::plain(self.seed).faults.kill_every_us;
        self
    }

    fn plain(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x5EED_0001);
        let partitions = *pick(rng, &[1, 3]);
        let hosts = if partitions > 1 && rng.chance(1, 2) { u32::from(partitions) } else { 1 };
        let shard_bytes = *pick(rng, &[64 << 10, 128 << 10, 256 << 10, 1 << 20]);
        // Bytes of all slots of a drive: from "soon full" to "roomy".
        let drive_bytes = *pick(rng, &[3 << 20, 8 << 20, 24 << 20]);
        let clients = 2 + rng.below(3) as u32;
        Self {
            seed,
            partitions,
            hosts,
            members: 1,
            drives: 6,
            data: 4,
            parity: 2,
            shard_bytes,
            slots: (drive_bytes / shard_bytes).clamp(slots_min(partitions), 96),
            capacity_bytes: if rng.chance(1, 4) { 6 << 20 } else { 1 << 30 },
            segment_bytes: *pick(rng, &[4 << 20, 8 << 20]),
            stage_cache_bytes: *pick(rng, &[0, 64 << 10, 4 << 20]),
            log_soft_bytes: *pick(rng, &[8 << 20, 16 << 20, 64 << 20]),
            clients,
            hands: if clients == 2 && rng.chance(1, 2) { 2 } else { 1 },
            ops: 60 + rng.below(240) as u32,
            fills: false,
            leases: false,
            desk: false,
            tiered: false,
            store: StorePlan::default(),
            gives_up: false,
            behind_bytes: 0,
            gather_ms: 0,
            stage_cap_bytes: *pick(rng, &[256 << 10, 2 << 20, 64 << 20]),
            stage_age_ms: *pick(rng, &[300, 3_000, 10_000]),
            broken: None,
            net: net(rng),
            faults: faults(seed, rng),
        }
    }

    /// The same with three or more hosts, on three of which each partition has a replica.
    pub fn replicated(seed: u64) -> Self {
        let config = Self::from_seed(seed);
        let rng = &mut Rng::new(seed ^ 0x3E91);
        let faults = &config.faults;
        // A fail-over takes seconds: more of them would leave no time for anything else.
        let crash_every_us = faults.crash_every_us.max(*pick(rng, &[2_000_000, 10_000_000]));
        let cut_every_us = *pick(rng, &[0, 3_000_000, 10_000_000]);
        let wipe_every_us = *pick(rng, &[0, 20_000_000]);
        let faults = FaultPlan { crash_every_us, cut_every_us, wipe_every_us, ..config.faults.clone() };
        Self { hosts: *pick(rng, &[3, 6]), members: 3, desk: true, faults, ..config }
    }

    /// The same; hosts are often cut off from each other, but not from clients, who have no leases.
    pub fn isolated(seed: u64) -> Self {
        let config = Self::replicated(seed);
        let crash_every_us = *pick(&mut Rng::new(seed ^ 0x1501), &[0, 1_000_000, 5_000_000]);
        let faults =
            FaultPlan { crash_every_us, cut_every_us: 1_500_000, down_max_us: 50_000, ..config.faults.clone() };
        let net = Net { lost: 0, late: 0, ..config.net };
        Self { clients: 4, hands: 1, leases: false, behind_bytes: 0, net, faults, ..config }
    }

    /// Nothing goes wrong but that the metadata disk of a host hangs, and then perhaps that of another one: nobody is held up
    /// for as long as it does.
    pub fn hanging(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x4A46);
        let calm = Self { hosts: *pick(rng, &[3, 6]), members: 3, desk: true, ..Self::calm(seed) };
        let hang_every_us = *pick(rng, &[1_000_000, 5_000_000]);
        let faults = FaultPlan { hang_every_us, drift_ppm: 50_000, ..calm.faults.clone() };
        let (leases, behind_bytes) = (seed.is_multiple_of(2), if seed % 4 == 2 { 2 << 20 } else { 0 });
        let net = Net { max_us: *pick(rng, &[200, 2_000]), ..Net::CALM };
        Self { leases, behind_bytes, net, faults, ..calm }
    }

    /// The same as [`Self::replicated`]; hosts often lose their metadata disks, and are back at once.
    pub fn wiped(seed: u64) -> Self {
        let config = Self::replicated(seed);
        let faults = FaultPlan { wipe_every_us: 1_500_000, down_max_us: 50_000, ..config.faults.clone() };
        let net = Net { late: 1_000, late_us: 3_000_000, ..config.net };
        Self { net, faults, ..config }
    }

    /// The same; hosts often stop in order, and replicas and leads should be elsewhere.
    pub fn leaving(seed: u64) -> Self {
        let config = Self::replicated(seed);
        let rng = &mut Rng::new(seed ^ 0x1EA7);
        let crash_every_us = *pick(rng, &[0, 3_000_000, 10_000_000]);
        let leave_every_us = *pick(rng, &[700_000, 2_000_000]);
        let faults = FaultPlan { crash_every_us, leave_every_us, down_max_us: 1_000_000, ..config.faults.clone() };
        Self { faults, ..config }
    }

    /// The same; drives are often away, and then emptied or abandoned, with two to spare. As many are bad as a pack makes up
    /// for: what others could make up for is never given up, whoever else is silent just then.
    pub fn giving_up(seed: u64) -> Self {
        let config = Self::replicated(seed);
        let rng = &mut Rng::new(seed ^ 0x61FE);
        let mut bad_drives: Vec<u32> = (0..6).collect();
        rng.shuffle(&mut bad_drives);
        bad_drives.truncate(usize::from(config.parity));
        let drive_death_every_us = *pick(rng, &[1_000_000, 4_000_000]);
        let faults = FaultPlan { bad_drives, drive_death_every_us, ..config.faults.clone() };
        Self { drives: 8, gives_up: true, stage_age_ms: 300, faults, ..config }
    }

    /// The same as [`Self::from_seed`] and [`Self::replicated`] in turn, with an object store.
    pub fn tiered(seed: u64) -> Self {
        let config = if seed.is_multiple_of(2) { Self::from_seed(seed) } else { Self::replicated(seed) };
        let mut config = Self { tiered: true, store: StorePlan::from_seed(seed), ..config };
        let rng = &mut Rng::new(seed ^ 0x7013);
        // Each step of the tier has its turn; half of the runs have several.
        let own = Point::OF_TIER[(seed % Point::OF_TIER.len() as u64) as usize];
        config.faults.at_points.push((own, some(rng, 2)));
        config.store.leads_to(own);
        if config.store.names_few {
            // Few objects have bytes of several chunks.
            config.faults.at_points.push((Point::PartlyNamed, 1));
        }
        for _ in 0..rng.below(2) * 3 {
            config.faults.at_points.push((*pick(rng, Point::OF_TIER), some(rng, 5)));
        }
        config
    }

    /// The hosts on which partition `p` has a replica.
    pub fn hosts_of(&self, p: PartitionId) -> impl Iterator<Item = u32> + use<> {
        let hosts = self.hosts;
        (0..self.members).map(move |at| (u32::from(p.0) + at) % hosts)
    }

    /// True if the cluster may run full.
    pub fn is_scarce(&self) -> bool {
        let net = self.slots * self.shard_bytes * u64::from(self.drives) * u64::from(self.data);
        let net = net / u64::from(self.data + self.parity);
        net < 60 << 20 || self.capacity_bytes < 60 << 20 || (self.tiered && self.store.may_refuse())
    }

    /// The clock of a node: as wrong as the plan allows.
    pub fn clock(&self, rng: &mut Rng) -> Clock {
        let drift = self.faults.drift_ppm;
        let drift_ppm = rng.below(2 * drift + 1) as i64 - drift as i64;
        Clock { drift_ppm, start_us: rng.below(1 << 40) }
    }
}

fn net(rng: &mut Rng) -> Net {
    let rough = rng.below(4);
    Net {
        min_us: 20,
        max_us: *pick(rng, &[200, 2_000, 20_000]),
        lost: [0, 50, 300, 1500][rough as usize],
        doubled: [0, 100, 500, 1500][rough as usize],
        late: [0, 100, 300, 1000][rough as usize],
        late_us: *pick(rng, &[100_000, 3_000_000]),
    }
}

fn faults(seed: u64, rng: &mut Rng) -> FaultPlan {
    let mut at_points = Vec::new();
    // Every point has its turn; others join it by chance.
    let own = Point::ALL[(seed % Point::ALL.len() as u64) as usize];
    at_points.push((own, some(rng, 5)));
    for _ in 0..rng.below(4) {
        at_points.push((*pick(rng, Point::ALL), some(rng, 8)));
    }
    let mut bad_drives: Vec<u32> = (0..6).collect();
    rng.shuffle(&mut bad_drives);
    bad_drives.truncate(rng.index(3));
    FaultPlan {
        at_points,
        crash_every_us: *pick(rng, &[0, 400_000, 2_000_000, 10_000_000]),
        down_max_us: *pick(rng, &[50_000, 3_000_000]),
        kill_every_us: *pick(rng, &[0, 10_000_000]),
        flush_every_us: *pick(rng, &[300_000, 3_000_000, 20_000_000]),
        bad_drives,
        drive_death_every_us: *pick(rng, &[0, 8_000_000]),
        flip_every_us: *pick(rng, &[0, 300_000]),
        drive_errors: *pick(rng, &[0, 20, 300]),
        log_errors: *pick(rng, &[0, 0, 20]),
        log_full_every_us: *pick(rng, &[0, 0, 20_000_000]),
        wall_jump_every_us: *pick(rng, &[0, 5_000_000]),
        cut_every_us: 0,
        hang_every_us: 0,
        wipe_every_us: 0,
        leave_every_us: 0,
        drift_ppm: 50_000,
        view_full_every_us: *pick(rng, &[0, 0, 10_000_000]),
    }
}

/// One of `choices`.
pub fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.index(choices.len())]
}

/// A number from 1 to about `2^bits`, small ones more often.
pub fn some(rng: &mut Rng, bits: u64) -> u64 {
    let bits = rng.below(bits);
    1 + rng.below(1 << bits)
}

/// One of four groups of eight seeds without promises, the others longer and longer ones: what is lost with a client is
/// what gathers when it dies.
fn gather_ms(seed: u64) -> u64 {
    [0, 10, 500, 4_000][(seed / 8 % 4) as usize]
}
