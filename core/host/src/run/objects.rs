//! What a host does at object stores: it puts objects there and removes them for the partitions that it serves, and reads
//! parts of them for whoever asks these.
//!
//! A read gets the piece of the object that it lies in, with its descriptor, in one request, and checks the blocks that
//! were asked for; pieces that follow each other come with one request, up to [`pieces::TOGETHER`]. Whoever else wants the
//! same piece meanwhile waits for that request; and the last pieces stay here for a while, because who reads one part of it
//! often reads the next, and the partition brings it back to flash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::ids::{FsId, Guid, Ino, StoreId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::{BlockRun, ObjectKey};
use braid_base::{Error, ErrorKind, Result};
use braid_client::objects::Objects;
use braid_client::wire::BoxFuture;
use braid_cluster::facts::ObjectStore;
use braid_io::background;
use braid_tier::blob::{self, Block, DATA_MAX, Descriptor, Header, PIECE, Span, keys};
use braid_tier::{Link, Links, Store};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::events::Events;
use super::wire::wall_ms;

mod damage;
mod doubts;
mod links;
mod pieces;

pub(super) use doubts::{Look, Looked};
use pieces::{Comes, Piece, Pieces, Sender};

/// Objects in memory on their way to one store, at least and at most; between them it is as many as there are processors.
/// What their checksums and a store beside them take is taken from whoever reads and writes: with three on two processors a
/// store gets no more, and a small write waits twice as long.
const OBJECTS: (usize, usize) = (2, 8);
/// How long an answer waits for a store, milliseconds: less than who asks waits for the answer. Then he is told that it goes
/// on, and asks again.
const ANSWER_MS: u64 = 8_000;
/// How often a store that is not known yet is looked for, and for how long, milliseconds.
const LOOK_MS: (u64, u64) = (100, 4_000);

const _: () = assert!(PIECE == CHUNK);

/// The objects of a host.
pub(super) struct HostObjects {
    cluster: Guid,
    links: Arc<Links>,
    runtime: tokio::runtime::Handle,
    rooms: Mutex<BTreeMap<StoreId, Arc<Semaphore>>>,
    pieces: Mutex<Pieces>,
    /// The identities of the file systems, for the headers of their objects.
    filesystems: Mutex<BTreeMap<FsId, Guid>>,
    /// The stores that are just being asked whether they are there, see [`links`].
    looking: Mutex<BTreeSet<StoreId>>,
    /// Objects that turned out to be missing or damaged.
    findings: damage::Findings,
    /// Stores of which it is not known whether they have their objects.
    doubts: doubts::Doubts,
    /// Where it is told that objects are missing or damaged, and where all parts of the host tell what happens.
    events: Arc<Events>,
}

impl HostObjects {
    pub(super) fn new(
        cluster: Guid,
        links: Arc<Links>,
        runtime: tokio::runtime::Handle,
        events: Arc<Events>,
    ) -> Arc<Self> {
        let (rooms, pieces, filesystems, looking, findings, doubts) = Default::default();
        Arc::new(Self { cluster, links, runtime, rooms, pieces, filesystems, looking, findings, doubts, events })
    }

    /// Where the parts of the host tell what happens.
    pub(super) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The links to the stores.
    pub(super) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// From now on these are the stores. One that cannot be used as it is set up is told, once.
    pub(super) fn set_stores(&self, stores: &[ObjectStore]) {
        let specs = stores.iter().map(|store| (store.id, store.spec.clone())).collect();
        for (id, error) in self.links.set(specs) {
            let name = stores.iter().find(|store| store.id == id).map_or("?", |store| store.name.as_str());
            tracing::warn!("object store {name} cannot be used: {error}");
        }
    }

    /// The cluster whose objects they are.
    pub(super) fn cluster(&self) -> Guid {
        self.cluster
    }

    /// From now on these are the file systems.
    pub(super) fn set_filesystems(&self, known: BTreeMap<FsId, Guid>) {
        *self.filesystems.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Room in memory for an object of `store`, once there is some.
    pub(super) async fn room(&self, store: StoreId) -> Result<OwnedSemaphorePermit> {
        let room = {
            let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(rooms.entry(store).or_insert_with(|| Arc::new(Semaphore::new(objects_max()))))
        };
        room.acquire_owned().await.map_err(|_| Error::new(ErrorKind::Stopped, "the host stops"))
    }

    /// Bytes `[off, off+len)` of an object's data, checked. `more` bytes behind them are asked for at the same time, and
    /// come with them as far as one request of the store gets.
    ///
    /// Errors: `Stale`: the store has no such object. `Corrupt`: the bytes are not what was put there. `Busy`: the store
    /// has not answered yet, and is asked on. `Io`: it does not answer, or refuses.
    ///
    /// The store is asked before this returns, so that who calls it for what lies side by side, from front to back, makes
    /// it few requests.
    pub(super) fn read(
        self: &Arc<Self>,
        key: ObjectKey,
        off: u32,
        (len, more): (u32, u32),
    ) -> impl Future<Output = Result<Bytes>> + Send + use<> {
        let (off, end) = (u64::from(off), u64::from(off) + u64::from(len));
        let upto = (end + u64::from(more)).min(DATA_MAX);
        let cut = |piece: u64| (piece * PIECE).max(off)..((piece + 1) * PIECE).min(end);
        let fits = len > 0 && end <= DATA_MAX;
        let pieces = if fits { off / PIECE..end.div_ceil(PIECE) } else { 0..0 };
        let coming: Vec<(Range<u64>, Comes)> =
            pieces.map(cut).map(|wanted| (wanted.clone(), self.piece(key, &wanted, upto))).collect();
        let (this, until) = (Arc::clone(self), Instant::now() + Duration::from_millis(ANSWER_MS));
        async move {
            let mut parts = Vec::with_capacity(coming.len());
            for (wanted, comes) in coming {
                parts.push(this.part(key, wanted, comes, until).await?);
            }
            match parts.len() {
                0 => {
                    let text = format!("{}: bytes {off}..{end} of an object, which has {DATA_MAX} at most", key.blob);
                    Err(Error::new(ErrorKind::Invalid, text))
                }
                1 => Ok(parts.swap_remove(0)),
                _ => Ok(parts.concat().into()),
            }
        }
    }

    /// Bytes `wanted`, which lie in one piece.
    async fn part(
        self: &Arc<Self>,
        key: ObjectKey,
        wanted: Range<u64>,
        mut comes: Comes,
        until: Instant,
    ) -> Result<Bytes> {
        let mut damage: Option<Error> = None;
        loop {
            let Ok(came) = timeout_at(until, comes.wait()).await else {
                let text = format!("object store {} has not answered for {} s", key.store, ANSWER_MS / 1_000);
                return Err(Error::new(ErrorKind::Busy, text));
            };
            let piece = match came {
                Ok(piece) => piece,
                Err(error) => {
                    let sure = match error.kind() {
                        ErrorKind::Stale => timeout_at(until, self.is_missing(key)).await.unwrap_or(false),
                        kind => kind == ErrorKind::Corrupt,
                    };
                    if sure {
                        self.found_damage(key, wanted, &error);
                    }
                    return Err(error);
                }
            };
            if piece.end >= wanted.end {
                let span = Span::new(piece.start..piece.end);
                match span.extract(&piece.got, wanted.clone(), None) {
                    Ok(mut parts) => {
                        self.read_well(key, &wanted);
                        return Ok(parts.swap_remove(0));
                    }
                    Err(error) => {
                        let error = Error::new(
                            ErrorKind::Corrupt,
                            format!("object {} in store {}: {error}", self.name(key), key.store),
                        );
                        self.pieces().forget(key, &piece);
                        if damage.is_some() {
                            let whole = |block| span.extract(&piece.got, block, None).is_ok();
                            for bad in damage::refused(&wanted, whole) {
                                self.found_damage(key, bad, &error);
                            }
                            return Err(error);
                        }
                        // It may have been damaged on its way: once more.
                        damage = Some(error);
                    }
                }
            }
            comes = self.piece(key, &wanted, wanted.end);
        }
    }

    /// The piece that holds `wanted` comes; it is asked for unless it is here or on its way, and with it those behind it
    /// that are wanted up to `upto`.
    fn piece(self: &Arc<Self>, key: ObjectKey, wanted: &Range<u64>, upto: u64) -> Comes {
        let (comes, asked) = self.pieces().find(key, wanted, upto);
        self.get_for(key, asked, upto);
        comes
    }

    /// Gets what is to be asked for, of which the bytes up to `upto` are wanted.
    fn get_for(self: &Arc<Self>, key: ObjectKey, asked: Vec<Sender>, upto: u64) {
        let (Some(first), Some(last)) = (asked.first(), asked.last()) else { return };
        let range = first.range.start..last.range.end;
        let (this, wanted_end) = (Arc::clone(self), upto.min(range.end));
        self.runtime.spawn(async move {
            match this.get(key, range, wanted_end).await {
                Ok(got) => asked.iter().zip(got).for_each(|(to, piece)| this.pieces().came(to, Ok(piece))),
                // The object ends before the last of them, as it should not: those before it can be had.
                Err(error) if asked.len() > 1 && error.kind() == ErrorKind::Corrupt => {
                    asked.into_iter().for_each(|to| this.get_for(key, vec![to], upto));
                }
                Err(error) => {
                    asked.iter().for_each(|to| this.pieces().came(to, Err(error.clone())));
                    // Those who ask again a little later are told, too.
                    sleep(pieces::FAILED).await;
                    asked.iter().for_each(|to| this.pieces().forget_failed(to));
                }
            }
        });
    }

    /// Gets the pieces of which the data is `range`, or if the object ends before that, of which it is up to `wanted_end`,
    /// which lies in the last of them.
    async fn get(&self, key: ObjectKey, range: Range<u64>, wanted_end: u64) -> Result<Vec<Piece>> {
        let (link, name) = (self.link(key).await?, self.name(key));
        let end = wanted_end.next_multiple_of(BLOCK as u64);
        let mut range = range;
        // What comes begins with the descriptor of the first piece.
        let whose = |got: &Bytes| {
            let entries = Descriptor::decode(got.get(..BLOCK)?);
            entries.entries().first().map(|entry| entry.block.ino.0)
        };
        let got = match link.download(&name, Some(Span::new(range.clone()).object()), whose).await {
            Err(error) if error.kind() == ErrorKind::Range && end < range.end => {
                range.end = end;
                link.download(&name, Some(Span::new(range.clone()).object()), whose).await
            }
            got => got,
        };
        if let Err(error) = &got
            && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Range)
        {
            self.events.not_read(key.store, &name, error);
        }
        let got = got.map_err(|error| worded(key, &error))?;
        let base = Span::new(range.clone()).object().start;
        let cut = |start: u64| {
            let data = start..(start + PIECE).min(range.end);
            let object = Span::new(data.clone()).object();
            let got = got.slice((object.start - base) as usize..((object.end - base) as usize).min(got.len()));
            Piece { start, end: data.end, got }
        };
        let pieces: Vec<Piece> = (range.start..range.end).step_by(PIECE as usize).map(cut).collect();
        for piece in &pieces {
            let descriptor = piece.got.get(..BLOCK).map(Descriptor::decode);
            let blocks = descriptor.map_or(0, |descriptor| descriptor.entries().len() as u64);
            if blocks * (BLOCK as u64) < PIECE {
                self.pieces().learn(key, piece.start + blocks * BLOCK as u64);
            }
        }
        Ok(pieces)
    }

    /// The link to the store of an object. Just after a start, or after a store was attached, it may take a moment.
    async fn link(&self, key: ObjectKey) -> Result<Arc<Link>> {
        let until = Instant::now() + Duration::from_millis(LOOK_MS.1);
        loop {
            match self.links.try_get(key.store) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(worded(key, &error)),
                Err(error) if Instant::now() >= until => {
                    return Err(Error::new(ErrorKind::TimedOut, format!("{error}: is it attached still?")));
                }
                Err(_) => sleep(Duration::from_millis(LOOK_MS.0)).await,
                Ok(link) => return Ok(link),
            }
        }
    }

    fn name(&self, key: ObjectKey) -> String {
        keys::data(self.cluster, key.blob, key.term)
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put_now(&self, key: ObjectKey, fs: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> Result<()> {
        let (link, name) = (self.link(key).await?, self.name(key));
        let known = self.filesystems.lock().unwrap_or_else(PoisonError::into_inner).get(&fs).copied();
        let fs_uuid =
            known.ok_or_else(|| Error::new(ErrorKind::Busy, format!("{fs} is not known to this host yet")))?;
        let data_len: u64 = data.iter().map(|part| part.len() as u64).sum();
        let (cluster, created_s) = (self.cluster, wall_ms() / 1_000);
        let header = Header { cluster, fs_uuid, fs, blob: key.blob, term: key.term, data_len, created_s };
        let inode = mostly(&runs).map(|ino| ino.0);
        // Checksums of 64 MiB: not where others wait for a turn.
        let (tell, built) = oneshot::channel();
        background::spawn("upload", move || {
            let blocks: Vec<Block> = runs.iter().flat_map(blocks_of).collect();
            // Nobody may wait for it any more.
            let _ = tell.send(blob::build(&header, &blocks, &data));
        })?;
        let parts = built.await.map_err(|_| Error::new(ErrorKind::Stopped, "the object was not made"))?;
        let sent: u64 = parts.iter().map(|part| part.len() as u64).sum();
        link.upload(&name, parts, inode).await.map_err(|error| error.within(format!("object {name}")))?;
        let found = link.size(&name).await.map_err(|error| error.within(format!("object {name} after it was sent")))?;
        if found != sent {
            let text = format!("object {name}: {sent} bytes were sent, store {} has {found} of them", key.store);
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        self.pieces().learn(key, data_len);
        Ok(())
    }
}

/// Objects on their way to one store.
fn objects_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.clamp(OBJECTS.0, OBJECTS.1)
}

/// Its blocks one after another.
fn blocks_of(run: &BlockRun) -> impl Iterator<Item = Block> + use<> {
    let run = *run;
    (0..u64::from(run.blocks)).map(move |n| Block { ino: run.ino, block: run.block + n })
}

/// The file that most blocks are of.
fn mostly(runs: &[BlockRun]) -> Option<Ino> {
    let mut counts: BTreeMap<Ino, u64> = BTreeMap::new();
    for run in runs {
        *counts.entry(run.ino).or_default() += u64::from(run.blocks);
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(ino, _)| ino)
}

/// What a store said, for whoever reads a file.
fn worded(key: ObjectKey, error: &Error) -> Error {
    let kind = match error.kind() {
        // The partition says that it is there: it may have been removed for good reason since, or by somebody.
        ErrorKind::NotFound => ErrorKind::Stale,
        ErrorKind::Range | ErrorKind::Corrupt => ErrorKind::Corrupt,
        ErrorKind::Stopped => ErrorKind::Stopped,
        // Repeating it was the link's.
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("object store {}, {}: {error}", key.store, key.blob))
}

/// Carries out what a mover needs.
pub(super) struct Carrier(pub(super) Arc<HostObjects>);

impl Objects for Carrier {
    fn put(&self, key: ObjectKey, fs: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> BoxFuture<Result<()>> {
        let this = Arc::clone(&self.0);
        Box::pin(async move { this.put_now(key, fs, runs, data).await })
    }

    fn remove(&self, key: ObjectKey) -> BoxFuture<Result<()>> {
        let this = Arc::clone(&self.0);
        Box::pin(async move { this.link(key).await?.remove(&this.name(key)).await })
    }
}
