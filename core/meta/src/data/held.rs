//! Writes that wait for room: in the stage, or on flash of a file system whose data leaves for an object store.
//!
//! They run in order as destage, or the tier, makes room; those that wait for flash of one file system hold up no other.
//! While nothing moves at all, those that have waited too long are answered with an error: nobody waits for ever. Which
//! one depends: there is no room on flash, or there is, and the drives do not take it, or too few of them can be used, or
//! the object store takes nothing.

use std::collections::{BTreeMap, VecDeque};

use braid_base::ids::{ClientId, FsId};
use braid_base::limits::{
    ASKED_AGAIN_MS, HELD_FULL_MS_MAX, HELD_MAX, HELD_MS_MAX, HELD_STORE_MS_MAX, HELD_TOLD_MS, SLICE_COST_BYTES,
};
use braid_base::msg::fs::{Op, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::data::{destage, tier};
use crate::event::{Effect, Notice, Token};
use crate::state::State;
use crate::txn::Txn;

/// The queue.
#[derive(Default)]
pub(crate) struct Held {
    queue: VecDeque<Wait>,
    /// Whose turn it is: the request that runs now was let out of the queue.
    turn: Option<Token>,
    /// What the first write costs that waits for flash, by file system.
    lacking: BTreeMap<FsId, u64>,
    /// Somebody was turned away, because too many wait.
    crowded: bool,
}

struct Wait {
    /// None while its client, which was told that it waits, has not asked again: it keeps its place.
    token: Option<Token>,
    request: Request,
    since_ms: u64,
    asked_ms: u64,
    /// It waited for flash when last it was looked at.
    lacked: bool,
}

impl Held {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if a request of `client` waits, or may not be let in to wait.
    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.crowded || self.queue.iter().any(|wait| wait.request.op.client == client)
    }

    /// Writes of `fs` that wait for flash.
    pub fn lacking_of(&self, fs: FsId) -> u64 {
        self.queue.iter().filter(|wait| wait.lacked && wait.request.fs == fs).count() as u64
    }

    /// Flash that the next write of `fs` needs which waits for it, bytes.
    pub fn lacks(&self, fs: FsId) -> Option<u64> {
        self.lacking.get(&fs).copied()
    }
}

/// What a write costs the stage.
fn cost(request: &Request) -> u64 {
    match &request.body {
        Op::Write { parts, .. } => parts.iter().map(|(_, bytes)| bytes.len() as u64 + SLICE_COST_BYTES).sum(),
        _ => 0,
    }
}

/// True if the stage has room for it. An empty one takes any one write: the caps may be small.
fn is_staged(s: &State, request: &Request) -> bool {
    let stage = &s.data.stage;
    stage.cost() == 0 || stage.cost() + cost(request) <= stage.limits.cap_bytes
}

/// True if flash of its file system is too full for it, and something may leave to make room.
fn lacks_flash(s: &State, request: &Request) -> bool {
    let fs = request.fs;
    tier::flash_left(s, fs).is_some_and(|left| left < cost(request)) && tier::on_flash(s, fs) > 0
}

/// The file systems of which a write lacks flash: what stands behind it in the queue is not let past.
#[derive(Default)]
struct Passed(BTreeMap<FsId, u64>);

impl Passed {
    /// True if `request`, the next one in the queue, waits for flash.
    fn lacks(&mut self, s: &State, request: &Request) -> bool {
        if self.0.contains_key(&request.fs) {
            return true;
        }
        let lacks = lacks_flash(s, request);
        if lacks {
            self.0.insert(request.fs, cost(request));
        }
        lacks
    }
}

/// Puts a write aside if there is no room for it now; true if it waits. `Busy` or `Held` if too many wait already.
pub(crate) fn hold(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<bool> {
    if s.data.held.turn == Some(token) {
        return Ok(false);
    }
    // In turn: behind those of the same file system, and behind all that wait for the stage.
    let (mut passed, mut of_fs, mut of_stage) = (Passed::default(), 0, 0);
    for wait in &s.data.held.queue {
        match passed.lacks(s, &wait.request) {
            true => of_fs += usize::from(wait.request.fs == request.fs),
            false => of_stage += 1,
        }
    }
    let lacks = passed.lacks(s, request);
    if !lacks && of_stage == 0 && is_staged(s, request) {
        return Ok(false);
    }
    let (held, now) = (&mut s.data.held, t.now.mono_ms);
    if let Some(waiting) = held.queue.iter_mut().find(|waiting| waiting.request.op == request.op) {
        // Its client asks again, and listens to the newest question only: the place and the time in the queue stay.
        let before = waiting.token.replace(token);
        (waiting.asked_ms, waiting.request) = (now, request.clone());
        if let Some(before) = before {
            t.reply(before, Err(Error::new(ErrorKind::Busy, "the same write was asked again and waits")));
        }
        return Ok(true);
    }
    if (if lacks { of_fs } else { of_stage }) >= HELD_MAX {
        held.crowded = true;
        return Err(match lacks {
            true => ErrorKind::Held.into(),
            false => Error::new(ErrorKind::Busy, "the write stage is full: destage is behind"),
        });
    }
    if lacks {
        held.lacking.entry(request.fs).or_insert_with(|| cost(request));
    }
    let wait = Wait { token: Some(token), request: request.clone(), since_ms: now, asked_ms: now, lacked: lacks };
    held.queue.push_back(wait);
    Ok(true)
}

/// The next write that there is room for, and somebody waits for.
pub(crate) fn next(s: &mut State) -> Option<(Token, Request)> {
    if s.data.fault.is_some() {
        // Nothing makes room any more: all of them hear why.
        s.data.held.crowded = false;
        return std::iter::from_fn(|| s.data.held.queue.pop_front()).find_map(|wait| Some((wait.token?, wait.request)));
    }
    let (mut passed, mut found) = (Passed::default(), None);
    for (at, Wait { token, request, .. }) in s.data.held.queue.iter().enumerate() {
        if passed.lacks(s, request) {
            continue;
        }
        if !is_staged(s, request) {
            break;
        }
        if token.is_some() {
            found = Some(at);
            break;
        }
    }
    let held = &mut s.data.held;
    let Wait { token, request, .. } = held.queue.remove(found?)?;
    held.turn = token;
    Some((token?, request))
}

/// Answers those that have waited too long while nothing moved, and tells those that wait for flash that they do.
pub(crate) fn expire(t: &mut Txn<'_>, s: &mut State) {
    s.data.held.lacking.clear();
    s.data.held.crowded &= s.data.held.queue.len() >= HELD_MAX;
    if s.data.held.queue.is_empty() {
        return;
    }
    let now = t.now.mono_ms;
    let may_move = destage::may_move(s, now);
    let (wait_ms, kind, why) = if may_move {
        (HELD_MS_MAX, ErrorKind::Io, "the write stage is full and the drives do not take it: check them")
    } else if s.data.packs.drives.usable().len() <= usize::from(s.config.parity) {
        // There may be plenty of room: to say that it lacks would send the administrator the wrong way.
        (HELD_FULL_MS_MAX, ErrorKind::Io, "the write stage is full and too few drives take writes: check them")
    } else {
        (HELD_FULL_MS_MAX, ErrorKind::NoSpace, "the write stage is full and there is no room to move it to")
    };
    // Any move tells that the drives work; only one of the stage makes room in it.
    let idle_since = if may_move { s.data.jobs.progress_ms } else { s.data.jobs.destaged_ms };
    let mut passed = Passed::default();
    let mut queue = std::mem::take(&mut s.data.held.queue);
    queue.retain_mut(|wait| {
        let lacks = passed.lacks(s, &wait.request);
        if wait.lacked && !lacks {
            // From now on it waits for something else.
            wait.since_ms = now;
        }
        wait.lacked = lacks;
        let Wait { token, request, since_ms, asked_ms, .. } = wait;
        // Nobody waits for it any more: it must not be carried out long after a program was told that it failed.
        if now >= *asked_ms + ASKED_AGAIN_MS {
            if let Some(token) = *token {
                t.reply(token, Err(Error::new(ErrorKind::Busy, "a write that nobody asks for any more")));
            }
            return false;
        }
        let Some(asked) = *token else { return true };
        if !lacks && is_staged(s, request) {
            // Its turn comes now.
            return true;
        }
        let (idle_since, wait_ms) =
            if lacks { (s.data.tier.moves_ms(request.fs), HELD_STORE_MS_MAX) } else { (idle_since, wait_ms) };
        if now >= idle_since.max(*since_ms) + wait_ms {
            let error = if lacks { full(request.fs) } else { Error::new(kind, why) };
            t.answer(asked, request.op, Err(error));
            if lacks {
                t.after(Effect::Notice(Notice::FlashFull(request.fs)));
            }
            return false;
        }
        if lacks && now >= *asked_ms + HELD_TOLD_MS {
            t.reply(asked, Err(ErrorKind::Held.into()));
            *token = None;
        }
        true
    });
    (s.data.held.queue, s.data.held.lacking) = (queue, passed.0);
}

fn full(fs: FsId) -> Error {
    let text = format!(
        "the flash of {fs} is full, and nothing of it went into its object store for {} s: look at `braid fs tier`, or \
         give it more with `braid fs update --ssd-capacity`",
        HELD_STORE_MS_MAX / 1_000
    );
    Error::new(ErrorKind::NoSpace, text)
}
