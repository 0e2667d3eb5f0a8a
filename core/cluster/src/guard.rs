//! Stands before etcd on each host: nobody here follows an etcd that has gone back (K11).
//!
//! 1. All that is read is compared with what this host has seen ([`Kept::judge`]); what it has seen is kept in a file.
//! 2. Whoever meets an etcd that has gone back puts `fence` there. Every change that comes through a guard asks that there
//!    is none, and that the incarnation is the one that was seen: so also those who have seen little, a host that was away
//!    for long, take no partition by what is old.
//! 3. A recovery begins another incarnation, takes the fence away, and the guards go on.
//!
//! A host that is in no cluster yet has seen nothing: its guard lets everything pass.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::ids::Guid;
use braid_base::{Error, ErrorKind, Result};

use crate::coordinator::{Check, Coordinator, Item, Listing, Outcome, Revision, SessionId, Txn, Watch};
use crate::facts::{Cluster, Fence, Incarnation};
use crate::kept::{self, Floors, Kept, Verdict};
use crate::records;

/// Time between two writes of the file, at least.
const WRITE_REST: Duration = Duration::from_secs(1);
/// The file is written again when nothing but the revision has moved so far.
const REVISIONS_MAX: u64 = 64;

/// What a host goes by.
pub struct Terms {
    /// Where it keeps what it has seen.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// The cluster that it belongs to, if it is in one.
    pub cluster: Option<Guid>,
    /// What its replicas have seen.
    pub floors: Floors,
}

/// A coordinator that does not go back.
pub struct Guard {
    inner: Arc<dyn Coordinator>,
    terms: Terms,
    seen: Mutex<Seen>,
    keeper: Sender<Arc<Kept>>,
}

#[derive(Clone)]
struct Seen {
    /// None before this host was in a cluster.
    cluster: Option<Guid>,
    kept: Arc<Kept>,
    /// The highest revision that any answer named.
    revision: Revision,
    /// When the incarnation's record was put, if it was ever.
    begun: Option<Revision>,
    /// What was read last had gone back, or was fenced.
    refuses: bool,
}

impl Guard {
    /// Before `inner`. `Corrupt` if the file is damaged.
    pub fn new(inner: Arc<dyn Coordinator>, terms: Terms) -> Result<Self> {
        let kept = Kept::read(&terms.path).unwrap_or_else(|error| {
            // It is made anew. What the replicas have seen is a floor all the same.
            tracing::warn!("{error}");
            None
        });
        let known = kept.as_ref().map(|kept| kept.record::<Cluster>(Cluster::KEY)).transpose()?.flatten();
        let (cluster, kept) = (terms.cluster.or(known.map(|cluster| cluster.guid)), kept.unwrap_or_default());
        let seen = Seen { cluster, revision: kept.revision, begun: None, refuses: false, kept: Arc::new(kept) };
        let (keeper, told) = mpsc::channel();
        let (path, last) = (terms.path.clone(), Arc::clone(&seen.kept));
        let thread = std::thread::Builder::new().name("etcd-backup".to_owned()).spawn(move || keep(&path, last, &told));
        thread.map_err(|error| Error::os("start a thread", &error))?;
        Ok(Self { inner, terms, seen: Mutex::new(seen), keeper })
    }

    /// Has etcd gone back, as far as is known?
    pub fn refuses(&self) -> bool {
        self.seen().refuses
    }

    /// What was seen last.
    pub fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.seen().kept)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an answer to a question that was put when `before` was seen; false if it is older than that.
    fn note(&self, before: &Seen, revision: Revision) -> bool {
        let mut seen = self.seen();
        seen.revision = seen.revision.max(revision);
        before.cluster.is_none() || revision >= before.revision
    }

    /// Reads everything, and compares.
    fn look(&self) -> Result<Listing> {
        let before = self.seen().clone();
        let found = self.inner.range("")?;
        self.judge(&before, &found)?;
        Ok(found)
    }

    /// May what `found` says be followed? It was asked for when `before` was seen.
    fn judge(&self, before: &Seen, found: &Listing) -> Result<()> {
        let Some(cluster) = before.cluster else {
            return self.take(None, found);
        };
        match before.kept.judge(before.revision, cluster, &self.terms.floors, found)? {
            Verdict::Later => {}
            Verdict::Another(there) => {
                let words = format!("this host is of cluster {cluster}, at this etcd is {there}: see --etcd");
                return Err(Error::new(ErrorKind::Refused, words));
            }
            Verdict::Older(why) => {
                self.seen().refuses = true;
                let fence = Fence { reason: why, by: self.terms.name.clone() };
                let there = kept::record::<Fence>(&found.items, Fence::KEY)?;
                if there.is_none() {
                    // Who was faster has said the same.
                    let txn = Txn::new().when(Fence::KEY, Check::Absent).put(Fence::KEY, records::encode(&fence)?);
                    self.inner.txn(&txn)?;
                }
                return Err(refusal(&fence));
            }
        }
        if let Some(fence) = kept::record::<Fence>(&found.items, Fence::KEY)? {
            self.seen().refuses = true;
            return Err(refusal(&fence));
        }
        self.take(Some(cluster), found)
    }

    /// Goes by `found` from now on, unless something newer came meanwhile.
    fn take(&self, cluster: Option<Guid>, found: &Listing) -> Result<()> {
        let there = kept::record::<Cluster>(&found.items, Cluster::KEY)?;
        let Some(there) = there.filter(|_| cluster.is_some()) else { return Ok(()) };
        let fresh = Kept::of(found)?;
        let mut seen = self.seen();
        let is_later = fresh.incarnation.number > seen.kept.incarnation.number;
        if !is_later && (fresh.incarnation != seen.kept.incarnation || fresh.revision < seen.kept.revision) {
            return Ok(());
        }
        (seen.cluster, seen.refuses) = (Some(there.guid), false);
        seen.revision = if is_later { fresh.revision } else { seen.revision.max(fresh.revision) };
        let begun = found.items.iter().find(|item| item.key == Incarnation::KEY);
        seen.begun = begun.map(|item| item.modified);
        seen.kept = Arc::new(fresh);
        // It ends with the process only.
        let _ = self.keeper.send(Arc::clone(&seen.kept));
        Ok(())
    }

    /// The host is in the cluster `guid` from now on.
    pub fn joined(&self, guid: Guid) -> Result<()> {
        self.seen().cluster.get_or_insert(guid);
        self.look().map(drop)
    }

    /// Another host has seen `revision` in `incarnation`, before this is called: has etcd gone back since? `Refused` then.
    pub fn heard(&self, incarnation: u64, revision: Revision) -> Result<()> {
        {
            let mut seen = self.seen();
            if seen.kept.incarnation.number == incarnation {
                seen.revision = seen.revision.max(revision);
            }
        }
        self.look().map(drop)
    }
}

/// What is said about an etcd that has gone back.
pub fn refusal(fence: &Fence) -> Error {
    let words = format!(
        "etcd was restored from an old copy, or lost its data ({}, says {}): what is served goes on, nothing else \
         changes before `braid cluster recover` is run on a host",
        fence.reason, fence.by
    );
    Error::new(ErrorKind::Refused, words)
}

/// Writes what comes to the file, with a rest between. Ends with the guard.
fn keep(path: &Path, mut last: Arc<Kept>, told: &Receiver<Arc<Kept>>) {
    let mut failed = false;
    while let Ok(mut kept) = told.recv() {
        while let Ok(newer) = told.try_recv() {
            kept = newer;
        }
        let moved = kept.incarnation != last.incarnation || kept.items != last.items;
        if !moved && kept.revision.0 < last.revision.0 + REVISIONS_MAX {
            continue;
        }
        match kept.write(path) {
            Ok(()) => (last, failed) = (kept, false),
            // The next look brings it again.
            Err(_) if failed => {}
            Err(error) => {
                failed = true;
                tracing::warn!("the copy of what etcd holds is not written: {error}");
            }
        }
        // Nothing is lost meanwhile: it waits in the channel.
        let (_rests, rest) = mpsc::channel::<()>();
        let _ = rest.recv_timeout(WRITE_REST);
    }
}

impl Coordinator for Guard {
    fn get(&self, key: &str) -> Result<Option<Item>> {
        // A listing says as of when it is.
        Ok(self.range(key)?.items.into_iter().find(|item| item.key == key))
    }

    fn range(&self, prefix: &str) -> Result<Listing> {
        if prefix.is_empty() {
            return self.look();
        }
        let before = self.seen().clone();
        let found = self.inner.range(prefix)?;
        if self.note(&before, found.revision) {
            return Ok(found);
        }
        self.look()?;
        self.inner.range(prefix)
    }

    fn txn(&self, txn: &Txn) -> Result<Outcome> {
        for _ in 0..2 {
            let before = self.seen().clone();
            let mut guarded = txn.clone();
            if before.cluster.is_some() {
                let begun = before.begun.map_or(Check::Absent, Check::Modified);
                guarded = guarded.when(Fence::KEY, Check::Absent).when(Incarnation::KEY, begun);
            }
            match self.inner.txn(&guarded)? {
                Outcome::Done(revision) => {
                    if !self.note(&before, revision) {
                        self.look()?;
                    }
                    return Ok(Outcome::Done(revision));
                }
                Outcome::Conflict if before.cluster.is_none() => return Ok(Outcome::Conflict),
                Outcome::Conflict => {
                    self.look()?;
                    if self.seen().begun == before.begun {
                        return Ok(Outcome::Conflict);
                    }
                }
            }
        }
        Ok(Outcome::Conflict)
    }

    fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        self.inner.watch(prefix, from)
    }

    fn session(&self, ttl_ms: u64) -> Result<SessionId> {
        self.inner.session(ttl_ms)
    }

    fn keep_alive(&self, session: SessionId) -> Result<()> {
        self.inner.keep_alive(session)
    }

    fn end_session(&self, session: SessionId) -> Result<()> {
        self.inner.end_session(session)
    }
}
