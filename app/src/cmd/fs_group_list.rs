//! `braid fs group`: the groups of file systems.

use braid_cluster::view::GroupView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::duration;
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let groups: Vec<GroupView> = Client::find(whole.dir.as_deref())?.get("/groups")?;
    if whole.json { out::json(&groups) } else { table(groups) }
}

/// Prints groups; also after one was added or changed.
pub fn table(groups: Vec<GroupView>) -> Outcome {
    let row = |group: GroupView| {
        vec![
            group.name.into(),
            group.filesystems.to_string().into(),
            duration(group.target_ssd_retention_s).into(),
            duration(group.start_demote_s).into(),
        ]
    };
    out::table(&["GROUP", "FILESYSTEMS>", "RETENTION>", "DEMOTE>"], groups.into_iter().map(row).collect())
}
