//! Compares what lies in an object store with what the partitions know of it.
//!
//! Partition by partition: 1. its table is read, 2. the keys that begin as its objects' do are listed, 3. what is different
//! is asked of whoever serves it then ([`HostOp::Judge`]), and that host looks for what should be there. Only what the
//! partition does not know, and never will, is removed, if that is asked for.

use std::sync::Arc;

use braid_base::ids::{BlobId, HostId, PartitionId, StoreId, Term};
use braid_base::limits::{JUDGED_MAX, OBJECTS_MAX};
use braid_base::msg::host::{HostOp, HostReply, HostResult, ObjectSeen, Verdict};
use braid_base::msg::job::ObjectKey;
use braid_base::{Error, ErrorKind, Result};
use braid_meta::{Judged, Partition};
use braid_tier::blob::{self, keys};
use braid_tier::{Link, Store};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::objects::HostObjects;
use super::seat_actor::SeatMsg;
use super::setup::Host;
use super::wire::{Switch, wall_ms};

mod compare;
mod look;

use compare::{Compare, Doubt, Finding, There};

/// Keys that are named of each kind, at most.
const NAMED_MAX: usize = 1_000;
/// Objects that are looked for, or removed, at a time.
const AT_ONCE: usize = 16;
/// So many objects of a partition are not all gone at once, without that it is said what is wrong.
const EMPTY_MAX: usize = 16;

/// Objects of one kind that an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// Their bytes, as far as they are known.
    pub bytes: u64,
    /// The keys of the first 1,000.
    pub keys: Vec<String>,
}

impl Found {
    fn add(&mut self, key: String, bytes: u64) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
        if self.keys.len() < NAMED_MAX {
            self.keys.push(key);
        }
    }
}

/// What an audit has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Partitions that are done.
    pub partitions: u16,
    /// Keys that the store has listed.
    pub listed: u64,
    /// Those that are named as objects of this cluster are.
    pub ours: u64,
    /// Those of them that their partition knows.
    pub known: u64,
    /// Those that it does not know.
    pub unknown: Found,
    /// Those of them that the store has had for less than an hour: they are not removed.
    pub young: u64,
    /// Those that are newer than what their partition knows, or of a partition that there is not: never removed.
    pub ahead: Found,
    /// Objects that should be there, and are not.
    pub missing: Found,
    /// Objects with another number of bytes than they should have.
    pub wrong_size: Found,
    /// Objects of which could not be found out how they are.
    pub unsure: u64,
    /// Unknown ones that were removed.
    pub removed: u64,
    /// Keys of other clusters, or that name no object.
    pub foreign: u64,
}

impl Host {
    /// Compares what lies in `store` with what the partitions know; removes what is unknown if `remove` says so. `told`
    /// hears how far it is.
    ///
    /// Errors: `NotFound`: there is no such store. Else why it, or a partition, could not be asked; what was found until then
    /// was told.
    pub async fn audit(&self, store: StoreId, remove: bool, told: &(dyn Fn(&Audited) + Sync)) -> Result<Audited> {
        let link = self.links().try_get(store)?;
        let partitions = self.config.partitions;
        let audit = Audit { switch: Arc::clone(&self.switch), store, link, remove, partitions };
        let mut done = Audited::default();
        for p in (0..partitions).map(PartitionId) {
            audit.partition(p, &mut done, told).await?;
            done.partitions += 1;
            told(&done);
        }
        audit.others(&mut done, told).await?;
        told(&done);
        Ok(done)
    }
}

/// An audit under way.
struct Audit {
    switch: Arc<Switch>,
    store: StoreId,
    link: Arc<Link>,
    remove: bool,
    partitions: u16,
}

impl Audit {
    async fn partition(&self, p: PartitionId, done: &mut Audited, told: &(dyn Fn(&Audited) + Sync)) -> Result<()> {
        let cluster = self.switch.objects.cluster();
        let table = self.table(p).await?;
        let present = table.iter().filter(|object| object.present).count();
        let mut compare = Compare::new(table);
        let (prefix, mut after, mut doubts) = (keys::prefix_of_partition(cluster, p), None, Vec::new());
        loop {
            let page = self.link.list(&prefix, after.as_deref()).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for listed in &page {
                done.listed += 1;
                let Some((_, blob, term)) = keys::parse_data(&listed.key) else {
                    done.foreign += 1;
                    continue;
                };
                done.ours += 1;
                let there = There { bytes: listed.size, modified_s: listed.modified_s };
                match compare.listed((blob, term), there) {
                    None => done.known += 1,
                    Some(doubt) => doubts.push(doubt),
                }
                if doubts.len() >= JUDGED_MAX {
                    self.settle(p, std::mem::take(&mut doubts), done).await?;
                }
            }
            told(done);
        }
        // Another bucket, or a folder without what is mounted there, says nothing of the objects.
        if after.is_none() && present >= EMPTY_MAX {
            // But who serves the partition is to look for itself, and to let nothing leave flash meanwhile.
            let unlisted: Vec<Doubt> = compare.unlisted().collect();
            self.settle(p, look::some_of(&unlisted), done).await?;
            let text = format!(
                "the store lists none of the {present} objects that {p} has there: look whether it is the right bucket, or \
                 whether the directory is mounted"
            );
            return Err(Error::new(ErrorKind::Refused, text));
        }
        for doubt in compare.unlisted() {
            doubts.push(doubt);
            if doubts.len() >= JUDGED_MAX {
                self.settle(p, std::mem::take(&mut doubts), done).await?;
                told(done);
            }
        }
        self.settle(p, doubts, done).await
    }

    /// Counts what is in the store beside the objects of the partitions.
    async fn others(&self, done: &mut Audited, told: &(dyn Fn(&Audited) + Sync)) -> Result<()> {
        let (cluster, mut after) = (self.switch.objects.cluster(), None);
        loop {
            let page = self.link.list(keys::DATA, after.as_deref()).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key.clone());
            for listed in &page {
                let named = keys::parse_data(&listed.key).filter(|(of, ..)| *of == cluster);
                let p = named.map(|(_, blob, _)| blob.partition());
                let Some(p) = p.filter(|p| p.0 < self.partitions) else {
                    done.listed += 1;
                    match p {
                        Some(_) => {
                            done.ours += 1;
                            done.ahead.add(listed.key.clone(), listed.size);
                        }
                        None => done.foreign += 1,
                    }
                    continue;
                };
                // All that begins like this was listed before. Behind digits and slashes comes the tilde.
                after = Some(format!("{}~", keys::prefix_of_partition(cluster, p)));
                break;
            }
            told(done);
        }
    }

    /// What the partition knows now.
    async fn table(&self, p: PartitionId) -> Result<Vec<ObjectSeen>> {
        let mut all: Vec<ObjectSeen> = Vec::new();
        loop {
            let after = all.last().map(|object| object.blob);
            let op = HostOp::Objects { partition: p, store: self.store, after, limit: OBJECTS_MAX };
            match self.ask(p, op).await? {
                HostReply::Objects(page) => {
                    let more = page.more && !page.objects.is_empty();
                    all.extend(page.objects);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(odd(p, &other)),
            }
        }
    }

    /// Asks the partition about what is different, and does what follows from it.
    async fn settle(&self, p: PartitionId, doubts: Vec<Doubt>, done: &mut Audited) -> Result<()> {
        if doubts.is_empty() {
            return Ok(());
        }
        let keys = doubts.iter().map(|doubt| doubt.key).collect();
        let verdicts = match self.ask(p, HostOp::Judge { partition: p, store: self.store, keys }).await? {
            HostReply::Judged(verdicts) if verdicts.len() == doubts.len() => verdicts,
            other => return Err(odd(p, &other)),
        };
        let (now_s, mut remove) = (wall_ms() / 1_000, Vec::new());
        for (doubt, verdict) in doubts.into_iter().zip(verdicts) {
            let name = keys::data(self.switch.objects.cluster(), doubt.key.0, doubt.key.1);
            let bytes = doubt.there.map_or(0, |there| there.bytes);
            match doubt.settle(verdict, now_s) {
                Finding::Known => done.known += u64::from(doubt.there.is_some()),
                Finding::Nothing => {}
                Finding::Unknown(old) => {
                    if old {
                        remove.push(name.clone());
                    }
                    done.young += u64::from(!old);
                    done.unknown.add(name, bytes);
                }
                Finding::Ahead => done.ahead.add(name, bytes),
                Finding::Missing => done.missing.add(name, 0),
                Finding::WrongSize => done.wrong_size.add(name, bytes),
                Finding::Unsure => done.unsure += 1,
            }
        }
        if self.remove {
            done.removed += self.remove_all(remove).await?;
        }
        Ok(())
    }

    async fn remove_all(&self, names: Vec<String>) -> Result<u64> {
        let mut removed = 0;
        for some in names.chunks(AT_ONCE) {
            let mut removing = JoinSet::new();
            for name in some {
                let (link, name) = (Arc::clone(&self.link), name.clone());
                removing.spawn(async move {
                    tracing::info!("object {name} is known to nobody: it is removed");
                    link.remove(&name).await.map_err(|error| error.within(format!("remove {name}")))
                });
            }
            while let Some(ended) = removing.join_next().await {
                ended.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, error.to_string())))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Asks the host that serves `p`.
    async fn ask(&self, p: PartitionId, op: HostOp) -> Result<HostReply> {
        let advice = "see `braid cluster partition`, and repeat the audit when it is served";
        let reply = match self.primary(p) {
            Some(host) if host == self.switch.host => self.switch.answer_audit(op).await,
            Some(host) => match &self.switch.company {
                Some(company) => company.routes.ask(host, op).await,
                None => Err(ErrorKind::Moved.into()),
            },
            None => Err(Error::new(ErrorKind::Moved, "no host serves it now")),
        };
        let worded = |error: Error| {
            let text = format!("{p} does not tell of its objects: {}; {advice}", error.message());
            Error::new(ErrorKind::Io, text)
        };
        reply.map_err(worded)
    }

    fn primary(&self, p: PartitionId) -> Option<HostId> {
        let here = self.switch.seat(p).is_ok_and(|seat| seat.term() != Term(0));
        match &self.switch.company {
            _ if here => Some(self.switch.host),
            Some(company) => company.routes.map().primary(p),
            None => None,
        }
    }
}

fn odd(p: PartitionId, reply: &HostReply) -> Error {
    Error::new(ErrorKind::Io, format!("{p} was asked for its objects, and something else came: {reply:?}"))
}

impl Switch {
    /// Answers [`HostOp::Objects`] and [`HostOp::Judge`] for a partition that is served here.
    ///
    /// Errors: `Moved`: it is not. `Invalid`: too much at a time, or something else was asked.
    pub(super) async fn answer_audit(&self, op: HostOp) -> HostResult {
        match op {
            HostOp::Objects { partition, store, after, limit } => {
                let limit = limit.min(OBJECTS_MAX) as usize;
                let page = self.of_partition(partition, move |known| known.state().objects(store, after, limit));
                page.await.map(HostReply::Objects)
            }
            HostOp::Judge { partition, store, keys } if keys.len() <= JUDGED_MAX => {
                self.judge(partition, store, keys).await.map(HostReply::Judged)
            }
            _ => Err(Error::new(ErrorKind::Invalid, format!("at most {JUDGED_MAX} objects are judged at a time"))),
        }
    }

    /// What the partition says, which is served here.
    async fn of_partition<T: Send + 'static>(
        &self,
        p: PartitionId,
        work: impl FnOnce(&Partition) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, comes) = oneshot::channel();
        self.tell(
            p,
            SeatMsg::With(Box::new(move |seat| {
                let _ = answer.send(seat.partition().map(|partition| work(partition)));
            })),
        )?;
        let moved = || Error::new(ErrorKind::Moved, format!("{p} is not served here"));
        comes.await.ok().flatten().ok_or_else(moved)
    }

    async fn judge(&self, p: PartitionId, store: StoreId, keys: Vec<(BlobId, Term)>) -> Result<Vec<Verdict>> {
        let known = self.judged(p, store, keys.clone()).await?;
        let mut verdicts: Vec<Verdict> = known.iter().map(at_first).collect();
        let (mut looks, mut verdict_of) = (JoinSet::new(), Vec::new());
        for (at, (judged, (blob, term))) in known.into_iter().zip(&keys).enumerate() {
            let Judged::Present(size) = judged else { continue };
            if looks.len() >= AT_ONCE {
                verdict_of.extend(looks.join_next().await);
            }
            let (objects, key) = (Arc::clone(&self.objects), ObjectKey { store, blob: *blob, term: *term });
            looks.spawn(async move { (at, objects.look_for(key, size).await) });
        }
        while let Some(ended) = looks.join_next().await {
            verdict_of.push(ended);
        }
        for (at, verdict) in verdict_of.into_iter().flatten() {
            verdicts[at] = verdict;
        }
        self.confirm(p, store, &keys, &mut verdicts).await?;
        Ok(verdicts)
    }

    async fn judged(&self, p: PartitionId, store: StoreId, keys: Vec<(BlobId, Term)>) -> Result<Vec<Judged>> {
        self.of_partition(p, move |known| keys.into_iter().map(|key| known.state().judge(store, key)).collect()).await
    }

    /// What was not there, or not as it should be: is it to be there still? Then that is noted.
    async fn confirm(
        &self,
        p: PartitionId,
        store: StoreId,
        keys: &[(BlobId, Term)],
        verdicts: &mut [Verdict],
    ) -> Result<()> {
        let bad: Vec<usize> = (0..verdicts.len())
            .filter(|at| matches!(verdicts[*at], Verdict::Missing | Verdict::WrongSize { .. }))
            .collect();
        let asked = bad.iter().map(|at| keys[*at]).collect();
        for (at, judged) in bad.iter().zip(self.judged(p, store, asked).await?) {
            let (Judged::Present(size), (blob, term)) = (judged, keys[*at]) else {
                verdicts[*at] = Verdict::Passing;
                continue;
            };
            let (key, name) = (ObjectKey { store, blob, term }, keys::data(self.objects.cluster(), blob, term));
            match verdicts[*at] {
                Verdict::Missing => {
                    let error = Error::new(ErrorKind::Stale, format!("object store {store} has no object {name}"));
                    self.objects.found_damage(key, 0..blob::DATA_MAX, &error);
                }
                Verdict::WrongSize { found, expected } if found < expected => {
                    let text = format!("object store {store} has {found} of the {expected} bytes of object {name}");
                    let error = Error::new(ErrorKind::Corrupt, text);
                    self.objects.found_damage(key, blob::data_len(found).min(size.into())..size.into(), &error);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is said before its store was asked.
fn at_first(judged: &Judged) -> Verdict {
    match judged {
        Judged::Unknown => Verdict::Unknown,
        Judged::Ahead => Verdict::Ahead,
        Judged::Elsewhere => Verdict::Elsewhere,
        Judged::Passing => Verdict::Passing,
        Judged::Present(_) => Verdict::Unsure,
    }
}

impl HostObjects {
    /// How an object of `size` bytes of data is that should be there.
    async fn look_for(&self, key: ObjectKey, size: u32) -> Verdict {
        let expected = blob::object_len(size.into());
        let Ok(link) = self.links().try_get(key.store) else { return Verdict::Unsure };
        match link.size(&keys::data(self.cluster(), key.blob, key.term)).await {
            Ok(found) if found == expected => {
                self.is_there(key);
                Verdict::Whole
            }
            Ok(found) => Verdict::WrongSize { found, expected },
            // A bucket that is away has no object either.
            Err(error) if error.kind() == ErrorKind::NotFound && self.is_missing(key).await => Verdict::Missing,
            Err(_) => Verdict::Unsure,
        }
    }
}
