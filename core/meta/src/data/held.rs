//! Writes that wait because the stage is full.
//!
//! They run in order as destage makes room. While it makes no progress at all, those that have waited too long
//! are answered with an error: nobody waits for ever. Which one depends: there is no room on flash, or there is, and
//! the drives do not take it, or too few of them can be used.

use std::collections::VecDeque;

use braid_base::ids::ClientId;
use braid_base::limits::{ASKED_AGAIN_MS, HELD_FULL_MS_MAX, HELD_MAX, HELD_MS_MAX, SLICE_COST_BYTES};
use braid_base::msg::fs::{Op, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::data::destage;
use crate::event::Token;
use crate::state::State;
use crate::txn::Txn;

/// The queue.
#[derive(Default)]
pub(crate) struct Held {
    queue: VecDeque<Wait>,
    /// Whose turn it is: the request that runs now was let out of the queue.
    turn: Option<Token>,
}

struct Wait {
    token: Token,
    request: Request,
    since_ms: u64,
    asked_ms: u64,
}

impl Held {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if a request of `client` waits.
    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.queue.iter().any(|wait| wait.request.op.client == client)
    }
}

/// What a write costs the stage.
fn cost(request: &Request) -> u64 {
    match &request.body {
        Op::Write { parts, .. } => parts.iter().map(|(_, bytes)| bytes.len() as u64 + SLICE_COST_BYTES).sum(),
        _ => 0,
    }
}

/// Puts a write aside if there is no room for it now; true if it waits. `Busy` if too many wait already.
pub(crate) fn hold(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<bool> {
    let held = &mut s.data.held;
    let full = s.data.stage.cost() + cost(request) > s.data.stage.limits.cap_bytes;
    if held.turn == Some(token) || (!full && held.queue.is_empty()) {
        return Ok(false);
    }
    let now = t.now.mono_ms;
    if let Some(waiting) = held.queue.iter_mut().find(|waiting| waiting.request.op == request.op) {
        // Its client asks again, and listens to the newest question only: the place and the time in the queue stay.
        let before = std::mem::replace(&mut waiting.token, token);
        waiting.asked_ms = now;
        t.reply(before, Err(Error::new(ErrorKind::Busy, "the same write was asked again and waits")));
        return Ok(true);
    }
    if held.queue.len() >= HELD_MAX {
        return Err(Error::new(ErrorKind::Busy, "the write stage is full: destage is behind"));
    }
    held.queue.push_back(Wait { token, request: request.clone(), since_ms: now, asked_ms: now });
    Ok(true)
}

/// The next write that there is room for.
pub(crate) fn next(s: &mut State) -> Option<(Token, Request)> {
    let held = &mut s.data.held;
    let Wait { request, .. } = held.queue.front()?;
    // An empty stage takes any one write: the caps may be small.
    if s.data.stage.cost() > 0 && s.data.stage.cost() + cost(request) > s.data.stage.limits.cap_bytes {
        return None;
    }
    let Wait { token, request, .. } = held.queue.pop_front()?;
    held.turn = Some(token);
    Some((token, request))
}

/// Answers those that have waited too long while nothing moved.
pub(crate) fn expire(t: &mut Txn<'_>, s: &mut State) {
    if s.data.held.queue.is_empty() {
        return;
    }
    let now = t.now.mono_ms;
    let may_move = destage::may_move(s, now);
    // Nobody waits for these any more: they must not be carried out long after a program was told that they failed.
    s.data.held.queue.retain(|wait| {
        let forsaken = now >= wait.asked_ms + ASKED_AGAIN_MS;
        if forsaken {
            t.reply(wait.token, Err(Error::new(ErrorKind::Busy, "a write that nobody asks for any more")));
        }
        !forsaken
    });
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
    let held = &mut s.data.held;
    while let Some(Wait { since_ms, .. }) = held.queue.front()
        && now >= idle_since.max(*since_ms) + wait_ms
        && let Some(Wait { token, request, .. }) = held.queue.pop_front()
    {
        t.answer(token, request.op, Err(Error::new(kind, why)));
    }
}
