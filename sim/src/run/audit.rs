//! The audit: everything that was acknowledged is there, on every way to it.

use braid_base::Result;
use braid_base::attr::FileType;
use braid_base::ids::{Ino, PartitionId};
use braid_client::Fs;
use braid_io::chance::Rng;

use super::{PEACE_MAX_US, Run};
use crate::board::{Board, Node};
use crate::compare::Inspector;
use crate::desk;
use crate::fsck::{self, Part};
use crate::hand;
use crate::media::Drives;
use crate::model::Model;
use crate::perform::list;

/// In peace everything staged is on the drives after this time, if there is room.
const DESTAGE_MAX_US: u64 = 180_000_000;
/// After everything is removed all room is free again within this time: drives are asked every ten minutes for shards
/// that nobody knows, and packs that were never used are closed after two.
const EMPTY_MAX_US: u64 = 1_500_000_000;
/// In peace all members of a partition hold the same after this time.
const EVEN_MAX_US: u64 = 60_000_000;
/// It is looked at so often.
const LOOK_US: u64 = 1_000_000;

/// The words say what is wrong.
type Answer<T> = std::result::Result<T, String>;

impl Run {
    /// Compares all trees before and after everything is moved to the drives, checks the records against each
    /// other, compares again without as many drives as may be missing. True if everything could be moved.
    pub(super) fn audit(&mut self) -> Answer<bool> {
        self.world.power_cycle();
        self.compare("after the last power loss")?;
        self.judge()?;
        self.finish_operations()?;
        self.even()?;
        let destaged = self.world.run(DESTAGE_MAX_US, |world| world.is_destaged());
        self.broken()?;
        if !destaged && !self.world.config.is_scarce() {
            return Err(format!("not everything was moved to the drives: {}", self.world.status()));
        }
        self.compare("after all was moved to the drives")?;
        self.save()?;
        self.leave_stores()?;
        self.fsck()?;
        for drive in self.world.lose_drives() {
            self.world.note(|| format!("d{drive} is taken away"));
        }
        self.compare("without as many drives as may be missing")?;
        self.empty()?;
        Ok(destaged)
    }

    /// What is lost is known everywhere now: what is on flash, too, is put elsewhere.
    fn save(&mut self) -> Answer<()> {
        if !self.world.board().has_lost() {
            return Ok(());
        }
        self.world.find_all_lost(true);
        let saved = self.world.run(DESTAGE_MAX_US, |world| world.is_saved());
        self.broken()?;
        if !saved && !self.world.config.is_scarce() {
            return Err(format!("what is on flash counts on damaged objects still: {}", self.world.status()));
        }
        Ok(())
    }

    /// A store that is to be left comes to be empty, and nothing lies in one that nobody knows of.
    fn leave_stores(&mut self) -> Answer<()> {
        if !self.world.config.tiered {
            return Ok(());
        }
        let left = self.world.run(DESTAGE_MAX_US, |world| world.is_left(true));
        self.broken()?;
        // Of what is lost nothing can be put elsewhere.
        if !left && !self.world.config.is_scarce() && !self.world.board().has_lost() {
            return Err(format!("a store that is to be left does not become empty: {}", self.world.status()));
        }
        // A view may be behind what is committed.
        if !self.world.run(EVEN_MAX_US, |world| world.unknown_objects().is_empty()) {
            self.broken()?;
            let unknown = self.world.unknown_objects();
            return Err(format!("I24: nobody knows of the objects {}", unknown.join(", ")));
        }
        Ok(())
    }

    /// What clients were answered at the desk is what one cluster answers, one call after the other.
    fn judge(&mut self) -> Answer<()> {
        let Some(desk) = self.desk.clone() else { return Ok(()) };
        let fs = self.mount(Node::Auditor);
        let look = desk::look(desk.clone(), fs, self.world.board.clone());
        self.wait("the last look at the desk", Node::Auditor, PEACE_MAX_US, look)??;
        desk::judge(&desk, &self.world.board)
    }

    /// Removes everything: all room comes back, and nothing is left in any table.
    fn empty(&mut self) -> Answer<()> {
        self.world.note(|| "everything is removed".to_owned());
        self.world.end_trouble();
        let fs = self.mount(Node::Auditor);
        let removed = self.wait("the removal", Node::Auditor, PEACE_MAX_US, remove_all(fs))?;
        removed.map_err(|error| format!("everything is to be removed: {error}"))?;
        self.finish_operations()?;
        let end = self.world.now_us() + EMPTY_MAX_US;
        while self.world.now_us() < end && !self.world.is_empty() {
            self.world.run(LOOK_US, |_| false);
            self.broken()?;
        }
        if !self.world.is_empty() {
            return Err(format!("room did not come back after everything was removed: {}", self.world.status()));
        }
        self.fsck()
    }

    fn compare(&mut self, when: &str) -> Answer<()> {
        self.world.note(|| format!("compare {when}"));
        let fs = self.mount(Node::Auditor);
        let models: Vec<Model> = self
            .hands
            .iter()
            .map(|hand| {
                let mut hand = hand::lock(hand);
                hand.model.forget_nameless();
                hand.model.clone()
            })
            .collect();
        let rng = Rng::new(self.world.config.seed ^ 0xA0D1);
        let task = compare_all(fs, self.world.board(), models, rng);
        let result = self.wait("the comparison", Node::Auditor, PEACE_MAX_US, task)?;
        result.map_err(|what| format!("{when}: {what}"))
    }

    /// All members of a partition hold the same, once they have heard of everything.
    fn even(&mut self) -> Answer<()> {
        let end = self.world.now_us() + EVEN_MAX_US;
        while !self.world.is_even()? {
            if self.world.now_us() > end {
                return Err(format!("members do not come to hold the same: {}", self.world.status()));
            }
            self.world.run(LOOK_US, |_| false);
            self.broken()?;
        }
        Ok(())
    }

    /// Waits until no partition owes another one anything.
    fn finish_operations(&mut self) -> Answer<()> {
        let done = self.world.run(PEACE_MAX_US / 4, |world| world.is_finished());
        self.broken()?;
        if done { Ok(()) } else { Err("operations that span partitions do not come to an end in peace".to_owned()) }
    }

    fn fsck(&mut self) -> Answer<()> {
        // Background work may be in the middle of something: everything proposed is to be in the views. Drives may have
        // dropped shards by what is committed and not in a view yet.
        self.world.run(2_000_000, |_| false);
        self.broken()?;
        if !self.world.run(EVEN_MAX_US, |world| world.is_settled()) {
            self.broken()?;
            return Err(format!("the views do not come to hold all that is committed: {}", self.world.status()));
        }
        let world = &self.world;
        let firsts = world.log_firsts().map_err(|error| format!("the logs cannot be read: {error}"))?;
        let parts: Vec<Part<'_>> =
            firsts.iter().map(|(id, first)| Part { id: *id, kv: world.kv_of(*id), log_first: Some(*first) }).collect();
        assert!(parts.iter().enumerate().all(|(at, part)| part.id == PartitionId(at as u16)));
        let mut media = Drives::new(world);
        let findings = fsck::check(crate::FS, &parts, &mut media).map_err(|error| format!("fsck: {error}"))?;
        if findings.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = findings.iter().take(12).map(ToString::to_string).collect();
        Err(format!("fsck found {} faults: {}", findings.len(), lines.join("; ")))
    }
}

/// All names below the root.
async fn remove_all(fs: Fs) -> Result<()> {
    // Each with its name in the directory above it.
    let mut dirs = vec![(fs.root(), None::<(Ino, Vec<u8>)>)];
    while let Some((dir, name)) = dirs.last().cloned() {
        let mut below = Vec::new();
        for (entry, ino, attr) in list(&fs, dir, 64, true).await? {
            if attr.is_some_and(|attr| attr.kind == FileType::Directory) {
                below.push((ino, Some((dir, entry))));
            } else {
                fs.unlink(dir, &entry).await?;
            }
        }
        if below.is_empty() {
            if let Some((above, name)) = name {
                fs.rmdir(above, &name).await?;
            }
            dirs.pop();
        }
        dirs.extend(below);
    }
    Ok(())
}

async fn compare_all(fs: Fs, board: Board, models: Vec<Model>, mut rng: Rng) -> Answer<()> {
    let mut inspector = Inspector { fs: &fs, rng: &mut rng, rival: None, board: &board };
    for (number, model) in models.iter().enumerate() {
        inspector.compare(model).await.map_err(|what| format!("hand {number}: {what}"))?;
    }
    Ok(())
}
