//! TLS to stores: whom to trust, and what to say when a certificate does not do.

use std::io;
use std::sync::{Arc, OnceLock};

use braid_base::store::{Endpoint, Protocol};
use braid_base::{Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::failure::Failure;

/// The configuration for `endpoint`; none if it is spoken to in the clear.
///
/// Errors: `Refused`: its `ca_cert` holds no certificate.
pub(super) fn config(endpoint: &Endpoint) -> Result<Option<Arc<ClientConfig>>> {
    let provider = Arc::new(ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Refused, format!("TLS cannot be set up: {error}")))
    };
    let mut config = match endpoint.protocol {
        Protocol::Http => return Ok(None),
        Protocol::Https => builder()?.with_root_certificates(roots(endpoint)?).with_no_client_auth(),
        Protocol::HttpsUnverified => builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(Arc::clone(&provider))))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// The authorities of the system, and those of the store.
fn roots(endpoint: &Endpoint) -> Result<RootCertStore> {
    static SYSTEM: OnceLock<RootCertStore> = OnceLock::new();
    let system = SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // A certificate of the system that cannot be read is one that nobody uses.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    let mut roots = system.clone();
    let Some(pem) = &endpoint.ca_cert else { return Ok(roots) };
    let refuse = |found: String| {
        let message = format!("the CA certificate of the store: expected certificates in PEM, found {found}");
        Error::new(ErrorKind::Refused, message)
    };
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| refuse(format!("text that cannot be read ({error})")))?;
        roots.add(certificate).map_err(|error| refuse(format!("one that cannot be used ({error})")))?;
        count += 1;
    }
    if count == 0 { Err(refuse("none".to_owned())) } else { Ok(roots) }
}

/// Why no TLS came about with `host`.
pub(super) fn failure(host: &str, server: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let refused = |message: String| Failure::of_line(ErrorKind::Refused, message);
    match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => refused(certificate(host, server, reason)),
        Some(rustls::Error::InvalidMessage(_)) => {
            refused(format!("{server} does not speak TLS at this port: correct the port, or use the protocol HTTP"))
        }
        Some(rustls::Error::AlertReceived(alert)) => refused(format!(
            "{server} ended the TLS handshake ({alert:?}): it needs TLS 1.2 or 1.3, and must know the host name {host}"
        )),
        Some(rustls::Error::PeerIncompatible(why)) => {
            refused(format!("{server} offers no TLS that is spoken here, 1.2 or 1.3 with modern ciphers ({why:?})"))
        }
        Some(other) => refused(format!("no TLS with {server}: {other}")),
        None => Failure::of_line(ErrorKind::Io, format!("{server} broke off the TLS handshake: {error}")),
    }
}

fn certificate(host: &str, server: &str, reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer => format!(
            "the certificate of {server} is signed by an authority that is not trusted here: give its certificate \
             (--ca-cert), or use HTTPS_UNVERIFIED where the network can be trusted"
        ),
        CertificateError::NotValidForName => format!(
            "the certificate of {server} is not for the name {host}: use the name that its subject carries, or have \
             one issued for this name"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the certificate of {server} is for {}, not for {host}: use a name that its subject carries, or have one \
             issued for this name",
            if presented.is_empty() { "no name at all".to_owned() } else { presented.join(", ") }
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {server} has expired: have it renewed; or the clock of this host is wrong")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of {server} is not valid yet: is the clock of this host right?")
        }
        other => format!(
            "the certificate of {server} does not do ({other}): have it issued as a server certificate of version 3, \
             or use HTTPS_UNVERIFIED where the network can be trusted"
        ),
    }
}

/// Trusts any certificate, as `HTTPS_UNVERIFIED` says, but only of a server that holds its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
