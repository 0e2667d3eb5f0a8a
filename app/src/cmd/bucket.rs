//! `braid bucket`: where the objects lie, for all its commands.

use std::env;
use std::path::{Path, PathBuf};

use braid_base::store::{Azure, AzureAuth, Endpoint, Place, Protocol, S3, S3Auth, Secret, StoreSpec};
use braid_base::{Error, Result};
use braid_tier::salvage::{Damage, Salvage};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::words::{Server, auth_method, protocol, server, text_of};

/// What stands below the help of each command.
pub const HELP: &str = "\
Objects say which 4 KiB of which inode they hold. Names, sizes, times and what was removed since are known to the
cluster only: files are found by inode number (as `ls -i` showed it), and end with a whole block.

The key is taken from --secret-key-file, else --secret-key, which other users of this machine may see for a moment, and
is kept by your shell, else the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (s3), AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN (azure).
Nothing is changed in the bucket.";

#[derive(Args, Debug)]
pub struct Bucket {
    /// Where the objects lie: s3://BUCKET[/PREFIX], azure://ACCOUNT/CONTAINER[/PREFIX] or file:///PATH
    #[arg(value_name = "URL")]
    url: String,
    /// Server: HOST, HOST:PORT or http(s)://HOST[:PORT] [default: that of Amazon in the region, or of Azure]
    #[arg(long, visible_alias = "endpoint", value_name = "HOST", help_heading = "Store")]
    hostname: Option<String>,
    /// TCP port of the server [default: that of the protocol]
    #[arg(long, help_heading = "Store")]
    port: Option<u16>,
    /// HTTP, HTTPS or HTTPS_UNVERIFIED [default: HTTP with --hostname, else HTTPS]
    #[arg(long, value_parser = protocol, help_heading = "Store")]
    protocol: Option<Protocol>,
    /// Region of the bucket [default: the variable AWS_REGION, else us-east-1]
    #[arg(long, help_heading = "Store")]
    region: Option<String>,
    /// AWSSignature4, AWSSignature2 or None
    #[arg(long, value_name = "METHOD", value_parser = auth_method, default_value = "AWSSignature4", help_heading = "Store")]
    auth_method: S3Auth,
    /// Public half of the key
    #[arg(long, value_name = "ID", help_heading = "Store")]
    access_key_id: Option<String>,
    /// Secret half of the key; of Azure the key or a shared access signature
    #[arg(long, value_name = "KEY", help_heading = "Store", conflicts_with = "secret_key_file")]
    secret_key: Option<String>,
    /// File with what --secret-key would say; - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    secret_key_file: Option<PathBuf>,
    /// File with certificates of authorities to trust beside those of the system, PEM
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    ca_cert: Option<PathBuf>,
}

/// Damage, for programs.
pub fn damage(damage: &Damage) -> Value {
    json!({ "key": damage.key, "offset": damage.at, "message": damage.words })
}

/// Runs `work` with what reads the bucket.
pub fn read<T>(bucket: &Bucket, work: impl AsyncFnOnce(Salvage) -> Result<T>) -> std::result::Result<T, Failure> {
    let spec = StoreSpec::at(bucket.place(|name| env::var(name).ok().filter(|value| !value.is_empty()))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::os("starting threads", &error))?;
    Ok(runtime.block_on(async { work(Salvage::new(braid_tier::open(&spec)?)).await })?)
}

impl Bucket {
    /// The place that the command line and the environment, which `variable` looks up, name.
    fn place(&self, variable: impl Fn(&str) -> Option<String>) -> std::result::Result<Place, Failure> {
        let (kind, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        match kind {
            "s3" => self.s3(rest, variable),
            "azure" => self.azure(rest, variable),
            "file" if rest.starts_with('/') => directory(rest),
            _ => {
                let words = "s3://BUCKET[/PREFIX], azure://ACCOUNT/CONTAINER[/PREFIX] or file:///PATH expected, found";
                Err(Failure::usage(format!("{words} {}", self.url)))
            }
        }
    }

    fn s3(&self, rest: &str, variable: impl Fn(&str) -> Option<String>) -> std::result::Result<Place, Failure> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let region = self.region.clone().or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = self.endpoint(&format!("s3.{region}.amazonaws.com"))?;
        let (mut access_key_id, mut secret_key) = (String::new(), Secret::default());
        if self.auth_method != S3Auth::None {
            let id = self.access_key_id.clone().or_else(|| variable("AWS_ACCESS_KEY_ID"));
            let secret = self.secret()?.or_else(|| variable("AWS_SECRET_ACCESS_KEY"));
            let (Some(id), Some(secret)) = (id, secret) else {
                let words = "a key expected: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give --access-key-id and \
                     --secret-key-file, or say --auth-method None for a bucket that anyone may read";
                return Err(Failure::usage(words));
            };
            (access_key_id, secret_key) = (id, Secret(secret));
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.trim_matches('/').to_owned());
        let auth = self.auth_method;
        let (storage_class, upload_tags) = (None, false);
        Ok(Place::S3(S3 {
            endpoint,
            bucket,
            prefix,
            region,
            auth,
            access_key_id,
            secret_key,
            storage_class,
            upload_tags,
        }))
    }

    fn azure(&self, rest: &str, variable: impl Fn(&str) -> Option<String>) -> std::result::Result<Place, Failure> {
        let mut words = rest.splitn(3, '/');
        let (account, container) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let prefix = words.next().unwrap_or_default().trim_matches('/').to_owned();
        let auth = match self.secret()? {
            // A key is base64, which has none of these.
            Some(secret) if secret.contains(['&', '?']) => Some(AzureAuth::Sas(Secret(secret))),
            Some(secret) => Some(AzureAuth::Key(Secret(secret))),
            None => variable("AZURE_STORAGE_KEY")
                .map(|key| AzureAuth::Key(Secret(key)))
                .or_else(|| variable("AZURE_STORAGE_SAS_TOKEN").map(|sas| AzureAuth::Sas(Secret(sas)))),
        };
        let Some(auth) = auth else {
            let words = "a key expected: set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or give --secret-key-file";
            return Err(Failure::usage(words));
        };
        let (account, container) = (account.to_owned(), container.to_owned());
        Ok(Place::Azure(Azure { endpoint: self.endpoint("")?, account, container, prefix, auth, storage_class: None }))
    }

    /// The server; `usual`, over TLS, unless one was named.
    fn endpoint(&self, usual: &str) -> std::result::Result<Endpoint, Failure> {
        let ca_cert = self.ca_cert.as_deref().map(text_of).transpose()?;
        let Some(named) = &self.hostname else {
            let protocol = self.protocol.unwrap_or(Protocol::Https);
            return Ok(Endpoint { hostname: usual.to_owned(), port: self.port, protocol, ca_cert });
        };
        let Server { hostname, port, protocol } = server(named)?;
        let protocol = self.protocol.or(protocol).unwrap_or_default();
        Ok(Endpoint { hostname, port: self.port.or(port), protocol, ca_cert })
    }

    /// The secret that was given with the command, if any.
    fn secret(&self) -> Result<Option<String>> {
        match &self.secret_key_file {
            Some(file) => Ok(Some(text_of(file)?.trim().to_owned())),
            None => Ok(self.secret_key.clone()),
        }
    }
}

fn directory(path: &str) -> std::result::Result<Place, Failure> {
    if Path::new(path).is_dir() {
        return Ok(Place::Dir { path: path.to_owned() });
    }
    Err(Failure::usage(format!("a directory with objects expected, found none at {path}")))
}

#[cfg(test)]
mod tests {
    use super::Bucket;
    use braid_base::store::{Azure, AzureAuth, Endpoint, Place, Protocol, S3, S3Auth, Secret};
    use clap::{Args, FromArgMatches};

    fn place(words: &[&str]) -> Result<Place, String> {
        let command = Bucket::augment_args(clap::Command::new("t").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let bucket = Bucket::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        let variable = |name: &str| {
            let value = match name {
                "AWS_ACCESS_KEY_ID" => "env-id",
                "AWS_SECRET_ACCESS_KEY" => "env-secret",
                "AWS_REGION" => "eu-west-1",
                "AZURE_STORAGE_SAS_TOKEN" => "sv=1&sig=x",
                _ => return None,
            };
            Some(value.to_owned())
        };
        bucket.place(variable).map_err(|failure| failure.message)
    }

    fn server(words: &[&str]) -> Endpoint {
        match place(&[&["s3://b"], words].concat()).expect("right") {
            Place::S3(S3 { endpoint, .. }) => endpoint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn buckets() {
        let Place::S3(S3 { endpoint, bucket, prefix, region, auth, access_key_id, secret_key, storage_class, .. }) =
            place(&["s3://Bucket/one/two/"]).expect("right")
        else {
            panic!("no bucket")
        };
        assert_eq!((endpoint.hostname.as_str(), endpoint.protocol), ("s3.eu-west-1.amazonaws.com", Protocol::Https));
        assert_eq!((bucket.as_str(), prefix.as_str(), region.as_str()), ("Bucket", "one/two", "eu-west-1"));
        assert_eq!(
            (auth, access_key_id.as_str(), secret_key),
            (S3Auth::AWSSignature4, "env-id", Secret("env-secret".into()))
        );
        assert_eq!((endpoint.port, storage_class), (None, None));
        let given = place(&["s3://b", "--access-key-id", "i", "--secret-key", "s", "--auth-method", "awssignature2"]);
        assert!(matches!(
            given.expect("right"),
            Place::S3(S3 { auth: S3Auth::AWSSignature2, access_key_id, secret_key, .. })
                if access_key_id == "i" && secret_key.0 == "s"
        ));
        let open = place(&["s3://b", "--auth-method", "None"]).expect("right");
        assert!(
            matches!(open, Place::S3(S3 { access_key_id, secret_key, .. }) if access_key_id.is_empty() && secret_key.0.is_empty())
        );
    }

    #[test]
    fn servers() {
        for (words, hostname, port, protocol) in [
            (&["--hostname", "h"][..], "h", None, Protocol::Http),
            (&["--endpoint", "http://h:9000"], "h", Some(9000), Protocol::Http),
            (&["--endpoint", "https://h/"], "h", None, Protocol::Https),
            (&["--hostname", "h:1", "--port", "2"], "h", Some(2), Protocol::Http),
            (&["--hostname", "[::1]:9"], "[::1]", Some(9), Protocol::Http),
            (&["--hostname", "fe80::1"], "fe80::1", None, Protocol::Http),
            (&["--endpoint", "https://h", "--protocol", "https_unverified"], "h", None, Protocol::HttpsUnverified),
        ] {
            let found = server(words);
            assert_eq!((found.hostname.as_str(), found.port, found.protocol), (hostname, port, protocol), "{words:?}");
        }
        for words in [["--endpoint", "ftp://h"], ["--hostname", "h:x"], ["--hostname", "h:70000"], ["--protocol", "x"]]
        {
            assert!(place(&[&["s3://b"], &words[..]].concat()).is_err(), "{words:?}");
        }
    }

    #[test]
    fn containers_and_directories() {
        let found = place(&["azure://account/container/a/b"]).expect("right");
        let Place::Azure(Azure { endpoint, account, container, prefix, auth, .. }) = found else {
            panic!("no container")
        };
        assert_eq!((account.as_str(), container.as_str(), prefix.as_str()), ("account", "container", "a/b"));
        assert_eq!((endpoint.hostname.as_str(), endpoint.protocol), ("", Protocol::Https));
        assert_eq!(auth, AzureAuth::Sas(Secret("sv=1&sig=x".into())));
        let key = place(&["azure://a/c", "--secret-key", "abc=="]).expect("right");
        assert!(matches!(key, Place::Azure(Azure { auth: AzureAuth::Key(key), .. }) if key.0 == "abc=="));
        assert_eq!(place(&["file:///"]), Ok(Place::Dir { path: "/".to_owned() }));
        for url in ["file://relative", "file:///there/is/none", "/", "b", "http://b", ""] {
            assert!(place(&[url]).is_err(), "{url}");
        }
    }
}
