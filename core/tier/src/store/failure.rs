//! Why a request failed: what the server said or the line did, as an error of Braid with a likely cause.

use std::fmt;

use braid_base::{Error, ErrorKind};
use http::HeaderMap;
use http::header::DATE;

/// Longest part of a server's own words that is passed on, bytes.
const WORDS_MAX: usize = 200;

/// A failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What the caller gets.
    pub error: Error,
    /// What the server answered: none if nothing came.
    pub answer: Option<Answer>,
}

/// The status of an answer and the store's own name for what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status.
    pub status: u16,
    /// For example `NoSuchKey`; empty: the answer had none.
    pub code: String,
}

/// What is spoken to, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// `bucket` or `container`.
    pub noun: &'static str,
    /// Its name.
    pub name: String,
    /// Protocol, host and port of its server.
    pub server: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' at {}", self.noun, self.name, self.server)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl Answer {
    /// Is it the bucket that is missing, not an object in it?
    pub fn names_no_bucket(&self) -> bool {
        matches!(self.code.as_str(), "NoSuchBucket" | "ContainerNotFound" | "NoSuchDirectory" | "ContainerBeingDeleted")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        if self.code.is_empty() { Ok(()) } else { write!(f, " {}", self.code) }
    }
}

impl Failure {
    /// Nothing came from the server: `error` says why.
    pub fn of_line(kind: ErrorKind, message: String) -> Self {
        Self { error: Error::new(kind, message), answer: None }
    }

    /// The server answered with a status that is no success.
    pub fn of_answer(target: &Target, request: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        // Azure names the code in a header too, and answers to HEAD have no body.
        let header = ["x-ms-error-code", "x-amz-error-code"].iter().find_map(|name| headers.get(*name)?.to_str().ok());
        let code = element(&body, "Code").or(header).unwrap_or_default();
        let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(WORDS_MAX).collect();
        let words = element(&body, "Message").unwrap_or_default();
        let date = headers.get(DATE).and_then(|date| date.to_str().ok()).unwrap_or("unknown");
        let answer = Answer { status, code };
        let (kind, sentence) = judge(target, &answer, words, date);
        let message = format!("{request}: {sentence} ({answer}{})", quoted(words));
        Self { error: Error::new(kind, message), answer: Some(answer) }
    }

    /// The failure that lies at the bottom of another library's error, if it came from here.
    pub fn inside<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut at = Some(error);
        while let Some(error) = at {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            at = error.source();
        }
        None
    }
}

/// The kind for the caller and the sentence for people.
fn judge(target: &Target, answer: &Answer, words: &str, date: &str) -> (ErrorKind, String) {
    let code = answer.code.as_str();
    if answer.status == 507 || (answer.status == 403 && speaks_of_quota(code, words)) {
        let sentence = format!("{target} takes no more data: its quota is used up; raise it or remove objects");
        return (ErrorKind::Quota, sentence);
    }
    by_code(target, code, date).unwrap_or_else(|| by_status(target, answer.status))
}

fn speaks_of_quota(code: &str, words: &str) -> bool {
    let text = format!("{code} {words}").to_ascii_lowercase();
    ["quota", "insufficientcapacity", "capacity exceeded", "storage limit"].iter().any(|word| text.contains(word))
}

/// Codes that say more than their status.
fn by_code(target: &Target, code: &str, date: &str) -> Option<(ErrorKind, String)> {
    let Target { noun, server, .. } = target;
    let denied = |sentence: String| Some((ErrorKind::AccessDenied, sentence));
    match code {
        "NoSuchKey" | "BlobNotFound" => Some((ErrorKind::NotFound, format!("no such object in {target}"))),
        "NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted" => {
            let advice = format!("create the {noun}, or correct its name (upper and lower case differ)");
            Some((ErrorKind::NotFound, format!("{target} does not exist; {advice}")))
        }
        "SignatureDoesNotMatch" | "AuthenticationFailed" => denied(format!(
            "{server} does not accept the signature: the secret is wrong, or the way of signing or the region is; or \
             the clocks differ (there it is {date}, here {})",
            super::sign2::http_date(braid_io::clock::now().wall.sec)
        )),
        // The last is what versitygw says, with 404: no object must be taken for removed because of it.
        "InvalidAccessKeyId"
        | "NotSignedUp"
        | "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "XAdminUserNotFound" => {
            denied(format!("{server} does not know the access key id: correct it, or create the key there"))
        }
        "RequestTimeTooSkewed" | "RequestExpired" | "ExpiredToken" => denied(format!(
            "the clocks of this host and of {server} differ too much (there it is {date}, here {}): synchronise them \
             (NTP)",
            super::sign2::http_date(braid_io::clock::now().wall.sec)
        )),
        "AuthorizationHeaderMalformed" | "InvalidRegion" | "IllegalLocationConstraintException" => {
            Some((ErrorKind::Refused, format!("{server} serves another region: correct the region of the store")))
        }
        "PermanentRedirect" | "TemporaryRedirect" => {
            let advice = "give the host name and the region where it is";
            Some((ErrorKind::Refused, format!("{target} is served elsewhere: {advice}")))
        }
        "InvalidBucketName" | "InvalidResourceName" => {
            Some((ErrorKind::Refused, format!("{server} takes no {noun} of this name: correct it")))
        }
        "InvalidStorageClass" => {
            Some((ErrorKind::Refused, format!("{target} has no such storage class: name another, or none")))
        }
        "BadDigest"
        | "XAmzContentChecksumMismatch"
        | "XAmzContentSHA256Mismatch"
        | "InvalidDigest"
        | "Md5Mismatch"
        | "IncompleteBody" => {
            Some((ErrorKind::Io, format!("the bytes that reached {server} are not those that were sent: send again")))
        }
        "RequestTimeout" => Some((ErrorKind::TimedOut, format!("{server} waited too long for the bytes"))),
        "SlowDown" | "ServerBusy" | "Throttling" | "ThrottlingException" | "RequestLimitExceeded" => {
            Some((ErrorKind::TimedOut, format!("{server} asks for fewer requests at a time")))
        }
        "OperationAborted" | "OperationTimedOut" => {
            Some((ErrorKind::TimedOut, format!("{server} gave up the request: repeat it")))
        }
        "InvalidRange" => Some((ErrorKind::Range, "the object ends before the range that was asked for".to_owned())),
        _ => None,
    }
}

fn by_status(target: &Target, status: u16) -> (ErrorKind, String) {
    let server = &target.server;
    match status {
        404 | 410 => (ErrorKind::NotFound, format!("no such object in {target}, or no such {}", target.noun)),
        401 | 403 => {
            let advice = "the key must be allowed to read, write and delete there";
            (ErrorKind::AccessDenied, format!("{target} refuses access: {advice}"))
        }
        416 => (ErrorKind::Range, "the object ends before the range that was asked for".to_owned()),
        408 | 429 | 503 => (ErrorKind::TimedOut, format!("{server} is too busy, or asks for fewer requests at a time")),
        504 => (ErrorKind::TimedOut, format!("the server behind {server} did not answer in time")),
        409 | 500..=599 => (ErrorKind::Io, format!("{server} failed")),
        300..=399 => {
            let advice = "give the host name, protocol and region where it is";
            (ErrorKind::Refused, format!("{target} is served elsewhere: {advice}"))
        }
        _ => {
            let advice = "check protocol, port, way of signing and name";
            (ErrorKind::Refused, format!("{server} does not take the request: {advice}"))
        }
    }
}

/// A server's own words, cut and in one line; whatever else it sends (it may repeat what was signed) stays out.
fn quoted(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default().trim();
    let cut: String = line.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect();
    if cut.is_empty() { cut } else { format!(": {cut}") }
}

/// The text of the first element `name` of a short XML answer.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let start = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let rest = &xml[start..];
    Some(rest[..rest.find(&format!("</{name}>"))?].trim())
}

#[cfg(test)]
mod tests {
    use super::{Failure, Target};
    use braid_base::ErrorKind;
    use http::HeaderMap;

    fn of(status: u16, body: &str) -> Failure {
        let target = Target { noun: "bucket", name: "cold".into(), server: "http://s3:9000".into() };
        Failure::of_answer(&target, "GET x", status, &HeaderMap::new(), body.as_bytes())
    }

    fn error(code: &str) -> String {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>words of the store</Message></Error>")
    }

    #[test]
    fn codes_and_statuses_have_their_kinds() {
        let table = [
            (404, "NoSuchKey", ErrorKind::NotFound, "no such object"),
            (404, "NoSuchBucket", ErrorKind::NotFound, "'cold' at http://s3:9000 does not exist"),
            (404, "ContainerNotFound", ErrorKind::NotFound, "upper and lower case"),
            (404, "", ErrorKind::NotFound, "or no such bucket"),
            (403, "SignatureDoesNotMatch", ErrorKind::AccessDenied, "secret is wrong"),
            (403, "InvalidAccessKeyId", ErrorKind::AccessDenied, "access key id"),
            (404, "XAdminUserNotFound", ErrorKind::AccessDenied, "access key id"),
            (403, "RequestTimeTooSkewed", ErrorKind::AccessDenied, "clocks"),
            (403, "AccessDenied", ErrorKind::AccessDenied, "refuses access"),
            (403, "QuotaExceeded", ErrorKind::Quota, "quota is used up"),
            (507, "", ErrorKind::Quota, "quota is used up"),
            (503, "SlowDown", ErrorKind::TimedOut, "fewer requests"),
            (503, "", ErrorKind::TimedOut, "too busy"),
            (429, "", ErrorKind::TimedOut, "too busy"),
            (500, "InternalError", ErrorKind::Io, "failed"),
            (416, "InvalidRange", ErrorKind::Range, "ends before"),
            (400, "BadDigest", ErrorKind::Io, "send again"),
            (301, "PermanentRedirect", ErrorKind::Refused, "elsewhere"),
            (400, "AuthorizationHeaderMalformed", ErrorKind::Refused, "region"),
            (405, "MethodNotAllowed", ErrorKind::Refused, "does not take"),
        ];
        for (status, code, kind, words) in table {
            let found = of(status, &if code.is_empty() { String::new() } else { error(code) });
            assert_eq!(found.error.kind(), kind, "{status} {code}: {found}");
            assert!(found.error.message().contains(words), "{status} {code}: {found}");
            let answer = found.answer.expect("the server answered");
            assert_eq!((answer.status, answer.code.as_str()), (status, code));
        }
    }

    #[test]
    fn nothing_but_the_message_of_an_answer_is_passed_on() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>no match\nsecond line</Message>\
            <StringToSign>abc</StringToSign><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        let text = format!("{:?}", of(403, body));
        assert!(text.contains("no match"), "{text}");
        assert!(!text.contains("abc") && !text.contains("AKIA") && !text.contains("second"), "{text}");
    }

    #[test]
    fn answers_that_are_no_xml_are_taken_by_their_status() {
        assert_eq!(of(403, "<Code>half").error.kind(), ErrorKind::AccessDenied);
        assert_eq!(of(502, "\u{0}\u{1}\u{fffd}").error.kind(), ErrorKind::Io);
    }
}
