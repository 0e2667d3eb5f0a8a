//! Object stores, as an administrator sees and sets them up. What a store wants to hear is never shown: `***` stands for it.

use braid_base::store::{Protocol, S3Auth, Secret};
use serde::{Deserialize, Serialize};

use crate::facts::Mode;

views! {
    /// An object store.
    pub struct ObjectStoreView {
        /// Its number; 0 if it was only tried.
        pub id: u32,
        /// Its name.
        pub name: String,
        /// `s3`, `azure` or `dir`.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        pub kind: Kind,
        /// Its server, `HOST` or `HOST:PORT`; empty: that of the account in the public cloud, or a directory.
        pub address: String,
        /// Bucket or container, with what all keys begin with behind a slash; of a directory its path.
        pub bucket: String,
        /// `HTTP`, `HTTPS` or `HTTPS_UNVERIFIED`; empty of a directory.
        pub protocol: String,
        /// The region that signatures name; of S3 only.
        pub region: String,
        /// `AWSSignature4`, `AWSSignature2` or `None`; of Azure `key` or `sas`; empty of a directory.
        pub auth_method: String,
        /// The account; of Azure only.
        pub account: String,
        /// The public half of the key; of S3 only.
        pub access_key_id: String,
        /// `***` if a secret is set, else empty.
        pub secret_key: String,
        /// Are there certificates of authorities to trust beside those of the system?
        pub ca_cert: bool,
        /// The storage class of new objects, of Azure their access tier; none: the bucket's.
        pub storage_class: Option<String>,
        /// Do new objects carry tags that say what they are?
        #[serde(default)]
        pub upload_tags: bool,
        /// Most bytes per second between one process and the store; none: any number.
        pub bytes_per_s: Option<u64>,
        /// The same into the store.
        pub upload_bytes_per_s: Option<u64>,
        /// The same out of it.
        pub download_bytes_per_s: Option<u64>,
        /// Most bytes per second that one process removes there, each object taken for 64 MiB.
        #[serde(default)]
        pub remove_bytes_per_s: Option<u64>,
        /// Most puts that one process has under way.
        pub max_concurrent_uploads: u8,
        /// Most gets.
        pub max_concurrent_downloads: u8,
        /// Most deletes.
        pub max_concurrent_removals: u8,
        /// How long it may fail before reads that need it do, seconds.
        pub errors_timeout_s: u32,
        /// How far ahead of a sequential read is fetched, MiB.
        pub prefetch_mib: u32,
        /// Can objects be put there, as the hosts see it?
        pub upload: LinkView,
        /// Can they be read?
        pub download: LinkView,
        /// Can they be removed?
        pub remove: LinkView,
        /// It takes no uploads because it is full, as some host found.
        pub full: bool,
        /// The file systems that it serves.
        pub filesystems: Vec<String>,
        /// Hosts that live and do not answer: what they see of it is not known.
        #[serde(default)]
        pub silent_hosts: Vec<String>,
    }

    /// One direction of traffic with a store.
    #[derive(Eq, Default)]
    pub struct LinkView {
        /// `down` if all hosts that answer have lost it, `up` if one has it, else `unknown`: one that does not answer keeps
        /// nothing up, one that has not tried keeps it from being down, unless it has lost downloads.
        pub state: String,
        /// Since when.
        pub since_s: u64,
        /// Why the last attempt that failed did so; of several hosts with the name of one.
        pub last_error: Option<String>,
        /// Hosts that have it.
        #[serde(default)]
        pub nodes_up: u64,
        /// Hosts that have lost it.
        #[serde(default)]
        pub nodes_down: u64,
        /// Hosts that have not tried, or do not answer.
        #[serde(default)]
        pub nodes_unknown: u64,
    }

    /// What hosts do at an object store, and what they did last.
    pub struct OperationsView {
        /// Those under way, the oldest first; then those that have ended, the newest first, not all.
        pub operations: Vec<OperationView>,
        /// Hosts that live and do not answer: what they do is not known.
        pub silent_hosts: Vec<String>,
    }

    /// An operation of a host at an object store, with all its attempts.
    pub struct OperationView {
        /// Name of the host.
        pub process: String,
        /// Counts up while the process of the host runs.
        pub id: u64,
        /// The key of the object, or what the keys of a listing begin with.
        pub key: String,
        /// `UPLOAD`, `DOWNLOAD`, `REMOVE` or `CHECK`.
        #[serde(rename = "type")]
        pub kind: String,
        /// How long it took, or has taken until now, seconds.
        pub exec_time: f64,
        /// `Ongoing` or `Recent`.
        pub phase: String,
        /// How long its last finished attempt took, seconds.
        pub last_exec_time: Option<f64>,
        /// When it began, seconds since 1970.
        pub start_time: f64,
        /// Bytes that it moves.
        pub size: u64,
        /// How its attempts ended, and how many so, for example `IO: 2, SUCCESS: 1`.
        pub results: String,
        /// Attempts to which no answer came.
        pub connection_errors: u32,
        /// The last answer that was no success, for example `HTTP 503 SlowDown`.
        pub last_http_error: Option<String>,
        /// Operations of its type that were under way in its process when it began, itself included.
        pub concurrency: u32,
        /// The file that it is done for, if it is for one.
        pub inode: Option<u64>,
    }

    /// What file systems hold in object stores.
    pub struct HoldingsView {
        /// One for each store of each file system.
        pub holdings: Vec<HeldView>,
        /// Partitions that do not answer: what they hold is missing.
        pub silent_partitions: u64,
    }

    /// What a file system holds in an object store.
    pub struct HeldView {
        /// Name of the file system.
        pub filesystem: String,
        /// Name of the store.
        pub store: String,
        /// Objects, with those that are on their way there and away.
        pub objects: u64,
        /// Bytes of data in them, with what fills blocks up.
        pub object_bytes: u64,
        /// Bytes of files in them.
        pub consumed_bytes: u64,
        /// Those of them that are still in use.
        pub used_bytes: u64,
        /// The others, in per cent of those in use; none if nothing is in use.
        pub reclaimable_percent: Option<f64>,
        /// They are reclaimed until they are below this.
        pub low_percent: f64,
        /// They are reclaimed when they are above this.
        pub high_percent: f64,
    }

    /// How to audit an object store.
    #[derive(Eq, Default)]
    #[serde(default, deny_unknown_fields)]
    pub struct AuditSpec {
        /// Objects that no partition knows are removed, those that have been there for an hour.
        pub remove: bool,
    }

    /// What an audit of an object store has found.
    #[derive(Eq, Default)]
    pub struct AuditView {
        /// Name of the store.
        pub store: String,
        /// `running`, `done` or `failed`.
        pub state: String,
        /// Why it failed; then what was found is not all.
        pub error: Option<String>,
        /// Is what is unknown removed?
        pub remove: bool,
        /// When it began, seconds since 1970.
        pub started_s: u64,
        /// When it ended.
        pub ended_s: Option<u64>,
        /// Partitions that were compared.
        pub partitions_done: u64,
        /// Partitions of the cluster.
        pub partitions: u64,
        /// Keys that the store has listed.
        pub listed: u64,
        /// Those that are named as objects of this cluster are.
        pub ours: u64,
        /// Those of them that their partition knows.
        pub known: u64,
        /// Those that it does not know, and never will.
        pub unknown: FoundView,
        /// Those of them that have been there for less than an hour: they are not removed.
        pub young: u64,
        /// Unknown ones that were removed.
        pub removed: u64,
        /// Those that are newer than what their partition knows: the metadata may be older. They are never removed.
        pub ahead: FoundView,
        /// Objects that should be there, and are not: `braid status lost` lists the files.
        pub missing: FoundView,
        /// Objects with another number of bytes than they should have.
        pub wrong_size: FoundView,
        /// Objects of which the store did not say how they are.
        pub unsure: u64,
        /// Keys of other clusters, and keys that name no object: they are counted, and not touched.
        pub foreign: u64,
    }

    /// Objects of one kind that an audit found.
    #[derive(Eq, Default)]
    pub struct FoundView {
        /// How many.
        pub count: u64,
        /// Bytes of those that are there.
        pub bytes: u64,
        /// Keys of the first 1,000.
        pub keys: Vec<String>,
    }

    /// What a store was or is to be set to; what is none stays, or is as usual in a new one.
    #[derive(Eq, Default)]
    #[serde(default, deny_unknown_fields)]
    pub struct ObjectStoreSettings {
        /// Its server, without port. Not of a directory.
        pub hostname: Option<String>,
        /// TCP port; 0: that of the protocol.
        pub port: Option<u16>,
        /// `HTTP` (default; of Azure only if a server is named), `HTTPS` or `HTTPS_UNVERIFIED`.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        pub protocol: Option<Protocol>,
        /// Certificates of authorities to trust beside those of the system, PEM; empty: none.
        pub ca_cert: Option<String>,
        /// Bucket or container, with what all keys begin with behind a slash, if anything.
        pub bucket: Option<String>,
        /// The region that signatures name (default `us-east-1`). Of S3 only.
        pub region: Option<String>,
        /// `AWSSignature4` (default), `AWSSignature2` or `None`. Of S3 only.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        pub auth_method: Option<S3Auth>,
        /// The public half of the key. Of S3 only.
        pub access_key_id: Option<String>,
        /// The secret half of the key; of Azure the account's key.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        pub secret_key: Option<Secret>,
        /// A shared access signature instead of the account's key. Of Azure only.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        pub sas: Option<Secret>,
        /// The storage class of new objects, of Azure their access tier; empty: the bucket's. Not of a directory.
        pub storage_class: Option<String>,
        /// New objects carry tags that say what they are. Of S3 only.
        pub upload_tags: Option<bool>,
        /// The account. Of Azure only.
        pub account: Option<String>,
        /// Absolute path, the same on all hosts. Of a directory only.
        pub path: Option<String>,
        /// Most bytes per second between one process and the store; 0: any number.
        pub bytes_per_s: Option<u64>,
        /// The same into the store.
        pub upload_bytes_per_s: Option<u64>,
        /// The same out of it.
        pub download_bytes_per_s: Option<u64>,
        /// Most bytes per second that one process removes there, each object taken for 64 MiB; 0: any number.
        pub remove_bytes_per_s: Option<u64>,
        /// Most puts that one process has under way, 1 to 64 (default 64).
        pub max_concurrent_uploads: Option<u8>,
        /// Most gets, likewise.
        pub max_concurrent_downloads: Option<u8>,
        /// Most deletes, likewise.
        pub max_concurrent_removals: Option<u8>,
        /// How long it may fail before reads that need it do, seconds: 60 to 900 (default 300).
        pub errors_timeout_s: Option<u32>,
        /// How far ahead of a sequential read is fetched, MiB: 0 to 600 (default 128).
        pub prefetch_mib: Option<u32>,
    }

    /// An object store to add.
    #[serde(deny_unknown_fields)]
    pub struct ObjectStoreSpec {
        /// Its name: 1 to 32 characters without `/` and `\`.
        pub name: String,
        /// `s3`, `azure` or `dir`.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        pub kind: Kind,
        /// How it is reached and used.
        pub settings: ObjectStoreSettings,
        /// Try it, and leave it at that.
        #[serde(default)]
        pub dry_run: bool,
        /// Do not try it.
        #[serde(default)]
        pub skip_verification: bool,
    }

    /// What to change of an object store.
    #[derive(Default)]
    #[serde(default, deny_unknown_fields)]
    pub struct ObjectStoreChange {
        /// What kind it must be, if that is said: `s3`, `azure` or `dir`.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        pub kind: Option<Kind>,
        /// Its new name.
        pub new_name: Option<String>,
        /// What to set.
        pub settings: ObjectStoreSettings,
        /// Try it, and leave it at that.
        pub dry_run: bool,
        /// Do not try it.
        pub skip_verification: bool,
    }

    /// An object store that was added, changed or only tried.
    pub struct ObjectStoreDone {
        /// The store.
        pub store: ObjectStoreView,
        /// What was tried, all of it with success; nothing if it was not to be, or how it is reached did not change.
        pub steps: Vec<StepView>,
        /// Is it so now? Not in a dry run.
        pub recorded: bool,
    }

    /// Something that was tried.
    pub struct StepView {
        /// What.
        pub what: String,
        /// How long it took, milliseconds.
        pub took_ms: u64,
    }

    /// An object store to attach to a file system.
    #[serde(deny_unknown_fields)]
    pub struct AttachSpec {
        /// Name of the store.
        pub store: String,
        /// `writable` (default) or `read_only`.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        pub mode: Mode,
    }

    /// An object store that is attached to a file system.
    pub struct AttachmentView {
        /// Name of the store.
        pub store: String,
        /// `writable` or `read_only`.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        pub mode: Mode,
        /// Is what lies there being fetched back or brought elsewhere?
        pub detaching: bool,
        /// Since when it is attached.
        pub attached_s: u64,
        /// Objects that still lie there, while it is being detached.
        #[serde(default)]
        pub objects_left: Option<u64>,
        /// Bytes of files that do.
        #[serde(default)]
        pub bytes_left: Option<u64>,
        /// Why that stands still, if it does.
        #[serde(default)]
        pub waits: Option<String>,
    }
}

/// The kinds of object stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A bucket that speaks S3.
    S3,
    /// A container of Azure Blob.
    Azure,
    /// A directory.
    Dir,
}

impl Kind {
    /// The word for tables, commands and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "azure",
            Self::Dir => "dir",
        }
    }
}
