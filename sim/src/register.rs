//! One file that all clients read and write: whoever reads sees what was last acknowledged to anybody, and a lock has
//! one holder.
//!
//! The file holds a version number, again and again over its first bytes. A writer takes the lock, reads the version,
//! writes the next one over it, gives the lock back. Only clients with sessions take part: what a dead client locked
//! or has on its way ends with its session.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use braid_base::ErrorKind;
use braid_base::ids::{ClientId, FsId, Ino, PartitionId};
use braid_base::msg::fs::{LockKind, LockSpec};
use braid_base::msg::lease::{LeaseKind, Release};
use braid_client::fs::Written;
use braid_client::leases::Holder;
use braid_client::{BoxFuture, Fs, Session};
use braid_io::chance::Rng;
use bytes::Bytes;

use crate::FS;
use crate::board::Board;
use crate::deeds::Deed;
use crate::perform::is_unreadable;

/// Longest record: long enough to be held back or to go straight to the drives.
const LONG: usize = 640 << 10;
/// Bytes of a short one.
const SHORT: usize = 4096;
/// The owner of all locks: clients differ.
const OWNER: u64 = 7;

/// Shared by all.
pub type Shared = Arc<Mutex<Register>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Register> {
    shared.lock().expect("nothing panics while it holds the register")
}

/// Hears when a client's session is given up: what it held back, locked or had open is lost then.
pub struct Losses(AtomicU64, Board);

impl Losses {
    /// Those of the client of `fs`, from now on.
    pub fn of(fs: &Fs, board: &Board) -> Arc<Self> {
        let losses = Arc::new(Self(AtomicU64::new(0), board.clone()));
        if let Some(leases) = fs.session().leases() {
            let holder: Weak<dyn Holder> = Arc::downgrade(&losses) as Weak<dyn Holder>;
            leases.add_holder(holder);
        }
        losses
    }

    /// How often that happened.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Holder for Losses {
    fn flush(&self, _: FsId, _: Ino, _: Option<LeaseKind>) -> BoxFuture<()> {
        Box::pin(ready(()))
    }

    fn forget(&self, _: FsId, _: Ino, _: &[Vec<u8>]) {}

    fn forgotten(&self, _: &[Release]) -> BoxFuture<()> {
        Box::pin(ready(()))
    }

    fn lost(&self, _: PartitionId, _: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // As far as open references go.
        self.1.power_lost();
    }
}

/// A version that is with its writer, who had lost so many sessions when it was written.
#[derive(Clone)]
struct HeldBack {
    version: u64,
    session: Weak<Session>,
    losses: Arc<Losses>,
    lost: u64,
}

impl HeldBack {
    fn counts(&self, ino: Ino) -> bool {
        counts(&self.session, ino) && self.losses.count() == self.lost
    }
}

/// What is known of the file.
#[derive(Default)]
pub struct Register {
    /// The file.
    pub ino: Ino,
    scarce: bool,
    /// The last version that anybody tried to write.
    tried: u64,
    /// The last one that must be there.
    acked: u64,
    /// A later one that must be there as long as its writer lives and was not given up.
    held_back: Option<HeldBack>,
    /// Writers under way, with the losses that each had before it took the lock.
    writing: Vec<(Arc<Losses>, u64)>,
    /// The count of changes of the file after the last acknowledged write.
    change: u64,
    /// Who believes to have the lock.
    /// Who has the lock, as of a session that it had not lost so far.
    holder: Option<(Weak<Session>, Arc<Losses>, u64)>,
    /// Who had it last, and who wrote last.
    last: (Option<ClientId>, Option<ClientId>),
}

/// The session lives and counts on what it has in the partition of `ino`.
fn counts(session: &Weak<Session>, ino: Ino) -> bool {
    session.upgrade().is_some_and(|session| session.leases().is_some_and(|leases| leases.may_hold(FS, ino)))
}

impl Register {
    /// An empty file; `scarce`: there may be no room for what is held back, which its writer then hears from `fsync`.
    pub fn of(ino: Ino, scarce: bool) -> Self {
        Self { ino, scarce, ..Self::default() }
    }

    /// What a read that begins now must at least see, and whose life that hangs on.
    fn floor(&self) -> (u64, Option<HeldBack>) {
        match &self.held_back {
            Some(held) if !self.scarce && held.version > self.acked && held.counts(self.ino) => {
                (held.version, Some(held.clone()))
            }
            _ => (self.acked, None),
        }
    }
}

fn spec(kind: LockKind) -> LockSpec {
    LockSpec { owner: OWNER, pid: 1, start: 0, end: u64::MAX, kind, flock: false }
}

/// The version in `bytes`; words that differ are a torn read.
fn version_of(bytes: &[u8]) -> Result<u64, String> {
    let (words, rest) = bytes.as_chunks::<8>();
    let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
    match words.iter().position(|word| u64::from_le_bytes(*word) != first) {
        Some(at) if rest.is_empty() => Err(format!("of version {first}, and another one at word {at}")),
        _ => Ok(first),
    }
}

/// Reads and checks. `None`: the world was in the way.
async fn read(shared: &Shared, fs: &Fs, board: &Board) -> Result<Option<u64>, String> {
    let (ino, (floor, hangs_on), change) = {
        let register = lock(shared);
        (register.ino, register.floor(), register.change)
    };
    let attr = match fs.getattr(ino).await {
        Ok(attr) => attr,
        Err(error) if error.kind() == ErrorKind::Io => return Ok(None),
        Err(error) => return Err(format!("stat of the shared file: {error}")),
    };
    if attr.change < change {
        return Err(format!("the shared file was changed {change} times, and somebody sees {}", attr.change));
    }
    let found = match fs.read(ino, 0, SHORT as u64).await {
        Ok(bytes) => version_of(&bytes).map_err(|what| format!("a read of the shared file is torn: {what}"))?,
        Err(error) if is_unreadable(&error) => return Ok(None),
        Err(error) => return Err(format!("read of the shared file: {error}")),
    };
    let register = &lock(shared);
    let floor = if hangs_on.is_some_and(|held| !held.counts(ino)) { register.acked.min(floor) } else { floor };
    // Who loses its session with the lock does not know it at once: what it writes may come after what others wrote.
    let unlocked = register.writing.iter().any(|(losses, before)| losses.count() != *before);
    if (found < floor && !unlocked) || found > register.tried {
        let tried = register.tried;
        return Err(format!("the shared file has versions {floor} to {tried}, and somebody reads {found}"));
    }
    if found > 0 && register.last.1 != Some(fs.session().client()) {
        board.did(Deed::SharedRead);
    }
    Ok(Some(found))
}

/// Looks at the file.
pub async fn look(shared: &Shared, fs: &Fs, board: &Board) -> Result<(), String> {
    read(shared, fs, board).await.map(drop)
}

/// Writes the next version under the lock.
pub async fn write(
    shared: &Shared,
    (fs, losses): (&Fs, &Arc<Losses>),
    board: &Board,
    rng: &mut Rng,
) -> Result<(), String> {
    let (ino, me, lost) = (lock(shared).ino, fs.session().client(), losses.count());
    match fs.lock_wait(ino, spec(LockKind::Write), pending()).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
        Err(error) => return Err(format!("lock of the shared file: {error}")),
    }
    taken(&mut lock(shared), (fs, losses, lost), board)?;
    let now = read(shared, fs, board).await?;
    if now.is_some() {
        lock(shared).writing.push((losses.clone(), lost));
        change(shared, (fs, losses), board, rng).await?;
        let register = &mut lock(shared);
        register.writing.retain(|(of, _)| !Arc::ptr_eq(of, losses));
        if losses.count() != lost {
            (register.acked, register.held_back) = (0, None);
        }
    }
    {
        let register = &mut lock(shared);
        let mine = register.holder.as_ref().is_some_and(|(holder, ..)| holder.ptr_eq(&Arc::downgrade(fs.session())));
        if mine {
            register.holder = None;
        }
    }
    match fs.lock(ino, spec(LockKind::Unlock)).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Io => Ok(()),
        Err(error) => Err(format!("client {me} gives the lock of the shared file back: {error}")),
    }
}

fn taken(register: &mut Register, (fs, losses, lost): (&Fs, &Arc<Losses>, u64), board: &Board) -> Result<(), String> {
    let me = fs.session().client();
    // A session that was lost took the lock along, also if its client has another one by now.
    let ino = register.ino;
    let has =
        |(holder, losses, lost): &(Weak<Session>, Arc<Losses>, u64)| counts(holder, ino) && losses.count() == *lost;
    if let Some((holder, ..)) = register.holder.take().filter(has) {
        let other = holder.upgrade().map(|session| session.client());
        return Err(format!("client {me} has the lock of the shared file, and {other:?} has it, too"));
    }
    if register.last.0.replace(me).is_some_and(|before| before != me) {
        board.did(Deed::LockPassed);
    }
    register.holder = Some((Arc::downgrade(fs.session()), Arc::clone(losses), lost));
    Ok(())
}

async fn change(
    shared: &Shared,
    (fs, losses): (&Fs, &Arc<Losses>),
    board: &Board,
    rng: &mut Rng,
) -> Result<(), String> {
    let lost = losses.count();
    let (ino, version) = {
        let register = &mut lock(shared);
        register.tried += 1;
        (register.ino, register.tried)
    };
    let len = if rng.chance(1, 3) { LONG } else { SHORT };
    let words = Bytes::from(version.to_le_bytes().repeat(len / 8));
    board.note(|| format!("client {} writes version {version}, {len} bytes", fs.session().client()));
    let written = match fs.write(ino, 0, words, false, false).await {
        Ok(written) => written,
        Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Io) => return Ok(()),
        Err(error) => return Err(format!("write to the shared file: {error}")),
    };
    let held = HeldBack { version, session: Arc::downgrade(fs.session()), losses: losses.clone(), lost };
    settled(shared, fs, board, held, &written);
    if written.attr.is_none() && rng.chance(1, 2) && fs.fsync(ino).await.is_ok() {
        let register = &mut lock(shared);
        register.acked = register.acked.max(version);
    }
    Ok(())
}

/// The write was answered.
fn settled(shared: &Shared, fs: &Fs, board: &Board, held: HeldBack, written: &Written) {
    let register = &mut lock(shared);
    register.last.1 = Some(fs.session().client());
    match &written.attr {
        Some(attr) => {
            register.acked = register.acked.max(held.version);
            register.change = register.change.max(attr.change);
        }
        None => {
            board.did(Deed::HeldBack);
            register.held_back = Some(held);
        }
    }
}
