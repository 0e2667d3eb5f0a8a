//! `braid cluster create`: makes a cluster of hosts that wait for it.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use braid_base::ids::Guid;
use braid_cluster::create::{self, Wish};
use braid_cluster::facts::Protection;
use braid_cluster::setup::World;
use braid_cluster::snapshot::Snapshot;
use braid_wire::tls::Authority;
use clap::Args;
use serde_json::json;

use crate::exit::Outcome;
use crate::measure::parse_protection;
use crate::node::{backend, certificate};
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Create {
    /// Hosts, by the names under which their `braid backend` waits
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<String>,
    /// Members of etcd, such as http://10.0.0.1:2379 (repeat, or separate by commas)
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    etcd: Vec<String>,
    /// Name of the cluster, as its hosts know it
    #[arg(long, default_value = "braid")]
    name: String,
    /// Data and parity shards of new data [default: 4+2, narrower with fewer failure domains]
    #[arg(long, value_name = "D+P", value_parser = parse_protection)]
    protection: Option<Protection>,
    /// Partitions of the namespace [default: two per host, 4 to 64]
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
    /// Copies of metadata, on as many hosts [default: one more than parity shards]
    #[arg(long, value_name = "N")]
    metadata_copies: Option<u8>,
    /// File with the join secret: hosts and clients talk over TLS then, else in clear
    #[arg(long, value_name = "FILE")]
    join_secret_file: Option<PathBuf>,
}

pub fn run(whole: &Whole, create: &Create) -> Outcome {
    let coordinator = backend::coordinator(&create.etcd, &create.name)?;
    let wish = Wish {
        name: Some(create.name.clone()),
        hosts: create.hosts.clone(),
        protection: create.protection,
        partitions: create.partitions,
        copies: create.metadata_copies,
    };
    let now = Snapshot::read(&coordinator)?;
    let count = now.candidates.iter().map(|candidate| candidate.drives.len()).sum::<usize>();
    let mut identities = (0..=count).map(|_| braid_io::chance::guid()).collect::<Result<Vec<Guid>, _>>()?;
    let mut identity = || identities.pop().unwrap_or_default();
    let secret = || -> Result<String, braid_base::Error> {
        let (one, two) = (braid_io::chance::guid()?, braid_io::chance::guid()?);
        Ok([one.0, two.0].concat().iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let now_s = u64::try_from(braid_io::clock::now().wall.sec).unwrap_or(0);
    let secrets = (secret()?, secret()?);
    let mut founding = create::plan(&now, &wish, secrets, World { identity: &mut identity, now_s })?;
    match &create.join_secret_file {
        Some(file) => {
            let authority = Authority::new(founding.cluster.guid)?.seal(&certificate::join_secret(file)?)?;
            founding.cluster.authority = STANDARD.encode(authority);
        }
        None => {
            founding.warnings.push("no join secret: hosts and clients talk in clear, see --join-secret-file".to_owned())
        }
    }
    create::record(&coordinator, &founding)?;
    let cluster = &founding.cluster;
    let drives: usize = founding.hosts.iter().map(|(_, drives)| drives.len()).sum();
    if whole.json {
        return out::json(&json!({
            "name": cluster.name,
            "guid": cluster.guid.to_string(),
            "protection": cluster.protection.to_string(),
            "partitions": cluster.partitions,
            "metadata_copies": cluster.copies,
            "hosts": founding.hosts.iter().map(|(host, _)| &host.name).collect::<Vec<_>>(),
            "drives": drives,
            "warnings": founding.warnings,
        }));
    }
    let mut lines = vec![format!(
        "cluster {} ({}): {} hosts, {drives} drives, protection {}, {} partitions of {} copies",
        cluster.name,
        cluster.guid,
        founding.hosts.len(),
        cluster.protection,
        cluster.partitions,
        cluster.copies,
    )];
    lines.extend(founding.warnings.iter().map(|warning| format!("  warning: {warning}")));
    lines.push("its hosts format their drives and serve in a few seconds: `braid status` on any of them".to_owned());
    out::lines(&lines)
}
