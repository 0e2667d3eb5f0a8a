//! Bytes: sequential, random, durable, deep and in all sizes, by fio.

use super::goal::{Goal, NONE};
use super::row::{Per, Task};
use super::{Done, Suite};
use crate::{Outcome, fio};
use std::fs;
use std::path::Path;

/// Transfer sizes in KiB; from [`SPREAD_FROM_KIB`] on they should be alike.
pub const SIZES_KIB: [u64; 7] = [4, 16, 64, 256, 1024, 4096, 16384];
/// See [`SIZES_KIB`].
pub const SPREAD_FROM_KIB: u64 = 64;

/// 1 MiB at a time, one job, then four readers.
pub fn sequential(suite: &mut Suite) -> Outcome<()> {
    let mib = suite.scale.sequential_mib;
    let one = |rw: &str, more: &str| words(&format!("--rw={rw} --bs=1m --filename=seq --size={mib}m {more}"));
    let task = |id, title, goal| Task { id, title, per: Per::Gib, goal, cold: false, settles: true };
    let read = |id, title, goal| Task { cold: true, settles: false, ..task(id, title, goal) };
    suite.fio(
        task("seq-write-direct", "1 MiB sequential write, direct", Goal::ratio(0.55).cpu(1.2)),
        &one("write", "--direct=1 --end_fsync=1"),
    )?;
    suite.each(|target| remove(&target.dir, "seq"))?;
    suite.fio(
        task("seq-write", "1 MiB sequential write, buffered", Goal::ratio(0.55).cpu(1.8)),
        &one("write", "--end_fsync=1"),
    )?;
    suite
        .fio(read("seq-read-1", "1 MiB sequential read, cold, 1 job", Goal::ratio(0.35).cpu(1.4)), &one("read", ""))?;
    let quarter =
        words(&format!("--rw=read --bs=1m --filename=seq --size={0}m --offset_increment={0}m --numjobs=4", mib / 4));
    suite.fio(read("seq-read-4", "1 MiB sequential read, cold, 4 jobs", Goal::ratio(0.5).cpu(1.4)), &quarter)?;
    suite.each(|target| remove(&target.dir, "seq"))
}

/// 4 KiB at random places, direct, four jobs with sixteen under way each.
pub fn random(suite: &mut Suite) -> Outcome<()> {
    let size = format!("--size={}m --numjobs=4", suite.scale.random_mib_per_job);
    let lay = words(&format!("--rw=write --bs=1m --end_fsync=1 {size}"));
    suite.each(|target| fio::run(&target.dir, "rand", &lay).map(drop))?;
    let how = |rw: &str| {
        let seconds = suite.scale.seconds;
        words(&format!(
            "--rw={rw} --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --time_based --runtime={seconds} {size}"
        ))
    };
    let (reads, writes, mix) = (how("randread"), how("randwrite"), how("randrw --rwmixread=70"));
    let task = |id, title, goal| Task { id, title, per: Per::Operation, goal, cold: false, settles: true };
    suite.fio(
        Task {
            cold: true,
            settles: false,
            ..task("rand-read", "4 KiB random read, direct 4x16", Goal::ratio(0.6).cpu(24.0))
        },
        &reads,
    )?;
    suite.fio(task("rand-write", "4 KiB random write, direct 4x16", Goal::ratio(0.5).cpu(35.0)), &writes)?;
    suite.fio(task("rand-mix", "4 KiB random 70/30 mix, direct 4x16", NONE), &mix)?;
    suite.each(|target| remove(&target.dir, "rand"))
}

/// Four databases: 4 KiB, fdatasync, again.
pub fn durable(suite: &mut Suite) -> Outcome<()> {
    let seconds = suite.scale.seconds;
    let how = format!("--rw=randwrite --bs=4k --size=64m --numjobs=4 --fdatasync=1 --time_based --runtime={seconds}");
    let title = "4 KiB write + fdatasync, 4 jobs";
    let goal = Goal::ratio(0.5).cpu(60.0);
    let task = Task { id: "fdatasync", title, per: Per::Operation, goal, cold: false, settles: true };
    suite.fio(task, &words(&how))?;
    suite.each(|target| remove(&target.dir, "fdatasync"))
}

/// 128 KiB one after the other, sixteen under way.
pub fn deep(suite: &mut Suite) -> Outcome<()> {
    let mib = suite.scale.sequential_mib / 2;
    let how = |rw: &str, more: &str| {
        let deep = "--bs=128k --direct=1 --ioengine=libaio --iodepth=16 --filename=deep";
        words(&format!("--rw={rw} --size={mib}m {deep} {more}"))
    };
    let write = Task {
        id: "deep-write",
        title: "128 KiB sequential write, direct, depth 16",
        per: Per::Gib,
        goal: Goal::ratio(0.3),
        cold: false,
        settles: true,
    };
    suite.fio(write, &how("write", "--end_fsync=1"))?;
    let title = "128 KiB sequential read, cold, direct, depth 16";
    let read = Task { id: "deep-read", title, goal: Goal::ratio(0.7), cold: true, settles: false, ..write };
    suite.fio(read, &how("read", ""))?;
    suite.each(|target| remove(&target.dir, "deep"))
}

/// The same bytes in pieces of all sizes.
pub fn sizes(suite: &mut Suite) -> Outcome<()> {
    let mib = suite.scale.sequential_mib / 4;
    for kib in SIZES_KIB {
        let how = |rw: &str, more: &str| words(&format!("--rw={rw} --bs={kib}k --filename=sizes --size={mib}m {more}"));
        let shown = if kib < 1024 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024) };
        for (rw, cold, more) in [("write", false, "--end_fsync=1"), ("read", true, "")] {
            let id = size_id(rw, kib);
            let title = format!("transfer size {shown}, {rw}{}", if cold { ", cold" } else { "" });
            let task = Task { id: &id, title: &title, per: Per::Gib, goal: NONE, cold, settles: false };
            suite.fio(task, &how(rw, more))?;
        }
        suite.each(|target| remove(&target.dir, "sizes"))?;
    }
    Ok(())
}

/// The name of a row of [`sizes`].
pub fn size_id(rw: &str, kib: u64) -> String {
    format!("size-{rw}-{kib}k")
}

impl Suite {
    fn fio(&mut self, task: Task, options: &[String]) -> Outcome<()> {
        let name = task.id.split_once('-').map_or(task.id, |(name, _)| name);
        self.measure(task, |target| {
            let moved = fio::run(&target.dir, name, options)?;
            let amount = if task.per == Per::Gib { moved.bytes / f64::from(1 << 30) } else { moved.operations };
            Ok(Done { amount, seconds: moved.seconds })
        })
    }
}

fn words(options: &str) -> Vec<String> {
    options.split_whitespace().map(str::to_owned).collect()
}

/// Removes the files of one job name.
fn remove(dir: &Path, start: &str) -> Outcome<()> {
    let say = |error: std::io::Error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(say)? {
        let entry = entry.map_err(say)?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            fs::remove_file(entry.path()).map_err(say)?;
        }
    }
    Ok(())
}
