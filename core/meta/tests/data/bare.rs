//! Packs without parity: what is in objects comes back to them, and nothing else is ever there alone.

use std::collections::BTreeSet;

use braid_base::ids::{DriveId, Ino, StoreId};
use braid_base::limits::BLOCK;
use braid_base::msg::fs::TierWant;
use braid_base::msg::job::Scrubbed;
use braid_meta::{DriveSet, Event, Leave, Mutation, TierPolicy};

use crate::cases::{Outcome, calm_world, write};
use crate::damage::missing;
use crate::scrub::use_drives;
use crate::tier::{TIERED, pass, pass_with_store, policy, set, want, where_is};
use crate::world::{Wish, World};

const B: u64 = BLOCK as u64;
const ALL: u64 = 40 * B;

/// A world in which a file was put into objects, left flash, and came back.
fn came_back(broken: Option<Mutation>) -> Result<(World, Ino), String> {
    let (mut world, ino) = calm_world(Wish { broken, ..TIERED })?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; ALL as usize])?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 40)?;
    assert_eq!(where_is(&mut world, ino)?.object, ALL);
    want(&mut world, ino, TierWant::Flash)?;
    pass(&mut world, 10)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, ALL);
    Ok((world, ino))
}

/// Bytes of files in packs without parity, by drive.
fn bare(world: &World) -> Result<Vec<(DriveId, u64)>, String> {
    let packs = world.tables()?.packs.into_values().filter(|pack| pack.place.parity == 0 && pack.live_upper > 0);
    Ok(packs.map(|pack| (pack.place.drives[0], pack.live_upper)).collect())
}

#[test]
fn what_comes_back_lies_on_several_drives_and_costs_no_parity() -> Outcome {
    let (world, _) = came_back(None)?;
    let packs = bare(&world)?;
    assert_eq!(packs.iter().map(|(_, bytes)| bytes).sum::<u64>(), ALL);
    world.check_all()
}

/// One drive is to be emptied; it answers, or does not.
fn empty(world: &mut World, drive: DriveId, answers: bool) {
    world.leaving = BTreeSet::from([drive]);
    let usable = world.drives.keys().copied().filter(|other| *other != drive).collect();
    let absent = if answers { BTreeSet::new() } else { world.leaving.clone() };
    let leaving = world.leaving.iter().map(|drive| (*drive, Leave::Failed)).collect();
    world.part.state_mut().set_drives(DriveSet { usable, leaving, absent, ..DriveSet::default() });
}

#[test]
fn what_lies_on_a_drive_that_is_to_be_emptied_is_copied() -> Outcome {
    let (mut world, ino) = came_back(None)?;
    let (drive, _) = bare(&world)?[0];
    empty(&mut world, drive, true);
    for _ in 0..100 {
        pass(&mut world, 1)?;
        world.run_rebuild();
    }
    assert!(world.is_left());
    assert_eq!(where_is(&mut world, ino)?.read_cache, ALL);
    assert!(bare(&world)?.iter().all(|(on, _)| *on != drive));
    world.check_all()
}

/// The drive with some of it is gone, or loses a block.
#[test]
fn what_lies_on_a_drive_that_is_gone_or_damaged_is_given_up() -> Outcome {
    for leaves in [true, false] {
        let (mut world, ino) = came_back(None)?;
        let (drive, bytes) = bare(&world)?[0];
        if leaves {
            empty(&mut world, drive, false);
        } else {
            // Packs that are open are not checked: after a restart none is. A check finds one pack after the other.
            world.restart()?;
            set(&mut world, policy());
            use_drives(&mut world, &[1, 2, 3, 4], &[]);
            for _ in 0..200 {
                pass(&mut world, 1)?;
                for job in std::mem::take(&mut world.checks) {
                    let bad = job.place.parity == 0 && job.place.drives[0] == drive;
                    let lost = if bad { vec![(0, 0, 1)] } else { Vec::new() };
                    world.feed(Event::Scrubbed(job.id, Ok(Scrubbed { lost, ..Scrubbed::default() })))?;
                }
            }
        }
        pass(&mut world, 30)?;
        let sums = where_is(&mut world, ino)?;
        assert!(sums.read_cache <= ALL - bytes && sums.object == ALL, "leaves: {leaves}, {sums:?}");
        assert!(world.is_left() && world.part.state().data_status().healing.beyond == 0);
        world.read(ino)?;
        world.check_all()?;
    }
    Ok(())
}

#[test]
fn what_has_no_copy_goes_where_there_is_parity() -> Outcome {
    let written = |broken| -> Outcome {
        let (mut world, ino) = calm_world(Wish { broken, ..TIERED })?;
        set(&mut world, policy());
        write(&mut world, ino, 0, &[1; ALL as usize])?;
        want(&mut world, ino, TierWant::Object)?;
        pass_with_store(&mut world, 40)?;
        // Half a block is in its object, the other half was just written.
        write(&mut world, ino, 10, &[2; 100])?;
        want(&mut world, ino, TierWant::Flash)?;
        // Looked at after each step: what lies where it should not may soon be saved.
        for step in 0..1_000 {
            if step % 100 == 0 {
                world.now_ms += 5_000;
                world.tick()?;
            }
            world.answer_drive()?;
            world.run_job()?;
            world.finish_job()?;
            world.commit(usize::MAX)?;
            world.check_all()?;
        }
        assert!(where_is(&mut world, ino)?.write_cache > 0);
        world.read(ino)?;
        world.check_all()
    };
    written(None)?;
    assert!(written(Some(Mutation::BareAll)).is_err(), "a broken rule went unnoticed");
    Ok(())
}

#[test]
fn what_is_to_lose_its_copy_is_moved_before() -> Outcome {
    for detached in [true, false] {
        let (mut world, ino) = came_back(None)?;
        assert!(!bare(&world)?.is_empty());
        if detached {
            let leaving = [StoreId(1)].into();
            set(&mut world, TierPolicy { writable: None, leaving, ..policy() });
        } else {
            let blobs = world.tables()?.blobs.into_keys();
            world.part.state_mut().set_damaged(blobs.map(|blob| (blob, missing())).collect());
        }
        for _ in 0..40 {
            pass(&mut world, 1)?;
            world.check_all()?;
        }
        assert_eq!(bare(&world)?, [], "detached: {detached}");
        let sums = where_is(&mut world, ino)?;
        assert_eq!(sums.write_cache + sums.read_cache, ALL, "detached: {detached}, {sums:?}");
        world.read(ino)?;
    }
    Ok(())
}

/// Flash is short all the time, the store that was lost has some of the file alone, and the drive of the rest is next.
#[test]
fn what_is_exposed_is_saved_by_itself_also_while_flash_is_short() -> Outcome {
    let (mut world, ino) = came_back(None)?;
    let (blob, _) = world.objects.lose(0).ok_or("an object")?;
    set(&mut world, TierPolicy { flash_bytes: Some(B), ..policy() });
    world.part.state_mut().set_damaged([(blob, missing())].into());
    pass(&mut world, 40)?;
    assert_eq!(bare(&world)?, []);
    let sums = where_is(&mut world, ino)?;
    assert!(sums.read_cache > 0 && sums.read_cache < ALL, "what is in sound objects has left: {sums:?}");
    world.read(ino)?;
    assert!(world.part.lost(100).map_err(|error| error.to_string())?.parts.is_empty());
    Ok(())
}
