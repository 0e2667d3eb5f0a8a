//! When a file moves next, and what is in its way.

use super::Rules;
use crate::measure::duration;
use crate::residence::{Ages, Location};

/// What waits for the log is merged within about so long, seconds.
const MERGED_S: u64 = 60;
/// A pass that finds what is due may take a while: until then nothing is late, seconds.
const LATE_S: u64 = 60;

/// In how many seconds something of it is put into an object: at the earliest, and at the latest if nothing is in its way.
pub(super) fn demotes(ages: &Ages, rules: &Rules) -> Option<(u64, u64)> {
    let ((oldest, newest), _) = (ages.write_cache_since_s?, rules.store.as_ref()?);
    let cue = rules.start_demote_s;
    let first = (oldest + cue).saturating_sub(ages.now_s);
    // What does not fill an object waits as long again for more.
    let last = (newest + 2 * cue).saturating_sub(ages.now_s);
    Some(if rules.flash_short { (0, 0) } else { (first, last) })
}

/// In how many seconds something of it that is in objects leaves flash: the first, and the last of it.
pub(super) fn leaves(ages: &Ages, rules: &Rules) -> Option<(u64, u64)> {
    let (oldest, newest) = ages.read_cache_since_s?;
    let left = |since_s: u64| {
        let used_s = since_s.max(ages.last_read_s.unwrap_or(0));
        (used_s + rules.target_ssd_retention_s).saturating_sub(ages.now_s)
    };
    Some((left(oldest), left(newest)))
}

/// When it moves next, as far as that is known, and why.
pub(super) fn words(found: &Location, ages: Option<&Ages>, rules: &Rules) -> Vec<String> {
    if !rules.has_store {
        return vec![format!("File system {} has no object store: all of it stays on flash.", rules.filesystem)];
    }
    let mut lines = Vec::new();
    if found.ssd_write_cache_bytes > 0 {
        lines.extend(fresh(ages, rules));
    }
    if found.ssd_read_cache_bytes > 0 {
        lines.push(copied(ages, rules));
    } else if found.ssd_write_cache_bytes > 0 && rules.store.is_some() {
        let (retention, group) = (duration(rules.target_ssd_retention_s), &rules.group);
        lines.push(format!(
            "When it is in objects as well it leaves flash {retention} after its last use (group {group}), or before if \
             flash runs short."
        ));
    }
    if found.far_bytes() > 0 {
        lines.push(format!(
            "What is in objects only left flash when {} had passed since its last use (group {}), or before, because flash \
             was short or somebody released it.",
            duration(rules.target_ssd_retention_s),
            rules.group
        ));
    }
    if ages.is_some_and(|ages| ages.leaving_bytes > 0) {
        let goal = match &rules.store {
            Some(store) => format!("moves to object store {store}"),
            None => "comes back to flash, and stays there".to_owned(),
        };
        let from = rules.detaching.join(", ");
        lines.push(format!("What of it is in object store {from}, which is being detached, {goal}."));
    }
    lines
}

/// What is on flash only.
fn fresh(ages: Option<&Ages>, rules: &Rules) -> Vec<String> {
    let Some(store) = &rules.store else {
        return vec!["What is on flash only stays there: no object store of the file system takes data.".to_owned()];
    };
    let (cue, group) = (duration(rules.start_demote_s), &rules.group);
    let mut lines = vec![format!(
        "What is on flash only is copied to object store {store} when {cue} have passed since it was written (group \
         {group}); what does not fill an object waits up to as long again for more."
    )];
    let Some(ages) = ages else { return lines };
    if let Some((first, last)) = demotes(ages, rules) {
        lines.push(when(ages, rules, first, last));
    }
    if ages.unmerged_bytes > 0 {
        lines.push(format!(
            "Some of it was written just now: its time begins when it has left the log, within {} or so.",
            duration(MERGED_S)
        ));
    }
    if let Some(why) = &rules.uploads_stopped {
        lines.push(format!("Until then nothing is copied: {why}."));
    }
    lines
}

/// When the oldest of it is copied.
fn when(ages: &Ages, rules: &Rules, first: u64, last: u64) -> String {
    let oldest = ages.write_cache_since_s.map_or(ages.now_s, |(oldest, _)| oldest);
    let age = duration(ages.now_s.saturating_sub(oldest));
    let late = |since_s: u64| ages.now_s > since_s + 2 * rules.start_demote_s + LATE_S;
    if rules.flash_short {
        return format!("The oldest of it counts from {age} ago. Flash is short, so all of it is due now.");
    }
    if late(oldest) && rules.due_since_s.is_some_and(late) {
        return format!(
            "The oldest of it counts from {age} ago, and is late: more is written than the object store takes."
        );
    }
    let first = if first == 0 { "now".to_owned() } else { format!("in {}", duration(first)) };
    let last = if last == 0 { String::new() } else { format!(", all of it in {} at the latest", duration(last)) };
    format!("The oldest of it counts from {age} ago: that is due {first}{last}, unless it is written anew.")
}

/// What is on flash and in objects.
fn copied(ages: Option<&Ages>, rules: &Rules) -> String {
    let (retention, group) = (duration(rules.target_ssd_retention_s), &rules.group);
    let rule = format!("What is in objects as well leaves flash {retention} after its last use (group {group})");
    if rules.flash_short {
        return format!("{rule}, but flash is short: the oldest of the file system leaves now.");
    }
    let Some((first, last)) = ages.and_then(|ages| leaves(ages, rules)) else {
        return format!("{rule}, or before if flash runs short.");
    };
    let when = match (first, last) {
        (0, 0) => "now".to_owned(),
        (first, last) if first == last => format!("in {}", duration(first)),
        (0, last) => format!("some of it now, the last in {}", duration(last)),
        (first, last) => format!("the first of it in {}, the last in {}", duration(first), duration(last)),
    };
    format!("{rule}: {when}, or before if flash runs short.")
}

#[cfg(test)]
mod tests {
    use super::super::Rules;
    use super::{demotes, leaves, words};
    use crate::residence::{Ages, Location};

    fn found(write: u64, read: u64) -> Location {
        let file_type = "file".to_owned();
        Location { file_type, ssd_write_cache_bytes: write, ssd_read_cache_bytes: read, ..Location::default() }
    }

    fn rules() -> Rules {
        Rules {
            filesystem: "f".to_owned(),
            group: "g".to_owned(),
            store: Some("s".to_owned()),
            has_store: true,
            start_demote_s: 900,
            target_ssd_retention_s: 86_400,
            ..Rules::default()
        }
    }

    fn fresh(now_s: u64, oldest: u64, newest: u64) -> Ages {
        Ages { now_s, write_cache_since_s: Some((oldest, newest)), ..Ages::default() }
    }

    #[test]
    fn the_time_counts_from_when_the_cluster_has_it() {
        // Copied with an old time of change: that does not matter.
        let just_written = fresh(1_000_000, 999_990, 999_990);
        assert_eq!(demotes(&just_written, &rules()), Some((890, 1_790)));
        let lines = words(&found(9, 0), Some(&just_written), &rules());
        assert!(lines[0].contains("15m have passed since it was written (group g)"), "{lines:?}");
        assert!(lines[1].contains("10s ago: that is due in 14m 50s, all of it in 29m 50s at the latest"), "{lines:?}");
        assert!(lines[2].contains("1d after its last use"), "{lines:?}");
        let due = words(&found(9, 0), Some(&fresh(2_000, 1_000, 1_500)), &rules());
        assert!(due[1].contains("due now, all of it in 21m 40s"), "{due:?}");
    }

    #[test]
    fn what_is_in_its_way_is_said() {
        let said = |rules: &Rules, ages: &Ages| words(&found(9, 0), Some(ages), rules).join("\n");
        let ages = fresh(100_000, 1_000, 99_999);
        assert!(said(&Rules { has_store: false, ..rules() }, &ages).contains("has no object store"));
        assert!(said(&Rules { store: None, ..rules() }, &ages).contains("stays there"));
        let short = Rules { flash_short: true, ..rules() };
        assert!(said(&short, &ages).contains("Flash is short, so all of it is due now"));
        assert_eq!(demotes(&ages, &short), Some((0, 0)));
        let late = Rules { due_since_s: Some(1_000), ..rules() };
        assert!(said(&late, &ages).contains("is late: more is written than the object store takes"));
        assert!(!said(&rules(), &ages).contains("is late"), "it is about to be found");
        let down = Rules { uploads_stopped: Some("object store s is full".to_owned()), ..rules() };
        assert!(said(&down, &ages).contains("nothing is copied: object store s is full."));
        let new = Ages { unmerged_bytes: 9, ..Ages::default() };
        assert!(said(&rules(), &new).contains("its time begins when it has left the log"));
    }

    #[test]
    fn reads_keep_it_on_flash() {
        let ages = |last_read_s| Ages {
            now_s: 100_000,
            read_cache_since_s: Some((20_000, 90_000)),
            last_read_s,
            ..Ages::default()
        };
        assert_eq!(leaves(&ages(None), &rules()), Some((6_400, 76_400)));
        assert_eq!(leaves(&ages(Some(50_000)), &rules()), Some((36_400, 76_400)));
        assert_eq!(leaves(&ages(Some(99_999)), &rules()), Some((86_399, 86_399)));
        let said = |rules: &Rules, ages: &Ages| words(&found(0, 9), Some(ages), rules).join("\n");
        assert!(said(&rules(), &ages(None)).contains("the first of it in 1h 46m, the last in 21h 13m, or before"));
        let short = Rules { flash_short: true, ..rules() };
        assert!(said(&short, &ages(None)).contains("flash is short: the oldest of the file system leaves now"));
        let detached = Rules { store: None, detaching: vec!["old".to_owned()], ..rules() };
        let far = Location { object_storage_bytes: 9, ..found(0, 0) };
        assert!(words(&far, None, &rules())[0].contains("left flash when 1d had passed since its last use (group g)"));
        let leaving = Ages { leaving_bytes: 9, ..ages(None) };
        assert!(said(&detached, &leaving).contains("object store old, which is being detached, comes back to flash"));
    }
}
