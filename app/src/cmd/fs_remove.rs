//! `braid fs remove`: remove a file system and everything in it.

use std::io::{IsTerminal, Write, stderr, stdin};

use clap::Args;
use serde_json::json;

use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome, REFUSED};
use crate::whole::Whole;
use crate::{out, progress};

#[derive(Args, Debug)]
pub struct Remove {
    /// Its name
    name: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

pub fn run(whole: &Whole, remove: &Remove) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let name = &remove.name;
    if !remove.force && !confirmed(name)? {
        return Err(Failure { code: REFUSED, message: format!("file system {name} stays") });
    }
    let path = format!("/filesystems/{}", escape(name));
    progress::during(&format!("removing file system {name}"), || client.call("DELETE", &path))?;
    if whole.json {
        out::json(&json!({ "removed": name }))
    } else {
        out::lines(&[format!("file system {name} is removed")])
    }
}

/// Asks the person at the terminal; a script has to say --force.
fn confirmed(name: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!("removing file system {name} destroys everything in it: say --force")));
    }
    let failed = |error: std::io::Error| Failure::usage(format!("asking: {error}"));
    write!(stderr(), "Remove file system {name} and everything in it? Type its name: ").map_err(failed)?;
    stderr().flush().map_err(failed)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim_end_matches('\n') == name)
}
