//! The handshake: who comes, and what it is told.

use std::fmt;

use braid_base::ids::{Guid, HostId};
use braid_base::msg::host::Who;
use braid_base::{Error, ErrorKind, Result};

use crate::codec::{wire_enum, wire_struct};

/// The first message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The cluster it means.
    pub cluster: Guid,
    /// The server's secret, which whoever may use the cluster can read. In clear: a network needs TLS below.
    pub secret: String,
    /// Who comes.
    pub caller: Caller,
    /// Which connection of the pool: 0 takes the unasked messages.
    pub channel: u8,
}

/// Who comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client: asks partitions and drives.
    Client(Who),
    /// Another host of the cluster: asks drives, and its replicas and partitions talk to those here.
    Host(HostId),
    /// Somebody who asks the host only.
    Visitor,
    /// Somebody who cannot connect to that host: what follows is carried there and back.
    Relay(HostId),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(who) => write!(f, "client {} (pid {})", who.client, who.pid),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Visitor => write!(f, "a visitor"),
            Self::Relay(to) => write!(f, "somebody who wants to be relayed to host {to}"),
        }
    }
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Come in.
    In {
        /// Partitions of the cluster.
        partitions: u16,
    },
    /// No.
    No {
        /// Why.
        error: Error,
    },
}

wire_struct!(Hello { cluster, secret, caller, channel });
wire_enum!(Caller, "caller" { 1 = Client(who), 2 = Host(host), 3 = Visitor, 4 = Relay(to) });
wire_enum!(Welcome, "welcome" { 1 = In { partitions }, 2 = No { error } });

impl Hello {
    /// `Refused` or `NotPermitted` unless it means this `cluster` and knows the `secret`.
    pub fn check(&self, cluster: Guid, secret: &str) -> Result<()> {
        if self.cluster != cluster {
            let words = format!("this is cluster {cluster}, not {}: see the address", self.cluster);
            return Err(Error::new(ErrorKind::Refused, words));
        }
        if !same(&self.secret, secret) {
            let words = "the secret is not this server's: among several hosts it is in client.json of a host's \
                         directory, on one machine in admin.json of the cluster's";
            return Err(Error::new(ErrorKind::NotPermitted, words));
        }
        Ok(())
    }
}

/// Compares without telling by its time how much was right.
fn same(given: &str, secret: &str) -> bool {
    let differences = given.bytes().zip(secret.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b));
    given.len() == secret.len() && !secret.is_empty() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::{Caller, Hello};
    use braid_base::ErrorKind;
    use braid_base::ids::{Guid, HostId};

    #[test]
    fn only_who_knows_cluster_and_secret_comes_in() {
        let caller = Caller::Host(HostId(3));
        let hello = Hello { cluster: Guid([1; 16]), secret: "abc".into(), caller, channel: 0 };
        assert_eq!(hello.check(Guid([1; 16]), "abc"), Ok(()));
        let kind = |cluster, secret| hello.check(Guid([cluster; 16]), secret).map_err(|e| e.kind()).err();
        assert_eq!(kind(2, "abc"), Some(ErrorKind::Refused));
        for secret in ["abd", "ab", "abcd", ""] {
            assert_eq!(kind(1, secret), Some(ErrorKind::NotPermitted));
        }
    }
}
