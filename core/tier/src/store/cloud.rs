//! S3 and Azure Blob as stores: the client of both, without its own retries, and its errors in Braid's words.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_base::limits::BLOCK;
use braid_base::store::{Azure, AzureAuth, Endpoint, Protocol, S3, S3Auth};
use braid_base::{Error, ErrorKind, Result};
use braid_io::background;
use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt as _, PutOptions, PutPayload, RetryConfig, TagSet,
};

use super::failure::{Failure, Target};
use super::line::Dialer;
use super::removal::Removal;
use super::sign2::Signer;
use super::wire::{Crc64, Echoed, Wire};
use super::{BoxFuture, LIST_MAX, Listed, Store, probe, tls};
use crate::blob::Head;

/// From this many bytes on, checksums are computed beside the threads that serve requests.
const COMPUTE_BYTES_MIN: usize = 256 * 1024;

/// A bucket or container.
#[derive(Clone)]
pub(super) struct Cloud {
    objects: Arc<dyn ObjectStore>,
    lists: Arc<dyn PaginatedListStore>,
    prefix: Arc<str>,
    target: Arc<Target>,
    attributes: Attributes,
    /// Objects carry tags.
    tags: bool,
    /// Azure alone: it sends a checksum back unasked, and removes in a way of its own.
    azure: Option<Arc<Removal>>,
}

impl Cloud {
    /// A bucket; a silent connection ends after `patience` or earlier. Errors: `Refused`: what is missing or cannot be.
    pub fn s3(of: &S3, patience: Duration) -> Result<Self> {
        need("host name", &of.endpoint.hostname)?;
        need("bucket", &of.bucket)?;
        if of.auth != S3Auth::None {
            need("access key id", &of.access_key_id)?;
            need("secret key", &of.secret_key.0)?;
        }
        let server = server(&of.endpoint);
        let target = Target { noun: "bucket", name: of.bucket.clone(), server: server.clone() };
        let signer = (of.auth == S3Auth::AWSSignature2)
            .then(|| Signer { access_key_id: of.access_key_id.clone(), secret_key: of.secret_key.clone() });
        let tls = tls::config(&of.endpoint)?;
        // In the clear the signature covers the bytes, so that nobody changes them on the way; TLS does that itself.
        let checksum = if tls.is_some() { Checksum::CRC64NVME } else { Checksum::SHA256 };
        let wire = Wire::new(Dialer::new(tls.clone(), &server, patience), signer, target.clone());
        let mut builder = AmazonS3Builder::new()
            .with_endpoint(&server)
            .with_allow_http(true)
            .with_bucket_name(&of.bucket)
            .with_region(if of.region.is_empty() { "us-east-1" } else { &of.region })
            .with_virtual_hosted_style_request(false)
            .with_unsigned_payload(tls.is_some())
            .with_checksum_algorithm(checksum)
            .with_disable_bulk_delete(true)
            .with_skip_signature(of.auth != S3Auth::AWSSignature4)
            .with_retry(once())
            .with_http_connector(wire);
        if of.auth == S3Auth::AWSSignature4 {
            builder = builder.with_access_key_id(&of.access_key_id).with_secret_access_key(&of.secret_key.0);
        }
        let client = Arc::new(builder.build().map_err(|error| unusable(&target, &error))?);
        let mut attributes = Attributes::new();
        if let Some(class) = &of.storage_class {
            attributes.insert(Attribute::StorageClass, class.clone().into());
        }
        Ok(Self { tags: of.upload_tags, ..Self::over(client, &of.prefix, target, attributes, None) })
    }

    /// A container; likewise. Errors: `Refused`: what is missing or cannot be.
    pub fn azure(of: &Azure, patience: Duration) -> Result<Self> {
        need("account", &of.account)?;
        need("container", &of.container)?;
        match &of.auth {
            AzureAuth::Key(key) => need("key", &key.0)?,
            AzureAuth::Sas(sas) => need("shared access signature", &sas.0)?,
        }
        let public = of.endpoint.hostname.is_empty();
        let endpoint = if public {
            let hostname = format!("{}.blob.core.windows.net", of.account);
            // The public cloud is spoken to in TLS, whatever the protocol was left at.
            let protocol = if of.endpoint.protocol == Protocol::Http { Protocol::Https } else { of.endpoint.protocol };
            Endpoint { hostname, protocol, ..of.endpoint.clone() }
        } else {
            of.endpoint.clone()
        };
        let server = server(&endpoint);
        let target = Target { noun: "container", name: of.container.clone(), server: server.clone() };
        // A server that does not carry the account in its name (an emulator, a gateway) has it in the path.
        let named = endpoint.hostname.split('.').next() == Some(&of.account);
        let base = if named { server.clone() } else { format!("{server}/{}", of.account) };
        let wire = Wire::new(Dialer::new(tls::config(&endpoint)?, &server, patience), None, target.clone());
        let removal = Removal::new(wire.clone(), &of.account, format!("{base}/{}", of.container), &of.auth)?;
        let builder = MicrosoftAzureBuilder::new()
            .with_account(&of.account)
            .with_container_name(&of.container)
            .with_endpoint(base)
            .with_allow_http(true)
            .with_retry(once())
            .with_http_connector(wire);
        let builder = match &of.auth {
            AzureAuth::Key(key) => builder.with_access_key(&key.0),
            AzureAuth::Sas(sas) => builder.with_config(AzureConfigKey::SasKey, &sas.0),
        };
        let client = Arc::new(builder.build().map_err(|error| unusable(&target, &error))?);
        let mut attributes = Attributes::new();
        if let Some(tier) = &of.storage_class {
            attributes.insert(Attribute::StorageClass, tier.clone().into());
        }
        Ok(Self::over(client, &of.prefix, target, attributes, Some(Arc::new(removal))))
    }

    fn over<T>(
        client: Arc<T>,
        prefix: &str,
        target: Target,
        attributes: Attributes,
        azure: Option<Arc<Removal>>,
    ) -> Self
    where
        T: ObjectStore + PaginatedListStore,
    {
        let (objects, lists) = (Arc::clone(&client) as Arc<dyn ObjectStore>, client as Arc<dyn PaginatedListStore>);
        let (prefix, target, tags) = (prefix.trim_matches('/').into(), Arc::new(target), false);
        Self { objects, lists, prefix, target, attributes, tags, azure }
    }

    fn key(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) }
    }

    fn path(&self, key: &str) -> Result<Path> {
        Path::parse(self.key(key))
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("'{key}' is no key of an object: {error}")))
    }

    /// What the client says, in Braid's words.
    fn failure(&self, what: &str, error: &object_store::Error) -> Failure {
        let found = match Failure::inside(error) {
            Some(found) => found.clone(),
            None => self.unclear(what, error),
        };
        probe::note(&found);
        found
    }

    /// The client itself was not content with an answer.
    fn unclear(&self, what: &str, error: &object_store::Error) -> Failure {
        let mut bottom: &dyn std::error::Error = error;
        while let Some(deeper) = bottom.source() {
            bottom = deeper;
        }
        let message = format!("{what}: the answer of {} cannot be understood ({bottom})", self.target.server);
        Failure::of_line(ErrorKind::Io, message)
    }

    async fn put_now(self, key: String, parts: Vec<Bytes>) -> Result<()> {
        let (path, what) = (self.path(&key)?, format!("PUT {}", self.key(&key)));
        let length: usize = parts.iter().map(Bytes::len).sum();
        let this = self.clone();
        let work = async move {
            let mut options = PutOptions { attributes: this.attributes.clone(), ..PutOptions::default() };
            if this.tags {
                options.tags = tags(&parts);
            }
            if this.azure.is_some() {
                options.extensions.insert(Crc64::of(&parts));
            }
            this.objects.put_opts(&path, PutPayload::from_iter(parts), options).await
        };
        let put = if length < COMPUTE_BYTES_MIN { work.await } else { beside(work).await? };
        let put = put.map_err(|error| self.failure(&what, &error).error)?;
        if put.extensions.get::<Echoed>().is_none() {
            self.compare_size(key, length as u64).await.map_err(|error| error.within(what))?;
        }
        Ok(())
    }

    /// A store that does not say what it got is asked how much it has.
    async fn compare_size(&self, key: String, sent: u64) -> Result<()> {
        let found = self.clone().size_now(key).await?;
        if found == sent {
            return Ok(());
        }
        let message = format!("{sent} bytes were sent, {} has {found} of them: send again", self.target);
        Err(Error::new(ErrorKind::Io, message))
    }

    async fn get_now(self, key: String, range: Option<Range<u64>>) -> Result<Bytes> {
        let (path, what) = (self.path(&key)?, format!("GET {}", self.key(&key)));
        let wanted = match &range {
            Some(range) if range.start > range.end => {
                return Err(Error::new(ErrorKind::Invalid, format!("{what}: {range:?} is no range of bytes")));
            }
            Some(range) if range.is_empty() => return Ok(Bytes::new()),
            Some(range) => Some(range.end - range.start),
            None => None,
        };
        let end = range.as_ref().map(|range| range.end);
        let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
        let got = self.objects.get_opts(&path, options).await.map_err(|error| self.failure(&what, &error).error)?;
        let size = got.meta.size;
        let bytes = got.bytes().await.map_err(|error| self.failure(&what, &error).error)?;
        let found = bytes.len() as u64;
        match wanted {
            // The object is long enough, the answer is not: that says nothing of the object, and may pass.
            Some(wanted) if found < wanted && end.is_some_and(|end| end <= size) => {
                let message = format!("{what}: {} sent {found} of the {wanted} bytes", self.target.server);
                Err(Error::new(ErrorKind::Io, message))
            }
            Some(wanted) if found < wanted => {
                let message =
                    format!("{what}: the object ends after {size} bytes, before the range that was asked for");
                Err(Error::new(ErrorKind::Range, message))
            }
            None if found != size => {
                let message = format!("{what}: {} announced {size} bytes and sent {found}", self.target.server);
                Err(Error::new(ErrorKind::Io, message))
            }
            _ => Ok(bytes),
        }
    }

    async fn size_now(self, key: String) -> Result<u64> {
        let (path, what) = (self.path(&key)?, format!("HEAD {}", self.key(&key)));
        let meta = self.objects.head(&path).await.map_err(|error| self.failure(&what, &error).error)?;
        Ok(meta.size)
    }

    async fn delete_now(self, key: String) -> Result<()> {
        let (path, what) = (self.path(&key)?, format!("DELETE {}", self.key(&key)));
        let done = match &self.azure {
            Some(removal) => removal.remove(path.as_ref()).await.inspect_err(probe::note),
            None => self.objects.delete(&path).await.map_err(|error| self.failure(&what, &error)),
        };
        let Err(failure) = done else { return Ok(()) };
        // A missing object is as good as a removed one; a missing bucket is not.
        let missing = failure.answer.as_ref().is_some_and(|answer| answer.status == 404 && !answer.names_no_bucket());
        if missing { Ok(()) } else { Err(failure.error) }
    }

    async fn list_now(self, prefix: String, after: Option<String>) -> Result<Vec<Listed>> {
        let what = format!("LIST {}", self.key(&prefix));
        let full = self.key(&prefix);
        let skip = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let offset = after.as_ref().map(|after| self.key(after));
        let mut options = PaginatedListOptions { offset, max_keys: Some(LIST_MAX), ..PaginatedListOptions::default() };
        let mut found = Vec::new();
        loop {
            let page = self.lists.list_paginated((!full.is_empty()).then_some(&full), options.clone()).await;
            let page = page.map_err(|error| self.failure(&what, &error).error)?;
            let keys = page.result.objects.iter().filter_map(|meta| {
                let key = meta.location.as_ref().get(skip..)?.to_owned();
                let modified_s = u64::try_from(meta.last_modified.timestamp()).unwrap_or(0);
                Some(Listed { key, size: meta.size, modified_s })
            });
            // A store may not know how to begin in the middle, and begins at the start.
            found.extend(keys.filter(|one| after.as_ref().is_none_or(|after| one.key > *after)));
            match page.page_token {
                Some(token) if found.len() < LIST_MAX => options.page_token = Some(token),
                _ => break,
            }
        }
        found.truncate(LIST_MAX);
        Ok(found)
    }
}

impl Store for Cloud {
    fn put(&self, key: &str, parts: Vec<Bytes>) -> BoxFuture<Result<()>> {
        Box::pin(self.clone().put_now(key.to_owned(), parts))
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        Box::pin(self.clone().get_now(key.to_owned(), range))
    }

    fn size(&self, key: &str) -> BoxFuture<Result<u64>> {
        Box::pin(self.clone().size_now(key.to_owned()))
    }

    fn delete(&self, key: &str) -> BoxFuture<Result<()>> {
        Box::pin(self.clone().delete_now(key.to_owned()))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        Box::pin(self.clone().list_now(prefix.to_owned(), after.map(str::to_owned)))
    }
}

/// Runs `work`, which computes before it waits, on a thread that may be kept busy and gives way to who reads and writes. It
/// ends early if nobody waits for it any more.
async fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Handle::current();
    let (mut tell, hear) = tokio::sync::oneshot::channel();
    background::spawn("upload", move || {
        runtime.block_on(async {
            tokio::select! {
                done = work => drop(tell.send(done)),
                () = tell.closed() => {}
            }
        });
    })?;
    hear.await.map_err(|_| Error::new(ErrorKind::Stopped, "the upload was ended with the process"))
}

/// Repeating is for the caller: it knows how long.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn need(what: &str, value: &str) -> Result<()> {
    let message = if value.is_empty() {
        format!("the {what} of the store is missing: give it")
    } else if value.chars().any(|c| c.is_control() || c.is_whitespace()) {
        // The value is not shown: it may be a secret.
        format!("the {what} of the store has a space or a line break in it: give it without")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Refused, message))
}

fn server(endpoint: &Endpoint) -> String {
    let hostname = &endpoint.hostname;
    let scheme = if endpoint.protocol == Protocol::Http { "http" } else { "https" };
    // An address of IPv6 stands in brackets in a URL.
    let host =
        if hostname.contains(':') && !hostname.starts_with('[') { format!("[{hostname}]") } else { hostname.clone() };
    match endpoint.port {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }
}

/// The client does not take the words of the store; what it says may repeat a secret, so only its kind is told.
fn unusable(target: &Target, error: &object_store::Error) -> Error {
    let kind = match error {
        object_store::Error::NotSupported { .. } => "something that is not supported",
        _ => "a host name or another name that cannot be read",
    };
    Error::new(ErrorKind::Refused, format!("{target} cannot be used: it has {kind}"))
}
/// What an object is, for rules of the bucket that go by tags: `braidBlobType` is DATA, or CHECK of what only tries the
/// store; and whose data it is.
fn tags(parts: &[Bytes]) -> TagSet {
    let mut tags = TagSet::default();
    let head = parts.first().and_then(|first| Head::decode(first.get(..BLOCK)?).ok());
    tags.push("braidBlobType", if head.is_some() { "DATA" } else { "CHECK" });
    if let Some(Head { header, .. }) = head {
        tags.push("braidGuid", &header.cluster.to_string());
        tags.push("braidFsId", &header.fs.0.to_string());
        tags.push("braidFsGuid", &header.fs_uuid.to_string());
    }
    tags
}
