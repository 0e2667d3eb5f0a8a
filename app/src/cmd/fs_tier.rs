//! `braid fs tier`: the object stores.

use braid_cluster::view::stores::{Kind, LinkView, ObjectStoreDone, ObjectStoreView};

use crate::client::Client;
use crate::exit::Outcome;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole, kind: Option<Kind>) -> Outcome {
    let mut stores: Vec<ObjectStoreView> = Client::find(whole.dir.as_deref())?.get("/object-stores")?;
    // All stores have been asked of the same hosts.
    for host in stores.first().map(|store| store.silent_hosts.as_slice()).unwrap_or_default() {
        out::warn(&format!("host {host} does not answer: what it sees of the object stores is not known"));
    }
    stores.retain(|store| kind.is_none_or(|kind| store.kind == kind));
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

/// A store is down when all hosts have lost it; as long as some have not, how many have.
fn state_words(link: &LinkView) -> (String, Tone) {
    match (link.state.as_str(), link.hosts_down) {
        ("up", 0) => ("UP".to_owned(), Tone::Good),
        ("up", down) => (format!("UP ({down} of {} hosts down)", link.hosts), Tone::Uneasy),
        ("down", _) => ("DOWN".to_owned(), Tone::Bad),
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
        let words = |state: &str, hosts, hosts_down| {
            state_words(&LinkView { state: state.to_owned(), hosts, hosts_down, ..LinkView::default() })
        };
        assert_eq!(words("up", 6, 0), ("UP".to_owned(), Tone::Good));
        assert_eq!(words("up", 6, 1), ("UP (1 of 6 hosts down)".to_owned(), Tone::Uneasy));
        assert_eq!(words("down", 6, 6), ("DOWN".to_owned(), Tone::Bad));
        assert_eq!(words("unknown", 0, 0), ("-".to_owned(), Tone::Plain));
    }
}
