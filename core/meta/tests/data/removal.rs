//! What goes with its last name, and what waits until nobody can have it open.

use braid_base::ErrorKind;
use braid_base::ids::{Ino, Vp};
use braid_base::keys::Table;
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::{Op, RenameMode};

use crate::cases::{Outcome, calm_world, count, pass, write};
use crate::model::Act;
use crate::world::{Wish, World};

/// Records of files, orphans, and bytes that are in use.
fn left(world: &World) -> (usize, usize, u64) {
    let records = [Table::Slice, Table::Base, Table::Punch].map(|table| count(world, table)).iter().sum();
    let status = world.part.state().data_status();
    (records, status.orphans, status.used_bytes)
}

fn open(world: &mut World, ino: Ino) -> Result<(), ErrorKind> {
    let opened = world.sync(Op::Open { ino, truncate: false }, Act::Other).expect("answered");
    opened.map(drop).map_err(|error| error.kind())
}

#[test]
fn a_small_file_goes_with_its_name_unless_it_is_open() -> Outcome {
    for (merged, held) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut world, ino) = calm_world(Wish::default())?;
        for block in 0..3 {
            write(&mut world, ino, block * 2 * BLOCK as u64, &[1; BLOCK])?;
        }
        for _ in 0..if merged { 40 } else { 0 } {
            pass(&mut world, 1_000)?;
        }
        if held {
            open(&mut world, ino).map_err(|kind| format!("{kind:?}"))?;
            world.opens.insert(ino, 1);
        }
        world.unlink_file(ino)?;
        let case = format!("merged {merged}, held {held}");
        if held {
            let (records, orphans, used) = left(&world);
            assert!(records > 0 && orphans == 1 && used == 3 * BLOCK as u64, "{case}");
            world.read(ino)?;
            world.close(ino)?;
            world.calm()?;
        }
        assert_eq!(left(&world), (0, 0, 0), "{case}");
        assert_eq!(open(&mut world, ino), Err(ErrorKind::Stale), "{case}");
        world.calm()?;
    }
    Ok(())
}

#[test]
fn of_a_large_file_a_part_goes_with_its_name_and_nobody_opens_the_rest() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    world.write(ino, (0..200).map(|n| (n * CHUNK, vec![1; 5])).collect(), false)?;
    pass(&mut world, 0)?;
    world.unlink_file(ino)?;
    let (records, orphans, _) = left(&world);
    assert!(records > 0 && records < 200 && orphans == 1, "{records} records");
    assert_eq!(open(&mut world, ino), Err(ErrorKind::Stale));
    world.calm()?;
    assert_eq!(left(&world), (0, 0, 0));
    Ok(())
}

#[test]
fn what_was_replaced_can_be_opened_for_a_moment() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 0, &[1; BLOCK])?;
    world.create()?;
    let name_of = |ino: Ino, world: &World| world.model.files[&ino].name.clone();
    let other = *world.model.files.keys().find(|other| **other != ino).ok_or("two files")?;
    let (from, to) = (name_of(other, &world), name_of(ino, &world));
    let dir = Ino::new(Vp(0), 1);
    let rename = Op::Rename { from_dir: dir, from, to_dir: dir, to, mode: RenameMode::Replace };
    world.opens.insert(ino, 1); // it will be
    world.sync(rename, Act::Unlink { ino })?.map_err(|e| e.to_string())?;
    assert_eq!(open(&mut world, ino), Ok(()), "who looked the name up before");
    world.read(ino)?;
    world.close(ino)?;
    pass(&mut world, 1_000)?;
    assert_eq!(left(&world), (0, 0, 0));
    Ok(())
}
