//! The view fails in the middle of a change: then nobody is told that a file holds something else than before.

use braid_base::ids::{ClientId, Ino, OpId, Vp};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::{Cred, FsResult, Layout, Op, Reply, Request};
use braid_base::{Error, ErrorKind};
use braid_meta::{Effect, Event, Now, Token};
use bytes::Bytes;

use crate::cases::{Outcome, calm_world, pass, write};
use crate::world::{FS, Wish, World};

/// More reads than any of these changes does.
const READS_MAX: u64 = 1_000;

/// What somebody else is answered at once; `None`: it waits for a commit.
fn ask(world: &mut World, seq: u64, body: Op) -> Option<FsResult> {
    let op = OpId { client: ClientId(99), seq };
    let request = Request { op, session: 0, done_upto: 0, fs: FS, cred: Cred::default(), early: false, body };
    let mut effects = Vec::new();
    let now = Now { mono_ms: world.now_ms, ..Now::default() };
    world.part.step(now, Event::Request(Token(u64::MAX), request), &mut effects);
    effects.into_iter().find_map(|effect| match effect {
        Effect::Reply(Token(u64::MAX), answer) => Some(answer.result),
        _ => None,
    })
}

/// Where the bytes of the file are, as the partition says.
fn shown(world: &mut World, ino: Ino) -> Result<Layout, ErrorKind> {
    let layout = ask(world, 1, Op::Layout { ino, off: 0, len: 3 * CHUNK, recall: false });
    match layout.expect("all is committed").map_err(|error| error.kind())? {
        Reply::Layout(layout) => Ok(layout),
        other => panic!("a layout was asked for, {other:?} came"),
    }
}

/// A file with a block in each of three chunks, on flash, and newer ones in the log.
fn rewritten() -> Result<(World, Ino), String> {
    let (mut world, ino) = calm_world(Wish::default())?;
    for content in [1, 2] {
        for chunk in 0..3 {
            write(&mut world, ino, chunk * CHUNK, &[content; BLOCK])?;
        }
        for _ in 0..if content == 1 { 40 } else { 0 } {
            pass(&mut world, 1_000)?;
        }
    }
    Ok((world, ino))
}

/// Lets each read of `change` be the first that fails, in turn, until it does without one more: then it has succeeded. What
/// is shown of the file after a failure is what was shown before, or nothing; each in some of the cases. `stops`: writes stop
/// in all of the former, too.
fn fails_at_each_read(stops: bool, prepare: fn(&mut World) -> Outcome, change: fn(&mut World, Ino) -> bool) -> Outcome {
    let (mut same, mut refused, mut went_on) = (0, 0, false);
    for reads in 0..READS_MAX {
        let (mut world, ino) = rewritten()?;
        prepare(&mut world)?;
        let before = shown(&mut world, ino);
        assert!(before.is_ok(), "{before:?}");
        world.kv.fail_after(reads);
        let succeeds = change(&mut world, ino);
        world.kv.heal();
        if succeeds {
            assert!(same > 0 && refused > 0, "{same} times as before, {refused} times nothing");
            assert_eq!(went_on, !stops);
            return Ok(());
        }
        match shown(&mut world, ino) {
            Err(kind) => {
                assert_eq!(kind, ErrorKind::Stopped, "read {reads}");
                let fault = world.part.state().fault().map(Error::kind);
                assert_eq!(fault, Some(ErrorKind::Io), "read {reads}");
                refused += 1;
            }
            after => {
                assert_eq!(after, before, "read {reads}");
                let has_stopped = world.part.state().fault().is_some();
                assert!(has_stopped || !stops, "read {reads}");
                went_on |= !has_stopped;
                same += 1;
            }
        }
    }
    Err(format!("more than {READS_MAX} reads"))
}

#[test]
fn a_move_that_fails_half_way_hides_nothing() -> Outcome {
    let moved = |world: &mut World| {
        while world.done.is_empty() {
            world.now_ms += 1_000;
            world.feed(Event::Tick)?;
            world.commit(usize::MAX)?;
            world.answer_drive()?;
            world.run_job()?;
        }
        Ok(())
    };
    fails_at_each_read(true, moved, |world, _| {
        let (id, _) = world.done.remove(0);
        world.feed(Event::JobDone(id, Ok(()))).is_ok()
    })
}

#[test]
fn a_removal_that_fails_half_way_hides_nothing() -> Outcome {
    let unlink = |world: &mut World, ino: Ino| {
        let name = world.model.files[&ino].name.clone();
        match ask(world, 2, Op::Unlink { dir: Ino::new(Vp(0), 1), name, told: None, alone: false }) {
            Some(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                false
            }
            _ => true,
        }
    };
    fails_at_each_read(false, |_| Ok(()), unlink)
}

#[test]
fn writes_that_wait_for_room_are_told_when_the_view_fails() -> Outcome {
    let (mut world, ino) = calm_world(Wish { cap_bytes: 64 << 10, ..Wish::default() })?;
    for block in 0..15 {
        write(&mut world, ino, block * BLOCK as u64, &[1; BLOCK])?;
    }
    let parts = vec![(0, Bytes::from(vec![2; BLOCK]))];
    let held = ask(&mut world, 1, Op::Write { ino, parts, append: false, kill_suid_sgid: false, at: None });
    assert!(held.is_none() && world.part.state().data_status().held == 1, "{held:?}");
    world.kv.fail_after(0);
    world.now_ms += 10_000;
    let mut effects = Vec::new();
    let now = Now { mono_ms: world.now_ms, ..Now::default() };
    world.part.step(now, Event::Tick, &mut effects);
    let stopped = |effect: &Effect| match effect {
        Effect::Reply(_, answer) => answer.result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Stopped),
        _ => false,
    };
    assert_eq!(effects.iter().filter(|effect| stopped(effect)).count(), 1, "{effects:?}");
    assert_eq!(world.part.state().data_status().held, 0);
    Ok(())
}
