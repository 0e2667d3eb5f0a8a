//! The state of a cluster in one word, and the sentences that explain it; which drives are fit for new data.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{DriveId, HostId};
use braid_base::msg::drive::Trouble;

use crate::facts::Protection;
use crate::view::{DriveView, HostView, PartitionView, State};

/// What was seen of a drive that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Which.
    pub drive: DriveId,
    /// What keeps it from being trusted with new data.
    pub trouble: Option<Trouble>,
}

/// The drives that new data goes to: those without trouble, if that leaves enough for the narrowest pack. If more failure
/// domains are slow than may be missing, it is not the drives: all but the failing ones are used then. `domain`: what
/// fails together with a drive. Where there are too few for the narrowest pack, drives count.
pub fn usable(parity: u8, drives: &[Watched], domain: impl Fn(DriveId) -> u64) -> Vec<DriveId> {
    let parity = usize::from(parity);
    let domains = |of: &[DriveId]| of.iter().map(|drive| domain(*drive)).collect::<BTreeSet<_>>().len();
    let all: Vec<DriveId> = drives.iter().map(|watched| watched.drive).collect();
    let is_forced = domains(&all) <= parity;
    let count = |of: &[DriveId]| if is_forced { of.len() } else { domains(of) };
    let slow = drives.iter().filter(|watched| watched.trouble == Some(Trouble::Slow));
    let slow: Vec<DriveId> = slow.map(|watched| watched.drive).collect();
    let fit = |watched: &&Watched, leave_slow: bool| match watched.trouble {
        None => true,
        Some(Trouble::Slow) => !leave_slow,
        Some(Trouble::Failing | Trouble::Full) => false,
    };
    let left = |leave_slow: bool| -> Vec<DriveId> {
        drives.iter().filter(|watched| fit(watched, leave_slow)).map(|watched| watched.drive).collect()
    };
    let quick = left(true);
    if count(&slow) <= parity && count(&quick) > parity { quick } else { left(false) }
}

/// Is `drive` lost, which does not answer this host? `others`: what does not answer each other host that could be asked, of
/// `living` hosts in all. One that answers most of them is there, and the way from here to it is broken; so it may be if
/// most of them could not be asked.
pub fn is_lost(drive: DriveId, others: &[BTreeSet<DriveId>], living: usize) -> bool {
    let missed = 1 + others.iter().filter(|absent| absent.contains(&drive)).count();
    2 * missed > living.max(1 + others.len())
}

/// A clock that is so far from those of the other hosts is told, milliseconds.
const CLOCK_MS: u64 = 1_000;

/// `ahead`: how far the clock of each host is ahead of some clock, milliseconds. Returns how far each is ahead of most of
/// them: of the one in the middle.
pub fn clocks(mut ahead: Vec<(HostId, i64)>) -> BTreeMap<HostId, i64> {
    ahead.sort_by_key(|(host, ms)| (*ms, *host));
    let middle = ahead.get(ahead.len() / 2).map_or(0, |(_, ms)| *ms);
    ahead.into_iter().map(|(host, ms)| (host, ms.saturating_sub(middle))).collect()
}

/// One sentence for each host whose clock is wrong.
pub fn wrong_clocks(hosts: &[HostView]) -> Vec<String> {
    let sentence = |host: &HostView| {
        let ms = host.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= CLOCK_MS)?;
        let (seconds, side) = (ms.unsigned_abs() / 1_000, if ms > 0 { "ahead of" } else { "behind" });
        let (name, id) = (&host.name, host.id);
        Some(format!(
            "the clock of host {name} (h{id}) is {seconds} s {side} those of the others: set it (NTP does); times of files \
             that it serves are as wrong, no data is at risk"
        ))
    };
    hosts.iter().filter_map(sentence).collect()
}

/// What is wrong with a drive in `trouble`, and what to do.
pub fn trouble_words(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Slow => "requests to it take more than 3 s; new data goes to others until it is quick again",
        Trouble::Failing => {
            "it fails to read or write, or does not answer for a minute; new data goes to others until it works again: \
             replace it"
        }
        Trouble::Full => {
            "what lies under it has no room for what was promised; new data goes to others until there is some: make room"
        }
    }
}

/// The state of a cluster with `protection`, judged by its drives and partitions, and one sentence per problem.
pub fn judge(protection: Protection, drives: &[DriveView], partitions: &[PartitionView]) -> (State, Vec<String>) {
    let lost: Vec<&DriveView> = drives.iter().filter(|drive| drive.is_lost()).collect();
    let silent: Vec<&PartitionView> = partitions.iter().filter(|partition| !partition.is_serving()).collect();
    // A drive that lied or failed here and there: what it held there is rebuilt from the others with each read.
    let erring = drives.iter().filter(|drive| !drive.is_lost() && (drive.errors > 0 || drive.is_troubled()));
    let mut problems: Vec<String> = lost.iter().map(|drive| lost_sentence(drive)).collect();
    problems.extend(erring.clone().map(erring_sentence));
    problems.extend(silent.iter().map(|partition| silent_sentence(partition)));
    let short = short_sentences(partitions);
    let is_short = !short.is_empty();
    problems.extend(short);
    let parity = usize::from(protection.parity);
    // Of what fails together a pack has one piece.
    let domains = lost.iter().map(|drive| drive.domain).collect::<BTreeSet<u16>>().len();
    if domains > parity {
        let (what, count) = if domains == lost.len() { ("drives", domains) } else { ("failure domains", domains) };
        problems.push(format!(
            "{count} {what} are lost and {protection} survives {parity}: bring back at least {}; what never comes back is \
             given up by `braid cluster remove HOST --abandon` or `braid cluster drive remove DRIVE --abandon`",
            count - parity
        ));
    }
    let state = match (domains, silent.len()) {
        (0, 0) if erring.count() == 0 && !is_short => State::Ok,
        (lost, 0) if lost <= parity => State::Degraded,
        _ => State::Unavailable,
    };
    (state, problems)
}

/// Partitions named in one sentence, at most.
const NAMED_MAX: usize = 8;

/// Which partitions have fewer copies than they should, those that are alike in one sentence.
fn short_sentences(partitions: &[PartitionView]) -> Vec<String> {
    let mut alike: BTreeMap<(usize, u64, Vec<u32>), Vec<String>> = BTreeMap::new();
    for partition in partitions.iter().filter(|partition| partition.is_short()) {
        let mut learners = partition.learners.clone();
        learners.sort_unstable();
        let kind = (partition.members.len(), partition.copies, learners);
        alike.entry(kind).or_default().push(format!("p{}", partition.id));
    }
    let sentence = |((has, of, learners), names): ((usize, u64, Vec<u32>), Vec<String>)| {
        let (noun, verb) = if names.len() == 1 { ("partition", "has") } else { ("partitions", "have") };
        let more = match names.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = names[..names.len().min(NAMED_MAX)].join(", ");
        let copies = if has == 1 { "copy" } else { "copies" };
        let hosts: Vec<String> = learners.iter().map(|host| format!("h{host}")).collect();
        let comes = match hosts.is_empty() {
            true => String::new(),
            false => format!("; what is missing is to be filled on {}", hosts.join(", ")),
        };
        format!("{noun} {named}{more} {verb} {has} {copies} of {of}{comes}")
    };
    alike.into_iter().map(sentence).collect()
}

fn erring_sentence(drive: &DriveView) -> String {
    let what = drive.problem.clone().unwrap_or_else(|| format!("{} errors since start", drive.errors));
    if drive.is_troubled() {
        return format!("drive d{} ({}) is {}: {what}", drive.id, drive.path, drive.state);
    }
    format!("drive d{} ({}): {what}: replace it if they go on", drive.id, drive.path)
}

fn silent_sentence(partition: &PartitionView) -> String {
    let why = partition.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("partition p{} is {}{why}", partition.id, partition.state)
}

fn lost_sentence(drive: &DriveView) -> String {
    let why = drive.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("drive d{} ({}) is {}{why}", drive.id, drive.path, drive.state)
}
