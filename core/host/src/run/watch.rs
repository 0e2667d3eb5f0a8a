//! Watches the drives of a host: once a second each is asked how it is, and partitions hear which to use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use braid_base::ids::DriveId;
use braid_base::limits::DRIVE_HUNG_MS;
use braid_base::msg::drive::{DriveOp, DriveReply, Trouble};
use braid_base::msg::event::{Event, EventType};
use braid_cluster::health::{self, Watched};
use braid_io::clock;
use braid_io::limited::each_within;

use super::drives::Late;
use super::wire::{Mark, Switch};

/// All drives together have so long to say how they are, milliseconds; they do no I/O for it.
const ANSWER_MS: u64 = 1_000;

/// The paths of all drives together may be looked at for so long, milliseconds.
const LOOK_MS: u64 = 500;

/// What was seen last.
pub(super) struct Watch {
    switch: Arc<Switch>,
    /// Shards of a pack that may be missing.
    parity: u8,
    seen: Vec<Watched>,
    /// Those of them that had not answered in time.
    tardy: BTreeSet<DriveId>,
    heard: Heard,
    looks: Looks,
    /// Drives that open later.
    late: Late,
}

/// Paths that are being looked at: one on a file system that hangs is not asked again until it has answered.
#[derive(Clone, Default)]
struct Looks(Arc<Mutex<BTreeSet<DriveId>>>);

impl Looks {
    fn under_way(&self) -> MutexGuard<'_, BTreeSet<DriveId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of `marks` that are gone, as far as that is known in time.
    fn gone<M: Clone + Send + 'static>(
        &self,
        mut marks: Vec<(DriveId, M)>,
        is_gone: impl Fn(&M) -> bool + Clone + Send + 'static,
    ) -> Vec<DriveId> {
        marks.retain(|(id, _)| !self.under_way().contains(id));
        let this = self.clone();
        let look = move |(id, mark): &(DriveId, M)| {
            this.under_way().insert(*id);
            let gone = is_gone(mark);
            this.under_way().remove(id);
            gone
        };
        let looked = each_within("look-at-path", LOOK_MS, marks, look).into_iter();
        looked.filter(|(_, gone)| *gone == Some(true)).map(|((id, _), _)| id).collect()
    }
}

/// When drives last said how they are, also after the time they have for it, milliseconds; or when they were first asked.
/// One that has said nothing for long fails, whatever holds it up: what is on it is out of reach.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<BTreeMap<DriveId, u64>>>);

impl Heard {
    fn times(&self) -> MutexGuard<'_, BTreeMap<DriveId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of `drives` are asked, and no others.
    fn ask(&self, drives: &[DriveId], now_ms: u64) {
        let mut times = self.times();
        times.retain(|drive, _| drives.contains(drive));
        drives.iter().for_each(|drive| _ = times.entry(*drive).or_insert(now_ms));
    }

    fn say(&self, drive: DriveId, now_ms: u64) {
        if let Some(time) = self.times().get_mut(&drive) {
            *time = now_ms;
        }
    }

    /// What is wrong with a drive that does not answer in time. `before`: what was wrong in the last round, if it answered in
    /// time then. One answer that is late changes nothing: perhaps it was the machine, and packs on a drive that gets no new
    /// data are closed.
    fn trouble(&self, drive: DriveId, now_ms: u64, before: Option<Option<Trouble>>) -> Option<Trouble> {
        match self.times().get(&drive) {
            Some(time) if now_ms >= *time + DRIVE_HUNG_MS => Some(Trouble::Failing),
            _ => before.unwrap_or(Some(Trouble::Slow)),
        }
    }
}

impl Watch {
    /// Nothing seen yet; `late`: drives that open later.
    pub(super) fn new(switch: Arc<Switch>, parity: u8, late: Late) -> Self {
        let (seen, tardy, heard, looks) = Default::default();
        Self { switch, parity, seen, tardy, heard, looks, late }
    }

    /// Looks once; partitions hear of it if other drives are to be used from now on.
    pub(super) fn round(&mut self) {
        self.take_late();
        self.drop_gone();
        let found = self.look();
        for now in &found {
            let before = self.seen.iter().find(|before| before.drive == now.drive).and_then(|before| before.trouble);
            match now.trouble {
                Some(trouble) if before != Some(trouble) => {
                    tracing::warn!("drive {}: {}", now.drive, health::trouble_words(trouble));
                }
                None if before.is_some() => tracing::info!("drive {} is well again and gets new data", now.drive),
                _ => {}
            }
        }
        let answers = |drive: &DriveId| found.iter().any(|watched| watched.drive == *drive);
        let fails = |watched: &&Watched| watched.trouble == Some(Trouble::Failing);
        let mut absent: BTreeSet<DriveId> = self.switch.all_drive_ids().into_iter().collect();
        self.switch.change_drives(|set| {
            // One of this host that could not be opened is known by its domain only.
            absent.extend(set.domains.keys());
            absent.retain(|drive| !answers(drive));
            set.absent.clone_from(&absent);
            // One that was removed may answer as long as its process runs, and is no part of the cluster.
            let takes = |drive: &DriveId| {
                !set.leaving.contains_key(drive) && (set.domains.is_empty() || set.domains.contains_key(drive))
            };
            let usable = health::usable(self.parity, &found, |drive| set.domain(drive));
            set.usable = usable.into_iter().filter(takes).collect();
        });
        absent.extend(found.iter().filter(fails).map(|watched| watched.drive));
        *self.switch.absent.lock().unwrap_or_else(PoisonError::into_inner) = Some(absent);
        self.seen = found;
    }

    /// Drives that have opened since are used, unless they were removed meanwhile; those that are away are looked for.
    fn take_late(&mut self) {
        let set = self.switch.drive_set().clone();
        let is_ours = |id| set.domains.is_empty() || set.domains.contains_key(&id);
        let runs = |id| self.switch.drives.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id);
        self.late.look_again(clock::mono_ms(), |id| is_ours(id) && !runs(id));
        for opened in self.late.opened() {
            let id = opened.id;
            if !is_ours(id) {
                tracing::info!("drive {id} has opened, and is no part of the cluster any more");
                continue;
            }
            self.switch.take_in(opened, self.late.own());
            let text = format!("drive {id} has opened and is used from now on");
            self.switch.objects.events().tell(Event::new(EventType::DRIVE_RECOVERED, text).about("drive", id));
        }
    }

    /// Drives of this host whose file or device is gone stop: nobody would find again what was written there.
    fn drop_gone(&self) {
        let marks = || self.switch.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = marks().iter().map(|(id, mark)| (*id, mark.clone())).collect();
        for id in self.looks.gone(known, Mark::is_gone) {
            marks().remove(&id);
            let drive = self.switch.drives.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if drive.is_some() {
                tracing::error!("drive {id}: what lay at its path is gone; it is not used any more");
            }
        }
    }

    fn look(&mut self) -> Vec<Watched> {
        let (to, answers) = mpsc::channel();
        let (all, now_ms) = (self.switch.all_drive_ids(), clock::mono_ms());
        self.heard.ask(&all, now_ms);
        let mut found: Vec<Watched> = Vec::new();
        for id in all {
            let (to, heard) = (to.clone(), self.heard.clone());
            self.switch.ask_drive(id, DriveOp::Stat, move |answer| {
                if answer.is_ok() {
                    heard.say(id, clock::mono_ms());
                }
                let _ = to.send((id, answer));
            });
            let before = self.seen.iter().find(|seen| seen.drive == id && !self.tardy.contains(&id));
            let trouble = self.heard.trouble(id, now_ms, before.map(|seen| seen.trouble));
            found.push(Watched { drive: id, trouble });
        }
        drop(to);
        self.tardy = found.iter().map(|watched| watched.drive).collect();
        let own = self.switch.drive_ids();
        let end_ms = now_ms + ANSWER_MS;
        let left = || Duration::from_millis(end_ms.saturating_sub(clock::mono_ms()));
        while let Ok((id, answer)) = answers.recv_timeout(left()) {
            let mut is = |trouble| found.iter_mut().filter(|w| w.drive == id).for_each(|w| w.trouble = trouble);
            match answer {
                Ok(DriveReply::Stat(stat)) => {
                    self.tardy.remove(&id);
                    is(stat.trouble);
                }
                // Its host is away, or has lost it.
                Err(_) if !own.contains(&id) => found.retain(|watched| watched.drive != id),
                // One that cannot even say how it is, is slow, to say the least.
                _ => is(self.heard.trouble(id, now_ms, None)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_says_nothing_for_long_fails() {
        let (a, b, heard) = (DriveId(1), DriveId(2), Heard::default());
        let troubles = |now_ms| [a, b].map(|drive| heard.trouble(drive, now_ms, None).expect("it is late again"));
        heard.ask(&[a, b], 5);
        assert_eq!(troubles(4 + DRIVE_HUNG_MS), [Trouble::Slow; 2]);
        // Late, and so what it says is not waited for.
        heard.say(b, 1_500);
        heard.ask(&[a, b], 5 + DRIVE_HUNG_MS);
        assert_eq!(troubles(5 + DRIVE_HUNG_MS), [Trouble::Failing, Trouble::Slow]);
        heard.ask(&[b], 6 + DRIVE_HUNG_MS);
        heard.say(a, 6 + DRIVE_HUNG_MS);
        heard.ask(&[a, b], 7 + DRIVE_HUNG_MS);
        assert_eq!(troubles(8 + DRIVE_HUNG_MS), [Trouble::Slow; 2], "a is asked anew");
    }

    #[test]
    fn one_late_answer_is_no_trouble() {
        let (drive, heard) = (DriveId(1), Heard::default());
        heard.ask(&[drive], 5);
        let trouble = |before| heard.trouble(drive, 2_000, before);
        assert_eq!(trouble(Some(None)), None, "it was quick before");
        assert_eq!(trouble(Some(Some(Trouble::Full))), Some(Trouble::Full));
        assert_eq!(trouble(None), Some(Trouble::Slow), "it was late before, or never asked");
        assert_eq!(heard.trouble(drive, 5 + DRIVE_HUNG_MS, Some(None)), Some(Trouble::Failing));
    }

    #[test]
    fn one_path_that_hangs_hides_no_other() {
        let (hung, gone, there) = (DriveId(1), DriveId(2), DriveId(3));
        let looks = Looks::default();
        let (end, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new((hangs, 0)));
        let asked = Arc::clone(&hangs);
        let is_gone = move |drive: &DriveId| {
            if *drive == hung {
                let mut hangs = hangs.lock().expect("no panic");
                hangs.1 += 1;
                let _ = hangs.0.recv();
            }
            *drive != there
        };
        let found =
            |drives: &[DriveId]| looks.gone(drives.iter().map(|drive| (*drive, *drive)).collect(), is_gone.clone());
        assert_eq!(found(&[hung, gone, there]), [gone]);
        assert_eq!(found(&[hung, there]), []);
        drop(end);
        let until_ms = clock::mono_ms() + 30_000;
        while looks.under_way().contains(&hung) && clock::mono_ms() < until_ms {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert_eq!(asked.lock().expect("no panic").1, 1, "it was asked once as long as it hung");
        assert_eq!(found(&[hung, there]), [hung]);
    }
}
