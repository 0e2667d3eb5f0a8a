//! The partition server: exactly-once by operation id, and ways to lose its answers.

use std::collections::{HashMap, VecDeque};
use std::future::{pending, poll_fn, ready};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use braid_base::ids::{BlobId, Ino, OpId, PartitionId, Vp};
use braid_base::limits::CHUNK;
use braid_base::msg::fs::{FsResult, LockKind, LockSpec, Op, Reply, Request};
use braid_base::{Error, ErrorKind};
use braid_client::BoxFuture;
use bytes::Bytes;

use super::files::Stage;
use super::locks::Held;
use super::names::Node;
use super::tier::Tier;

/// What happens to the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is refused with this kind and not carried out.
    Refuse(ErrorKind),
    /// It is carried out and the answer is lost.
    LoseAnswer,
    /// It is lost.
    LoseRequest,
    /// It comes to another primary, which has been told who holds what, and knows nobody who waits and no answer.
    NewPrimary,
    None,
}

pub struct Server {
    state: Mutex<State>,
}

pub struct State {
    pub partitions: u16,
    pub nodes: HashMap<Ino, Node>,
    pub stage: Stage,
    /// Data of objects.
    pub objects: HashMap<BlobId, Bytes>,
    /// How long layouts may be used.
    pub fresh_ms: u32,
    /// Layouts that were asked for, and whether what is in objects was to come back.
    pub recalls: Vec<bool>,
    pub locks: Vec<(Ino, Held)>,
    pub waits: Vec<(OpId, Ino, LockSpec)>,
    /// Who waits at an earlier one waits in vain.
    primaries: u64,
    pub lock_wakers: Vec<Waker>,
    pub tier: Tier,
    pub next: u64,
    pub time: i64,
    answers: HashMap<OpId, FsResult>,
    pub mishaps: VecDeque<Mishap>,
    /// Operations of this name are heard and get no answer.
    pub silent: Option<&'static str>,
    /// Requests seen: their names and whether they were carried out now.
    pub log: Vec<(OpId, String, u64)>,
}

impl Server {
    pub fn new(partitions: u16) -> Self {
        let state = State {
            partitions,
            nodes: HashMap::new(),
            stage: Stage::default(),
            objects: HashMap::new(),
            fresh_ms: 0,
            recalls: Vec::new(),
            locks: Vec::new(),
            waits: Vec::new(),
            primaries: 0,
            lock_wakers: Vec::new(),
            tier: Tier::default(),
            next: 2,
            time: 1_700_000_000,
            answers: HashMap::new(),
            mishaps: VecDeque::new(),
            silent: None,
            log: Vec::new(),
        };
        Self { state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("server state")
    }

    /// The names of the operations asked since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log).into_iter().map(|(_, name, _)| name).collect()
    }

    pub fn ask(self: Arc<Self>, p: PartitionId, req: Request) -> BoxFuture<FsResult> {
        let mut state = self.state();
        if let Some(ino) = req.body.route() {
            assert_eq!(ino.partition(state.partitions), p, "{:?} went to the wrong partition", req.body);
        }
        assert!(req.done_upto < req.op.seq, "an operation cannot be done before it is asked");
        let name = format!("{:?}", req.body);
        let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
        let silent = state.silent.is_some_and(|silent| silent == name);
        state.log.push((req.op, name, req.done_upto));
        if silent {
            return Box::pin(pending());
        }
        let mishap = state.mishaps.pop_front();
        match mishap {
            Some(Mishap::Refuse(kind)) => return Box::pin(ready(Err(kind.into()))),
            Some(Mishap::LoseRequest) => return Box::pin(pending()),
            Some(Mishap::NewPrimary) => {
                state.primaries += 1;
                (state.answers, state.waits) = (HashMap::new(), Vec::new());
            }
            _ => {}
        }
        if let Op::Lock { ino, lock, wait: true } = req.body
            && lock.kind != LockKind::Unlock
        {
            let op = req.op;
            if !state.answers.contains_key(&op) {
                state.lock_or_wait((op, ino, lock));
            }
            let primary = state.primaries;
            drop(state);
            return Box::pin(poll_fn(move |cx| {
                let mut state = self.state();
                match state.answers.get(&op).filter(|_| state.primaries == primary) {
                    Some(answer) => Poll::Ready(answer.clone()),
                    None => {
                        state.lock_wakers.push(cx.waker().clone());
                        Poll::Pending
                    }
                }
            }));
        }
        let answer = match state.answers.get(&req.op) {
            Some(answer) => answer.clone(),
            None => {
                let answer = state.apply(p, &req);
                state.answers.insert(req.op, answer.clone());
                answer
            }
        };
        if mishap == Some(Mishap::LoseAnswer) {
            return Box::pin(pending());
        }
        Box::pin(ready(answer))
    }
}

impl State {
    pub fn is_local(&self, p: PartitionId, ino: Ino) -> bool {
        ino.partition(self.partitions) == p
    }

    pub fn fresh_ino(&mut self, dir: Ino, spread: bool) -> Ino {
        self.next += 1;
        let vp = if spread { Vp((self.next % 4) as u16) } else { dir.vp() };
        Ino::new(vp, self.next)
    }

    pub fn node(&mut self, ino: Ino) -> Result<&mut Node, Error> {
        self.nodes.get_mut(&ino).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn lock_or_wait(&mut self, wait: (OpId, Ino, LockSpec)) {
        let (op, ino, lock) = wait;
        match self.try_lock(op.client, ino, lock) {
            Ok(()) => _ = self.answers.insert(op, Ok(Reply::Done)),
            Err(_) => self.waits.push(wait),
        }
    }

    pub fn wake_lock_waiters(&mut self) {
        std::mem::take(&mut self.waits).into_iter().for_each(|wait| self.lock_or_wait(wait));
        self.lock_wakers.drain(..).for_each(Waker::wake);
    }

    fn apply(&mut self, p: PartitionId, req: &Request) -> FsResult {
        let client = req.op.client;
        self.time += 1;
        Ok(match req.body.clone() {
            Op::Layout { ino, off, len, recall } => {
                self.recalls.push(recall);
                Reply::Layout(self.layout(ino, off, len)?)
            }
            Op::ReadObject { at, len, .. } => {
                let (from, to) = (u64::from(at.off), u64::from(at.off) + u64::from(len));
                assert!(len > 0 && from / CHUNK == (to - 1) / CHUNK, "{at:?}+{len} is not one request of a store");
                Reply::Data(match self.objects.get(&at.blob) {
                    Some(data) => data.slice(from as usize..to as usize),
                    None => self.read_released(at, len)?,
                })
            }
            Op::NextData { ino, off } => Reply::Layout(self.next_data(ino, off)?),
            Op::ReadStage { at, poff, len } => Reply::Data(self.stage.read(at, poff, len)?),
            Op::Residency { ino, from } => Reply::Residency(self.residency(ino, from)?),
            Op::Tier { ino, off, len, want } => self.want(ino, off, len, want)?,
            Op::Write { ino, parts, append, kill_suid_sgid, at } => {
                self.write(ino, parts, append, (kill_suid_sgid, at))?
            }
            Op::GetSpace { bytes, .. } => self.space(bytes),
            Op::CommitWrite { ino, off, stripes, kill_suid_sgid, at } => {
                self.commit(ino, off, stripes, (kill_suid_sgid, at))?
            }
            Op::Fallocate { ino, off, len, mode, keep_size } => {
                Reply::Attr(self.fallocate(ino, off, len, mode, keep_size)?)
            }
            Op::SetAttr { ino, set } => Reply::Attr(self.setattr(ino, &set)?),
            Op::Lock { ino, lock, .. } => self.try_lock(client, ino, lock).map(|()| Reply::Done)?,
            Op::CancelLock { seq, .. } => {
                let op = OpId { client, seq };
                self.waits.retain(|(waiting, ..)| *waiting != op);
                self.answers.entry(op).or_insert_with(|| Err(ErrorKind::WouldBlock.into()));
                self.wake_lock_waiters();
                Reply::Done
            }
            Op::TestLock { ino, lock } => Reply::Locked(self.conflict(client, ino, &lock)),
            Op::UnlockOwner { ino, owner, flock } => {
                self.locks.retain(|(i, h)| *i != ino || h.spec.owner != owner || h.spec.flock != flock);
                self.wake_lock_waiters();
                Reply::Done
            }
            Op::Statfs => Reply::Usage { bytes: 4096, inodes: self.nodes.len() as u64, total_bytes: None },
            Op::Sync { .. } | Op::EndSession => Reply::Done,
            body => self.name_op(p, req.cred, body)?,
        })
    }
}
