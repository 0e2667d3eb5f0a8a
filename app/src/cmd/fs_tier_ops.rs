//! `braid fs tier ops`: what the hosts do at an object store, and what they did last.

use std::collections::BTreeSet;

use braid_cluster::view::HostView;
use braid_cluster::view::stores::{ObjectStoreView, OperationView, OperationsView};
use clap::Args;
use serde::Serialize;

use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::{moment, size};
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Ops {
    /// The object store, of whatever kind [default: all]
    #[arg(value_name = "STORE")]
    store: Option<String>,
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
    let stores = match &ops.store {
        Some(store) => vec![store.clone()],
        None => client.get::<Vec<ObjectStoreView>>("/object-stores")?.into_iter().map(|store| store.name).collect(),
    };
    let (mut operations, mut silent_hosts) = (Vec::new(), BTreeSet::new());
    for store in stores {
        let path = format!("/object-stores/{}/operations", escape(&store));
        let found: OperationsView = client.get(&path)?;
        operations.extend(found.operations.into_iter().map(|operation| (store.clone(), operation)));
        silent_hosts.extend(found.silent_hosts);
    }
    let all = operations.len();
    operations.retain(|(_, operation)| ops.wants(operation));
    if ops.store.is_none() {
        sort(&mut operations);
    }
    let place = ops.store.as_ref().map_or("any object store".to_owned(), |store| format!("object store {store}"));
    if let Some(host) = ops.host.as_ref().filter(|_| operations.is_empty()) {
        known(&client, host)?;
    }
    for host in &silent_hosts {
        out::warn(&format!("host {host} does not answer: what it does at {place} is missing"));
    }
    if whole.json {
        return json(ops, &operations);
    }
    if operations.is_empty() {
        return out::lines(&[nothing(&place, all)]);
    }
    let mut titles = vec![
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
    if ops.store.is_none() {
        titles.insert(0, "STORE");
    }
    let named = |(store, operation): (String, OperationView)| {
        let store = ops.store.is_none().then(|| store.into());
        store.into_iter().chain(row(operation)).collect()
    };
    out::table(&titles, operations.into_iter().map(named).collect())
}

/// An operation, with the store that it is at.
#[derive(Serialize)]
struct At<'a> {
    store: &'a str,
    #[serde(flatten)]
    operation: &'a OperationView,
}

fn json(ops: &Ops, operations: &[(String, OperationView)]) -> Outcome {
    if ops.store.is_some() {
        return out::json(&operations.iter().map(|(_, operation)| operation).collect::<Vec<_>>());
    }
    out::json(&operations.iter().map(|(store, operation)| At { store, operation }).collect::<Vec<_>>())
}

/// As those of one store are: the ones under way first, the oldest of them first; then the newest.
fn sort(operations: &mut [(String, OperationView)]) {
    operations.sort_by(|(_, a), (_, b)| {
        let ended = |operation: &OperationView| operation.phase != "Ongoing";
        let by_time = a.start_time.total_cmp(&b.start_time);
        ended(a).cmp(&ended(b)).then(if ended(a) { by_time.reverse() } else { by_time })
    });
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
fn nothing(place: &str, all: usize) -> String {
    if all == 0 {
        return format!("nothing is under way at {place}, and nothing was done there since the hosts started");
    }
    format!("none of the {all} operations at {place} that are known is such a one")
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
    use braid_cluster::view::stores::OperationView;

    use super::{kind, nothing, sort};

    #[test]
    fn words() {
        assert_eq!((kind("Upload"), kind("CHECK")), (Ok("UPLOAD"), Ok("CHECK")));
        assert!(kind("tier").is_err_and(|error| error.contains("upload, download, remove or check")));
        assert!(nothing("s", 0).contains("nothing was done") && nothing("s", 7).contains("none of the 7"));
    }

    #[test]
    fn those_of_all_stores_are_listed_as_those_of_one() {
        let operation = |phase: &str, start_time| OperationView {
            process: String::new(),
            id: 1,
            key: String::new(),
            kind: "UPLOAD".to_owned(),
            exec_time: 0.0,
            phase: phase.to_owned(),
            last_exec_time: None,
            start_time,
            size: 0,
            results: String::new(),
            connection_errors: 0,
            last_http_error: None,
            concurrency: 1,
            inode: None,
        };
        let of = |store: &str, phase, at| (store.to_owned(), operation(phase, at));
        let mut all =
            [of("a", "Ongoing", 5.0), of("a", "Recent", 2.0), of("b", "Ongoing", 4.0), of("b", "Recent", 3.0)];
        sort(&mut all);
        let times: Vec<f64> = all.iter().map(|(_, operation)| operation.start_time).collect();
        assert_eq!(times, [4.0, 5.0, 3.0, 2.0]);
    }
}
