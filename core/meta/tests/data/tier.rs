//! Single rules of the capacity tier, one after another.

use std::collections::BTreeSet;

use braid_base::ids::{Ino, StoreId};
use braid_base::limits::BLOCK;
use braid_base::msg::fs::{Op, Reply, Residency, TierWant};
use braid_meta::{Mutation, TierPolicy};

use crate::cases::{Outcome, calm_world, write};
use crate::model::Act;
use crate::world::{FS, Wish, World};

const TIERED: Wish = Wish { steps: 0, slots: 60, cap_bytes: 8 << 20, chaos: false, broken: None, tiered: true };

fn policy() -> TierPolicy {
    TierPolicy {
        writable: Some(StoreId(1)),
        leaving: BTreeSet::new(),
        cue_s: 20,
        retention_s: 1_000_000,
        object_bytes: 8 * BLOCK as u32,
        flash_bytes: None,
        prefetch_bytes: 0,
    }
}

fn set(world: &mut World, policy: TierPolicy) {
    world.part.state_mut().set_tiers([(FS, policy)].into());
}

/// Time passes, and everything but the object store works.
fn pass(world: &mut World, rounds: usize) -> Outcome {
    for _ in 0..rounds {
        world.now_ms += 5_000;
        world.tick()?;
        for _ in 0..20 {
            world.commit(usize::MAX)?;
            world.answer_drive()?;
            world.run_job()?;
            world.finish_job()?;
        }
    }
    Ok(())
}

/// The same, and the object store works, too.
fn pass_with_store(world: &mut World, rounds: usize) -> Outcome {
    for _ in 0..rounds {
        pass(world, 1)?;
        while !world.objects.is_idle() {
            world.work_store()?;
            world.commit(usize::MAX)?;
        }
    }
    world.commit(usize::MAX)
}

fn where_is(world: &mut World, ino: Ino) -> Result<Residency, String> {
    match world.sync(Op::Residency { ino, from: Default::default() }, Act::Other)? {
        Ok(Reply::Residency(sums)) => Ok(sums),
        other => Err(format!("residency: {other:?}")),
    }
}

fn want(world: &mut World, ino: Ino, want: TierWant) -> Outcome {
    world.sync(Op::Tier { ino, off: 0, len: u64::MAX, want }, Act::Other)?.map(drop).map_err(|e| e.to_string())
}

/// A file is overwritten while the object with its bytes is on its way.
fn late_object(broken: Option<Mutation>) -> Outcome {
    let (mut world, ino) = calm_world(Wish { broken, ..TIERED })?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 8 * BLOCK])?;
    pass(&mut world, 20)?;
    if world.objects.uploads.is_empty() {
        return Err("nothing is sent".to_owned());
    }
    let sent = world.objects.uploads.len();
    write(&mut world, ino, 0, &[2; 3 * BLOCK])?;
    pass(&mut world, 10)?;
    assert_eq!(world.objects.uploads.len(), sent, "what was just written is not sent");
    while !world.objects.is_idle() {
        world.work_store()?;
        world.commit(usize::MAX)?;
    }
    world.check_all()?;
    let sums = where_is(&mut world, ino)?;
    let b = BLOCK as u64;
    if (sums.write_cache, sums.read_cache, sums.object) != (3 * b, 5 * b, 5 * b) {
        return Err(format!("{sums:?}"));
    }
    world.read(ino)
}

#[test]
fn an_object_is_named_only_where_its_bytes_still_are() -> Outcome {
    late_object(None)?;
    assert!(late_object(Some(Mutation::NameBlindly)).is_err(), "a broken rule went unnoticed");
    Ok(())
}

#[test]
fn bytes_leave_flash_and_come_back_when_somebody_says_so() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    let refused = Op::Tier { ino, off: 0, len: 1, want: TierWant::Flash };
    world.part.state_mut().set_tiers(Default::default());
    assert!(world.sync_expecting_refusal(refused)?.is_err(), "there is no store");
    set(&mut world, TierPolicy { cue_s: 100_000, ..policy() });
    write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 30)?;
    let all = 20 * BLOCK as u64;
    let expected = Residency { object: all, ..Residency::default() };
    assert_eq!(where_is(&mut world, ino)?, expected, "whatever the cue says");
    world.read(ino)?;
    pass_with_store(&mut world, 10)?;
    let expected = Residency { object: all, read_cache: all, ..Residency::default() };
    assert_eq!(where_is(&mut world, ino)?, expected, "a read brings it back");
    world.check_all()
}

#[test]
fn objects_with_holes_are_put_together_and_the_old_ones_go() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 64 * BLOCK])?;
    pass_with_store(&mut world, 60)?;
    assert_eq!(world.objects.count(), 8);
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 3)?;
    // Every other block is overwritten: half of each object is free, and what is new goes into others.
    for block in (0..64).step_by(2) {
        write(&mut world, ino, block * BLOCK as u64, &[2; BLOCK])?;
    }
    pass_with_store(&mut world, 100)?;
    let sums = where_is(&mut world, ino)?;
    assert_eq!(sums.object, 64 * BLOCK as u64, "{sums:?}");
    assert!(world.objects.count() <= 9, "{} objects hold what 8 can", world.objects.count());
    world.read(ino)?;
    world.check_all()
}

#[test]
fn a_store_that_is_left_is_emptied_onto_flash_or_into_the_next() -> Outcome {
    for next in [None, Some(StoreId(2))] {
        let (mut world, ino) = calm_world(TIERED)?;
        set(&mut world, policy());
        write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
        want(&mut world, ino, TierWant::Object)?;
        pass_with_store(&mut world, 30)?;
        assert!(world.objects.count() > 0);
        set(&mut world, TierPolicy { writable: next, leaving: [StoreId(1)].into(), ..policy() });
        pass_with_store(&mut world, 60)?;
        assert_eq!(world.objects.in_store(StoreId(1)), 0, "all of it left");
        let sums = where_is(&mut world, ino)?;
        assert_eq!(sums.object > 0, next.is_some(), "{sums:?}");
        world.read(ino)?;
        world.check_all()?;
    }
    Ok(())
}

#[test]
fn a_short_file_system_gives_flash_up_before_its_time() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    let policy = TierPolicy { cue_s: 100_000, flash_bytes: Some(10 * BLOCK as u64), ..policy() };
    set(&mut world, policy);
    write(&mut world, ino, 0, &[1; 40 * BLOCK])?;
    pass_with_store(&mut world, 40)?;
    let sums = where_is(&mut world, ino)?;
    assert!(sums.write_cache + sums.read_cache <= 10 * BLOCK as u64, "{sums:?}");
    world.read(ino)?;
    world.check_all()
}
