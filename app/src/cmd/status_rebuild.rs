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
    let leaves = |drive: &&DriveView| matches!(drive.state.as_str(), "failed" | "draining");
    let leaving: Vec<&DriveView> = status.drives.iter().filter(leaves).collect();
    if whole.json {
        let rows = leaving.iter().map(|drive| {
            json!({
                "drive": drive.id,
                "state": drive.state,
                "shards_left": drive.leaving_shards,
                "bytes_left": drive.leaving_shards.map(|shards| shards * status.shard_bytes),
            })
        });
        return out::json(&rows.collect::<Vec<_>>());
    }
    if status.close_packs > 0 {
        let words = "packs lie closer together than they should, and are moved apart";
        out::lines(&[format!("{} {words}", status.close_packs)])?;
    } else if leaving.iter().all(|drive| drive.leaving_shards == Some(0)) {
        return out::lines(&["nothing is to be made anew: all data has its full protection".to_owned()]);
    }
    let rows = leaving.into_iter().map(|drive| {
        let (shards, bytes) = match drive.leaving_shards {
            Some(shards) => (shards.to_string(), size(shards * status.shard_bytes)),
            None => ("not known yet".to_owned(), String::new()),
        };
        vec![
            format!("d{}", drive.id).into(),
            format!("h{}", drive.host).into(),
            drive.state.clone().into(),
            shards.into(),
            bytes.into(),
        ]
    });
    out::table(&["DRIVE", "HOST", "STATE", "SHARDS LEFT>", "LEFT>"], rows.collect())
}
