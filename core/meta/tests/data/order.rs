//! What goes before what in the capacity tier, and that nothing waits for ever.

use braid_base::ids::{Ino, StoreId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::{Op, Reply, TierWant};
use braid_base::msg::job::{Source, UploadJob};
use braid_base::record::Place;
use braid_base::{Error, ErrorKind};
use braid_meta::{Event, TierPolicy};

use crate::cases::{Outcome, calm_world, write};
use crate::model::Act;
use crate::tier::{TIERED, pass, pass_by, pass_with_store, policy, set, want, where_is};
use crate::world::{FS, World};

const B: u64 = BLOCK as u64;

/// True if an object is made of others.
fn is_of_objects(job: &UploadJob) -> bool {
    job.parts.iter().any(|part| matches!(part.from, Source::At(Place::Object(_), _)))
}

/// A world with a second file.
fn two_files() -> Result<(World, Ino, Ino), String> {
    let (world, one) = calm_world(TIERED)?;
    let two = *world.model.files.keys().find(|ino| **ino != one).ok_or("a second file")?;
    Ok((world, one, two))
}

/// As many objects of what is new as a store takes at a time are on their way.
fn saturate(world: &mut World, busy: Ino, round: u64) -> Outcome {
    for n in 0..5 {
        write(world, busy, (5 * round + n) * CHUNK, &[3; 8 * BLOCK])?;
    }
    for _ in 0..20 {
        pass(world, 1)?;
        if world.objects.uploads.len() == 4 {
            return Ok(());
        }
    }
    Err(format!("{} objects are on their way", world.objects.uploads.len()))
}

/// One after the other arrives, and more comes all the time: true if one was made of others before long.
fn is_reclaimed(world: &mut World, busy: Ino) -> Result<bool, String> {
    for round in 2..30 {
        if world.objects.uploads.iter().any(is_of_objects) {
            return Ok(true);
        }
        world.work_store()?;
        world.commit(usize::MAX)?;
        saturate(world, busy, round)?;
    }
    Ok(false)
}

#[test]
fn reclamation_has_its_turn_while_new_objects_come_all_the_time() -> Outcome {
    let (mut world, ino, busy) = two_files()?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 64 * BLOCK])?;
    pass_with_store(&mut world, 60)?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 3)?;
    saturate(&mut world, busy, 1)?;
    for block in (0..64).step_by(2) {
        write(&mut world, ino, block * B, &[2; BLOCK])?;
    }
    assert!(is_reclaimed(&mut world, busy)?, "holes stay for ever");
    Ok(())
}

#[test]
fn a_store_is_left_while_new_objects_come_all_the_time() -> Outcome {
    let (mut world, ino, busy) = two_files()?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 30)?;
    let next = TierPolicy { writable: Some(StoreId(2)), ..policy() };
    set(&mut world, next.clone());
    saturate(&mut world, busy, 1)?;
    set(&mut world, TierPolicy { leaving: [StoreId(1)].into(), ..next });
    assert!(is_reclaimed(&mut world, busy)?, "it is never left");
    Ok(())
}

#[test]
fn what_was_in_an_object_that_failed_goes_into_the_next() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    // Long enough that no pass finds it again.
    set(&mut world, TierPolicy { cue_s: 2_000, ..policy() });
    write(&mut world, ino, 0, &[1; 8 * BLOCK])?;
    pass(&mut world, 20)?;
    world.now_ms += 2_100_000;
    pass(&mut world, 4)?;
    let job = world.objects.uploads.pop().ok_or("nothing is sent")?;
    world.feed(Event::JobDone(job.id, Err(Error::new(ErrorKind::Io, "the store failed"))))?;
    pass_with_store(&mut world, 10)?;
    assert_eq!(where_is(&mut world, ino)?.object, 8 * B, "after a moment, not after another cue");
    world.check_all()
}

#[test]
fn what_finds_no_room_in_an_object_goes_into_the_next() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, TierPolicy { cue_s: 2_000, ..policy() });
    write(&mut world, ino, 0, &[1; 16 * BLOCK])?;
    pass(&mut world, 20)?;
    world.now_ms += 2_100_000;
    pass_with_store(&mut world, 20)?;
    assert_eq!(where_is(&mut world, ino)?.object, 16 * B, "and does not wait for another cue");
    world.check_all()
}

#[test]
fn what_somebody_wants_out_of_flash_goes_before_what_is_read() -> Outcome {
    let (mut world, hot, bulk) = two_files()?;
    let bounded = TierPolicy { cue_s: 20, flash_bytes: Some(44 * B), ..policy() };
    set(&mut world, bounded);
    write(&mut world, hot, 0, &[1; 16 * BLOCK])?;
    pass_with_store(&mut world, 30)?;
    assert_eq!(where_is(&mut world, hot)?.read_cache, 16 * B, "on flash and in objects");
    // It fills flash, and is to leave it as it is written.
    for round in 0..4 {
        write(&mut world, bulk, round * 26 * B, &[2; 26 * BLOCK])?;
        want(&mut world, bulk, TierWant::Object)?;
        for _ in 0..100 {
            pass_by(&mut world, 1, 200)?;
            for _ in 0..3 {
                world.work_store()?;
                world.commit(usize::MAX)?;
            }
            assert_eq!(where_is(&mut world, hot)?.read_cache, 16 * B, "round {round}");
        }
    }
    assert_eq!(where_is(&mut world, bulk)?.object, 104 * B);
    // If the store takes nothing, what can leave does.
    write(&mut world, bulk, 0, &[3; 26 * BLOCK])?;
    want(&mut world, bulk, TierWant::Object)?;
    pass(&mut world, 60)?;
    assert!(where_is(&mut world, hot)?.read_cache < 16 * B, "writes need room");
    world.read(hot)?;
    world.check_all()
}

/// An object names 2^36 blocks of a file.
#[test]
fn who_wants_out_of_flash_what_no_object_can_name_hears_so() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, policy());
    let most = (1 << 36) * B;
    for at in [0, most - B, most] {
        write(&mut world, ino, at, &[1; BLOCK])?;
    }
    let asked = |off, len| Op::Tier { ino, off, len, want: TierWant::Object };
    let refused = world.sync_expecting_refusal(asked(0, u64::MAX))?;
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::FileTooBig));
    world.sync(asked(0, most), Act::Other)?.map_err(|error| error.to_string())?;
    pass_with_store(&mut world, 30)?;
    let sums = where_is(&mut world, ino)?;
    assert_eq!((sums.object, sums.write_cache), (2 * B, B), "what can leave has left");
    Ok(())
}

#[test]
fn what_there_is_of_flash_bounds_only_what_stays_there() -> Outcome {
    let (mut world, _) = calm_world(TIERED)?;
    let mut total = |tiers: bool, limit: Option<u64>| -> Result<Option<u64>, String> {
        if tiers {
            set(&mut world, policy())
        } else {
            world.part.state_mut().set_tiers(Default::default())
        }
        world.part.state_mut().set_totals(100 * B, limit.map(|limit| (FS, limit)).into_iter().collect());
        match world.sync(Op::Statfs, Act::Other)? {
            Ok(Reply::Usage { total_bytes, .. }) => Ok(total_bytes),
            other => Err(format!("{other:?}")),
        }
    };
    assert_eq!(total(false, None)?, Some(100 * B));
    assert_eq!(total(false, Some(200 * B))?, Some(100 * B));
    assert_eq!(total(true, Some(200 * B))?, Some(200 * B));
    assert_eq!(total(true, None)?, Some(u64::MAX), "its bucket takes what comes");
    Ok(())
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    world.wall_ahead_s = 86_400;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 30)?;
    assert_eq!(where_is(&mut world, ino)?.object, 20 * B);
    // What comes back is looked for again and again, until all of it has.
    set(&mut world, TierPolicy { writable: None, leaving: [StoreId(1)].into(), ..policy() });
    pass(&mut world, 1)?;
    world.wall_ahead_s = 0;
    pass_with_store(&mut world, 60)?;
    assert_eq!(where_is(&mut world, ino)?.object, 0);
    world.read(ino)?;
    world.check_all()
}
