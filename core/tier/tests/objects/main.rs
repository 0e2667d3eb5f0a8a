//! Stores and the link to them: a directory against a model, S3 against a server in this process, servers that fail.

#![expect(clippy::unwrap_used, reason = "in a test it fails the test, which is what it should do")]

mod dir;
mod faults;
mod faulty;
mod link;
mod s3;

use braid_base::store::{Azure, AzureAuth, Endpoint, Place, Protocol, S3, S3Auth, Secret, StoreSpec};

/// The secret of every store here: no message may hold it.
const SECRET: &str = "c2VjcmV0IG9mIHRoZSB0ZXN0cw==";

/// A bucket `cold` at a port of this machine.
fn s3_at(port: u16) -> StoreSpec {
    let endpoint = Endpoint { hostname: "127.0.0.1".to_owned(), port: Some(port), ..Endpoint::default() };
    StoreSpec::at(Place::S3(S3 {
        endpoint,
        bucket: "cold".to_owned(),
        prefix: String::new(),
        region: "us-east-1".to_owned(),
        auth: S3Auth::AWSSignature4,
        access_key_id: "AKIATEST".to_owned(),
        secret_key: Secret(SECRET.to_owned()),
        storage_class: None,
        upload_tags: false,
    }))
}

/// A container `cold` at a port of this machine.
fn azure_at(port: u16, auth: AzureAuth) -> StoreSpec {
    let endpoint = Endpoint { hostname: "127.0.0.1".to_owned(), port: Some(port), ..Endpoint::default() };
    let (account, container, prefix) = ("devaccount".to_owned(), "cold".to_owned(), "pre".to_owned());
    StoreSpec::at(Place::Azure(Azure { endpoint, account, container, prefix, auth, storage_class: None }))
}

fn endpoint(spec: &mut StoreSpec) -> &mut Endpoint {
    match &mut spec.place {
        Place::S3(S3 { endpoint, .. }) | Place::Azure(Azure { endpoint, .. }) => endpoint,
        Place::Dir { .. } => panic!("a directory has no server"),
    }
}

fn https(mut spec: StoreSpec, protocol: Protocol, ca_cert: Option<String>) -> StoreSpec {
    let endpoint = endpoint(&mut spec);
    endpoint.protocol = protocol;
    endpoint.ca_cert = ca_cert;
    spec
}
