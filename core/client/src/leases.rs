//! What this client may answer from memory, and how it gives that back: the shell around [`Core`].
//!
//! [`Leases`] is asked on every call and told every answer; [`Leases::run`] sends heartbeats and gives leases back.
//! Without `run`, or over a wire without pushes, there are no sessions and everything is asked.

mod borrowed;
mod cache;
mod changed;
mod core;
mod event;
mod kept;
mod listing;
mod programs;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::task::{Context, Poll, Waker};

use braid_base::Result;
use braid_base::attr::Attr;
use braid_base::ids::{ClientId, FsId, HostId, Ino, PartitionId};
use braid_base::msg::fs::{DirEntry, Op};
use braid_base::msg::lease::{Answer, LeaseKind, Push, Release};
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;

pub(crate) use self::core::Owed;
pub use self::core::{Core, CoreMutation};
pub use self::event::{Asked, Effect, Event};
use crate::wire::{BoxFuture, PushSink, Wire};

/// How often the machine looks at its clock, milliseconds.
const TICK_MS: u64 = 500;
/// Tasks that may end before heartbeats have their turn.
const ENDS_AT_ONCE: usize = 64;

/// Who holds back or remembers more than attributes and names: told when that must end.
pub trait Holder: Send + Sync {
    /// Write what is held back of `ino`, and hold nothing more back; ready when that is done or has failed for good.
    /// With `keep` what was read may still be remembered. Writes go out under the session that was current when the
    /// data was taken.
    fn flush(&self, fs: FsId, ino: Ino, keep: Option<LeaseKind>) -> BoxFuture<()>;

    /// Forget what was read of `ino`, and of these names in it. Returns at once.
    fn forget(&self, fs: FsId, ino: Ino, names: &[Vec<u8>]);

    /// Ready when everything that was to be forgotten of these until now is, as far as that can be waited for: before
    /// that their leases are not given back.
    fn forgotten(&self, of: &[Release]) -> BoxFuture<()>;

    /// This session in `p` is lost: what was held back under it of inodes there must not be written any more. The next one
    /// may have begun. Returns at once.
    fn lost(&self, p: PartitionId, session: u64);
}

/// Who sends what the leases have to say: the client's session.
pub(crate) trait Asker: Send + Sync {
    /// A message about session `session` of partition `p`: heartbeats are sent once, others until they are answered.
    fn ask(self: Arc<Self>, p: PartitionId, session: u64, body: Op) -> BoxFuture<Option<Answer>>;

    /// Tells partitions of open references that they do not know of. Errors: of a partition that could not be told of all.
    fn say_opens(self: Arc<Self>, owed: Vec<Owed>) -> BoxFuture<Result<()>>;
}

/// This client is removing a name, of a certain file or an unknown one.
pub(crate) struct Removing {
    leases: Arc<Leases>,
    fs: FsId,
    ino: Option<Ino>,
}

impl Drop for Removing {
    fn drop(&mut self) {
        self.leases.core().removed(self.fs, self.ino);
    }
}

/// Sessions and leases of one client.
pub struct Leases {
    wire: Arc<dyn Wire>,
    home: Option<HostId>,
    core: Mutex<Core>,
    /// Held from a step until what it says to forget is forgotten: no step of another thread may give that back before.
    turn: Mutex<()>,
    /// What `run` has to do, and its waker.
    todo: Mutex<Todo>,
    holders: RwLock<Vec<Weak<dyn Holder>>>,
}

#[derive(Default)]
struct Todo {
    effects: VecDeque<Effect>,
    waker: Option<Waker>,
    runs: bool,
}

impl Leases {
    /// Those of `client`. `home`: the host in whose server process the client lives, if so.
    pub(crate) fn new(wire: Arc<dyn Wire>, client: ClientId, home: Option<HostId>) -> Arc<Self> {
        let core = Mutex::new(Core::new(client, wire.partitions(), home));
        Arc::new(Self { wire, core, turn: Mutex::default(), home, todo: Mutex::default(), holders: RwLock::default() })
    }

    /// Adds someone to be told.
    pub fn add_holder(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.holders.write().expect("nothing panics while it holds the list");
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// To be noted when a request to `p` is sent; it goes under `fixed` or else the session that there is. `None`: there
    /// is none yet, and the request should wait for it, because what it opens or locks would belong to nobody when this
    /// client is gone. One that lives in the server's process is gone only with that: it does not wait (a log without
    /// room for the mark of a session may still be read). Requests that end sessions need none either.
    pub(crate) fn asking(&self, p: PartitionId, fixed: Option<u64>, fs: FsId, body: &Op) -> Option<Asked> {
        let (current, stamp) = {
            let mut core = self.core();
            core.kept.gives(fs, body);
            (core.session(p), core.asking())
        };
        let needs_one = !body.is_session() && !matches!(body, Op::EndSession);
        if current == 0 && needs_one && self.todo().runs {
            self.step(Event::Wanted(p));
            let session = fixed.or(self.home.map(|_| 0))?;
            return Some(Asked { session, fixed: fixed.is_some(), stamp });
        }
        Some(Asked { session: fixed.unwrap_or(current), fixed: fixed.is_some(), stamp })
    }

    /// The attributes of an inode, if they are certain.
    pub fn attr(&self, fs: FsId, ino: Ino) -> Option<Attr> {
        self.core().attr(fs, ino, self.wire.now_ms()).cloned()
    }

    /// What a name stands for, if that is certain; `Some(None)`: it is not there.
    pub fn name(&self, fs: FsId, dir: Ino, name: &[u8]) -> Option<Option<Ino>> {
        self.core().name(fs, dir, name, self.wire.now_ms())
    }

    /// Up to `limit` names of `dir` behind `cookie`, without attributes, and whether the end was reached, if that is certain.
    pub fn listed(&self, fs: FsId, dir: Ino, cookie: u64, limit: u32) -> Option<(Vec<DirEntry>, bool)> {
        self.core().listed(fs, dir, cookie, limit, self.wire.now_ms())
    }

    /// True if a lease on `ino` would count: there is a session, its partition was heard of lately, and no change of it is
    /// in doubt.
    pub fn may_hold(&self, fs: FsId, ino: Ino) -> bool {
        self.core().may_hold(fs, ino, self.wire.now_ms())
    }

    /// The lease on `ino` that counts now, and the session that it is of.
    pub fn held(&self, fs: FsId, ino: Ino) -> Option<(LeaseKind, u64)> {
        let core = self.core();
        let kind = core.lease(fs, ino, self.wire.now_ms())?;
        Some((kind, core.session(ino.partition(self.wire.partitions()))))
    }

    /// As [`Core::may_make`], and the number of the file.
    pub(crate) fn may_make(&self, fs: FsId, dir: Ino, name: &[u8], is_free: bool) -> Option<(Ino, Attr, u64, bool)> {
        let mut core = self.core();
        let (attr, session, is_roomy) = core.may_make(fs, dir, name, is_free, self.wire.now_ms())?;
        // With extended attributes it may have a default ACL, which is the partition's to apply.
        let ino = (!attr.xattrs).then(|| core.take_number(fs, dir))??;
        Some((ino, attr, session, is_roomy))
    }

    /// As [`Core::may_remove`].
    pub(crate) fn may_remove(&self, fs: FsId, dir: Ino, name: &[u8]) -> Option<(Attr, u64)> {
        self.core().may_remove(fs, dir, name, self.wire.now_ms())
    }

    /// As [`Core::may_remove_dir`].
    pub(crate) fn may_remove_dir(
        &self,
        fs: FsId,
        dir: Ino,
        name: &[u8],
        is_gone: impl Fn(Ino, &[u8]) -> bool,
    ) -> Option<(Attr, u64)> {
        self.core().may_remove_dir(fs, (dir, name), self.wire.now_ms(), is_gone)
    }

    /// The session in `p`; 0: none.
    pub(crate) fn session(&self, p: PartitionId) -> u64 {
        self.core().session(p)
    }

    /// As [`Core::borrow`].
    pub(crate) fn borrow(&self, fs: FsId, ino: Ino) -> bool {
        self.core().borrow(fs, ino, self.wire.now_ms())
    }

    /// As [`Core::had`].
    pub(crate) fn had(&self, fs: FsId, ino: Ino, session: u64) {
        self.core().had(fs, ino, session);
    }

    /// A program closes a file. If its partition has to hear of that: the session there (0: none), and the open references
    /// of the file that it has there.
    pub(crate) fn give(&self, fs: FsId, ino: Ino) -> Option<(u64, u32)> {
        // One turn for all: the reference is one of this session.
        let mut core = self.core();
        let is_done = core.give(fs, ino);
        (!is_done).then(|| (core.session(ino.partition(self.wire.partitions())), core.opens(fs, ino)))
    }

    /// As [`Core::removing`], as long as what is returned lives.
    pub(crate) fn removing(self: &Arc<Self>, fs: FsId, ino: Option<Ino>) -> Removing {
        self.core().removing(fs, ino);
        Removing { leases: Arc::clone(self), fs, ino }
    }

    /// As [`Core::owed_before_removal`].
    pub(crate) fn owed_before_removal(&self, fs: FsId, ino: Ino) -> Vec<Owed> {
        self.core().owed_before_removal(fs, ino)
    }

    /// As [`Core::owes`].
    pub(crate) fn owes(&self, fs: FsId) -> bool {
        self.core().owes(fs)
    }

    /// As [`Core::said`].
    pub(crate) fn said(&self, owed: &Owed, told: u32) -> u32 {
        self.core().said(owed, told)
    }

    /// Leaves a rule out, to prove that the tests see it.
    #[doc(hidden)]
    pub fn leave_out(&self, mutation: Option<CoreMutation>) {
        self.core().leave_out(mutation);
    }

    /// Attributes and names remembered.
    pub fn remembered(&self) -> usize {
        self.core().len()
    }

    /// The answer to a request. False if it does not count and must be asked again: see [`Core::is_past`].
    pub(crate) fn answered(&self, p: PartitionId, asked: Asked, fs: FsId, op: &Op, answer: &Answer) -> bool {
        // One turn for both: what is asserted must be what was counted.
        let turn = self.turn();
        if self.core().is_past(p, asked.session, op, answer) {
            return false;
        }
        self.step_in(turn, Event::Answered { p, asked, fs, op, answer });
        true
    }

    /// This change may take effect without anybody knowing.
    pub(crate) fn doubt(&self, fs: FsId, op: &Op) {
        self.step(Event::Doubt { fs, op });
    }

    /// Takes pushes to `client` from now on; false if the wire has none. Then there are no sessions.
    pub(crate) fn listen(self: &Arc<Self>, client: ClientId) -> bool {
        let sink: Arc<dyn PushSink> = self.clone();
        let listens = self.wire.listen(client, sink);
        self.todo().runs = listens;
        listens
    }

    /// Keeps sessions alive and gives leases back, until `session` is gone. Run it as a task, after [`Self::listen`].
    pub(crate) async fn run(self: Arc<Self>, session: Weak<dyn Asker>) {
        // However much there is to give back: sessions are kept alive first.
        let (mut beats, mut others) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            let mut pause = self.wire.sleep_ms(TICK_MS);
            poll_fn(|cx| {
                self.todo().waker = Some(cx.waker().clone());
                for effect in self.take_todo() {
                    let tasks = if effect.is_beat() { &mut beats } else { &mut others };
                    tasks.push(Arc::clone(&self).carry_out(session.clone(), effect));
                }
                if ended(&mut beats, cx, usize::MAX) > 0 || pause.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                if ended(&mut others, cx, ENDS_AT_ONCE) == ENDS_AT_ONCE {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            })
            .await;
            if session.strong_count() == 0 {
                return;
            }
            self.step(Event::Tick);
        }
    }

    fn take_todo(&self) -> VecDeque<Effect> {
        std::mem::take(&mut self.todo().effects)
    }

    async fn carry_out(self: Arc<Self>, session: Weak<dyn Asker>, effect: Effect) {
        match effect {
            Effect::Flush { fs, ino, keep, session } => {
                for holder in self.holders() {
                    holder.flush(fs, ino, keep).await;
                }
                self.step(Event::Flushed { fs, ino, session });
            }
            Effect::Ask { p, session: number, body } => {
                let Some(session) = session.upgrade() else { return };
                if let Op::ReleaseLease { leases } = &body {
                    for holder in self.holders() {
                        holder.forgotten(leases).await;
                    }
                    let owed = self.core().owed_before_release(leases);
                    if Arc::clone(&session).say_opens(owed).await.is_err() {
                        return; // the partition asks for the lease again
                    }
                }
                let sent_ms = self.wire.now_ms();
                // A heartbeat that was silent for long counts from when it was sent: it is not repeated here.
                let Some(answer) = session.ask(p, number, body.clone()).await else { return };
                let answer = &answer;
                match body {
                    Op::Hello { .. } => self.step(Event::Hello { p, session: number, sent_ms, answer }),
                    Op::Reassert { .. } => self.step(Event::Reasserted { p, session: number, sent_ms, answer }),
                    _ => {}
                }
            }
            Effect::Forget { .. } | Effect::Lost { .. } => {}
        }
    }

    fn step(&self, event: Event<'_>) {
        self.step_in(self.turn(), event);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().expect("nothing panics while it has its turn")
    }

    fn step_in(&self, turn: MutexGuard<'_, ()>, event: Event<'_>) {
        let mut out = Vec::new();
        self.core().step(self.wire.now_ms(), event, &mut out);
        if out.is_empty() {
            return;
        }
        let holders = self.holders();
        // What must be forgotten is forgotten before anybody hears that it was.
        for effect in &out {
            if let Effect::Forget { fs, ino, names } = effect {
                holders.iter().for_each(|holder| holder.forget(*fs, *ino, names));
            }
        }
        drop(turn);
        for effect in &out {
            // Whoever waited for what is lost may go on in this very thread, and take a turn.
            if let Effect::Lost { p, session } = effect {
                holders.iter().for_each(|holder| holder.lost(*p, *session));
            }
        }
        let mut todo = self.todo();
        todo.effects.extend(out.into_iter().filter(|e| matches!(e, Effect::Ask { .. } | Effect::Flush { .. })));
        if let (false, Some(waker)) = (todo.effects.is_empty(), &todo.waker) {
            waker.wake_by_ref();
        }
    }

    fn holders(&self) -> Vec<Arc<dyn Holder>> {
        let holders = self.holders.read().expect("nothing panics while it holds the list");
        holders.iter().filter_map(Weak::upgrade).collect()
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("nothing panics while it holds the leases")
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().expect("nothing panics while it holds the list")
    }
}

/// Lets those of `tasks` go on that were woken, until `most` of them have ended; how many did.
fn ended<F: Future<Output = ()>>(tasks: &mut FuturesUnordered<F>, cx: &mut Context<'_>, most: usize) -> usize {
    let mut ended = 0;
    while ended < most && Pin::new(&mut *tasks).poll_next(cx) == Poll::Ready(Some(())) {
        ended += 1;
    }
    ended
}

impl PushSink for Leases {
    fn pushed(&self, push: Push) {
        self.step(Event::Pushed(push));
    }

    fn reconnected(&self) {
        self.step(Event::Reconnected);
    }
}
