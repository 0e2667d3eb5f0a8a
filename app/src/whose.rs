//! The file system that a path is on, as its cluster tells.

use std::path::Path;

use braid_cluster::view::FilesystemView;

use crate::attach::Server;
use crate::client::Client;
use crate::mountpoint;
use crate::whole::Whole;

/// A file system, and how to ask its cluster more.
pub struct Whose {
    /// What is known of it.
    pub filesystem: FilesystemView,
    /// Its cluster.
    pub client: Client,
}

impl Whose {
    /// The one that `path` is on, which need not be there; none if its cluster cannot be asked from this machine.
    pub fn of(whole: &Whole, path: &Path) -> Option<Self> {
        // The link itself is meant, if it is one: what it points to may be on another file system.
        let place = std::path::absolute(path).ok()?;
        let place = place.parent()?.canonicalize().ok()?.join(place.file_name()?);
        let mounts = mountpoint::list().ok()?;
        // Later mounts hide earlier ones.
        let mount = mounts.iter().rev().filter(|mount| place.starts_with(&mount.path));
        let source = &mount.max_by_key(|mount| mount.path.components().count())?.source;
        let (server, name) = served(source);
        let client = match (whole.dir.as_deref(), server) {
            (None, Some(Server::Dir(dir))) => Client::at(&dir),
            (dir, _) => Client::find(dir),
        };
        let client = client.ok()?;
        let filesystems: Vec<FilesystemView> = client.get("/filesystems").ok()?;
        let filesystem = filesystems.into_iter().find(|found| found.name == name)?;
        Some(Self { filesystem, client })
    }
}

/// Cluster and file system that the source of a mount names: `braid:FS`, `DIR/FS`, `HOST[,HOST...]/FS` or `FS`.
fn served(source: &str) -> (Option<Server>, &str) {
    match source.strip_prefix("braid:") {
        Some(filesystem) => (None, filesystem),
        None => match source.rsplit_once('/') {
            Some((server, filesystem)) => (Some(Server::parse(server)), filesystem),
            None => (None, source),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::served;
    use crate::attach::Server;

    #[test]
    fn sources_of_mounts() {
        assert_eq!(served("braid:my fs"), (None, "my fs"));
        assert_eq!(served("/var/c/fs"), (Some(Server::Dir("/var/c".into())), "fs"));
        assert_eq!(served("fs"), (None, "fs"));
        assert!(matches!(served("h1,h2/fs"), (Some(Server::Hosts(hosts)), "fs") if hosts.len() == 2));
    }
}
