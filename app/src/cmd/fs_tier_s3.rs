//! `braid fs tier s3 add` and `update`: a bucket that speaks S3.

use std::path::PathBuf;

use braid_base::store::{Protocol, S3Auth, Secret};
use braid_cluster::view::stores::{Kind, ObjectStoreSettings};
use clap::Args;

use super::fs_tier_words::{self as words, Limits};
use crate::exit::{Failure, Outcome};
use crate::whole::Whole;
use crate::words::{auth_method, protocol};

/// One to add.
pub type Add = words::Add<Bucket>;
/// One to change.
pub type Update = words::Update<Bucket>;

/// Where the bucket is, and what opens it.
#[derive(Args, Debug)]
pub struct Bucket {
    /// Server: HOST, HOST:PORT or http(s)://HOST[:PORT]
    #[arg(long, visible_alias = "endpoint", value_name = "HOST", help_heading = "Store")]
    hostname: Option<String>,
    /// HTTP, HTTPS or HTTPS_UNVERIFIED [default of a new store: HTTP]
    #[arg(long, value_parser = protocol, help_heading = "Store")]
    protocol: Option<Protocol>,
    /// TCP port; 0: that of the protocol
    #[arg(long, help_heading = "Store")]
    port: Option<u16>,
    /// The bucket, and what all keys are to begin with, if anything; upper and lower case differ
    #[arg(long, value_name = "BUCKET[/PREFIX]", help_heading = "Store")]
    bucket: Option<String>,
    /// Region of the bucket [default of a new store: us-east-1]
    #[arg(long, help_heading = "Store")]
    region: Option<String>,
    /// AWSSignature4, AWSSignature2 or None [default of a new store: AWSSignature4]
    #[arg(long, value_name = "METHOD", value_parser = auth_method, help_heading = "Store")]
    auth_method: Option<S3Auth>,
    /// Public half of the key [default of a new store: the variable AWS_ACCESS_KEY_ID]
    #[arg(long, value_name = "ID", help_heading = "Store")]
    access_key_id: Option<String>,
    /// Secret half of the key [default of a new store: the variable AWS_SECRET_ACCESS_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Store", conflicts_with = "secret_key_file")]
    secret_key: Option<String>,
    /// File with the secret half of the key; - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    secret_key_file: Option<PathBuf>,
    /// Storage class of new objects; empty: the bucket's
    #[arg(long, visible_alias = "data-storage-class", value_name = "CLASS", help_heading = "Store")]
    storage_class: Option<String>,
    /// Give new objects tags that say what they are: braidBlobType (DATA, or CHECK of what tries the store), braidGuid (the
    /// cluster), braidFsId, braidFsGuid. The key must be allowed s3:PutObjectTagging
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Store")]
    enable_upload_tags: Option<bool>,
    /// File with certificates of authorities to trust beside those of the system, PEM; empty: none
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    ca_cert: Option<PathBuf>,
}

pub fn add(whole: &Whole, add: &Add) -> Outcome {
    let mut settings = add.place.settings(&add.limits)?;
    if settings.auth_method != Some(S3Auth::None) {
        settings.access_key_id = settings.access_key_id.or_else(|| words::variable("AWS_ACCESS_KEY_ID"));
        settings.secret_key = settings.secret_key.or_else(|| words::variable("AWS_SECRET_ACCESS_KEY").map(Secret));
    }
    words::add(whole, Kind::S3, settings, add)
}

pub fn update(whole: &Whole, update: &Update) -> Outcome {
    // The environment of who changes something else must not change the key.
    let settings = update.place.settings(&update.limits)?;
    words::update(whole, Kind::S3, settings, update)
}

impl Bucket {
    fn settings(&self, limits: &Limits) -> Result<ObjectStoreSettings, Failure> {
        let server = words::server(self.hostname.as_deref(), (self.port, self.protocol), self.ca_cert.as_ref())?;
        let mut settings = ObjectStoreSettings {
            bucket: self.bucket.clone(),
            region: self.region.clone(),
            auth_method: self.auth_method,
            access_key_id: self.access_key_id.clone(),
            secret_key: words::secret(self.secret_key.as_ref(), self.secret_key_file.as_deref())?,
            storage_class: self.storage_class.clone(),
            upload_tags: self.enable_upload_tags,
            ..server
        };
        limits.set(&mut settings);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use braid_base::store::{Protocol, S3Auth, Secret};
    use braid_cluster::view::stores::ObjectStoreSettings;
    use clap::{Args, FromArgMatches};

    use super::Update;

    fn settings(words: &[&str]) -> Result<ObjectStoreSettings, String> {
        let command = Update::augment_args(clap::Command::new("t").no_binary_name(true));
        let matches = command.try_get_matches_from([&["b"], words].concat()).map_err(|error| error.to_string())?;
        let update = Update::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        update.place.settings(&update.limits).map_err(|failure| failure.message)
    }

    #[test]
    fn what_is_not_said_is_not_set() {
        assert_eq!(settings(&[]), Ok(ObjectStoreSettings::default()));
        let set = settings(&["--bandwidth", "8", "--upload-bandwidth", "0", "--errors-timeout", "2m"]).expect("right");
        let expected = ObjectStoreSettings {
            bytes_per_s: Some(1_000_000),
            upload_bytes_per_s: Some(0),
            errors_timeout_s: Some(120),
            ..ObjectStoreSettings::default()
        };
        assert_eq!(set, expected);
    }

    #[test]
    fn classes_tags_and_removals() {
        let set =
            settings(&["--data-storage-class", "STANDARD_IA", "--enable-upload-tags", "--remove-bandwidth", "16"]);
        let set = set.expect("right");
        assert_eq!((set.storage_class.as_deref(), set.upload_tags), (Some("STANDARD_IA"), Some(true)));
        assert_eq!(set.remove_bytes_per_s, Some(2_000_000));
        assert_eq!(settings(&["--enable-upload-tags", "false"]).expect("right").upload_tags, Some(false));
        assert_eq!(settings(&["--verbose-errors"]), Ok(ObjectStoreSettings::default()));
    }

    #[test]
    fn servers_and_keys() {
        let set = settings(&["--hostname", "https://h:9000", "--secret-key", "s", "--auth-method", "awssignature2"]);
        let set = set.expect("right");
        assert_eq!((set.hostname.as_deref(), set.port, set.protocol), (Some("h"), Some(9000), Some(Protocol::Https)));
        assert_eq!((set.secret_key, set.auth_method), (Some(Secret("s".into())), Some(S3Auth::AWSSignature2)));
        let set = settings(&["--hostname", "https://h:9000", "--port", "0", "--protocol", "http"]).expect("right");
        assert_eq!((set.port, set.protocol), (Some(0), Some(Protocol::Http)));
        for words in [&["--secret-key", "s", "--secret-key-file", "f"][..], &["--protocol", "ftp"], &["--port", "x"]] {
            assert!(settings(words).is_err(), "{words:?}");
        }
        assert!(
            settings(&["--secret-key-file", "/there/is/none"]).is_err_and(|words| words.contains("/there/is/none"))
        );
    }
}
