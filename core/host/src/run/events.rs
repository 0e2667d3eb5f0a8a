//! The events of this host: its parts tell them, a thread keeps them, and all hosts show theirs together.
//!
//! 1. A part [tells](Events::tell) an event and goes on; it never waits. What is told again within a minute is counted.
//! 2. The thread says it in the log of the process, and adds it to the newest file ([`files`]).
//! 3. When the minute is over, what was counted becomes one more event, with that count.
//!
//! They are for people: a host that cannot keep them says so and goes on, and nothing is decided by them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use braid_base::ids::{FsId, HostId, PartitionId, StoreId, Term};
use braid_base::limits::EVENTS_MAX;
use braid_base::msg::event::{Event, EventFilter, EventType, Severity};
use braid_base::msg::host::{HostOp, HostReply};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::snapshot::Snapshot;
use braid_io::{clock, seldom};
use braid_meta::Notice;

use super::setup::Host;
use super::wire::wall_ms;

mod files;

use files::Files;

/// Events on their way to the thread, at most: beyond, they are counted as lost.
const QUEUE_MAX: usize = 1_024;
/// The same event is told once within this, milliseconds.
const REPEAT_MS: u64 = 60_000;
/// Events of which repeats are looked for, at most.
const REPEATS_MAX: usize = 256;
/// How often the thread looks whether somebody has to hear of repeats.
const ROUND: Duration = Duration::from_secs(1);
/// How long who asks for events waits for those that are on their way to the file.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the end of the thread is waited for, milliseconds.
const STOP_MS: u64 = 500;

/// The events of a host.
pub struct Events {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// None once the host stops.
    to: Mutex<Option<SyncSender<Said>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What file systems and object stores are called: partitions know their numbers only.
    names: Mutex<BTreeMap<FsId, String>>,
    stores: Mutex<BTreeMap<StoreId, String>>,
    /// How often each type was told since the process started.
    counts: Mutex<BTreeMap<EventType, u64>>,
}

/// What is said to the thread.
enum Said {
    Keep(Event),
    /// Everything that was said before is kept, once this was dropped.
    Settle(SyncSender<()>),
}

/// What those who tell events share with the thread.
#[derive(Default)]
struct Shared {
    repeats: Mutex<Repeats>,
    lost: AtomicU64,
}

impl Events {
    /// Those of the host that keeps them in `dir`, which need not be there.
    ///
    /// Errors: the thread cannot be started.
    pub fn start(dir: PathBuf) -> Result<Arc<Self>> {
        let (to, said) = sync_channel(QUEUE_MAX);
        let shared = Arc::<Shared>::default();
        let mut keeper = Keeper { files: Files::new(dir.clone()), shared: Arc::clone(&shared) };
        let thread = Builder::new().name("events".into()).spawn(move || keeper.run(&said));
        let thread = thread.map_err(|error| Error::os("start the thread events", &error))?;
        let (to, thread) = (Mutex::new(Some(to)), Mutex::new(Some(thread)));
        let (names, stores, counts) = Default::default();
        Ok(Arc::new(Self { dir, shared, to, thread, names, stores, counts }))
    }

    /// Takes what just happened. Never waits.
    pub fn tell(&self, event: Event) {
        let event = Event { at_ms: wall_ms(), ..event };
        *lock(&self.counts).entry(event.kind).or_default() += 1;
        let first = lock(&self.shared.repeats).first(event, clock::mono_ms());
        let Some(event) = first else { return };
        let to = lock(&self.to).clone();
        if to.is_none_or(|to| to.try_send(Said::Keep(event.clone())).is_err()) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            say(&event);
        }
    }

    /// Those that this host has kept and `filter` wants, [`EVENTS_MAX`] at most, in the order that it asks for. Blocks.
    pub fn list(&self, filter: &EventFilter) -> Result<Vec<Event>> {
        self.settle();
        let filter = EventFilter { most: filter.most.min(EVENTS_MAX), ..filter.clone() };
        let found = files::read(&self.dir, &filter)?.into_iter().map(|event| ((), event)).collect();
        Ok(filter.pick(found).into_iter().map(|((), event)| event).collect())
    }

    /// How often each type was told since the process started.
    pub fn counts(&self) -> Vec<(EventType, u64)> {
        lock(&self.counts).iter().map(|(kind, count)| (*kind, *count)).collect()
    }

    /// From now on file systems and object stores are called as `now` says.
    pub(super) fn know(&self, now: &Snapshot) {
        *lock(&self.stores) = now.object_stores.iter().map(|store| (store.id, store.name.clone())).collect();
        *lock(&self.names) = now.filesystems.iter().map(|fs| (fs.id, fs.name.clone())).collect();
    }

    /// A partition that is served here noticed something.
    pub(super) fn notice(&self, notice: &Notice) {
        let name = |fs: &FsId| lock(&self.names).get(fs).cloned().unwrap_or_else(|| fs.to_string());
        let (kind, fs, words) = match notice {
            Notice::LeftEarly(fs) => {
                (EventType::BREAKING_POLICY, name(fs), "data leaves flash before its retention period has passed")
            }
            Notice::FlashFull(fs) => (
                EventType::OVERFILLING_SSD,
                name(fs),
                "its flash is full and nothing goes into its object store: writes are told that there is no space",
            ),
        };
        self.tell(Event::new(kind, format!("file system {fs}: {words}")).about("filesystem", fs));
    }

    /// Something of object `name` in `store` cannot be had, for sure: it is not there, or not what was put there.
    pub(super) fn damaged(&self, store: StoreId, name: &str, missing: bool, why: &Error) {
        let kind = if missing { EventType::OBJECT_MISSING } else { EventType::OBJECT_DAMAGED };
        let known = lock(&self.stores).get(&store).cloned().unwrap_or_else(|| store.to_string());
        let text = format!("object store {known}: {why}; `braid status lost` tells whose files");
        self.tell(Event::new(kind, text).about("object_store", known).about("object", name));
    }

    /// A part of object `name` in `store` could not be read, and not because of the object.
    pub(super) fn not_read(&self, store: StoreId, name: &str, why: &Error) {
        let known = lock(&self.stores).get(&store).cloned().unwrap_or_else(|| store.to_string());
        let text = format!("object store {known}: a part of {name} could not be read: {why}");
        self.tell(Event::new(EventType::DOWNLOAD_FAILED, text).about("object_store", known).about("object", name));
    }

    /// There is reason to doubt that `store` has its objects; or some are missing for `sure`.
    pub(super) fn doubted(&self, store: StoreId, why: &str, sure: bool) {
        let known = lock(&self.stores).get(&store).cloned().unwrap_or_else(|| store.to_string());
        let text = format!(
            "object store {known}: {why}. What is on flash as well stays there until it was looked for: see whether it is the \
             right bucket, and who else removes objects there"
        );
        let severity = if sure { Severity::Major } else { Severity::Warning };
        self.tell(Event::new(EventType::STORE_DOUBTED, text).about("object_store", known).of_severity(severity));
    }

    /// `partition` is served here from now on.
    pub(super) fn serves(&self, partition: PartitionId, term: Term) {
        let text = format!("{partition} is served here in term {term}");
        self.tell(Event::new(EventType::PARTITION_SERVED, text).about("partition", partition));
    }

    /// Keeps what was told, if the disk takes it in time, and nothing more.
    pub(super) fn stop(&self) {
        drop(lock(&self.to).take());
        let (thread, until_ms) = (lock(&self.thread).take(), clock::mono_ms() + STOP_MS);
        while thread.as_ref().is_some_and(|thread| !thread.is_finished()) && clock::mono_ms() < until_ms {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Waits a little until what was told is kept.
    fn settle(&self) {
        let (done, settled) = sync_channel(0);
        let to = lock(&self.to).clone();
        if to.is_some_and(|to| to.try_send(Said::Settle(done)).is_ok()) {
            // Nothing ever comes: it is dropped.
            let _ = settled.recv_timeout(SETTLE);
        }
    }
}

/// Events that were told within the last minute.
#[derive(Default)]
struct Repeats(BTreeMap<Sameness, Repeated>);

/// What makes two events the same: type and what they are about, but for the object, of which there may be very many.
type Sameness = (EventType, BTreeMap<String, String>);

/// Events that come in crowds. All others are told each time: they are deeds, or tell how something is from then on, and the
/// last one has to be right.
const CROWDS: [EventType; 6] = [
    EventType::BREAKING_POLICY,
    EventType::OVERFILLING_SSD,
    EventType::OBJECT_MISSING,
    EventType::OBJECT_DAMAGED,
    EventType::DOWNLOAD_FAILED,
    EventType::STORE_DOUBTED,
];

struct Repeated {
    /// When the minute is over.
    until_ms: u64,
    /// How often it was told meanwhile, and what was told last.
    count: u64,
    last: Event,
}

impl Repeats {
    /// The event, if it is to be kept now.
    fn first(&mut self, event: Event, now_ms: u64) -> Option<Event> {
        if !CROWDS.contains(&event.kind) {
            return Some(event);
        }
        let mut key = (event.kind, event.about.clone());
        key.1.remove("object");
        if let Some(known) = self.0.get_mut(&key) {
            known.count += event.count;
            known.last = event;
            return None;
        }
        if self.0.len() < REPEATS_MAX {
            self.0.insert(key, Repeated { until_ms: now_ms + REPEAT_MS, count: 0, last: event.clone() });
        }
        Some(event)
    }

    /// The repeats of those whose minute is over. While there are some, another minute begins.
    fn due(&mut self, now_ms: u64) -> Vec<Event> {
        let mut due = Vec::new();
        self.0.retain(|_, known| {
            if now_ms < known.until_ms {
                return true;
            }
            let count = std::mem::take(&mut known.count);
            known.until_ms = now_ms + REPEAT_MS;
            if count > 0 {
                due.push(Event { count, ..known.last.clone() });
            }
            count > 0
        });
        due
    }
}

/// The thread.
struct Keeper {
    files: Files,
    shared: Arc<Shared>,
}

impl Keeper {
    fn run(&mut self, said: &Receiver<Said>) {
        let mut goes_on = true;
        while goes_on {
            match said.recv_timeout(ROUND) {
                Ok(Said::Keep(event)) => self.keep(event),
                Ok(Said::Settle(done)) => drop(done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => goes_on = false,
            }
            // At the end all minutes are over.
            let now_ms = if goes_on { clock::mono_ms() } else { u64::MAX - REPEAT_MS };
            let due = lock(&self.shared.repeats).due(now_ms);
            due.into_iter().for_each(|event| self.keep(event));
            let lost = self.shared.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let text = format!("{lost} events came faster than they could be kept: see the log of the process");
                self.keep(Event { at_ms: wall_ms(), ..Event::new(EventType::EVENTS_LOST, text) });
            }
        }
    }

    fn keep(&mut self, event: Event) {
        say(&event);
        if let Err(error) = self.files.append(event) {
            let words = format!("events are not kept: {error}");
            if seldom::is_due(&words) {
                tracing::warn!("{words}");
            }
        }
    }
}

/// Says it in the log of the process.
fn say(event: &Event) {
    let Event { kind, text, .. } = event;
    let again = if event.count > 1 { format!(" ({} times more)", event.count) } else { String::new() };
    match event.severity {
        Severity::Debug => tracing::debug!("{kind}: {text}{again}"),
        Severity::Info => tracing::info!("{kind}: {text}{again}"),
        Severity::Warning | Severity::Minor | Severity::Major => tracing::warn!("{kind}: {text}{again}"),
        Severity::Critical => tracing::error!("{kind}: {text}{again}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Where the parts of this process tell events.
    pub fn event_log(&self) -> Arc<Events> {
        Arc::clone(self.switch.objects.events())
    }

    /// The events that each host has kept and `filter` wants, or only those of this one; why not, of one that answers
    /// otherwise. Hosts that cannot be reached are left out.
    pub async fn events(&self, filter: &EventFilter, local: bool) -> Vec<(HostId, Result<Vec<Event>>)> {
        let (log, wanted, op) = (self.event_log(), filter.clone(), HostOp::Events { filter: filter.clone() });
        let here = tokio::task::spawn_blocking(move || log.list(&wanted));
        let others = if local { Vec::new() } else { self.switch.ask_others(&op).await };
        let died = |error| Err(Error::new(ErrorKind::Stopped, format!("the task died: {error}")));
        let mut all = vec![(self.switch.host, here.await.unwrap_or_else(died))];
        all.extend(others.into_iter().map(|(host, answer)| match answer {
            Ok(HostReply::Events(events)) => (host, Ok(events)),
            Ok(other) => (host, Err(Error::new(ErrorKind::Io, format!("events were asked for, {other:?} came")))),
            Err(error) => (host, Err(error)),
        }));
        all.sort_by_key(|(host, _)| *host);
        all
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::FsId;
    use braid_base::msg::event::{Event, EventFilter, EventType, Severity};
    use braid_meta::Notice;

    use super::{Events, REPEAT_MS, REPEATS_MAX, Repeats};

    fn all() -> EventFilter {
        EventFilter { severity: Severity::Debug, until_ms: u64::MAX, most: 100, oldest: true, ..EventFilter::default() }
    }

    fn missing(store: &str, object: u32) -> Event {
        Event::new(EventType::OBJECT_MISSING, "it is gone").about("object_store", store).about("object", object)
    }

    #[test]
    fn repeats_are_told_once_a_minute_with_their_count() {
        let mut repeats = Repeats::default();
        assert!(repeats.first(missing("a", 1), 0).is_some() && repeats.first(missing("b", 1), 1).is_some());
        for at_ms in [10, 20] {
            assert_eq!(repeats.first(Event { at_ms, ..missing("a", at_ms as u32) }, at_ms), None, "another object");
        }
        assert!(repeats.due(REPEAT_MS - 1).is_empty());
        let told = repeats.due(REPEAT_MS + 1);
        assert_eq!(told.iter().map(|event| (event.count, event.at_ms)).collect::<Vec<_>>(), [(2, 20)]);
        assert!(repeats.first(missing("b", 1), REPEAT_MS + 2).is_some(), "its minute is over");
        assert_eq!(repeats.first(missing("a", 1), REPEAT_MS + 2), None, "another minute");
        assert_eq!(repeats.due(2 * REPEAT_MS + 1).iter().map(|event| event.count).collect::<Vec<_>>(), [1]);
        assert!(repeats.due(4 * REPEAT_MS).is_empty() && repeats.0.is_empty());
        (0..REPEATS_MAX + 1).for_each(|n| assert!(repeats.first(missing(&n.to_string(), 1), 0).is_some()));
        assert_eq!(repeats.0.len(), REPEATS_MAX);
    }

    #[test]
    fn what_changes_is_told_each_time() {
        let mut repeats = Repeats::default();
        for kind in
            [EventType::CUSTOM, EventType::STORE_DOWN, EventType::STORE_UP, EventType::STORE_DOWN, EventType::CUSTOM]
        {
            assert!(repeats.first(Event::new(kind, "a"), 0).is_some(), "{kind}");
        }
        assert!(repeats.0.is_empty());
    }

    #[test]
    fn what_was_told_is_there_at_once_and_after_a_restart() {
        let home = tempfile::tempdir().expect("dir");
        let dir = home.path().join("events");
        let events = Events::start(dir.clone()).expect("a thread");
        assert!(events.list(&all()).expect("no files yet").is_empty() && !dir.exists());
        events.tell(missing("a", 1));
        events.tell(missing("a", 2));
        events.notice(&Notice::LeftEarly(FsId(7)));
        let found = events.list(&all()).expect("files");
        assert_eq!(
            found.iter().map(|event| event.kind).collect::<Vec<_>>(),
            [EventType::OBJECT_MISSING, EventType::BREAKING_POLICY]
        );
        assert_eq!(found[1].about["filesystem"], FsId(7).to_string(), "what it is called is not known");
        assert!(found[0].at_ms > 1_700_000_000_000 && found[0].id < found[1].id);
        assert_eq!(events.counts(), [(EventType::OBJECT_MISSING, 2), (EventType::BREAKING_POLICY, 1)]);
        events.stop();
        // Lost, and nobody waits for it.
        events.tell(missing("b", 1));
        let events = Events::start(dir).expect("a thread");
        events.tell(Event::new(EventType::CUSTOM, "hello"));
        let found = events.list(&all()).expect("files");
        let mut shown: Vec<(u64, u64)> = found.iter().map(|event| (event.id, event.count)).collect();
        shown.sort_unstable();
        // The repeat was told when the first life ended, with the time at which it was.
        assert_eq!(shown, [(1, 1), (2, 1), (3, 1), (4, 1)], "{found:?}");
        let newest = EventFilter { most: 1, oldest: false, ..all() };
        assert_eq!(events.list(&newest).expect("files")[0].text, "hello");
    }

    #[test]
    fn a_directory_that_cannot_be_used_ends_nothing() {
        let home = tempfile::tempdir().expect("dir");
        let file = home.path().join("events");
        std::fs::write(&file, "in the way").expect("write");
        let events = Events::start(file.clone()).expect("a thread");
        events.tell(missing("a", 1));
        assert!(events.list(&all()).is_err());
        std::fs::remove_file(&file).expect("removed");
        events.tell(missing("b", 1));
        let found = events.list(&all()).expect("files");
        assert_eq!(found.iter().map(|event| event.about["object_store"].as_str()).collect::<Vec<_>>(), ["b"]);
    }
}
