//! `braid fs`: the file systems.

use braid_cluster::facts::Mode;
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::AttachmentView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out::{self, Field, tone_of, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let filesystems: Vec<FilesystemView> = Client::find(whole.dir.as_deref())?.get("/filesystems")?;
    if whole.json { out::json(&filesystems) } else { table(filesystems) }
}

/// Prints file systems; also after one was added or changed.
pub fn table(filesystems: Vec<FilesystemView>) -> Outcome {
    let row = |fs: FilesystemView| -> Vec<Field> {
        vec![
            fs.id.to_string().into(),
            fs.name.into(),
            fs.group.into(),
            size(fs.used_bytes).into(),
            size(fs.total_bytes.saturating_sub(fs.used_bytes)).into(),
            size(fs.total_bytes).into(),
            fs.ssd_bytes.map_or("all".to_owned(), size).into(),
            if fs.limited { "yes" } else { "no" }.into(),
            fs.inodes.to_string().into(),
            stores(&fs.stores).into(),
            toned(&fs.state, tone_of(&fs.state)),
        ]
    };
    let titles = ["ID", "NAME", "GROUP", "USED>", "FREE>", "TOTAL>", "SSD>", "LIMITED", "FILES>", "STORES", "STATUS"];
    out::table(&titles, filesystems.into_iter().map(row).collect())
}

/// The stores, each with what is special about it.
fn stores(attached: &[AttachmentView]) -> String {
    let word = |store: &AttachmentView| match (store.detaching, store.mode) {
        (true, _) => format!("{} (detaching)", store.store),
        (false, Mode::ReadOnly) => format!("{} (read-only)", store.store),
        (false, Mode::Writable) => store.store.clone(),
    };
    let words: Vec<String> = attached.iter().map(word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}
