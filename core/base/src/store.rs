//! What an object store is: where it is, how it is spoken to, and what may be asked of it at a time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most requests of a kind that a process has under way at a store.
pub const CONCURRENCY_MAX: u8 = 64;
/// How long a store may be silent before reads that need it fail, seconds: least, most, unless said otherwise.
pub const ERRORS_TIMEOUT_S: (u32, u32, u32) = (60, 900, 300);
/// How far ahead of a sequential read is fetched, MiB: most, unless said otherwise.
pub const PREFETCH_MIB: (u32, u32) = (600, 128);

/// A word that must not be shown: it is neither printed nor logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// How a store is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// In the clear.
    #[default]
    #[serde(rename = "HTTP")]
    Http,
    /// TLS, the certificate is checked.
    #[serde(rename = "HTTPS")]
    Https,
    /// TLS, any certificate will do.
    #[serde(rename = "HTTPS_UNVERIFIED")]
    HttpsUnverified,
}

/// How requests to an S3 store are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum S3Auth {
    /// Not at all.
    None,
    /// The old way: HMAC-SHA1.
    AWSSignature2,
    /// HMAC-SHA256 with the region.
    #[default]
    AWSSignature4,
}

/// What opens an Azure container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AzureAuth {
    /// The account's key, in base64.
    Key(Secret),
    /// A shared access signature: what follows the `?` of a URL.
    Sas(Secret),
}

/// The server of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its name or address, without port.
    pub hostname: String,
    /// TCP port; none: that of the protocol.
    pub port: Option<u16>,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Certificates of authorities to trust beside those of the system, PEM.
    pub ca_cert: Option<String>,
}

/// Where objects lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Place {
    /// A bucket that speaks S3.
    S3(S3),
    /// A container of Azure Blob.
    Azure(Azure),
    /// A directory that all hosts see, or the one host of a cluster.
    Dir {
        /// Its absolute path.
        path: String,
    },
}

/// A bucket that speaks S3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3 {
    /// Its server.
    pub endpoint: Endpoint,
    /// The bucket; upper and lower case differ.
    pub bucket: String,
    /// What all keys begin with, without slashes at its ends; empty: nothing.
    pub prefix: String,
    /// The region that signatures name.
    pub region: String,
    /// How requests are signed.
    pub auth: S3Auth,
    /// The public half of the key.
    pub access_key_id: String,
    /// The other half.
    pub secret_key: Secret,
    /// The storage class of new objects; none: the bucket's.
    pub storage_class: Option<String>,
    /// New objects carry tags that say what they are.
    #[serde(default)]
    pub upload_tags: bool,
}

/// A container of Azure Blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Azure {
    /// Its server; an empty name: the account's in the public cloud.
    pub endpoint: Endpoint,
    /// The account.
    pub account: String,
    /// The container.
    pub container: String,
    /// As for S3.
    pub prefix: String,
    /// What opens it.
    pub auth: AzureAuth,
    /// The access tier of new blobs; none: the account's.
    #[serde(default)]
    pub storage_class: Option<String>,
}

/// Most bytes per second between one process and a store; none: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// In both directions together.
    pub all: Option<u64>,
    /// Into the store.
    pub upload: Option<u64>,
    /// Out of it.
    pub download: Option<u64>,
    /// Of objects that are removed there, each taken for one of full size.
    pub remove: Option<u64>,
}

/// Most requests that one process has under way at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Concurrency {
    /// Puts.
    pub uploads: u8,
    /// Gets.
    pub downloads: u8,
    /// Deletes.
    pub removals: u8,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { uploads: CONCURRENCY_MAX, downloads: CONCURRENCY_MAX, removals: CONCURRENCY_MAX }
    }
}

/// All that a process must know to use a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpec {
    /// Where it is.
    pub place: Place,
    /// How fast.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// How much at a time.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// How long it may fail before reads that need it get EIO, seconds.
    pub errors_timeout_s: u32,
    /// How far ahead of a sequential read is fetched, MiB.
    pub prefetch_mib: u32,
}

impl StoreSpec {
    /// The store at `place`, all else as usual.
    pub fn at(place: Place) -> Self {
        Self {
            place,
            bandwidth: Bandwidth::default(),
            concurrency: Concurrency::default(),
            errors_timeout_s: ERRORS_TIMEOUT_S.2,
            prefetch_mib: PREFETCH_MIB.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Place, S3, S3Auth, Secret, StoreSpec};

    #[test]
    fn secrets_are_not_printed() {
        let place = Place::S3(S3 {
            endpoint: Endpoint { hostname: "s3".into(), ..Endpoint::default() },
            bucket: "b".into(),
            prefix: String::new(),
            region: "us-east-1".into(),
            auth: S3Auth::AWSSignature4,
            access_key_id: "id".into(),
            secret_key: Secret("very secret".into()),
            storage_class: None,
            upload_tags: false,
        });
        let text = format!("{:?}", StoreSpec::at(place));
        assert!(!text.contains("very secret") && text.contains("***"), "{text}");
    }
}
