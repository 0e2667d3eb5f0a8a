//! `braid status rebuild`: what is being made anew or moved, and how much is left.

use braid_cluster::view::{DriveView, HealingView, SettingsView, Status};
use serde_json::json;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::{duration, size};
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let (status, settings): (Status, SettingsView) = (client.get("/status")?, client.get("/settings")?);
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
        let drives: Vec<_> = rows.collect();
        return out::json(&json!({
            "healing": status.healing,
            "rebuild_bytes_per_s_max": settings.rebuild_bytes_per_s,
            "close_packs": status.close_packs,
            "drives": drives,
        }));
    }
    out::lines(&healing(&status.healing, settings.rebuild_bytes_per_s))?;
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

/// How fast it goes, how far checks are, what cannot be made good.
fn healing(healing: &HealingView, most_per_s: Option<u64>) -> Vec<String> {
    let mut lines = Vec::new();
    if healing.rebuild_bytes_left > 0 {
        let end = healing.rebuild_eta_s.map_or("no end in sight".to_owned(), |s| format!("done in {}", duration(s)));
        let (left, speed) = (size(healing.rebuild_bytes_left), size(healing.rebuild_bytes_per_s));
        let bound = most_per_s.map_or(String::new(), |most| format!("; each host makes {}/s at most", size(most)));
        lines.push(format!("rebuild: {left} left, {speed}/s, {end}{bound}"));
    }
    if healing.rebalance_bytes_left > 0 {
        let end = healing.rebalance_eta_s.map_or("no end in sight".to_owned(), |s| format!("done in {}", duration(s)));
        let (left, speed) = (size(healing.rebalance_bytes_left), size(healing.rebalance_bytes_per_s));
        lines.push(format!("rebalance: {left} to be moved until drives are evenly full, {speed}/s, {end}"));
    }
    let (done, all, passes) = (healing.scrub_packs_done, healing.scrub_packs, healing.scrub_passes);
    lines.push(match (healing.scrub_running, passes) {
        (true, _) => format!("scrub: {done} of {all} packs are checked"),
        // Not all partitions answer, or not all of them have ended one.
        (false, 0) if done > 0 => format!("scrub: {done} of {all} packs are checked, as far as is known"),
        (false, 0) => "scrub: has not begun".to_owned(),
        (false, _) => format!("scrub: all {all} packs were checked"),
    });
    if healing.damaged_shards + healing.mended_shards > 0 {
        let (damaged, mended) = (healing.damaged_shards, healing.mended_shards);
        lines.push(format!("damaged shards: {damaged} to be made whole, {mended} made whole"));
    }
    if healing.lost_packs > 0 {
        lines.push(format!("beyond repair: {} packs, see `braid status lost`", healing.lost_packs));
    }
    lines
}
