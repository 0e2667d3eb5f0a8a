//! Watches the drives of a host: once a second each is asked how it is, and partitions hear which to use.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::Duration;

use braid_base::ids::DriveId;
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
}

impl Watch {
    pub(super) fn new(switch: Arc<Switch>, parity: u8) -> Self {
        Self { switch, parity, seen: Vec::new() }
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
        let mut found: Vec<Watched> = Vec::new();
        for id in self.switch.all_drive_ids() {
            let to = to.clone();
            self.switch.ask_drive(id, DriveOp::Stat, move |answer| drop(to.send((id, answer))));
            // One that does not even answer is slow, to say the least.
            found.push(Watched { drive: id, trouble: Some(Trouble::Slow) });
        }
        drop(to);
        let own = self.switch.drive_ids();
        let end_ms = clock::mono_ms() + ANSWER_MS;
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
