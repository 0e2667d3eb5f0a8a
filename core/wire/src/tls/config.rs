//! What each side asks of the other, and the sentence for what goes wrong.

use std::fmt;
use std::sync::Arc;

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, InconsistentKeys, RootCertStore, ServerConfig, version,
};

use super::identity::{Ca, Identity, any_name, host_name, named};

/// How a server proves itself and checks who comes.
#[derive(Clone)]
pub struct Server {
    pub(super) config: Arc<ServerConfig>,
    cluster: Guid,
}

/// How a client checks a server and, where it has a certificate, proves itself.
#[derive(Clone)]
pub struct Client {
    pub(super) config: Arc<ClientConfig>,
}

/// Who is at the other end, as its certificate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host of the cluster.
    Host(HostId),
    /// Somebody without a certificate, or over a socket without TLS.
    Anonymous,
}

/// The server's side of `own`'s host. A client needs no certificate, but one that it shows must be the cluster's.
/// Errors: `Invalid` if the parts of `own` do not belong together.
pub fn server_config(own: &Identity) -> Result<Server> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(own.ca())?), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| invalid(format!("the certificate of the authority is of no use: {error}")))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unfit)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(own.shown()?);
    // Connections are few and last: each shows its certificate anew, and no ticket outlives one.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Server { config: Arc::new(config), cluster: own.cluster() })
}

/// The client's side: whose servers are trusted, and the certificate to show them, if any. Errors: `Invalid`.
pub fn client_config(ca: &Ca, own: Option<&Identity>) -> Result<Client> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unfit)?
        .with_root_certificates(roots(ca)?);
    let mut config = match own {
        Some(own) => config.with_client_cert_resolver(own.shown()?),
        None => config.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Client { config: Arc::new(config) })
}

impl Server {
    /// Who showed `certificates`, which were verified. `NotPermitted` if they name no host of this cluster.
    pub(super) fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Peer> {
        let Some(first) = certificates.and_then(<[_]>::first) else { return Ok(Peer::Anonymous) };
        match named(first) {
            Some((host, cluster)) if cluster == self.cluster => Ok(Peer::Host(host)),
            _ => Err(Error::new(ErrorKind::NotPermitted, "the certificate shown names no host of this cluster")),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server of {}", self.cluster)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// The name that the certificate of `host`, or of any host, must have.
pub(super) fn server_name(host: Option<HostId>, cluster: Guid) -> Result<ServerName<'static>> {
    let name = host.map_or_else(|| any_name(cluster), |host| host_name(host, cluster));
    ServerName::try_from(name).map_err(|_| invalid("a host has no such name".to_owned()))
}

/// What ended a handshake or a connection, in words that say what to do.
pub(super) fn explain(error: &rustls::Error) -> Error {
    use CertificateError as Bad;
    let clocks = "compare the clocks of both machines";
    let refused = |words: String| Error::new(ErrorKind::Refused, words);
    match error {
        rustls::Error::InvalidMessage(_) => refused(
            "what comes from the other side is not TLS: is that port served without it, or by another program?".into(),
        ),
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => refused(format!(
                "the other side's certificate has expired: it must get a new one with the join secret ({clocks}, too)"
            )),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                refused(format!("the other side's certificate is not valid yet: {clocks}"))
            }
            Bad::UnknownIssuer | Bad::BadSignature => refused(
                "the other side's certificate is not from this cluster's authority: it belongs to another cluster; \
                 see the address, and the certificate of the authority kept here"
                    .into(),
            ),
            Bad::NotValidForNameContext { expected, presented } => refused(format!(
                "the other side is another host: expected {}, found {}; see the address",
                expected.to_str(),
                presented.join(", ")
            )),
            other => refused(format!("the other side's certificate is of no use: {other}")),
        },
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => refused(format!(
            "the other side says that the certificate of this one has expired: get a new one with the join secret \
             ({clocks}, too)"
        )),
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => refused(
            "the other side says that the certificate of this one is not from its cluster's authority: see the \
             address, and the certificate kept here"
                .into(),
        ),
        rustls::Error::AlertReceived(alert) => refused(format!("the other side ended TLS: {alert:?}")),
        rustls::Error::PeerIncompatible(why) => {
            refused(format!("the other side's TLS does not fit ({why:?}): TLS 1.3 is needed"))
        }
        other => Error::new(ErrorKind::Corrupt, format!("TLS failed: {other}")),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn roots(ca: &Ca) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.0.clone()).map_err(unfit)?;
    Ok(roots)
}

pub(super) fn unfit(error: rustls::Error) -> Error {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            invalid("the host's key does not belong to its certificate".to_owned())
        }
        other => invalid(format!("certificate or key cannot be used: {other}")),
    }
}

fn invalid(words: String) -> Error {
    Error::new(ErrorKind::Invalid, words)
}
