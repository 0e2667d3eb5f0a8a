//! The authority of a cluster: the key that signs the certificates of its hosts. It lies sealed in the coordinator; who
//! knows the join secret opens it and issues itself a certificate.

use braid_base::codec::{Reader, Writer};
use braid_base::crc::crc32c;
use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};
use braid_io::{chance, clock};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use super::identity::{Ca, Identity, any_name, host_name};

const DAY_S: i64 = 24 * 3600;
/// How long a cluster's authority is good for, seconds.
pub const CA_VALID_S: i64 = 3650 * DAY_S;
/// How long a host's certificate is good for, seconds.
pub const HOST_VALID_S: i64 = 365 * DAY_S;
/// Certificates begin so long ago, because clocks differ.
const BEGAN_S: i64 = DAY_S;

const MAGIC: &[u8; 8] = b"BRAIDSCA";
const FORMAT: u32 = 1;
const SALT: usize = 32;
/// Bytes before what is encrypted: magic, format, cluster, salt.
const HEAD: usize = 8 + 4 + 16 + SALT;
const KEY_INFO: &[u8] = b"braid sealed authority 1";
/// Bytes of a join secret. So many of the kernel's chance cannot be guessed, so deriving a key needs no slow function.
const SECRET: usize = 32;

/// What signs the certificates of a cluster's hosts.
pub struct Authority {
    cluster: Guid,
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

/// A new join secret: 64 hex digits.
pub fn join_secret() -> Result<String> {
    let mut bytes = [0; SECRET];
    chance::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Authority {
    /// A new one, for a new `cluster`.
    pub fn new(cluster: Guid) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = ca_params(cluster);
        (params.not_before, params.not_after) = valid(now_s() - BEGAN_S, now_s() + CA_VALID_S)?;
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        Ok(Self { cluster, key, certificate })
    }

    /// The cluster.
    pub fn cluster(&self) -> Guid {
        self.cluster
    }

    /// What the others need to know of it.
    pub fn ca(&self) -> Ca {
        Ca(self.certificate.clone())
    }

    /// A new key and certificate for `host`.
    pub fn issue(&self, host: HostId) -> Result<Identity> {
        self.issue_for(host, now_s() - BEGAN_S, now_s() + HOST_VALID_S)
    }

    /// As [`Self::issue`], good from `from_s` to `until_s`, seconds since 1970.
    pub fn issue_for(&self, host: HostId, from_s: i64, until_s: i64) -> Result<Identity> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let names = [host_name(host, self.cluster), any_name(self.cluster)];
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = common_name(format!("Braid host {host}"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A host answers some hosts and asks others.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = valid(from_s, until_s)?;
        let issuer = ca_params(self.cluster);
        let certificate = params.signed_by(&key, &Issuer::from_params(&issuer, &self.key)).map_err(failed)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Identity::new(vec![certificate.der().clone()], key, self.ca())
    }

    /// Key and certificate, encrypted under the join secret. `Invalid` unless that is one of [`join_secret`].
    pub fn seal(&self, join_secret: &str) -> Result<Vec<u8>> {
        let secret = secret_bytes(join_secret)?;
        let mut salt = [0; SALT];
        chance::fill(&mut salt)?;
        let mut head = Writer::with_capacity(HEAD);
        head.put_raw(MAGIC).put_u32(FORMAT).put_raw(&self.cluster.0).put_raw(&salt);
        let mut out = head.finish();
        let mut inner = Writer::with_capacity(1024);
        inner.put_bytes(self.key.serialized_der()).put_bytes(&self.certificate);
        let mut inner = inner.finish();
        let sealed = sealing_key(&secret, &salt).seal_in_place_append_tag(nonce(), Aad::from(&out), &mut inner);
        sealed.map_err(|_| Error::new(ErrorKind::Io, "the authority could not be encrypted"))?;
        out.extend_from_slice(&inner);
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// What [`Self::seal`] sealed. `NotPermitted`: the join secret is another one. `Corrupt`: the bytes are.
    pub fn open(bytes: &[u8], join_secret: &str) -> Result<Self> {
        let damaged = || Error::new(ErrorKind::Corrupt, "the sealed authority of the cluster is damaged");
        let secret = secret_bytes(join_secret)?;
        let (body, crc) = bytes.split_last_chunk().ok_or_else(damaged)?;
        let r = &mut Reader::new(body);
        if r.array()? != *MAGIC || crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(damaged());
        }
        match r.u32()? {
            FORMAT => {}
            other => {
                let words = format!("the sealed authority has format {other}, this release knows {FORMAT}");
                return Err(Error::new(ErrorKind::Unsupported, words));
            }
        }
        let (cluster, salt) = (Guid(r.array()?), r.array::<SALT>()?);
        let (head, sealed) = body.split_at(HEAD);
        let mut sealed = sealed.to_vec();
        // Whole, as its checksum says, so it was sealed with another secret.
        let wrong = |_| {
            let words = "the join secret is not this cluster's: compare it with the one that the set-up printed";
            Error::new(ErrorKind::NotPermitted, words)
        };
        let inner = sealing_key(&secret, &salt).open_in_place(nonce(), Aad::from(head), &mut sealed).map_err(wrong)?;
        let r = &mut Reader::new(inner);
        let (key, certificate) = (PrivatePkcs8KeyDer::from(r.bytes()?.to_vec()), r.bytes()?.to_vec());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).map_err(|_| damaged())?;
        Ok(Self { cluster, key, certificate: certificate.into() })
    }
}

/// What a certificate of the authority says, but for its times. Certificates that it issues are made from this alone, so
/// it must never change for a cluster.
fn ca_params(cluster: Guid) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("Braid cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn common_name(name: String) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn valid(from_s: i64, until_s: i64) -> Result<(OffsetDateTime, OffsetDateTime)> {
    let at = |s| OffsetDateTime::from_unix_timestamp(s).map_err(|_| Error::new(ErrorKind::Invalid, "no such time"));
    Ok((at(from_s)?, at(until_s)?))
}

fn now_s() -> i64 {
    clock::now().wall.sec
}

fn secret_bytes(text: &str) -> Result<[u8; SECRET]> {
    let digits = text.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let right = digits.len() == 2 * SECRET && digits.iter().all(u8::is_ascii_hexdigit);
    let bytes = right.then(|| digits.chunks(2).filter_map(byte).collect::<Vec<u8>>());
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        let words = format!("a join secret has {} hex digits, as the set-up printed it", 2 * SECRET);
        Error::new(ErrorKind::Invalid, words)
    })
}

fn sealing_key(secret: &[u8; SECRET], salt: &[u8; SALT]) -> LessSafeKey {
    let prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    let okm = prk.expand(&[KEY_INFO], &AES_256_GCM).expect("a key is far shorter than what HKDF can give");
    LessSafeKey::new(UnboundKey::from(okm))
}

/// Always zero: the salt makes a key for each sealing, and it seals once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn failed(error: rcgen::Error) -> Error {
    Error::new(ErrorKind::Io, format!("a certificate could not be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Authority, HEAD, SALT, join_secret};
    use crate::layout::{b, bytes};
    use crate::tls::{Identity, client_config, server_config};
    use braid_base::ErrorKind;
    use braid_base::crc::crc32c;
    use braid_base::ids::{Guid, HostId};

    const CLUSTER: Guid = Guid([7; 16]);

    fn kind(sealed: &[u8], secret: &str) -> Option<ErrorKind> {
        Authority::open(sealed, secret).err().map(|error| error.kind())
    }

    #[test]
    fn who_knows_the_join_secret_opens_what_was_sealed_and_nobody_else() {
        let (authority, secret) = (Authority::new(CLUSTER).expect("made"), join_secret().expect("chance"));
        let sealed = authority.seal(&secret).expect("sealed");
        let opened = Authority::open(&sealed, &format!(" {}\n", secret.to_uppercase())).expect("opened");
        assert_eq!((opened.cluster(), opened.ca()), (CLUSTER, authority.ca()));
        assert_eq!(kind(&sealed, &join_secret().expect("chance")), Some(ErrorKind::NotPermitted));
        for short in ["", "abc", &secret[1..], &format!("{}g", &secret[1..]), &format!("{secret}0")] {
            assert_eq!(authority.seal(short).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
            assert_eq!(kind(&sealed, short), Some(ErrorKind::Invalid));
        }
        assert_ne!(sealed, authority.seal(&secret).expect("sealed"), "never twice the same key");
    }

    #[test]
    fn damage_is_told_from_a_wrong_secret() {
        let (authority, secret) = (Authority::new(CLUSTER).expect("made"), join_secret().expect("chance"));
        let sealed = authority.seal(&secret).expect("sealed");
        for at in 0..sealed.len() {
            let mut wrong = sealed.clone();
            wrong[at] ^= 1;
            assert_eq!(kind(&wrong, &secret), Some(ErrorKind::Corrupt), "byte {at}");
            assert_eq!(kind(&sealed[..at], &secret), Some(ErrorKind::Corrupt), "cut at {at}");
        }
        // Somebody who changes it on purpose gets no further with a right checksum.
        let mut forged = sealed[..sealed.len() - 4].to_vec();
        forged[15] ^= 1;
        let crc = crc32c(&forged);
        forged.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(kind(&forged, &secret), Some(ErrorKind::NotPermitted));
        let mut newer = sealed[..sealed.len() - 4].to_vec();
        newer[8] = 2;
        let crc = crc32c(&newer);
        newer.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(kind(&newer, &secret), Some(ErrorKind::Unsupported));
    }

    #[test]
    fn it_lies_as_drawn() {
        let (authority, secret) = (Authority::new(CLUSTER).expect("made"), join_secret().expect("chance"));
        let sealed = authority.seal(&secret).expect("sealed");
        let (body, crc) = sealed.split_at(sealed.len() - 4);
        let fields = [
            b("cluster", &CLUSTER.0),
            b("salt", &body[HEAD - SALT..HEAD]),
            b("sealed", &body[HEAD..]),
            crate::layout::n("crc", u32::from_le_bytes(crc.try_into().expect("four bytes"))),
        ];
        assert_eq!(bytes("sealed-authority", &fields), sealed);
        let key = authority.key.serialized_der();
        let inner = [b("key", key), b("certificate", &authority.certificate)];
        assert_eq!(bytes("authority", &inner).len() + 16, body.len() - HEAD);
    }

    #[test]
    fn an_identity_goes_through_its_files() {
        let authority = Authority::new(CLUSTER).expect("made");
        let (one, other) = (authority.issue(HostId(3)).expect("issued"), authority.issue(HostId(4)).expect("issued"));
        let read = |certificate: &str, key: &str| Identity::from_pem(certificate, key, &one.ca().to_pem());
        let again = read(&one.certificate_pem(), &one.key_pem()).expect("readable");
        assert_eq!((again.host(), again.cluster(), again.ca()), (HostId(3), CLUSTER, one.ca()));
        assert_eq!((again.certificate_pem(), again.key_pem()), (one.certificate_pem(), one.key_pem()));
        for until_s in [super::now_s() + 1000, 2_524_608_000 - 1, 2_524_608_000, 4_000_000_000] {
            let lasting = authority.issue_for(HostId(3), 0, until_s).expect("issued");
            assert_eq!(lasting.expires_s(), until_s, "years are written in two ways, before 2050 and after");
        }
        server_config(&again).expect("of one piece");
        client_config(again.ca(), Some(&again)).expect("of one piece");
        assert!(!format!("{again:?}").contains("key"));
        let mixed = read(&one.certificate_pem(), &other.key_pem()).expect("readable");
        assert_eq!(server_config(&mixed).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
        for (certificate, key) in [("", one.key_pem()), (&one.certificate_pem(), String::new()), ("x", "y".into())] {
            assert_eq!(read(certificate, &key).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
        }
    }
}
