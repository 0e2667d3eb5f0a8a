//! Files are asked to move, many at a time, until they are where they should be.
//!
//! 1. A thread takes a file: one whose turn has come to be looked at again, else the next of the source, if not too many are
//!    under way, and the source has one now.
//! 2. It looks where the file is. What is where it should be is done.
//! 3. Else it asks, if that was a second ago, and the file is looked at again: soon at first, then each second.
//! 4. When nothing has moved for two minutes, what is still under way is given up. What the source does not want any more is
//!    left as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use braid_io::clock::mono_ms;
use serde::Serialize;

use crate::measure::size;
use crate::progress::Progress;
use crate::residence::{self, Goal};
use crate::tree::Trouble;

/// Files that are asked at a time.
const ASKED_MAX: usize = 64;
/// Files under way: many, so that small ones share objects.
const UNDER_WAY_MAX: usize = 16_384;
/// A file is asked again after so long at first, milliseconds, and twice as long each time: the request may be forgotten
/// where partitions move.
const AGAIN_MS: u64 = 1_000;
const AGAIN_MS_MAX: u64 = 16_000;
/// A file is looked at again after so long at first, milliseconds; twice as long each time, up to
/// [`LOOK_MS_MAX`], or a millisecond for each [`LOOKS_PER_MS`] files that are under way.
const LOOK_MS: u64 = 20;
const LOOK_MS_MAX: u64 = 160;
const LOOKS_PER_MS: usize = 8;
/// When nothing moved for so long, nothing will.
const STALL_MS: u64 = 120_000;
/// A source that had nothing is asked again after this, milliseconds.
const LATER_MS: u64 = 200;
/// Between two words about how far it is.
const WORDS_MS: u64 = 200;

/// A file, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub path: PathBuf,
    /// Bytes `(off, len)`; none: all.
    pub part: Option<(u64, u64)>,
    /// Bytes that may have to move, as far as that is known.
    pub bytes_max: u64,
    /// Which of its source it is, if that matters there.
    pub number: u64,
}

impl Piece {
    /// All of `path`, whatever it holds.
    pub fn whole(path: PathBuf) -> Self {
        Self { path, part: None, bytes_max: 0, number: 0 }
    }
}

/// What a source has.
pub enum Next {
    /// A piece.
    Piece(Piece),
    /// Something that cannot be dealt with.
    Trouble(Trouble),
    /// Nothing now; ask again.
    Later,
    /// Nothing any more.
    End,
}

/// Where pieces come from.
pub trait Source {
    /// The next one.
    fn next_piece(&mut self) -> Next;

    /// True if it does not matter any more where this one is.
    fn is_past(&self, _piece: &Piece) -> bool {
        false
    }

    /// This one was given up.
    fn failed(&mut self, _piece: &Piece) {}

    /// What is to be said besides of how far it is.
    fn words(&self) -> String {
        String::new()
    }
}

impl<I: Iterator<Item = Result<Piece, Trouble>>> Source for I {
    fn next_piece(&mut self) -> Next {
        match self.next() {
            Some(Ok(piece)) => Next::Piece(piece),
            Some(Err(trouble)) => Next::Trouble(trouble),
            None => Next::End,
        }
    }
}

/// How it ended.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Files, or parts of files, that are where they should be.
    pub files: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// What is not where it should be.
    pub failed: Vec<Trouble>,
}

/// What moves, and how much is asked before it is there.
pub struct Errand<'a> {
    /// Where to.
    pub goal: Goal,
    /// Hears of each piece that is done, and how many bytes of it moved.
    pub each: &'a (dyn Fn(&Path, u64) + Sync),
}

/// A piece under way.
struct UnderWay {
    piece: Piece,
    /// Bytes that were elsewhere when it was first looked at, and are now.
    bytes: Option<(u64, u64)>,
    asked_ms: Option<u64>,
    again_ms: u64,
    pause_ms: u64,
}

struct State<S> {
    source: S,
    /// It has nothing any more.
    is_dry: bool,
    /// When it is asked again, milliseconds.
    later_ms: u64,
    /// By when they are to be looked at, and a number.
    waiting: BTreeMap<(u64, u64), UnderWay>,
    next: u64,
    in_hand: usize,
    seen: u64,
    moved_ms: u64,
    said_ms: u64,
    ended: Ended,
}

/// Moves all pieces of `source`; in the order of the source, as far as they are asked.
pub fn run<S>(errand: &Errand<'_>, source: S) -> Ended
where
    S: Source + Send,
{
    let verb = if errand.goal == Goal::Flash { "fetching" } else { "releasing" };
    let progress = Progress::new(verb);
    let now = mono_ms();
    let state = Mutex::new(State::new(source, now));
    let changed = Condvar::new();
    let say = |words: &str| progress.say(&format!("{verb}: {words}"));
    thread::scope(|scope| {
        for _ in 0..ASKED_MAX {
            scope.spawn(|| work(errand, &state, &changed, &say));
        }
    });
    let mut ended = state.into_inner().expect("a thread that panics ends the scope").ended;
    ended.failed.sort_by(|a, b| a.path.cmp(&b.path));
    // Parts of one file fail together.
    ended.failed.dedup();
    ended
}

fn work<S>(errand: &Errand<'_>, state: &Mutex<State<S>>, changed: &Condvar, say: &dyn Fn(&str))
where
    S: Source,
{
    let mut held = lock(state);
    loop {
        let now = mono_ms();
        if let Some(mut under_way) = held.take(now) {
            drop(held);
            let looked = look(errand.goal, &mut under_way, now);
            held = lock(state);
            held.put(errand, under_way, looked);
            held.say(say);
            changed.notify_all();
            continue;
        }
        if held.is_over() {
            return;
        }
        held.give_up_if_stalled(errand.goal, now);
        let due = held.waiting.keys().next().map_or(LATER_MS, |(due, _)| due.saturating_sub(now));
        let wait = Duration::from_millis(due.clamp(1, LATER_MS));
        held = changed.wait_timeout(held, wait).expect("nothing panics while it holds the errands").0;
    }
}

fn lock<S>(state: &Mutex<State<S>>) -> MutexGuard<'_, State<S>> {
    state.lock().expect("nothing panics while it holds the errands")
}

/// Looks how many bytes are not where they should be, and asks if it is time to.
fn look(goal: Goal, under_way: &mut UnderWay, now: u64) -> Result<u64, String> {
    let Piece { path, part, bytes_max, .. } = &under_way.piece;
    let left = match part {
        Some(part) => u64::from(residence::is_far(path, *part)?) * bytes_max,
        None => {
            let found = residence::location(path)?;
            if goal == Goal::Flash { found.far_bytes() } else { found.flash_bytes() }
        }
    };
    if left > 0 && under_way.asked_ms.is_none_or(|asked| now.saturating_sub(asked) >= under_way.again_ms) {
        residence::ask(path, goal, *part)?;
        under_way.asked_ms = Some(now);
        under_way.again_ms = (under_way.again_ms * 2).min(AGAIN_MS_MAX);
    }
    Ok(left)
}

impl<S: Source> State<S> {
    fn new(source: S, now: u64) -> Self {
        let (waiting, ended) = Default::default();
        let (is_dry, later_ms, next, in_hand, seen) = (false, 0, 0, 0, 0);
        Self { source, is_dry, later_ms, waiting, next, in_hand, seen, moved_ms: now, said_ms: now, ended }
    }

    /// What to look at now.
    fn take(&mut self, now: u64) -> Option<UnderWay> {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let under_way = first.remove();
            if !self.source.is_past(&under_way.piece) {
                self.in_hand += 1;
                return Some(under_way);
            }
            (self.moved_ms, self.ended.files) = (now, self.ended.files + 1);
        }
        while !self.is_dry && now >= self.later_ms && self.waiting.len() + self.in_hand < UNDER_WAY_MAX {
            match self.source.next_piece() {
                Next::Piece(piece) => {
                    (self.in_hand, self.seen, self.moved_ms) = (self.in_hand + 1, self.seen + 1, now);
                    let (again_ms, pause_ms) = (AGAIN_MS / 2, LOOK_MS);
                    return Some(UnderWay { piece, bytes: None, asked_ms: None, again_ms, pause_ms });
                }
                Next::Trouble(trouble) => {
                    self.seen += 1;
                    self.ended.failed.push(trouble);
                }
                Next::Later => self.later_ms = now + LATER_MS,
                Next::End => self.is_dry = true,
            }
        }
        None
    }

    /// What came of looking.
    fn put(&mut self, errand: &Errand<'_>, mut under_way: UnderWay, looked: Result<u64, String>) {
        let now = mono_ms();
        self.in_hand -= 1;
        let left = match looked {
            Ok(left) => left,
            Err(reason) => {
                self.source.failed(&under_way.piece);
                self.ended.failed.push(Trouble::new(&under_way.piece.path, reason));
                return;
            }
        };
        let (first, before) = under_way.bytes.unwrap_or((left, left));
        under_way.bytes = Some((first, left));
        if left != before {
            (self.moved_ms, self.ended.bytes) = (now, self.ended.bytes + before.saturating_sub(left));
        }
        if left == 0 {
            (self.moved_ms, self.ended.files) = (now, self.ended.files + 1);
            (errand.each)(&under_way.piece.path, first);
            return;
        }
        let due = now + under_way.pause_ms;
        let longest = LOOK_MS_MAX.max((self.waiting.len() / LOOKS_PER_MS) as u64);
        under_way.pause_ms = (under_way.pause_ms * 2).min(longest);
        self.waiting.insert((due, self.next), under_way);
        self.next += 1;
    }

    fn is_over(&self) -> bool {
        self.is_dry && self.waiting.is_empty() && self.in_hand == 0
    }

    fn give_up_if_stalled(&mut self, goal: Goal, now: u64) {
        if now.saturating_sub(self.moved_ms) < STALL_MS {
            return;
        }
        for UnderWay { piece, bytes, .. } in std::mem::take(&mut self.waiting).into_values() {
            let left = size(bytes.map_or(0, |(_, left)| left));
            let place = if goal == Goal::Flash { "in objects only" } else { "on flash" };
            let reason = format!(
                "{left} of it are still {place}, and nothing moved for {} s: `braid fs tier` says whether the store answers, \
                 `braid fs` whether there is room, `braid status lost` what of it cannot be read",
                STALL_MS / 1_000
            );
            self.source.failed(&piece);
            self.ended.failed.push(Trouble::new(&piece.path, reason));
        }
    }

    /// Says how far it is, now and then.
    fn say(&mut self, say: &dyn Fn(&str)) {
        let now = mono_ms();
        if now.saturating_sub(self.said_ms) >= WORDS_MS {
            self.said_ms = now;
            let more = if self.is_dry { "" } else { " or more" };
            let (files, moved, words) = (self.ended.files, size(self.ended.bytes), self.source.words());
            say(&format!("{files} of {}{more} files, {moved} moved{words}", self.seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_MS, Errand, LATER_MS, Next, Piece, STALL_MS, Source, State, UNDER_WAY_MAX, run};
    use crate::residence::Goal;
    use crate::tree::Trouble;

    const ERRAND: Errand<'static> = Errand { goal: Goal::Flash, each: &|_, _| {} };

    fn state(count: u64) -> State<impl Source> {
        let piece = |number: u64| Piece { number, ..Piece::whole(format!("p{number}").into()) };
        State::new((0..count).map(move |number| Ok::<_, Trouble>(piece(number))), 0)
    }

    #[test]
    fn each_is_looked_at_until_it_is_there() {
        let mut state = state(3);
        let [first, second, third] = [0; 3].map(|_| state.take(0).expect("one of three"));
        assert!(state.take(0).is_none() && !state.is_over(), "three are in hand");
        state.put(&ERRAND, first, Ok(0));
        state.put(&ERRAND, second, Ok(50));
        state.put(&ERRAND, third, Err("gone".to_owned()));
        assert!(!state.is_over(), "one waits");
        let again = state.take(u64::MAX).expect("its turn has come");
        assert_eq!(again.bytes, Some((50, 50)));
        state.put(&ERRAND, again, Ok(0));
        assert!(state.take(u64::MAX).is_none() && state.is_over());
        assert_eq!((state.ended.files, state.ended.bytes, state.ended.failed.len()), (2, 50, 1));
        const { assert!(UNDER_WAY_MAX > 1 && AGAIN_MS < STALL_MS) };
    }

    /// Has a piece only now and then, and loses interest in it.
    struct Fickle {
        turns: Vec<Next>,
        past: bool,
        failed: u64,
    }

    impl Source for Fickle {
        fn next_piece(&mut self) -> Next {
            self.turns.pop().unwrap_or(Next::End)
        }

        fn is_past(&self, _: &Piece) -> bool {
            self.past
        }

        fn failed(&mut self, _: &Piece) {
            self.failed += 1;
        }
    }

    #[test]
    fn a_source_that_has_nothing_now_is_asked_again() {
        let piece = || Next::Piece(Piece::whole("p".into()));
        let mut state = State::new(Fickle { turns: vec![piece(), Next::Later, piece()], past: false, failed: 0 }, 0);
        let first = state.take(0).expect("there is one");
        assert!(state.take(0).is_none() && state.take(LATER_MS - 1).is_none() && !state.is_over());
        let second = state.take(LATER_MS).expect("now there is one");
        state.put(&ERRAND, first, Err("gone".to_owned()));
        assert_eq!(state.source.failed, 1);
        state.put(&ERRAND, second, Ok(7));
        state.source.past = true;
        assert!(state.take(u64::MAX).is_none() && state.is_over(), "nobody wants it any more: it is not looked at");
        assert_eq!((state.ended.files, state.ended.bytes), (1, 0));
    }

    #[test]
    fn what_does_not_move_is_given_up_with_a_reason() {
        let mut state = state(1);
        let first = state.take(0).expect("the first");
        state.put(&ERRAND, first, Ok(7));
        let now = state.moved_ms;
        state.give_up_if_stalled(Goal::Flash, now + STALL_MS - 1);
        assert!(state.ended.failed.is_empty());
        state.give_up_if_stalled(Goal::Flash, now + STALL_MS);
        assert!(state.ended.failed[0].reason.starts_with("7 B of it are still in objects only"));
        assert!(state.take(0).is_none() && state.is_over());
    }

    #[test]
    fn elsewhere_all_fail() {
        let dir = tempfile::tempdir().expect("dir");
        let pieces = (0..200).map(|n| Ok(Piece::whole(dir.path().join(n.to_string()))));
        let ended = run(&ERRAND, pieces);
        assert_eq!((ended.files, ended.failed.len()), (0, 200));
    }
}
