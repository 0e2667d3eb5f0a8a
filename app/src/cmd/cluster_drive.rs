//! `braid cluster drive`: the drives.

use braid_cluster::view::DriveView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out::{self, tone_of, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let drives: Vec<DriveView> = Client::find(whole.dir.as_deref())?.get("/drives")?;
    if whole.json {
        return out::json(&drives);
    }
    let rows = drives.into_iter().map(|drive| {
        vec![
            format!("d{}", drive.id).into(),
            format!("h{}", drive.host).into(),
            drive.uuid.into(),
            drive.path.into(),
            size(drive.size_bytes).into(),
            size(drive.used_bytes).into(),
            toned(&drive.state, tone_of(&drive.state)),
            drive.errors.to_string().into(),
            drive.problem.unwrap_or_default().into(),
        ]
    });
    out::table(&["ID", "HOST", "UUID", "PATH", "SIZE>", "USED>", "STATE", "ERRORS>", "PROBLEM"], rows.collect())
}
