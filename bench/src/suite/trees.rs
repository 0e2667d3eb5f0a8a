//! Names: a tree of empty files by one process and by four, and a tree of small files as people handle one.

use super::goal::{Goal, NONE};
use super::row::{Per, Task};
use super::{Done, Suite};
use crate::{Outcome, clock, meta, small};

/// Create, stat, unlink by one process.
pub fn alone(suite: &mut Suite) -> Outcome<()> {
    suite.tree(1, [Goal::rate(5_000.0).cpu(120.0), Goal::rate(25_000.0), Goal::rate(300_000.0), Goal::rate(5_000.0)])
}

/// The same by four processes.
pub fn together(suite: &mut Suite) -> Outcome<()> {
    suite.tree(4, [Goal::rate(15_000.0).cpu(80.0), Goal::rate(50_000.0), NONE, Goal::rate(15_000.0)])
}

/// Small files created, read, listed, counted and removed.
pub fn files(suite: &mut Suite) -> Outcome<()> {
    let third = Goal::ratio(1.0 / 3.0);
    let files = suite.scale.small_files;
    for (step, words, goal) in [
        ("create", "create", Goal::rate(5_000.0)),
        ("read", "read, cold", Goal::rate(8_000.0)),
        ("list", "ls -lR, cold", third),
        ("find", "find -ls, cold", third),
        ("usage", "du, cold", NONE),
        // After `du`, with what that left in the caches: so the peers were measured.
        ("remove", "rm -r", Goal::rate(10_000.0)),
    ] {
        suite.step(step, words, goal)?;
    }
    suite.each(|target| small::step(&target.dir.join("files"), "create", files))?;
    suite.step("remove", "rm -r, cold", Goal::rate(10_000.0))
}

impl Suite {
    fn step(&mut self, step: &str, words: &str, goal: Goal) -> Outcome<()> {
        let files = self.scale.small_files;
        let cold = words.ends_with(", cold");
        let id = format!("files-{step}{}", if step == "remove" && cold { "-cold" } else { "" });
        let title = format!("{files} x 4 KiB files: {words}");
        let task = Task { id: &id, title: &title, per: Per::Operation, goal, cold, settles: false };
        self.measure(task, |target| {
            let start = clock::seconds();
            small::step(&target.dir.join("files"), step, files)?;
            Ok(Done { amount: files as f64, seconds: clock::seconds() - start })
        })
    }

    fn tree(&mut self, procs: u64, goals: [Goal; 4]) -> Outcome<()> {
        let names = self.scale.names;
        self.each(|target| meta::prepare(&target.dir.join("tree"), procs))?;
        for (phase, goal) in meta::PHASES.into_iter().zip(goals) {
            let (id, cold) = (format!("tree-{procs}-{phase}"), phase == "stat");
            let phase_words = if cold { "stat, cold" } else { phase };
            let title = format!("{phase_words}, {procs} process{}", if procs == 1 { "" } else { "es" });
            let task = Task { id: &id, title: &title, per: Per::Operation, goal, cold, settles: false };
            self.measure(task, |target| {
                let (amount, seconds) = meta::together(&target.dir.join("tree"), phase, names, procs)?;
                Ok(Done { amount, seconds })
            })?;
        }
        self.each(|target| meta::clear(&target.dir.join("tree")))
    }
}
