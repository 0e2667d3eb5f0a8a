//! The thin shell: runs a [`Target`] on a reactor, over a file or a block device.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use braid_base::ids::Guid;
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::{Error, ErrorKind, Result};
use braid_io::clock;
use braid_io::file::{Create, File, OpenMode};
use braid_io::reactor::{Actor, Backend, Ending, FileId, IoDone, IoOp, Mailbox, Place, Token, Turn, start};

use crate::format::superblock::Superblock;
use crate::open::{Opened, open};
use crate::setup::{FormatParams, format};
use crate::target::{Effect, Event, OpToken, Target};

/// Where an answer goes. Called exactly once: if the drive stops before it answers, with `Stopped`.
pub struct Reply(Option<Box<dyn FnOnce(DriveResult) + Send>>);

/// One operation with the place for its answer. The closure runs where the drive does: it must not block.
pub struct DriveMsg {
    /// What is asked.
    pub op: DriveOp,
    /// Who wants to know.
    pub reply: Reply,
}

/// A way to a running drive; cheap to clone. The drive closes when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Drive {
    mailbox: Mailbox<DriveMsg>,
}

/// A drive that runs.
pub struct Running {
    /// The way to it.
    pub drive: Drive,
    /// Whose it is.
    pub superblock: Superblock,
    /// Sentences for the person who looks after it (a copy was mended, slots cannot be read).
    pub notes: Vec<String>,
    /// Comes when the last [`Drive`] is dropped and its I/O is done.
    pub ending: Ending,
}

/// The actor around a target.
pub struct DriveActor {
    target: Target,
    file: FileId,
    replies: BTreeMap<OpToken, Reply>,
    next: u64,
    effects: Vec<Effect>,
    closing: bool,
}

impl Reply {
    /// An answer goes to `to`, where the drive runs.
    pub fn new(to: impl FnOnce(DriveResult) + Send + 'static) -> Self {
        Self(Some(Box::new(to)))
    }

    fn call(mut self, result: DriveResult) {
        if let Some(to) = self.0.take() {
            to(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to(Err(Error::new(ErrorKind::Stopped, "the drive stopped before it answered")));
        }
    }
}

impl Drive {
    /// Asks; `to` gets the answer, exactly once, where the drive runs (or here, if the drive has stopped).
    pub fn call(&self, op: DriveOp, to: impl FnOnce(DriveResult) + Send + 'static) {
        // A message that is not taken is dropped, and its reply says that the drive has stopped.
        let _ = self.mailbox.send(DriveMsg { op, reply: Reply::new(to) });
    }

    /// Asks and waits. Not for use on an actor's thread, nor on one of a runtime, where the drive may be.
    pub fn ask(&self, op: DriveOp) -> DriveResult {
        let (to, answer) = mpsc::sync_channel(1);
        self.call(op, move |result| {
            // The receiver waits below.
            let _ = to.send(result);
        });
        answer.recv().unwrap_or_else(|_| Err(ErrorKind::Stopped.into()))
    }

    /// The mailbox itself, for those who keep many kinds of them.
    pub fn mailbox(&self) -> &Mailbox<DriveMsg> {
        &self.mailbox
    }
}

/// Makes the file or device at `path` a drive. A missing file is made with `bytes` reserved bytes; an existing file or
/// device is used as it is, if nothing is on it. Errors: `Refused` (in use, foreign, too small, or a device that
/// cannot make writes durable), `NoSpace`, or the system's.
pub fn format_file(path: &Path, bytes: u64, params: &FormatParams) -> Result<Superblock> {
    let mode = OpenMode { write: true, create: Create::IfMissing(bytes), direct: true, exclusive: true };
    let file = File::open(path, mode)?;
    let named = |error: Error| error.within(path.display());
    let (superblock, writes) = format(&file, params, clock::now()).map_err(named)?;
    for (at, data) in writes {
        file.write_at(at, &data).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => {
                let words = format!(
                    "{}: the device cannot confirm that a write is durable (RWF_DSYNC); it is no place for data",
                    path.display()
                );
                Error::new(ErrorKind::Refused, words)
            }
            _ => error,
        })?;
    }
    Ok(superblock)
}

impl DriveActor {
    /// Opens the drive at `path` and runs it at `place`. `cluster`: refuse drives of others.
    pub fn open(path: &Path, cluster: Option<Guid>, place: &Place, backend: Backend) -> Result<Running> {
        let file = File::open(path, OpenMode::WRITE.alone())?;
        let named = |error: Error| error.within(path.display());
        // What a process that was killed wrote may be in a volatile cache still: from here on, seen means durable.
        file.sync()?;
        // A plain file keeps the space it reserved, so that the drive cannot run out of it later.
        let discard = file.is_block_device();
        let Opened { target, repairs, notes } = open(&file, cluster, discard, clock::now()).map_err(named)?;
        for (at, data) in repairs {
            file.write_at(at, &data)?;
        }
        for note in &notes {
            tracing::warn!("{}: {note}", path.display());
        }
        let superblock = target.superblock().clone();
        let (mailbox, ending) = start(place, &format!("drive-{}", superblock.id), backend, move |turn| {
            let file = turn.adopt(file);
            Ok(Self { target, file, replies: BTreeMap::new(), next: 0, effects: Vec::new(), closing: false })
        })?;
        Ok(Running { drive: Drive { mailbox }, superblock, notes, ending })
    }

    fn step(&mut self, event: Event, turn: &mut Turn) {
        let mut effects = std::mem::take(&mut self.effects);
        self.target.step(turn.now(), event, &mut effects);
        let file = self.file;
        for effect in effects.drain(..) {
            match effect {
                Effect::Read { token, off, len } => turn.submit(token, IoOp::Read { file, off, len }),
                Effect::Write { token, off, data, durable } => {
                    turn.submit(token, IoOp::Write { file, off, data: vec![data], durable });
                }
                Effect::Sync { token } => turn.submit(token, IoOp::Sync { file }),
                Effect::Discard { token, off, len } => turn.submit(token, IoOp::Discard { file, off, len }),
                Effect::Reply { token, result } => {
                    let reply = self.replies.remove(&token).expect("each operation is answered once");
                    reply.call(result);
                }
            }
        }
        self.effects = effects;
    }
}

impl Actor for DriveActor {
    type Msg = DriveMsg;

    fn on_msg(&mut self, msg: DriveMsg, turn: &mut Turn) {
        self.next += 1;
        let token = OpToken(self.next);
        self.replies.insert(token, msg.reply);
        self.step(Event::Op { token, op: msg.op }, turn);
    }

    fn on_io(&mut self, token: Token, result: Result<IoDone>, turn: &mut Turn) {
        self.step(Event::Io { token, result }, turn);
    }

    fn on_batch(&mut self, turn: &mut Turn) {
        if let Some(at) = self.target.next_tick_ms() {
            turn.set_timer(at.saturating_mul(1000));
        }
        if self.closing && self.replies.is_empty() {
            turn.stop();
        }
    }

    fn on_timer(&mut self, turn: &mut Turn) {
        self.step(Event::Tick, turn);
    }

    fn on_closed(&mut self, _turn: &mut Turn) {
        // Nobody can ask any more; those who asked still get their answers.
        self.closing = true;
    }
}
