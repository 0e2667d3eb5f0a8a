//! What can be read from objects alone, for the day their cluster is gone. Works on any [`Store`] and changes nothing.
//!
//! Objects say which block of which inode each 4 KiB is, and nothing of names, sizes, times or of what was removed.
//! Whatever is read is checked.

mod ahead;
mod file;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use braid_base::crc::crc32c;
use braid_base::ids::{BlobId, Guid, Ino, Term};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::blob::{Descriptor, Head, PIECE, descriptor_at, keys};
use crate::{Listed, Store};
use ahead::Ahead;

pub use file::{File, Part};
pub use verify::Verified;

/// Objects that are looked into at once.
const OBJECTS_AT_ONCE: usize = 32;
/// How long to wait before a failed request is repeated: no store is that quick to come back, and no one who salvages
/// wants to begin anew for a moment's trouble.
const PAUSES_MS: [u64; 4] = [200, 1_000, 3_000, 10_000];

/// Reads objects without their cluster.
#[derive(Clone)]
pub struct Salvage {
    store: Arc<dyn Store>,
}

/// An object with data, as its key tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// The cluster that wrote it.
    pub cluster: Guid,
    /// Its partition and serial.
    pub blob: BlobId,
    /// The term in which it was written.
    pub term: Term,
}

/// An object that was looked into.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The object.
    pub object: Object,
    /// What header or footer say; none: neither can be read.
    pub head: Option<Head>,
    /// Which blocks of which files it has, if that was asked for, in the order in which they lie.
    pub runs: Vec<Run>,
    /// What is wrong with what was read of it.
    pub damages: Vec<Damage>,
}

/// Blocks of a file that follow each other in the file and in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The file.
    pub ino: Ino,
    /// The first block's number in the file.
    pub block: u64,
    /// How many there are.
    pub blocks: u64,
    /// Where they begin in the data of the object, bytes.
    pub at: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub key: String,
    /// Where in the object, bytes.
    pub at: u64,
    /// What was expected and what was found.
    pub words: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: byte {}: {}", self.key, self.at, self.words)
    }
}

impl Salvage {
    /// Reads what lies in `store`. All that follows must run in a tokio runtime with its timer.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Gives every object with data to `take`, in the order of their keys; with `runs`, with what it has of which file,
    /// which takes a small read for each MiB. Errors: those of the store, and those that `take` gives.
    pub async fn list(&self, runs: bool, mut take: impl FnMut(Seen) -> Result<()>) -> Result<()> {
        self.each(move |this, object| this.see(object, move |_| runs), &mut take).await
    }

    /// Runs `work` for every object with data, several at once, and gives what comes of it to `take`, in the order of
    /// their keys. An object that is removed meanwhile is left out: the cluster may be alive.
    async fn each<T, F>(&self, work: impl Fn(Self, Object) -> F, mut take: impl FnMut(T) -> Result<()>) -> Result<()>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut take = |done: Result<T>| match done {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => take(done?),
        };
        let (mut ahead, mut after) = (Ahead::new(OBJECTS_AT_ONCE), None);
        loop {
            let page = self.page(after.as_deref()).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for object in page.into_iter().filter_map(Object::of) {
                if ahead.is_full()
                    && let Some(done) = ahead.next().await
                {
                    take(done)?;
                }
                ahead.push(work(self.clone(), object));
            }
        }
        while let Some(done) = ahead.next().await {
            take(done)?;
        }
        Ok(())
    }

    /// Looks into an object; into its descriptors if `wanted` says so.
    async fn see(self, object: Object, wanted: impl FnOnce(&Head) -> bool + Send) -> Result<Seen> {
        let mut damages = Vec::new();
        let head = self.head(&object, &mut damages).await?;
        let runs = match &head {
            Some(head) if wanted(head) => self.runs(&object, head, &mut damages).await?,
            _ => Vec::new(),
        };
        Ok(Seen { object, head, runs, damages })
    }

    /// What the header says, or else the footer; none: neither can be read.
    async fn head(&self, object: &Object, damages: &mut Vec<Damage>) -> Result<Option<Head>> {
        for at in object.heads_at() {
            match self.head_at(object, at).await {
                Ok(head) => return Ok(Some(head)),
                Err(error) => damages.push(object.damage(at, error)?),
            }
        }
        Ok(None)
    }

    /// What the header or footer at `at` says. `Corrupt` also if it is another object's.
    async fn head_at(&self, object: &Object, at: u64) -> Result<Head> {
        let head = Head::decode(&self.block(object, at).await?)?;
        let key = keys::data(head.header.cluster, head.header.blob, head.header.term);
        if key == object.key {
            return Ok(head);
        }
        Err(Error::new(ErrorKind::Corrupt, format!("expected the header of this object, found that of {key}")))
    }

    /// Which blocks of which files the object has, by those descriptors that are whole.
    async fn runs(&self, object: &Object, head: &Head, damages: &mut Vec<Damage>) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        for (piece, expected) in head.descriptors.iter().enumerate() {
            let data = piece as u64 * PIECE;
            let at = descriptor_at(data);
            let read = self.block(object, at).await.and_then(|block| descriptor(&block, *expected));
            match read {
                Ok(descriptor) => gather(&descriptor, data, &mut runs),
                Err(error) => damages.push(object.damage(at, error)?),
            }
        }
        Ok(runs)
    }

    /// The 4 KiB at `at`.
    async fn block(&self, object: &Object, at: u64) -> Result<Bytes> {
        self.get(&object.key, at..at + BLOCK as u64).await
    }

    /// Bytes of an object. `NotFound`: it was removed meanwhile; `Range`: it is shorter, or only the listing has it.
    async fn get(&self, key: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        let got = repeated(|| self.store.get(key, Some(range.clone()))).await;
        if !matches!(&got, Err(error) if error.kind() == ErrorKind::NotFound) {
            return got;
        }
        // A store that has lost an object must not look like a cluster that removed one: older bytes would be taken for
        // the file's.
        // All terms of it: a listing may leave out what is named as the prefix is.
        let prefix = key.rfind('/').map_or("", |slash| &key[..=slash]);
        let listed = repeated(|| self.store.list(prefix, None)).await?;
        if listed.iter().all(|listed| listed.key != key) {
            return got;
        }
        let words = "expected the object that the listing shows, the store says that there is none".to_owned();
        Err(Error::new(ErrorKind::Range, words))
    }

    async fn page(&self, after: Option<&str>) -> Result<Vec<Listed>> {
        repeated(|| self.store.list(keys::DATA, after)).await
    }
}

impl Object {
    /// The object that a listing shows; none: it holds no data.
    fn of(listed: Listed) -> Option<Self> {
        let (cluster, blob, term) = keys::parse_data(&listed.key)?;
        Some(Self { key: listed.key, size: listed.size, cluster, blob, term })
    }

    /// Where its header and its footer are.
    fn heads_at(&self) -> [u64; 2] {
        [0, self.size.saturating_sub(BLOCK as u64)]
    }

    /// What `error` says of the bytes at `at` of this object; the error again if it is the store's and says nothing of
    /// them.
    fn damage(&self, at: u64, error: Error) -> Result<Damage> {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Range => {
                Ok(Damage { key: self.key.clone(), at, words: error.message().to_owned() })
            }
            ErrorKind::NotFound => Err(error),
            _ => Err(error.within(&self.key)),
        }
    }
}

/// The descriptor in `block`, whose checksum the header says.
fn descriptor(block: &[u8], expected: u32) -> Result<Descriptor> {
    let found = crc32c(block);
    if found == expected {
        return Ok(Descriptor::decode(block));
    }
    let words = format!("expected a descriptor of checksum {expected:08x} by the header, found {found:08x}");
    Err(Error::new(ErrorKind::Corrupt, words))
}

/// Adds what `descriptor`, of the piece that begins at byte `data` of the data, has to `runs`.
fn gather(descriptor: &Descriptor, data: u64, runs: &mut Vec<Run>) {
    for (index, entry) in descriptor.entries().iter().enumerate() {
        let (ino, block, at) = (entry.block.ino, entry.block.block, data + (index * BLOCK) as u64);
        match runs.last_mut() {
            Some(run) if run.ino == ino && run.end() == block && run.at + run.bytes() == at => run.blocks += 1,
            _ => runs.push(Run { ino, block, blocks: 1, at }),
        }
    }
}

impl Run {
    /// The number of the block behind it.
    fn end(&self) -> u64 {
        self.block + self.blocks
    }

    fn bytes(&self) -> u64 {
        self.blocks * BLOCK as u64
    }
}

/// Asks the store, and asks again if it fails in a way that may pass.
async fn repeated<T>(ask: impl Fn() -> crate::BoxFuture<Result<T>>) -> Result<T> {
    for pause in PAUSES_MS {
        match ask().await {
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::TimedOut | ErrorKind::Busy) => {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            done => return done,
        }
    }
    ask().await
}
