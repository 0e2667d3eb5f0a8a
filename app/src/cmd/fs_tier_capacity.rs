//! `braid fs tier capacity`: what file systems hold in object stores, and how much of it is in use.

use braid_cluster::view::stores::{HeldView, HoldingsView};
use clap::Args;

use crate::client::{Client, escape};
use crate::exit::Outcome;
use crate::measure::size;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

/// What stands below the help.
pub const RECLAIMED: &str = "\
What was overwritten or removed stays in its object until so much of the object is free that what is left of it moves to
another one. That begins when what is reclaimable exceeds HIGH (in per cent of what is used) and ends below LOW; each
partition goes by its own share.";

#[derive(Args, Debug)]
pub struct Capacity {
    /// The file system [default: all]
    #[arg(value_name = "FS")]
    named: Option<String>,
    /// The same
    #[arg(long, value_name = "FS", conflicts_with = "named")]
    filesystem: Option<String>,
}

pub fn run(whole: &Whole, capacity: &Capacity) -> Outcome {
    let only = capacity.named.as_ref().or(capacity.filesystem.as_ref());
    let which = only.map(|name| format!("?filesystem={}", escape(name)));
    let path = format!("/holdings{}", which.unwrap_or_default());
    let HoldingsView { holdings, silent_partitions } = Client::find(whole.dir.as_deref())?.get(&path)?;
    if silent_partitions > 0 {
        out::warn(&format!("{silent_partitions} partitions do not answer: what they hold is missing"));
    }
    if whole.json {
        return out::json(&holdings);
    }
    if holdings.is_empty() {
        return out::lines(&[nothing(only.map(String::as_str))]);
    }
    let titles = ["FILESYSTEM", "STORE", "OBJECTS>", "CONSUMED>", "USED>", "RECLAIMABLE %>", "LOW %>", "HIGH %>"];
    out::table(&titles, holdings.into_iter().map(row).collect())
}

fn nothing(filesystem: Option<&str>) -> String {
    let way = "attach one with `braid fs tier s3 attach`";
    match filesystem {
        Some(name) => format!("file system {name} has no object store: {way}"),
        None => format!("no file system has an object store: {way}"),
    }
}

fn row(held: HeldView) -> Vec<Field> {
    let high = held.high_percent;
    let reclaimable = match held.reclaimable_percent {
        Some(percent) if percent > high => toned(format!("{percent:.2}"), Tone::Uneasy),
        Some(percent) => format!("{percent:.2}").into(),
        None => toned("all", Tone::Uneasy),
    };
    vec![
        held.filesystem.into(),
        held.store.into(),
        held.objects.to_string().into(),
        size(held.consumed_bytes).into(),
        size(held.used_bytes).into(),
        reclaimable,
        format!("{:.2}", held.low_percent).into(),
        format!("{high:.2}").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::nothing;

    #[test]
    fn without_stores() {
        assert!(nothing(None).starts_with("no file system has an object store"));
        assert!(nothing(Some("one")).starts_with("file system one has no object store"));
    }
}
