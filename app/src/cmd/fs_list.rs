//! `braid fs`: the file systems.

use braid_cluster::facts::Mode;
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::AttachmentView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out::{self, Field, Tone, tone_of, toned};
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let filesystems: Vec<FilesystemView> = Client::find(whole.dir.as_deref())?.get("/filesystems")?;
    if whole.json { out::json(&filesystems) } else { table(filesystems) }
}

/// Prints file systems; also after one was added or changed.
pub fn table(filesystems: Vec<FilesystemView>) -> Outcome {
    for (fs, store) in filesystems.iter().flat_map(|fs| fs.stores.iter().map(move |store| (fs, store))) {
        if let Some(why) = &store.waits {
            out::warn(&format!("file system {}: object store {} is not detached: {why}", fs.name, store.store));
        }
    }
    let row = |fs: FilesystemView| -> Vec<Field> {
        let on_flash = on_flash(&fs);
        vec![
            fs.id.to_string().into(),
            fs.name.into(),
            fs.group.into(),
            size(fs.used_bytes).into(),
            size(fs.total_bytes.saturating_sub(fs.used_bytes)).into(),
            size(fs.total_bytes).into(),
            fs.ssd_bytes.map_or("all".to_owned(), size).into(),
            on_flash,
            fs.ssd_bytes.map_or("-".to_owned(), |most| size(most.saturating_sub(fs.flash_bytes))).into(),
            if fs.limited { "yes" } else { "no" }.into(),
            fs.inodes.to_string().into(),
            stores(&fs.stores).into(),
            toned(&fs.state, tone_of(&fs.state)),
        ]
    };
    let titles = [
        "ID",
        "NAME",
        "GROUP",
        "USED>",
        "FREE>",
        "TOTAL>",
        "SSD>",
        "SSD USED>",
        "SSD FREE>",
        "LIMITED",
        "FILES>",
        "STORES",
        "STATUS",
    ];
    out::table(&titles, filesystems.into_iter().map(row).collect())
}

/// What it takes of flash, and whether that is too much.
fn on_flash(fs: &FilesystemView) -> Field {
    let used = size(fs.flash_bytes);
    match (fs.waiting_writes, fs.flash_short) {
        (0, false) => used.into(),
        (0, true) => toned(format!("{used} (short)"), Tone::Uneasy),
        (waiting, _) => toned(format!("{used} (full, {waiting} writes wait)"), Tone::Bad),
    }
}

/// The stores, each with what is special about it.
fn stores(attached: &[AttachmentView]) -> String {
    let word = |store: &AttachmentView| match (store.detaching, store.mode) {
        (true, _) => match (store.bytes_left, store.objects_left) {
            (Some(0) | None, Some(objects)) if objects > 0 => {
                format!("{} (detaching, {objects} objects to remove)", store.store)
            }
            (Some(bytes), _) if bytes > 0 => format!("{} (detaching, {} left)", store.store, size(bytes)),
            _ => format!("{} (detaching)", store.store),
        },
        (false, Mode::ReadOnly) => format!("{} (read-only)", store.store),
        (false, Mode::Writable) => store.store.clone(),
    };
    let words: Vec<String> = attached.iter().map(word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}
