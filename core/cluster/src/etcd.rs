//! The coordinator of many machines: etcd, asked over its JSON gateway (decision 18).
//!
//! Every call goes to one member and, if that cannot have taken it, to the next. What may have been taken and was not
//! answered is repeated if that does no harm; a transaction is not: its result is unknown, which is `TimedOut`. A host
//! that no member takes a connection from asks by way of another host ([`Detour`], decision 55).

mod message;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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

/// After another host had to ask, it is asked so often until the members are tried again: that takes seconds, and whoever
/// asks meanwhile should not wait for it.
const AROUND: usize = 20;
/// Longest answer that is passed on to another host, bytes: it goes as one message among others.
const PASSED_ON_MAX: usize = 8 << 20;
/// What a host asks for another one.
const ASKED_FOR_OTHERS: [&str; 5] = [RANGE, TXN, "lease/grant", "lease/keepalive", "lease/revoke"];
const RANGE: &str = "kv/range";
const TXN: &str = "kv/txn";

/// The way by another host: path below `/v3/`, body, and whether it may be asked again if the result is unknown; to the
/// body of the answer. `Io`: it was not taken. Blocks.
pub type Detour = Box<dyn Fn(&str, &str, bool) -> Result<String> + Send + Sync>;

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
    detour: OnceLock<Detour>,
    /// So many questions go to others before the members are tried again.
    around: AtomicUsize,
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
enum Tried {
    Answered(String),
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
        let (agent, current, root) = (config.into(), AtomicUsize::new(0), root.to_owned());
        let (detour, around) = (OnceLock::new(), AtomicUsize::new(0));
        let shared = Shared { agent, endpoints: trimmed, current, root, detour, around };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// If no member takes a connection, `by` is asked from now on. The first one that is named stays.
    pub fn detour(&self, by: Detour) {
        let _ = self.shared.detour.set(by);
    }

    /// True if others are asked, because no member took a connection.
    pub fn is_asked_by_others(&self) -> bool {
        self.shared.around.load(Ordering::Relaxed) > 0
    }

    /// Asks the members for another host: path below `/v3/` and body, to the body of the answer. `NotPermitted`: hosts ask
    /// for nothing of that kind.
    pub fn ask_for_another(&self, path: &str, body: &str) -> Result<String> {
        if !ASKED_FOR_OTHERS.contains(&path) {
            let words = format!("hosts do not ask etcd for '{path}'");
            return Err(Error::new(ErrorKind::NotPermitted, words));
        }
        let repeat = if path == TXN { Repeat::Never } else { Repeat::Harmless };
        let text = self.shared.members(path, body, repeat, self.shared.endpoints.len())?;
        // A read: what changes something is answered in a few words.
        if text.len() > PASSED_ON_MAX {
            let words = format!("etcd says {} bytes: too many to pass on", text.len());
            return Err(Error::new(ErrorKind::Io, words));
        }
        Ok(text)
    }
}

impl Shared {
    fn call<A: DeserializeOwned>(&self, path: &str, body: &impl Serialize, repeat: Repeat) -> Result<A> {
        let body = serde_json::to_string(body).map_err(|error| invalid(error.to_string()))?;
        let text = self.ask(path, &body, repeat)?;
        serde_json::from_str(&text).map_err(|error| not_etcd("etcd", &error))
    }

    /// Asks the members, or others if those cannot be reached.
    fn ask(&self, path: &str, body: &str, repeat: Repeat) -> Result<String> {
        let Some(detour) = self.detour.get() else { return self.members(path, body, repeat, self.endpoints.len()) };
        let others = || match detour(path, body, repeat == Repeat::Harmless) {
            Err(error) if error.kind() == ErrorKind::Io => None,
            answer => Some(answer),
        };
        let counts = |left: usize| left.checked_sub(1).map(|less| if less == 0 { AROUND } else { less });
        let left = self.around.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counts).unwrap_or_default();
        let others_first = left > 1;
        if others_first && let Some(answer) = others() {
            return answer;
        }
        // Whoever looks whether the members can be reached again tries one of them.
        let most = if left == 1 { 1 } else { self.endpoints.len() };
        match self.members(path, body, repeat, most) {
            Err(error) if error.kind() == ErrorKind::Io && others_first => Err(error),
            Err(error) if error.kind() == ErrorKind::Io => {
                let Some(answer) = others() else { return Err(error) };
                if self.around.swap(AROUND, Ordering::Relaxed) == 0 {
                    tracing::warn!("etcd is asked by way of other hosts, this one cannot reach it: {error}");
                }
                answer
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
            answer => {
                if self.around.swap(0, Ordering::Relaxed) > 0 {
                    tracing::info!("this host reaches etcd again");
                }
                answer
            }
        }
    }

    /// Asks `most` members in turn, the one that answered last first. `Io`: none has taken it, or it may be asked again.
    fn members(&self, path: &str, body: &str, repeat: Repeat, most: usize) -> Result<String> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.endpoints.len());
        let mut why = Vec::new();
        for turn in 0..most {
            let which = (first + turn) % count;
            let endpoint = &self.endpoints[which];
            match self.try_one(endpoint, path, body)? {
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
        self.current.store((first + most) % count, Ordering::Relaxed);
        let text = format!("etcd does not answer, start its members or name others ({})", why.join("; "));
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Asks one member; an error is its answer.
    fn try_one(&self, endpoint: &str, path: &str, body: &str) -> Result<Tried> {
        let request = self.agent.post(format!("{endpoint}/v3/{path}")).content_type("application/json");
        let sent = request.config().timeout_global(Some(CALL_WAIT)).build().send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) if was_not_sent(&error) => return Ok(Tried::Refused(error.to_string())),
            Err(error) => return Ok(Tried::Unknown(error.to_string())),
        };
        let is_ok = response.status().is_success();
        let text = match response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string() {
            Ok(text) => text,
            Err(error) => return Ok(Tried::Unknown(error.to_string())),
        };
        if is_ok {
            return Ok(Tried::Answered(text));
        }
        let failure: Failure = serde_json::from_str(&text).map_err(|error| not_etcd(endpoint, &error))?;
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
        let found: Ranged = shared.call(RANGE, &message::Range::of(shared.key(key)), Repeat::Harmless)?;
        found.kvs.into_iter().next().map(|found| shared.item(found)).transpose()
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        let shared = &self.shared;
        let found: Ranged = shared.call(RANGE, &message::Range::below(&shared.key(prefix)), Repeat::Harmless)?;
        let items = found.kvs.into_iter().map(|found| shared.item(found)).collect::<Result<_>>()?;
        Ok(Listing { items, revision: found.header.revision() })
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        txn.validate()?;
        let Some(request) = Transaction::of(txn, &|key| self.shared.key(key)) else { return Ok(Outcome::Conflict) };
        let done: Transacted = self.shared.call(TXN, &request, Repeat::Never)?;
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
