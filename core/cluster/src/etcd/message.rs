//! What etcd's gateway is asked and answers: JSON with bytes in base64, 64-bit numbers as text, zeros left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::corrupt;
use crate::coordinator::{Check, Event, Item, Revision, SessionId, Txn};

/// A 64-bit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Number(pub u64);

impl TryFrom<String> for Number {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<Number> for String {
    fn from(number: Number) -> Self {
        number.0.to_string()
    }
}

/// Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Bytes(pub Vec<u8>);

impl TryFrom<String> for Bytes {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        STANDARD.encode(bytes.0)
    }
}

/// The end of the keys that begin with `prefix`; of all keys it is a zero.
fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of a text is the highest there is.
        Some(last) => *last += 1,
        None => end.push(0),
    }
    Bytes(end)
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default)]
    revision: Number,
}

impl Header {
    pub fn revision(&self) -> Revision {
        Revision(self.revision.0)
    }
}

#[derive(Serialize)]
pub(super) struct Range {
    key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Bytes>,
}

impl Range {
    pub fn of(key: String) -> Self {
        Self { key: Bytes(key.into_bytes()), range_end: None }
    }

    pub fn below(prefix: &str) -> Self {
        // No key is empty.
        let first = if prefix.is_empty() { "\0" } else { prefix };
        Self { range_end: Some(end_of(prefix)), ..Self::of(first.to_owned()) }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Ranged {
    #[serde(default)]
    pub header: Header,
    #[serde(default)]
    pub kvs: Vec<Found>,
}

/// A key and its value.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Found {
    #[serde(default)]
    key: Bytes,
    #[serde(default)]
    value: Bytes,
    #[serde(default)]
    create_revision: Number,
    #[serde(default)]
    mod_revision: Number,
}

impl Found {
    /// With the whole key.
    pub fn item(self) -> Result<Item> {
        let (created, modified) = (Revision(self.create_revision.0), Revision(self.mod_revision.0));
        let key = String::from_utf8(self.key.0);
        let key = key.map_err(|_| corrupt("etcd: a key in UTF-8 expected, found other bytes".to_owned()))?;
        Ok(Item { key, value: self.value.0, created, modified })
    }
}

#[derive(Serialize)]
pub(super) struct Transaction {
    compare: Vec<Compare>,
    success: Vec<Change>,
}

#[derive(Serialize)]
struct Compare {
    key: Bytes,
    result: &'static str,
    #[serde(flatten)]
    target: Target,
}

#[derive(Serialize)]
#[serde(tag = "target", rename_all = "UPPERCASE")]
enum Target {
    Version { version: Number },
    Create { create_revision: Number },
    Mod { mod_revision: Number },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    RequestPut { key: Bytes, value: Bytes, lease: Number },
    RequestDeleteRange { key: Bytes },
}

impl Transaction {
    /// `txn` with keys as `whole` makes them; `None` if it asks for a revision that no key has.
    pub fn of(txn: &Txn, whole: &dyn Fn(&str) -> String) -> Option<Self> {
        let whole = |key: &str| Bytes(whole(key).into_bytes());
        let mut compare = Vec::with_capacity(txn.compares.len());
        for (key, check) in &txn.compares {
            let target = match check {
                Check::Absent => Target::Version { version: Number(0) },
                // etcd holds that a key which is not there has revision 0.
                Check::Modified(Revision(0)) | Check::Created(Revision(0)) => return None,
                Check::Modified(at) => Target::Mod { mod_revision: Number(at.0) },
                Check::Created(at) => Target::Create { create_revision: Number(at.0) },
            };
            compare.push(Compare { key: whole(key), result: "EQUAL", target });
        }
        let puts = txn.puts.iter().map(|put| Change::RequestPut {
            key: whole(&put.key),
            value: Bytes(put.value.clone()),
            lease: Number(put.session.map_or(0, |session| session.0)),
        });
        let deletes = txn.deletes.iter().map(|key| Change::RequestDeleteRange { key: whole(key) });
        Some(Self { compare, success: puts.chain(deletes).collect() })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Transacted {
    #[serde(default)]
    pub header: Header,
    #[serde(default)]
    pub succeeded: bool,
}

#[derive(Serialize)]
pub(super) struct Lease {
    #[serde(rename = "ID")]
    id: Number,
    #[serde(rename = "TTL")]
    ttl: Number,
}

impl Lease {
    /// etcd counts whole seconds.
    pub fn lasting(ttl_ms: u64) -> Self {
        Self { id: Number(0), ttl: Number(ttl_ms.div_ceil(1_000).max(1)) }
    }

    pub fn number(session: SessionId) -> Self {
        Self { id: Number(session.0), ttl: Number(0) }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Granted {
    #[serde(rename = "ID")]
    pub id: Number,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeepAlive {
    #[serde(default)]
    pub result: Option<Prolonged>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Prolonged {
    /// Left out if the lease has ended.
    #[serde(rename = "TTL", default)]
    pub ttl: Option<Number>,
}

/// An answer that says nothing but that all is well.
#[derive(Debug, Deserialize)]
pub(super) struct Unused {}

/// An error of etcd: the number is gRPC's.
#[derive(Debug, Deserialize)]
pub(super) struct Failure {
    code: u32,
    #[serde(default)]
    message: String,
}

impl Failure {
    /// The error of who asked, or that nobody knows what became of the request, and why.
    pub fn meaning(self) -> Result<String> {
        const CANCELLED_UNKNOWN_LATE_ABORTED_INTERNAL_UNAVAILABLE: [u32; 6] = [1, 2, 4, 10, 13, 14];
        if CANCELLED_UNKNOWN_LATE_ABORTED_INTERNAL_UNAVAILABLE.contains(&self.code) {
            return Ok(self.message);
        }
        let kind = match self.code {
            5 if self.message.contains("lease not found") => ErrorKind::Stale,
            7 | 16 => ErrorKind::AccessDenied,
            8 if self.message.contains("space") => ErrorKind::NoSpace,
            8 => ErrorKind::Busy,
            _ => ErrorKind::Invalid,
        };
        Err(Error::new(kind, format!("etcd: {}", self.message)))
    }
}

#[derive(Serialize)]
pub(super) struct BeginWatch {
    create_request: CreateWatch,
}

#[derive(Serialize)]
struct CreateWatch {
    #[serde(flatten)]
    range: Range,
    start_revision: Number,
}

impl BeginWatch {
    pub fn below(prefix: &str, from: Revision) -> Self {
        Self { create_request: CreateWatch { range: Range::below(prefix), start_revision: Number(from.0) } }
    }
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    #[serde(default)]
    pub result: Option<Told>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Told {
    #[serde(default)]
    pub header: Header,
    /// The first line: the header shows what the member has then.
    #[serde(default)]
    pub created: bool,
    #[serde(default)]
    pub canceled: bool,
    #[serde(default)]
    pub compact_revision: Number,
    #[serde(default)]
    pub events: Vec<Changed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Changed {
    /// Left out for a put.
    #[serde(rename = "type", default)]
    kind: String,
    kv: Found,
}

impl Changed {
    /// `item` makes an item of what was found.
    pub fn event(self, item: &dyn Fn(Found) -> Result<Item>) -> Result<Event> {
        let is_delete = self.kind == "DELETE";
        let item = item(self.kv)?;
        Ok(Event { revision: item.modified, key: item.key.clone(), item: (!is_delete).then_some(item) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_behind_all_that_begins_with_them() {
        assert_eq!(end_of("fs/"), Bytes(b"fs0".to_vec()));
        assert_eq!(end_of(""), Bytes(vec![0]));
    }

    #[test]
    fn what_etcd_says_is_read_whatever_it_leaves_out() {
        let found: Ranged = serde_json::from_str(
            r#"{"header":{"cluster_id":"1","revision":"9"},"kvs":[{"key":"YQ==","mod_revision":"7"}],"count":"1"}"#,
        )
        .expect("an answer");
        assert_eq!(found.header.revision(), Revision(9));
        let item = found.kvs.into_iter().next().expect("one").item().expect("text");
        assert_eq!((item.key.as_str(), item.value.len(), item.modified), ("a", 0, Revision(7)));
        let kept: KeepAlive = serde_json::from_str(r#"{"result":{"header":{},"ID":"5"}}"#).expect("an answer");
        assert!(kept.result.is_some_and(|kept| kept.ttl.is_none()), "the lease is gone");
        let line: Line = serde_json::from_str(
            r#"{"result":{"header":{},"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"8"}}]}}"#,
        )
        .expect("a line");
        let changed = line.result.and_then(|told| told.events.into_iter().next()).expect("an event");
        let event = changed.event(&Found::item).expect("an event");
        assert_eq!((event.revision, event.item), (Revision(8), None));
    }

    #[test]
    fn errors_say_whether_the_result_is_known() {
        let failure = |code, message: &str| Failure { code, message: message.to_owned() }.meaning();
        let kind = |code, message| failure(code, message).map_err(|error| error.kind());
        assert!(kind(14, "etcdserver: leader changed").is_ok());
        assert!(kind(4, "context deadline exceeded").is_ok());
        assert_eq!(kind(5, "etcdserver: requested lease not found"), Err(ErrorKind::Stale));
        assert_eq!(kind(8, "etcdserver: mvcc: database space exceeded"), Err(ErrorKind::NoSpace));
        assert_eq!(kind(8, "etcdserver: too many requests"), Err(ErrorKind::Busy));
        assert_eq!(kind(3, "etcdserver: duplicate key given in txn request"), Err(ErrorKind::Invalid));
    }
}
