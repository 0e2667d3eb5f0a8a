//! `braid fs tier dir add` and `update`: a directory as an object store.

use std::path::PathBuf;

use braid_cluster::view::stores::{Kind, ObjectStoreSettings};
use clap::Args;

use super::fs_tier_words::{self as words, Limits, Trial};
use super::up::absolute;
use crate::exit::{Failure, Outcome};
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Add {
    /// Its name: 1 to 32 characters without slash, backslash and blank
    name: String,
    /// The directory; with several hosts one that all of them see under this path
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    trial: Trial,
}

#[derive(Args, Debug)]
pub struct Update {
    /// Its name
    name: String,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    new_name: Option<String>,
    /// The directory
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    trial: Trial,
}

pub fn add(whole: &Whole, add: &Add) -> Outcome {
    words::add(whole, &add.name, Kind::Dir, settings(Some(&add.path), &add.limits)?, &add.trial)
}

pub fn update(whole: &Whole, update: &Update) -> Outcome {
    let settings = settings(update.path.as_ref(), &update.limits)?;
    words::update(whole, (&update.name, update.new_name.as_ref()), Kind::Dir, settings, &update.trial)
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
