//! `braid bucket ls`: the objects with data.

use braid_base::limits::BLOCK;
use braid_tier::salvage::{Run, Seen};
use clap::Args;
use serde_json::{Value, json};

use super::bucket::{self, Bucket, damage};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::size;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

#[derive(Args, Debug)]
#[command(after_help = bucket::HELP)]
pub struct Ls {
    #[command(flatten)]
    bucket: Bucket,
    /// List which blocks of which inodes the objects have
    #[arg(long)]
    files: bool,
}

pub fn run(whole: &Whole, ls: &Ls) -> Outcome {
    let objects = bucket::read(&ls.bucket, async |salvage| {
        let mut objects = Vec::new();
        let take = |seen| {
            objects.push(seen);
            Ok(())
        };
        salvage.list(ls.files, take).await?;
        Ok(objects)
    })?;
    match (whole.json, ls.files) {
        (true, _) => out::json(&objects.iter().map(|seen| value(seen, ls.files)).collect::<Vec<_>>()),
        (false, true) => files(&objects),
        (false, false) => table(&objects),
    }?;
    told(&objects)
}

/// Fails with the first damage, if there is any.
fn told(objects: &[Seen]) -> Outcome {
    let mut damages = objects.iter().flat_map(|seen| &seen.damages);
    let Some(first) = damages.next() else { return Ok(()) };
    let more = match damages.count() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(Failure { code: FAILURE, message: format!("damaged: {first}{more}: `braid bucket verify` lists all") })
}

fn table(objects: &[Seen]) -> Outcome {
    let row = |seen: &Seen| -> Vec<Field> {
        let head = seen.head.as_ref();
        let mut row = place(seen);
        row.extend([
            head.map_or_else(unknown, |head| head.header.fs.0.to_string()).into(),
            filesystem(seen).into(),
            size(seen.object.size).into(),
            head.map_or_else(unknown, |head| head.files.to_string()).into(),
            if seen.damages.is_empty() { toned("ok", Tone::Good) } else { toned("damaged", Tone::Bad) },
        ]);
        row
    };
    let titles = ["PARTITION>", "SERIAL>", "TERM>", "FS>", "FILESYSTEM", "BYTES>", "FILES>", "STATUS"];
    out::table(&titles, objects.iter().map(row).collect())
}

fn files(objects: &[Seen]) -> Outcome {
    let row = |seen: &Seen, run: &Run| -> Vec<Field> {
        let last = run.block + run.blocks - 1;
        let blocks = if last == run.block { last.to_string() } else { format!("{}-{last}", run.block) };
        let file = [filesystem(seen), run.ino.0.to_string(), blocks, size(run.blocks * BLOCK as u64)];
        file.into_iter().map(Field::from).chain(place(seen)).collect()
    };
    let titles = ["FILESYSTEM", "INODE>", "BLOCKS>", "BYTES>", "PARTITION>", "SERIAL>", "TERM>"];
    let rows = objects.iter().flat_map(|seen| seen.runs.iter().map(move |run| row(seen, run)));
    out::table(&titles, rows.collect())
}

fn place(seen: &Seen) -> Vec<Field> {
    let blob = seen.object.blob;
    [blob.partition().0.to_string(), blob.serial().to_string(), seen.object.term.0.to_string()].map(Field::from).into()
}

fn filesystem(seen: &Seen) -> String {
    seen.head.as_ref().map_or_else(unknown, |head| head.header.fs_uuid.to_string())
}

fn unknown() -> String {
    "?".to_owned()
}

fn value(seen: &Seen, files: bool) -> Value {
    let object = &seen.object;
    let mut value = json!({
        "key": object.key,
        "bytes": object.size,
        "cluster": object.cluster.to_string(),
        "partition": object.blob.partition().0,
        "serial": object.blob.serial(),
        "term": object.term.0,
        "filesystem": seen.head.as_ref().map(|head| head.header.fs_uuid.to_string()),
        "filesystem_id": seen.head.as_ref().map(|head| head.header.fs.0),
        "data_bytes": seen.head.as_ref().map(|head| head.header.data_len),
        "created_s": seen.head.as_ref().map(|head| head.header.created_s),
        "files": seen.head.as_ref().map(|head| head.files),
        "damages": seen.damages.iter().map(damage).collect::<Vec<_>>(),
    });
    if files {
        let run = |run: &Run| json!({ "inode": run.ino.0, "block": run.block, "blocks": run.blocks, "at": run.at });
        value["runs"] = seen.runs.iter().map(run).collect();
    }
    value
}
