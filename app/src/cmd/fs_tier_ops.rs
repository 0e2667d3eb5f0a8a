//! `braid fs tier ops`: what the hosts do at an object store, and what they did last.

use braid_cluster::view::HostView;
use braid_cluster::view::stores::{OperationView, OperationsView};
use clap::Args;

use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::{moment, size};
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Ops {
    /// The object store, of whatever kind
    #[arg(value_name = "STORE")]
    store: String,
    /// Only those of this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only those of this type: upload, download, remove or check (a check asks: the keepalive of each second, a size, a
    /// listing)
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    kind: Option<&'static str>,
    /// Only those under way
    #[arg(long)]
    ongoing: bool,
}

pub fn run(whole: &Whole, ops: &Ops) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let path = format!("/object-stores/{}/operations", escape(&ops.store));
    let OperationsView { mut operations, silent_hosts } = client.get(&path)?;
    let all = operations.len();
    operations.retain(|operation| ops.wants(operation));
    if let Some(host) = ops.host.as_ref().filter(|_| operations.is_empty()) {
        known(&client, host)?;
    }
    for host in &silent_hosts {
        out::warn(&format!("host {host} does not answer: what it does at object store {} is missing", ops.store));
    }
    if whole.json {
        return out::json(&operations);
    }
    if operations.is_empty() {
        return out::lines(&[nothing(&ops.store, all)]);
    }
    let titles = [
        "PROCESS",
        "ID>",
        "KEY",
        "TYPE",
        "EXEC TIME>",
        "PHASE",
        "LAST EXEC TIME>",
        "START TIME",
        "SIZE>",
        "RESULTS",
        "CONNECTION ERRORS>",
        "LAST HTTP ERROR",
        "CONCURRENCY>",
        "INODE>",
    ];
    out::table(&titles, operations.into_iter().map(row).collect())
}

impl Ops {
    fn wants(&self, operation: &OperationView) -> bool {
        self.host.as_ref().is_none_or(|host| *host == operation.process)
            && self.kind.is_none_or(|kind| kind == operation.kind)
            && (!self.ongoing || operation.phase == "Ongoing")
    }
}

/// Reads a type of operations.
fn kind(text: &str) -> Result<&'static str, String> {
    let kinds = ["UPLOAD", "DOWNLOAD", "REMOVE", "CHECK"];
    let found = kinds.into_iter().find(|kind| kind.eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("upload, download, remove or check expected, found {text:?}"))
}

/// Is there a host of that name?
fn known(client: &Client, host: &str) -> Outcome {
    let hosts: Vec<HostView> = client.get("/hosts")?;
    if hosts.iter().any(|known| known.name == host) {
        return Ok(());
    }
    let names: Vec<&str> = hosts.iter().map(|known| known.name.as_str()).collect();
    Err(Failure::usage(format!("no host {host}: there are {}", names.join(", "))))
}

/// What is said when there is nothing to show of `all` operations.
fn nothing(store: &str, all: usize) -> String {
    if all == 0 {
        return format!(
            "nothing is under way at object store {store}, and nothing was done there since the hosts started"
        );
    }
    format!("none of the {all} operations at object store {store} that are known is such a one")
}

fn row(operation: OperationView) -> Vec<Field> {
    let seconds = |seconds: f64| format!("{seconds:.3} s");
    let ongoing = operation.phase == "Ongoing";
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let tone = match operation.connection_errors > 0 || operation.last_http_error.is_some() {
        true => Tone::Uneasy,
        false => Tone::Plain,
    };
    vec![
        operation.process.into(),
        operation.id.to_string().into(),
        operation.key.into(),
        operation.kind.into(),
        seconds(operation.exec_time).into(),
        toned(operation.phase, if ongoing { Tone::Good } else { Tone::Plain }),
        or_none(operation.last_exec_time.map(seconds)).into(),
        moment(operation.start_time).into(),
        size(operation.size).into(),
        toned(if operation.results.is_empty() { "-".to_owned() } else { operation.results }, tone),
        operation.connection_errors.to_string().into(),
        or_none(operation.last_http_error).into(),
        operation.concurrency.to_string().into(),
        or_none(operation.inode.map(|inode| inode.to_string())).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{kind, nothing};

    #[test]
    fn words() {
        assert_eq!((kind("Upload"), kind("CHECK")), (Ok("UPLOAD"), Ok("CHECK")));
        assert!(kind("tier").is_err_and(|error| error.contains("upload, download, remove or check")));
        assert!(nothing("s", 0).contains("nothing was done") && nothing("s", 7).contains("none of the 7"));
    }
}
