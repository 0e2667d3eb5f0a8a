//! The server's side: accepts connections, hands requests to a [`Handler`], sends its answers.
//!
//! A client whose connection broke connects anew and asks again what it has no answer for, while the first copies may still
//! lie here unread. Two rules keep those from doing harm:
//!
//! 1. A connection is not read before the earlier one of the same client and channel was closed and read to the end of
//!    what had arrived, or dropped: copies come before what was sent later, or never.
//! 2. Across channels, and for what is in the mailboxes by then, partitions carry each operation number out once:
//!    they keep every answer, refusals too, until the client has it (`meta/dedup`), and refuse what names a session that
//!    has ended. They forget that only when they cease to serve; and a request names the term it is meant for.
//!
//! Who has not said yet who it is costs a connection and little memory, for a few seconds; of too many of them the one
//! that has waited longest goes. Whoever is known asks now and then whether the server is there, so one that says nothing
//! for long is not there any more, though no word of its end came.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_base::burst::{self, BURST_MAX};
use braid_base::ids::{ClientId, DriveId, HostId, PartitionId, Term};
use braid_base::limits::{BLOCK, WRITE_MAX};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::host::{HostOp, HostResult, Who};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_io::seldom;
use braid_replica::replica::event::Msg;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task::{AbortHandle, JoinSet};

use crate::codec::{Encoded, Message};
use crate::frame::{Frame, HEADER, Kind};
use crate::hello::{Caller, Hello, Welcome};
use crate::intake::Intake;
use crate::limits::{EAGER_MAX, HELLO_MS, PUSHED_MAX, SERVED_MAX, STRANGERS_MAX};
use crate::link::{Link, Parcel};
use crate::relay;
use crate::socket::Socket;
use crate::stream::{Address, Arrived, Listener, Stream, dial};
use crate::tls::{Peer, Server};

/// What a server does with what comes. Called on threads of the runtime; must not block.
pub trait Handler: Send + Sync + 'static {
    /// Lets a connection in, or says why not; `peer`: who is at the other end by its certificate. Returns the number of
    /// partitions.
    fn admit(&self, peer: Peer, hello: &Hello) -> Result<u16>;

    /// A client's first connection stands, anew after a break. `push` reaches it while the connection stands.
    fn joined(&self, who: &Who, push: Pusher);

    /// A connection of [`Self::joined`] has ended.
    fn left(&self, who: &Who, push: &Pusher);

    /// A request to partition `p`, in the term that the client knows.
    fn partition(&self, from: ClientId, p: PartitionId, term: Term, request: Request, answer: ReplyTo<Answer>);

    /// A question to drive `d`, of a client or a host.
    fn drive(&self, from: &Caller, d: DriveId, op: DriveOp, answer: ReplyTo<DriveResult>);

    /// A question to the host itself.
    fn host(&self, from: &Caller, op: HostOp, answer: ReplyTo<HostResult>);

    /// A message of a replica on another host.
    fn replica(&self, from: HostId, message: Msg);

    /// What partition `from` tells partition `to`.
    fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg);

    /// Where host `to` listens, for somebody who cannot connect to it.
    fn way(&self, to: HostId) -> Result<Address>;
}

/// Where an answer goes. Dropped without one, it says `Stopped`.
pub struct ReplyTo<M: Reply> {
    to: Option<(Arc<Served>, u64, usize)>,
    /// Blocks carry checksums of their own.
    check_data: bool,
    of: PhantomData<fn(M)>,
}

/// Sends unasked messages to one client.
#[derive(Clone)]
pub struct Pusher(Arc<Served>);

/// A connection that is being served.
struct Served {
    link: Arc<Link>,
    /// Requests without an answer, and what they may cost in memory.
    under_way: AtomicUsize,
    cost: AtomicUsize,
    answered: Notify,
}

/// The latest connection of each caller and channel.
type Lines = Arc<Mutex<HashMap<Key, Line>>>;

/// Client or host, and channel.
type Key = (std::result::Result<ClientId, HostId>, u8);

struct Line {
    latest: Arc<Served>,
    /// Held by whoever reads.
    reading: Arc<tokio::sync::Mutex<()>>,
}

/// The right to read a connection, and its place among the lines.
struct Reads {
    lines: Lines,
    key: Key,
    served: Arc<Served>,
    _reading: OwnedMutexGuard<()>,
}

/// Connections that have not said yet who they are, in the order in which they came. The latest may be about to begin.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<BTreeMap<u64, Option<AbortHandle>>>>);

/// One of them, until it is known or gone.
struct Stranger {
    among: Strangers,
    number: u64,
}

/// Reads from somebody who was turned away, at most.
const LINGER_READS: usize = 64;
/// Time to rest when the system gives no more connections.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Serves connections until the future is dropped; then they are closed.
pub async fn serve(listener: Listener, handler: Arc<dyn Handler>) {
    listener.unpaced();
    let (mut connections, lines, tls) = (JoinSet::new(), Lines::default(), listener.tls());
    let (strangers, mut number) = (Strangers::default(), 0);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    number += 1;
                    let stranger = Stranger { among: strangers.clone(), number };
                    let talk = converse(stream, tls.clone(), Arc::clone(&handler), Arc::clone(&lines), stranger);
                    strangers.add(number, || connections.spawn(talk));
                }
                Err(error) => {
                    tracing::warn!("no more connections for the moment: {error}");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, from handshake to end.
async fn converse(stream: Stream, tls: Option<Server>, handler: Arc<dyn Handler>, lines: Lines, stranger: Stranger) {
    let (stream, peer) = match stream.arrived(tls.as_ref()).await {
        Ok(Arrived::As(stream, peer)) => (stream, Ok(peer)),
        Ok(Arrived::InClear(stream)) => {
            let words = "this port is served with TLS: the client needs the certificate of the cluster's authority, which is \
                         in client.json of its hosts";
            (stream, Err(Error::new(ErrorKind::Refused, words)))
        }
        // Probes of ports come and go without a word.
        Err(error) if error.kind().is_passing() => return tracing::debug!("a connection that was none: {error}"),
        Err(error) => return tracing::warn!("a connection was turned away: {error}"),
    };
    let served = Arc::new(Served {
        link: Link::new(stream),
        under_way: AtomicUsize::new(0),
        cost: AtomicUsize::new(0),
        answered: Notify::new(),
    });
    let _closing = Closing(Arc::clone(&served));
    let writer = Arc::clone(&served);
    tokio::spawn(async move { writer.link.write_on().await });
    let mut intake = Intake::new();
    let Some((hello, relayed)) = greet(&served, &mut intake, peer, &*handler, &stranger).await else { return };
    if let Some(there) = relayed {
        return relay::carry(&served.link, &mut intake, there).await;
    }
    let key = match &hello.caller {
        Caller::Client(who) => Some(Ok(who.client)),
        Caller::Host(host) => Some(Err(*host)),
        Caller::Visitor | Caller::Relay(_) => None,
    };
    let _reads = match key {
        Some(key) => Some(Reads::after_earlier(lines, (key, hello.channel), &served).await),
        None => None,
    };
    let _here = match &hello.caller {
        Caller::Client(who) if hello.channel == 0 => Some(Here::joined(&handler, who, Pusher(Arc::clone(&served)))),
        _ => None,
    };
    let why = loop {
        let heard = served.link.heard(&mut intake).await;
        match heard.and_then(|frame| served.take_all(&hello.caller, frame, &mut intake, &*handler)) {
            Ok(()) => served.room().await,
            Err(error) => break error,
        }
    };
    if why.kind() == ErrorKind::Corrupt {
        tracing::warn!("a connection of {} is given up: {why}", hello.caller);
    }
}

impl Strangers {
    /// Adds the one that `begin` begins; one too many makes the first of them go.
    fn add(&self, number: u64, begin: impl FnOnce() -> AbortHandle) {
        lock(&self.0).insert(number, None);
        // Not under the lock: a runtime that is ending drops what is begun there and then, and with it its place here.
        let begun = begin();
        let mut all = lock(&self.0);
        if let Some(place) = all.get_mut(&number) {
            *place = Some(begun);
        }
        let first = if all.len() > STRANGERS_MAX { all.pop_first() } else { None };
        drop(all);
        if let Some((_, Some(first))) = first {
            first.abort();
        }
    }
}

impl Stranger {
    /// It has said who it is.
    fn leave(&self) {
        lock(&self.among.0).remove(&self.number);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Reads {
    /// Ends the earlier connection of `key` and waits until nobody reads it any more.
    async fn after_earlier(lines: Lines, key: Key, served: &Arc<Served>) -> Self {
        let reading = {
            let mut all = lock(&lines);
            match all.get_mut(&key) {
                Some(line) => {
                    std::mem::replace(&mut line.latest, Arc::clone(served)).close();
                    Arc::clone(&line.reading)
                }
                None => {
                    let reading = Arc::default();
                    all.insert(key, Line { latest: Arc::clone(served), reading: Arc::clone(&reading) });
                    reading
                }
            }
        };
        let reading = reading.lock_owned().await;
        Self { lines, key, served: Arc::clone(served), _reading: reading }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines);
        // Somebody later needs the line to wait on.
        if lines.get(&self.key).is_some_and(|line| Arc::ptr_eq(&line.latest, &self.served)) {
            lines.remove(&self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handshake; `None` if the connection is not let in. `peer`: who it is, or why it is not let in anyway. With where
/// it is to be relayed, if that is what it wants.
async fn greet(
    served: &Arc<Served>,
    intake: &mut Intake,
    peer: Result<Peer>,
    handler: &dyn Handler,
    stranger: &Stranger,
) -> Option<(Hello, Option<Socket>)> {
    let frame = served.link.frame_within(intake, HELLO_MS).await;
    let hello = frame.and_then(|frame| match frame.header.kind {
        Kind::Hello => Hello::decode(&frame.meta, frame.data),
        other => Err(Error::new(ErrorKind::Corrupt, format!("a hello was expected, {other:?} came"))),
    });
    let hello = match hello {
        Ok(hello) => hello,
        Err(error) => {
            if error.kind() == ErrorKind::Corrupt {
                tracing::warn!("a connection was turned away: {error}");
                // Who speaks another version sees by the frame that this one does, too.
                served.send(Kind::Welcome, 0, Welcome::No { error }.encode(), true);
                served.linger().await;
            }
            return None;
        }
    };
    let known = peer.and_then(|peer| handler.admit(peer, &hello));
    let is_known = known.is_ok();
    if is_known {
        stranger.leave();
    }
    let admitted = match (known, &hello.caller) {
        (Ok(partitions), Caller::Relay(to)) => relay_to(*to, handler).await.map(|there| (partitions, Some(there))),
        (known, _) => known.map(|partitions| (partitions, None)),
    };
    let welcome = match &admitted {
        Ok((partitions, _)) => Welcome::In { partitions: *partitions },
        Err(error) => Welcome::No { error: error.clone() },
    };
    served.send(Kind::Welcome, 0, welcome.encode(), true);
    match admitted {
        Ok((_, relayed)) => {
            intake.trust();
            Some((hello, relayed))
        }
        Err(error) => {
            let words = format!("{} was turned away: {error}", hello.caller);
            // Who looks for a way to a host that is down tries all others again and again.
            if is_known {
                tracing::debug!("{words}");
            } else if seldom::is_due(&words) {
                tracing::warn!("{words}");
            }
            served.linger().await;
            None
        }
    }
}

/// Connects to host `to` for somebody who cannot.
async fn relay_to(to: HostId, handler: &dyn Handler) -> Result<Socket> {
    let address = handler.way(to)?;
    relay::connect_in_time(&address, dial(&address)).await
}

impl Served {
    /// Waits until the last word is out and the other side has gone, or has had time to hear it.
    async fn linger(&self) {
        let rest = async {
            // What it says is noise, and read only because the system throws away what is under way to somebody whose own
            // words were left unread.
            for _ in 0..LINGER_READS {
                match self.link.frame(&mut Intake::new()).await {
                    Err(error) if error.kind() != ErrorKind::Corrupt => break,
                    _ => {}
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(HELLO_MS), rest).await;
    }

    /// Takes `first` and what has come behind it, in one burst.
    fn take_all(
        self: &Arc<Self>,
        from: &Caller,
        first: Frame,
        intake: &mut Intake,
        handler: &dyn Handler,
    ) -> Result<()> {
        burst::run(|| {
            self.take(from, first, handler)?;
            for _ in 1..BURST_MAX {
                if self.is_full() {
                    break;
                }
                let Some(frame) = intake.next()? else { break };
                self.take(from, frame, handler)?;
            }
            Ok(())
        })
    }

    fn is_full(&self) -> bool {
        self.cost.load(Ordering::Relaxed) >= SERVED_MAX
    }

    fn take(self: &Arc<Self>, from: &Caller, frame: Frame, handler: &dyn Handler) -> Result<()> {
        let (id, target, len) = (frame.header.id, frame.header.target, frame.header.frame_len());
        let partition = || {
            let wrong = |_| Error::new(ErrorKind::Corrupt, format!("there is no partition {target}"));
            u16::try_from(target).map(PartitionId).map_err(wrong)
        };
        match (frame.header.kind, from) {
            (Kind::AskPartition, Caller::Client(who)) => {
                let (term, request) = <(Term, Request)>::decode(&frame.meta, frame.data)?;
                let answer = self.begin(id, len + answer_bytes(&request.body), true);
                handler.partition(who.client, partition()?, term, request, answer);
            }
            (Kind::AskDrive, Caller::Client(_) | Caller::Host(_)) => {
                let op = DriveOp::decode(&frame.meta, frame.data)?;
                let answer = self.begin(id, len + drive_answer_bytes(&op), false);
                handler.drive(from, DriveId(target), op, answer);
            }
            (Kind::AskHost, _) => {
                let answer = self.begin(id, len, true);
                match HostOp::decode(&frame.meta, frame.data) {
                    Ok(op) => handler.host(from, op, answer),
                    // A later release may ask more; nothing else on this connection depends on it.
                    Err(error) => {
                        let words = format!("this host does not know the question: {}", error.message());
                        answer.send(&Err(Error::new(ErrorKind::Unsupported, words)));
                    }
                }
            }
            (Kind::Replica, Caller::Host(host)) => {
                let message = Msg::decode(&frame.meta, frame.data)?;
                handler.replica(*host, message);
            }
            (Kind::Peer, Caller::Host(_)) => {
                let (of, message) = <(PartitionId, PeerMsg)>::decode(&frame.meta, frame.data)?;
                handler.peer(of, partition()?, message);
            }
            (Kind::Ping, _) => {
                self.send(Kind::Pong, id, Encoded::default(), true);
            }
            (other, _) => return Err(Error::new(ErrorKind::Corrupt, format!("{from} does not send {other:?}"))),
        }
        Ok(())
    }

    fn begin<M: Reply>(self: &Arc<Self>, id: u64, cost: usize, check_data: bool) -> ReplyTo<M> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.cost.fetch_add(cost, Ordering::Relaxed);
        ReplyTo { to: Some((Arc::clone(self), id, cost)), check_data, of: PhantomData }
    }

    fn send(&self, kind: Kind, id: u64, message: Encoded, check_data: bool) -> bool {
        let eager = self.under_way.load(Ordering::Relaxed) < EAGER_MAX;
        self.link.send(Parcel { kind, id, target: 0, message, check_data }, eager)
    }

    /// Waits until what is under way and what waits to be sent leave room for more.
    async fn room(&self) {
        loop {
            let told = self.answered.notified();
            if !self.is_full() || self.link.is_closed() {
                break;
            }
            told.await;
        }
        self.link.room(SERVED_MAX).await;
    }

    /// Ends the connection; its reader finds that out, whatever it waits for.
    fn close(&self) {
        self.link.close();
        self.answered.notify_waiters();
    }
}

impl<M: Reply> ReplyTo<M> {
    /// Sends the answer. From any thread.
    pub fn send(mut self, answer: &M) {
        self.finish(answer);
    }

    fn finish(&mut self, answer: &M) {
        let Some((served, id, cost)) = self.to.take() else { return };
        served.under_way.fetch_sub(1, Ordering::Relaxed);
        // A client that has gone needs no answer.
        served.send(Kind::Answer, id, answer.encode(), self.check_data);
        if served.cost.fetch_sub(cost, Ordering::Relaxed) >= SERVED_MAX {
            served.answered.notify_waiters();
        }
    }
}

impl<M: Reply> Drop for ReplyTo<M> {
    fn drop(&mut self) {
        if self.to.is_some() {
            self.finish(&M::of_error(Error::new(ErrorKind::Stopped, "the server stopped before it answered")));
        }
    }
}

/// What answers a request.
pub trait Reply: Message {
    /// That it failed.
    fn of_error(error: Error) -> Self;
}

impl Reply for Answer {
    fn of_error(error: Error) -> Self {
        error.into()
    }
}

impl Reply for HostResult {
    fn of_error(error: Error) -> Self {
        Err(error)
    }
}

impl Reply for DriveResult {
    fn of_error(error: Error) -> Self {
        Err(error)
    }
}

impl Pusher {
    /// Sends it, after everything sent on this connection before. False: the connection has ended, or the client reads
    /// too slowly and was cut off; it will join again.
    pub fn push(&self, push: &Push) -> bool {
        if self.0.link.queued() > SERVED_MAX + PUSHED_MAX {
            self.0.link.close();
            return false;
        }
        let (target, message) = (u32::from(push.from.0), push.encode());
        let parcel = Parcel { kind: Kind::Push, id: 0, target, message, check_data: true };
        self.0.link.send(parcel, true)
    }

    /// Whether both reach the same connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Closes a connection, however its task ends.
struct Closing(Arc<Served>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.link.close();
    }
}

/// A client that is there; tells the handler of the end.
struct Here {
    handler: Arc<dyn Handler>,
    who: Who,
    push: Pusher,
}

impl Here {
    fn joined(handler: &Arc<dyn Handler>, who: &Who, push: Pusher) -> Self {
        let here = Self { handler: Arc::clone(handler), who: who.clone(), push };
        handler.joined(&here.who, here.push.clone());
        here
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.handler.left(&self.who, &self.push);
    }
}

/// What the answer may take, roughly: it counts as memory of the connection from the request on. Little of what may wait
/// for leases of other clients: what gives leases back comes on the same connection and must not wait for that.
fn answer_bytes(op: &Op) -> usize {
    HEADER
        + match op {
            Op::ReadStage { len, .. } | Op::ReadObject { len, .. } => (*len as usize).min(WRITE_MAX),
            Op::Readdir { limit, .. } => (*limit as usize).saturating_mul(64).min(WRITE_MAX),
            Op::Layout { .. } => 4096,
            _ => 256,
        }
}

fn drive_answer_bytes(op: &DriveOp) -> usize {
    HEADER + if let DriveOp::Read { count, .. } = op { usize::from(*count) * BLOCK } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::{Stranger, Strangers, lock};

    #[test]
    fn a_runtime_that_is_ending_takes_nobody_and_holds_nobody_up() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let strangers = Strangers::default();
        let stranger = Stranger { among: strangers.clone(), number: 1 };
        // Drops the connection before it returns.
        strangers.add(1, || handle.spawn(async move { drop(stranger) }).abort_handle());
        assert!(lock(&strangers.0).is_empty());
    }
}
