//! `braid cluster recover`: writes back what etcd has lost, by what the hosts have kept of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_base::ids::HostId;
use braid_base::msg::host::{HostOp, HostReply};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::coordinator::Coordinator;
use braid_cluster::facts::{Cluster, Host};
use braid_cluster::kept::Kept;
use braid_cluster::recover::{self, Change, Known, Plan, Testimony};
use braid_wire::Visit;
use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::exit::Outcome;
use crate::node::backend::{self, Options};
use crate::node::recall::{self, KEPT};
use crate::out;
use crate::reach::Reach;
use crate::whole::Whole;

/// How long a host may take to let us in.
const VISIT_MAX: Duration = Duration::from_secs(4);

#[derive(Args, Debug)]
pub struct Recover {
    /// Members of etcd [default: those that this host knows] (repeat, or separate by commas)
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Also if hosts do not answer, which must be off then: what only they know of the cluster is lost
    #[arg(long)]
    force: bool,
}

/// This host, and how to reach the others.
struct Place {
    dir: PathBuf,
    options: Options,
    kept: Kept,
    cluster: Cluster,
    me: HostId,
    reach: Reach,
}

pub fn run(whole: &Whole, recover: &Recover) -> Outcome {
    let dir = match whole.dir.clone().or_else(|| std::env::var_os("BRAID_DIR").map(PathBuf::from)) {
        Some(dir) => std::path::absolute(&dir).unwrap_or(dir),
        None => Client::find(None)?.dir,
    };
    let place = Place::read(&dir)?;
    let etcd = if recover.etcd.is_empty() { &place.options.etcd } else { &recover.etcd };
    let coordinator = backend::coordinator(etcd, &place.options.cluster)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Error::os("starting threads", &error))?;
    let by = braid_io::chance::guid()?;
    let decide = || -> Result<(Option<String>, Plan)> {
        let heard = runtime.block_on(place.hear())?;
        let found = coordinator.range("")?;
        let known = Known { cluster: &place.cluster, etcd: &found, heard: &heard, by };
        Ok((recover::need(&known)?, recover::plan(&known)?))
    };
    let (why, mut plan) = decide()?;
    let Some(why) = why else {
        let words = "etcd holds what the hosts have seen last: there is nothing to recover";
        return Err(Error::new(ErrorKind::Refused, words).into());
    };
    if !recover.dry_run {
        refuse(&plan, recover.force)?;
        // From here on nothing changes hands, so what is heard now is the last word.
        let fence = recover::fence(&coordinator, &place.options.name)?;
        plan = decide()?.1;
        refuse(&plan, recover.force)?;
        recover::carry_out(&coordinator, &plan, fence)?;
    }
    tell(whole, recover, &why, &plan)
}

/// What stands against it is the error, unless it is to be put up with.
fn refuse(plan: &Plan, force: bool) -> Result<()> {
    if plan.objections.is_empty() || force {
        return Ok(());
    }
    let words = format!("{} (--force goes on all the same)", plan.objections.join("; "));
    Err(Error::new(ErrorKind::Refused, words))
}

fn tell(whole: &Whole, recover: &Recover, why: &str, plan: &Plan) -> Outcome {
    if whole.json {
        let partition = |change: &Change| {
            json!({
                "id": change.partition.0,
                "found_term": change.found.0,
                "seen_term": change.seen.0,
                "term": change.term.0,
                "members": change.members,
                "heard": change.present,
            })
        };
        return out::json(&json!({
            "done": !recover.dry_run,
            "why": why,
            "source": plan.source,
            "revision": plan.as_of.revision,
            "recovery": plan.incarnation.number,
            "partitions": plan.partitions.iter().map(partition).collect::<Vec<_>>(),
            "objections": plan.objections,
        }));
    }
    let mut lines = vec![
        format!("etcd has gone back: {why}"),
        format!("the facts are those that host {} has seen at revision {}", plan.source, plan.as_of.revision),
    ];
    lines.extend(plan.partitions.iter().map(|change| {
        let Change { partition, found, seen, term, members, present } = change;
        let members = if members.is_empty() { "none yet".to_owned() } else { members.join(", ") };
        format!(
            "{partition}: term {} in etcd, {} seen, {} from now on; members {members} ({present} heard)",
            found.0, seen.0, term.0
        )
    }));
    lines.extend(plan.objections.iter().map(|objection| format!("  warning: {objection}")));
    lines.push(if recover.dry_run {
        "nothing was written: without --dry-run it is".to_owned()
    } else {
        format!("recovery {} is done: hosts go on in a few seconds, see `braid status`", plan.incarnation.number)
    });
    out::lines(&lines)
}

impl Place {
    fn read(dir: &Path) -> Result<Self> {
        let refused = |words: &str| Error::new(ErrorKind::Refused, format!("{}: {words}", dir.display()));
        let options = Options::remembered(dir)?.ok_or_else(|| {
            refused("this is no directory of a host: say which with --dir, on any host of the cluster")
        })?;
        let nothing = || refused("this host has kept nothing of etcd: run it on another one");
        let kept = Kept::read(&dir.join(KEPT))?.ok_or_else(nothing)?;
        let cluster = kept.record::<Cluster>("cluster")?.ok_or_else(nothing)?;
        // What hosts have kept has secrets in it: it is told to hosts, and this process speaks for the one whose it is.
        let me = options.member.as_ref().map(|(_, id)| HostId(*id)).ok_or_else(nothing)?;
        let reach = backend::reach_as(dir, &cluster, me)?;
        Ok(Self { dir: dir.to_owned(), options, kept, cluster, me, reach })
    }

    /// What all hosts say that answer; this one also if its process does not run.
    async fn hear(&self) -> Result<Vec<Testimony>> {
        let name = &self.options.name;
        let own = match visit((self.reach.clone(), self.me), self.me, vec![self.options.listen.clone()]).await {
            Ok(said) => said,
            Err(_) => {
                let kept = Kept::read(&self.dir.join(KEPT))?.unwrap_or_else(|| self.kept.clone());
                recall::from_disk(&self.dir, name, &self.cluster, &kept)?
            }
        };
        let (mut asked, mut heard) = (BTreeSet::from([name.clone()]), vec![own]);
        loop {
            // Whoever has seen more may know more hosts.
            let hosts = recover::hosts(&heard)?;
            let more: Vec<Host> = hosts.into_iter().filter(|host| !asked.contains(&host.name)).collect();
            if more.is_empty() {
                return Ok(heard);
            }
            let mut asking = JoinSet::new();
            for host in more {
                asked.insert(host.name.clone());
                asking.spawn(visit((self.reach.clone(), self.me), host.id, host.addresses));
            }
            heard.extend(asking.join_all().await.into_iter().flatten());
        }
    }
}

/// What one host says.
async fn visit((reach, me): (Reach, HostId), host: HostId, addresses: Vec<String>) -> Result<Testimony> {
    let visited = async {
        let visit = Visit::of_host(reach.find(Some(host), addresses), me).await?;
        match visit.ask(HostOp::Recall).await? {
            HostReply::Recalled(text) => serde_json::from_str(&text)
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("a host said something strange: {error}"))),
            other => Err(Error::new(ErrorKind::Corrupt, format!("a host was asked what it knows, and said {other:?}"))),
        }
    };
    let silent = || Error::new(ErrorKind::TimedOut, "the host does not answer");
    tokio::time::timeout(VISIT_MAX, visited).await.unwrap_or_else(|_| Err(silent()))
}
