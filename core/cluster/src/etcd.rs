//! The coordinator of many machines: etcd, asked over its JSON gateway (decision 18).
//!
//! Every call goes to one member and, if that cannot have taken it, to the next. What may have been taken and was not
//! answered is repeated if that does no harm; a transaction is not: its result is unknown, which is `TimedOut`.

mod message;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use braid_base::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::coordinator::{Coordinator, Item, Listing, Outcome, Revision, SessionId, Txn, Watch, ended, invalid};
use message::{Failure, Granted, KeepAlive, Lease, Prolonged, Ranged, Transacted, Transaction, Unused};
use watch::EtcdWatch;

/// How long one member may take to accept a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// How long one member may take to answer: an election among them takes 1 to 2 s with etcd's defaults.
const CALL_WAIT: Duration = Duration::from_secs(4);
/// Longest answer, bytes: all facts of a cluster are less than 20 MB (design O2).
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// etcd as the coordinator. Cheap to clone.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<Shared>,
}

struct Shared {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: AtomicUsize,
    /// What all keys begin with: several clusters may share one etcd.
    root: String,
}

/// Whether a request that was perhaps taken may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It changes nothing, or the same again.
    Harmless,
    /// Its result would be taken for that of the first.
    Never,
}

/// What became of a request at one member.
enum Tried<A> {
    Answered(A),
    /// It was not taken.
    Refused(String),
    /// It may have been taken.
    Unknown(String),
}

impl Etcd {
    /// A client of the members at `endpoints` (`http://HOST:PORT`) for keys under `root`. Asks nothing yet.
    ///
    /// `Invalid` if there is none, or one is something else.
    pub fn new(endpoints: &[String], root: &str) -> Result<Self> {
        if endpoints.is_empty() {
            return Err(invalid("at least one address of etcd expected, found none".to_owned()));
        }
        let mut trimmed = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let place = endpoint.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
            let Some(place) = place.filter(|place| !place.is_empty() && !place.contains('/')) else {
                return Err(invalid(format!("an address of etcd like http://HOST:2379 expected, found '{endpoint}'")));
            };
            trimmed.push(format!("http://{place}"));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WAIT))
            // A connection that is kept may have ended unnoticed, and then nobody knows what was taken. Calls are rare.
            .max_idle_connections(0)
            .proxy(None)
            .build();
        let (agent, current) = (config.into(), AtomicUsize::new(0));
        Ok(Self { shared: Arc::new(Shared { agent, endpoints: trimmed, current, root: root.to_owned() }) })
    }
}

impl Shared {
    /// Asks the members in turn, the one that answered last first.
    fn call<A: DeserializeOwned>(&self, path: &str, body: &impl Serialize, repeat: Repeat) -> Result<A> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.endpoints.len());
        let mut why = Vec::new();
        for turn in 0..count {
            let which = (first + turn) % count;
            let endpoint = &self.endpoints[which];
            match self.try_call(endpoint, path, body)? {
                Tried::Answered(answer) => {
                    self.current.store(which, Ordering::Relaxed);
                    return Ok(answer);
                }
                Tried::Unknown(text) if repeat == Repeat::Never => {
                    self.current.store((which + 1) % count, Ordering::Relaxed);
                    let text = format!("etcd at {endpoint} did not say what became of a change: {text}");
                    return Err(Error::new(ErrorKind::TimedOut, text));
                }
                Tried::Refused(text) | Tried::Unknown(text) => why.push(format!("{endpoint}: {text}")),
            }
        }
        let text = format!("etcd does not answer, start its members or name others ({})", why.join("; "));
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Asks one member; an error is its answer.
    fn try_call<A: DeserializeOwned>(&self, endpoint: &str, path: &str, body: &impl Serialize) -> Result<Tried<A>> {
        let request = self.agent.post(format!("{endpoint}/v3/{path}"));
        let sent = request.config().timeout_global(Some(CALL_WAIT)).build().send_json(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) if was_not_sent(&error) => return Ok(Tried::Refused(error.to_string())),
            Err(error) => return Ok(Tried::Unknown(error.to_string())),
        };
        let is_ok = response.status().is_success();
        let text = match response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec() {
            Ok(text) => text,
            Err(error) => return Ok(Tried::Unknown(error.to_string())),
        };
        if is_ok {
            let answer = serde_json::from_slice(&text).map_err(|error| not_etcd(endpoint, &error))?;
            return Ok(Tried::Answered(answer));
        }
        let failure: Failure = serde_json::from_slice(&text).map_err(|error| not_etcd(endpoint, &error))?;
        failure.meaning().map(Tried::Unknown)
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    /// The item in the words of whoever asked for it.
    fn item(&self, found: message::Found) -> Result<Item> {
        let found = found.item()?;
        let key = found.key.strip_prefix(&self.root).map(str::to_owned);
        let key = key.ok_or_else(|| corrupt(format!("a key below {} expected, found {}", self.root, found.key)))?;
        Ok(Item { key, ..found })
    }
}

/// True if the member cannot have seen the request.
fn was_not_sent(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(step) => matches!(step, ureq::Timeout::Resolve | ureq::Timeout::Connect),
        ureq::Error::Io(error) => {
            matches!(error.kind(), AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable)
        }
        _ => false,
    }
}

fn not_etcd(endpoint: &str, error: &serde_json::Error) -> Error {
    corrupt(format!("{endpoint} does not speak like etcd (3.4 or later expected): {error}"))
}

fn corrupt(text: String) -> Error {
    Error::new(ErrorKind::Corrupt, text)
}

impl Coordinator for Etcd {
    fn get(&self, key: &str) -> Result<Option<Item>> {
        let shared = &self.shared;
        let found: Ranged = shared.call("kv/range", &message::Range::of(shared.key(key)), Repeat::Harmless)?;
        found.kvs.into_iter().next().map(|found| shared.item(found)).transpose()
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        let shared = &self.shared;
        let found: Ranged = shared.call("kv/range", &message::Range::below(&shared.key(prefix)), Repeat::Harmless)?;
        let items = found.kvs.into_iter().map(|found| shared.item(found)).collect::<Result<_>>()?;
        Ok(Listing { items, revision: found.header.revision() })
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        txn.validate()?;
        let Some(request) = Transaction::of(txn, &|key| self.shared.key(key)) else { return Ok(Outcome::Conflict) };
        let done: Transacted = self.shared.call("kv/txn", &request, Repeat::Never)?;
        Ok(if done.succeeded { Outcome::Done(done.header.revision()) } else { Outcome::Conflict })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        Ok(Box::new(EtcdWatch::begin(Arc::clone(&self.shared), prefix, from)))
    }

    fn session(&self, ttl_ms: u64) -> Result<SessionId> {
        // One that was granted and not answered for ends by itself.
        let granted: Granted = self.shared.call("lease/grant", &Lease::lasting(ttl_ms), Repeat::Harmless)?;
        Ok(SessionId(granted.id.0))
    }

    fn keep_alive(&self, session: SessionId) -> Result<()> {
        let kept: KeepAlive = self.shared.call("lease/keepalive", &Lease::number(session), Repeat::Harmless)?;
        match kept.result {
            Some(Prolonged { ttl: Some(ttl) }) if ttl.0 > 0 => Ok(()),
            _ => Err(ended(session)),
        }
    }

    fn end_session(&self, session: SessionId) -> Result<()> {
        match self.shared.call::<Unused>("lease/revoke", &Lease::number(session), Repeat::Harmless) {
            Err(error) if error.kind() != ErrorKind::Stale => Err(error),
            _ => Ok(()),
        }
    }
}
