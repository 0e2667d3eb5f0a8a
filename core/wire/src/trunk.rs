//! The way to one server: a pool of connections.
//!
//! Each connection has a keeper: it connects, greets, reads answers, and begins again when the connection breaks. What
//! was asked on a broken connection fails with `TimedOut`, and whoever asked repeats it; while there is no connection,
//! requests fail with `Stopped` at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use braid_base::burst::{self, BURST_MAX};
use braid_base::msg::lease::Push;
use braid_base::{Error, ErrorKind, Result};
use braid_client::wire::PushSink;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::codec::{Encoded, Message};
use crate::entry::{Find, Target, greet};
use crate::frame::{Frame, Kind};
use crate::hello::Caller;
use crate::intake::Intake;
use crate::limits::{
    BACKOFF_FIRST_MS, BACKOFF_MAX_MS, CHANNEL_BESIDE, CONNECTIONS, EAGER_MAX, HELLO_MS, PING_MS, QUEUE_MAX, SILENCE_MS,
};
use crate::link::{Link, Parcel};
use crate::relay::{self, Relays};
use crate::stream::{Address, Stream};

/// The pool. Ends with the last who holds it.
pub(crate) struct Trunk {
    pool: Arc<Pool>,
    keepers: Vec<AbortHandle>,
}

/// Who takes what partitions push. Weak: it holds the wire.
pub(crate) type Sink = Arc<OnceLock<Weak<dyn PushSink>>>;

struct Pool {
    find: Find,
    /// Other ways there.
    relays: Option<Relays>,
    caller: Caller,
    /// The channel of the first slot.
    channel: u8,
    slots: Vec<RwLock<Option<Arc<Conn>>>>,
    next_id: AtomicU64,
    sink: Sink,
    /// The first connection stands, anew.
    stands: Notify,
}

struct Conn {
    link: Arc<Link>,
    /// Where it leads.
    target: Target,
    /// Another host carries it: why, and which.
    relayed: Option<String>,
    /// Who waits for which answer; `None` once the connection is broken.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Frame>>>>,
}

/// What is asked or told.
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Partition or drive.
    pub(crate) target: u32,
    pub(crate) message: Encoded,
    /// With a checksum of the data part.
    pub(crate) check_data: bool,
    /// Much of it, or of the answer.
    pub(crate) bulk: bool,
}

impl Trunk {
    /// Begins to connect to the server that `find` finds, by way of `relays` if it takes no connection. Must be called in a
    /// tokio runtime, which then carries the connections.
    pub(crate) fn begin(find: Find, relays: Relays, caller: Caller, sink: Sink) -> Self {
        let (pool, mut first) = (Pool::new(find, Some(relays), caller, sink), None);
        let keepers = pool.keepers(&mut first);
        Self { pool, keepers }
    }

    /// Connects. Errors: that there is no server, or that it does not let us in.
    pub(crate) async fn connect(find: Find, caller: Caller, sink: Sink) -> Result<Self> {
        Self::over(Pool::new(find, None, caller, sink)).await
    }

    /// The same with one connection, which ends none of those that another process has in the same name.
    pub(crate) async fn beside(find: Find, caller: Caller) -> Result<Self> {
        Self::over(Pool::of(find, None, caller, Sink::default(), (CHANNEL_BESIDE, 1))).await
    }

    async fn over(pool: Arc<Pool>) -> Result<Self> {
        let (conn, intake) = pool.open(0).await?;
        // At once, and not by its keeper: whoever gets the trunk may use it.
        pool.set(0, Some(Arc::clone(&conn)));
        let keepers = pool.keepers(&mut Some((conn, intake)));
        Ok(Self { pool, keepers })
    }

    /// Whether the server can be reached now, as far as is known.
    pub(crate) fn is_connected(&self) -> bool {
        self.pool.conn(0).is_some()
    }

    /// Whether another host is between.
    pub(crate) fn is_relayed(&self) -> bool {
        self.pool.conn(0).is_some_and(|first| first.relayed.is_some())
    }

    /// Where the server is, if it is connected to and no other host is between.
    pub(crate) fn direct(&self) -> Option<Target> {
        let first = self.pool.conn(0)?;
        first.relayed.is_none().then(|| first.target.clone())
    }

    /// Ready when the first connection stands.
    pub(crate) async fn stands(&self) {
        loop {
            let told = self.pool.stands.notified();
            if self.is_connected() {
                return;
            }
            told.await;
        }
    }

    /// Asks and waits for the answer. Errors: `Stopped` without a connection, `TimedOut` if it breaks.
    pub(crate) async fn ask(&self, call: Call) -> Result<Frame> {
        self.pool.ask(call).await
    }

    /// Tells without an answer, all with one `line` in order. Lost without a connection, and when too much waits.
    pub(crate) fn tell(&self, line: u64, call: Call) {
        let Some(conn) = self.pool.choose(true, line) else { return };
        if conn.link.queued() < QUEUE_MAX {
            let Call { kind, target, message, check_data, .. } = call;
            conn.link.send(Parcel { kind, id: 0, target, message, check_data }, true);
        }
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.keepers.iter().for_each(AbortHandle::abort);
        for slot in 0..self.pool.slots.len() {
            self.pool.lose(slot);
        }
    }
}

impl Pool {
    fn new(find: Find, relays: Option<Relays>, caller: Caller, sink: Sink) -> Arc<Self> {
        // A visitor asks little.
        let count = if matches!(caller, Caller::Visitor) { 1 } else { CONNECTIONS };
        Self::of(find, relays, caller, sink, (0, count))
    }

    fn of(find: Find, relays: Option<Relays>, caller: Caller, sink: Sink, (channel, count): (u8, usize)) -> Arc<Self> {
        let slots = (0..count).map(|_| RwLock::default()).collect();
        let (next_id, stands) = (AtomicU64::new(1), Notify::new());
        Arc::new(Self { find, relays, caller, channel, slots, next_id, sink, stands })
    }

    /// One for each slot; `first` is the connection of the first, if it stands already.
    fn keepers(self: &Arc<Self>, first: &mut Option<(Arc<Conn>, Intake)>) -> Vec<AbortHandle> {
        let keeper = |slot| {
            let (pool, first) = (Arc::clone(self), first.take());
            tokio::spawn(async move { pool.keep(slot, first).await }).abort_handle()
        };
        (0..self.slots.len()).map(keeper).collect()
    }

    async fn ask(&self, call: Call) -> Result<Frame> {
        let Call { kind, target, message, check_data, bulk } = call;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let away = || Error::new(ErrorKind::Stopped, "there is no connection to the server");
        let conn = self.choose(bulk, id).ok_or_else(away)?;
        conn.link.room(QUEUE_MAX).await;
        let (tx, rx) = oneshot::channel();
        let under_way = conn.wait_for(id, tx).ok_or_else(away)?;
        let _waits = Waits { conn: &conn, id };
        if !conn.link.send(Parcel { kind, id, target, message, check_data }, under_way <= EAGER_MAX) {
            return Err(away());
        }
        rx.await.map_err(|_| Error::new(ErrorKind::TimedOut, "the connection broke before the answer came"))
    }

    /// The connection for small messages is the first; bulk takes turns on the others.
    fn choose(&self, bulk: bool, id: u64) -> Option<Arc<Conn>> {
        let others = self.slots.len() as u64 - 1;
        let slot = if bulk && others > 0 { 1 + (id % others) as usize } else { 0 };
        self.conn(slot).or_else(|| (0..self.slots.len()).find_map(|slot| self.conn(slot)))
    }

    fn conn(&self, slot: usize) -> Option<Arc<Conn>> {
        self.slots[slot].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, slot: usize, conn: Option<Arc<Conn>>) -> Option<Arc<Conn>> {
        std::mem::replace(&mut *self.slots[slot].write().unwrap_or_else(PoisonError::into_inner), conn)
    }

    /// Ends the connection of `slot`; whoever waits on it hears of it.
    fn lose(&self, slot: usize) {
        if let Some(conn) = self.set(slot, None) {
            conn.link.close();
            conn.waiting().take();
        }
    }

    /// Keeps `slot` connected for ever.
    async fn keep(&self, slot: usize, mut first: Option<(Arc<Conn>, Intake)>) {
        let (mut pause, mut was_relayed) = (BACKOFF_FIRST_MS, false);
        loop {
            let again = first.is_none();
            let opened = match first.take() {
                Some(first) => Ok(first),
                None => self.open(slot).await,
            };
            let why = match opened {
                Ok((conn, mut intake)) => {
                    pause = BACKOFF_FIRST_MS;
                    self.set(slot, Some(Arc::clone(&conn)));
                    let kept = Kept { pool: self, slot };
                    if slot == 0 {
                        self.stands.notify_waiters();
                        was_relayed = self.tell_way(&conn, was_relayed);
                    }
                    if let (true, Some(sink)) = (again && slot == 0, self.sink()) {
                        sink.reconnected();
                    }
                    let why = self.read(&conn, &mut intake).await;
                    drop(kept);
                    why
                }
                Err(error) => error,
            };
            if slot == 0 {
                tracing::debug!("no connection to the server: {why}");
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            pause = (2 * pause).min(BACKOFF_MAX_MS);
        }
    }

    /// Connects and greets.
    async fn open(&self, slot: usize) -> Result<(Arc<Conn>, Intake)> {
        let target = (self.find)()?;
        let late =
            |_| Error::new(ErrorKind::TimedOut, format!("{} did not answer within {HELLO_MS} ms", target.address));
        let opened = async {
            let (stream, relayed) = self.connect(slot, &target.address).await?;
            let channel = self.channel + u8::try_from(slot).expect("a pool has few connections");
            let (link, intake) = greet(stream, &target, self.caller.clone(), channel).await?;
            let waiting = Mutex::new(Some(HashMap::new()));
            Ok((Arc::new(Conn { link, target: target.clone(), relayed, waiting }), intake))
        };
        tokio::time::timeout(Duration::from_millis(HELLO_MS), opened).await.map_err(late)?
    }

    /// Connects; the first connection by way of another host if nobody takes one, and says so then. (Who takes it and says
    /// nothing is not lost on the way.) The others try by themselves meanwhile.
    async fn connect(&self, slot: usize, address: &Address) -> Result<(Stream, Option<String>)> {
        let connecting = Stream::connect(address);
        let relays = self.relays.as_ref().filter(|_| slot == 0);
        let candidates = relays.map(Relays::candidates).unwrap_or_default();
        let Some(relays) = relays.filter(|_| !candidates.is_empty()) else { return Ok((connecting.await?, None)) };
        let why = match relay::connect_in_time(address, connecting).await {
            Ok(stream) => return Ok((stream, None)),
            Err(why) => why,
        };
        match relays.connect(candidates).await {
            Ok((stream, by)) => {
                // Whoever refuses and is reached by others may have begun to listen a moment ago.
                if why.kind() != ErrorKind::TimedOut
                    && let Ok(direct) = relay::connect_in_time(address, Stream::connect(address)).await
                {
                    return Ok((direct, None));
                }
                Ok((stream, Some(format!("({why}): what is for it goes by way of {by}"))))
            }
            Err(error) => {
                let words = format!("{}; nor by way of others: {}", why.message(), error.message());
                Err(Error::new(why.kind(), words))
            }
        }
    }

    /// The first connection stands: says so if it is relayed, or is no more; returns which.
    fn tell_way(&self, conn: &Conn, was_relayed: bool) -> bool {
        let Some(relays) = &self.relays else { return false };
        relays.reached();
        match &conn.relayed {
            Some(how) => tracing::warn!("host {} is not reached from here {how}", relays.to()),
            None if was_relayed => tracing::info!("host {} is reached from here again", relays.to()),
            None => {}
        }
        conn.relayed.is_some()
    }

    /// Whether one of the other connections, which nobody relays, has been heard lately.
    fn hears_beside(&self) -> bool {
        (1..self.slots.len()).filter_map(|slot| self.conn(slot)).any(|conn| conn.link.silence_ms() < 2 * PING_MS)
    }

    /// Hands out answers until the connection breaks; returns why.
    async fn read(&self, conn: &Conn, intake: &mut Intake) -> Error {
        let mut look = tokio::time::interval(Duration::from_millis(PING_MS / 2));
        loop {
            let frame = tokio::select! {
                biased;
                frame = conn.link.frame(intake) => match frame {
                    Ok(frame) => frame,
                    Err(error) => return error,
                },
                _ = look.tick() => {
                    if conn.relayed.is_some() && self.hears_beside() {
                        return Error::new(ErrorKind::Stopped, "it is relayed, and need not be any more");
                    }
                    let silent = conn.link.silence_ms();
                    if silent >= SILENCE_MS {
                        return Error::new(ErrorKind::TimedOut, format!("the server said nothing for {silent} ms"));
                    }
                    if silent >= PING_MS {
                        let message = Encoded::default();
                        conn.link.send(Parcel { kind: Kind::Ping, id: 0, target: 0, message, check_data: false }, true);
                    }
                    continue;
                }
            };
            if let Err(error) = burst::run(|| self.take_all(conn, frame, intake)) {
                return error;
            }
        }
    }

    /// Takes `first` and what has come behind it.
    fn take_all(&self, conn: &Conn, first: Frame, intake: &mut Intake) -> Result<()> {
        self.take(conn, first)?;
        for _ in 1..BURST_MAX {
            let Some(frame) = intake.next()? else { break };
            self.take(conn, frame)?;
        }
        Ok(())
    }

    fn take(&self, conn: &Conn, frame: Frame) -> Result<()> {
        match frame.header.kind {
            Kind::Answer => conn.answered(frame),
            Kind::Pong => {}
            Kind::Push => self.pushed(Push::decode(&frame.meta, frame.data)?),
            other => return Err(Error::new(ErrorKind::Corrupt, format!("a server does not send {other:?}"))),
        }
        Ok(())
    }

    fn pushed(&self, push: Push) {
        match self.sink() {
            Some(sink) => sink.pushed(push),
            None => tracing::debug!("an unasked message that nobody waits for is dropped"),
        }
    }

    fn sink(&self) -> Option<Arc<dyn PushSink>> {
        self.sink.get().and_then(Weak::upgrade)
    }
}

impl Conn {
    /// Notes who waits for answer `id`; returns how many wait now, or `None` if the connection is broken.
    fn wait_for(&self, id: u64, tx: oneshot::Sender<Frame>) -> Option<usize> {
        let mut waiting = self.waiting();
        let waiting = waiting.as_mut()?;
        waiting.insert(id, tx);
        Some(waiting.len())
    }

    fn answered(&self, frame: Frame) {
        let found = self.waiting().as_mut().and_then(|waiting| waiting.remove(&frame.header.id));
        if let Some(tx) = found {
            // Whoever gave up waiting needs it no more.
            let _ = burst::open(|| tx.send(frame));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Frame>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits; forgotten if it gives up.
struct Waits<'a> {
    conn: &'a Conn,
    id: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.conn.waiting().as_mut() {
            waiting.remove(&self.id);
        }
    }
}

/// Ends the connection of a slot, however its keeper ends: one that is told to stop while it sets a connection up does so
/// after the wire has ended all that it saw.
struct Kept<'a> {
    pool: &'a Pool,
    slot: usize,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.pool.lose(self.slot);
    }
}
