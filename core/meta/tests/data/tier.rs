//! Single rules of the capacity tier, one after another.

use std::collections::BTreeSet;

use braid_base::ErrorKind;
use braid_base::ids::{Ino, OpId, StoreId};
use braid_base::limits::{BLOCK, HELD_STORE_MS_MAX};
use braid_base::msg::fs::{FsResult, Op, Reply, Residency, TierWant};
use braid_meta::{Mutation, Notice, TierPolicy, Token};

use crate::cases::{Outcome, calm_world, write, write_op};
use crate::model::Act;
use crate::world::{FS, Wish, World};

pub const TIERED: Wish = Wish { steps: 0, slots: 60, cap_bytes: 8 << 20, chaos: false, broken: None, tiered: true };

pub fn policy() -> TierPolicy {
    TierPolicy {
        writable: Some(StoreId(1)),
        leaving: BTreeSet::new(),
        given_up: BTreeSet::new(),
        cue_s: 20,
        retention_s: 1_000_000,
        object_bytes: 8 * BLOCK as u32,
        flash_bytes: None,
        prefetch_bytes: 0,
    }
}

/// Ten blocks of flash, and nothing leaves it for its age.
fn ten_blocks() -> TierPolicy {
    TierPolicy { cue_s: 100_000, flash_bytes: Some(10 * BLOCK as u64), ..policy() }
}

pub fn set(world: &mut World, policy: TierPolicy) {
    world.part.state_mut().set_tiers([(FS, policy)].into());
}

/// Time passes, and everything but the object store works.
pub fn pass(world: &mut World, rounds: usize) -> Outcome {
    pass_by(world, rounds, 5_000)
}

/// The same in rounds of so many milliseconds.
pub fn pass_by(world: &mut World, rounds: usize, round_ms: u64) -> Outcome {
    for _ in 0..rounds {
        world.now_ms += round_ms;
        world.tick()?;
        // As many answers as opening several packs takes: what waits for them gives up after some seconds.
        for _ in 0..100 {
            world.commit(usize::MAX)?;
            world.answer_drive()?;
            world.run_job()?;
            world.finish_job()?;
        }
    }
    Ok(())
}

/// The same, and the object store works, too.
pub fn pass_with_store(world: &mut World, rounds: usize) -> Outcome {
    for _ in 0..rounds {
        pass(world, 1)?;
        while !world.objects.is_idle() {
            world.work_store()?;
            world.commit(usize::MAX)?;
        }
    }
    world.commit(usize::MAX)
}

pub fn where_is(world: &mut World, ino: Ino) -> Result<Residency, String> {
    match world.sync(Op::Residency { ino, from: Default::default() }, Act::Other)? {
        Ok(Reply::Residency(sums)) => Ok(sums),
        other => Err(format!("residency: {other:?}")),
    }
}

pub fn want(world: &mut World, ino: Ino, want: TierWant) -> Outcome {
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
    // Long enough to be merged, and not to be due itself.
    pass(&mut world, 4)?;
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
    let sums = |found: Residency| (found.write_cache, found.read_cache, found.object);
    assert_eq!(sums(where_is(&mut world, ino)?), (0, 0, all), "whatever the cue says");
    world.read(ino)?;
    pass_with_store(&mut world, 10)?;
    assert_eq!(sums(where_is(&mut world, ino)?), (0, all, all), "a read brings it back");
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
fn objects_in_a_store_that_is_given_up_are_forgotten_and_bytes_are_not() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, policy());
    write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 30)?;
    let stored = |world: &World| world.part.state().data_status().stored.values().map(|s| (s.objects, s.live)).next();
    let (objects, live) = stored(&world).expect("some are there");
    assert!(objects > 1 && live == 20 * BLOCK as u64);
    let leaving = TierPolicy { writable: None, leaving: [StoreId(1)].into(), ..policy() };
    world.objects.keeps_all = true;
    let stays = TierPolicy { writable: None, given_up: [StoreId(1)].into(), ..policy() };
    set(&mut world, stays);
    pass_with_store(&mut world, 20)?;
    assert_eq!(stored(&world), Some((objects, live)), "what is needed is not given up");
    // All of it came back, and nothing is removed: that is waited for, unless the store is given up.
    set(&mut world, leaving.clone());
    pass_with_store(&mut world, 60)?;
    assert_eq!(stored(&world), Some((objects, 0)));
    set(&mut world, TierPolicy { given_up: [StoreId(1)].into(), ..leaving });
    pass_with_store(&mut world, 20)?;
    assert_eq!(stored(&world), None);
    assert!(world.objects.in_store(StoreId(1)) > 0, "they lie there still");
    world.read(ino)?;
    Ok(())
}

#[test]
fn a_short_file_system_gives_flash_up_before_its_time() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, ten_blocks());
    write(&mut world, ino, 0, &[1; 40 * BLOCK])?;
    pass_with_store(&mut world, 40)?;
    let sums = where_is(&mut world, ino)?;
    assert!(sums.write_cache + sums.read_cache <= 10 * BLOCK as u64, "{sums:?}");
    assert_eq!(world.notices, [Notice::LeftEarly(FS)], "once, however much leaves");
    world.read(ino)?;
    world.check_all()
}

#[test]
fn what_leaves_after_its_time_is_no_news() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, TierPolicy { retention_s: 60, ..policy() });
    write(&mut world, ino, 0, &[1; 8 * BLOCK])?;
    pass_with_store(&mut world, 40)?;
    assert_eq!(where_is(&mut world, ino)?.object, 8 * BLOCK as u64);
    assert_eq!(world.notices, []);
    Ok(())
}

/// Time passes with the store at work or without, while somebody waits for `op`: what he hears in the end.
fn wait_for(world: &mut World, (op, mut token): (OpId, Token), body: &Op, stores: bool, secs: u64) -> FsResult {
    let end_ms = world.now_ms + secs * 1_000;
    while world.now_ms < end_ms {
        world.tick().expect("time passes");
        for _ in 0..20 {
            world.commit(usize::MAX).expect("commits");
            world.answer_drive().expect("drives answer");
            world.run_job().expect("moves run");
            world.finish_job().expect("moves end");
            if stores {
                world.work_store().expect("the store works");
            }
        }
        match world.replies.remove(&token) {
            Some(Err(told)) if told.kind() == ErrorKind::Held => {
                token = world.again(op, body.clone()).expect("asks again")
            }
            Some(answer) => return answer,
            None => {}
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// All of it is on flash, or nearly all: a write that has no room makes some.
#[test]
fn writes_wait_while_flash_is_full() -> Outcome {
    for used in [9, 10] {
        let (mut world, ino) = calm_world(TIERED)?;
        set(&mut world, ten_blocks());
        write(&mut world, ino, 0, &vec![1; used * BLOCK])?;
        let (body, act) = write_op(ino, 20 * BLOCK as u64, &[2; 5 * BLOCK]);
        let asked = world.request(body.clone(), act)?;
        // A smaller one behind it waits its turn, and hears so.
        let (small, act) = write_op(ino, 40 * BLOCK as u64, &[3; 10]);
        let behind = world.request(small.clone(), act)?;
        assert_eq!(world.part.state().data_status().held, 2);
        let answer = wait_for(&mut world, asked, &body, true, 60);
        assert!(matches!(answer, Ok(Reply::Wrote { .. })), "{answer:?}");
        let token = world.again(behind.0, small.clone())?;
        let answer = wait_for(&mut world, (behind.0, token), &small, true, 60);
        assert!(matches!(answer, Ok(Reply::Wrote { .. })), "{answer:?}");
        let sums = where_is(&mut world, ino)?;
        assert!(sums.write_cache + sums.read_cache <= 10 * BLOCK as u64, "{sums:?}");
        world.read(ino)?;
        world.check_all()?;
    }
    Ok(())
}

#[test]
fn who_waits_for_a_store_that_takes_nothing_hears_of_it() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, ten_blocks());
    write(&mut world, ino, 0, &[1; 10 * BLOCK])?;
    let (body, act) = write_op(ino, 20 * BLOCK as u64, &[2; 5 * BLOCK]);
    let asked = world.request(body.clone(), act)?;
    let waited = HELD_STORE_MS_MAX / 1_000;
    let answer = wait_for(&mut world, asked, &body, false, waited - 5);
    assert!(matches!(&answer, Err(error) if error.kind() == ErrorKind::TimedOut), "{answer:?}");
    // Its client was told all the time that it is not forgotten.
    let token = world.again(asked.0, body.clone())?;
    let answer = wait_for(&mut world, (asked.0, token), &body, false, 20);
    assert!(matches!(&answer, Err(error) if error.kind() == ErrorKind::NoSpace), "{answer:?}");
    assert_eq!(world.part.state().data_status().held, 0);
    assert_eq!(world.notices, [Notice::FlashFull(FS)]);
    world.read(ino)
}

/// An object of which nothing is heard may be on its way for as long as a slow store takes for it.
#[test]
fn a_slow_store_is_waited_for() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    let blocks = 256;
    let bytes = (blocks * BLOCK) as u64;
    set(&mut world, TierPolicy { object_bytes: bytes as u32, flash_bytes: Some(bytes), ..ten_blocks() });
    write(&mut world, ino, 0, &vec![1; blocks * BLOCK])?;
    let (body, act) = write_op(ino, 2 * bytes, &[2; 5 * BLOCK]);
    let asked = world.request(body.clone(), act)?;
    let waited = HELD_STORE_MS_MAX / 1_000;
    let answer = wait_for(&mut world, asked, &body, false, waited + 1);
    assert!(matches!(&answer, Err(error) if error.kind() == ErrorKind::TimedOut), "{answer:?}");
    let token = world.again(asked.0, body.clone())?;
    let answer = wait_for(&mut world, (asked.0, token), &body, false, 20);
    assert!(matches!(&answer, Err(error) if error.kind() == ErrorKind::NoSpace), "{answer:?}");
    world.read(ino)
}

#[test]
fn where_flash_is_short_the_oldest_leaves_first() -> Outcome {
    let b = BLOCK as u64;
    let (mut world, old) = calm_world(TIERED)?;
    set(&mut world, policy());
    let new = *world.model.files.keys().find(|ino| **ino != old).ok_or("a second file")?;
    for ino in [old, new] {
        write(&mut world, ino, 0, &[1; 8 * BLOCK])?;
        pass_with_store(&mut world, 12)?;
    }
    for ino in [old, new] {
        assert_eq!(where_is(&mut world, ino)?.read_cache, 8 * b, "on flash and in an object");
    }
    set(&mut world, TierPolicy { flash_bytes: Some(9 * b), ..policy() });
    pass_with_store(&mut world, 3)?;
    assert_eq!(where_is(&mut world, old)?.read_cache, 0);
    assert_eq!(where_is(&mut world, new)?.read_cache, 8 * b);
    Ok(())
}

#[test]
fn what_is_lent_counts_against_what_a_file_system_may_hold() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let limit = 64 * BLOCK as u64;
    world.part.state_mut().set_limit(FS, Some(limit));
    let mut lent = 0;
    // Less than the time for which it is lent.
    for _ in 0..15 {
        let asked = Op::GetSpace { ino, bytes: limit, back: Vec::new() };
        match world.sync(asked, Act::Other)? {
            Ok(Reply::Space(ranges)) => {
                lent += ranges.iter().map(|(at, place)| u64::from(at.ul) * u64::from(place.data)).sum::<u64>();
            }
            other => return Err(format!("{other:?}")),
        }
        world.now_ms += 100;
        world.tick()?;
        for _ in 0..10 {
            world.commit(usize::MAX)?;
            world.answer_drive()?;
        }
    }
    assert!((1..=64).contains(&lent), "{lent} blocks");
    Ok(())
}
