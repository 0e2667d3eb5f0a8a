//! The audit: everything that was acknowledged is there, on every way to it.

use braid_base::ids::PartitionId;
use braid_client::Fs;
use braid_io::chance::Rng;
use braid_replica::kv::Kv;

use super::{PEACE_MAX_US, Run};
use crate::board::Node;
use crate::compare::Inspector;
use crate::fsck::{self, Part};
use crate::hand;
use crate::media::Drives;
use crate::model::Model;

/// In peace everything staged is on the drives after this time, if there is room.
const DESTAGE_MAX_US: u64 = 180_000_000;

impl Run {
    /// Compares all trees before and after everything is moved to the drives, checks the records against each
    /// other, compares again without as many drives as may be missing. True if everything could be moved.
    pub(super) fn audit(&mut self) -> Result<bool, String> {
        self.world.power_cycle();
        self.compare("after the last power loss")?;
        self.finish_operations()?;
        let destaged = self.world.run(DESTAGE_MAX_US, |world| world.is_destaged());
        self.broken()?;
        if !destaged && !self.world.config.is_scarce() {
            return Err(format!("not everything was moved to the drives: {}", self.world.status()));
        }
        self.compare("after all was moved to the drives")?;
        self.fsck()?;
        for drive in self.world.lose_drives() {
            self.world.note(|| format!("d{drive} is taken away"));
        }
        self.compare("without as many drives as may be missing")?;
        Ok(destaged)
    }

    fn compare(&mut self, when: &str) -> Result<(), String> {
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
        let task = compare_all(fs, models, rng);
        let result = self.wait("the comparison", Node::Auditor, PEACE_MAX_US, task)?;
        result.map_err(|what| format!("{when}: {what}"))
    }

    /// Waits until no partition owes another one anything.
    fn finish_operations(&mut self) -> Result<(), String> {
        let done = self.world.run(PEACE_MAX_US / 4, |world| world.is_finished());
        self.broken()?;
        if done { Ok(()) } else { Err("operations that span partitions do not come to an end in peace".to_owned()) }
    }

    fn fsck(&mut self) -> Result<(), String> {
        // Background work may be in the middle of something: everything proposed is to be in the views.
        self.world.run(2_000_000, |_| false);
        self.broken()?;
        let world = &self.world;
        let firsts = world.log_firsts().map_err(|error| format!("the logs cannot be read: {error}"))?;
        let parts: Vec<Part<'_>> = firsts
            .iter()
            .map(|(id, first)| Part { id: *id, kv: world.kv_of(*id) as &dyn Kv, log_first: Some(*first) })
            .collect();
        assert!(parts.iter().enumerate().all(|(at, part)| part.id == PartitionId(at as u16)));
        let mut media = Drives::new(world.drives());
        let findings = fsck::check(crate::FS, &parts, &mut media).map_err(|error| format!("fsck: {error}"))?;
        if findings.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = findings.iter().take(12).map(ToString::to_string).collect();
        Err(format!("fsck found {} faults: {}", findings.len(), lines.join("; ")))
    }
}

async fn compare_all(fs: Fs, models: Vec<Model>, mut rng: Rng) -> Result<(), String> {
    let mut inspector = Inspector { fs: &fs, rng: &mut rng, rival: None };
    for (number, model) in models.iter().enumerate() {
        inspector.compare(model).await.map_err(|what| format!("hand {number}: {what}"))?;
    }
    Ok(())
}
