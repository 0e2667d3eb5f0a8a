//! `braid fs tier dir add` and `update`: a directory as an object store.

use std::path::PathBuf;

use braid_cluster::view::stores::{Kind, ObjectStoreSettings};
use clap::Args;

use super::fs_tier_words::{self as words, Limits};
use super::up::absolute;
use crate::exit::{Failure, Outcome};
use crate::whole::Whole;

/// One to add.
pub type Add = words::Add<Directory>;
/// One to change.
pub type Update = words::Update<Elsewhere>;

/// Where it is.
#[derive(Args, Debug)]
pub struct Directory {
    /// The directory; with several hosts one that all of them see under this path
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
}

/// Where it is from now on.
#[derive(Args, Debug)]
pub struct Elsewhere {
    /// The directory
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

pub fn add(whole: &Whole, add: &Add) -> Outcome {
    words::add(whole, Kind::Dir, settings(Some(&add.place.path), &add.limits)?, add)
}

pub fn update(whole: &Whole, update: &Update) -> Outcome {
    let settings = settings(update.place.path.as_ref(), &update.limits)?;
    words::update(whole, Kind::Dir, settings, update)
}

fn settings(path: Option<&PathBuf>, limits: &Limits) -> Result<ObjectStoreSettings, Failure> {
    let text = |path: PathBuf| {
        path.into_os_string()
            .into_string()
            .map_err(|path| Failure::usage(format!("a path of valid characters expected, found {}", path.display())))
    };
    let path = path.map(|path| absolute(path).and_then(text)).transpose()?;
    let mut settings = ObjectStoreSettings { path, ..ObjectStoreSettings::default() };
    limits.set(&mut settings);
    Ok(settings)
}
