//! Messages within one process: mailboxes instead of sockets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use braid_base::attr::Time;
use braid_base::ids::{ClientId, DriveId, FsId, Index, OpId, PartitionId};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Reply, Request};
use braid_base::msg::job::MoveJob;
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::fs::Background;
use braid_client::mover;
use braid_client::reader::{Reader, StageSource};
use braid_client::wire::{BoxFuture, PushSink, Wire};
use braid_drive::Drive;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::seat_actor::SeatMsg;
use super::shared_seat::{SeatDoor, Waits};

/// Who can be reached: filled once, when all parts of the host run.
pub(super) struct Switch {
    pub(super) seats: OnceLock<Vec<SeatDoor>>,
    /// Emptied when the host stops: a drive closes when nobody can reach it any more.
    pub(super) drives: RwLock<BTreeMap<DriveId, Drive>>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) reader: OnceLock<Reader>,
    /// Clients that take pushes, of this process or connected to it; one that is gone is forgotten at its next push.
    pub(super) clients: Mutex<HashMap<ClientId, Weak<dyn PushSink>>>,
}

impl Switch {
    fn seat(&self, p: PartitionId) -> Result<&SeatDoor> {
        let seat = self.seats.get().and_then(|seats| seats.get(usize::from(p.0)));
        seat.ok_or_else(|| Error::new(ErrorKind::Stopped, format!("partition {p} does not run yet")))
    }

    fn tell(&self, p: PartitionId, msg: SeatMsg) -> Result<()> {
        self.seat(p)?.send(msg).map_err(|_| has_stopped(p))
    }

    /// A request of another process.
    pub(super) fn request(&self, p: PartitionId, request: Request, waits: Waits) -> Result<()> {
        self.seat(p)?.send_request(request, waits).map_err(|_| has_stopped(p))
    }

    /// A request of this process: steps at the seat if that is free.
    fn request_here(&self, p: PartitionId, request: Request, waits: Waits) -> Result<()> {
        self.seat(p)?.request(request, waits).map_err(|_| has_stopped(p))
    }

    /// Passes a message on; lost if the other partition is not there (its sender repeats).
    pub(super) fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        let _ = self.tell(to, SeatMsg::Peer(from, message));
    }

    /// From now on pushes to `client` go to `to`, as long as somebody holds that.
    pub(super) fn listen(&self, client: ClientId, to: &Arc<dyn PushSink>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client, Arc::downgrade(to));
    }

    /// Hands a push to its client; lost if that does not live here (any more).
    pub(super) fn push(&self, push: Push) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.get(&push.to).map(Weak::upgrade) {
            Some(Some(client)) => {
                drop(clients);
                client.pushed(push);
            }
            Some(None) => drop(clients.remove(&push.to)),
            None => {}
        }
    }

    /// Asks a drive for a seat.
    pub(super) fn drive_for_seat(self: &Arc<Self>, p: PartitionId, id: u64, drive: DriveId, op: DriveOp) {
        let this = Arc::clone(self);
        let answer = move |result| drop(this.tell(p, SeatMsg::Drive(id, result)));
        match self.drive(drive) {
            Ok(drive) => drive.call(op, answer),
            Err(error) => answer(Err(error)),
        }
    }

    /// The way to a drive.
    pub(super) fn drive(&self, id: DriveId) -> Result<Drive> {
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        drives.get(&id).cloned().ok_or_else(|| Error::new(ErrorKind::Io, format!("drive {id} is missing")))
    }

    /// The drives that run.
    pub(super) fn drive_ids(&self) -> Vec<DriveId> {
        self.drives.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Carries out a bulk move on the runtime; the seat hears of its end.
    pub(super) fn run_job(self: &Arc<Self>, p: PartitionId, job: MoveJob) {
        let (this, id) = (Arc::clone(self), job.id);
        let mover = Arc::clone(self);
        let moved = self.runtime.spawn(async move {
            match mover.reader.get() {
                Some(reader) => mover::run(reader, &SeatStage { switch: Arc::clone(&mover), seat: p }, &job).await,
                None => Err(Error::new(ErrorKind::Stopped, "the host is still starting")),
            }
        });
        self.runtime.spawn(async move {
            // A move that panicked has ended, too: the seat must not wait for it.
            let result = moved.await.unwrap_or_else(|error| Err(Error::new(ErrorKind::Stopped, error.to_string())));
            if let Err(error) = &result {
                tracing::warn!("{p}: a bulk move failed and will be planned anew: {error}");
            }
            let _ = this.tell(p, SeatMsg::JobDone(id, result));
        });
    }
}

fn has_stopped(p: PartitionId) -> Error {
    Error::new(ErrorKind::Stopped, format!("partition {p} has stopped"))
}

/// Staged bytes of one seat, for the mover.
struct SeatStage {
    switch: Arc<Switch>,
    seat: PartitionId,
}

impl StageSource for SeatStage {
    fn read(&self, at: Index, poff: u32, len: u32) -> BoxFuture<Result<Bytes>> {
        let body = Op::ReadStage { at, poff, len };
        let request = Request {
            op: OpId::default(),
            session: 0,
            done_upto: 0,
            fs: FsId::default(),
            cred: Default::default(),
            early: true,
            body,
        };
        let answer = ask(&self.switch, self.seat, request);
        Box::pin(async move {
            match answer.await.result? {
                Reply::Data(bytes) => Ok(bytes),
                other => Err(Error::new(ErrorKind::Io, format!("staged bytes were asked for, {other:?} came"))),
            }
        })
    }
}

fn ask(switch: &Switch, p: PartitionId, request: Request) -> BoxFuture<Answer> {
    let (tx, rx) = oneshot::channel();
    let sent = switch.request_here(p, request, Box::new(move |answer| drop(tx.send(answer))));
    Box::pin(async move {
        if let Err(error) = sent {
            return error.into();
        }
        rx.await.unwrap_or_else(|_| {
            Error::new(ErrorKind::Stopped, format!("partition {p} stopped before it answered")).into()
        })
    })
}

/// Work of clients that goes on after their call returned.
pub(super) struct Runtime(pub(super) tokio::runtime::Handle);

impl Background for Runtime {
    fn spawn(&self, work: BoxFuture<()>) {
        self.0.spawn(work);
    }

    fn wall(&self) -> Time {
        braid_io::clock::now().wall
    }
}

/// The client's way to the parts of its own process.
pub struct HostWire {
    pub(super) switch: Arc<Switch>,
    pub(super) partitions: u16,
}

impl Wire for HostWire {
    fn partition(&self, p: PartitionId, req: Request) -> BoxFuture<Answer> {
        ask(&self.switch, p, req)
    }

    fn listen(&self, client: ClientId, to: Arc<dyn PushSink>) -> bool {
        self.switch.listen(client, &to);
        true
    }

    fn drive(&self, d: DriveId, op: DriveOp) -> BoxFuture<DriveResult> {
        let drive = match self.switch.drive(d) {
            Ok(drive) => drive,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (tx, rx) = oneshot::channel();
        drive.call(op, move |result| drop(tx.send(result)));
        Box::pin(async move {
            rx.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, format!("drive {d} stopped before it answered"))))
        })
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<()> {
        let _in_runtime = self.switch.runtime.enter();
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }

    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn now_ms(&self) -> u64 {
        braid_io::clock::mono_ms()
    }
}
