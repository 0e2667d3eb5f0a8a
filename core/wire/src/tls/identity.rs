//! Who a host is: its certificate, its key, and the authority that vouches for it. As files they are PEM.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use time::{Date, Month, OffsetDateTime, Time};

use super::config::unfit;
use super::shown::Shown;

/// The certificate of a cluster's authority: what clients and hosts trust.
#[derive(Clone, PartialEq, Eq)]
pub struct Ca(pub(super) CertificateDer<'static>);

/// A host's certificate and key, and who vouches for it.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivatePkcs8KeyDer<'static>,
    pub(super) ca: Ca,
    host: HostId,
    cluster: Guid,
    begins_s: i64,
    /// What connections show that were set up with it, or with a clone.
    shown: Arc<Shown>,
}

impl Ca {
    /// Reads what [`Self::to_pem`] wrote. `Invalid` if it is no certificate.
    pub fn from_pem(text: &str) -> Result<Self> {
        let wrong = |_| invalid("the certificate of the authority is not a certificate in PEM");
        CertificateDer::from_pem_slice(text.as_bytes()).map(Self).map_err(wrong)
    }

    /// As text, for a file that anybody may read.
    pub fn to_pem(&self) -> String {
        pem("CERTIFICATE", &self.0)
    }
}

impl Identity {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>, key: PrivatePkcs8KeyDer<'static>, ca: Ca) -> Result<Self> {
        let first = chain.first().ok_or_else(|| invalid("there is no certificate in the host's PEM file"))?;
        let (host, cluster) = named(first).ok_or_else(|| invalid("the certificate names no host of a cluster"))?;
        let (begins_s, expires_s) =
            validity_s(first).ok_or_else(|| invalid("the certificate does not say how long it lasts"))?;
        Ok(Self { chain, key, ca, host, cluster, begins_s, shown: Arc::new(Shown::new(expires_s)) })
    }

    /// Reads certificate, key and the authority's certificate. `Invalid` if one of them is something else.
    pub fn from_pem(certificate: &str, key: &str, ca: &str) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<std::result::Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| invalid("the host's certificate is not PEM"))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| invalid("the host's key is not a PKCS #8 key in PEM"))?;
        Self::new(chain, key, Ca::from_pem(ca)?)
    }

    /// The certificate as text.
    pub fn certificate_pem(&self) -> String {
        self.chain.iter().map(|one| pem("CERTIFICATE", one)).collect()
    }

    /// The key as text, for a file that nobody else may read.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_pkcs8_der())
    }

    /// Who vouches for it.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// The host it names.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The cluster it names.
    pub fn cluster(&self) -> Guid {
        self.cluster
    }

    /// From when on this one is good, seconds since 1970.
    pub fn begins_s(&self) -> i64 {
        self.begins_s
    }

    /// When what is shown must have been replaced, seconds since 1970.
    pub fn expires_s(&self) -> i64 {
        self.shown.expires_s()
    }

    /// New connections of all that was set up with this identity show `newer`. Errors: `Invalid` if that is another host,
    /// or its parts do not belong together; then nothing changes.
    pub fn renew(&self, newer: &Self) -> Result<()> {
        if (newer.host, newer.cluster, &newer.ca) != (self.host, self.cluster, &self.ca) {
            return Err(invalid("a newer certificate is of the same host, cluster and authority"));
        }
        self.shown.set(newer.certified()?, newer.expires_s());
        Ok(())
    }

    /// What connections show. Errors: `Invalid` if the parts do not belong together.
    pub(super) fn shown(&self) -> Result<Arc<Shown>> {
        if self.shown.key().is_none() {
            self.shown.set(self.certified()?, self.shown.expires_s());
        }
        Ok(Arc::clone(&self.shown))
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>> {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        CertifiedKey::from_der(self.chain.clone(), key, &default_provider()).map(Arc::new).map_err(unfit)
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        let (chain, key, ca, begins_s) = (self.chain.clone(), self.key.clone_key(), self.ca.clone(), self.begins_s);
        Self { chain, key, ca, host: self.host, cluster: self.cluster, begins_s, shown: Arc::clone(&self.shown) }
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ca({} bytes)", self.0.len())
    }
}

/// Without the key: it has no place in a log.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", host_name(self.host, self.cluster))
    }
}

/// The name in a host's certificate. Not its address: that may change.
pub(super) fn host_name(host: HostId, cluster: Guid) -> String {
    format!("h{}.{}", host.0, domain(cluster))
}

/// The name that all hosts of `cluster` have.
pub(super) fn any_name(cluster: Guid) -> String {
    format!("any.{}", domain(cluster))
}

fn domain(cluster: Guid) -> String {
    let hex: String = cluster.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.braid")
}

/// The host and cluster that a certificate names. Says nothing of who issued it.
pub(super) fn named(certificate: &CertificateDer<'_>) -> Option<(HostId, Guid)> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().find_map(|name| {
        let mut labels = name.split('.');
        let host = HostId(labels.next()?.strip_prefix('h')?.parse().ok()?);
        let cluster = Guid::parse(labels.next()?)?;
        (name == host_name(host, cluster)).then_some((host, cluster))
    })
}

/// The begin and end of a certificate's validity. rustls checks it and does not tell it.
fn validity_s(certificate: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    // Version, serial number, algorithm, issuer.
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (_, validity, _) = element(fields)?;
    let (tag, text, rest) = element(validity)?;
    let (end_tag, end_text, _) = element(rest)?;
    Some((moment_s(tag, text)?, moment_s(end_tag, end_text)?))
}

fn moment_s(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    // `UTCTime` has two digits for the years up to 2049, `GeneralizedTime` four for the others.
    let (century, text) = match tag {
        0x17 => (20, text),
        _ => (text.get(..2)?.parse().ok()?, text.get(2..)?),
    };
    let two = |at: usize| text.get(at..at + 2)?.parse::<u8>().ok();
    let month = Month::try_from(two(2)?).ok()?;
    let day = Date::from_calendar_date(century * 100 + i32::from(two(0)?), month, two(4)?).ok()?;
    let moment = Time::from_hms(two(6)?, two(8)?, two(10)?).ok()?;
    Some(OffsetDateTime::new_utc(day, moment).unix_timestamp())
}

/// The first element of DER: tag, content, what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, short], rest) = bytes.split_first_chunk()?;
    // From 128 on the byte counts the bytes of the length.
    let (len, rest) = if short < 0x80 {
        (usize::from(short), rest)
    } else {
        let (len, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
        (len.iter().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(*byte)))?, rest)
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn invalid(words: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, words)
}
