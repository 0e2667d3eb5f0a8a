//! Slow, periodic work of a host: flushing the view so that logs can be trimmed, sharing out capacity, watching drives.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_base::Result;
use braid_base::ids::{FsId, HostId, Index, PartitionId, Term};
use braid_base::limits::SEGMENT_BYTES;
use braid_base::msg::host::SeatReport;
use braid_cluster::fitness;
use braid_replica::Kv;

use super::seat_actor::{self, SeatMsg};
use super::shared_seat::SeatDoor;
use super::vital;
use super::watch::Watch;
use super::wire::Switch;

const ROUND: Duration = Duration::from_secs(1);
/// Segments of one partition that a flush of the view would make void, above which it is flushed, bytes: what a restart
/// may have to apply. (832 MiB of log took 5.5 s on a machine with five times more work than cores.) Segments that are
/// kept for staged bytes do not count: a flush would not help.
const FLUSH_LOG_BYTES: u64 = 2 * SEGMENT_BYTES;
/// But not more often than this: small flushes make small files.
const FLUSH_ROUNDS_MIN: u32 = 2;
/// The view is flushed at least every so many rounds if anything changed (design section 8: 5 minutes).
const FLUSH_ROUNDS: u32 = 300;

/// Bytes that file systems may hold, for those that have a bound of their own.
pub(super) type Limits = Arc<Mutex<BTreeMap<FsId, u64>>>;

/// The thread that does it.
pub(super) struct Housekeeper {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Housekeeper {
    pub(super) fn start(switch: Arc<Switch>, kv: Arc<dyn Kv>, partitions: u16, watch: Watch) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (known, flushed) = (BTreeMap::new(), BTreeMap::new());
        let mut rounds = Rounds { switch, kv, partitions, watch, known, flushed, since_flush: 0, told: false };
        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(ROUND) {
                rounds.run();
            }
        };
        let thread = vital::spawn("housekeeping", work)?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

struct Rounds {
    switch: Arc<Switch>,
    kv: Arc<dyn Kv>,
    /// How many the cluster has.
    partitions: u16,
    watch: Watch,
    /// What each partition said last where it was served.
    known: BTreeMap<PartitionId, SeatReport>,
    /// How far the view held each replica when it was flushed.
    flushed: BTreeMap<PartitionId, Index>,
    since_flush: u32,
    /// The damage of the view was told.
    told: bool,
}

impl Rounds {
    fn run(&mut self) {
        if !self.told
            && let Some(damage) = self.kv.damage()
        {
            self.told = true;
            tracing::error!("{damage}");
        }
        let seats = self.switch.all_seats();
        self.watch.round();
        let reports = seat_actor::reports(&seats);
        // One that does not answer is left out: it has no part in the flush, and holds what it said last.
        let seats: Vec<SeatDoor> =
            seats.into_iter().filter(|seat| reports.iter().any(|report| report.partition == seat.id())).collect();
        let elsewhere = self.switch.runtime.block_on(self.switch.reports_of_others());
        // Before anything that takes its time: a seat may be about to give up its lead.
        for (seat, hosts) in seats.iter().zip(fitness::unfit(&elsewhere, seats.iter().map(SeatDoor::id))) {
            let _ = seat.send(SeatMsg::Unfit(hosts));
        }
        self.share_capacity(&seats, &reports, &elsewhere);
        self.switch.look_at_stores(&reports);
        let applied: BTreeMap<PartitionId, Index> =
            reports.iter().map(|report| (report.partition, Index(report.applied))).collect();
        self.since_flush += 1;
        let long_log = reports.iter().any(|report| report.failed.is_none() && report.replay_bytes >= FLUSH_LOG_BYTES);
        let due = (long_log && self.since_flush >= FLUSH_ROUNDS_MIN) || self.since_flush >= FLUSH_ROUNDS;
        if !due || applied == self.flushed {
            return;
        }
        self.since_flush = 0;
        match self.kv.flush() {
            Ok(()) => {
                // To those that were asked: others may have taken their places.
                for (seat, report) in seats.iter().zip(&reports) {
                    let _ = seat.send(SeatMsg::Flushed(Index(report.applied)));
                }
                self.flushed = applied;
            }
            Err(error) => tracing::error!("flush of the key-value view: {error}; logs cannot be trimmed"),
        }
    }

    /// What a partition takes of flash. Of file systems whose cold data leaves it, it is what is there.
    fn occupied(&self, report: &SeatReport) -> u64 {
        let tiers = self.switch.tiers();
        let of = |(fs, used): (&FsId, &u64)| match tiers.moves_out(*fs) {
            true => (*used).min(report.data.flash_by_fs.get(fs).copied().unwrap_or(0)),
            false => *used,
        };
        report.data.used_by_fs.iter().map(of).sum()
    }

    /// Tells partitions how much flash each file system with a bound of it may fill there.
    fn share_flash(&self, seats: &[SeatDoor], reports: &[SeatReport]) {
        // What waits in the log will be there soon, and may be of any.
        let held =
            |report: &SeatReport, fs| report.data.flash_by_fs.get(&fs).copied().unwrap_or(0) + report.data.staged_bytes;
        let bounded = self.switch.tiers().bounded();
        let all: BTreeMap<FsId, u64> =
            bounded.iter().map(|fs| (*fs, self.known.values().map(|report| held(report, *fs)).sum())).collect();
        for (seat, report) in seats.iter().zip(reports).filter(|(_, report)| report.term != Term(0)) {
            let share = |(fs, all): (&FsId, &u64)| {
                self.switch.tiers().share(seat.id(), *fs, (held(report, *fs), *all), self.partitions)
            };
            // Each of them is to be shared, whatever came of the one before.
            if all.iter().map(share).fold(false, |any, changed| any | changed) {
                self.switch.tell_tiers(seat.id());
            }
        }
    }

    /// Each partition may hold what the others leave: all share one pool of drives, and the capacity of each file
    /// system. Those of other hosts say what they hold; one that is silent holds what it held.
    fn share_capacity(&mut self, seats: &[SeatDoor], reports: &[SeatReport], elsewhere: &[(HostId, SeatReport)]) {
        let serving = |report: &&SeatReport| report.term != Term(0);
        for report in elsewhere.iter().map(|(_, report)| report).chain(reports).filter(serving) {
            let known = self.known.entry(report.partition).or_default();
            if known.term <= report.term {
                *known = report.clone();
            }
        }
        if self.known.len() < usize::from(self.partitions) {
            return;
        }
        self.share_flash(seats, reports);
        let occupied: BTreeMap<PartitionId, u64> = self.known.iter().map(|(p, of)| (*p, self.occupied(of))).collect();
        let used: u64 = occupied.values().sum();
        let total = self.switch.capacity.load(Ordering::Relaxed);
        let limits = self.switch.limits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mine = || seats.iter().zip(reports).filter(|(_, report)| serving(report));
        for (seat, report) in mine() {
            let others = used - occupied.get(&report.partition).copied().unwrap_or(0);
            let (mine, limits) = (total.saturating_sub(others), limits.clone());
            let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                seat.set_capacity(mine);
                seat.set_totals(total, limits);
            })));
        }
        let held = |report: &SeatReport, fs| report.data.used_by_fs.get(fs).copied().unwrap_or(0);
        for (fs, limit) in &limits {
            let used: u64 = self.known.values().map(|report| held(report, fs)).sum();
            for (seat, report) in mine() {
                let (fs, mine) = (*fs, limit.saturating_sub(used - held(report, fs)));
                let _ = seat.send(SeatMsg::With(Box::new(move |seat| {
                    seat.set_limit(fs, Some(mine));
                })));
            }
        }
    }
}
