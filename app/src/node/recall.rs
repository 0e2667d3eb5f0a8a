//! What a host tells of the coordinator when that is to be recovered; and a host that waits for it, because it finds an
//! etcd that has gone back: it does nothing but tell.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use braid_base::ids::{ClientId, DriveId, HostId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::Request;
use braid_base::msg::host::{HostOp, HostReply, HostResult};
use braid_base::msg::lease::Answer;
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::facts::Cluster;
use braid_cluster::kept::Kept;
use braid_cluster::recover::{Stored, Testimony};
use braid_host::run::{self, Host, Recall};
use braid_replica::replica::event::Msg;
use braid_wire::tls::Peer;
use braid_wire::{Address, CHANNEL_BESIDE, Caller, Handler, Hello, Pusher, ReplyTo, Who};

use super::filesystems::Network;

/// What a host keeps of etcd, in its directory.
pub const KEPT: &str = "etcd.backup";

/// What the host `name` says, which has `kept` this.
pub fn testimony(name: &str, kept: &Kept, stores: Vec<Stored>) -> Result<String> {
    let said = Testimony::of(name, kept, stores);
    serde_json::to_string(&said).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))
}

/// What the process of a host says.
pub fn of(network: &Network, host: Weak<Host>) -> Recall {
    let (guard, name) = (Arc::clone(&network.guard), network.name.clone());
    Box::new(move || {
        let host = host.upgrade().ok_or_else(|| Error::new(ErrorKind::Stopped, "the host is stopping"))?;
        testimony(&name, &guard.kept(), host.recall()?)
    })
}

/// What the host `name` says whose process does not run, by what lies in `dir`. Blocks.
pub fn from_disk(dir: &Path, name: &str, cluster: &Cluster, kept: &Kept) -> Result<Testimony> {
    Ok(Testimony::of(name, kept, run::stores(dir, cluster.guid)?))
}

/// A host that does not start before etcd was recovered.
pub struct Stranded {
    pub dir: PathBuf,
    pub name: String,
    pub cluster: Cluster,
    pub kept: Arc<Kept>,
}

impl Stranded {
    fn refusal() -> Error {
        let words = "this host waits for `braid cluster recover`: etcd was restored from an old copy, or lost its data";
        Error::new(ErrorKind::Stopped, words)
    }
}

impl Handler for Stranded {
    fn admit(&self, peer: Peer, hello: &Hello) -> Result<u16> {
        let secured = !self.cluster.authority.is_empty();
        match &hello.caller {
            // It is asked for what it knows in the name of a host, beside the connections of that host: those are not let in.
            Caller::Host(host) if hello.channel == CHANNEL_BESIDE && secured && peer == Peer::Host(*host) => {}
            Caller::Host(_) if hello.channel == CHANNEL_BESIDE && !secured => {
                hello.check(self.cluster.guid, &self.cluster.host_secret)?;
            }
            // It is told that this host waits.
            Caller::Visitor => hello.check(self.cluster.guid, &self.cluster.client_secret)?,
            _ => return Err(Self::refusal()),
        }
        Ok(self.cluster.partitions)
    }

    fn joined(&self, _who: &Who, _push: Pusher) {}

    fn left(&self, _who: &Who, _push: &Pusher) {}

    fn partition(&self, _from: ClientId, _p: PartitionId, _term: Term, _request: Request, answer: ReplyTo<Answer>) {
        answer.send(&Self::refusal().into());
    }

    fn drive(&self, _from: &Caller, _d: DriveId, _op: DriveOp, answer: ReplyTo<DriveResult>) {
        answer.send(&Err(Self::refusal()));
    }

    fn host(&self, from: &Caller, op: HostOp, answer: ReplyTo<HostResult>) {
        if op != HostOp::Recall || !matches!(from, Caller::Host(_)) {
            return answer.send(&Err(Self::refusal()));
        }
        let (dir, name) = (self.dir.clone(), self.name.clone());
        let (guid, kept) = (self.cluster.guid, Arc::clone(&self.kept));
        tokio::task::spawn_blocking(move || {
            let said = run::stores(&dir, guid).and_then(|stores| testimony(&name, &kept, stores));
            answer.send(&said.map(HostReply::Recalled));
        });
    }

    fn replica(&self, _from: HostId, _message: Msg) {}

    fn peer(&self, _from: PartitionId, _to: PartitionId, _message: PeerMsg) {}

    fn way(&self, _to: HostId) -> Result<Address> {
        Err(Error::new(ErrorKind::Unsupported, "this host does not serve yet"))
    }
}
