//! Large writes: straight to the drives, then one entry that names what was written (design 5.6, 5.7).
//!
//! 1. A range of a pack that the partition lent is cut into stripes.
//! 2. All shards of all stripes go to their drives at once, and are durable there.
//! 3. The commit names them. Whatever fails before its answer leaves garbage and no trace.
//!
//! Whenever this way is not open (no range at hand, a drive that does not take its shard, a partition that began anew)
//! the bytes go through the log, like those of a small write.

use std::collections::VecDeque;

use braid_base::attr::Time;
use braid_base::ids::Ino;
use braid_base::limits::BLOCK;
use braid_base::msg::fs::{Laid, Op, Reply};
use braid_base::record::Placement;
use braid_base::{ErrorKind, Result};
use bytes::{Bytes, BytesMut};

use super::behind::answered;
use super::{Fs, Written};
use crate::join::join_bounded;
use crate::lent::Cut;
use crate::stripe;

/// How long a drive may take, asked once and again; then the log is the faster way, milliseconds.
const PUT_WAITS_MS: [u64; 2] = [1_500, 4_500];
/// Stripes of one write in flight at a time.
const STRIPES_AT_ONCE: usize = 4;

impl Fs {
    /// Writes the bytes of `parts`, one after another, straight to the drives; `None` if that is not possible now, and
    /// nothing happened. `at`: when a program wrote them, if they were held back since; room was promised for them then.
    /// `session` as of [`Self::ask_under`].
    pub(super) async fn write_direct(
        &self,
        ino: Ino,
        off: u64,
        parts: &[Bytes],
        (kill_suid_sgid, at): (bool, Option<Time>),
        session: Option<u64>,
    ) -> Option<Result<Written>> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let stripes = match self.cut(ino, off, len, at.map_or(0, |_| len)).await {
            Ok(stripes) => stripes?,
            // A program should not wait once more. Bytes that were held back should, before they are lost.
            Err(error) => return at.is_none().then_some(Err(error)),
        };
        let (mut puts, mut left) = (Vec::with_capacity(stripes.len()), parts.iter().cloned().collect());
        for (laid, place) in &stripes {
            puts.push(self.put_stripe(laid, place, split_to(&mut left, laid.len as usize)));
        }
        let done = join_bounded(STRIPES_AT_ONCE, puts).await;
        let stripes: Vec<Laid> = stripes.into_iter().map(|(laid, _)| laid).collect();
        if done.contains(&false) {
            self.0.lent.give_up(self.0.session.home(ino), stripes.iter().map(|laid| laid.at));
            return None;
        }
        match self.wrote("commit", (ino, session), Op::CommitWrite { ino, off, stripes, kill_suid_sgid, at }, len).await
        {
            // Either its ranges or the file itself: the way through the log will tell.
            Err(error) if error.kind() == ErrorKind::Stale => {
                self.0.lent.forget(self.0.session.home(ino));
                None
            }
            done => Some(done),
        }
    }

    /// Stripes for `len` bytes of `ino` from `off` on, of what was lent or is lent now; `promised` bytes of that were
    /// kept for them.
    async fn cut(&self, ino: Ino, off: u64, len: u64, promised: u64) -> Result<Option<Vec<(Laid, Placement)>>> {
        let p = self.0.session.home(ino);
        let now_ms = self.0.reader.wire().now_ms();
        let avoid = |drive| self.0.reader.avoids(drive, now_ms);
        let at_hand = self.0.lent.cut(p, (off, len), promised, now_ms, &avoid);
        let cut = match at_hand {
            Cut::TooLittle if self.borrow(ino, len, now_ms).await? => self.0.lent.cut(p, (off, len), 0, now_ms, &avoid),
            cut => cut,
        };
        match cut {
            Cut::Stripes(stripes) => Ok(Some(stripes)),
            Cut::Avoided | Cut::TooLittle => {
                self.0.lent.waste(p, promised, now_ms);
                Ok(None)
            }
        }
    }

    /// Has ranges lent for at least `len` bytes of `ino` and what may follow; false if there is no room at hand.
    /// Errors: `Io` if the partition gave no answer in time.
    pub(super) async fn borrow(&self, ino: Ino, len: u64, now_ms: u64) -> Result<bool> {
        let p = self.0.session.home(ino);
        if self.0.lent.avoids(p, now_ms) {
            return Ok(false);
        }
        let (bytes, back) = (self.0.lent.ask(p, len, now_ms), self.0.lent.back(p));
        match answered(self.ask(Op::GetSpace { ino, bytes, back }).await)? {
            Some(Reply::Space(lent)) if !lent.is_empty() => {
                self.0.lent.keep(p, lent, now_ms);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// True if all shards are durable.
    async fn put_stripe(&self, laid: &Laid, place: &Placement, parts: Vec<Bytes>) -> bool {
        let total = usize::from(place.data) * usize::from(laid.at.ul) * BLOCK;
        let wire = self.0.reader.wire();
        let now_ms = wire.now_ms();
        if place.drives.iter().any(|drive| self.0.reader.avoids(*drive, now_ms)) {
            // It failed while an earlier stripe of this write was on its way.
            return false;
        }
        match stripe::put(wire, laid.at, place, gathered(parts, total), &PUT_WAITS_MS, stripe::LATE_MS).await {
            Ok(()) => true,
            Err(failed) => {
                for (drive, error) in failed {
                    tracing::debug!(%drive, %error, "a large write goes through the log instead");
                    self.0.reader.failed(drive);
                }
                false
            }
        }
    }
}

/// The bytes of `parts` and zeros after them, `total` in all, in memory that drives write from; copied unless one part
/// is just that.
fn gathered(mut parts: Vec<Bytes>, total: usize) -> Bytes {
    if let [only] = &parts[..]
        && only.len() == total
        && only.as_ptr().align_offset(BLOCK) == 0
    {
        return parts.swap_remove(0);
    }
    let mut whole: BytesMut = stripe::aligned(total);
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.resize(total, 0);
    whole.freeze()
}

/// Takes the first `len` bytes off `parts`, or all that there are.
fn split_to(parts: &mut VecDeque<Bytes>, len: usize) -> Vec<Bytes> {
    let (mut taken, mut left) = (Vec::new(), len);
    while left > 0
        && let Some(mut part) = parts.pop_front()
    {
        if part.len() > left {
            let head = part.split_to(left);
            parts.push_front(part);
            part = head;
        }
        left -= part.len();
        taken.push(part);
    }
    taken
}
