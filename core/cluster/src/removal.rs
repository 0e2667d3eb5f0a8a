//! How drives are taken out of the cluster.

use braid_base::ids::DriveId;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::Coordinator;
use crate::facts::{Drive, DriveState};
use crate::records;

/// How a drive, or a host, is taken out of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Only if the data has room and its protection without it.
    Safe,
    /// Also if it has not.
    Forced,
    /// It never comes back: what only it has is lost.
    Abandoned,
}

/// Which drives and hosts are abandoned, for who wants to do that with others.
pub const WHOM_TO_ABANDON: &str =
    "only what never comes back is abandoned; without --abandon what it holds moves to others first";

/// Begins to empty `drive`; it is removed when nothing lies on it any more. `abandoned`: it never comes back, and what
/// only it has is lost. One that is being emptied is abandoned as well, and stays so.
pub fn drain(coordinator: &dyn Coordinator, drive: &Drive, abandoned: bool) -> Result<()> {
    let (id, before) = (drive.id, drive.state);
    records::modify::<Drive>(coordinator, &Drive::key_of(id), |drive| {
        if drive.state != before && drive.state != DriveState::Draining {
            let words = format!("drive {id} was {} and is {} by now: try again", before.word(), drive.state.word());
            return Err(Error::new(ErrorKind::Stale, words));
        }
        drive.state = DriveState::Draining;
        drive.abandoned |= abandoned;
        Ok(())
    })
    .map(drop)
}

/// Drive `id` was abandoned, and answers: what it has is not lost. It is emptied as before.
pub fn answers(coordinator: &dyn Coordinator, id: DriveId) -> Result<()> {
    let not_abandoned = |drive: &mut Drive| {
        drive.abandoned = false;
        Ok(())
    };
    records::modify::<Drive>(coordinator, &Drive::key_of(id), not_abandoned).map(drop)
}
