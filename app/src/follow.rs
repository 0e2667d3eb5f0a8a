//! Stays just ahead of a job that reads what a plan names.
//!
//! 1. Lines of the plan become pieces that are not too large ([`crate::plan`]).
//! 2. Pieces are handed out to be fetched as long as those that the job has not read yet are less than so many bytes.
//! 3. A few times a second it is looked which of their files was read last ([`Follow::tend`]): there the job is, and all that
//!    stands before it in the plan is behind it. Not every piece need be seen: one that the kernel has in its page cache is
//!    behind the job when a later one is read.
//! 4. What is behind it need not come any more, and leaves flash after some seconds, if that is wanted.
//! 5. A file that is gone takes no room of those bytes any more: nobody waits for a job whose mount was taken away.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use braid_base::limits::CHUNK;
use braid_io::clock::mono_ms;

use crate::errands::{Next, Piece, Source};
use crate::tree::Trouble;

/// How often it is looked where the job is.
const LOOK: Duration = Duration::from_millis(200);
/// Pieces looked at one after the other, from where the job was; behind them fewer and fewer.
const LOOKS: usize = 64;
/// Pieces that are handed out and were not read, at most.
const GIVEN_MAX: usize = 65_536;
/// Pieces looked at that are not handed out yet: the job may be faster than what it waits for.
const BEYOND: usize = 256;
/// What is behind the job leaves flash so much later, milliseconds: it may read in several places.
const DROP_MS: u64 = 5_000;
/// When all has come, and a job whose reads are waited for reads nothing for so long, milliseconds, it is taken to be done: it
/// may have found the end in the page cache, or have died.
const SILENT_MS: u64 = 300_000;
/// Two reads count as one within this, milliseconds: when one was is known that exactly.
const SAME_MS: u64 = 2;

/// The last read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When, by the clock that only goes forward, milliseconds.
    pub at_ms: u64,
    /// The byte behind it, if that is known.
    pub end: Option<u64>,
}

/// What becomes of pieces: how they were read, and how they are told to leave flash.
pub trait Ground: Sync {
    /// The last read of a file since the plan began.
    fn last_read(&self, path: &Path) -> Option<Read>;

    /// True if a file that was there cannot be read by anybody any more.
    fn is_gone(&self, path: &Path) -> bool;

    /// These bytes of it, or all, are not needed on flash any more.
    fn release(&self, path: &Path, part: Option<(u64, u64)>);
}

/// A plan, and how far the job is in it.
pub struct Follow<G> {
    ground: G,
    ahead: u64,
    drops: bool,
    plan: Mutex<Plan>,
}

struct Plan {
    lines: Box<dyn Iterator<Item = Result<Piece, Trouble>> + Send>,
    is_read: bool,
    troubles: VecDeque<Trouble>,
    /// What the job has not read, in order; the first `given` are handed out.
    queue: VecDeque<Ahead>,
    given: usize,
    given_bytes: u64,
    /// Number of the first one of the queue.
    first: u64,
    /// The read that told where the job is, and its file.
    seen: Read,
    seen_path: PathBuf,
    /// What it has read, and when that is to leave, milliseconds.
    behind: VecDeque<(u64, Piece)>,
}

struct Ahead {
    piece: Piece,
    /// It was given up, or its file is gone: it does not count any more.
    failed: bool,
}

impl Piece {
    /// Its bytes, as far as the file had them.
    fn range(&self) -> (u64, u64) {
        let from = self.part.map_or(0, |(off, _)| off);
        (from, from + self.bytes_max)
    }

    /// True if a read that ended at `end` was of it.
    fn holds(&self, end: Option<u64>) -> bool {
        let (from, to) = self.range();
        end.is_none_or(|end| from < end && end <= to)
    }

    /// The chunks of its file that it touches, first and last.
    fn chunks(&self) -> (u64, u64) {
        let (from, to) = self.range();
        (from / CHUNK, to.saturating_sub(1).max(from) / CHUNK)
    }
}

impl<G: Ground> Follow<G> {
    /// The pieces of `lines`, of which at most `ahead` bytes are handed out that the job has not read (and one piece); with
    /// `drops`, what it has read leaves flash.
    pub fn new(
        ground: G,
        lines: impl Iterator<Item = Result<Piece, Trouble>> + Send + 'static,
        ahead: u64,
        drops: bool,
    ) -> Self {
        let (troubles, queue, behind) = Default::default();
        let (lines, is_read, given, given_bytes, first) = (Box::new(lines), false, 0, 0, 0);
        let (seen, seen_path) = (Read { at_ms: 0, end: None }, PathBuf::new());
        let plan = Plan { lines, is_read, troubles, queue, given, given_bytes, first, seen, seen_path, behind };
        Self { ground, ahead, drops, plan: Mutex::new(plan) }
    }

    /// Looks where the job is until all was handed out and is `over`; if what it has read is to leave, until it has read all,
    /// or reads nothing for long.
    pub fn tend(&self, over: &AtomicBool) {
        let mut since_ms = None;
        loop {
            self.look();
            self.skip_gone();
            self.drop_due(mono_ms());
            if over.load(Ordering::Acquire) && self.is_done(*since_ms.get_or_insert_with(mono_ms), mono_ms()) {
                return;
            }
            thread::park_timeout(LOOK);
        }
    }

    /// True if nothing is to be done any more for what has come, all of it since `since_ms`.
    fn is_done(&self, since_ms: u64, now_ms: u64) -> bool {
        let plan = self.plan();
        !self.drops || plan.is_through() || now_ms >= plan.seen.at_ms.max(since_ms) + SILENT_MS
    }

    /// Goes on to where the job is now.
    fn look(&self) {
        loop {
            let mut reads: Vec<(Read, PathBuf)> = Vec::new();
            let probes = self.plan().probes();
            for path in probes {
                if let Some(read) = self.ground.last_read(&path) {
                    reads.push((read, path));
                }
            }
            // The newest first.
            reads.sort_by_key(|(read, _)| Reverse(read.at_ms));
            if !self.plan().advance(&reads, self.drops.then(mono_ms)) {
                return;
            }
        }
    }

    /// What the job cannot come to any more is not waited for.
    fn skip_gone(&self) {
        loop {
            let first = self.plan().waited_for().cloned();
            let Some(piece) = first.filter(|piece| self.ground.is_gone(&piece.path)) else { return };
            self.plan().give_up(piece.number);
        }
    }

    /// What is behind the job for long enough leaves.
    fn drop_due(&self, now_ms: u64) {
        loop {
            let mut plan = self.plan();
            if plan.behind.front().is_none_or(|(due_ms, _)| now_ms < *due_ms) {
                return;
            }
            let Some((_, piece)) = plan.behind.pop_front() else { return };
            let parts = plan.unshared(&piece);
            drop(plan);
            parts.into_iter().for_each(|part| self.ground.release(&piece.path, part));
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("nothing panics while it holds the plan")
    }
}

impl<G: Ground> Source for &Follow<G> {
    fn next_piece(&mut self) -> Next {
        let mut plan = self.plan();
        plan.fill();
        if let Some(trouble) = plan.troubles.pop_front() {
            return Next::Trouble(trouble);
        }
        if plan.given == plan.queue.len() {
            return Next::End;
        }
        if plan.given > 0 && (plan.given_bytes >= self.ahead || plan.given >= GIVEN_MAX) {
            return Next::Later;
        }
        let piece = plan.queue[plan.given].piece.clone();
        plan.given += 1;
        plan.given_bytes += piece.bytes_max;
        Next::Piece(piece)
    }

    fn is_past(&self, piece: &Piece) -> bool {
        piece.number < self.plan().first
    }

    fn failed(&mut self, piece: &Piece) {
        self.plan().give_up(piece.number);
    }

    fn words(&self) -> String {
        let plan = self.plan();
        let waits = plan.given_bytes >= self.ahead && !plan.is_read;
        let at = plan.queue.front().filter(|_| waits).map(|ahead| ahead.piece.path.display().to_string());
        at.map_or(String::new(), |at| format!(", waits until {at} is read"))
    }
}

impl Plan {
    /// Reads on in the plan.
    fn fill(&mut self) {
        while !self.is_read && self.queue.len() < self.given + BEYOND && self.troubles.len() < BEYOND {
            match self.lines.next() {
                Some(Ok(piece)) => {
                    let number = self.first + self.queue.len() as u64;
                    self.queue.push_back(Ahead { piece: Piece { number, ..piece }, failed: false });
                }
                Some(Err(trouble)) => self.troubles.push_back(trouble),
                None => self.is_read = true,
            }
        }
    }

    /// True if the job has read all of it, and nothing is to leave any more.
    fn is_through(&self) -> bool {
        self.is_read && self.queue.is_empty() && self.behind.is_empty()
    }

    /// The files to look at: those that come next, some behind, and fewer the further they are.
    fn probes(&self) -> BTreeSet<PathBuf> {
        let far = (0..usize::BITS).map(|n| LOOKS << n.min(24)).take_while(|at| *at < self.queue.len());
        let beyond = (self.given..self.queue.len()).step_by(8);
        let at = (0..LOOKS.min(self.queue.len())).chain(far).chain(beyond);
        at.filter_map(|at| self.queue.get(at)).map(|ahead| ahead.piece.path.clone()).collect()
    }

    /// Takes the newest of `reads` (the newest first) that is of the plan; true if the job is further than it was. What is
    /// behind it is to leave, if `now_ms` is given.
    fn advance(&mut self, reads: &[(Read, PathBuf)], now_ms: Option<u64>) -> bool {
        for (read, path) in reads {
            if !self.is_new(read, path) {
                continue;
            }
            let is_it = |ahead: &Ahead| ahead.piece.path == *path && ahead.piece.holds(read.end);
            let Some(at) = self.queue.iter().position(is_it) else { continue };
            (self.seen, self.seen_path) = (*read, path.clone());
            let ends = read.end.is_some_and(|end| end >= self.queue[at].piece.range().1);
            let past = at + usize::from(ends);
            (0..past).for_each(|_| self.pass(now_ms));
            return past > 0;
        }
        false
    }

    /// True if `read` came after the one that told where the job is. Of the same file it may have come right after it: a
    /// job is seen in the middle of a file, and at its end a moment later.
    fn is_new(&self, read: &Read, path: &Path) -> bool {
        let goes_on = *path == *self.seen_path && read.end > self.seen.end;
        if goes_on { read.at_ms + SAME_MS >= self.seen.at_ms } else { read.at_ms > self.seen.at_ms + SAME_MS }
    }

    /// What of that which is handed out the job is to read first.
    fn waited_for(&self) -> Option<&Piece> {
        self.queue.iter().take(self.given).find(|ahead| !ahead.failed).map(|ahead| &ahead.piece)
    }

    /// The job is not waited for at piece `number`, which was handed out; it may be further by now.
    fn give_up(&mut self, number: u64) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let given = at.filter(|at| *at < self.given).and_then(|at| self.queue.get_mut(at));
        let Some(Ahead { piece, failed }) = given else { return };
        if !std::mem::replace(failed, true) {
            self.given_bytes = self.given_bytes.saturating_sub(piece.bytes_max);
        }
    }

    /// The job has read the first piece.
    fn pass(&mut self, now_ms: Option<u64>) {
        let Some(Ahead { piece, failed }) = self.queue.pop_front() else { return };
        self.first += 1;
        if self.given > 0 {
            self.given -= 1;
            self.given_bytes = self.given_bytes.saturating_sub(if failed { 0 } else { piece.bytes_max });
        }
        if let Some(now_ms) = now_ms {
            self.behind.push_back((now_ms + DROP_MS, piece));
        }
    }

    /// What of `piece` no other one needs that is known, in whole chunks: that is what moves.
    fn unshared(&self, piece: &Piece) -> Vec<Option<(u64, u64)>> {
        let ahead = self.queue.iter().map(|ahead| &ahead.piece);
        let others: Vec<(u64, u64)> = ahead
            .chain(self.behind.iter().map(|(_, piece)| piece))
            .filter(|other| other.path == piece.path)
            .map(Piece::chunks)
            .collect();
        if others.is_empty() && piece.part.is_none() {
            return vec![None];
        }
        let (first, last) = piece.chunks();
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for chunk in (first..=last).filter(|chunk| !others.iter().any(|(from, to)| (from..=to).contains(&chunk))) {
            match parts.last_mut() {
                Some((_, to)) if *to == chunk * CHUNK => *to += CHUNK,
                _ => parts.push((chunk * CHUNK, (chunk + 1) * CHUNK)),
            }
        }
        parts.into_iter().map(|(from, to)| Some((from, to - from))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use braid_base::limits::CHUNK;

    use super::{Follow, Ground, LOOKS, Read, SILENT_MS};
    use crate::errands::{Next, Piece, Source};
    use crate::tree::Trouble;

    /// What was read, and what was told to leave.
    #[derive(Default)]
    struct Job {
        reads: Mutex<BTreeMap<PathBuf, Read>>,
        left: Mutex<Vec<Left>>,
        gone: Mutex<Vec<PathBuf>>,
    }

    /// A file, and what of it if not all.
    type Left = (PathBuf, Option<(u64, u64)>);

    impl Ground for &Job {
        fn last_read(&self, path: &Path) -> Option<Read> {
            self.reads.lock().expect("alone").get(path).copied()
        }

        fn is_gone(&self, path: &Path) -> bool {
            self.gone.lock().expect("alone").iter().any(|gone| gone == path)
        }

        fn release(&self, path: &Path, part: Option<(u64, u64)>) {
            self.left.lock().expect("alone").push((path.to_owned(), part));
        }
    }

    impl Job {
        fn reads(&self, path: &str, at_ms: u64, end: Option<u64>) {
            self.reads.lock().expect("alone").insert(path.into(), Read { at_ms, end });
        }
    }

    fn part(path: &str, off: u64, len: u64) -> Result<Piece, Trouble> {
        Ok(Piece { part: Some((off, len)), bytes_max: len, ..Piece::whole(path.into()) })
    }

    fn whole(path: String, len: u64) -> Result<Piece, Trouble> {
        Ok(Piece { bytes_max: len, ..Piece::whole(path.into()) })
    }

    /// Those that are handed out now.
    fn given<G: Ground>(mut follow: &Follow<G>) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Next::Piece(piece) = follow.next_piece() {
            numbers.push(piece.number);
        }
        numbers
    }

    #[test]
    fn only_so_much_is_handed_out_that_was_not_read() {
        let job = Job::default();
        let follow = Follow::new(&job, (0..10).map(|n| part("a", n * 10, 10)), 30, false);
        assert_eq!(given(&follow), [0, 1, 2], "thirty bytes");
        follow.look();
        assert!(given(&follow).is_empty(), "nobody has read anything: it waits");
        job.reads("a", 10, Some(15));
        follow.look();
        assert_eq!(given(&follow), [3], "the job is in the second piece");
        job.reads("a", 20, Some(20));
        follow.look();
        assert_eq!(given(&follow), [4], "it has read all of that");
        follow.look();
        assert!(given(&follow).is_empty(), "the same read counts once");
        job.reads("a", 30, Some(95));
        follow.look();
        assert_eq!(given(&follow), [9], "it skipped some: they need not come");
        let past = Piece { number: 5, ..Piece::whole("a".into()) };
        assert!((&follow).is_past(&past) && matches!((&mut &follow).next_piece(), Next::End));
    }

    #[test]
    fn a_job_that_is_seen_in_the_middle_of_a_file_is_seen_at_its_end_a_moment_later() {
        let job = Job::default();
        let follow = Follow::new(&job, (0..4).map(|n| part("a", n * 10, 10)), 20, false);
        assert_eq!(given(&follow), [0, 1]);
        job.reads("a", 10, Some(15));
        follow.look();
        job.reads("a", 11, Some(20));
        follow.look();
        assert_eq!(given(&follow), [2, 3]);
        // When it was is known within a moment only.
        job.reads("a", 10, Some(40));
        follow.look();
        assert!(follow.plan().queue.is_empty(), "it has read all");
    }

    #[test]
    fn what_was_read_before_is_not_taken_for_what_is_read_again_later() {
        let job = Job::default();
        let plan = [part("a", 0, 10), part("b", 0, 10), part("a", 0, 10), part("c", 0, 10)];
        let follow = Follow::new(&job, plan.into_iter(), 10, false);
        assert_eq!(given(&follow), [0]);
        job.reads("a", 10, Some(10));
        follow.look();
        assert_eq!(given(&follow), [1]);
        job.reads("b", 20, Some(5));
        follow.look();
        assert!(given(&follow).is_empty(), "it is in b: that a was read before says nothing of the third line");
        job.reads("a", 30, Some(10));
        follow.look();
        assert_eq!(given(&follow), [3]);
    }

    #[test]
    fn a_job_of_many_small_files_is_found_wherever_it_is() {
        let job = Job::default();
        let count = 20_000;
        let follow = Follow::new(&job, (0..count).map(|n| whole(format!("{n:05}"), 1)), 9_000, false);
        assert_eq!(given(&follow).len(), 9_000);
        // On another machine: only access times tell.
        let at = 7_777;
        (0..=at).for_each(|n| job.reads(&format!("{n:05}"), 10 * (n + 1), None));
        follow.look();
        let first = follow.plan().first;
        assert!(first <= at && first + LOOKS as u64 > at, "{first}");
        assert_eq!(given(&follow).len() as u64, first);
    }

    #[test]
    fn what_fails_holds_up_nothing() {
        let job = Job::default();
        let trouble = Err(Trouble::new(Path::new("x"), "gone"));
        let plan = [part("a", 0, 10), trouble, part("b", 0, 10)];
        let follow = Follow::new(&job, plan.into_iter(), 10, false);
        assert!(matches!((&mut &follow).next_piece(), Next::Trouble(_)));
        let Next::Piece(first) = (&mut &follow).next_piece() else { panic!("the first") };
        assert!(matches!((&mut &follow).next_piece(), Next::Later));
        (&mut &follow).failed(&first);
        assert_eq!(given(&follow), [1]);
    }

    #[test]
    fn a_job_that_cannot_come_to_a_file_any_more_is_not_waited_for() {
        let job = Job::default();
        let plan = [part("a", 0, 10), part("a", 10, 10), part("b", 0, 10), part("c", 0, 10)];
        let follow = Follow::new(&job, plan.into_iter(), 30, false);
        assert_eq!(given(&follow), [0, 1, 2]);
        follow.skip_gone();
        assert!(given(&follow).is_empty(), "a is waited for");
        job.gone.lock().expect("alone").extend(["a".into(), "c".into()]);
        follow.skip_gone();
        assert_eq!(given(&follow), [3], "that it did not come is told to who fetches it");
        let of_a = |number| Piece { number, ..Piece::whole("a".into()) };
        assert!(!(&follow).is_past(&of_a(0)), "nobody has read it");
        (&mut &follow).failed(&of_a(1));
        assert_eq!(follow.plan().given_bytes, 20, "b and c");
        job.reads("b", 10, Some(5));
        follow.look();
        follow.skip_gone();
        assert_eq!(follow.plan().given_bytes, 20, "b is waited for, and what comes behind it with it");
        job.gone.lock().expect("alone").push("b".into());
        follow.skip_gone();
        assert_eq!(follow.plan().given_bytes, 0);
        assert!(matches!((&mut &follow).next_piece(), Next::End));
    }

    #[test]
    fn what_was_read_leaves_but_what_is_needed_again_stays() {
        let job = Job::default();
        let plan = [
            part("a", 0, 3 * CHUNK / 2),
            part("a", 3 * CHUNK / 2, CHUNK),
            whole("b".to_owned(), 5),
            part("a", 0, 10),
            whole("c".to_owned(), 5),
        ];
        let follow = Follow::new(&job, plan.into_iter(), u64::MAX, true);
        given(&follow);
        job.reads("b", 10, Some(5));
        follow.look();
        follow.drop_due(0);
        assert!(job.left.lock().expect("alone").is_empty(), "not at once");
        follow.drop_due(u64::MAX);
        let left = std::mem::take(&mut *job.left.lock().expect("alone"));
        // The first chunk of a is read once more, the second is shared by two pieces that both are behind.
        assert_eq!(left, [("a".into(), Some((CHUNK, 2 * CHUNK))), ("b".into(), None)]);
        assert!(!follow.is_done(5, SILENT_MS + 9), "it has just read something");
        assert!(follow.is_done(5, SILENT_MS + 10) && !follow.is_done(11, SILENT_MS + 10), "the rest leaves by its age");
        job.reads("c", 20, Some(5));
        follow.look();
        follow.drop_due(u64::MAX);
        assert_eq!(job.left.lock().expect("alone").len(), 2);
        assert!(follow.is_done(0, 0));
    }
}
