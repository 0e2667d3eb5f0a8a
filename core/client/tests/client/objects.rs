//! Objects: what is put into them, reading from them, and how long a layout holds that names them.

use std::future::ready;
use std::sync::{Arc, Mutex};

use crate::model::drives::Fault;
use crate::model::files::placement;
use crate::model::history::dice;
use crate::model::{World, root};
use braid_base::ids::{BlobId, FsId, Ino, PartitionId, StoreId, Term};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::drive::{DriveOp, ShardId};
use braid_base::msg::fs::Cred;
use braid_base::msg::job::{BlockRun, Job, ObjectKey, Part, RemoveJob, Source, UploadJob};
use braid_base::record::{PackClass, Place, Placement};
use braid_base::{ErrorKind, Result};
use braid_client::fs::{Create, WireStage};
use braid_client::objects::Objects;
use braid_client::{BoxFuture, Fs, mover};
use bytes::Bytes;

/// An object and what it was said to be.
type Put = (ObjectKey, Vec<BlockRun>, Vec<Bytes>);

/// What was asked of a store.
#[derive(Default)]
struct Store {
    put: Mutex<Vec<Put>>,
    removed: Mutex<Vec<ObjectKey>>,
}

impl Objects for Store {
    fn put(&self, key: ObjectKey, _fs: FsId, runs: Vec<BlockRun>, data: Vec<Bytes>) -> BoxFuture<Result<()>> {
        self.put.lock().expect("store").push((key, runs, data));
        Box::pin(ready(Ok(())))
    }

    fn remove(&self, key: ObjectKey) -> BoxFuture<Result<()>> {
        self.removed.lock().expect("store").push(key);
        Box::pin(ready(Ok(())))
    }
}

const BLOB: u64 = 9;

fn blob() -> BlobId {
    BlobId::new(PartitionId(0), BLOB)
}

fn key() -> ObjectKey {
    ObjectKey { store: StoreId(1), blob: blob(), term: Term(1) }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = dice(seed);
    (0..len).map(|_| dice(256) as u8).collect()
}

fn stage(fs: &Fs) -> WireStage {
    WireStage { session: fs.session().clone(), fs: FsId(1), partition: PartitionId(0) }
}

fn file(world: &World, fs: &Fs, name: &str, content: &[u8]) -> Ino {
    let ino = world.run(fs.create(Cred::default(), root(), name.as_bytes(), Create::default())).expect("create").ino;
    for (at, part) in content.chunks(CHUNK as usize).enumerate() {
        let data = Bytes::copy_from_slice(part);
        world.run(fs.write(ino, at as u64 * CHUNK, data, false, false)).expect("write");
    }
    // What was written to a moment ago is not worth to be remembered.
    world.run(world.clock.sleep(20));
    ino
}

/// Moves all of `ino` to flash.
fn destage(world: &Arc<World>, fs: &Fs, ino: Ino) {
    destage_to(world, fs, ino, placement(4, 2));
}

fn destage_to(world: &Arc<World>, fs: &Fs, ino: Ino, place: Placement) {
    let (job, moved) = world.server.state().plan_destage(ino, &place, 1 << 20);
    for plan in &job.stripes {
        for (shard, drive) in place.drives.iter().enumerate() {
            let id = ShardId { pack: plan.at.pack, shard: shard as u8 };
            let (class, term) = (PackClass::Destage, Term(1));
            let (data, parity) = (place.data, place.parity);
            let op = DriveOp::Create { id, data, parity, class, term, fs: FsId(1) };
            world.run(world.drives.ask(*drive, op)).expect("create");
        }
    }
    world.run(mover::move_bytes(fs.reader(), &stage(fs), &job)).expect("the move succeeds");
    world.server.state().commit_destage(ino, &moved);
}

/// The parts of all of `ino`, padded to blocks, as many bytes each as `step` says.
fn parts_of(world: &World, ino: Ino, step: u32) -> Vec<Part> {
    let layout = world.server.state().layout(ino, 0, 1 << 29).expect("the file is there");
    let placement = |place| match place {
        Place::Flash { stripe, .. } => {
            layout.packs.iter().find(|(pack, _)| *pack == stripe.pack).map(|(_, p)| p.clone())
        }
        _ => None,
    };
    let mut parts = Vec::new();
    for (_, extent) in &layout.extents {
        for off in (0..extent.len).step_by(step as usize) {
            let place = extent.place.advanced(off);
            parts.push(Part { len: step.min(extent.len - off), from: Source::At(place, placement(place)) });
        }
    }
    let rest = (layout.size as usize).next_multiple_of(BLOCK) - layout.size as usize;
    if rest > 0 {
        parts.push(Part { len: rest as u32, from: Source::Zero });
    }
    parts
}

#[test]
fn an_object_is_gathered_with_few_reads() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise((3 << 20) + 777, 1);
    let ino = file(&world, &fs, "f", &content);
    destage(&world, &fs, ino);
    for (step, most) in [(4096, 20), (1 << 20, 20), (1000, 20)] {
        let parts = parts_of(&world, ino, step);
        let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
        let runs = vec![BlockRun { ino, block: 0, blocks: (bytes / BLOCK as u64) as u32 }];
        let store = Store::default();
        let job = Job::Upload(UploadJob { id: 1, key: key(), fs: FsId(1), runs: runs.clone(), parts });
        world.drives.reads();
        world.run(mover::run(fs.reader(), &stage(&fs), &store, &job)).expect("it is put there");
        let reads = world.drives.reads().len();
        assert!(reads <= most, "{reads} reads for parts of {step} bytes");
        let put = store.put.into_inner().expect("store");
        let [(_, found, data)] = &put[..] else { panic!("{} objects", put.len()) };
        assert_eq!(*found, runs);
        assert!(data.iter().all(|part| part.len().is_multiple_of(BLOCK)), "whole blocks in each piece");
        let whole = data.concat();
        assert!(whole[..content.len()] == content && whole[content.len()..].iter().all(|byte| *byte == 0));
    }
    let store = Store::default();
    let bad = UploadJob { id: 1, key: key(), fs: FsId(1), runs: Vec::new(), parts: parts_of(&world, ino, 4096) };
    let refused = world.run(mover::run(fs.reader(), &stage(&fs), &store, &Job::Upload(bad)));
    assert_eq!(refused.expect_err("no block was planned").kind(), ErrorKind::Invalid);
    let remove = Job::Remove(RemoveJob { id: 2, key: key() });
    world.run(mover::run(fs.reader(), &stage(&fs), &store, &remove)).expect("it is removed");
    assert_eq!(*store.removed.lock().expect("store"), [key()]);
}

/// A file whose content lies in an object, from byte `off` of that on.
fn in_object(world: &Arc<World>, fs: &Fs, content: &[u8], off: u32, stays: bool) -> Ino {
    let ino = file(world, fs, "f", content);
    destage(world, fs, ino);
    name_object(world, ino, content, off, stays);
    ino
}

fn name_object(world: &World, ino: Ino, content: &[u8], off: u32, stays: bool) {
    let mut state = world.server.state();
    let mut data = vec![0; off as usize];
    data.extend_from_slice(content);
    state.objects.insert(blob(), data.into());
    state.name_object(ino, blob(), off, stays);
}

#[test]
fn reads_of_objects_are_cut_as_stores_answer() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise((5 << 20) + 777, 2);
    let ino = in_object(&world, &fs, &content, 300 << 10, false);
    for (off, len) in [(0, 160), (content.len() - 160, 160), (0, content.len()), ((1 << 20) - 3, 2 << 20)] {
        for direct in [false, true] {
            let read = async {
                match direct {
                    true => fs.read_direct(ino, off as u64, len as u64).await,
                    false => fs.read(ino, off as u64, len as u64).await,
                }
            };
            assert!(world.run(read).expect("it is there") == content[off..off + len], "{off}+{len} differs");
        }
    }
    world.server.state().objects.clear();
    let error = world.run(fs.read(ino, 0, 10)).expect_err("somebody removed it");
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn what_too_few_drives_have_comes_from_its_object() {
    let world = World::new(1);
    let fs = world.fs();
    let content = noise(2 << 20, 3);
    let ino = in_object(&world, &fs, &content, 4096, true);
    world.run(fs.read(ino, 0, 1 << 20)).expect("from flash");
    assert!(!world.server.asked().iter().any(|op| op == "ReadObject"));
    (0..3).for_each(|drive| world.drives.break_it(drive, Fault::Empty));
    assert!(world.run(fs.read(ino, 5, 1 << 20)).expect("from the object") == content[5..5 + (1 << 20)]);
    assert!(world.server.asked().iter().any(|op| op == "ReadObject"));
    // So does what is put into another one.
    let (store, parts) = (Store::default(), parts_of(&world, ino, 4096));
    let runs = vec![BlockRun { ino, block: 0, blocks: 512 }];
    let job = Job::Upload(UploadJob { id: 1, key: key(), fs: FsId(1), runs, parts });
    world.run(mover::run(fs.reader(), &stage(&fs), &store, &job)).expect("it is put there");
    assert!(store.put.lock().expect("store")[0].2.concat() == content);
    world.server.state().objects.clear();
    assert_eq!(world.run(fs.read(ino, 0, 1 << 20)).expect_err("nowhere").kind(), ErrorKind::Io);
}

/// Nothing makes up for a drive without parity, and nobody waits long for it.
#[test]
fn what_lies_on_one_drive_comes_from_its_object_when_that_is_late() {
    for fault in [Fault::Silent, Fault::Broken, Fault::Empty, Fault::Corrupt, Fault::Lies] {
        let world = World::new(1);
        let fs = world.fs();
        let content = noise(1 << 20, 5);
        let ino = file(&world, &fs, "f", &content);
        let place = placement(1, 0);
        destage_to(&world, &fs, ino, place.clone());
        name_object(&world, ino, &content, 0, true);
        world.run(fs.read(ino, 0, 4096)).expect("from flash");
        assert!(!world.server.asked().iter().any(|op| op == "ReadObject"));
        world.drives.break_it(place.drives[0].0, fault);
        for most_ms in [2_000, 100] {
            let begun_ms = world.clock.now_ms();
            assert!(world.run(fs.read(ino, 5, 1 << 20)).expect("from the object") == content[5..]);
            let took_ms = world.clock.now_ms() - begun_ms;
            assert!(took_ms <= most_ms, "{fault:?}: {took_ms} ms");
        }
        // Without the object the drive is the last hope.
        world.server.state().objects.clear();
        assert!(world.run(fs.read(ino, 0, 4096)).is_err());
        world.drives.mend_all();
        assert!(world.run(fs.read(ino, 0, 4096)).expect("from flash") == content[..4096], "{fault:?}");
    }
}

#[test]
fn a_reader_that_brings_nothing_back_is_read_ahead_of() {
    let world = World::new(1);
    read_ahead_of(&world, &world.fs_behind(8 << 20));
    // Also where nothing else goes on in the background.
    let world = World::new(1);
    let fs = world.fs();
    fs.go_on_in(world.clone());
    read_ahead_of(&world, &fs);
}

fn read_ahead_of(world: &Arc<World>, fs: &Fs) {
    let content = noise(20 << 20, 4);
    let ino = in_object(world, fs, &content, 0, false);
    world.server.state().recalls.clear();
    let (mut out, step) = (Vec::new(), 128 << 10);
    for off in (0..content.len()).step_by(step) {
        out.extend_from_slice(&world.run(fs.read_direct(ino, off as u64, step as u64)).expect("it is there"));
        // What goes on beside it gets a turn.
        world.run(world.clock.sleep(1));
    }
    assert!(out == content);
    assert!(!world.server.state().recalls.contains(&true), "nothing is to come back");
    let asked = world.server.asked().iter().filter(|op| *op == "ReadObject").count();
    assert!(asked <= 30, "{asked} requests for 20 MiB");
}
