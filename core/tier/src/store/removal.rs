//! Removing a blob of Azure by a request of its own: the client knows removals in batches only, which emulators,
//! gateways and many shared access signatures do not.

use std::fmt::Write as _;

use braid_base::store::AzureAuth;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;
use http::{Method, Request};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, split_sas};

use super::failure::Failure;
use super::wire::Wire;

/// Removes blobs of one container.
pub(super) struct Removal {
    wire: Wire,
    credential: AzureCredential,
    account: String,
    /// The URL of the container.
    container: String,
}

impl Removal {
    /// Removals from the container at the URL `container`. Errors: `Refused`: the key or signature cannot be read.
    pub fn new(wire: Wire, account: &str, container: String, auth: &AzureAuth) -> Result<Self> {
        // What the client says of a key may repeat it.
        let unreadable =
            |what| Error::new(ErrorKind::Refused, format!("{what} of the store cannot be read: correct it"));
        let credential = match auth {
            AzureAuth::Key(key) => AzureCredential::AccessKey(
                AzureAccessKey::try_new(&key.0).map_err(|_| unreadable("the key (it is in base64)"))?,
            ),
            AzureAuth::Sas(sas) => AzureCredential::SASToken(
                split_sas(&sas.0).map_err(|_| unreadable("the shared access signature (sv=...&sig=...)"))?,
            ),
        };
        Ok(Self { wire, credential, account: account.to_owned(), container })
    }

    /// Removes one.
    pub async fn remove(&self, key: &str) -> std::result::Result<(), Failure> {
        let unfit = || Failure::of_line(ErrorKind::Invalid, format!("DELETE {key}: this key cannot be asked for"));
        let url = format!("{}/{}", self.container, escaped(key));
        let mut request =
            Request::builder().method(Method::DELETE).uri(url).body(Bytes::new().into()).map_err(|_| unfit())?;
        AzureAuthorizer::new(&self.credential, &self.account).try_authorize(&mut request).map_err(|_| unfit())?;
        self.wire.send(request).await.map(drop)
    }
}

/// A key as a URL has it.
fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_escaped_byte_by_byte() {
        assert_eq!(super::escaped("B_541/a b+ä?"), "B_541/a%20b%2B%C3%A4%3F");
    }
}
