//! # braid-linear: is a history of concurrent calls on files linearizable
//!
//! Duty: keeps what clients asked and were told, with begin and end of each call, and searches for an order, each call
//! taking effect at one moment between its begin and its end, that explains all answers.
//!
//! Door: [`History`], [`check`]; what can be asked of an object and how it changes: [`names`], [`content`], [`locks`].
//!
//! Never: asks anybody anything; reads a clock (times are for the words of an error only).
//!
//! Flow: [`History::begin`], the call, [`History::end`]; [`check`] when all is told. Users are the simulator, which knows
//! of deaths and lost sessions, and the programs of `bench` on real mounts.
//!
//! 1. A history is kept for each object (P-compositionality: if each object is linearizable, all together are). All
//!    shared names are one object, since renames join them; the content of each file is one, its lock is another.
//! 2. [`check`] goes through the begins and ends in order and keeps every state that the object may be in, with the
//!    calls under way that took effect in it. At the end of a call the states stay in which it took effect. None is
//!    left: no order explains the answers (Wing and Gong's search, with Lowe's memory of what was tried).
//! 3. A call without an end, of a killed client or with an answer that leaves its outcome open, takes effect at any
//!    later moment or never. One with an end and without an answer takes effect between its begin and its end, or never.
//!
//! What is checked is what `docs/semantics.md` says under Visibility. Left out, since it is weaker there: bytes that
//! were held back by a client that died or lost its session (the history of the file ends where the first of them was
//! written, [`History::cut`]), listings of directories, link counts, times. A client without a session takes itself
//! for the only one: it works on shared names, which it does not remember, but not on shared files and their locks.
//! Who dies or loses its session may lose its locks at any moment since ([`locks::Call::Lose`]); who waits for a lock
//! may have it, and give it back, before it is told that it has it; who is told that another one has it may have had it
//! in a term that ended meanwhile ([`locks::refused_elsewhere`]).
//!
//! Tests: `tests.rs`: histories by hand, right and wrong; random ones of a model that does everything in some order.

// Fields of calls and answers say nothing that their variants do not.
#![allow(missing_docs)]

pub mod content;
pub mod locks;
pub mod names;

use std::collections::BTreeSet;
use std::fmt;

/// Words of the house that calls on names use.
pub use braid_base::{ids::Ino, msg::fs::RenameMode};

/// States that are kept at most: more say that the history was made too wide to be judged.
const STATES_MAX: usize = 1 << 17;
/// A history that is wrong is shown with at least so many changes before.
const CHANGES_SHOWN: usize = 2;

/// A state of an object.
pub trait State: Clone + Ord + fmt::Debug {
    /// What clients ask.
    type Call: Clone + fmt::Debug + Send;
    /// What they are told.
    type Answer: Clone + fmt::Debug + Send;

    /// The state after `call`; `None`: it cannot be answered so in this state. Without an answer: after whatever the
    /// call would do.
    fn step(&self, call: &Self::Call, answer: Option<&Self::Answer>) -> Option<Self>;

    /// Another state that may be after it, if what was answered fits more than one.
    fn else_step(&self, _: &Self::Call, _: Option<&Self::Answer>) -> Option<Self> {
        None
    }

    /// True if a call that was answered so changes nothing in any state; without an answer: whatever the answer.
    fn looks(call: &Self::Call, answer: Option<&Self::Answer>) -> bool;
}

/// A call and its answer.
#[derive(Clone, Debug)]
pub struct Entry<S: State> {
    /// The client.
    pub who: u64,
    /// What it asked.
    pub call: S::Call,
    /// What it was told, if the outcome is known.
    pub answer: Option<S::Answer>,
    /// Begin and end, among all begins and ends of the history.
    order: (u64, Option<u64>),
    /// Begin and end, microseconds.
    us: (u64, Option<u64>),
}

impl<S: State> Entry<S> {
    /// True if both were under way at some moment.
    fn overlaps(&self, other: &Self) -> bool {
        let ends_before = |a: &Self, b: &Self| a.order.1.is_some_and(|end| end < b.order.0);
        !ends_before(self, other) && !ends_before(other, self)
    }
}

/// The calls on one object.
#[derive(Clone, Debug)]
pub struct History<S: State> {
    entries: Vec<Entry<S>>,
    next: u64,
}

impl<S: State> Default for History<S> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: 0 }
    }
}

impl<S: State> History<S> {
    /// Client `who` begins `call`; the number of the call.
    pub fn begin(&mut self, who: u64, call: S::Call, now_us: u64) -> usize {
        let order = (self.tick(), None);
        self.entries.push(Entry { who, call, answer: None, order, us: (now_us, None) });
        self.entries.len() - 1
    }

    /// The call was answered.
    pub fn end(&mut self, number: usize, answer: S::Answer, now_us: u64) {
        let order = self.tick();
        let entry = &mut self.entries[number];
        (entry.answer, entry.order.1, entry.us.1) = (Some(answer), Some(order), Some(now_us));
    }

    /// `call` of `who` may take effect at any moment after call `number` began, or never.
    pub fn perhaps_since(&mut self, number: usize, who: u64, call: S::Call) {
        let (order, us) = (self.entries[number].order.0, self.entries[number].us.0);
        self.entries.push(Entry { who, call, answer: None, order: (order, None), us: (us, None) });
    }

    /// `call` of `who` may take effect at any moment from the begin of call `number` until now, or never.
    pub fn meanwhile(&mut self, number: usize, who: u64, call: S::Call, now_us: u64) {
        let (first, us) = (self.entries[number].order.0, self.entries[number].us.0);
        let order = (first, Some(self.tick()));
        self.entries.push(Entry { who, call, answer: None, order, us: (us, Some(now_us)) });
    }

    /// `call` of `who` may have taken effect at any moment while call `number` was under way, or never.
    pub fn during(&mut self, number: usize, who: u64, call: S::Call) {
        let Entry { order, us, .. } = &self.entries[number];
        self.entries.push(Entry { who, call, answer: None, order: *order, us: *us });
    }

    /// Nothing is said of what happened after call `number` began. What was under way then has an open outcome.
    pub fn cut(&mut self, number: usize) {
        let last = self.entries[number].order.0;
        self.entries.retain(|entry| entry.order.0 < last);
        for entry in &mut self.entries {
            if entry.order.1.is_some_and(|end| end > last) {
                (entry.answer, entry.order.1, entry.us.1) = (None, None, None);
            }
        }
    }

    /// All calls.
    pub fn entries(&self) -> &[Entry<S>] {
        &self.entries
    }

    /// All calls in the order of their begins, a line each, for people.
    pub fn lines(&self) -> String {
        self.entries.iter().map(|entry| format!("{}\n", Line(entry))).collect()
    }

    /// Changes of which it is not known whether they took effect.
    pub fn open(&self) -> usize {
        let is_open = |entry: &&Entry<S>| entry.answer.is_none() && entry.order.1.is_none();
        self.entries.iter().filter(is_open).filter(|entry| !S::looks(&entry.call, None)).count()
    }

    /// True if some call overlaps a change by another client.
    pub fn overlaps(&self) -> bool {
        let changes = |entry: &Entry<S>| !S::looks(&entry.call, entry.answer.as_ref());
        let ended: Vec<_> = self.entries.iter().filter(|entry| entry.order.1.is_some()).collect();
        ended.iter().enumerate().any(|(at, a)| {
            ended[at + 1..].iter().any(|b| a.who != b.who && (changes(a) || changes(b)) && a.overlaps(b))
        })
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// A state that the object may be in, and the calls under way that took effect in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Guess<S> {
    state: S,
    done: BTreeSet<usize>,
}

/// Where a search ended.
enum Outcome<S> {
    Explained,
    /// No order explains the answer of this call. `cuts`: the moments before at which only one state was left.
    Broken {
        call: usize,
        cuts: Vec<Cut<S>>,
    },
    TooWide {
        call: usize,
    },
}

/// A moment of which all is known: the state, and the calls under way that had no effect yet.
struct Cut<S> {
    state: S,
    under_way: BTreeSet<usize>,
    order: u64,
}

/// Checks that some order of the calls on an object that is in state `first` explains all answers.
///
/// Errors: the words show the fewest calls found that no order explains.
pub fn check<S: State>(first: &S, history: &History<S>) -> Result<(), String> {
    let all: Vec<usize> = (0..history.entries.len()).collect();
    let (call, cuts) = match search(first, &history.entries, &all) {
        Outcome::Explained => return Ok(()),
        Outcome::TooWide { call } => {
            return Err(format!(
                "more than {STATES_MAX} states explain the calls up to {:?}: too many are open, make the history shorter",
                history.entries[call]
            ));
        }
        Outcome::Broken { call, cuts } => (call, cuts),
    };
    let end = history.entries[call].order.1.unwrap_or(u64::MAX);
    let since = |cut: &Cut<S>| -> Vec<usize> {
        let after = |at: &usize| cut.under_way.contains(at) || history.entries[*at].order.0 > cut.order;
        all.iter().copied().filter(after).collect()
    };
    // The newest that shows enough to see why.
    let changes = |at: &&usize| {
        let entry = &history.entries[**at];
        entry.order.1.is_some() && entry.order.0 < end && !S::looks(&entry.call, entry.answer.as_ref())
    };
    let cut = cuts.iter().rev().find(|cut| since(cut).iter().filter(changes).count() >= CHANGES_SHOWN);
    let (state, mut kept) = cut.map_or((first, all.clone()), |cut| (&cut.state, since(cut)));
    kept.retain(|at| history.entries[*at].order.0 < end);
    let broken = |kept: &[usize]| matches!(search(state, &history.entries, kept), Outcome::Broken { .. });
    // What is right with a look is right without it; without a change it might not be.
    let looks = |entry: &Entry<S>| S::looks(&entry.call, entry.answer.as_ref());
    for at in kept.clone() {
        let without: Vec<usize> = kept.iter().copied().filter(|other| *other != at).collect();
        if looks(&history.entries[at]) && broken(&without) {
            kept = without;
        }
    }
    let calls: String = kept.iter().map(|at| format!("\n    {}", Line(&history.entries[*at]))).collect();
    Err(format!("no order of these calls explains their answers:\n    at first {state:?}{calls}"))
}

/// One call, for people.
struct Line<'a, S: State>(&'a Entry<S>);

impl<S: State> fmt::Display for Line<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { who, call, answer, us, .. } = self.0;
        write!(f, "{:>12} to ", us.0)?;
        match us.1 {
            Some(end) => write!(f, "{end:>12} us")?,
            None => write!(f, "{:>12}   ", "?")?,
        }
        write!(f, ", client {who}: {call:?} -> ")?;
        match answer {
            Some(answer) => write!(f, "{answer:?}"),
            None => write!(f, "?"),
        }
    }
}

fn search<S: State>(first: &S, entries: &[Entry<S>], of: &[usize]) -> Outcome<S> {
    let counts = |at: &usize| entries[*at].answer.is_some() || !S::looks(&entries[*at].call, None);
    let of: Vec<usize> = of.iter().copied().filter(counts).collect();
    // Each begin and end, in order; false: a begin.
    let mut moments: Vec<(u64, bool, usize)> = of.iter().map(|at| (entries[*at].order.0, false, *at)).collect();
    moments.extend(of.iter().filter_map(|at| Some((entries[*at].order.1?, true, *at))));
    moments.sort_unstable();
    let mut guesses = BTreeSet::from([Guess { state: first.clone(), done: BTreeSet::new() }]);
    let (mut under_way, mut cuts) = (BTreeSet::new(), Vec::new());
    for (order, ends, at) in moments {
        if !ends {
            under_way.insert(at);
            continue;
        }
        let Some(after) = close(entries, &guesses, &under_way, at) else { return Outcome::TooWide { call: at } };
        if after.is_empty() {
            return Outcome::Broken { call: at, cuts };
        }
        under_way.remove(&at);
        guesses = after;
        if let (Some(only), 1) = (guesses.first(), guesses.len()) {
            let under_way = under_way.difference(&only.done).copied().collect();
            cuts.push(Cut { state: only.state.clone(), under_way, order });
        }
    }
    Outcome::Explained
}

/// The guesses in which call `ending` took effect, whatever else did before it. `None`: too many.
fn close<S: State>(
    entries: &[Entry<S>],
    guesses: &BTreeSet<Guess<S>>,
    under_way: &BTreeSet<usize>,
    ending: usize,
) -> Option<BTreeSet<Guess<S>>> {
    let (mut after, mut seen, mut pending) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    pending.extend(guesses.iter().cloned());
    if entries[ending].answer.is_none() {
        let undone = guesses.iter().filter(|guess| !guess.done.contains(&ending));
        after.extend(undone.cloned());
    }
    while let Some(mut guess) = pending.pop() {
        // A look that is right now can be now: it changes nothing.
        for at in under_way.difference(&guess.done.clone()) {
            let Entry { call, answer, .. } = &entries[*at];
            let look = answer.is_some() && S::looks(call, answer.as_ref());
            if look && guess.state.step(call, answer.as_ref()).as_ref() == Some(&guess.state) {
                guess.done.insert(*at);
            }
        }
        if guess.done.remove(&ending) {
            after.insert(guess);
            continue;
        }
        if !seen.insert(guess.clone()) {
            continue;
        }
        if seen.len() + after.len() > STATES_MAX {
            return None;
        }
        for at in under_way.difference(&guess.done) {
            let Entry { call, answer, .. } = &entries[*at];
            let may_be = [guess.state.step(call, answer.as_ref()), guess.state.else_step(call, answer.as_ref())];
            for state in may_be.into_iter().flatten() {
                if answer.is_none() && state == guess.state {
                    continue; // it may have its effect later
                }
                let mut done = guess.done.clone();
                done.insert(*at);
                pending.push(Guess { state, done });
            }
        }
    }
    Some(after)
}

#[cfg(test)]
mod tests;
