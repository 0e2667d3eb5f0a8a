//! Requests that wait until other clients have given back what is in their way.

use std::collections::{HashMap, VecDeque};

use braid_base::ids::{ClientId, FsId};
use braid_base::limits::{ASKED_AGAIN_MS, HELD_TOLD_MS, RECALLED_WAITS_MAX};
use braid_base::msg::fs::Request;
use braid_base::{Error, ErrorKind, Result};

use super::needs::Need;
use super::table::Key;
use crate::event::Token;

/// The queue.
#[derive(Default)]
pub(super) struct Waits {
    queue: VecDeque<Wait>,
    /// What those in the queue need: nobody else gets a lease on it meanwhile.
    wanted: HashMap<Key, usize>,
    /// Something was given back since the queue was looked through.
    changed: bool,
}

struct Wait {
    token: Token,
    request: Request,
    needs: Vec<Need>,
    asked_ms: u64,
}

impl Waits {
    /// Adds a request; the token of an earlier copy of it, which is answered no more. `Busy` if too many wait.
    pub(super) fn add(&mut self, token: Token, request: &Request, needs: Vec<Need>, now: u64) -> Result<Option<Token>> {
        if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.request.op == request.op) {
            waiting.asked_ms = now;
            return Ok(Some(std::mem::replace(&mut waiting.token, token)));
        }
        if self.queue.len() >= RECALLED_WAITS_MAX {
            return Err(Error::new(ErrorKind::Busy, "too many requests wait for leases; try again"));
        }
        for need in &needs {
            *self.wanted.entry((request.fs, need.ino)).or_default() += 1;
        }
        self.queue.push_back(Wait { token, request: request.clone(), needs, asked_ms: now });
        Ok(None)
    }

    /// True if a request waits for this.
    pub(super) fn wants(&self, key: Key) -> bool {
        self.wanted.contains_key(&key)
    }

    /// Something was given back.
    pub(super) fn look_again(&mut self) {
        self.changed = true;
    }

    /// The first request that nothing is in the way of, as `is_free` says.
    pub(super) fn next(&mut self, is_free: impl Fn(FsId, ClientId, &[Need]) -> bool) -> Option<(Token, Request)> {
        if !self.changed {
            return None;
        }
        let free = |wait: &Wait| is_free(wait.request.fs, wait.request.op.client, &wait.needs);
        let Some(at) = self.queue.iter().position(free) else {
            self.changed = false;
            return None;
        };
        let Wait { token, request, needs, .. } = self.queue.remove(at)?;
        self.unwant(request.fs, &needs);
        Some((token, request))
    }

    /// Requests whose clients have stopped to ask for them: they must not be carried out long after a program was told
    /// that they failed.
    pub(super) fn forsaken(&mut self, now: u64) -> Vec<Token> {
        self.take(|wait| now >= wait.asked_ms + ASKED_AGAIN_MS)
    }

    /// Requests that have waited for a while for somebody who waits here himself, as `is_held` says: they are to be told so.
    /// They leave the queue; their clients ask again at once.
    pub(super) fn held_up(&mut self, now: u64, is_held: impl Fn(FsId, ClientId, &[Need]) -> bool) -> Vec<Token> {
        let held = |wait: &Wait| is_held(wait.request.fs, wait.request.op.client, &wait.needs);
        self.take(|wait| now >= wait.asked_ms + HELD_TOLD_MS && held(wait))
    }

    /// Takes out of the queue what `is_over` names.
    fn take(&mut self, is_over: impl Fn(&Wait) -> bool) -> Vec<Token> {
        if !self.queue.iter().any(&is_over) {
            return Vec::new();
        }
        let (gone, kept): (Vec<Wait>, _) = std::mem::take(&mut self.queue).into_iter().partition(is_over);
        self.queue = kept.into();
        gone.iter().for_each(|wait| self.unwant(wait.request.fs, &wait.needs));
        gone.into_iter().map(|wait| wait.token).collect()
    }

    fn unwant(&mut self, fs: FsId, needs: &[Need]) {
        for need in needs {
            let key = (fs, need.ino);
            if let Some(count) = self.wanted.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.wanted.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_base::ids::{Ino, OpId};
    use braid_base::msg::fs::{Cred, Op};

    use super::super::Use;
    use super::*;

    fn request(seq: u64) -> Request {
        let op = OpId { client: ClientId(1), seq };
        let body = Op::EndSession;
        Request { op, session: 1, done_upto: 0, fs: FsId(1), cred: Cred::default(), early: false, body }
    }

    #[test]
    fn who_waits_for_somebody_who_waits_is_told_and_may_ask_again() {
        let mut waits = Waits::default();
        for (seq, ino) in [(1, Ino(7)), (2, Ino(8))] {
            let needs = vec![Need { ino, how: Use::Look }];
            assert!(waits.add(Token(seq), &request(seq), needs, 1_000).expect("there is room").is_none());
        }
        let held = |_: FsId, _: ClientId, needs: &[Need]| needs[0].ino == Ino(7);
        assert_eq!(waits.held_up(1_000 + HELD_TOLD_MS - 1, held), [], "not yet");
        assert_eq!(waits.held_up(1_000 + HELD_TOLD_MS, held), [Token(1)], "the other one waits for somebody at work");
        assert!(!waits.wants((FsId(1), Ino(7))) && waits.wants((FsId(1), Ino(8))));
        let needs = vec![Need { ino: Ino(7), how: Use::Look }];
        assert!(waits.add(Token(3), &request(1), needs, 9_000).expect("there is room").is_none(), "it is new here");
        assert_eq!(waits.forsaken(1_000 + ASKED_AGAIN_MS), [Token(2)]);
    }
}
