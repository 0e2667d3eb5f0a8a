//! Objects that somebody removed or damaged: what becomes of what is in them, and that all else goes on.

use std::collections::{BTreeMap, BTreeSet};

use braid_base::ids::{BlobId, Ino, StoreId, Term};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::TierWant;
use braid_base::msg::host::{Lost, LostObject};
use braid_meta::{Damaged, Judged, TierPolicy};

use crate::cases::{Outcome, calm_world, write};
use crate::tier::{TIERED, pass, pass_with_store, policy, set, want, where_is};
use crate::world::{FS, P, World};

const B: u64 = BLOCK as u64;
/// Bytes of a file in each of its chunks: as many as an object holds.
const PART: u64 = 8 * B;
const STORE: StoreId = StoreId(1);

/// A world in which `chunks` chunks of a file are in an object each.
fn spread(chunks: u64, policy: TierPolicy) -> Result<(World, Ino), String> {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, policy);
    for n in 0..chunks {
        write(&mut world, ino, n * CHUNK, &[1 + n as u8; PART as usize])?;
    }
    pass_with_store(&mut world, 40)?;
    let sums = where_is(&mut world, ino)?;
    assert_eq!((world.objects.count() as u64, sums.object), (chunks, chunks * PART), "{sums:?}");
    Ok((world, ino))
}

/// The same, and nothing is on flash any more.
fn spread_out(chunks: u64) -> Result<(World, Ino), String> {
    let (mut world, ino) = spread(chunks, policy())?;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 5)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 0);
    Ok((world, ino))
}

pub fn missing() -> Damaged {
    Damaged { term: Term(1), missing: true, ranges: vec![(0, 64 << 20)], since_s: 7 }
}

fn tell(world: &mut World, damaged: impl IntoIterator<Item = (BlobId, Damaged)>) {
    world.part.state_mut().set_damaged(damaged.into_iter().collect::<BTreeMap<_, _>>());
}

fn lost(world: &World) -> Result<Vec<Lost>, String> {
    world.part.lost(100).map(|said| said.parts).map_err(|error| error.to_string())
}

fn damaged(world: &World) -> u64 {
    world.part.state().data_status().damaged_objects
}

#[test]
fn what_is_lost_keeps_nothing_else_away() -> Outcome {
    let (mut world, ino) = spread_out(6)?;
    let (blob, bytes) = world.objects.lose(2).ok_or("an object")?;
    // Nobody knows why moves fail.
    want(&mut world, ino, TierWant::Flash)?;
    pass(&mut world, 3)?;
    assert!(where_is(&mut world, ino)?.read_cache < 5 * PART, "others of its move stayed away, too");
    // They have just begun once more when it is found out.
    want(&mut world, ino, TierWant::Flash)?;
    world.now_ms += 30_000;
    world.tick()?;
    tell(&mut world, [(blob, missing())]);
    pass(&mut world, 3)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 5 * PART, "the others are back");
    let parts = lost(&world)?;
    let [Lost { fs, ino: of, off, len, object }] = parts[..] else { return Err(format!("{parts:?}")) };
    assert_eq!((fs, of, len, off % CHUNK), (FS, ino, PART, 0));
    assert_eq!(object, Some(LostObject { store: STORE, blob, term: Term(1), missing: true, since_s: 7 }));
    assert_eq!(damaged(&world), 1);
    for n in (0..6).filter(|n| n * CHUNK != off) {
        world.read_range(ino, n * CHUNK, PART)?;
    }

    // It is tried again now and then, however often it is wanted.
    let mut moves = 0;
    for _ in 0..120 {
        want(&mut world, ino, TierWant::Flash)?;
        world.now_ms += 1_000;
        world.tick()?;
        world.commit(usize::MAX)?;
        moves += world.jobs.len();
        while !world.jobs.is_empty() {
            world.run_job()?;
            world.finish_job()?;
        }
        for _ in 0..10 {
            world.answer_drive()?;
            world.commit(usize::MAX)?;
        }
    }
    assert!((1..=4).contains(&moves), "{moves} moves in two minutes");

    // It is found again.
    world.objects.find(blob, bytes);
    tell(&mut world, []);
    want(&mut world, ino, TierWant::Flash)?;
    pass(&mut world, 10)?;
    assert_eq!((where_is(&mut world, ino)?.read_cache, damaged(&world)), (6 * PART, 0));
    assert!(lost(&world)?.is_empty());
    world.check_all()
}

#[test]
fn only_what_is_damaged_is_lost() -> Outcome {
    let (mut world, _) = spread_out(2)?;
    let (blob, bytes) = world.objects.lose(0).ok_or("an object")?;
    world.objects.find(blob, bytes);
    tell(&mut world, [(blob, Damaged { missing: false, ranges: vec![(B, 2 * B), (5 * B + 7, 6 * B)], ..missing() })]);
    let parts: Vec<(u64, u64)> = lost(&world)?.into_iter().map(|part| (part.off % CHUNK, part.len)).collect();
    assert_eq!(parts, [(B, B), (5 * B + 7, B - 7)]);
    pass(&mut world, 2)?;
    assert_eq!((damaged(&world), world.part.state_mut().take_sound()), (1, vec![]));
    // Damage of what nothing names does not matter, and of another term's object neither.
    tell(&mut world, [(blob, Damaged { ranges: vec![(PART, 64 << 20)], ..missing() })]);
    pass(&mut world, 2)?;
    assert_eq!((damaged(&world), world.part.state_mut().take_sound()), (0, vec![blob]));
    tell(&mut world, [(blob, Damaged { term: Term(9), ..missing() })]);
    assert_eq!((damaged(&world), world.part.state_mut().take_sound()), (0, vec![blob]));
    Ok(())
}

#[test]
fn what_is_on_flash_too_is_put_into_another_object() -> Outcome {
    let (mut world, ino) = spread(3, policy())?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 3 * PART, "on flash and in objects");
    let (blob, _) = world.objects.lose(1).ok_or("an object")?;
    tell(&mut world, [(blob, missing())]);
    assert!(lost(&world)?.is_empty());
    // It does not leave flash meanwhile.
    want(&mut world, ino, TierWant::Object)?;
    pass(&mut world, 1)?;
    world.read(ino)?;
    // For an hour it may become better, and while flash cannot be read nothing else has it.
    pass_with_store(&mut world, 60)?;
    assert_eq!((damaged(&world), world.part.state_mut().take_sound()), (0, vec![]), "it is named still");
    world.now_ms += 3_600_000;
    pass_with_store(&mut world, 60)?;
    assert_eq!(where_is(&mut world, ino)?.object, 3 * PART, "all is in objects again");
    assert_eq!((damaged(&world), lost(&world)?.len()), (0, 0));
    assert!(world.part.state_mut().take_sound().contains(&blob), "nothing names it");
    tell(&mut world, []);
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 10)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 0);
    world.read(ino)?;
    world.check_all()
}

/// Nobody knows whether a store has its objects: what is on flash stays there, until somebody has looked.
#[test]
fn nothing_leaves_flash_for_a_store_in_doubt() -> Outcome {
    let (mut world, ino) = spread(3, TierPolicy { retention_s: 400, ..policy() })?;
    world.part.state_mut().set_trusted(BTreeSet::from([StoreId(2)]));
    world.now_ms += 500_000;
    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 10)?;
    set(&mut world, TierPolicy { retention_s: 400, flash_bytes: Some(PART), ..policy() });
    pass_with_store(&mut world, 10)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 3 * PART, "neither for its age, nor for room, nor for a wish");
    world.part.state_mut().set_trusted(BTreeSet::from([STORE]));
    set(&mut world, TierPolicy { retention_s: 400, ..policy() });
    pass_with_store(&mut world, 4)?;
    assert_eq!(where_is(&mut world, ino)?.read_cache, 0, "as soon as somebody has looked");
    world.read(ino)?;
    world.check_all()
}

#[test]
fn a_store_is_left_by_all_that_is_not_lost() -> Outcome {
    for next in [None, Some(StoreId(2))] {
        let (mut world, ino) = spread_out(5)?;
        let (blob, _) = world.objects.lose(3).ok_or("an object")?;
        tell(&mut world, [(blob, missing())]);
        set(&mut world, TierPolicy { writable: next, leaving: [STORE].into(), ..policy() });
        pass_with_store(&mut world, 80)?;
        assert_eq!(world.objects.in_store(STORE), 0, "all of it left");
        let parts = lost(&world)?;
        let [Lost { off, len: PART, .. }] = parts[..] else { return Err(format!("{parts:?}")) };
        // What is written meanwhile goes its way.
        write(&mut world, ino, 7 * CHUNK, &[9; PART as usize])?;
        pass_with_store(&mut world, 20)?;
        assert_eq!(where_is(&mut world, ino)?.write_cache > 0, next.is_none());
        // When it is written anew, nothing is left there.
        write(&mut world, ino, off, &[7; PART as usize])?;
        pass_with_store(&mut world, 40)?;
        assert_eq!((damaged(&world), lost(&world)?.len()), (0, 0));
        assert!(!world.part.state().data_status().stored.contains_key(&(FS, STORE)), "it can be detached");
        world.read(ino)?;
        world.check_all()?;
    }
    Ok(())
}

#[test]
fn a_partition_tells_of_its_objects() -> Outcome {
    let (mut world, ino) = spread_out(5)?;
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.part.state().objects(STORE, after, 2);
        assert!(
            page.objects.len() <= 2 && page.objects.iter().all(|object| object.present && object.size == PART as u32)
        );
        all.extend(page.objects.iter().map(|object| object.blob));
        after = all.last().copied();
        if !page.more {
            break;
        }
    }
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 5);
    assert!(world.part.state().objects(StoreId(2), None, 9).objects.is_empty());
    let judge = |world: &World, store, blob, term| world.part.state().judge(store, (blob, Term(term)));
    assert_eq!(judge(&world, STORE, all[0], 1), Judged::Present(PART as u32));
    assert_eq!(judge(&world, StoreId(2), all[0], 1), Judged::Elsewhere, "two stores over one bucket");
    assert_eq!(judge(&world, STORE, all[0], 0), Judged::Unknown, "an earlier term");
    assert_eq!(judge(&world, STORE, all[0], 2), Judged::Ahead);
    assert_eq!(judge(&world, STORE, BlobId::new(P, 1 << 40), 1), Judged::Ahead);

    // One on its way, and all others to be removed.
    write(&mut world, ino, 0, &[3; PART as usize])?;
    pass(&mut world, 20)?;
    let sent = world.objects.uploads.first().ok_or("nothing is sent")?.key.blob;
    assert_eq!(judge(&world, STORE, sent, 1), Judged::Passing);
    let page = world.part.state().objects(STORE, None, 99);
    assert!(page.objects.iter().any(|object| object.blob == sent && !object.present), "{page:?}");
    let removed = *all.iter().find(|blob| judge(&world, STORE, **blob, 1) == Judged::Passing).ok_or("none goes")?;
    pass_with_store(&mut world, 20)?;
    assert_eq!(judge(&world, STORE, removed, 1), Judged::Unknown, "its removal is confirmed");
    assert_eq!(judge(&world, STORE, sent, 1), Judged::Present(PART as u32));
    Ok(())
}
