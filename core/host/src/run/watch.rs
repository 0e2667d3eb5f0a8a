//! Watches the drives of a host: once a second each is asked how it is, and partitions hear which to use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use braid_base::ids::DriveId;
use braid_base::limits::DRIVE_HUNG_MS;
use braid_base::msg::drive::{DriveOp, DriveReply, Trouble};
use braid_cluster::health::{self, Watched};
use braid_io::clock;

use super::wire::Switch;

/// All drives together have so long to say how they are, milliseconds; they do no I/O for it.
const ANSWER_MS: u64 = 1_000;

/// What was seen last.
pub(super) struct Watch {
    switch: Arc<Switch>,
    /// Shards of a pack that may be missing.
    parity: u8,
    seen: Vec<Watched>,
    heard: Heard,
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

    /// What is wrong with a drive that does not answer in time.
    fn trouble(&self, drive: DriveId, now_ms: u64) -> Trouble {
        match self.times().get(&drive) {
            Some(time) if now_ms >= *time + DRIVE_HUNG_MS => Trouble::Failing,
            _ => Trouble::Slow,
        }
    }
}

impl Watch {
    pub(super) fn new(switch: Arc<Switch>, parity: u8) -> Self {
        Self { switch, parity, seen: Vec::new(), heard: Heard::default() }
    }

    /// Looks once; partitions hear of it if other drives are to be used from now on.
    pub(super) fn round(&mut self) {
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
        let mut absent: BTreeSet<DriveId> = self.switch.all_drive_ids().into_iter().collect();
        self.switch.change_drives(|set| {
            // One of this host that could not be opened is known by its domain only.
            absent.extend(set.domains.keys());
            absent.retain(|drive| !answers(drive));
            set.absent.clone_from(&absent);
            // One that was removed may answer as long as its process runs, and is no part of the cluster.
            let takes = |drive: &DriveId| {
                !set.leaving.contains(drive) && (set.domains.is_empty() || set.domains.contains_key(drive))
            };
            let usable = health::usable(self.parity, &found, |drive| set.domain(drive));
            set.usable = usable.into_iter().filter(takes).collect();
        });
        let fails = |watched: &&Watched| watched.trouble == Some(Trouble::Failing);
        absent.extend(found.iter().filter(fails).map(|watched| watched.drive));
        *self.switch.absent.lock().unwrap_or_else(PoisonError::into_inner) = Some(absent);
        self.seen = found;
    }

    /// Drives of this host whose file or device is gone stop: nobody would find again what was written there.
    fn drop_gone(&self) {
        let mut marks = self.switch.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<DriveId> = marks.iter().filter(|(_, mark)| mark.is_gone()).map(|(id, _)| *id).collect();
        for id in gone {
            marks.remove(&id);
            let drive = self.switch.drives.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if drive.is_some() {
                tracing::error!("drive {id}: what lay at its path is gone; it is not used any more");
            }
        }
    }

    fn look(&self) -> Vec<Watched> {
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
            // One that does not even answer is slow, to say the least.
            found.push(Watched { drive: id, trouble: Some(self.heard.trouble(id, now_ms)) });
        }
        drop(to);
        let own = self.switch.drive_ids();
        let end_ms = now_ms + ANSWER_MS;
        let left = || Duration::from_millis(end_ms.saturating_sub(clock::mono_ms()));
        while let Ok((id, answer)) = answers.recv_timeout(left()) {
            match answer {
                Ok(DriveReply::Stat(stat)) => {
                    found.iter_mut().filter(|w| w.drive == id).for_each(|w| w.trouble = stat.trouble);
                }
                // Its host is away, or has lost it.
                Err(_) if !own.contains(&id) => found.retain(|watched| watched.drive != id),
                _ => {}
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
        let troubles = |now_ms| [a, b].map(|drive| heard.trouble(drive, now_ms));
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
}
