//! `braid fs tier`: the object stores.

use braid_base::{Error, ErrorKind};
use braid_cluster::view::stores::{Kind, LinkView, ObjectStoreDone, ObjectStoreView};
use clap::Args;

use crate::client::Client;
use crate::exit::Outcome;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

/// Which stores are shown.
#[derive(Args, Debug)]
pub struct Which {
    /// Only the store of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

pub fn run(whole: &Whole, kind: Option<Kind>, name: Option<&str>) -> Outcome {
    let mut stores: Vec<ObjectStoreView> = Client::find(whole.dir.as_deref())?.get("/object-stores")?;
    // All stores have been asked of the same hosts.
    for host in stores.first().map(|store| store.silent_hosts.as_slice()).unwrap_or_default() {
        out::warn(&format!("host {host} does not answer: what it sees of the object stores is not known"));
    }
    let wanted = |store: &ObjectStoreView| {
        kind.is_none_or(|kind| store.kind == kind) && name.is_none_or(|name| store.name == name)
    };
    stores.retain(wanted);
    if let Some(name) = name.filter(|_| stores.is_empty()) {
        let words = format!("no object store {name} of this kind: `braid fs tier` lists all");
        return Err(Error::new(ErrorKind::NotFound, words).into());
    }
    if whole.json { out::json(&stores) } else { table(stores) }
}

/// Prints stores.
fn table(stores: Vec<ObjectStoreView>) -> Outcome {
    let row = |store: ObjectStoreView| -> Vec<Field> {
        vec![
            store.name.into(),
            store.kind.word().into(),
            if store.address.is_empty() { "-".into() } else { store.address.into() },
            store.bucket.into(),
            if store.full { toned("FULL", Tone::Uneasy) } else { state(&store.upload) },
            state(&store.download),
            state(&store.remove),
            if store.filesystems.is_empty() { "-".into() } else { store.filesystems.join(", ").into() },
        ]
    };
    let titles = ["NAME", "KIND", "ADDRESS", "BUCKET", "UPLOAD", "DOWNLOAD", "REMOVE", "FILESYSTEMS"];
    out::table(&titles, stores.into_iter().map(row).collect())
}

fn state(link: &LinkView) -> Field {
    let (word, tone) = state_words(link);
    toned(word, tone)
}

/// A store is down when all hosts have lost it; as long as some have not, how many have, and how many do not know.
fn state_words(link: &LinkView) -> (String, Tone) {
    let LinkView { nodes_up, nodes_down, nodes_unknown, .. } = *link;
    let all = nodes_up + nodes_down + nodes_unknown;
    let some = match (nodes_down, nodes_unknown) {
        (0, 0) => String::new(),
        (0, unknown) => format!(" ({unknown} of {all} hosts unknown)"),
        (down, 0) => format!(" ({down} of {all} hosts down)"),
        (down, unknown) => format!(" ({down} of {all} hosts down, {unknown} unknown)"),
    };
    match link.state.as_str() {
        "up" => (format!("UP{some}"), if nodes_down > 0 { Tone::Uneasy } else { Tone::Good }),
        "down" => ("DOWN".to_owned(), Tone::Bad),
        _ if nodes_down > 0 => (format!("UNKNOWN{some}"), Tone::Uneasy),
        _ => ("-".to_owned(), Tone::Plain),
    }
}

/// Prints what was tried, and what was done about it.
pub fn done(whole: &Whole, done: &ObjectStoreDone, verb: &str) -> Outcome {
    if whole.json {
        return out::json(done);
    }
    let mut lines: Vec<String> =
        done.steps.iter().map(|step| format!("{}: ok, {} ms", step.what, step.took_ms)).collect();
    let name = &done.store.name;
    lines.push(if done.recorded {
        format!("object store {name} is {verb}")
    } else {
        format!("object store {name} would be {verb}: this was a dry run")
    });
    out::lines(&lines)
}

#[cfg(test)]
mod tests {
    use braid_cluster::view::stores::LinkView;

    use super::state_words;
    use crate::out::Tone;

    #[test]
    fn states() {
        let words = |state: &str, [nodes_up, nodes_down, nodes_unknown]: [u64; 3]| {
            let state = state.to_owned();
            state_words(&LinkView { state, nodes_up, nodes_down, nodes_unknown, ..LinkView::default() })
        };
        assert_eq!(words("up", [6, 0, 0]), ("UP".to_owned(), Tone::Good));
        assert_eq!(words("up", [5, 0, 1]), ("UP (1 of 6 hosts unknown)".to_owned(), Tone::Good));
        assert_eq!(words("up", [5, 1, 0]), ("UP (1 of 6 hosts down)".to_owned(), Tone::Uneasy));
        assert_eq!(words("up", [3, 1, 2]), ("UP (1 of 6 hosts down, 2 unknown)".to_owned(), Tone::Uneasy));
        assert_eq!(words("unknown", [0, 1, 5]), ("UNKNOWN (1 of 6 hosts down, 5 unknown)".to_owned(), Tone::Uneasy));
        assert_eq!(words("down", [0, 5, 1]), ("DOWN".to_owned(), Tone::Bad));
        assert_eq!(words("unknown", [0, 0, 6]), ("-".to_owned(), Tone::Plain));
    }
}
