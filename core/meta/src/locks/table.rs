//! Ranges of one file by owner: split when a part changes, merged when neighbours are alike.

use braid_base::ids::ClientId;
use braid_base::msg::fs::{LockKind, LockSpec};

/// Who owns a lock: the client and its number for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) ClientId, pub(super) u64);

/// Held ranges; those of one owner do not overlap.
#[derive(Default)]
pub(super) struct Table {
    held: Vec<(Owner, LockSpec)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The lock with the lowest start that is in the way of `lock`.
    pub(super) fn conflict(&self, owner: Owner, lock: &LockSpec) -> Option<LockSpec> {
        self.in_the_way(owner, lock).map(|(_, held)| *held).min_by_key(|held| held.start)
    }

    /// Everyone in the way of `lock`.
    pub(super) fn blockers(&self, owner: Owner, lock: &LockSpec) -> Vec<Owner> {
        self.in_the_way(owner, lock).map(|(blocker, _)| *blocker).collect()
    }

    fn in_the_way(&self, owner: Owner, lock: &LockSpec) -> impl Iterator<Item = &(Owner, LockSpec)> {
        self.held.iter().filter(move |(other, held)| {
            let one_writes = held.kind == LockKind::Write || lock.kind == LockKind::Write;
            let overlap = held.start <= lock.end && lock.start <= held.end;
            *other != owner && one_writes && overlap && lock.kind != LockKind::Unlock
        })
    }

    /// Makes the range of `lock` what it says, whatever the owner held there.
    pub(super) fn set(&mut self, owner: Owner, lock: LockSpec) {
        let mut new = lock;
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for (other, held) in self.held.drain(..) {
            if other != owner {
                kept.push((other, held));
                continue;
            }
            let alike = held.kind == new.kind && held.pid == new.pid;
            let touches = held.start <= new.end.saturating_add(1) && new.start <= held.end.saturating_add(1);
            if alike && touches {
                (new.start, new.end) = (new.start.min(held.start), new.end.max(held.end));
                continue;
            }
            if held.start < new.start {
                kept.push((owner, LockSpec { end: held.end.min(new.start - 1), ..held }));
            }
            if held.end > new.end {
                kept.push((owner, LockSpec { start: held.start.max(new.end + 1), ..held }));
            }
        }
        if new.kind != LockKind::Unlock {
            kept.push((owner, new));
        }
        self.held = kept;
    }

    /// Drops all locks of the owners that `gone` names.
    pub(super) fn remove(&mut self, gone: impl Fn(Owner) -> bool) {
        self.held.retain(|(owner, _)| !gone(*owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Owner = Owner(ClientId(1), 1);
    const YOU: Owner = Owner(ClientId(1), 2);

    fn spec(start: u64, end: u64, kind: LockKind) -> LockSpec {
        LockSpec { owner: 0, pid: 0, start, end, kind, flock: false }
    }

    /// Every byte has at most one kind per owner: tables of ranges against tables of bytes.
    #[test]
    fn ranges_agree_with_single_bytes() {
        const BYTES: u64 = 24;
        let kinds = [LockKind::Read, LockKind::Write, LockKind::Unlock];
        let (mut table, mut bytes) = (Table::default(), [[None::<LockKind>; BYTES as usize]; 2]);
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let who = random(2) as usize;
            let start = random(BYTES);
            let lock = spec(start, start + random(BYTES - start), kinds[random(3) as usize]);
            let range = lock.start as usize..=lock.end as usize;
            let other = &bytes[1 - who][range.clone()];
            let clash = match lock.kind {
                LockKind::Unlock => false,
                LockKind::Read => other.contains(&Some(LockKind::Write)),
                LockKind::Write => other.iter().any(Option::is_some),
            };
            let owner = if who == 0 { ME } else { YOU };
            assert_eq!(table.conflict(owner, &lock).is_some(), clash);
            if !clash {
                table.set(owner, lock);
                bytes[who][range].fill((lock.kind != LockKind::Unlock).then_some(lock.kind));
            }
            assert_eq!(table.len(), runs(&bytes[0]) + runs(&bytes[1]), "neighbours that are alike are one range");
        }
    }

    fn runs(bytes: &[Option<LockKind>]) -> usize {
        let starts = |i: usize| bytes[i].is_some() && (i == 0 || bytes[i - 1] != bytes[i]);
        (0..bytes.len()).filter(|i| starts(*i)).count()
    }

    #[test]
    fn the_last_byte_of_all_is_no_overflow() {
        let mut table = Table::default();
        table.set(ME, spec(5, u64::MAX, LockKind::Write));
        table.set(ME, spec(10, u64::MAX, LockKind::Unlock));
        assert_eq!(table.conflict(YOU, &spec(0, u64::MAX, LockKind::Read)), Some(spec(5, 9, LockKind::Write)));
        table.set(ME, spec(0, u64::MAX, LockKind::Unlock));
        assert_eq!(table.len(), 0);
    }
}
