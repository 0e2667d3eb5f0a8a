//! `braid fs tier KIND detach`: take an object store away from a file system.

use std::io::{IsTerminal, Write, stderr, stdin};

use braid_cluster::view::FilesystemView;
use clap::Args;

use super::fs_list;
use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome, REFUSED};
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Detach {
    /// The file system
    #[arg(value_name = "FS")]
    filesystem: String,
    /// The object store, of whatever kind
    #[arg(value_name = "STORE")]
    store: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
    /// Leave there what the store does not remove, also while it is being detached already: one that is gone for good is
    /// given up so, once nothing that is needed lies there
    #[arg(long)]
    abandon: bool,
}

pub fn run(whole: &Whole, detach: &Detach) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let (fs, store) = (&detach.filesystem, &detach.store);
    if !detach.force && !confirmed(fs, store)? {
        return Err(Failure { code: REFUSED, message: format!("object store {store} stays attached to {fs}") });
    }
    let path = format!("/filesystems/{}/stores/{}?force={}", escape(fs), escape(store), detach.abandon);
    let left: FilesystemView = client.send("DELETE", &path, &())?;
    if detach.abandon && !whole.json {
        out::warn(&format!("objects that {store} does not remove will be left there, and nobody will remove them"));
    }
    if whole.json { out::json(&left) } else { fs_list::table(vec![left]) }
}

/// Asks the person at the terminal; a script has to say --force.
fn confirmed(fs: &str, store: &str) -> Result<bool, Failure> {
    let what = format!("all that file system {fs} has in object store {store} is brought elsewhere");
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!("{what}, which cannot be called off: say --force")));
    }
    let failed = |error: std::io::Error| Failure::usage(format!("asking: {error}"));
    write!(stderr(), "Detach? {what}, which cannot be called off. Type yes: ").map_err(failed)?;
    stderr().flush().map_err(failed)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == "yes")
}
