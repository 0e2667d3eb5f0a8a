//! What the commands for all kinds of object stores have in common.

use std::env;
use std::path::{Path, PathBuf};

use braid_base::store::{Protocol, Secret};
use braid_cluster::view::stores::{Kind, ObjectStoreChange, ObjectStoreDone, ObjectStoreSettings, ObjectStoreSpec};
use clap::Args;

use super::fs_tier;
use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::parse_duration_s;
use crate::progress;
use crate::whole::Whole;
use crate::words::{self, text_of};

/// Bytes per second in one megabit per second.
const MBPS_BYTES: u64 = 125_000;

/// What stands below the help of commands that take a secret.
pub const SECRETS: &str = "\
A secret in a file (- is stdin) is seen by nobody. One on the command line is taken out of the process list at once, but
it can be seen for a moment, and the shell keeps it. A new store also takes it from the environment, see above. Secrets
are kept by the coordinator and shown by no command.";

/// A store to add; `P` says where it is, and what opens it.
#[derive(Args, Debug)]
pub struct Add<P: Args> {
    /// Its name: 1 to 32 characters without slash, backslash and blank
    name: String,
    #[command(flatten)]
    pub place: P,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    trial: Trial,
}

/// A store to change; `P` says what of its place is another one.
#[derive(Args, Debug)]
pub struct Update<P: Args> {
    /// Its name
    name: String,
    /// Its new name
    #[arg(long, value_name = "NAME")]
    new_name: Option<String>,
    #[command(flatten)]
    pub place: P,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    trial: Trial,
}

/// How a store is used.
#[derive(Args, Debug)]
pub struct Limits {
    /// Most Mbit/s between one process and the store; 0: any number [default: any]
    #[arg(long, value_name = "MBPS", help_heading = "Limits")]
    bandwidth: Option<u64>,
    /// The same into the store
    #[arg(long, value_name = "MBPS", help_heading = "Limits")]
    upload_bandwidth: Option<u64>,
    /// The same out of it
    #[arg(long, value_name = "MBPS", help_heading = "Limits")]
    download_bandwidth: Option<u64>,
    /// Most Mbit/s of objects that one process removes there, each taken for one of 64 MiB; 0: any number [default: any]
    #[arg(long, value_name = "MBPS", help_heading = "Limits")]
    remove_bandwidth: Option<u64>,
    /// Most uploads that one process has under way, 1 to 64 [default: 64]. As each is in memory until it has arrived, a
    /// process never sends more objects of data at a time than it has processors, 2 to 8
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_concurrent_uploads: Option<u8>,
    /// Most downloads, likewise
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_concurrent_downloads: Option<u8>,
    /// Most removals, likewise
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_concurrent_removals: Option<u8>,
    /// How long the store may fail before reads that need it do, 60s to 15m [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_s, help_heading = "Limits")]
    errors_timeout: Option<u64>,
    /// How far ahead of a sequential read is fetched, 0 to 600 MiB [default: 128]
    #[arg(long, value_name = "MIB", help_heading = "Limits")]
    prefetch_mib: Option<u32>,
}

/// Whether it is tried.
#[derive(Args, Debug)]
pub struct Trial {
    /// Try the store, and leave it at that
    #[arg(long)]
    dry_run: bool,
    /// Do not try the store: it may not answer yet
    #[arg(long)]
    skip_verification: bool,
    /// Say all that the store said when a try fails; errors always do
    #[arg(long)]
    verbose_errors: bool,
}

impl Limits {
    /// Sets them in `settings`.
    pub fn set(&self, settings: &mut ObjectStoreSettings) {
        let bytes = |mbps: Option<u64>| mbps.map(|mbps| mbps.saturating_mul(MBPS_BYTES));
        settings.bytes_per_s = bytes(self.bandwidth);
        settings.upload_bytes_per_s = bytes(self.upload_bandwidth);
        settings.download_bytes_per_s = bytes(self.download_bandwidth);
        settings.remove_bytes_per_s = bytes(self.remove_bandwidth);
        settings.max_concurrent_uploads = self.max_concurrent_uploads;
        settings.max_concurrent_downloads = self.max_concurrent_downloads;
        settings.max_concurrent_removals = self.max_concurrent_removals;
        settings.errors_timeout_s = self.errors_timeout.map(|s| u32::try_from(s).unwrap_or(u32::MAX));
        settings.prefetch_mib = self.prefetch_mib;
    }
}

/// Adds a store with these settings.
pub fn add<P: Args>(whole: &Whole, kind: Kind, settings: ObjectStoreSettings, add: &Add<P>) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let Trial { dry_run, skip_verification, .. } = add.trial;
    let spec = ObjectStoreSpec { name: add.name.clone(), kind, settings, dry_run, skip_verification };
    let done: ObjectStoreDone =
        progress::during("trying the object store", || client.send("POST", "/object-stores", &spec))?;
    fs_tier::done(whole, &done, "added")
}

/// Gives a store these settings, as far as they were said.
pub fn update<P: Args>(whole: &Whole, kind: Kind, settings: ObjectStoreSettings, update: &Update<P>) -> Outcome {
    let Update { name, new_name, trial: Trial { dry_run, skip_verification, .. }, .. } = update;
    let (dry_run, skip_verification) = (*dry_run, *skip_verification);
    if new_name.is_none() && settings == ObjectStoreSettings::default() && !dry_run {
        return Err(Failure::usage("what to change? see --help; --dry-run only tries the store as it is"));
    }
    let client = Client::find(whole.dir.as_deref())?;
    let change =
        ObjectStoreChange { kind: Some(kind), new_name: new_name.clone(), settings, dry_run, skip_verification };
    let path = format!("/object-stores/{}", escape(name));
    let done: ObjectStoreDone = progress::during("trying the object store", || client.send("PATCH", &path, &change))?;
    fs_tier::done(whole, &done, "changed")
}

/// The secret on the command line, or in `file`.
pub fn secret(said: Option<&String>, file: Option<&Path>) -> braid_base::Result<Option<Secret>> {
    match file {
        Some(file) => Ok(Some(Secret(text_of(file)?.trim().to_owned()))),
        None => Ok(said.cloned().map(Secret)),
    }
}

/// What was said of the server of a store.
pub fn server(
    hostname: Option<&str>,
    (port, protocol): (Option<u16>, Option<Protocol>),
    ca_cert: Option<&PathBuf>,
) -> Result<ObjectStoreSettings, Failure> {
    let named = hostname.map(words::server).transpose()?;
    Ok(ObjectStoreSettings {
        port: port.or_else(|| named.as_ref()?.port),
        protocol: protocol.or_else(|| named.as_ref()?.protocol),
        hostname: named.map(|named| named.hostname),
        ca_cert: certificates(ca_cert)?,
        ..ObjectStoreSettings::default()
    })
}

/// What an option that names a file with certificates says; an empty name takes them away.
fn certificates(file: Option<&PathBuf>) -> braid_base::Result<Option<String>> {
    file.map(|file| if file.as_os_str().is_empty() { Ok(String::new()) } else { text_of(file) }).transpose()
}

/// The environment's word for what was not said.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
