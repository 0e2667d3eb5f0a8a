//! `braid cluster partition`: the partitions of the namespace.

use braid_cluster::view::PartitionView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out::{self, tone_of, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let partitions: Vec<PartitionView> = Client::find(whole.dir.as_deref())?.get("/partitions")?;
    if whole.json {
        return out::json(&partitions);
    }
    let rows = partitions.into_iter().map(|partition| {
        let members: Vec<String> = partition.members.iter().map(|host| format!("h{host}")).collect();
        vec![
            format!("p{}", partition.id).into(),
            partition.primary.map_or("-".to_owned(), |host| format!("h{host}")).into(),
            partition.term.to_string().into(),
            members.join(" ").into(),
            toned(&partition.state, tone_of(&partition.state)),
            partition.applied.to_string().into(),
            size(partition.staged_bytes).into(),
            size(partition.log_bytes).into(),
        ]
    });
    out::table(&["ID", "LEADER", "TERM>", "MEMBERS", "STATE", "APPLIED>", "STAGED>", "LOG>"], rows.collect())
}
