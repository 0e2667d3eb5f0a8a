//! Counts what is done under pressure, from what partitions say: no rule depends on it.

use braid_base::ErrorKind;
use braid_base::keys;
use braid_base::msg::drive::DriveOp;
use braid_base::msg::fs::Reply;
use braid_base::msg::job::MoveJob;
use braid_base::msg::lease::Answer;
use braid_base::record::{PackClass, PackRec, Place, Record};
use braid_meta::DataStatus;
use braid_replica::kv::Kv;

use super::World;
use crate::board::At;
use crate::deeds::Deed;

impl World {
    fn data_status(&mut self, at: At) -> Option<DataStatus> {
        Some(self.seat(at)?.seat.partition()?.state_mut().data_status())
    }

    /// A move begins.
    pub(super) fn watch_move(&mut self, at: At, job: &MoveJob) {
        let Some(stripe) = job.stripes.first() else { return };
        let found = self.hosts[at.host as usize].kv.get(&keys::pack(at.p, stripe.at.pack)).ok().flatten();
        let class = found.and_then(|bytes| PackRec::decode(&bytes).ok()).map(|rec| rec.class);
        let Some(status) = self.data_status(at) else { return };
        match class {
            Some(PackClass::Gc) => {
                self.coverage.did(Deed::GcMoved);
                if status.gc_urgent {
                    self.coverage.did(Deed::GcUrgent);
                }
            }
            Some(_) if status.held > 0 || status.gc_urgent => self.coverage.did(Deed::DestagePressed),
            _ => {}
        }
    }

    /// A partition asks something of a drive.
    pub(super) fn watch_drive(&mut self, at: At, op: &DriveOp) {
        if let DriveOp::Create { class: PackClass::Gc, .. } = op
            && self.data_status(at).is_some_and(|status| status.only_reserve)
        {
            self.coverage.did(Deed::ReserveUsed);
        }
    }

    /// A partition answers; `commits`: a commit of what a client wrote to the drives.
    pub(super) fn watch_answer(&mut self, answer: &Answer, commits: bool) {
        let deed = match &answer.result {
            Ok(Reply::Space(lent)) if !lent.is_empty() => Deed::Lent,
            Ok(_) if commits => Deed::Committed,
            Ok(Reply::Layout(layout)) => {
                let met = layout.extents.iter().filter(|(_, extent)| matches!(extent.place, Place::Object(_)));
                self.shown.extend(met.filter_map(|(_, extent)| extent.place.object()).map(|at| at.blob));
                return;
            }
            Err(error) if error.kind() == ErrorKind::Held && self.config.tiered => Deed::StoreHeldUp,
            Err(error) if commits && error.kind() == ErrorKind::Stale => Deed::CommitRefused,
            Err(error) if error.kind() == ErrorKind::NoSpace => Deed::NoSpace,
            _ => return,
        };
        self.coverage.did(deed);
    }
}
