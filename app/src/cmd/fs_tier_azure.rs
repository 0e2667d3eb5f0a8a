//! `braid fs tier azure add` and `update`: a container of Azure Blob.

use std::path::PathBuf;

use braid_base::store::{Protocol, Secret};
use braid_cluster::view::stores::{Kind, ObjectStoreSettings};
use clap::Args;

use super::fs_tier_words::{self as words, Limits};
use crate::exit::{Failure, Outcome};
use crate::whole::Whole;
use crate::words::protocol;

/// One to add.
pub type Add = words::Add<Container>;
/// One to change.
pub type Update = words::Update<Container>;

/// Where the container is, and what opens it.
#[derive(Args, Debug)]
pub struct Container {
    /// The storage account
    #[arg(long, value_name = "NAME", help_heading = "Store")]
    account: Option<String>,
    /// The container, and what all keys are to begin with, if anything
    #[arg(long, value_name = "CONTAINER[/PREFIX]", help_heading = "Store")]
    container: Option<String>,
    /// Key of the account, in base 64 [default of a new store: the variable AZURE_STORAGE_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Store", conflicts_with_all = ["access_key_file", "sas", "sas_file"])]
    access_key: Option<String>,
    /// File with the key of the account; - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Store", conflicts_with_all = ["sas", "sas_file"])]
    access_key_file: Option<PathBuf>,
    /// A shared access signature instead [default of a new store: the variable AZURE_STORAGE_SAS_TOKEN]
    #[arg(long, value_name = "TOKEN", help_heading = "Store", conflicts_with = "sas_file")]
    sas: Option<String>,
    /// File with a shared access signature; - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    sas_file: Option<PathBuf>,
    /// Server, if it is not that of the account in the public cloud: HOST, HOST:PORT or http(s)://HOST[:PORT]
    #[arg(long, visible_alias = "endpoint", value_name = "HOST", help_heading = "Store")]
    hostname: Option<String>,
    /// HTTP, HTTPS or HTTPS_UNVERIFIED [default of a new store: HTTP with --hostname, else HTTPS]
    #[arg(long, value_parser = protocol, help_heading = "Store")]
    protocol: Option<Protocol>,
    /// TCP port; 0: that of the protocol
    #[arg(long, help_heading = "Store")]
    port: Option<u16>,
    /// Access tier of new blobs: Hot, Cool or Cold; empty: the account's. Blobs in Archive cannot be read
    #[arg(long, visible_alias = "data-storage-class", value_name = "TIER", help_heading = "Store")]
    storage_class: Option<String>,
    /// File with certificates of authorities to trust beside those of the system, PEM; empty: none
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    ca_cert: Option<PathBuf>,
}

pub fn add(whole: &Whole, add: &Add) -> Outcome {
    let mut settings = add.place.settings(&add.limits)?;
    if settings.secret_key.is_none() && settings.sas.is_none() {
        settings.secret_key = words::variable("AZURE_STORAGE_KEY").map(Secret);
        if settings.secret_key.is_none() {
            settings.sas = words::variable("AZURE_STORAGE_SAS_TOKEN").map(Secret);
        }
    }
    words::add(whole, Kind::Azure, settings, add)
}

pub fn update(whole: &Whole, update: &Update) -> Outcome {
    // The environment of who changes something else must not change the key.
    let settings = update.place.settings(&update.limits)?;
    words::update(whole, Kind::Azure, settings, update)
}

impl Container {
    fn settings(&self, limits: &Limits) -> Result<ObjectStoreSettings, Failure> {
        let server = words::server(self.hostname.as_deref(), (self.port, self.protocol), self.ca_cert.as_ref())?;
        let mut settings = ObjectStoreSettings {
            account: self.account.clone(),
            bucket: self.container.clone(),
            storage_class: self.storage_class.clone(),
            secret_key: words::secret(self.access_key.as_ref(), self.access_key_file.as_deref())?,
            sas: words::secret(self.sas.as_ref(), self.sas_file.as_deref())?,
            ..server
        };
        limits.set(&mut settings);
        Ok(settings)
    }
}
