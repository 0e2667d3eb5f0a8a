//! How the hosts of a cluster are reached over the network, and what they want to hear.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_wire::tls::{self, Ca, Identity};
use braid_wire::{Address, Find, Finder, Target};
use serde::{Deserialize, Serialize};

/// Where hosts listen unless told otherwise.
pub const PORT: u16 = 14_001;
/// Where a client finds what it must know, unless told otherwise.
pub const TOKEN: &str = "/etc/braid/client.json";

/// Of which cluster, the secret, and whom to trust.
#[derive(Clone)]
pub struct Reach {
    pub cluster: Guid,
    pub secret: String,
    /// Connections are secured this way, if they are.
    tls: Option<tls::Client>,
    ca: String,
}

/// The file that lets a client in.
#[derive(Serialize, Deserialize)]
struct Token {
    cluster: String,
    secret: String,
    /// The certificate of the cluster's authority, in PEM; empty: connections are not secured.
    #[serde(default)]
    ca: String,
}

impl Reach {
    /// `ca`: as in [`Token`]. `own`: the certificate to show.
    pub fn new(cluster: Guid, secret: String, ca: &str, own: Option<&Identity>) -> Result<Self> {
        let tls = match ca {
            "" => None,
            pem => Some(tls::client_config(&Ca::from_pem(pem)?, own)?),
        };
        Ok(Self { cluster, secret, tls, ca: ca.to_owned() })
    }

    /// What the file at `path` says.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let bytes = std::fs::read(path).map_err(|error| {
            let words =
                format!("{shown}: {error}: copy client.json of a host's directory there, or say auth_token_path");
            Error::new(ErrorKind::Refused, words)
        })?;
        let wrong = || Error::new(ErrorKind::Invalid, format!("{shown}: this is no client.json of Braid"));
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let cluster = Guid::parse(&token.cluster).ok_or_else(wrong)?;
        Self::new(cluster, token.secret, &token.ca, None).map_err(|error| error.within(shown))
    }

    /// Writes it, for the owner's eyes only.
    pub fn write(&self, path: &Path) -> Result<()> {
        let token = Token { cluster: self.cluster.to_string(), secret: self.secret.clone(), ca: self.ca.clone() };
        let text = serde_json::to_vec(&token).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
        braid_admin::write_private(path, &text)
    }

    /// The certificate of the cluster's authority, in PEM; empty: connections are not secured.
    pub fn ca_pem(&self) -> String {
        self.ca.clone()
    }

    /// Looks for `host`, or any host, at `addresses`, one after the other.
    pub fn find(&self, host: Option<HostId>, addresses: Vec<String>) -> Find {
        let (reach, next) = (self.clone(), AtomicUsize::new(0));
        Box::new(move || {
            let nobody = || Error::new(ErrorKind::Stopped, "the host listens nowhere");
            let at = next.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
            let address = Address::Tcp(resolve(addresses.get(at).ok_or_else(nobody)?)?);
            let tls = reach.tls.clone().map(|tls| (tls, host));
            Ok(Target { address, cluster: reach.cluster, secret: reach.secret.clone(), tls })
        })
    }

    /// The same for each host of a map.
    pub fn finder(self: Arc<Self>) -> Finder {
        Box::new(move |host, addresses| self.find(Some(host), addresses.to_vec()))
    }
}

/// `HOST`, `HOST:PORT` or an address of either kind; the usual port if none is given.
pub fn resolve(text: &str) -> Result<SocketAddr> {
    let failed = |why: String| Error::new(ErrorKind::NotFound, format!("host {text}: {why}"));
    let has_port =
        text.parse::<SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':'));
    let found = if has_port { text.to_socket_addrs() } else { (text, PORT).to_socket_addrs() };
    found.map_err(|e| failed(e.to_string()))?.next().ok_or_else(|| failed("it has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn addresses_with_and_without_a_port() {
        let shown = |text| resolve(text).map(|at| at.to_string()).map_err(|error| error.message().to_owned());
        assert_eq!(shown("127.0.0.1"), Ok("127.0.0.1:14001".to_owned()));
        assert_eq!(shown("127.0.0.1:5"), Ok("127.0.0.1:5".to_owned()));
        assert_eq!(shown("::1"), Ok("[::1]:14001".to_owned()));
        assert_eq!(shown("[::1]:7"), Ok("[::1]:7".to_owned()));
        assert!(shown("no.such.host.invalid").is_err_and(|words| words.contains("no.such.host.invalid")));
    }
}
