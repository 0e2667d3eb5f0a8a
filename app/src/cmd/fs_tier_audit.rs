//! `braid fs tier audit`: compare what lies in an object store with what the cluster knows.

use std::thread;
use std::time::Duration;

use braid_cluster::view::stores::{AuditSpec, AuditView, FoundView};
use clap::Args;

use crate::client::{Client, escape};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::size;
use crate::out;
use crate::progress::Progress;
use crate::whole::Whole;

/// What stands below the help.
pub const ABOUT: &str = "\
UNKNOWN objects are named as objects of this cluster are, but no partition knows them: left over after a crash, or by a
store that could not remove them. --remove removes those that have been there for an hour, after their partition has said
once more that it does not know them. AHEAD are those that are newer than what their partition knows: the metadata may
have been restored from an older state; they are never removed. MISSING are those that should be there: `braid status
lost` lists the files. Keys of other clusters are counted, and not touched.";

/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub struct Audit {
    /// The object store, of whatever kind
    #[arg(value_name = "STORE")]
    store: String,
    /// Remove unknown objects that have been there for an hour
    #[arg(long)]
    remove: bool,
}

pub fn run(whole: &Whole, audit: &Audit) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let path = format!("/object-stores/{}/audit", escape(&audit.store));
    let mut view: AuditView = client.send("POST", &path, &AuditSpec { remove: audit.remove })?;
    let progress = Progress::new("auditing");
    while view.state == "running" {
        progress.say(&format!(
            "auditing: {} of {} partitions, {} keys listed",
            view.partitions_done, view.partitions, view.listed
        ));
        thread::park_timeout(LOOK);
        view = client.get(&path)?;
    }
    drop(progress);
    if whole.json {
        out::json(&view)?;
    } else {
        out::lines(&lines(&view))?;
    }
    match view.error {
        Some(error) => {
            let message = format!("the audit of object store {} is not complete: {error}", audit.store);
            Err(Failure { code: FAILURE, message })
        }
        None => Ok(()),
    }
}

fn lines(view: &AuditView) -> Vec<String> {
    let AuditView { store, listed, ours, known, foreign, removed, young, unsure, .. } = view;
    let mut lines = vec![format!(
        "object store {store}: keys listed: {listed}, objects of this cluster: {ours}, known: {known}, foreign keys: {foreign}"
    )];
    section(&mut lines, "unknown", &view.unknown);
    if *young > 0 {
        lines.push(format!("  there for less than an hour, so not removed: {young}"));
    }
    if view.remove {
        lines.push(format!("removed: {removed}"));
    } else if view.unknown.count > *young {
        lines.push("  --remove removes them".to_owned());
    }
    section(&mut lines, "missing", &view.missing);
    if view.missing.count > 0 {
        lines.push("  `braid status lost` lists the files that are in these objects only".to_owned());
    }
    if view.wrong_size.count > 0 {
        section(&mut lines, "wrong size", &view.wrong_size);
    }
    if view.ahead.count > 0 {
        section(&mut lines, "ahead", &view.ahead);
        lines.push(
            "  they are newer than the metadata, which may have been restored from an older state: they stay"
                .to_owned(),
        );
    }
    if *unsure > 0 {
        lines.push(format!("unsure: {unsure}; the store did not say how these objects are: repeat the audit"));
    }
    lines
}

/// Objects of one kind: how many, and the keys that are told.
fn section(lines: &mut Vec<String>, title: &str, found: &FoundView) {
    let bytes = if found.bytes > 0 { format!(" ({})", size(found.bytes)) } else { String::new() };
    lines.push(format!("{title}: {}{bytes}", found.count));
    lines.extend(found.keys.iter().map(|key| format!("  {key}")));
    let left = found.count.saturating_sub(found.keys.len() as u64);
    if left > 0 {
        lines.push(format!("  and {left} more"));
    }
}

#[cfg(test)]
mod tests {
    use braid_cluster::view::stores::{AuditView, FoundView};

    use super::lines;

    #[test]
    fn what_was_found_is_said() {
        let keys = vec!["B_1/a".to_owned()];
        let found = FoundView { count: 3, bytes: 2048, keys };
        let view =
            AuditView { store: "s".to_owned(), listed: 9, ours: 8, known: 5, unknown: found, ..AuditView::default() };
        let said = lines(&view);
        assert_eq!(said[0], "object store s: keys listed: 9, objects of this cluster: 8, known: 5, foreign keys: 0");
        assert_eq!(
            said[1..],
            ["unknown: 3 (2.00 KiB)", "  B_1/a", "  and 2 more", "  --remove removes them", "missing: 0"]
        );
        let view = AuditView { young: 3, remove: true, ..view };
        assert!(
            lines(&view).contains(&"removed: 0".to_owned()) && !lines(&view).iter().any(|l| l.contains("--remove"))
        );
    }
}
