//! A host among others: it offers itself, waits to be taken into a cluster, and serves its part of it.
//!
//! 1. [`Enlisted::begin`] looks at the drives and finds the cluster in etcd. A host that is in none yet is a candidate,
//!    as long as its process runs.
//! 2. [`Enlisted::look`] tells when it was taken: its record is there.
//! 3. [`start`] formats its drives if they are new, and starts its parts. Then it listens, and [`Follow`] has the steward
//!    start the replicas: each that chooses a primary asks the others first (R8), who must be there to answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use braid_base::ids::{Guid, HostId, PartitionId};
use braid_base::msg::host::{HostOp, HostReply};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::Etcd;
use braid_cluster::coordinator::{Coordinator, SessionId, Txn};
use braid_cluster::facts::{Candidate, Cluster, Drive, Host as HostRecord, Offer};
use braid_cluster::guard::{Guard, Terms};
use braid_cluster::records::{self, Record};
use braid_cluster::setup::{self, Found, Known, Label, Wish, World};
use braid_cluster::snapshot::{self, Snapshot};
use braid_host::run::{self, Company, Host, HostConfig};
use braid_wire::tls;
use braid_wire::{Caller, Routes, Visit};
use serde::{Deserialize, Serialize};

use super::certificate::{self, Certificate};
use super::control::Node;
use super::filesystems::{Network, Way};
use super::recall::{KEPT, Stranded};
use super::{Say, detour, drives, views};
use crate::reach::Reach;

/// The file that says what a host's directory is for.
pub const MARK: &str = "backend.json";
/// What lets clients in, for those who may read the host's directory.
pub const TOKEN: &str = "client.json";
/// How long other hosts may take to say what they have seen of etcd.
const HEARSAY_MAX: Duration = Duration::from_secs(1);
/// How long a candidate that falls silent is remembered, milliseconds.
const CANDIDATE_MS: u64 = 5_000;

/// What a host is told, and remembers in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Its directory.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The members of etcd, `http://HOST:PORT`.
    pub etcd: Vec<String>,
    /// Which of the clusters there.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// What fails together with it.
    pub domain: String,
    /// Where it listens, `IP:PORT`.
    pub listen: String,
    /// Drives it was given.
    pub given: Vec<PathBuf>,
    /// Drive files to make in its directory, and the size of each.
    pub files: Option<(usize, u64)>,
    /// The file with the join secret.
    #[serde(default)]
    pub join_secret: Option<PathBuf>,
    /// How many processors' worth of workers, if not one for each processor.
    #[serde(default)]
    pub cores: Option<u16>,
    /// Which host of which cluster it became.
    #[serde(default)]
    pub member: Option<(String, u32)>,
}

/// The coordinator of the cluster called `cluster` at these members of etcd.
pub fn coordinator(etcd: &[String], cluster: &str) -> Result<Etcd> {
    Etcd::new(etcd, &format!("/braid/{cluster}/"))
}

impl Options {
    /// What an earlier start in `dir` remembered.
    pub fn remembered(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(MARK);
        let shown = path.display();
        match std::fs::read(&path) {
            Ok(bytes) => {
                let options: Self = serde_json::from_slice(&bytes)
                    .map_err(|error| Error::new(ErrorKind::Corrupt, format!("{shown}: {error}")))?;
                Ok(Some(Self { dir: dir.to_owned(), ..options }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::os(shown, &error)),
        }
    }

    fn remember(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
        braid_admin::write_private(&self.dir.join(MARK), &text)
    }

    /// Where its drives are, or will be.
    fn places(&self) -> Vec<PathBuf> {
        let count = self.files.map_or(0, |(count, _)| count);
        let mut places: Vec<PathBuf> = (0..count).map(|n| self.dir.join(format!("drive-{n}"))).collect();
        places.extend(self.given.iter().cloned());
        places
    }

    /// What it shows others as `host` of `cluster`, if anything.
    fn certificate(&self, cluster: &Cluster, host: HostId) -> Result<Option<Certificate>> {
        Certificate::of(&self.dir, self.join_secret.as_deref(), cluster, host)
    }
}

/// A host that looks for its cluster.
pub struct Enlisted {
    options: Options,
    etcd: Etcd,
    coordinator: Arc<Guard>,
    session: Option<SessionId>,
    /// What the coordinator said last, once this host is in the cluster.
    now: Option<Snapshot>,
}

impl Enlisted {
    /// Looks for the cluster; offers this host if it is in none yet. Blocks.
    pub fn begin(options: Options) -> Result<Self> {
        let etcd = coordinator(&options.etcd, &options.cluster)?;
        let cluster = options.member.as_ref().and_then(|(guid, _)| Guid::parse(guid));
        let floors = cluster.map(|guid| run::floors(&options.dir, guid)).transpose()?.unwrap_or_default();
        let (path, name) = (options.dir.join(KEPT), options.name.clone());
        let coordinator = Arc::new(Guard::new(Arc::new(etcd.clone()), Terms { path, name, cluster, floors })?);
        let mut this = Self { options, etcd, coordinator, session: None, now: None };
        match this.look() {
            Err(_) if this.coordinator.refuses() => {} // it waits until etcd was recovered
            looked => _ = looked?,
        }
        // Not before it is known that this can be.
        this.options.remember()?;
        Ok(this)
    }

    /// True once this host is in the cluster. Until then it is a candidate. Blocks.
    pub fn look(&mut self) -> Result<bool> {
        let now = Snapshot::read(self.coordinator.as_ref())?;
        if let Some(cluster) = now.cluster.as_ref().filter(|_| now.host(&self.options.name).is_some()) {
            self.coordinator.joined(cluster.guid)?;
            self.now = Some(now);
            if let Some(session) = self.session.take() {
                self.coordinator.end_session(session)?;
            }
            return Ok(true);
        }
        if let Some(session) = self.session {
            match self.coordinator.keep_alive(session) {
                Err(error) if error.kind() == ErrorKind::Stale => self.session = None,
                other => return other.map(|()| false),
            }
        }
        let candidate = self.candidate()?;
        let name = &candidate.name;
        if now.candidates.iter().any(|other| other.name == *name && other.addresses != candidate.addresses) {
            let words =
                format!("another host called {name} waits at this etcd: give this one a name of its own (--host)");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        let session = self.coordinator.session(CANDIDATE_MS)?;
        let txn = Txn::new().put_live(&candidate.key(), records::encode(&candidate)?, session);
        self.coordinator.txn(&txn)?;
        self.session = Some(session);
        Ok(false)
    }

    /// What is there of a host that found an etcd which has gone back, and how others are let in to ask it.
    pub fn stranded(&self) -> Result<Option<(Stranded, Option<tls::Server>)>> {
        let Some((_, id)) = self.options.member.as_ref().filter(|_| self.coordinator.refuses()) else {
            return Ok(None);
        };
        let kept = self.coordinator.kept();
        let Some(cluster) = kept.record::<Cluster>(Cluster::KEY)? else { return Ok(None) };
        let certificate = self.options.certificate(&cluster, HostId(*id))?;
        let tls = certificate.map(|own| tls::server_config(own.identity())).transpose()?;
        let (dir, name) = (self.options.dir.clone(), self.options.name.clone());
        Ok(Some((Stranded { dir, name, cluster, kept }, tls)))
    }

    fn candidate(&self) -> Result<Candidate> {
        let options = &self.options;
        let found = drives::look_at(options.places())?;
        let drives = found.into_iter().map(|found| offer(options, found)).collect::<Result<Vec<_>>>()?;
        let (name, domain) = (options.name.clone(), options.domain.clone());
        Ok(Candidate { name, addresses: vec![options.listen.clone()], domain, drives })
    }
}

/// A drive that may be taken: a blank one, or a file that is to be made.
fn offer(options: &Options, found: Found) -> Result<Offer> {
    let path = found.path.display();
    let refuse = |words: String| Err(Error::new(ErrorKind::Refused, format!("drive {path}: {words}")));
    match found.label {
        Label::Blank(size_bytes) => Ok(Offer { path: found.path, size_bytes }),
        Label::Missing if !options.given.contains(&found.path) => {
            let (_, size_bytes) = options.files.unwrap_or_default();
            Ok(Offer { path: found.path, size_bytes })
        }
        Label::Missing => refuse("a file or device expected, found nothing".to_owned()),
        Label::Braid { cluster, .. } => refuse(format!(
            "a blank one expected, found a drive of cluster {cluster}; this host, {}, is in no cluster at this etcd: \
             see --host, --etcd and --cluster",
            options.name
        )),
        Label::Foreign(what) => refuse(format!("a blank one expected, found {what}: blank it yourself (wipefs -a)")),
        Label::Broken(why) => refuse(why),
        Label::Silent => refuse(setup::SILENT.to_owned()),
    }
}

/// Brings the replicas of a host to life, once others can reach it. Blocks until they run, or for some time.
pub type Follow = Box<dyn FnOnce() -> Result<()> + Send>;

/// Starts the parts of a host that is in the cluster, but its replicas. Blocks until they run. Must be called on a
/// blocking thread of the runtime.
pub fn start(enlisted: Enlisted, say: &Say) -> Result<(Arc<Node>, Follow)> {
    let Enlisted { options, etcd, coordinator, now, .. } = enlisted;
    let in_none = || Error::new(ErrorKind::Stopped, "this host is in no cluster yet");
    let now = now.ok_or_else(in_none)?;
    let (cluster, record) = match (&now.cluster, now.host(&options.name)) {
        (Some(cluster), Some(record)) => (cluster.clone(), record.clone()),
        _ => return Err(in_none()),
    };
    let member = (cluster.guid.to_string(), record.id.0);
    match &options.member {
        Some(known) if *known == member => {}
        Some((guid, host)) => {
            let (dir, name, found) = (options.dir.display(), &cluster.name, cluster.guid);
            let words = format!("{dir} is that of host h{host} of cluster {guid}; at this etcd {name} is {found}");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        // The directory is new, or was lost: then nobody else may be this host.
        None if now.live.contains(&record.id) => {
            let (name, at) = (&record.name, record.addresses.join(", "));
            let words = format!("host {name} runs already, at {at}: give this one a name of its own (--host)");
            return Err(Error::new(ErrorKind::Refused, words));
        }
        None => {}
    }
    let options = Options { member: Some(member), ..options };
    options.remember()?;
    hearsay(&coordinator, &options, &cluster, &now)?;
    say("preparing the drives");
    let plan = prepare(&options, coordinator.as_ref(), &now, &cluster, &record)?;
    if record.addresses != [options.listen.clone()] {
        records::modify::<HostRecord>(coordinator.as_ref(), &record.key(), |host| {
            host.addresses = vec![options.listen.clone()];
            Ok(())
        })?;
    }
    // Formatted drives are active now.
    let now = Snapshot::read(coordinator.as_ref())?;
    say("starting");
    let certificate = options.certificate(&cluster, record.id)?.map(Arc::new);
    let identity = certificate.as_ref().map(|own| own.identity());
    let ca = identity.map(|own| own.ca().to_pem()).unwrap_or_default();
    let reach = |secret: &str, own| Reach::new(cluster.guid, secret.to_owned(), &ca, own).map(Arc::new);
    let as_client = reach(&cluster.client_secret, None)?;
    as_client.write(&options.dir.join(TOKEN))?;
    let as_host = reach(&cluster.host_secret, identity)?;
    let runtime = tokio::runtime::Handle::current();
    let routes = Arc::new(Routes::new(Caller::Host(record.id), as_host.finder()));
    {
        let _in_runtime = runtime.enter();
        routes.follow(now.map());
    }
    etcd.detour(detour::by(Arc::clone(&routes), runtime.clone()));
    let asks = etcd.clone();
    let etcd_by_others = Box::new(move || asks.is_asked_by_others());
    let (forsaken, hears) = mpsc::channel::<PartitionId>();
    let capacity_bytes = now.net_bytes(drives::raw_of(cluster.shard_bytes));
    let config = config(&options, &cluster, record.id, &plan, capacity_bytes);
    let guard = Arc::clone(&coordinator);
    let coordinator: Arc<dyn Coordinator> = coordinator;
    let host = Host::start(config, &coordinator, Some(Company { routes, etcd_by_others, forsaken }), runtime)?;
    let tls = identity.map(tls::server_config).transpose()?;
    if let Some(own) = &certificate {
        tokio::spawn(Certificate::keep(Arc::downgrade(own)));
    }
    let (name, addresses) = (options.name.clone(), vec![options.listen.clone()]);
    let way =
        Way::Network(Network { host: record.id, name, etcd, guard, reach: as_client, addresses, tls, certificate });
    let node = Arc::new(Node::new(options.dir, coordinator, (host, record.id), cluster, plan.lost, way));
    let starts = Arc::clone(&node);
    Ok((node, Box::new(move || starts.follow(now, hears))))
}

/// A host that was away for long may have seen nothing of what an etcd that has gone back lacks: it asks the others.
fn hearsay(guard: &Guard, options: &Options, cluster: &Cluster, now: &Snapshot) -> Result<()> {
    let Ok(reach) = Reach::read(&options.dir.join(TOKEN)) else { return Ok(()) }; // it was never a part of it
    if reach.cluster != cluster.guid {
        return Ok(());
    }
    // Also those that do not live, as this etcd has it: that may be old.
    let others = now.hosts.iter().filter(|host| host.name != options.name);
    let versions = tokio::runtime::Handle::current().block_on(async {
        let mut asking = tokio::task::JoinSet::new();
        for host in others {
            let find = reach.find(Some(host.id), host.addresses.clone());
            asking.spawn(tokio::time::timeout(
                HEARSAY_MAX,
                async move { Visit::begin(find).await?.ask(HostOp::Map).await },
            ));
        }
        asking.join_all().await
    });
    let version = |answer| match answer {
        Ok(Ok(HostReply::Map(map))) => Some(map.version),
        _ => None,
    };
    match versions.into_iter().filter_map(version).max() {
        Some(newest) => {
            let (incarnation, revision) = snapshot::seen_at(newest);
            guard.heard(incarnation, revision)
        }
        None => Ok(()),
    }
}

/// How the other hosts are reached in the name of `host`, whose directory is `dir`: with what proves that it is one.
pub fn reach_as(dir: &Path, cluster: &Cluster, host: HostId) -> Result<Reach> {
    let secret = cluster.host_secret.clone();
    if cluster.authority.is_empty() {
        return Reach::new(cluster.guid, secret, "", None);
    }
    let none = || {
        let words = format!("{}: no certificate of host {host}: start `braid backend` there once", dir.display());
        Error::new(ErrorKind::Refused, words)
    };
    let own = certificate::kept(dir, cluster, host).ok_or_else(none)?;
    Reach::new(cluster.guid, secret, &own.ca().to_pem(), Some(&own))
}

/// Finds the drives of this host; formats those that are new.
fn prepare(
    options: &Options,
    coordinator: &dyn Coordinator,
    now: &Snapshot,
    cluster: &Cluster,
    host: &HostRecord,
) -> Result<setup::Plan> {
    let drives: Vec<Drive> = now.drives.iter().filter(|drive| drive.host == host.id).cloned().collect();
    let known = Known { cluster: cluster.clone(), host: host.clone(), drives };
    let wish = Wish { given: options.given.clone(), ..Wish::default() };
    let places: BTreeSet<PathBuf> = setup::places(Some(&known), &wish, &options.dir).into_iter().collect();
    let found = drives::look_at(places.into_iter().collect())?;
    let mut nobody = || braid_base::ids::Guid::default();
    let world = World { identity: &mut nobody, now_s: views::now_s() };
    let plan = setup::decide(Some(&known), &wish, &found, world)?;
    setup::check_room(&plan, &options.dir, braid_io::file::free_bytes(&options.dir)?)?;
    let mut plan = setup::record(coordinator, plan)?;
    drives::prepare(coordinator, &mut plan)?;
    Ok(plan)
}

fn config(options: &Options, cluster: &Cluster, host: HostId, plan: &setup::Plan, capacity_bytes: u64) -> HostConfig {
    let [drives, awaited, absent] = drives::specs(plan);
    HostConfig {
        dir: options.dir.clone(),
        cluster: cluster.guid,
        host,
        data: cluster.protection.data,
        parity: cluster.protection.parity,
        shard_bytes: cluster.shard_bytes,
        partitions: cluster.partitions,
        drives,
        awaited,
        absent,
        replicas: Vec::new(),
        capacity_bytes,
    }
}
