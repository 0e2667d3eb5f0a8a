//! From when bytes count for the tier's rules, and what is told of what moves.

use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::TierWant;
use braid_base::msg::host::Tiering;
use braid_meta::TierPolicy;

use crate::cases::{Outcome, calm_world, write};
use crate::tier::{TIERED, pass, pass_with_store, policy, set, want, where_is};
use crate::world::{FS, World};

fn told(world: &World) -> Tiering {
    world.part.state().data_status().tiering[&FS]
}

#[test]
fn bytes_count_from_when_they_are_merged_copied_and_brought_back() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, TierPolicy { cue_s: 100_000, ..policy() });
    let all = 20 * BLOCK as u64;
    write(&mut world, ino, 0, &[1; 20 * BLOCK])?;
    let staged = where_is(&mut world, ino)?.ages;
    assert_eq!((staged.unmerged, staged.fresh_s, staged.copied_s), (all, None, None), "it is in the log");
    assert_eq!(told(&world).flash, all, "it will take room on flash");
    pass(&mut world, 20)?;
    let merged = where_is(&mut world, ino)?.ages;
    let (oldest, newest) = merged.fresh_s.expect("it counts");
    assert!(merged.unmerged == 0 && staged.now_s <= oldest && oldest <= newest && newest <= merged.now_s, "{merged:?}");
    pass(&mut world, 5)?;
    let later = where_is(&mut world, ino)?.ages;
    assert!(later.fresh_s == merged.fresh_s && later.now_s > merged.now_s, "time passes: {later:?}");
    assert_eq!(told(&world).moved.demoted, 0);

    want(&mut world, ino, TierWant::Object)?;
    pass_with_store(&mut world, 30)?;
    let far = where_is(&mut world, ino)?.ages;
    assert_eq!((far.unmerged, far.fresh_s, far.copied_s, far.lost), (0, None, None, 0));
    let moved = told(&world).moved;
    assert_eq!((moved.demoted, moved.released, moved.fetched, moved.rewritten), (all, all, 0, 0));

    world.read(ino)?;
    pass_with_store(&mut world, 10)?;
    let back = where_is(&mut world, ino)?.ages;
    assert!(back.copied_s.is_some_and(|(oldest, _)| oldest >= later.now_s), "{back:?}");
    assert!(back.read_s.is_some() && back.leaving == 0, "{back:?}");
    assert_eq!(told(&world).moved.fetched, all);
    Ok(())
}

#[test]
fn what_waits_for_the_store_is_told() -> Outcome {
    let (mut world, ino) = calm_world(TIERED)?;
    set(&mut world, policy());
    // As much in each of ten chunks as fills an object.
    for chunk in 0..10 {
        write(&mut world, ino, chunk * CHUNK, &[1; 8 * BLOCK])?;
    }
    assert_eq!((told(&world).due, told(&world).due_s), (0, None), "nothing is due");
    // The store does nothing: as much as may be is on its way, four objects, and the rest is due.
    pass(&mut world, 30)?;
    let waits = told(&world);
    assert!(waits.due > 0 && waits.due_s.is_some() && !waits.short && waits.waiting == 0, "{waits:?}");
    pass_with_store(&mut world, 60)?;
    assert_eq!((told(&world).due, told(&world).due_s), (0, None));
    for chunk in 0..10 {
        write(&mut world, ino, chunk * CHUNK, &[2; 4 * BLOCK])?;
    }
    pass_with_store(&mut world, 100)?;
    let moved = told(&world).moved;
    assert!(moved.rewritten > 0 && moved.reclaimed > 0, "objects were put together: {moved:?}");
    Ok(())
}
