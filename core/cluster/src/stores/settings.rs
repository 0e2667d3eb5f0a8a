//! From what an administrator says to the specification of a store.

use std::ops::RangeInclusive;

use braid_base::store::{
    Azure, AzureAuth, CONCURRENCY_MAX, ERRORS_TIMEOUT_S, Endpoint, PREFETCH_MIB, Place, Protocol, S3, S3Auth, Secret,
    StoreSpec,
};
use braid_base::{Error, ErrorKind, Result};

use super::shown;
use crate::view::stores::{Kind, ObjectStoreSettings};

/// The region of buckets that have none, or whose store does not care.
const REGION: &str = "us-east-1";

/// A new store.
pub(super) fn new(kind: Kind, said: &ObjectStoreSettings) -> Result<StoreSpec> {
    let endpoint = Endpoint::default();
    let mut spec = StoreSpec::at(match kind {
        Kind::S3 => Place::S3(S3 {
            endpoint,
            bucket: String::new(),
            prefix: String::new(),
            region: REGION.to_owned(),
            auth: S3Auth::default(),
            access_key_id: String::new(),
            secret_key: Secret::default(),
            storage_class: None,
            upload_tags: false,
        }),
        Kind::Azure => Place::Azure(Azure {
            // The public cloud is not to be reached in the clear.
            endpoint: Endpoint {
                protocol: if said.hostname.is_none() { Protocol::Https } else { Protocol::Http },
                ..endpoint
            },
            account: String::new(),
            container: String::new(),
            prefix: String::new(),
            auth: AzureAuth::Key(Secret::default()),
            storage_class: None,
        }),
        Kind::Dir => Place::Dir { path: String::new() },
    });
    change(&mut spec, said)?;
    Ok(spec)
}

/// Sets what was said, leaves the rest, and checks the whole.
pub(super) fn change(spec: &mut StoreSpec, said: &ObjectStoreSettings) -> Result<()> {
    foreign(shown::kind(&spec.place), said)?;
    match &mut spec.place {
        Place::S3(s3) => {
            endpoint(&mut s3.endpoint, said);
            place(&mut s3.bucket, &mut s3.prefix, said);
            set(&mut s3.region, &said.region);
            set(&mut s3.auth, &said.auth_method);
            set(&mut s3.access_key_id, &said.access_key_id);
            set(&mut s3.secret_key, &said.secret_key);
            set(&mut s3.upload_tags, &said.upload_tags);
            class(&mut s3.storage_class, said);
        }
        Place::Azure(azure) => {
            endpoint(&mut azure.endpoint, said);
            place(&mut azure.container, &mut azure.prefix, said);
            set(&mut azure.account, &said.account);
            class(&mut azure.storage_class, said);
            match (&said.secret_key, &said.sas) {
                (Some(_), Some(_)) => {
                    return Err(wrong("either a key or a shared access signature expected, found both"));
                }
                (Some(key), None) => azure.auth = AzureAuth::Key(key.clone()),
                (None, Some(sas)) => azure.auth = AzureAuth::Sas(sas.clone()),
                (None, None) => {}
            }
        }
        Place::Dir { path } => set(path, &said.path),
    }
    let bandwidth = &mut spec.bandwidth;
    for (limit, said) in [
        (&mut bandwidth.all, said.bytes_per_s),
        (&mut bandwidth.upload, said.upload_bytes_per_s),
        (&mut bandwidth.download, said.download_bytes_per_s),
        (&mut bandwidth.remove, said.remove_bytes_per_s),
    ] {
        if let Some(bytes) = said {
            *limit = Some(bytes).filter(|bytes| *bytes > 0);
        }
    }
    set(&mut spec.concurrency.uploads, &said.max_concurrent_uploads);
    set(&mut spec.concurrency.downloads, &said.max_concurrent_downloads);
    set(&mut spec.concurrency.removals, &said.max_concurrent_removals);
    set(&mut spec.errors_timeout_s, &said.errors_timeout_s);
    set(&mut spec.prefetch_mib, &said.prefetch_mib);
    check(spec)
}

fn set<T: Clone>(field: &mut T, said: &Option<T>) {
    if let Some(said) = said {
        field.clone_from(said);
    }
}

fn endpoint(endpoint: &mut Endpoint, said: &ObjectStoreSettings) {
    set(&mut endpoint.hostname, &said.hostname);
    set(&mut endpoint.protocol, &said.protocol);
    if let Some(port) = said.port {
        endpoint.port = Some(port).filter(|port| *port != 0);
    }
    if let Some(pem) = &said.ca_cert {
        endpoint.ca_cert = Some(pem.clone()).filter(|pem| !pem.is_empty());
    }
}

/// An empty one is the bucket's.
fn class(class: &mut Option<String>, said: &ObjectStoreSettings) {
    if let Some(said) = &said.storage_class {
        *class = Some(said.clone()).filter(|said| !said.is_empty());
    }
}

/// `BUCKET` or `BUCKET/PREFIX`.
fn place(bucket: &mut String, prefix: &mut String, said: &ObjectStoreSettings) {
    if let Some(text) = &said.bucket {
        let (before, behind) = text.split_once('/').unwrap_or((text, ""));
        (*bucket, *prefix) = (before.to_owned(), behind.trim_matches('/').to_owned());
    }
}

/// Refuses what makes no sense for a store of this kind.
fn foreign(kind: Kind, said: &ObjectStoreSettings) -> Result<()> {
    let of_servers = [
        ("hostname", said.hostname.is_some()),
        ("port", said.port.is_some()),
        ("protocol", said.protocol.is_some()),
        ("ca_cert", said.ca_cert.is_some()),
        ("bucket", said.bucket.is_some()),
        ("secret_key", said.secret_key.is_some()),
        ("storage_class", said.storage_class.is_some()),
    ];
    let of_s3 = [
        ("region", said.region.is_some()),
        ("auth_method", said.auth_method.is_some()),
        ("access_key_id", said.access_key_id.is_some()),
        ("upload_tags", said.upload_tags.is_some()),
    ];
    let of_azure = [("account", said.account.is_some()), ("sas", said.sas.is_some())];
    let of_dir = [("path", said.path.is_some())];
    let others: [&[(&str, bool)]; 3] = match kind {
        Kind::S3 => [&of_azure, &of_dir, &[]],
        Kind::Azure => [&of_s3, &of_dir, &[]],
        Kind::Dir => [&of_servers, &of_s3, &of_azure],
    };
    match others.into_iter().flatten().find(|(_, was_said)| *was_said) {
        Some((name, _)) => Err(wrong(format!("{name}: a store of kind {} has no such setting", kind.word()))),
        None => Ok(()),
    }
}

fn check(spec: &StoreSpec) -> Result<()> {
    match &spec.place {
        Place::S3(s3) => {
            there("a hostname", &s3.endpoint.hostname)?;
            there("a bucket", &s3.bucket)?;
            there("a region", &s3.region)?;
            if s3.auth != S3Auth::None && (s3.access_key_id.is_empty() || s3.secret_key.0.is_empty()) {
                let words = "both halves of a key expected (--access-key-id and --secret-key-file), or --auth-method \
                             None for a bucket that anyone may write to";
                return Err(wrong(words));
            }
        }
        Place::Azure(azure) => {
            there("an account", &azure.account)?;
            there("a container", &azure.container)?;
            let (AzureAuth::Key(secret) | AzureAuth::Sas(secret)) = &azure.auth;
            there("a key or a shared access signature", &secret.0)?;
        }
        Place::Dir { path } => {
            if !path.starts_with('/') {
                return Err(wrong(format!("an absolute path expected, found {path:?}")));
            }
        }
    }
    let concurrency = spec.concurrency;
    for (what, count) in [
        ("concurrent uploads", concurrency.uploads),
        ("concurrent downloads", concurrency.downloads),
        ("concurrent removals", concurrency.removals),
    ] {
        within(what, count.into(), 1..=CONCURRENCY_MAX.into(), "")?;
    }
    within("errors timeout", spec.errors_timeout_s, ERRORS_TIMEOUT_S.0..=ERRORS_TIMEOUT_S.1, " s")?;
    within("prefetch", spec.prefetch_mib, 0..=PREFETCH_MIB.0, " MiB")
}

fn there(what: &str, text: &str) -> Result<()> {
    if text.trim().is_empty() { Err(wrong(format!("{what} expected, found none"))) } else { Ok(()) }
}

fn within(what: &str, number: u32, range: RangeInclusive<u32>, unit: &str) -> Result<()> {
    if range.contains(&number) {
        return Ok(());
    }
    Err(wrong(format!("{what}: {} to {}{unit} expected, found {number}{unit}", range.start(), range.end())))
}

fn wrong(words: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, words.into())
}
