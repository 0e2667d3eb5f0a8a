//! Packs that are checked, and what is done about what was found.

use std::collections::BTreeSet;

use braid_base::ids::{DriveId, PackId};
use braid_base::keys::Table;
use braid_base::limits::BLOCK;
use braid_base::msg::host::{Healing, Lost};
use braid_base::msg::job::{RebuildJob, ScrubJob, Scrubbed};
use braid_base::{Error, ErrorKind};
use braid_meta::{DriveSet, Event};

use super::cases::{Outcome, calm_world, count, pass, write};
use super::world::{FS, Wish, World};

const SPEED: u64 = 1 << 20;

/// A world of four drives with sealed packs of two data shards and one of parity, of a file of `2 * count` blocks.
fn world(count: usize) -> Result<(World, braid_base::ids::Ino), String> {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 0, &vec![7; count * 2 * BLOCK])?;
    for _ in 0..20 {
        pass(&mut world, 1_000)?;
    }
    assert_eq!(world.part.state().data_status().staged_bytes, 0);
    assert!(world.checks.is_empty(), "nobody allowed it");
    // Without one of their drives, packs take no more.
    use_drives(&mut world, &[1, 2, 3], &[]);
    use_drives(&mut world, &[2, 3, 4], &[]);
    use_drives(&mut world, &[1, 2, 3, 4], &[]);
    Ok((world, ino))
}

pub fn use_drives(world: &mut World, usable: &[u32], absent: &[u32]) {
    use_drives_at(world, usable, absent, SPEED);
}

fn use_drives_at(world: &mut World, usable: &[u32], absent: &[u32], scrub_bytes_per_s: u64) {
    let usable = usable.iter().copied().map(DriveId).collect();
    let absent = absent.iter().copied().map(DriveId).collect();
    world.part.state_mut().set_drives(DriveSet { usable, absent, scrub_bytes_per_s, ..DriveSet::default() });
}

/// Seconds pass until something is checked.
fn next_check(world: &mut World) -> Result<ScrubJob, String> {
    for _ in 0..100 {
        if let Some(job) = world.checks.pop() {
            return Ok(job);
        }
        pass_idle(world)?;
    }
    Err("nothing is checked".to_owned())
}

/// A second passes, and shards that are being mended stay under way.
fn pass_idle(world: &mut World) -> Outcome {
    let mends = std::mem::take(&mut world.rebuilds);
    pass(world, 1_000)?;
    world.rebuilds.extend(mends);
    Ok(())
}

fn found(world: &mut World, job: &ScrubJob, found: Scrubbed) -> Outcome {
    world.feed(Event::Scrubbed(job.id, Ok(found)))?;
    world.commit(usize::MAX)
}

fn mended(world: &mut World, job: &RebuildJob, result: braid_base::Result<()>) -> Outcome {
    world.feed(Event::JobDone(job.id, result))?;
    world.commit(usize::MAX)
}

fn told_lost(world: &World) -> Result<Vec<Lost>, String> {
    world.part.lost(100).map(|said| said.parts).map_err(|error| error.to_string())
}

/// Packs that may have lost more than is told.
fn unchecked(world: &World) -> Result<u64, String> {
    world.part.lost(100).map(|said| said.unchecked).map_err(|error| error.to_string())
}

fn healing(world: &World) -> Healing {
    world.part.state().data_status().healing
}

#[test]
fn each_pack_is_checked_once_in_a_pass() -> Outcome {
    let (mut world, _) = world(40)?;
    let (mut seen, mut rows): (Vec<PackId>, u64) = (Vec::new(), 0);
    let clean = Scrubbed { bytes: 5, ..Scrubbed::default() };
    while healing(&world).passes == 0 {
        let job = next_check(&mut world)?;
        assert_eq!(job.place.drives.len(), 3);
        assert_eq!(job.bytes_per_s, SPEED, "one partition alone has all of it");
        assert!(world.checks.is_empty(), "one at a time");
        seen.push(job.pack);
        rows += job.rows.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        found(&mut world, &job, clean.clone())?;
        pass_idle(&mut world)?;
        assert!(seen.len() < 1_000);
    }
    let all: BTreeSet<PackId> = seen.iter().copied().collect();
    assert!(all.len() == seen.len() && all.len() >= 2, "{seen:?}");
    assert_eq!(rows, 40, "what was committed, and nothing else: two blocks of data in a row");
    let told = healing(&world);
    assert_eq!(
        (told.scrub_done, told.scrub_packs, told.scrubbed_bytes),
        (all.len() as u64, all.len() as u64, 5 * told.scrub_done)
    );
    for _ in 0..100 {
        pass_idle(&mut world)?;
        assert!(world.checks.is_empty(), "the next pass is two weeks away");
    }
    world.now_ms += 15 * 24 * 3_600_000;
    next_check(&mut world).map(drop)
}

#[test]
fn a_damaged_shard_is_mended_in_place_then_elsewhere_and_checked_again() -> Outcome {
    let (mut world, ino) = world(4)?;
    let job = next_check(&mut world)?;
    found(&mut world, &job, Scrubbed { bad: vec![1, 2], ..Scrubbed::default() })?;
    assert_eq!(healing(&world).damaged, 2);
    // Two, one after the other, each where it is.
    let at = world.rebuilds.pop().ok_or("nothing is mended")?;
    assert_eq!((at.pack, at.shard, at.to, &at.place), (job.pack, 1, job.place.drives[1], &job.place));
    mended(&mut world, &at, Ok(()))?;
    pass_idle(&mut world)?;
    let again = next_check(&mut world)?;
    assert_eq!((again.pack, &again.place), (job.pack, &job.place), "nothing moved");
    let at = world.rebuilds.pop().ok_or("nothing more is mended")?;
    assert_eq!((at.shard, at.to), (2, job.place.drives[2]));
    mended(&mut world, &at, Err(Error::new(ErrorKind::Io, "the medium is worn")))?;
    found(&mut world, &again, Scrubbed { bad: vec![2], ..Scrubbed::default() })?;
    assert!(world.rebuilds.is_empty(), "not at once");
    for _ in 0..10 {
        pass_idle(&mut world)?;
    }
    let at = world.rebuilds.pop().ok_or("it is not tried again")?;
    let elsewhere = (1..=4).map(DriveId).find(|drive| !job.place.drives.contains(drive)).ok_or("four drives")?;
    assert_eq!((at.shard, at.to), (2, elsewhere));
    world.drives.entry(elsewhere).or_default().insert(braid_base::msg::drive::ShardId { pack: at.pack, shard: 2 });
    mended(&mut world, &at, Ok(()))?;
    let last = next_check(&mut world)?;
    assert_eq!((last.pack, last.place.drives[2], last.place.epoch.0), (job.pack, elsewhere, job.place.epoch.0 + 1));
    found(&mut world, &last, Scrubbed::default())?;
    let told = healing(&world);
    assert_eq!((told.damaged, told.mended), (0, 2));
    world.read(ino)?;
    world.check_all()
}

#[test]
fn what_is_beyond_repair_is_listed_until_nobody_refers_to_it() -> Outcome {
    let (mut world, ino) = world(4)?;
    let job = next_check(&mut world)?;
    // The second block of the second shard of data, and one that was never written.
    let lost = vec![(1, 1, 1), (1, 900, 100)];
    found(&mut world, &job, Scrubbed { lost: lost.clone(), ..Scrubbed::default() })?;
    assert!(world.rebuilds.is_empty(), "nothing is made up");
    assert_eq!(healing(&world).beyond, 1);
    let parts = told_lost(&world)?;
    let [Lost { fs, ino: of, off, len, object: None }] = parts[..] else { return Err(format!("{parts:?}")) };
    assert_eq!((fs, of, len, off % BLOCK as u64), (FS, ino, BLOCK as u64, 0));
    // It is checked again, as long as it is so.
    let again = next_check(&mut world)?;
    assert_eq!(again.pack, job.pack);
    found(&mut world, &again, Scrubbed { lost: lost.clone(), ..Scrubbed::default() })?;
    write(&mut world, ino, off, &[9; BLOCK])?;
    assert_eq!(told_lost(&world)?, [], "it was written anew");
    let again = next_check(&mut world)?;
    found(&mut world, &again, Scrubbed { lost, ..Scrubbed::default() })?;
    assert_eq!(healing(&world).beyond, 0);
    // A drive came back, and all is well.
    let again = next_check(&mut world)?;
    found(&mut world, &again, Scrubbed::default())?;
    pass_idle(&mut world)?;
    assert_eq!(healing(&world).damaged, 0);
    Ok(())
}

#[test]
fn a_pass_is_not_over_while_a_pack_could_not_be_checked() -> Outcome {
    // The first one could not be checked, or not all of it, or was out of reach when the pass came to it.
    for hindrance in ["error", "silence", "away"] {
        let (mut world, _) = world(40)?;
        let first = next_check(&mut world)?;
        world.restart()?;
        use_drives(&mut world, &[1, 2, 3, 4], &[]);
        let on = |shard: usize| first.place.drives[shard].0;
        if hindrance == "away" {
            use_drives(&mut world, &[1, 2, 3, 4], &[on(0), on(2)]);
        }
        let (mut seen, mut tries) = (BTreeSet::new(), 0);
        for second in 0..150 {
            if second == 60 {
                use_drives(&mut world, &[1, 2, 3, 4], &[]);
            }
            pass_idle(&mut world)?;
            let Some(job) = world.checks.pop() else { continue };
            tries += u32::from(job.pack == first.pack);
            match (job.pack == first.pack && tries == 1, hindrance) {
                (true, "error") => {
                    world.feed(Event::Scrubbed(job.id, Err(Error::new(ErrorKind::TimedOut, "all are silent"))))?;
                    world.commit(usize::MAX)?;
                }
                (true, "silence") => {
                    use_drives(&mut world, &[1, 2, 3, 4], &[on(0)]);
                    found(&mut world, &job, Scrubbed { silent: vec![0], ..Scrubbed::default() })?;
                }
                _ => {
                    seen.insert(job.pack);
                    found(&mut world, &job, Scrubbed::default())?;
                }
            }
            assert!(hindrance == "error" || second >= 60 || !seen.contains(&first.pack), "{hindrance}: too early");
            let told = healing(&world);
            assert!(told.passes == 0 || seen.contains(&first.pack), "{hindrance}: it was not checked");
        }
        let told = healing(&world);
        assert_eq!((told.passes, told.scrub_runs, told.scrub_done), (1, false, told.scrub_packs), "{hindrance}");
        assert!(seen.contains(&first.pack) && seen.len() as u64 == told.scrub_packs, "{hindrance}: {seen:?}");
    }
    Ok(())
}

#[test]
fn damage_of_a_silent_shard_is_not_forgotten() -> Outcome {
    let (mut world, _) = world(40)?;
    let job = next_check(&mut world)?;
    let first = job.rows[0].0;
    assert!(job.rows[0].1 >= 3, "{:?}", job.rows);
    let lost = vec![(0, first, 2)];
    found(&mut world, &job, Scrubbed { bad: vec![1, 2], lost, ..Scrubbed::default() })?;
    assert_eq!((healing(&world).damaged, healing(&world).beyond, lost_blocks(&world)?), (2, 1, 2));
    // The next time one of them says nothing; of the other it is known that it is whole.
    let again = check_of(&mut world, job.pack)?;
    found(&mut world, &again, Scrubbed { silent: vec![1], lost: vec![(0, first + 1, 2)], ..Scrubbed::default() })?;
    assert_eq!((healing(&world).damaged, healing(&world).beyond, lost_blocks(&world)?), (1, 1, 3));
    let again = check_of(&mut world, job.pack)?;
    found(&mut world, &again, Scrubbed::default())?;
    assert_eq!((healing(&world).damaged, healing(&world).beyond, lost_blocks(&world)?), (0, 0, 0));
    Ok(())
}

/// The next check of another pack than this one.
fn check_other(world: &mut World, than: PackId) -> Result<ScrubJob, String> {
    for _ in 0..100 {
        let job = next_check(world)?;
        if job.pack != than {
            return Ok(job);
        }
        found(world, &job, Scrubbed { bad: vec![0], ..Scrubbed::default() })?;
    }
    Err("no other is checked".to_owned())
}

/// The next check of `pack`; all others find nothing.
fn check_of(world: &mut World, pack: PackId) -> Result<ScrubJob, String> {
    for _ in 0..100 {
        let job = next_check(world)?;
        if job.pack == pack {
            return Ok(job);
        }
        found(world, &job, Scrubbed::default())?;
    }
    Err(format!("{pack} is not checked"))
}

/// Blocks of files that are told to be lost.
fn lost_blocks(world: &World) -> Result<u64, String> {
    Ok(told_lost(world)?.iter().map(|part| part.len / BLOCK as u64).sum())
}

#[test]
fn with_more_drives_away_than_parity_packs_are_out_of_reach() -> Outcome {
    let (mut world, ino) = world(4)?;
    let job = next_check(&mut world)?;
    found(&mut world, &job, Scrubbed::default())?;
    let on = |shard: usize| job.place.drives[shard].0;
    use_drives(&mut world, &[1, 2, 3, 4], &[on(0)]);
    assert_eq!((healing(&world).beyond, told_lost(&world)?), (0, Vec::new()));
    use_drives(&mut world, &[1, 2, 3, 4], &[on(0), on(2)]);
    assert!(healing(&world).beyond > 0);
    let parts = told_lost(&world)?;
    assert!(!parts.is_empty() && parts.iter().all(|part| part.ino == ino), "{parts:?}");
    use_drives(&mut world, &[1, 2, 3, 4], &[]);
    assert_eq!((healing(&world).beyond, told_lost(&world)?), (0, Vec::new()));
    Ok(())
}

#[test]
fn a_new_primary_says_that_it_does_not_know_what_is_lost_and_looks_there_first() -> Outcome {
    // With the scrubber off, too.
    for speed in [SPEED, 0] {
        let (mut world, _) = world(40)?;
        let mut last = next_check(&mut world)?;
        while let Ok(job) = next_check(&mut world) {
            found(&mut world, &last, Scrubbed::default())?;
            last = job;
        }
        let lost = vec![(0, last.rows[0].0, 2)];
        found(&mut world, &last, Scrubbed { lost: lost.clone(), ..Scrubbed::default() })?;
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?, count(&world, Table::Suspect)), (2, 0, 1));
        world.restart()?;
        use_drives_at(&mut world, &[1, 2, 3, 4], &[], speed);
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?), (0, 1));
        pass_idle(&mut world)?;
        let job = world.checks.pop().ok_or("it is not checked at once")?;
        assert_eq!(job.pack, last.pack);
        // As long as a check fails, or not all shards are heard, more may be lost.
        world.feed(Event::Scrubbed(job.id, Err(Error::new(ErrorKind::TimedOut, "all are silent"))))?;
        world.commit(usize::MAX)?;
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?), (0, 1));
        let job = check_of(&mut world, last.pack)?;
        found(&mut world, &job, Scrubbed { lost: lost.clone(), silent: vec![1], ..Scrubbed::default() })?;
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?), (2, 1));
        let job = check_of(&mut world, last.pack)?;
        found(&mut world, &job, Scrubbed { lost, ..Scrubbed::default() })?;
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?, count(&world, Table::Suspect)), (2, 0, 1));
        let job = check_of(&mut world, last.pack)?;
        found(&mut world, &job, Scrubbed::default())?;
        assert_eq!((lost_blocks(&world)?, unchecked(&world)?, count(&world, Table::Suspect)), (0, 0, 0));
    }
    Ok(())
}

#[test]
fn a_pass_of_a_new_primary_is_not_over_while_a_suspect_is_not_checked() -> Outcome {
    let mut world = long_world()?;
    let mut seen: Vec<PackId> = Vec::new();
    while seen.len() < 80 {
        let job = next_check(&mut world)?;
        if !seen.contains(&job.pack) {
            seen.push(job.pack);
        }
        let lost = if seen.get(30) == Some(&job.pack) { vec![(0, job.rows[0].0, 1)] } else { Vec::new() };
        found(&mut world, &job, Scrubbed { lost, ..Scrubbed::default() })?;
    }
    let suspect = seen[30];
    world.checks.clear();
    world.restart()?;
    use_drives(&mut world, &[1, 2, 3, 4], &[]);
    for _ in 0..100 {
        pass_idle(&mut world)?;
        let Some(job) = world.checks.pop() else { continue };
        if job.pack == suspect {
            world.feed(Event::Scrubbed(job.id, Err(Error::new(ErrorKind::TimedOut, "all are silent"))))?;
            world.commit(usize::MAX)?;
        } else {
            found(&mut world, &job, Scrubbed::default())?;
        }
    }
    assert_eq!((healing(&world).passes, healing(&world).scrub_runs, unchecked(&world)?), (0, true, 1));
    let job = check_of(&mut world, suspect)?;
    found(&mut world, &job, Scrubbed::default())?;
    pass_idle(&mut world)?;
    let told = healing(&world);
    assert_eq!((told.passes, told.scrub_done, unchecked(&world)?), (1, told.scrub_packs, 0));
    world.check_all()
}

#[test]
fn what_is_not_judged_for_a_silent_shard_is_not_taken_for_whole() -> Outcome {
    let (mut world, _) = world(40)?;
    let job = next_check(&mut world)?;
    found(&mut world, &job, Scrubbed { bad: vec![2], ..Scrubbed::default() })?;
    assert_eq!((healing(&world).damaged, unchecked(&world)?), (1, 0));
    let mend = world.rebuilds.pop().ok_or("nothing is mended")?;
    mended(&mut world, &mend, Ok(()))?;
    let again = check_of(&mut world, job.pack)?;
    found(&mut world, &again, Scrubbed { silent: vec![1], ..Scrubbed::default() })?;
    assert_eq!((healing(&world).damaged, unchecked(&world)?), (0, 1));
    Ok(())
}

#[test]
fn suspects_are_mended_and_looked_at_again_with_the_scrubber_off() -> Outcome {
    let (mut world, _) = world(40)?;
    let first = next_check(&mut world)?;
    found(&mut world, &first, Scrubbed { bad: vec![0], ..Scrubbed::default() })?;
    world.rebuilds.clear();
    let second = check_other(&mut world, first.pack)?;
    found(&mut world, &second, Scrubbed { bad: vec![1], ..Scrubbed::default() })?;
    world.restart()?;
    world.rebuilds.clear();
    use_drives_at(&mut world, &[1, 2, 3, 4], &[], 0);
    let mut mends = 0;
    for _ in 0..60 {
        pass_idle(&mut world)?;
        if let Some(job) = world.checks.pop() {
            let bad = if mends < 2 { vec![u8::from(job.pack != first.pack)] } else { Vec::new() };
            found(&mut world, &job, Scrubbed { bad, ..Scrubbed::default() })?;
        }
        if let Some(job) = world.rebuilds.pop() {
            mends += 1;
            mended(&mut world, &job, Ok(()))?;
        }
    }
    assert!(mends >= 2, "{mends}");
    assert_eq!((healing(&world).damaged, unchecked(&world)?, count(&world, Table::Suspect)), (0, 0, 0));
    Ok(())
}

#[test]
fn a_pack_with_damage_is_forgotten_with_its_last_file() -> Outcome {
    let (mut world, ino) = world(4)?;
    let job = next_check(&mut world)?;
    found(&mut world, &job, Scrubbed { lost: vec![(0, job.rows[0].0, 1)], ..Scrubbed::default() })?;
    assert_eq!(count(&world, Table::Suspect), 1);
    world.unlink_file(ino)?;
    for _ in 0..60 {
        pass_idle(&mut world)?;
    }
    assert_eq!((count(&world, Table::Suspect), unchecked(&world)?, lost_blocks(&world)?), (0, 0, 0));
    Ok(())
}

/// A world of more than 80 sealed packs, of 32 blocks each.
fn long_world() -> Result<World, String> {
    let (mut world, ino) = calm_world(Wish { slots: 200, ..Wish::default() })?;
    for part in 0..60 {
        write(&mut world, ino, part << 20, &vec![part as u8; 300_000])?;
        pass(&mut world, 1_000)?;
    }
    for _ in 0..30 {
        pass(&mut world, 1_000)?;
    }
    use_drives(&mut world, &[1, 2, 3], &[]);
    use_drives(&mut world, &[1, 2, 3, 4], &[]);
    Ok(world)
}

#[test]
fn packs_beyond_repair_do_not_keep_the_others_from_being_checked() -> Outcome {
    let mut world = long_world()?;
    let mut seen = BTreeSet::new();
    // Each takes a second: those that have lost something would take all of the time.
    for _ in 0..400 {
        pass_idle(&mut world)?;
        let Some(job) = world.checks.pop() else { continue };
        seen.insert(job.pack);
        let is_lost = seen.iter().take(30).any(|pack| *pack == job.pack);
        let lost = if is_lost { vec![(0, job.rows[0].0, 1)] } else { Vec::new() };
        found(&mut world, &job, Scrubbed { lost, ..Scrubbed::default() })?;
    }
    let told = healing(&world);
    assert_eq!((told.passes, told.scrub_done), (1, told.scrub_packs), "{} packs were seen", seen.len());
    assert!(seen.len() as u64 == told.scrub_packs && seen.len() > 80, "{}", seen.len());
    Ok(())
}

#[test]
fn a_new_primary_goes_on_with_a_long_pass_and_forgets_no_damage() -> Outcome {
    let clean = Scrubbed { bytes: 5, ..Scrubbed::default() };
    for damaged in [None, Some(30)] {
        let mut world = long_world()?;
        let mut seen: Vec<PackId> = Vec::new();
        while seen.len() < 80 {
            let job = next_check(&mut world)?;
            let bad = if damaged == Some(seen.len()) { vec![0] } else { Vec::new() };
            seen.push(job.pack);
            found(&mut world, &job, Scrubbed { bad, ..clean.clone() })?;
            assert_eq!(healing(&world).passes, 0, "too few packs: {}", seen.len());
        }
        world.checks.clear();
        world.restart()?;
        use_drives(&mut world, &[1, 2, 3, 4], &[]);
        let mut next = next_check(&mut world)?;
        if let Some(at) = damaged {
            assert_eq!(next.pack, seen[at], "the damage is forgotten");
            found(&mut world, &next, clean.clone())?;
            next = next_check(&mut world)?;
        }
        assert!(next.pack > seen[50] && next.pack <= seen[65], "{} after {seen:?}", next.pack);
        assert!(healing(&world).scrub_done > 20 && healing(&world).scrub_runs);
    }
    Ok(())
}
