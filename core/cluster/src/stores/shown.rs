//! A store as an administrator sees it: everything but its secrets.

use braid_base::store::{AzureAuth, Endpoint, Place, Protocol, S3Auth, Secret, StoreSpec};

use crate::facts::{Filesystem, ObjectStore};
use crate::view::stores::{Kind, LinkView, ObjectStoreView};

/// The view of `store`, which serves some of `filesystems`. What hosts see of it is unknown here.
pub fn view<'a>(store: &ObjectStore, filesystems: impl IntoIterator<Item = &'a Filesystem>) -> ObjectStoreView {
    let users = filesystems.into_iter().filter(|fs| fs.attachment(store.id).is_some());
    let StoreSpec { place, bandwidth, concurrency, errors_timeout_s, prefetch_mib } = &store.spec;
    let unknown = || LinkView { state: "unknown".to_owned(), ..LinkView::default() };
    let nothing = Endpoint::default();
    let mut view = ObjectStoreView {
        id: store.id.0,
        name: store.name.clone(),
        kind: kind(place),
        address: String::new(),
        bucket: String::new(),
        protocol: String::new(),
        region: String::new(),
        auth_method: String::new(),
        account: String::new(),
        access_key_id: String::new(),
        secret_key: String::new(),
        ca_cert: false,
        storage_class: None,
        upload_tags: false,
        bytes_per_s: bandwidth.all,
        upload_bytes_per_s: bandwidth.upload,
        download_bytes_per_s: bandwidth.download,
        remove_bytes_per_s: bandwidth.remove,
        max_concurrent_uploads: concurrency.uploads,
        max_concurrent_downloads: concurrency.downloads,
        max_concurrent_removals: concurrency.removals,
        errors_timeout_s: *errors_timeout_s,
        prefetch_mib: *prefetch_mib,
        upload: unknown(),
        download: unknown(),
        remove: unknown(),
        full: false,
        silent_hosts: Vec::new(),
        filesystems: users.map(|fs| fs.name.clone()).collect(),
    };
    let endpoint = match place {
        Place::S3(s3) => {
            view.bucket = joined(&s3.bucket, &s3.prefix);
            view.region.clone_from(&s3.region);
            view.auth_method = auth(s3.auth).to_owned();
            view.access_key_id.clone_from(&s3.access_key_id);
            view.secret_key = hidden(&s3.secret_key);
            view.storage_class.clone_from(&s3.storage_class);
            view.upload_tags = s3.upload_tags;
            &s3.endpoint
        }
        Place::Azure(azure) => {
            view.bucket = joined(&azure.container, &azure.prefix);
            view.account.clone_from(&azure.account);
            let (method, secret) = match &azure.auth {
                AzureAuth::Key(key) => ("key", key),
                AzureAuth::Sas(sas) => ("sas", sas),
            };
            view.storage_class.clone_from(&azure.storage_class);
            (view.auth_method, view.secret_key) = (method.to_owned(), hidden(secret));
            &azure.endpoint
        }
        Place::Dir { path } => {
            view.bucket.clone_from(path);
            &nothing
        }
    };
    if view.kind != Kind::Dir {
        view.protocol = protocol(endpoint.protocol).to_owned();
    }
    view.ca_cert = endpoint.ca_cert.is_some();
    view.address = endpoint.port.map_or(endpoint.hostname.clone(), |port| format!("{}:{port}", endpoint.hostname));
    view
}

pub(super) fn kind(place: &Place) -> Kind {
    match place {
        Place::S3(_) => Kind::S3,
        Place::Azure(_) => Kind::Azure,
        Place::Dir { .. } => Kind::Dir,
    }
}

fn joined(bucket: &str, prefix: &str) -> String {
    if prefix.is_empty() { bucket.to_owned() } else { format!("{bucket}/{prefix}") }
}

fn hidden(secret: &Secret) -> String {
    if secret.0.is_empty() { String::new() } else { "***".to_owned() }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "HTTP",
        Protocol::Https => "HTTPS",
        Protocol::HttpsUnverified => "HTTPS_UNVERIFIED",
    }
}

fn auth(auth: S3Auth) -> &'static str {
    match auth {
        S3Auth::None => "None",
        S3Auth::AWSSignature2 => "AWSSignature2",
        S3Auth::AWSSignature4 => "AWSSignature4",
    }
}
