//! The numbers of operations, and which of them have no answer yet.
//!
//! Partitions keep answers until they are told that those have arrived. Each request says up to where all have, and each
//! heartbeat which have not beyond that: one operation that gets no answer for long keeps no other's (decision 58).

use std::collections::BTreeSet;

use braid_base::ids::PartitionId;
use braid_base::limits::OPEN_NUMBERS_MAX;

/// The numbers of one client.
#[derive(Default)]
pub(super) struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
    /// Those of operations that may stay open for long. Each goes to its partition only, so it is only there that no answer
    /// may be forgotten because of it.
    lasting: BTreeSet<(PartitionId, u64)>,
}

impl Numbers {
    /// The next one; `lasts`: its operation may stay open for long, and goes to this partition only.
    pub(super) fn begin(&mut self, lasts: Option<PartitionId>) -> u64 {
        self.last += 1;
        match lasts {
            Some(p) => self.lasting.insert((p, self.last)),
            None => self.open.insert(self.last),
        };
        self.last
    }

    /// Its operation was answered, or given up for good.
    pub(super) fn end(&mut self, seq: u64, lasts: Option<PartitionId>) {
        let was_open = match lasts {
            Some(p) => self.lasting.remove(&(p, seq)),
            None => self.open.remove(&seq),
        };
        assert!(was_open, "operation {seq} was given back twice");
    }

    /// All operations that go to `p` (`None`: to any partition) up to this one have ended.
    pub(super) fn done_upto(&self, p: Option<PartitionId>) -> u64 {
        let lasting = match p {
            Some(p) => self.lasting.range((p, 0)..=(p, u64::MAX)).next().map(|(_, seq)| *seq),
            None => self.lasting.iter().map(|(_, seq)| *seq).min(),
        };
        let first = self.open.first().copied().into_iter().chain(lasting).min();
        first.map_or(self.last, |first| first - 1)
    }

    /// Up to which number before `seq` all operations have ended that go to `p`, but some; and those.
    pub(super) fn done_but(&self, p: PartitionId, seq: u64) -> (u64, Vec<u64>) {
        let lasting = self.lasting.range((p, 0)..(p, seq)).map(|(_, seq)| *seq);
        let mut open: Vec<u64> = self.open.range(..seq).copied().chain(lasting).collect();
        open.sort_unstable();
        let upto = open.get(OPEN_NUMBERS_MAX).copied().unwrap_or(seq) - 1;
        open.truncate(OPEN_NUMBERS_MAX);
        (upto, open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(2);

    #[test]
    fn what_may_stay_open_for_long_keeps_answers_in_its_partition_only() {
        let mut numbers = Numbers::default();
        let upto = |numbers: &Numbers| [Some(1), Some(2), None].map(|p| numbers.done_upto(p.map(PartitionId)));
        assert_eq!([None, Some(P), None].map(|lasts| numbers.begin(lasts)), [1, 2, 3]);
        assert_eq!(upto(&numbers), [0, 0, 0]);
        numbers.end(1, None);
        assert_eq!(upto(&numbers), [2, 1, 1]);
        numbers.end(3, None);
        assert_eq!(upto(&numbers), [3, 1, 1]);
        assert_eq!(numbers.begin(Some(P)), 4);
        numbers.end(2, Some(P));
        assert_eq!(upto(&numbers), [4, 3, 3]);
        numbers.end(4, Some(P));
        assert_eq!(upto(&numbers), [4, 4, 4]);
    }

    #[test]
    fn those_without_an_answer_are_named() {
        let mut numbers = Numbers::default();
        for lasts in [None, Some(P), Some(PartitionId(3)), None, None] {
            numbers.begin(lasts);
        }
        numbers.end(4, None);
        assert_eq!((numbers.done_but(P, 5), numbers.done_but(P, 6)), ((4, vec![1, 2]), (5, vec![1, 2, 5])));
        assert_eq!(numbers.done_but(PartitionId(9), 6), (5, vec![1, 5]), "others lasting ones do not go there");
        (0..OPEN_NUMBERS_MAX).for_each(|_| _ = numbers.begin(Some(P)));
        let (upto, open) = numbers.done_but(P, 1 << 40);
        assert_eq!((open.len(), open.last()), (OPEN_NUMBERS_MAX, Some(&upto)), "as many as a message may have");
    }
}
