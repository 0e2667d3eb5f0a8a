//! The dirty bytes of one file.

use std::collections::BTreeMap;

use braid_base::attr::Time;
use braid_base::ids::Ino;
use bytes::Bytes;

use super::Flight;

/// Bytes in pieces.
pub(super) type Parts = Vec<Bytes>;

/// Runs that grow and flights, by offset; none of them overlap.
#[derive(Default)]
pub(super) struct File {
    runs: BTreeMap<u64, Run>,
    flights: BTreeMap<u64, Run>,
    /// When it was last written.
    pub(super) written: Time,
    /// Some of it is by somebody whose write takes the set-id bits off.
    pub(super) kill: bool,
    /// The session under which all that is here was taken.
    pub(super) session: u64,
}

struct Run {
    parts: Parts,
    len: u64,
    /// In flight: bytes that have not reached the cluster.
    left: u64,
    /// While it grows: when bytes were added last, milliseconds. In flight: its number.
    stamp: u64,
}

impl File {
    /// True if some of `[off, end)` is here.
    pub(super) fn overlaps(&self, off: u64, end: u64) -> bool {
        let hit = |runs: &BTreeMap<u64, Run>| runs.range(..end).next_back().is_some_and(|(at, run)| at + run.len > off);
        hit(&self.runs) || hit(&self.flights)
    }

    /// True if a run ends at `off` or begins at `end`.
    pub(super) fn joins(&self, off: u64, end: u64) -> bool {
        self.before(off).is_some() || self.runs.contains_key(&end)
    }

    /// The run that ends at `off`.
    fn before(&self, off: u64) -> Option<u64> {
        self.runs.range(..off).next_back().filter(|(at, run)| *at + run.len == off).map(|(at, _)| *at)
    }

    /// Adds bytes that overlap nothing here.
    pub(super) fn add(&mut self, off: u64, data: Bytes, now_ms: u64) {
        let len = data.len() as u64;
        let after = self.runs.remove(&(off + len));
        let at = self.before(off).unwrap_or(off);
        let run = self.runs.entry(at).or_insert_with(|| Run { parts: Vec::new(), len: 0, left: 0, stamp: now_ms });
        run.parts.push(data);
        run.len += len;
        run.stamp = now_ms;
        if let Some(after) = after {
            run.parts.extend(after.parts);
            run.len += after.len;
        }
    }

    /// A run that should take off: it is long, or there are too many.
    pub(super) fn ready(&mut self, runs_max: usize, long: u64) -> Option<(u64, Parts)> {
        let by_length = self.runs.iter().find(|(_, run)| run.len >= long).map(|(at, _)| *at);
        let oldest = || self.runs.iter().min_by_key(|(_, run)| run.stamp).map(|(at, _)| *at);
        let at = by_length.or_else(|| if self.runs.len() > runs_max { oldest() } else { None })?;
        self.runs.remove(&at).map(|run| (at, run.parts))
    }

    /// All runs.
    pub(super) fn take_all(&mut self) -> Vec<(u64, Parts)> {
        std::mem::take(&mut self.runs).into_iter().map(|(at, run)| (at, run.parts)).collect()
    }

    /// Runs that were last added to at or before `before_ms`.
    pub(super) fn take_old(&mut self, before_ms: u64) -> Vec<(u64, Parts)> {
        self.runs.extract_if(.., |_, run| run.stamp <= before_ms).map(|(at, run)| (at, run.parts)).collect()
    }

    /// Makes a flight of a run that was taken out.
    pub(super) fn depart(&mut self, ino: Ino, next: &mut u64, off: u64, parts: Parts) -> Flight {
        *next += 1;
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.flights.insert(off, Run { parts: parts.clone(), len, left: len, stamp: *next });
        Flight { ino, off, parts, at: self.written, kill: self.kill, session: self.session }
    }

    /// The flight that began at `off` has landed.
    pub(super) fn land(&mut self, off: u64) {
        self.flights.remove(&off);
    }

    /// `len` bytes of the flight that began at `off` have reached the cluster.
    pub(super) fn came_on(&mut self, off: u64, len: u64) {
        if let Some(run) = self.flights.get_mut(&off) {
            run.left = run.left.saturating_sub(len);
        }
    }

    /// True if a flight with a number up to `last` has not landed.
    pub(super) fn is_flying(&self, last: u64) -> bool {
        self.flights.values().any(|run| run.stamp <= last)
    }

    /// Bytes of such flights that have not reached the cluster.
    pub(super) fn left(&self, last: u64) -> u64 {
        self.flights.values().filter(|run| run.stamp <= last).map(|run| run.left).sum()
    }

    /// Nothing is left to remember.
    pub(super) fn is_clean(&self) -> bool {
        self.runs.is_empty() && self.flights.is_empty()
    }

    /// Where the last byte here ends; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        let last = |runs: &BTreeMap<u64, Run>| runs.last_key_value().map_or(0, |(at, run)| at + run.len);
        last(&self.runs).max(last(&self.flights))
    }

    /// The pieces within `[off, end)`, sorted.
    pub(super) fn within(&self, off: u64, end: u64) -> Vec<(u64, Bytes)> {
        let mut pieces = Vec::new();
        for (start, run) in self.runs.range(..end).chain(self.flights.range(..end)) {
            let mut at = *start;
            if at + run.len <= off {
                continue;
            }
            for part in &run.parts {
                let (from, to) = (at.max(off), (at + part.len() as u64).min(end));
                if from < to {
                    pieces.push((from, part.slice((from - at) as usize..(to - at) as usize)));
                }
                at += part.len() as u64;
            }
        }
        pieces.sort_by_key(|(at, _)| *at);
        pieces
    }
}
