//! `braid status rebuild`: what is being made anew, and how much is left.

use braid_cluster::view::{DriveView, Status};
use serde_json::json;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let status: Status = Client::find(whole.dir.as_deref())?.get("/status")?;
    let leaving: Vec<&DriveView> = status.drives.iter().filter(|drive| drive.leaving_shards > 0).collect();
    if whole.json {
        let rows = leaving.iter().map(|drive| {
            json!({
                "drive": drive.id,
                "state": drive.state,
                "shards_left": drive.leaving_shards,
                "bytes_left": drive.leaving_shards * status.shard_bytes,
            })
        });
        return out::json(&rows.collect::<Vec<_>>());
    }
    if leaving.is_empty() {
        return out::lines(&["nothing is to be made anew: all data has its full protection".to_owned()]);
    }
    let rows = leaving.into_iter().map(|drive| {
        vec![
            format!("d{}", drive.id).into(),
            format!("h{}", drive.host).into(),
            drive.state.clone().into(),
            drive.leaving_shards.to_string().into(),
            size(drive.leaving_shards * status.shard_bytes).into(),
        ]
    });
    out::table(&["DRIVE", "HOST", "STATE", "SHARDS LEFT>", "LEFT>"], rows.collect())
}
