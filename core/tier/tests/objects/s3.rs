//! S3 against a server of it that this project did not write, in this process: it checks signatures and checksums.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_base::ErrorKind;
use braid_base::ids::{Guid, HostId};
use braid_base::store::{Place, Protocol, S3, S3Auth, Secret, StoreSpec};
use braid_tier::{LIST_MAX, open, verify};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{SECRET, https, s3_at};

/// A server with a bucket `cold`, while it lives.
struct Server {
    port: u16,
    /// PEM of the authority that signed the server's certificate.
    ca_cert: Option<String>,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn clear() -> Self {
        Self::start(None).await
    }

    /// With a certificate for `name`, of an authority of its own.
    async fn tls(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let mut server = Self::start(Some(TlsAcceptor::from(Arc::new(config)))).await;
        let text = STANDARD.encode(authority.der());
        server.ca_cert = Some(format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"));
        server
    }

    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cold")).unwrap();
        let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single("AKIATEST", SECRET));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (service, tls) = (service.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, service).await,
                        // A client that does not trust the certificate goes away.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, service).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, ca_cert: None, _folder: folder }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, service: S3Service) {
    // Connections end in many ways; what matters is what the client makes of it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn change(
    mut spec: StoreSpec,
    change: impl Fn(&mut S3Auth, &mut String, &mut String, &mut Secret, &mut String),
) -> StoreSpec {
    match &mut spec.place {
        Place::S3(S3 { auth, access_key_id, prefix, secret_key, bucket, .. }) => {
            change(auth, access_key_id, prefix, secret_key, bucket)
        }
        other => panic!("not S3: {other:?}"),
    }
    spec
}

/// All that can be asked of a store.
async fn round(spec: &StoreSpec) {
    let store = open(spec).unwrap();
    let parts: Vec<Bytes> = (0..3_u8).map(|n| Bytes::from(vec![n; 1 << 20])).collect();
    let whole: Vec<u8> = parts.concat();
    store.put("B_541/big", parts).await.unwrap();
    assert_eq!(store.get("B_541/big", None).await.unwrap(), whole);
    let middle = (1 << 20) - 10..(1 << 20) + 10;
    assert_eq!(store.get("B_541/big", Some(middle)).await.unwrap(), whole[(1 << 20) - 10..(1 << 20) + 10]);
    assert_eq!(store.get("B_541/big", Some(5..5)).await.unwrap().len(), 0);
    let end = 3 << 20;
    assert_eq!(store.get("B_541/big", Some(end - 1..end)).await.unwrap(), vec![2]);
    for range in [end - 1..end + 1, end..end + 1] {
        assert_eq!(store.get("B_541/big", Some(range)).await.unwrap_err().kind(), ErrorKind::Range);
    }
    assert_eq!(store.size("B_541/big").await.unwrap(), end);
    store.put("B_541/empty", vec![]).await.unwrap();
    assert_eq!(store.get("B_541/empty", None).await.unwrap().len(), 0);
    let listed: Vec<_> = store.list("B_5", None).await.unwrap().into_iter().map(|one| (one.key, one.size)).collect();
    assert_eq!(listed, [("B_541/big".to_owned(), end), ("B_541/empty".to_owned(), 0)]);
    assert_eq!(store.list("B_541/big", Some("B_541/big")).await.unwrap(), []);
    for _ in 0..2 {
        store.delete("B_541/big").await.unwrap();
    }
    assert_eq!(store.get("B_541/big", None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.size("B_541/big").await.unwrap_err().kind(), ErrorKind::NotFound);
    let steps = verify(spec, Guid([9; 16]), HostId(1)).await.unwrap();
    assert_eq!(steps.len(), 4);
    assert_eq!(store.list("09090909", None).await.unwrap(), [], "nothing is left of the trial");
}

#[tokio::test]
async fn signed_in_both_ways_with_and_without_a_prefix() {
    let server = Server::clear().await;
    for auth in [S3Auth::AWSSignature4, S3Auth::AWSSignature2] {
        for prefix in ["", "top/level"] {
            round(&change(s3_at(server.port), |how, _, before, _, _| {
                *how = auth;
                prefix.clone_into(before);
            }))
            .await;
        }
    }
}

#[tokio::test]
async fn in_tls_with_an_authority_of_its_own() {
    let server = Server::tls("127.0.0.1").await;
    round(&https(s3_at(server.port), Protocol::Https, server.ca_cert.clone())).await;
    round(&https(s3_at(server.port), Protocol::HttpsUnverified, None)).await;
    let unknown = https(s3_at(server.port), Protocol::Https, None);
    let error = verify(&unknown, Guid([9; 16]), HostId(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("authority that is not trusted") && error.message().contains("step 1"), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_named() {
    let server = Server::tls("store.example.org").await;
    let spec = https(s3_at(server.port), Protocol::Https, server.ca_cert.clone());
    let error = open(&spec).unwrap().get("a", None).await.unwrap_err();
    assert!(error.message().contains("store.example.org") && error.message().contains("not for 127.0.0.1"), "{error}");
}

#[tokio::test]
async fn wrong_keys_are_told_apart() {
    let server = Server::clear().await;
    for auth in [S3Auth::AWSSignature4, S3Auth::AWSSignature2] {
        let wrong_secret = change(s3_at(server.port), |how, _, _, secret, _| {
            *how = auth;
            secret.0 = "another".to_owned();
        });
        let error = verify(&wrong_secret, Guid([9; 16]), HostId(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AccessDenied);
        assert!(error.message().contains("signature: the secret is wrong"), "{error}");
        assert!(!error.message().contains("another"), "{error}");
    }
    let wrong_key = change(s3_at(server.port), |_, key, _, _, _| "AKIANONE".clone_into(key));
    let error = verify(&wrong_key, Guid([9; 16]), HostId(1)).await.unwrap_err();
    assert!(error.message().contains("access key id"), "{error}");
}

#[tokio::test]
async fn long_listings_come_in_pages() {
    let server = Server::clear().await;
    let store = open(&change(s3_at(server.port), |_, _, prefix, _, _| "pre".clone_into(prefix))).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..LIST_MAX + 100 {
        tasks.spawn(store.put(&format!("d{}/{n:05}", n % 7), vec![Bytes::from_static(b"x")]));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    let first = store.list("", None).await.unwrap();
    assert_eq!(first.len(), LIST_MAX);
    let rest = store.list("", Some(&first[LIST_MAX - 1].key)).await.unwrap();
    assert_eq!(rest.len(), 100);
    let all: Vec<&String> = first.iter().chain(&rest).map(|one| &one.key).collect();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "in order, without the prefix of the store");
    assert_eq!(all[0], "d0/00000");
}
