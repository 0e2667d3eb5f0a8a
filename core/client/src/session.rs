//! One client's session: numbers its operations, repeats what got no answer, gives up in the end.

mod numbers;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use braid_base::ids::{ClientId, FsId, HostId, Ino, OpId, PartitionId};
use braid_base::msg::fs::{Cred, FsResult, LockSpec, Op, Reply, Request};
use braid_base::msg::lease::Answer;
use braid_base::{Error, ErrorKind, Result};

use crate::join::{join_bounded, until, within};
use crate::leases::{Asked, Asker, Leases, Owed};
use crate::wire::{BoxFuture, Wire};
use numbers::Numbers;

/// How long a session waits, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After this an operation that a program waits for fails with `Io`; whether it took effect is then unknown.
    pub deadline_ms: u64,
    /// After this without an answer the same operation is sent again.
    pub attempt_ms: u64,
    /// A wait for a lock is renewed this often, so that an operation number never stays open for long.
    pub lock_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { deadline_ms: 30_000, attempt_ms: 10_000, lock_ms: 20_000 }
    }
}

const _: () = assert!(BACKOFF_FIRST_MS <= BACKOFF_BUSY_MAX_MS && BACKOFF_BUSY_MAX_MS <= BACKOFF_GONE_MAX_MS);
/// First pause before a repetition.
const BACKOFF_FIRST_MS: u64 = 1;
/// Longest pause while a conflicting operation is under way: those end within a few messages.
const BACKOFF_BUSY_MAX_MS: u64 = 64;
/// Longest pause while a server is away: it needs seconds to come back.
const BACKOFF_GONE_MAX_MS: u64 = 500;
/// How long heartbeats that reach nobody are repeated at once; from then on whoever sends them decides.
const HELLO_AGAIN_MS: u64 = 1_000;
/// How long a partition may say that it is busy before what needs a store fails, milliseconds: longer than it waits itself.
const BUSY_MS_MAX: u64 = 1_200_000;
/// Files whose open references are told at a time.
const OPENS_AT_ONCE: usize = 64;
/// Partitions that are told at a time that a client leaves.
const ENDS_AT_ONCE: usize = 64;

/// The session of one client id. Share it in an `Arc`.
pub struct Session {
    wire: Arc<dyn Wire>,
    client: ClientId,
    patience: Patience,
    /// The host and its partitions live and fall with this client.
    shares_fate: bool,
    ops: Mutex<Ops>,
    leases: OnceLock<Arc<Leases>>,
}

/// Operations under way.
#[derive(Default)]
struct Ops {
    numbers: Numbers,
    /// When a partition said last that an operation has its turn.
    held_ms: BTreeMap<PartitionId, u64>,
}

/// How a wait for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEnd {
    /// The lock is held.
    Held,
    /// The caller was interrupted and the lock is not held.
    Interrupted,
}

impl Session {
    /// A session of `client` with the default patience.
    pub fn new(wire: Arc<dyn Wire>, client: ClientId) -> Arc<Self> {
        Self::with_patience(wire, client, Patience::default())
    }

    /// A session of `client` that waits as `patience` says.
    pub fn with_patience(wire: Arc<dyn Wire>, client: ClientId, patience: Patience) -> Arc<Self> {
        Arc::new(Self::make(wire, client, patience, false))
    }

    /// A session of `client` in the process of the host: its answers need not wait until they are durable, because
    /// nobody is left to rely on one that was lost. What must last is asked for with `Sync`.
    pub fn sharing_fate(wire: Arc<dyn Wire>, client: ClientId) -> Arc<Self> {
        Arc::new(Self::make(wire, client, Patience::default(), true))
    }

    fn make(wire: Arc<dyn Wire>, client: ClientId, patience: Patience, shares_fate: bool) -> Self {
        Self { wire, client, patience, shares_fate, ops: Mutex::default(), leases: OnceLock::new() }
    }

    /// True if the host and its partitions live and fall with this client.
    pub fn shares_fate(&self) -> bool {
        self.shares_fate
    }

    /// The client id.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// How long it waits.
    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// The way out.
    pub fn wire(&self) -> &Arc<dyn Wire> {
        &self.wire
    }

    /// Turns leases on: the future keeps sessions in the partitions alive and gives leases back as long as this
    /// session lives; run it as a task. `home`: the host in whose server process this client lives, if so. Over a
    /// wire without pushes it ends at once, and everything stays as without.
    pub fn keep_leases(self: &Arc<Self>, home: Option<HostId>) -> impl Future<Output = ()> + Send + 'static {
        let leases = self.leases.get_or_init(|| Leases::new(Arc::clone(&self.wire), self.client, home));
        let asker: Weak<dyn Asker> = Arc::downgrade(self) as Weak<dyn Asker>;
        let (leases, listens) = (Arc::clone(leases), leases.listen(self.client));
        async move {
            if listens {
                leases.run(asker).await;
            }
        }
    }

    /// The leases, if they were turned on.
    pub fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.get()
    }

    async fn ask_once(&self, p: PartitionId, session: u64, body: Op) -> Option<Answer> {
        let ticket = self.begin();
        if matches!(body, Op::Hello { .. } | Op::Reassert { .. }) {
            let give_up = self.wire.now_ms() + HELLO_AGAIN_MS;
            loop {
                let request = self.request(&ticket, p, session, FsId::default(), Cred::default(), &body);
                let answer = within(&*self.wire, self.patience.attempt_ms, self.wire.partition(p, request)).await?;
                // A new primary calls before the map says that it is one, and the old one is not there any more.
                let is_passing = answer.result.as_ref().is_err_and(|error| is_passing(error, Some(session)));
                if !is_passing || self.wire.now_ms() >= give_up {
                    return Some(answer);
                }
                let moved = self.wire.moved(p);
                until(moved, self.wire.sleep_ms(BACKOFF_BUSY_MAX_MS)).await;
            }
        }
        let call =
            Call { p, fs: FsId::default(), cred: Cred::default(), session: Some(session), waits: true, lasts: false };
        Some(self.repeat_for(self.patience.attempt_ms, &ticket, call, body).await.into())
    }

    /// Asks as of `session`, for what was held back under a lease and nobody waits for: there is no deadline as long as that
    /// session lives; `SessionLost` when it is over. `body` is carried out in its partition alone, which passes it on to none.
    pub(crate) async fn call_lasting(&self, session: u64, fs: FsId, cred: Cred, body: Op) -> FsResult {
        self.call_under(session, true, fs, cred, body).await
    }

    async fn call_under(&self, session: u64, lasts: bool, fs: FsId, cred: Cred, body: Op) -> FsResult {
        let p = self.home(routed(&body)?);
        let ticket = if lasts { self.begin_lasting(p) } else { self.begin() };
        let call = Call { p, fs, cred, session: Some(session), waits: true, lasts };
        self.repeat_for(self.patience.attempt_ms, &ticket, call, body).await
    }

    /// Tells partitions of open references that they do not know of; `lasts` as of [`Self::call_lasting`]. Errors: of one
    /// that could not be told of all.
    pub(crate) async fn say(&self, owed: Vec<Owed>, lasts: bool) -> Result<()> {
        let said = owed.iter().map(|owed| self.say_one(owed, lasts)).collect();
        join_bounded(OPENS_AT_ONCE, said).await.into_iter().collect()
    }

    async fn say_one(&self, owed: &Owed, lasts: bool) -> Result<()> {
        let Owed { fs, ino, session, count } = *owed;
        let under = |body: Op| self.call_under(session, lasts, fs, Cred::default(), body);
        let opens = (0..count).map(|_| under(Op::Open { ino, truncate: false })).collect();
        let (mut told, mut result) = (0, Ok(()));
        for said in join_bounded(OPENS_AT_ONCE, opens).await {
            match said {
                // What went with its session, or is no more, need not be told.
                Err(error)
                    if !matches!(error.kind(), ErrorKind::SessionLost | ErrorKind::NotFound | ErrorKind::Stale) =>
                {
                    result = Err(error.within("an open file could not be told to its partition"));
                }
                _ => told += 1,
            }
        }
        let close = self.leases().map_or(0, |leases| leases.said(owed, told));
        if close > 0
            && let Err(error) = under(Op::Close { inos: vec![ino; close as usize] }).await
        {
            tracing::debug!(%ino, %error, "open references could not be given back");
        }
        result
    }

    /// Asks the partition that `body` routes to. Errors: the partition's, and `Io` after the deadline.
    pub async fn call(&self, fs: FsId, cred: Cred, body: Op) -> FsResult {
        self.call_at(self.home(routed(&body)?), fs, cred, body).await
    }

    /// Asks partition `p`. Errors as of [`Self::call`].
    pub async fn call_at(&self, p: PartitionId, fs: FsId, cred: Cred, body: Op) -> FsResult {
        let ticket = self.begin();
        self.repeat(&ticket, p, fs, cred, body).await
    }

    /// As [`Self::call_at`], for what a partition has to wait for, too: as long as it says that it is busy there is no
    /// deadline, but `Io` in the end. `body` changes nothing.
    pub async fn call_while_busy(&self, p: PartitionId, fs: FsId, cred: Cred, body: Op) -> FsResult {
        let give_up = self.wire.now_ms() + BUSY_MS_MAX;
        loop {
            // A number of its own each time, so that none stays open for long.
            let ticket = self.begin();
            let call = Call { p, fs, cred, session: None, waits: false, lasts: false };
            match self.repeat_for(self.patience.attempt_ms, &ticket, call, body.clone()).await {
                Err(error) if error.kind() == ErrorKind::Busy && self.wire.now_ms() < give_up => {
                    self.wire.sleep_ms(BACKOFF_BUSY_MAX_MS).await;
                }
                Err(error) if error.kind() == ErrorKind::Busy => {
                    return Err(Error::new(ErrorKind::Io, error.message().to_owned()));
                }
                answer => return answer,
            }
        }
    }

    /// Waits for a lock until it is had or `interrupted` comes; there is no deadline while the partition answers.
    pub async fn lock(
        &self,
        fs: FsId,
        ino: Ino,
        lock: LockSpec,
        interrupted: impl Future<Output = ()>,
    ) -> Result<LockEnd> {
        let mut interrupted = pin!(interrupted);
        loop {
            let ticket = self.begin();
            let call = Call { p: self.home(ino), fs, cred: Cred::default(), session: None, waits: true, lasts: false };
            let asked = self.repeat_for(self.patience.lock_ms * 2, &ticket, call, Op::Lock { ino, lock, wait: true });
            let for_a_while = within(&*self.wire, self.patience.lock_ms, Box::pin(asked));
            let (answer, stop) = match until(interrupted.as_mut(), for_a_while).await {
                Some(Some(answer)) => (answer, false),
                // Once it has come, `interrupted` is not asked again: what follows returns.
                gone => (self.give_up(&ticket, call, ino, lock).await, gone.is_none()),
            };
            match answer {
                Ok(_) => return Ok(LockEnd::Held),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) if stop => return Ok(LockEnd::Interrupted),
                // Our own cancel after `lock_ms`: ask again under a new number.
                Err(_) => {}
            }
        }
    }

    /// Ends the wait that `ticket` asked for, which nobody asks for any more: held, or `WouldBlock`, and then it never will be.
    ///
    /// 1. The cancel: whatever of the wait is on its way, or comes later, is answered.
    /// 2. The same number once more, without waiting. The partition says what became of it; another primary, which knows
    ///    neither the wait nor the cancel, gives the lock now or not at all.
    async fn give_up(&self, ticket: &Ticket<'_>, call: Call, ino: Ino, lock: LockSpec) -> FsResult {
        self.call(call.fs, call.cred, Op::CancelLock { ino, seq: ticket.seq }).await?;
        self.repeat_for(self.patience.attempt_ms, ticket, call, Op::Lock { ino, lock, wait: false }).await
    }

    /// Ends the session in every partition: open references and locks go. Errors: the first one met.
    pub async fn end(&self, fs: FsId) -> Result<()> {
        let ends = (0..self.wire.partitions()).map(PartitionId);
        let ends = ends.map(|p| self.call_at(p, fs, Cred::default(), Op::EndSession)).collect();
        join_bounded(ENDS_AT_ONCE, ends).await.into_iter().try_for_each(|ended| ended.map(drop))
    }

    pub(crate) fn home(&self, ino: Ino) -> PartitionId {
        ino.partition(self.wire.partitions())
    }

    async fn repeat(&self, ticket: &Ticket<'_>, p: PartitionId, fs: FsId, cred: Cred, body: Op) -> FsResult {
        let call = Call { p, fs, cred, session: None, waits: true, lasts: false };
        self.repeat_for(self.patience.attempt_ms, ticket, call, body).await
    }

    async fn repeat_for(&self, attempt_ms: u64, ticket: &Ticket<'_>, call: Call, body: Op) -> FsResult {
        let Call { p, fs, cred, session: fixed, waits, .. } = call;
        let mut doubt = Doubt { leases: None, fs, op: &body };
        let patience_ms = self.patience.deadline_ms.max(attempt_ms);
        let mut give_up = self.wire.now_ms() + patience_ms;
        let mut pause = BACKOFF_FIRST_MS;
        loop {
            if self.is_over(call) {
                // What came of it shows in all that is heard in the next session: nothing is in doubt.
                doubt.leases = None;
                return Err(Error::new(ErrorKind::SessionLost, format!("the session in {p} is over")));
            }
            let alone = Asked { session: fixed.unwrap_or(0), fixed: fixed.is_some(), stamp: 0 };
            let Some(noted) = self.leases().map_or(Some(alone), |leases| leases.asking(p, fixed, fs, &body)) else {
                let left = give_up.saturating_sub(self.wire.now_ms());
                if left == 0 {
                    return Err(Error::new(ErrorKind::Io, format!("{p} began no session with this client in time")));
                }
                self.wire.sleep_ms(pause.min(left)).await;
                pause = (pause * 2).min(BACKOFF_BUSY_MAX_MS);
                continue;
            };
            doubt.leases = self.leases().filter(|_| changes(&body));
            let request = self.request(ticket, p, noted.session, fs, cred, &body);
            let left = give_up.saturating_sub(self.wire.now_ms());
            let mut asked = self.wire.partition(p, request);
            let heard = |answer: Answer| self.heard(p, noted, fs, &body, answer);
            let answer = within(&*self.wire, left.min(attempt_ms), asked.as_mut()).await.map(heard);
            let silent = answer.is_none();
            let error = match answer {
                Some(Err(error)) if is_passing(&error, fixed) && (waits || error.kind() != ErrorKind::Busy) => error,
                Some(answer) => {
                    doubt.settle(&answer);
                    return answer;
                }
                None => ErrorKind::TimedOut.into(),
            };
            tracing::debug!(%p, seq = ticket.seq, %error, "an operation is to be asked again");
            let now = self.wire.now_ms();
            if now >= give_up && call.lasts {
                give_up = now + patience_ms;
            }
            if now >= give_up {
                let after = self.patience.deadline_ms;
                return Err(Error::new(ErrorKind::Io, format!("{p} gave no answer within {after} ms: {error}")));
            }
            if error.kind() == ErrorKind::Held {
                // It is known there, and has its turn; the partition answers otherwise when it has waited too long.
                give_up = now + patience_ms;
                self.ops().held_ms.insert(p, now);
            }
            let longest = if error.kind() == ErrorKind::Busy { BACKOFF_BUSY_MAX_MS } else { BACKOFF_GONE_MAX_MS };
            // Two that collide would collide again after equal pauses: the number of the operation tells them apart.
            let spread = (ticket.seq ^ self.client.0) % pause;
            let rest = self.wire.sleep_ms((pause + spread).min(give_up - now));
            if silent {
                // It may be answered late: an answer that comes into the pause counts.
                let heard = |answer: Answer| self.heard(p, noted, fs, &body, answer);
                match until(rest, asked).await.map(heard) {
                    Some(Err(error)) if is_passing(&error, fixed) => {}
                    Some(answer) => {
                        doubt.settle(&answer);
                        return answer;
                    }
                    None => {}
                }
            } else if until(rest, self.wire.moved(p)).await.is_some() {
                pause = BACKOFF_FIRST_MS;
                continue;
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// True for what lasts as long as its session, once its partition said that this is over.
    fn is_over(&self, call: Call) -> bool {
        let is_other = |leases: &Arc<Leases>| call.session != Some(leases.session(call.p));
        call.lasts && self.leases().is_some_and(is_other)
    }

    /// True if `p` said a short time ago that an operation has its turn, and has to wait.
    pub(crate) fn is_held(&self, p: PartitionId) -> bool {
        let said = self.ops().held_ms.get(&p).copied();
        said.is_some_and(|said| self.wire.now_ms() < said + self.patience.attempt_ms)
    }

    fn request(&self, ticket: &Ticket<'_>, p: PartitionId, session: u64, fs: FsId, cred: Cred, body: &Op) -> Request {
        let op = OpId { client: self.client, seq: ticket.seq };
        let (mut body, ops) = (body.clone(), self.ops());
        let done_upto = match &mut body {
            Op::Hello { open, .. } => {
                let (upto, but) = ops.numbers.done_but(p, ticket.seq);
                *open = but;
                upto
            }
            // It may be passed on to any other partition.
            Op::Rename { .. } => ops.numbers.done_upto(None),
            _ => ops.numbers.done_upto(Some(p)),
        };
        Request { op, session, done_upto, fs, cred, early: self.shares_fate, body }
    }

    /// Takes note of an answer.
    fn heard(&self, p: PartitionId, asked: Asked, fs: FsId, body: &Op, answer: Answer) -> FsResult {
        match self.leases() {
            Some(leases) if !leases.answered(p, asked, fs, body, &answer) => {
                Err(Error::new(ErrorKind::Moved, format!("{p} was restarted since it answered")))
            }
            _ => answer.result,
        }
    }

    fn begin(&self) -> Ticket<'_> {
        Ticket { session: self, seq: self.ops().numbers.begin(None), lasts: None }
    }

    fn begin_lasting(&self, p: PartitionId) -> Ticket<'_> {
        Ticket { session: self, seq: self.ops().numbers.begin(Some(p)), lasts: Some(p) }
    }

    fn ops(&self) -> MutexGuard<'_, Ops> {
        self.ops.lock().expect("nothing panics while it holds the operation numbers")
    }
}

impl Asker for Session {
    fn ask(self: Arc<Self>, p: PartitionId, session: u64, body: Op) -> BoxFuture<Option<Answer>> {
        Box::pin(async move { self.ask_once(p, session, body).await })
    }

    fn say_opens(self: Arc<Self>, owed: Vec<Owed>) -> BoxFuture<Result<()>> {
        Box::pin(async move { self.say(owed, false).await })
    }
}

/// Where an operation goes, and for whom.
#[derive(Clone, Copy)]
struct Call {
    p: PartitionId,
    fs: FsId,
    cred: Cred,
    /// Under this session only; else under the one that there is at each attempt.
    session: Option<u64>,
    /// A partition that is busy is asked again.
    waits: bool,
    /// There is no deadline as long as the session lives.
    lasts: bool,
}

/// A change on its way: if its outcome remains unknown, nothing that is remembered of what it may touch can be trusted.
struct Doubt<'a> {
    leases: Option<&'a Arc<Leases>>,
    fs: FsId,
    op: &'a Op,
}

impl Doubt<'_> {
    /// An answer came.
    fn settle(&mut self, answer: &FsResult) {
        if answer.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Io) {
            self.leases = None;
        }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(leases) = self.leases {
            leases.doubt(self.fs, self.op);
        }
    }
}

/// True if it changes attributes or names.
fn changes(body: &Op) -> bool {
    let holds = matches!(
        body,
        Op::Close { .. }
            | Op::Open { truncate: false, .. }
            | Op::Lock { .. }
            | Op::CancelLock { .. }
            | Op::UnlockOwner { .. }
            | Op::EndSession
    );
    !body.is_read() && !body.is_session() && !holds
}

/// True if the same request may succeed later. What must go under one session fails with that.
fn is_passing(error: &Error, fixed: Option<u64>) -> bool {
    error.kind().is_passing() || (error.kind() == ErrorKind::SessionLost && fixed.is_none())
}

/// An operation number in use, given back when dropped.
struct Ticket<'a> {
    session: &'a Session,
    seq: u64,
    /// It may stay open for long, and goes to this partition only.
    lasts: Option<PartitionId>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.session.ops().numbers.end(self.seq, self.lasts);
    }
}

/// The inode that says which partition is asked.
fn routed(body: &Op) -> Result<Ino> {
    let complaint = || Error::new(ErrorKind::Invalid, "this operation must be asked of a named partition");
    body.route().ok_or_else(complaint)
}

/// Complains when a partition answers with something else than the message asks for.
pub(crate) fn unexpected(asked: &str, found: &Reply) -> Error {
    let found: String = format!("{found:?}").chars().take(80).collect();
    Error::new(ErrorKind::Io, format!("{asked}: the partition answered with something else: {found}"))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use braid_base::msg::drive::{DriveOp, DriveResult};

    use super::*;

    /// A way to four partitions that leads nowhere.
    struct Nowhere;

    impl Wire for Nowhere {
        fn partition(&self, _p: PartitionId, _req: Request) -> BoxFuture<Answer> {
            Box::pin(pending())
        }

        fn drive(&self, _d: braid_base::ids::DriveId, _op: DriveOp) -> BoxFuture<DriveResult> {
            Box::pin(pending())
        }

        fn sleep_ms(&self, _ms: u64) -> BoxFuture<()> {
            Box::pin(pending())
        }

        fn partitions(&self) -> u16 {
            4
        }

        fn now_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_request_says_which_answers_have_come() {
        let session = Session::new(Arc::new(Nowhere), ClientId(1));
        let p = PartitionId(1);
        let (first, _lasting) = (session.begin(), session.begin_lasting(PartitionId(2)));
        let rename = Op::Rename {
            from_dir: Ino(1),
            from: b"a".to_vec(),
            to_dir: Ino(1),
            to: b"b".to_vec(),
            mode: braid_base::msg::fs::RenameMode::Replace,
        };
        drop(first);
        drop(session.begin());
        let also = session.begin_lasting(p);
        drop(session.begin());
        let ticket = session.begin();
        let said = |body: &Op| session.request(&ticket, p, 0, FsId(1), Cred::default(), body);
        assert_eq!(said(&Op::Statfs).done_upto, also.seq - 1);
        assert_eq!(said(&rename).done_upto, 1, "another partition may carry it out");
        let hello = said(&Op::Hello { begin: false, home: None, open: Vec::new() });
        assert!(matches!(&hello.body, Op::Hello { open, .. } if *open == [also.seq]), "{hello:?}");
        assert_eq!(hello.done_upto, ticket.seq - 1);
    }
}
