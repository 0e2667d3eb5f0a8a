//! Where the bytes of a file are, and asking for them to be elsewhere.

use std::sync::Arc;

use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::ids::{BlobId, Ino, PackId, PartitionId};
use braid_base::limits::CHUNK;
use braid_base::msg::fs::{Cred, Residency, TierWant};
use braid_base::record::{ObjectAt, Place, StripeAt};
use braid_client::Fs;
use braid_client::fs::Create;
use bytes::Bytes;

fn stand() -> (Arc<World>, Fs, Ino) {
    let world = World::new(1);
    world.server.state().tier.has_store = true;
    let fs = world.fs_behind(64 << 20);
    let create = Create { mode: 0o644, ..Create::default() };
    let ino = world.run(fs.create(Cred::default(), root(), b"file", create)).expect("create").ino;
    (world, fs, ino)
}

fn write(world: &World, fs: &Fs, ino: Ino, off: u64, len: u64) {
    let data = Bytes::from(vec![7; len as usize]);
    assert_eq!(world.run(fs.write(ino, off, data, false, false)).expect("write").len, len);
}

#[test]
fn all_pages_of_the_residency_are_added_up_and_what_is_held_back_counts() {
    let (world, fs, ino) = stand();
    assert_eq!(world.run(fs.residency(ino)), Ok(Residency::default()), "an empty file is nowhere");
    write(&world, &fs, ino, 0, 8 * CHUNK);
    write(&world, &fs, ino, 9 * CHUNK, 100);
    world.server.asked();
    let found = world.run(fs.residency(ino)).expect("residency");
    assert_eq!(found, Residency { write_cache: 8 * CHUNK + 100, ..Residency::default() });
    let asked = world.server.asked();
    assert_eq!(asked.iter().filter(|name| *name == "Residency").count(), 4, "ten chunks, three at a time: {asked:?}");
    // A chunk that is in an object, too, is counted on both sides.
    let stripe = StripeAt { pack: PackId::new(PartitionId(0), 1), sb: 0, ul: 64 };
    let object = ObjectAt { blob: BlobId::new(PartitionId(0), 9), off: 0 };
    for (at, extent) in &mut world.server.state().node(ino).expect("node").extents {
        match *at / CHUNK {
            0 => extent.place = Place::Flash { stripe, delta: 0, copy: Some(object) },
            1 => extent.place = Place::Object(object),
            _ => {}
        }
    }
    let found = world.run(fs.residency(ino)).expect("residency");
    let expected =
        Residency { write_cache: 6 * CHUNK + 100, read_cache: CHUNK, object: 2 * CHUNK, ..Residency::default() };
    assert_eq!(found, expected);
    for (off, len, far) in [(0, u64::MAX, CHUNK), (0, CHUNK, 0), (CHUNK - 1, 2, 1), (2 * CHUNK, 9, 0), (1 << 40, 1, 0)]
    {
        assert_eq!(world.run(fs.far_bytes(ino, off, len)), Ok(far), "{off}+{len}");
    }
}

#[test]
fn what_is_held_back_is_written_before_it_leaves() {
    let (world, fs, ino) = stand();
    write(&world, &fs, ino, 0, 2 * CHUNK);
    world.run(fs.tier(ino, 0, u64::MAX, TierWant::Object)).expect("it leaves");
    let found = world.run(fs.residency(ino)).expect("residency");
    assert_eq!(found, Residency { object: 2 * CHUNK, ..Residency::default() });
    let read = world.run(fs.read(ino, CHUNK - 5, 10)).expect("read");
    assert_eq!(&read[..], [7; 10]);
    world.run(fs.tier(ino, 0, CHUNK, TierWant::Flash)).expect("half comes back");
    let found = world.run(fs.residency(ino)).expect("residency");
    assert_eq!((found.write_cache, found.object), (CHUNK, CHUNK));
}

#[test]
fn a_large_file_is_asked_for_in_steps_that_leave_holes_out() {
    const STEP: u64 = 16 << 30;
    let (world, fs, ino) = stand();
    write(&world, &fs, ino, 5, 10);
    write(&world, &fs, ino, STEP + 7, 10);
    write(&world, &fs, ino, 9 * STEP + 7, 10);
    world.run(fs.tier(ino, 0, u64::MAX, TierWant::Object)).expect("it leaves");
    let asked: Vec<(u64, u64)> = world.server.state().tier.asked.drain(..).map(|(_, off, len, _)| (off, len)).collect();
    assert_eq!(asked, [(0, STEP), (STEP + 7, STEP), (9 * STEP + 7, 10)]);
    world.run(fs.tier(ino, 3, 5, TierWant::Flash)).expect("some bytes come back");
    assert_eq!(world.server.state().tier.asked, [(ino, 3, 5, TierWant::Flash)]);
}

#[test]
fn without_an_object_store_nothing_can_be_asked() {
    let (world, fs, ino) = stand();
    world.server.state().tier.has_store = false;
    let refused = world.run(fs.tier(ino, 0, 1, TierWant::Flash)).expect_err("no store");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}
