//! Drives that partitions are told to use or to empty, and packs that they have checked.

use braid_base::Result;
use braid_base::ids::DriveId;
use braid_base::msg::job::{RebuildJob, ScrubJob, Scrubbed};
use braid_client::mover;
use braid_host::seat::SeatEvent;
use braid_meta::{DriveSet, Leave};

use super::World;
use crate::board::{At, Node, Sent};
use crate::deeds::Deed;
use crate::queue::Event;

impl World {
    /// In a while the administrator tells all partitions which drives are there now; not always.
    pub(super) fn tell_usable(&mut self) {
        if self.config.tiered || self.config.gives_up || self.rng.chance(1, 2) {
            let at = self.soon(3_000_000);
            let there = |id: &u32| !self.drives[*id as usize].dead;
            let usable = (0..self.config.drives).filter(there).map(DriveId).collect();
            self.queue.put(at, Event::DrivesChange { usable });
        }
    }

    pub(super) fn drives_change(&mut self, usable: Vec<DriveId>) {
        self.note(|| format!("the drives to use are {usable:?}"));
        let mut set = DriveSet::from(usable.clone());
        if self.config.tiered || self.config.gives_up {
            let gone = (0..self.config.drives).map(DriveId).filter(|drive| !usable.contains(drive));
            set.absent = gone.collect();
        }
        if self.config.tiered {
            // What lies there without parity is given up.
            set.leaving = set.absent.iter().map(|drive| (*drive, Leave::Failed)).collect();
        } else if self.config.gives_up {
            for drive in set.absent.clone() {
                let why = [None, Some(Leave::Failed), Some(Leave::Draining), Some(Leave::Abandoned)];
                let why = why[self.rng.index(why.len())];
                self.note(|| format!("{drive} is away, and leaves: {why:?}"));
                set.leaving.extend(why.map(|why| (drive, why)));
            }
        }
        for node in self.hosts.iter_mut().flat_map(|host| host.seats.values_mut()) {
            node.seat.set_drives(set.clone());
        }
        self.drive_set = set;
    }

    /// A shard is about to be made anew.
    pub(super) fn watch_rebuild(&mut self, job: &RebuildJob) {
        self.coverage.did(if job.gone.is_empty() { Deed::MadeAnew } else { Deed::MadeAnewWithout });
    }

    /// A partition has a pack checked.
    pub(super) fn start_check(&mut self, at: At, job: ScrubJob) {
        let (life, board) = (self.hosts[at.host as usize].life, self.board.clone());
        let Some(reader) = self.seat(at).map(|node| node.reader.clone()) else { return };
        let task = async move {
            let result = mover::scrub(&reader, &job).await;
            board.send(Sent::Checked(at, life, Box::new(job), result));
        };
        self.spawn(Node::Host(at.host), Box::pin(task));
    }

    /// Never more drives are bad than the parity of a pack makes up for: nothing is lost for good.
    pub(super) fn checked(&mut self, at: At, life: u64, job: &ScrubJob, result: Result<Scrubbed>) {
        if !self.is_alive(at, life) {
            return;
        }
        self.note(|| format!("{at} has checked {}: {result:?}", job.pack));
        if let Ok(found) = &result {
            self.coverage.did(Deed::PackChecked);
            if !found.lost.is_empty() && job.place.parity > 0 {
                self.board.violation(format!("{at}: {} is told to have lost {:?}", job.pack, found.lost));
            }
        }
        self.step(at, SeatEvent::Scrubbed(job.id, result));
    }
}
