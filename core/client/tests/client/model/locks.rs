//! Locks of the model: whole-file and range locks, no splitting of ranges.

use braid_base::ids::{ClientId, Ino};
use braid_base::msg::fs::{LockKind, LockSpec};
use braid_base::{ErrorKind, Result};

use super::server::State;

#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub client: ClientId,
    pub spec: LockSpec,
}

impl State {
    pub fn conflict(&self, client: ClientId, ino: Ino, want: &LockSpec) -> Option<LockSpec> {
        let clash = |held: &Held| {
            held.spec.flock == want.flock
                && (held.client, held.spec.owner) != (client, want.owner)
                && held.spec.start <= want.end
                && want.start <= held.spec.end
                && (held.spec.kind == LockKind::Write || want.kind == LockKind::Write)
        };
        self.locks.iter().find(|(i, held)| *i == ino && clash(held)).map(|(_, held)| held.spec)
    }

    pub fn try_lock(&mut self, client: ClientId, ino: Ino, want: LockSpec) -> Result<()> {
        if want.kind != LockKind::Unlock && self.conflict(client, ino, &want).is_some() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.locks.retain(|(i, held)| {
            let same = *i == ino && held.client == client && held.spec.owner == want.owner;
            !(same && held.spec.flock == want.flock && want.start <= held.spec.start && held.spec.end <= want.end)
        });
        if want.kind == LockKind::Unlock {
            self.wake_lock_waiters();
        } else {
            self.locks.push((ino, Held { client, spec: want }));
        }
        Ok(())
    }
}
