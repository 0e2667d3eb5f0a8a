//! Single rules, one at a time.

use braid_base::attr::SetAttr;
use braid_base::ids::{Chunk, DriveId, Index, Ino};
use braid_base::keys::{self, Table};
use braid_base::limits::{
    ASKED_AGAIN_MS, BLOCK, CHUNK, FILE_MAX, HELD_FULL_MS_MAX, HELD_MS_MAX, MERGE_SLICES_MAX, WRITE_MAX,
};
use braid_base::msg::fs::{FallocMode, Op, Reply};
use braid_base::record::{BaseRec, Record, StripeAt};
use braid_base::{ErrorKind, ids::Layer};
use braid_meta::{Event, StageLimits};
use braid_replica::{Batch, Kv};
use bytes::Bytes;

use crate::model::Act;
use crate::world::{FS, P, Wish, World};

const B: u64 = BLOCK as u64;

pub type Outcome = Result<(), String>;

pub fn calm_world(wish: Wish) -> Result<(World, Ino), String> {
    let world = World::new(1, Wish { chaos: false, ..wish })?;
    let ino = world.model.files.keys().next().copied().ok_or("no file")?;
    Ok((world, ino))
}

pub fn write_op(ino: Ino, off: u64, bytes: &[u8]) -> (Op, Act) {
    let parts = vec![(off, Bytes::copy_from_slice(bytes))];
    let op = Op::Write { ino, parts, append: false, kill_suid_sgid: true, at: None };
    (op, Act::Write { ino, parts: vec![(off, bytes.to_vec())], append: false })
}

pub fn write(world: &mut World, ino: Ino, off: u64, bytes: &[u8]) -> Outcome {
    let (op, act) = write_op(ino, off, bytes);
    world.sync(op, act)?.map(drop).map_err(|e| e.to_string())
}

/// The kind of error that the operation gets.
fn refused(world: &mut World, op: Op) -> Result<ErrorKind, String> {
    match world.sync_expecting_refusal(op)? {
        Err(error) => Ok(error.kind()),
        Ok(reply) => Err(format!("expected a refusal, found {reply:?}")),
    }
}

/// Time passes, moves and drives do their work, everything is committed.
pub fn pass(world: &mut World, ms: u64) -> Outcome {
    world.now_ms += ms;
    world.feed(Event::Tick)?;
    for _ in 0..40 {
        world.commit(usize::MAX)?;
        world.answer_drive()?;
        world.run_job()?;
        world.finish_job()?;
    }
    world.commit(usize::MAX)
}

pub fn count(world: &World, table: Table) -> usize {
    let prefix = keys::table(P, table);
    let mut count = 0;
    let scanned = world.kv.scan(&prefix, &keys::prefix_end(&prefix), &mut |_, _| {
        count += 1;
        true
    });
    scanned.expect("a map in memory is read");
    count
}

fn base(world: &World, ino: Ino, chunk: u32) -> Option<BaseRec> {
    let key = keys::base(P, FS, ino, Chunk(chunk), Layer::FIRST);
    let bytes = world.kv.get(&key).expect("a map in memory is read")?;
    Some(BaseRec::decode(&bytes).expect("the partition's own record"))
}

#[test]
fn limits_of_files_and_requests() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    assert_eq!(refused(&mut world, write_op(ino, FILE_MAX - 1, b"ab").0)?, ErrorKind::FileTooBig);
    assert_eq!(refused(&mut world, write_op(ino, u64::MAX - 1, b"abc").0)?, ErrorKind::FileTooBig);
    assert_eq!(refused(&mut world, write_op(ino, 0, &vec![1; WRITE_MAX + 1]).0)?, ErrorKind::Invalid);
    let set = SetAttr { size: Some(FILE_MAX + 1), ..SetAttr::default() };
    assert_eq!(refused(&mut world, Op::SetAttr { ino, set })?, ErrorKind::FileTooBig);
    let far = Op::Fallocate { ino, off: FILE_MAX, len: 1, mode: FallocMode::Allocate, keep_size: false };
    assert_eq!(refused(&mut world, far)?, ErrorKind::FileTooBig);
    assert_eq!(refused(&mut world, write_op(Ino(12_345), 0, b"a").0)?, ErrorKind::Stale);
    write(&mut world, ino, FILE_MAX - 1, b"z")?;
    world.read_range(ino, FILE_MAX - CHUNK, CHUNK)?;
    let wide = Op::Layout { ino, off: 0, len: u64::MAX, recall: false };
    assert_eq!(refused(&mut world, wide)?, ErrorKind::Invalid);
    world.check_all()
}

#[test]
fn nothing_to_write_changes_nothing() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let before = world.committed;
    let op = Op::Write { ino, parts: vec![(5, Bytes::new())], append: true, kill_suid_sgid: true, at: None };
    let reply = world.sync(op, Act::Other)?;
    assert!(matches!(reply, Ok(Reply::Wrote { off: 0, .. })), "{reply:?}");
    assert_eq!(world.committed, before);
    Ok(())
}

#[test]
fn a_write_of_others_clears_set_id_bits() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    for (mode, expected) in [(0o6775, 0o775), (0o6764, 0o2764), (0o2644, 0o2644), (0o4600, 0o600)] {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        world.sync(Op::SetAttr { ino, set }, Act::Other)?.map_err(|e| e.to_string())?;
        let (op, act) = write_op(ino, 0, b"x");
        let reply = world.sync(op, act)?;
        let Ok(Reply::Wrote { attr, .. }) = reply else { return Err(format!("{reply:?}")) };
        assert_eq!(attr.mode, expected, "from {mode:o}");
    }
    Ok(())
}

#[test]
fn a_full_partition_takes_overwrites_and_deletes() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    world.part.state_mut().set_capacity(90 * B);
    write(&mut world, ino, 0, &[1; 80 * BLOCK])?;
    world.part.state_mut().set_limit(FS, Some(85 * B));
    assert_eq!(refused(&mut world, write_op(ino, 80 * B, &[2; 5 * BLOCK + 1]).0)?, ErrorKind::NoSpace);
    world.part.state_mut().set_limit(FS, None);
    assert_eq!(refused(&mut world, write_op(ino, 80 * B, &[2; 10 * BLOCK + 1]).0)?, ErrorKind::NoSpace);
    let op = Op::Fallocate { ino, off: 0, len: 200 * B, mode: FallocMode::Allocate, keep_size: true };
    assert_eq!(refused(&mut world, op)?, ErrorKind::NoSpace);
    write(&mut world, ino, 0, &[3; 80 * BLOCK])?;
    write(&mut world, ino, 80 * B, &[2; 10 * BLOCK])?;
    let punch = Op::Fallocate { ino, off: 0, len: 50 * B, mode: FallocMode::Punch, keep_size: true };
    let act = Act::Hole { ino, from: 0, to: 50 * B, extend: false };
    world.sync(punch, act)?.map_err(|e| e.to_string())?;
    write(&mut world, ino, 200 * B, &[4; 50 * BLOCK])?;
    world.unlink_file(ino)?;
    world.calm()?;
    assert_eq!(world.part.state().data_status().used_bytes, 0);
    Ok(())
}

#[test]
fn what_large_writes_overwrite_is_merged_before_it_is_old_while_flash_is_short() -> Outcome {
    for (slots, short) in [(14, true), (200, false)] {
        let (mut world, ino) = calm_world(Wish { slots, ..Wish::default() })?;
        // Nothing is moved or merged for its age.
        let limits = StageLimits { cap_bytes: 8 << 20, start_bytes: 4 << 20, age_ms: 100_000_000 };
        world.part.state_mut().set_stage_limits(limits);
        write(&mut world, ino, 0, &[1; 10_000])?;
        for round in 0..40 {
            while world.write_laid(ino, 0, &[round | 1; 60_000])? == 0 {
                pass(&mut world, 250)?;
            }
            // Some of it is staged above the rest: that must not keep what lies below.
            if round % 7 == 0 {
                write(&mut world, ino, 4_000 * u64::from(round % 12), &[round; 3_000])?;
            }
            pass(&mut world, 250)?;
        }
        let slices = count(&world, Table::Slice);
        assert_eq!(slices < 20, short, "{slices} slices of 47 are left with {slots} slots per drive");
        world.read(ino)?;
    }
    Ok(())
}

#[test]
fn staged_bytes_stay_in_the_log_until_their_end_is_committed() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 3, b"precious")?;
    let at = world.committed;
    world.part.state_mut().want_stage_below(Index(at.0 + 1));
    for _ in 0..20 {
        world.feed(Event::Tick)?;
        world.commit(usize::MAX)?;
        (0..8).try_for_each(|_| world.answer_drive())?;
    }
    assert_eq!(world.jobs.len(), 1, "the log's wish starts a move at once");
    world.run_job()?;
    world.finish_job()?;
    assert!(!world.pending.is_empty(), "the move is proposed and not committed");
    assert_eq!(world.part.oldest_stage(), Some(at));
    world.trim()?;
    world.restart()?;
    world.read(ino)?;
    world.calm()?;
    assert_eq!(world.part.oldest_stage(), None);
    Ok(())
}

#[test]
fn without_drives_held_writes_end_and_deletes_go_on() -> Outcome {
    let (mut world, ino) = calm_world(Wish { cap_bytes: 20_000, ..Wish::default() })?;
    world.part.state_mut().set_drives(Vec::new());
    write(&mut world, ino, 0, &[1; 19_000])?;
    let (body, act) = write_op(ino, 50_000, &[2; 4_000]);
    let (op, _) = world.request(body.clone(), act)?;
    pass(&mut world, 1_000)?;
    assert_eq!(world.part.state().data_status().held, 1);
    pass(&mut world, HELD_FULL_MS_MAX / 2)?;
    let token = world.again(op, body)?;
    pass(&mut world, HELD_FULL_MS_MAX / 2)?;
    let reply = world.replies.remove(&token);
    assert!(matches!(&reply, Some(Err(e)) if e.kind() == ErrorKind::Io), "{reply:?}");
    // A delete makes room by itself: what it removes need not go to flash.
    let (op, act) = write_op(ino, 0, &[3; 4_000]);
    let (_, token) = world.request(op, act)?;
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size: 0 })?.map_err(|e| e.to_string())?;
    pass(&mut world, 1_000)?;
    let reply = world.replies.remove(&token);
    assert!(matches!(reply, Some(Ok(Reply::Wrote { .. }))), "{reply:?}");
    world.read(ino)
}

#[test]
fn while_drives_do_not_answer_held_writes_wait_longer_and_the_lack_is_not_called_one_of_space() -> Outcome {
    let (mut world, ino) = calm_world(Wish { cap_bytes: 20_000, ..Wish::default() })?;
    write(&mut world, ino, 0, &[1; 19_000])?;
    let (body, act) = write_op(ino, 50_000, &[2; 4_000]);
    let (op, mut token) = world.request(body.clone(), act)?;
    for waited_ms in (0..HELD_MS_MAX).step_by(10_000) {
        assert_eq!(world.part.state().data_status().held, 1, "after {waited_ms} ms");
        token = world.again(op, body.clone())?;
        world.now_ms += 10_000;
        world.feed(Event::Tick)?;
        world.commit(usize::MAX)?;
    }
    let reply = world.replies.remove(&token);
    assert!(matches!(&reply, Some(Err(e)) if e.kind() == ErrorKind::Io), "{reply:?}");
    Ok(())
}

#[test]
fn a_byte_counts_as_a_block() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let used = |world: &World| world.part.state().data_status().used_bytes;
    write(&mut world, ino, 0, &[1])?;
    assert_eq!(used(&world), B);
    write(&mut world, ino, 1, &[2; BLOCK - 1])?;
    assert_eq!(used(&world), B, "it fits");
    world.part.state_mut().set_capacity(B);
    assert_eq!(refused(&mut world, write_op(ino, B, &[3]).0)?, ErrorKind::NoSpace);
    world.unlink_file(ino)?;
    world.calm()?;
    assert_eq!(used(&world), 0);
    Ok(())
}

#[test]
fn what_is_allocated_is_kept_for_its_file() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    world.part.state_mut().set_capacity(90 * B);
    let used = |world: &World| world.part.state().data_status().used_bytes;
    let allocate = |world: &mut World, off: u64, len: u64| {
        let op = Op::Fallocate { ino, off, len, mode: FallocMode::Allocate, keep_size: true };
        world.sync(op, Act::Other)?.map_err(|e| e.to_string()).map(drop)
    };
    write(&mut world, ino, 10 * B, &[1; 10 * BLOCK])?;
    for _ in 0..2 {
        allocate(&mut world, 0, 60 * B)?;
        assert_eq!(used(&world), 60 * B, "what is held or kept already is not asked for twice");
    }
    assert_eq!(refused(&mut world, write_op(ino, 100 * B, &[2; 30 * BLOCK + 1]).0)?, ErrorKind::NoSpace);
    allocate(&mut world, 60 * B, 30 * B)?;
    assert_eq!(refused(&mut world, write_op(ino, 100 * B, &[2; 1]).0)?, ErrorKind::NoSpace);
    write(&mut world, ino, 5 * B, &[3; 80 * BLOCK])?;
    assert_eq!(used(&world), 90 * B);
    let punch = Op::Fallocate { ino, off: 80 * B, len: 10 * B, mode: FallocMode::Punch, keep_size: true };
    let act = Act::Hole { ino, from: 80 * B, to: 90 * B, extend: false };
    world.sync(punch, act)?.map_err(|e| e.to_string())?;
    assert_eq!(used(&world), 80 * B, "what was written there and what was kept");
    let zero = Op::Fallocate { ino, off: 70 * B, len: 20 * B, mode: FallocMode::Zero, keep_size: true };
    let act = Act::Hole { ino, from: 70 * B, to: 90 * B, extend: false };
    world.sync(zero, act)?.map_err(|e| e.to_string())?;
    assert_eq!(used(&world), 90 * B);
    world.restart()?;
    write(&mut world, ino, 0, &[4; 5 * BLOCK])?;
    write(&mut world, ino, 70 * B, &[5; 20 * BLOCK])?;
    assert_eq!(used(&world), 90 * B);
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size: 0 })?.map_err(|e| e.to_string())?;
    allocate(&mut world, 0, 50 * B)?;
    world.calm()?;
    assert_eq!(used(&world), 50 * B);
    world.unlink_file(ino)?;
    world.calm()?;
    assert_eq!(used(&world), 0);
    Ok(())
}

#[test]
fn what_is_kept_for_a_file_in_many_chunks_is_never_more_than_it_uses() -> Outcome {
    const MANY: u64 = 40;
    let (mut world, ino) = calm_world(Wish::default())?;
    world.part.state_mut().set_capacity(200 * CHUNK);
    let one_in_each = |world: &mut World, first: u64| {
        (first..first + MANY).try_for_each(|chunk| write(world, ino, chunk * CHUNK, &[7; 100]))
    };
    let fallocate = |world: &mut World, off: u64, len: u64, mode: FallocMode, act: Act| {
        world.sync(Op::Fallocate { ino, off, len, mode, keep_size: true }, act)
    };
    let truncate = |world: &mut World, size: u64| -> Outcome {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size })?.map_err(|e| e.to_string())?;
        world.calm()
    };
    for round in 0..2 {
        one_in_each(&mut world, 0)?;
        fallocate(&mut world, MANY * CHUNK, 2 * MANY * CHUNK, FallocMode::Allocate, Act::Other)?
            .map_err(|e| format!("round {round}: {e}"))?;
        one_in_each(&mut world, MANY)?;
        truncate(&mut world, 0)?;
        assert_eq!(world.part.state().data_status().used_bytes, 0, "round {round}");
        fallocate(&mut world, 0, 2 * MANY * CHUNK, FallocMode::Allocate, Act::Other)?.map_err(|e| e.to_string())?;
        one_in_each(&mut world, 0)?;
        truncate(&mut world, CHUNK)?;
        let used = world.part.state().data_status().used_bytes;
        assert!((100..=CHUNK).contains(&used), "round {round}: {used}");
        truncate(&mut world, 0)?;
    }
    // Between two pieces at the ends of the largest file nothing is paid for: to zero it is refused.
    let far = FILE_MAX - 4096;
    for off in [0, far] {
        fallocate(&mut world, off, 4096, FallocMode::Allocate, Act::Other)?.map_err(|e| e.to_string())?;
    }
    for mode in [FallocMode::Zero, FallocMode::Allocate] {
        let op = Op::Fallocate { ino, off: 0, len: FILE_MAX, mode, keep_size: true };
        assert_eq!(refused(&mut world, op)?, ErrorKind::NoSpace, "{mode:?}");
    }
    assert_eq!(world.part.state().data_status().used_bytes, 8192);
    Ok(())
}

#[test]
fn a_held_write_that_nobody_asks_for_any_more_is_never_made() -> Outcome {
    let (mut world, ino) = calm_world(Wish { cap_bytes: 20_000, ..Wish::default() })?;
    world.part.state_mut().set_drives(Vec::new());
    write(&mut world, ino, 0, &[1; 19_000])?;
    let (body, act) = write_op(ino, 50_000, &[2; 4_000]);
    let (_, token) = world.request(body, act)?;
    pass(&mut world, ASKED_AGAIN_MS)?;
    let reply = world.replies.remove(&token);
    assert!(matches!(&reply, Some(Err(e)) if e.kind() == ErrorKind::Busy), "{reply:?}");
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size: 0 })?.map_err(|e| e.to_string())?;
    pass(&mut world, 1_000)?;
    world.read(ino)
}

#[test]
fn a_broken_record_stops_writes_and_keeps_the_log() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    world.feed(Event::Tick)?; // the primary has begun: what is written ages
    write(&mut world, ino, 0, b"abc")?;
    world.calm()?;
    write(&mut world, ino, 0, b"def")?;
    let key = keys::base(P, FS, ino, Chunk(0), Layer::FIRST);
    let mut batch = Batch::new();
    batch.put(key, vec![9]);
    world.kv.apply(&batch).map_err(|e| e.to_string())?;
    world.now_ms += 10_000;
    let stopped = world.feed(Event::Tick);
    assert!(stopped.is_err_and(|message| message.contains("the partition stopped")));
    assert_eq!(world.part.oldest_stage(), Some(Index(0)));
    let fault = world.part.state().fault().map(braid_base::Error::kind);
    assert_eq!(fault, Some(ErrorKind::Corrupt));
    Ok(())
}

#[test]
fn thousands_of_slices_merge_in_bounded_entries() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let count = 2 * MERGE_SLICES_MAX as u64 + 100;
    for n in 0..count {
        let (op, act) = write_op(ino, n * 2, &[n as u8 | 1]);
        world.request(op, act)?;
    }
    world.calm()?;
    assert_eq!(self::count(&world, Table::Slice), 0);
    let extents = base(&world, ino, 0).map(|base| base.extents.len());
    assert!(extents.is_some_and(|count| count <= 4), "gaps inside blocks are filled: {extents:?}");
    Ok(())
}

#[test]
fn a_chunk_cut_to_crumbs_is_put_together() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 0, &[7; CHUNK as usize])?;
    world.calm()?;
    for n in 0..1_100 {
        let (from, to) = (n * 900 + 5, n * 900 + 8);
        let op = Op::Fallocate { ino, off: from, len: to - from, mode: FallocMode::Punch, keep_size: true };
        world.request(op, Act::Hole { ino, from, to, extend: false })?;
    }
    world.calm()?;
    let extents = base(&world, ino, 0).map_or(0, |base| base.extents.len());
    assert!((1..=256).contains(&extents), "{extents} extents");
    Ok(())
}

#[test]
fn a_file_of_thousands_of_chunks_goes_in_bounded_entries() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    for first in (0..3_000).step_by(500) {
        let parts: Vec<_> = (first..first + 500).map(|n| (n * CHUNK + 9, vec![1; 5])).collect();
        world.write(ino, parts, false)?;
    }
    pass(&mut world, 5_000)?;
    let set = SetAttr { size: Some(5 * CHUNK), ..SetAttr::default() };
    world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size: 5 * CHUNK })?.map_err(|e| e.to_string())?;
    let set = SetAttr { size: Some(2_900 * CHUNK), ..SetAttr::default() };
    world.sync(Op::SetAttr { ino, set }, Act::Truncate { ino, size: 2_900 * CHUNK })?.map_err(|e| e.to_string())?;
    world.read_range(ino, 0, 1_000 * CHUNK)?;
    write(&mut world, ino, 2_000 * CHUNK, b"after")?;
    pass(&mut world, 5_000)?;
    world.read_range(ino, 1_950 * CHUNK, 1_000 * CHUNK)?;
    world.unlink_file(ino)?;
    world.calm()?;
    let status = world.part.state().data_status();
    assert_eq!((status.used_bytes, count(&world, Table::Base)), (0, 0));
    Ok(())
}

#[test]
fn an_emptied_partition_keeps_no_pack_open() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 0, &vec![7; 100_000])?;
    for _ in 0..40 {
        pass(&mut world, 1_000)?;
    }
    let before = world.part.state().data_status();
    assert!(before.open > 0 && before.live_bytes > 0, "{before:?}");
    world
        .sync(
            Op::SetAttr { ino, set: SetAttr { size: Some(0), ..SetAttr::default() } },
            Act::Truncate { ino, size: 0 },
        )?
        .map_err(|e| e.to_string())?;
    for _ in 0..40 {
        pass(&mut world, 1_000)?;
    }
    let emptied = world.part.state().data_status();
    assert_eq!(
        (emptied.live_bytes, count(&world, Table::Stripe), count(&world, Table::Hint)),
        (0, 0, 0),
        "{emptied:?}"
    );
    for _ in 0..120 {
        pass(&mut world, 1_000)?;
    }
    assert_eq!((world.part.state().data_status().shards.len(), count(&world, Table::Pack)), (0, 0));
    write(&mut world, ino, 0, b"and takes data again")?;
    for _ in 0..40 {
        pass(&mut world, 1_000)?;
    }
    assert_eq!(world.part.state().data_status().staged_bytes, 0);
    world.check_all()
}

#[test]
fn a_pack_is_free_again_once_clients_gave_up_what_was_lent_of_it() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let (mut back, mut lent_blocks) = (Vec::new(), 0);
    for _ in 0..20 {
        let Ok(Reply::Space(lent)) = world.sync(Op::GetSpace { ino, bytes: 300_000, back }, Act::Other)? else {
            return Err("no space".into());
        };
        back = lent.iter().map(|(at, _)| *at).collect();
        lent_blocks += back.iter().map(|at| u32::from(at.ul)).sum::<u32>();
        // In two parts, and one of them once too often: the second time means nothing.
        if let Some(first) = back.first_mut().filter(|at| at.ul > 1) {
            let rest = StripeAt { sb: first.sb + 1, ul: first.ul - 1, ..*first };
            first.ul = 1;
            back.extend([rest, rest]);
        }
        pass(&mut world, 500)?;
    }
    let status = world.part.state().data_status();
    assert!(lent_blocks > 256 && status.sealed + status.dead <= 8, "{lent_blocks} blocks of 4 shards each: {status:?}");
    world.check_all()
}

#[test]
fn a_drive_that_others_filled_is_asked_again_soon() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    let slots = world.wish.slots;
    write(&mut world, ino, 0, b"now the drives say how much is free")?;
    pass(&mut world, 1_000)?;
    world.wish.slots = 0;
    write(&mut world, ino, B, &vec![1; 50_000])?;
    for _ in 0..30 {
        pass(&mut world, 1_000)?;
    }
    assert!(world.part.state().data_status().staged_bytes > 0, "there is no slot");
    world.wish.slots = slots;
    for _ in 0..3 {
        pass(&mut world, 1_000)?;
    }
    assert_eq!(world.part.state().data_status().staged_bytes, 0);
    world.check_all()
}

#[test]
fn full_narrow_packs_are_put_together_in_wider_ones() -> Outcome {
    const PIECE: usize = 16 * BLOCK;
    let (mut world, ino) = calm_world(Wish { slots: 20, ..Wish::default() })?;
    let mut written = 0;
    let mut fill = |world: &mut World, pieces: u64| -> Outcome {
        for _ in 0..pieces {
            write(world, ino, written * CHUNK, &[written as u8 | 1; PIECE])?;
            written += 1;
            (0..8).try_for_each(|_| pass(world, 500))?;
        }
        Ok(())
    };
    // Two pairs of drives, one after the other: packs of one data shard, a pair of slots for each piece.
    for pair in [[1, 2], [3, 4]] {
        world.part.state_mut().set_drives(pair.map(DriveId).to_vec());
        fill(&mut world, 17)?;
    }
    world.part.state_mut().set_drives((1..=4).map(DriveId).collect::<Vec<_>>());
    // Packs of three drives hold 48 pieces in the same slots.
    fill(&mut world, 9)?;
    for _ in 0..60 {
        pass(&mut world, 1_000)?;
    }
    let status = |world: &World| world.part.state().data_status();
    assert_eq!(status(&world).staged_bytes, 0, "{:?}", status(&world));
    // It ends when there is nothing more to gain.
    let newest = |world: &World| world.kv.get(&keys::meta(P, "pack")).expect("a map in memory is read");
    for _ in 0..600 {
        pass(&mut world, 1_000)?;
    }
    let then = newest(&world);
    for _ in 0..60 {
        pass(&mut world, 1_000)?;
    }
    assert_eq!(newest(&world), then, "{:?}", status(&world));
    world.read(ino)?;
    world.check_all()
}

#[test]
fn writes_that_wait_for_a_chunk_larger_than_what_room_is_left_are_told() -> Outcome {
    // Three slots of each drive, so four packs of two data shards.
    let (mut world, ino) = calm_world(Wish { slots: 4, cap_bytes: 400_000, ..Wish::default() })?;
    for number in 0..7 {
        write(&mut world, ino, number * CHUNK, &[1; 16 * BLOCK])?;
        (0..8).try_for_each(|_| pass(&mut world, 500))?;
    }
    assert_eq!(world.part.state().data_status().staged_bytes, 0);
    write(&mut world, ino, 10 * CHUNK, &[2; 80 * BLOCK])?;
    let (body, act) = write_op(ino, 20 * CHUNK, &[3; 40 * BLOCK]);
    let (op, mut token) = world.request(body.clone(), act)?;
    for _ in 0..HELD_FULL_MS_MAX / 5_000 {
        assert_eq!(world.part.state().data_status().held, 1);
        token = world.again(op, body.clone())?;
        pass(&mut world, 5_000)?;
    }
    let reply = world.replies.remove(&token);
    assert!(matches!(&reply, Some(Err(e)) if e.kind() == ErrorKind::NoSpace), "{reply:?}");
    Ok(())
}

#[test]
fn what_is_about_to_be_removed_is_not_moved() -> Outcome {
    let (mut world, ino) = calm_world(Wish::default())?;
    write(&mut world, ino, 0, &[1; BLOCK])?;
    for _ in 0..10 {
        pass(&mut world, 1_000)?;
    }
    let status = world.part.state().data_status();
    assert!(status.staged_bytes == 0 && status.open > 0, "there is room for a move: {status:?}");
    write(&mut world, ino, B, &[2; 10 * BLOCK])?;
    world.unlink_file(ino)?;
    world.part.state_mut().want_stage_below(Index(world.committed.0 + 1));
    world.feed(Event::Tick)?;
    world.commit(usize::MAX)?;
    assert_eq!(world.part.state().data_status().moves, 0);
    world.calm()
}
