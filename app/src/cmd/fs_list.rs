//! `braid fs`: the file systems.

use braid_cluster::view::FilesystemView;

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
            if fs.limited { "yes" } else { "no" }.into(),
            fs.inodes.to_string().into(),
            toned(&fs.state, tone_of(&fs.state)),
        ]
    };
    let titles = ["ID", "NAME", "GROUP", "USED>", "FREE>", "TOTAL>", "LIMITED", "FILES>", "STATUS"];
    out::table(&titles, filesystems.into_iter().map(row).collect())
}
