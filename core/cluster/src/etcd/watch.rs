//! A watch over the gateway: one line of JSON for each answer, read by a thread.
//!
//! A stream ends with its connection, and after a while without a word: the thread begins another behind what it has
//! told, at another member if need be. It ends when nobody listens any more.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use braid_base::{Error, ErrorKind, Result};

use super::message::{BeginWatch, Line};
use super::{CALL_WAIT, Shared, corrupt};
use crate::coordinator::{Event, Revision, Watch, ahead, forgotten};

/// A stream that says nothing for so long is begun again: it may have ended unnoticed, or nobody listens any more.
const QUIET: Duration = Duration::from_secs(10);
/// Time between a stream that failed and the next.
const PAUSE: Duration = Duration::from_millis(200);
/// Changes that wait for who watches; then etcd waits, too.
const WAITING_MAX: usize = 64;
/// Longest line, bytes: the changes of one revision, at most 128 of 1.5 MiB together.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// What the thread tells: changes, or why it ended.
type Told = Result<Vec<Event>>;

/// A watch of etcd.
pub(super) struct EtcdWatch {
    told: Receiver<Told>,
    ended: Option<Error>,
    /// Gone with whoever listens.
    _listens: Sender<()>,
}

impl EtcdWatch {
    /// Watches keys under `prefix` from revision `from` on.
    pub fn begin(shared: Arc<Shared>, prefix: &str, from: Revision) -> Self {
        let ((tell, told), (listens, listener)) = (mpsc::sync_channel(WAITING_MAX), mpsc::channel());
        let which = shared.current.load(Ordering::Relaxed);
        let stream = Stream { shared, prefix: prefix.to_owned(), from, which, listener };
        let begun = thread::Builder::new().name("etcd-watch".to_owned()).spawn(move || stream.run(&tell));
        let ended = begun.err().map(|error| Error::new(ErrorKind::Io, format!("no thread for a watch: {error}")));
        Self { told, ended, _listens: listens }
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self, wait_ms_max: u64) -> Result<Vec<Event>> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let told = match self.told.recv_timeout(Duration::from_millis(wait_ms_max)) {
            Ok(told) => told,
            Err(RecvTimeoutError::Timeout) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(ErrorKind::Stopped, "the watch has ended")),
        };
        told.inspect_err(|error| self.ended = Some(error.clone()))
    }
}

struct Stream {
    shared: Arc<Shared>,
    prefix: String,
    /// Everything before this revision was told.
    from: Revision,
    /// The member that is asked, counted round and round.
    which: usize,
    listener: Receiver<()>,
}

impl Stream {
    fn run(mut self, tell: &SyncSender<Told>) {
        loop {
            if let Err(error) = self.read(tell) {
                let _ = tell.send(Err(error));
                return;
            }
            self.which += 1;
            if self.listener.recv_timeout(PAUSE) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Reads a stream to its end. Errors are those that another stream would meet, too.
    fn read(&mut self, tell: &SyncSender<Told>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let endpoint = &shared.endpoints[self.which % shared.endpoints.len()];
        let request = shared.agent.post(format!("{endpoint}/v3/watch")).config();
        let request = request.timeout_recv_response(Some(CALL_WAIT)).timeout_per_read(Some(QUIET)).build();
        let body = BeginWatch::below(&shared.key(&self.prefix), self.from);
        let Ok(mut response) = request.send_json(&body) else { return Ok(()) };
        let stream = response.body_mut().with_config().limit(u64::MAX).reader();
        let mut lines = BufReader::new(stream);
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
            if !matches!(read, Ok(1..)) || text.last() != Some(&b'\n') {
                return Ok(());
            }
            let line: Line = serde_json::from_slice(&text)
                .map_err(|error| corrupt(format!("{endpoint}: a watch that etcd would not send: {error}")))?;
            let Some(told) = line.result else { return Ok(()) };
            if told.compact_revision.0 > 0 {
                return Err(forgotten(Revision(told.compact_revision.0), self.from));
            }
            let now = told.header.revision();
            if told.created && now > Revision::default() && now.next() < self.from {
                return Err(ahead(now, self.from));
            }
            if told.canceled {
                return Ok(());
            }
            let item = |found| shared.item(found);
            let events = told.events.into_iter().map(|changed| changed.event(&item)).collect::<Result<Vec<_>>>()?;
            let Some(last) = events.iter().map(|event| event.revision).max() else { continue };
            self.from = last.next();
            if tell.send(Ok(events)).is_err() {
                return Ok(());
            }
        }
    }
}
