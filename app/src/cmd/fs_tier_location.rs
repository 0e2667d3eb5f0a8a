//! `braid fs tier location`: where files are.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::fs_tier_fetch::missed;
use crate::exit::Outcome;
use crate::measure::size;
use crate::out;
use crate::residence::{self, Location as Found};
use crate::tree::Trouble;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Location {
    /// Files on mounts of Braid; links are not followed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// A path and where it is.
#[derive(Serialize)]
struct Row<'a> {
    path: &'a Path,
    #[serde(flatten)]
    found: Found,
}

pub fn run(whole: &Whole, location: &Location) -> Outcome {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for path in &location.paths {
        match residence::location(path) {
            Ok(found) => rows.push(Row { path, found }),
            Err(reason) => failed.push(Trouble::new(path, reason)),
        }
    }
    if whole.json {
        out::json(&rows)?;
    } else if !rows.is_empty() {
        table(&rows)?;
    }
    missed(&failed, location.paths.len() as u64, "their place is not known")
}

fn table(rows: &[Row<'_>]) -> Outcome {
    let titles = ["PATH", "FILE TYPE", "FILE SIZE>", "SSD WRITE-CACHE>", "SSD READ-CACHE>", "OBJECT STORAGE>"];
    let fields = |Row { path, found }: &Row<'_>| {
        vec![
            path.display().to_string().into(),
            found.file_type.clone().into(),
            size(found.file_size).into(),
            size(found.ssd_write_cache_bytes).into(),
            size(found.ssd_read_cache_bytes).into(),
            size(found.object_storage_bytes).into(),
        ]
    };
    out::table(&titles, rows.iter().map(fields).collect())
}
