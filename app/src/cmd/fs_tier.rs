//! `braid fs tier`: the object stores.

use braid_cluster::view::stores::{Kind, LinkView, ObjectStoreDone, ObjectStoreView};

use crate::client::Client;
use crate::exit::Outcome;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole, kind: Option<Kind>) -> Outcome {
    let mut stores: Vec<ObjectStoreView> = Client::find(whole.dir.as_deref())?.get("/object-stores")?;
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
    match link.state.as_str() {
        "up" => toned("UP", Tone::Good),
        "down" => toned("DOWN", Tone::Bad),
        _ => "-".into(),
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
