//! The calls of the file system, one file per family.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use braid_base::attr::Attr;
use braid_base::ids::{FsId, Index, Ino, PartitionId};
use braid_base::msg::fs::{Cred, FsResult, Op, Reply};
use braid_base::msg::lease::{LeaseKind, Release};
use braid_base::record::ObjectAt;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::accessed::Accessed;
use crate::ahead::Ahead;
use crate::behind::Behind;
use crate::bodies::Bodies;
use crate::idle::Idle;
use crate::layouts::Layouts;
use crate::leases::Holder;
use crate::lent::Lent;
use crate::losses::Losses;
use crate::promised::{PromiseMutation, Promises};
use crate::reader::{Reader, StageSource};
use crate::session::{Session, unexpected};
use crate::siblings::Siblings;
use crate::stream::Streams;
use crate::wire::BoxFuture;

mod attrs;
mod behind;
mod data;
mod direct;
mod dirs;
mod locks;
mod names;
mod promised;
mod ranges;
mod recall;
mod space;
mod tier;
mod walk;
mod xattrs;

pub use behind::{Background, Watcher};
pub use data::Written;
pub use names::{Create, Renamed};
pub use promised::GATHER_MS;
pub use ranges::Seek;
pub use space::Space;

/// A question on its way. In a box: it is far larger than what most calls do, which need not ask (decision 50).
type Asking<'a> = Pin<Box<dyn Future<Output = FsResult> + Send + 'a>>;

/// One file system as one client sees it. Clones are cheap and share everything; all mounts of a process should
/// share one, because layouts are remembered on the ground that all changes pass through here.
#[derive(Clone)]
pub struct Fs(Arc<Inner>);

struct Inner {
    session: Arc<Session>,
    fs: FsId,
    root: Ino,
    reader: Reader,
    layouts: Layouts,
    lent: Lent,
    losses: Arc<Losses>,
    behind: Behind,
    ahead: Ahead,
    bodies: Bodies,
    siblings: Siblings,
    streams: Streams,
    idle: Idle,
    accessed: Accessed,
    promises: Promises,
    /// How long promises gather, milliseconds; 0: none are made.
    gather_ms: AtomicU64,
    background: Option<Arc<dyn Background>>,
    /// As `background`, of a client that holds nothing back.
    afterwards: OnceLock<Arc<dyn Background>>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    total_bytes: AtomicU64,
    me: Weak<Inner>,
}

impl Inner {
    fn watchers(&self) -> Vec<Arc<dyn Watcher>> {
        let watchers = self.watchers.lock().expect("nothing panics while it holds the watchers");
        watchers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Something that was done earlier reached the cluster: a file looks like `attr`.
    fn show(&self, attr: &Attr) {
        self.watchers().iter().for_each(|watcher| watcher.changed(attr));
    }
}

impl Holder for Inner {
    fn flush(&self, fs: FsId, ino: Ino, _keep: Option<LeaseKind>) -> BoxFuture<()> {
        let me = self.me.upgrade().filter(|me| me.fs == fs);
        Box::pin(async move {
            if let Some(inner) = me {
                let now_ms = inner.reader.wire().now_ms();
                inner.behind.wanted(ino, now_ms);
                inner.promises.shared(ino, now_ms);
                let fs = Fs(inner);
                if fs.0.promises.hold_leases() {
                    fs.names_kept_for_others(ino).await;
                }
                fs.settle_for_good(ino).await;
            }
        })
    }

    fn forget(&self, fs: FsId, ino: Ino, names: &[Vec<u8>]) {
        if fs == self.fs {
            self.layouts.forget_file(ino);
            self.ahead.forget(ino);
            self.bodies.forget(ino);
            self.siblings.forget(ino);
            if let Some(me) = self.me.upgrade() {
                Fs(me).close_later(self.idle.of(ino));
            }
            self.watchers().iter().for_each(|watcher| watcher.forget(ino, names));
        }
    }

    fn forgotten(&self, of: &[Release]) -> BoxFuture<()> {
        let inos: Vec<Ino> = of.iter().filter(|release| release.fs == self.fs).map(|release| release.ino).collect();
        let waits: Vec<_> = self.watchers().iter().map(|watcher| watcher.forgotten(&inos)).collect();
        Box::pin(async move {
            for wait in waits {
                wait.await;
            }
        })
    }

    fn lost(&self, p: PartitionId, session: u64) {
        let why =
            Error::new(ErrorKind::Io, "written bytes are lost: the cluster heard nothing of this client for too long");
        tracing::warn!(
            "the session in {p} ended, the cluster heard nothing of this client for too long: its locks are gone"
        );
        if let Some(me) = self.me.upgrade() {
            Fs(me).promises_lost(p, session);
        }
        let gone = |ino: Ino, under: u64| under == session && self.session.home(ino) == p;
        for (ino, bytes) in self.behind.lose(gone, &why) {
            tracing::error!(%ino, bytes, "the session in {p} ended: written bytes are lost");
            self.lent.redeem(p, bytes);
        }
    }
}

/// A name's inode with its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// What it looks like.
    pub attr: Attr,
}

impl Fs {
    /// The file system `fs` with the root directory `root` as `session` sees it.
    pub fn new(session: Arc<Session>, fs: FsId, root: Ino) -> Self {
        Self::make(session, fs, root, None, 0)
    }

    fn make(
        session: Arc<Session>,
        fs: FsId,
        root: Ino,
        background: Option<Arc<dyn Background>>,
        behind_max: usize,
    ) -> Self {
        let wire = Arc::clone(session.wire());
        let reader = Reader::new(Arc::clone(&wire));
        let total_bytes = AtomicU64::new(space::TOTAL_UNTIL_KNOWN);
        let losses = Arc::new(Losses::default());
        let inner = Arc::new_cyclic(|me| Inner {
            me: Weak::clone(me),
            session,
            fs,
            root,
            reader,
            layouts: Layouts::new(wire),
            lent: Lent::default(),
            losses: Arc::clone(&losses),
            behind: Behind::new(behind_max, Arc::clone(&losses)),
            ahead: Ahead::default(),
            bodies: Bodies::default(),
            siblings: Siblings::default(),
            streams: Streams::default(),
            idle: Idle::default(),
            accessed: Accessed::default(),
            promises: Promises::new(losses),
            gather_ms: AtomicU64::new(0),
            background,
            afterwards: OnceLock::new(),
            watchers: Mutex::default(),
            total_bytes,
        });
        if let Some(leases) = inner.session.leases() {
            let holder: Weak<dyn Holder> = Arc::downgrade(&inner) as Weak<dyn Holder>;
            leases.add_holder(holder);
        }
        Self(inner)
    }

    /// From now on `background` reads ahead of who reads straight from objects, and gives back what programs have closed;
    /// for a client that holds nothing back, and so has no other.
    pub fn go_on_in(&self, background: Arc<dyn Background>) {
        // Said twice, the first one does it.
        let _ = self.0.afterwards.set(background);
    }

    /// Where work goes on after a call has returned, of whatever kind of client.
    fn afterwards(&self) -> Option<&Arc<dyn Background>> {
        self.0.background.as_ref().or_else(|| self.0.afterwards.get())
    }

    /// Leaves a rule out, to prove that the tests see it.
    #[doc(hidden)]
    pub fn leave_out(&self, mutation: Option<PromiseMutation>) {
        self.0.promises.leave_out(mutation);
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        self.0.root
    }

    /// True if what was read of `ino` stays true until watchers hear otherwise.
    pub fn is_certain(&self, ino: Ino) -> bool {
        self.lease(ino).is_some()
    }

    /// True if `attr` stays true until watchers hear otherwise: there is a lease, and nothing newer or in doubt; or nobody
    /// else can have heard of the file.
    pub fn is_certain_attr(&self, attr: &Attr) -> bool {
        let is_current = |known: Attr| known.change <= attr.change;
        let Some(leases) = self.0.session.leases() else { return true };
        // A removal of directories that has not landed will change it without a word.
        let stays = || self.0.promises.losing_dirs(attr.ino).is_none();
        (leases.attr(self.0.fs, attr.ino).is_some_and(is_current) && stays()) || self.is_known_here_only(attr.ino)
    }

    /// True if it can become certain: by asking for the attributes of `ino`, if nobody else is about to change it.
    pub fn may_be_certain(&self, ino: Ino) -> bool {
        self.0.session.leases().is_none_or(|leases| leases.may_hold(self.0.fs, ino))
    }

    /// True if `name` stands for `ino` until watchers hear otherwise.
    pub fn is_certain_name(&self, dir: Ino, name: &[u8], ino: Ino) -> bool {
        let Some(leases) = self.0.session.leases() else { return true };
        leases.name(self.0.fs, dir, name) == Some(Some(ino))
            || (self.0.promises.name(dir, name) == Some(Some(ino)) && self.is_known_here_only(ino))
    }

    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.0.session
    }

    /// The reader, with its drive hints.
    pub fn reader(&self) -> &Reader {
        &self.0.reader
    }

    /// Tells how many bytes the file system can hold in all (quota, or what the drives give; `u64::MAX`: as many as come),
    /// for [`Self::statfs`].
    pub fn set_total_bytes(&self, bytes: u64) {
        self.0.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes the root directory with permission bits `mode`; repeated calls succeed.
    pub async fn make_root(&self, mode: u16) -> Result<()> {
        self.ask(Op::MakeRoot { ino: self.0.root, mode }).await.map(drop)
    }

    /// Ends the session: open references and locks go in all partitions.
    pub async fn end_session(&self) -> Result<()> {
        let settled = self.names_settled().await;
        self.tell_accessed().await;
        self.0.idle.clear();
        settled.and(self.0.session.end(self.0.fs).await)
    }

    fn ask(&self, body: Op) -> Asking<'_> {
        self.ask_as(Cred::default(), body)
    }

    fn ask_as(&self, cred: Cred, body: Op) -> Asking<'_> {
        Box::pin(async move {
            let _beside = self.beside(&body).await?;
            self.0.session.call(self.0.fs, cred, body).await
        })
    }

    async fn ask_attr(&self, what: &str, body: Op) -> Result<Attr> {
        match self.ask(body).await? {
            Reply::Attr(attr) => Ok(self.amended(attr)),
            other => Err(unexpected(what, &other)),
        }
    }

    async fn ask_done(&self, what: &str, body: Op) -> Result<()> {
        match self.ask(body).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(what, &other)),
        }
    }

    /// The entry of a reply; attributes that live in another partition are asked for there.
    async fn entry(&self, what: &str, reply: Reply) -> Result<Entry> {
        match reply {
            Reply::Entry { ino, attr: Some(attr), .. } if self.0.promises.losing_dirs(ino).is_none() => {
                Ok(Entry { ino, attr: self.amended(attr) })
            }
            Reply::Entry { ino, .. } => Ok(Entry { ino, attr: self.getattr(ino).await? }),
            other => Err(unexpected(what, &other)),
        }
    }

    /// Asks for a program that waits; with a session, as of that, and for as long as it lives: nobody waits then.
    fn ask_under(&self, session: Option<u64>, body: Op) -> Asking<'_> {
        let Some(session) = session else { return self.ask(body) };
        Box::pin(async move {
            let _beside = self.beside_for_good(&body).await;
            self.0.session.call_lasting(session, self.0.fs, Cred::default(), body).await
        })
    }

    /// The lease on `ino`, and the session that it is of. Without leases this is the only client: it may do as with
    /// an exclusive one.
    fn lease(&self, ino: Ino) -> Option<(LeaseKind, u64)> {
        match self.0.session.leases() {
            Some(leases) => leases.held(self.0.fs, ino),
            None => Some((LeaseKind::Exclusive, 0)),
        }
    }

    /// A change of `ino`'s content: sends `body` between announcing it to the layout cache and telling it the
    /// outcome; `session` as of [`Self::ask_under`]. `touched` says from the answer which bytes changed and what the file looks like.
    async fn change(
        &self,
        (ino, session): (Ino, Option<u64>),
        body: Op,
        touched: impl FnOnce(Reply) -> Result<(u64, u64, Attr)>,
    ) -> Result<(u64, u64, Attr)> {
        let change = self.0.layouts.change(ino);
        match self.ask_under(session, body).await {
            Ok(reply) => {
                let (off, len, attr) = touched(reply)?;
                change.done(off, len, &attr);
                Ok((off, len, attr))
            }
            Err(error) => {
                // After `Io` nobody knows: the change is then dropped without a verdict.
                if error.kind() != ErrorKind::Io {
                    change.refused();
                }
                Err(error)
            }
        }
    }

    fn stage(&self, ino: Ino) -> WireStage {
        let partition = ino.partition(self.0.session.wire().partitions());
        WireStage { session: Arc::clone(&self.0.session), fs: self.0.fs, partition }
    }
}

/// Staged bytes asked of the partition itself.
pub struct WireStage {
    /// Who asks.
    pub session: Arc<Session>,
    /// For which file system.
    pub fs: FsId,
    /// Whose log has the bytes.
    pub partition: PartitionId,
}

impl StageSource for WireStage {
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>> {
        let (session, fs, partition) = (Arc::clone(&self.session), self.fs, self.partition);
        Box::pin(async move {
            let body = Op::ReadStage { at, poff, len };
            match session.call_at(partition, fs, Cred::default(), body).await? {
                Reply::Data(bytes) => Ok(bytes),
                other => Err(unexpected("read stage", &other)),
            }
        })
    }

    fn object(&self, at: ObjectAt, len: u32, more: u32) -> BoxFuture<Result<Bytes>> {
        let (session, fs, partition) = (Arc::clone(&self.session), self.fs, self.partition);
        Box::pin(async move {
            let body = Op::ReadObject { at, len, more };
            match session.call_while_busy(partition, fs, Cred::default(), body).await? {
                Reply::Data(bytes) => Ok(bytes),
                other => Err(unexpected("read object", &other)),
            }
        })
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > braid_base::limits::NAME_MAX {
        return Err(Error::new(
            ErrorKind::NameTooLong,
            format!("a name has at most {} bytes, found {}", braid_base::limits::NAME_MAX, name.len()),
        ));
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(Error::new(ErrorKind::Invalid, "a name is not empty, '.' or '..', and has no '/' and no NUL"));
    }
    Ok(())
}

fn check_range(off: u64, len: u64) -> Result<()> {
    match off.checked_add(len) {
        Some(end) if end <= braid_base::limits::FILE_MAX => Ok(()),
        _ => {
            Err(Error::new(ErrorKind::FileTooBig, format!("a file has at most {} bytes", braid_base::limits::FILE_MAX)))
        }
    }
}
