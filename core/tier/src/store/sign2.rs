//! The old signature of S3 (version 2): HMAC-SHA1 over method, date, headers and resource.
//!
//! Some stores that stand on their own premises know no other. SHA-1 is weak, HMAC-SHA1 is not broken; it is never used
//! unless an administrator asks for it.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_base::store::Secret;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use http::{Method, Uri};
use ring::hmac;

/// Signs requests with one key.
#[derive(Debug)]
pub(super) struct Signer {
    /// The public half of the key.
    pub access_key_id: String,
    /// The other half.
    pub secret_key: Secret,
}

impl Signer {
    /// Adds `Date` and `Authorization` to the headers of a request; `wall_s` is the time, seconds since 1970.
    pub fn sign(&self, method: &Method, uri: &Uri, headers: &mut HeaderMap, wall_s: i64) {
        let date = http_date(wall_s);
        let value = self.authorization(&text_to_sign(method, uri, headers, &date));
        // An access key id that is no header value is refused when the store is opened.
        if let (Ok(date), Ok(mut value)) = (HeaderValue::from_str(&date), HeaderValue::from_str(&value)) {
            value.set_sensitive(true);
            headers.insert(DATE, date);
            headers.insert(AUTHORIZATION, value);
        }
    }

    fn authorization(&self, text: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.secret_key.0.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
        format!("AWS {}:{signature}", self.access_key_id)
    }
}

/// Method, Content-MD5, Content-Type, Date, the headers of Amazon in order, and the path as it goes over the line. Of a
/// query only sub-resources are signed, and none of the requests made here has any.
fn text_to_sign(method: &Method, uri: &Uri, headers: &HeaderMap, date: &str) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (md5, kind) = (header("content-md5"), header(CONTENT_TYPE.as_str()));
    let mut text = format!("{method}\n{md5}\n{kind}\n{date}\n");
    let mut ours: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-amz-"))
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default().trim()))
        .collect();
    ours.sort_unstable();
    for (name, value) in ours {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(uri.path());
    text
}

/// The last second that HTTP can write.
const END_OF_9999_S: u64 = 253_402_300_799;

/// A moment as HTTP writes it.
pub(super) fn http_date(wall_s: i64) -> String {
    let since = u64::try_from(wall_s).unwrap_or(0).min(END_OF_9999_S);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(since))
}

#[cfg(test)]
mod tests {
    use super::{Signer, http_date, text_to_sign};
    use braid_base::store::Secret;
    use http::header::{HeaderMap, HeaderValue};
    use http::{Method, Uri};

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    /// The example of Amazon's documentation ("Object GET"), with the bucket in the path; it writes the zone in numbers.
    #[test]
    fn the_example_of_the_documentation_is_signed_so() {
        let signer = Signer {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
        };
        let mut headers = HeaderMap::new();
        let uri = Uri::from_static("http://s3.example.org/awsexamplebucket1/photos/puppy.jpg");
        let text = text_to_sign(&Method::GET, &uri, &headers, "Tue, 27 Mar 2007 19:36:42 +0000");
        assert_eq!(signer.authorization(&text), "AWS AKIAIOSFODNN7EXAMPLE:qgk2+6Sv9/oM7G3qLEjTH1a1l1g=");
        signer.sign(&Method::GET, &uri, &mut headers, 1_175_024_202);
        assert_eq!(headers["date"], "Tue, 27 Mar 2007 19:36:42 GMT");
        assert!(headers.contains_key("authorization"));
        assert!(!format!("{headers:?}").contains("AWS"), "signatures are not printed");
    }

    #[test]
    fn headers_of_amazon_are_signed_in_order() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-storage-class", HeaderValue::from_static(" COLD "));
        headers.insert("x-amz-checksum-sha256", HeaderValue::from_static("sum"));
        headers.insert("content-type", HeaderValue::from_static("a/b"));
        headers.insert("content-length", HeaderValue::from_static("3"));
        let uri = Uri::from_static("http://s3/cold/k%2B1?list-type=2");
        let expected = "PUT\n\na/b\nnow\nx-amz-checksum-sha256:sum\nx-amz-storage-class:COLD\n/cold/k%2B1";
        assert_eq!(text_to_sign(&Method::PUT, &uri, &headers, "now"), expected);
    }
}
