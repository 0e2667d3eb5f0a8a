//! The session: one number per operation, repetitions that take effect once, an end to all waiting; locks.

use std::future::pending;
use std::pin::pin;

use crate::model::server::Mishap;
use crate::model::{World, root};
use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::{ClientId, FsId, Ino};
use braid_base::msg::fs::{Cred, LockKind, LockSpec, Op, RenameMode, XattrMode};
use braid_client::fs::{Create, Seek};
use braid_client::session::LockEnd;
use braid_client::{Fs, Session};
use bytes::Bytes;

fn touch(world: &World, fs: &Fs, name: &str) -> Ino {
    world.run(fs.create(Cred::default(), root(), name.as_bytes(), Create::default())).expect("create").ino
}

#[test]
fn a_lost_answer_is_asked_for_again_and_the_operation_takes_effect_once() {
    let world = World::new(3);
    let fs = world.fs();
    for mishap in [Mishap::LoseAnswer, Mishap::LoseRequest, Mishap::Refuse(ErrorKind::Busy)] {
        let name = format!("{mishap:?}").replace(['(', ')'], "");
        world.server.state().mishaps.extend([mishap, mishap]);
        // Carried out twice, the second would say Exists.
        touch(&world, &fs, &name);
        let landed = world.run(fs.lookup(root(), name.as_bytes())).expect("it is there");
        world.server.state().mishaps.push_back(mishap);
        world.run(fs.write(landed.ino, 0, Bytes::from_static(b"once"), true, false)).expect("append");
        assert_eq!(&world.run(fs.read(landed.ino, 0, 100)).expect("read")[..], b"once");
    }
    let log = std::mem::take(&mut world.server.state().log);
    for pair in log.windows(2) {
        assert!(pair[1].2 >= pair[0].2, "the low-water mark never falls");
    }
    let (last, _, done) = log.last().expect("requests were made");
    assert_eq!(last.seq - 1, *done, "everything before the last was answered");
}

#[test]
fn waiting_ends_at_the_deadline_with_io() {
    let world = World::new(1);
    let fs = world.fs();
    for kind in [ErrorKind::Busy, ErrorKind::Stopped, ErrorKind::TimedOut] {
        let start = world.clock.now_ms();
        world.server.state().mishaps.extend(vec![Mishap::Refuse(kind); 100_000]);
        let error = world.run(fs.getattr(root())).expect_err("no one helps");
        world.server.state().mishaps.clear();
        assert_eq!(error.kind(), ErrorKind::Io, "{kind:?} is not for programs");
        let waited = world.clock.now_ms() - start;
        assert!((30_000..31_000).contains(&waited), "waited {waited} ms");
        let tries = std::mem::take(&mut world.server.state().log).len();
        assert!(tries < 2_000, "{tries} repetitions are a flood");
    }
    world.server.state().mishaps.extend(vec![Mishap::LoseRequest; 100]);
    let error = world.run(fs.getattr(root())).expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::Io);
    world.server.state().mishaps.clear();
    assert!(world.run(fs.getattr(root())).is_ok(), "it works again afterwards");
}

#[test]
fn real_errors_come_back_at_once() {
    let world = World::new(1);
    let fs = world.fs();
    let start = world.clock.now_ms();
    world.server.asked();
    assert_eq!(world.run(fs.lookup(root(), b"none")).expect_err("absent").kind(), ErrorKind::NotFound);
    assert_eq!(world.server.asked(), ["Lookup"]);
    let long = [b'x'; 256];
    assert_eq!(world.run(fs.lookup(root(), &long)).expect_err("too long").kind(), ErrorKind::NameTooLong);
    assert!(world.run(fs.create(Cred::default(), root(), &long[..255], Create::default())).is_ok());
    let ino = touch(&world, &fs, "big");
    let max = braid_base::limits::FILE_MAX;
    let last = world.run(fs.write(ino, max - 1, Bytes::from_static(b"abc"), false, false)).expect("the last byte");
    assert_eq!(last.len, 1, "cut at the largest size");
    let error = world.run(fs.write(ino, max, Bytes::from_static(b"abc"), false, false)).expect_err("beyond");
    assert_eq!(error.kind(), ErrorKind::FileTooBig);
    assert_eq!(world.clock.now_ms(), start, "none of this waits");
}

#[test]
fn names_reach_across_partitions() {
    let world = World::new(3);
    let fs = world.fs();
    let cred = Cred { uid: 5, gid: 6 };
    let mut dir = root();
    for depth in 0..6 {
        let made = world.run(fs.mkdir(cred, dir, format!("d{depth}").as_bytes(), 0o777, 0o022)).expect("mkdir");
        assert_eq!((made.attr.mode, made.attr.uid, made.attr.gid), (0o755, 5, 6));
        let found = world.run(fs.lookup(dir, format!("d{depth}").as_bytes())).expect("lookup");
        assert_eq!(found, made, "attributes come along from wherever the inode lives");
        assert_eq!(world.run(fs.lookup(made.ino, b"..")).expect("parent").ino, dir);
        assert_eq!(world.run(fs.lookup(made.ino, b".")).expect("self").ino, made.ino);
        dir = made.ino;
    }
    assert_eq!(world.run(fs.lookup(root(), b"..")).expect("the root's parent is itself").ino, root());
    let link = world.run(fs.symlink(cred, dir, b"link", b"to/there")).expect("symlink");
    assert_eq!(link.attr.kind, FileType::Symlink);
    assert_eq!(world.run(fs.readlink(link.ino)).expect("readlink"), b"to/there");
    let file = touch(&world, &fs, "a");
    assert_eq!(world.run(fs.link(file, dir, b"b")).expect("link").attr.nlink, 2);
    let moved = world.run(fs.rename(root(), b"a", dir, b"link", RenameMode::Exchange)).expect("exchange");
    assert_eq!((moved.moved, moved.other), (file, Some(link.ino)));
    let (entries, end) = world.run(fs.readdir(root(), 0, 100, true)).expect("readdir");
    assert!(end && entries.iter().all(|e| e.attr.as_ref().is_some_and(|a| a.ino == e.ino)));
    let (first, end) = world.run(fs.readdir(root(), 0, 1, false)).expect("readdir");
    let (rest, _) = world.run(fs.readdir(root(), first[0].cookie, 100, false)).expect("readdir");
    assert!(!end && first.len() == 1 && rest.len() == entries.len() - 1);
    assert_eq!(world.run(fs.statfs()).expect("statfs").used_bytes, 3 * 4096, "all partitions add up");
    world.run(fs.setxattr(file, b"user.a", b"1", XattrMode::Create)).expect("setxattr");
    let again = world.run(fs.setxattr(file, b"user.a", b"2", XattrMode::Create));
    assert_eq!(again.expect_err("it exists").kind(), ErrorKind::Exists);
}

#[test]
fn seek_and_copy_see_holes() {
    let world = World::new(1);
    let fs = world.fs();
    let ino = touch(&world, &fs, "sparse");
    let petabyte = 1u64 << 50;
    world.run(fs.write(ino, petabyte, Bytes::from_static(b"far"), false, false)).expect("write");
    world.run(fs.write(ino, 10_000, Bytes::from(vec![7; 3 << 20]), false, false)).expect("write");
    world.server.asked();
    let seek = |off, what| world.run(fs.seek(ino, off, what)).expect("seek");
    assert_eq!(seek(0, Seek::Hole), Some(0));
    assert_eq!(seek(0, Seek::Data), Some(10_000));
    assert_eq!(seek(20_000, Seek::Data), Some(20_000));
    assert_eq!(seek(20_000, Seek::Hole), Some(10_000 + (3 << 20)));
    assert_eq!(seek(5 << 20, Seek::Data), Some(petabyte));
    assert_eq!(seek(petabyte, Seek::Hole), Some(petabyte + 3), "the end of file counts as a hole");
    assert_eq!((seek(petabyte + 3, Seek::Hole), seek(petabyte + 3, Seek::Data)), (None, None));
    assert!(world.server.asked().len() < 30, "a petabyte of nothing is crossed in a few steps");
    let copy = touch(&world, &fs, "copy");
    assert_eq!(world.run(fs.copy_range(ino, 9_000, copy, 5, 2 << 20, false)).expect("copy"), 2 << 20);
    let bytes = world.run(fs.read(copy, 0, 4 << 20)).expect("read");
    assert!(bytes.len() == 5 + (2 << 20) && bytes[..1005].iter().all(|b| *b == 0));
    assert!(bytes[1005..].iter().all(|b| *b == 7));
    let error = world.run(fs.copy_range(ino, 0, ino, 5, 10, false)).expect_err("overlap");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

fn lock(owner: u64, kind: LockKind) -> LockSpec {
    LockSpec { owner, pid: owner as u32, start: 0, end: u64::MAX, kind, flock: false }
}

#[test]
fn a_lock_is_waited_for_as_long_as_it_takes() {
    let world = World::new(1);
    let fs = world.fs();
    let ino = touch(&world, &fs, "locked");
    world.run(fs.lock(ino, lock(1, LockKind::Write))).expect("free");
    assert_eq!(world.run(fs.lock(ino, lock(2, LockKind::Read))).expect_err("held").kind(), ErrorKind::WouldBlock);
    let held = world.run(fs.test_lock(ino, lock(2, LockKind::Read))).expect("test");
    assert_eq!(held.map(|l| l.owner), Some(1));
    // Owner 1 lets go after a minute: longer than any deadline.
    let release = async {
        world.clock.sleep(60_000).await;
        fs.unlock_owner(ino, 1, false).await.expect("unlock");
    };
    let end = world.run(both(fs.lock_wait(ino, lock(2, LockKind::Write), pending()), release));
    assert_eq!(end.expect("granted"), LockEnd::Held);
    assert!(world.clock.now_ms() >= 60_000);
    // A waiter that is interrupted does not get it later.
    let before = world.clock.now_ms();
    let end = world.run(fs.lock_wait(ino, lock(3, LockKind::Write), world.clock.sleep(300))).expect("an end");
    assert_eq!(end, LockEnd::Interrupted);
    assert!((300..350).contains(&(world.clock.now_ms() - before)), "at once");
    world.run(fs.unlock_owner(ino, 2, false)).expect("unlock");
    assert_eq!(world.run(fs.test_lock(ino, lock(9, LockKind::Write))).expect("test"), None);
}

/// The wait, its cancel and the question what became of it, each heard by another primary, lost, or answered in vain.
#[test]
fn a_wait_that_is_interrupted_beside_a_new_primary_ends_and_leaves_no_lock_behind() {
    for mishap in [Mishap::None, Mishap::NewPrimary, Mishap::LoseRequest, Mishap::LoseAnswer] {
        for before in 0..4 {
            let world = World::new(1);
            let fs = world.fs();
            let ino = touch(&world, &fs, "locked");
            world.run(fs.lock(ino, lock(1, LockKind::Write))).expect("free");
            let mut mishaps = vec![Mishap::None; before];
            mishaps.push(mishap);
            world.server.state().mishaps.extend(mishaps);
            let begin = world.clock.now_ms();
            let end = world.run(fs.lock_wait(ino, lock(2, LockKind::Write), world.clock.sleep(300)));
            assert_eq!(end.expect("an end"), LockEnd::Interrupted, "{mishap:?} after {before}");
            let lost = matches!(mishap, Mishap::LoseRequest | Mishap::LoseAnswer);
            let took = world.clock.now_ms() - begin;
            assert!((300..if lost { 11_000 } else { 350 }).contains(&took), "{mishap:?} after {before}: {took} ms");
            world.server.state().mishaps.clear();
            world.run(fs.unlock_owner(ino, 1, false)).expect("unlock");
            let left = world.run(fs.test_lock(ino, lock(9, LockKind::Write))).expect("test");
            assert_eq!(left, None, "{mishap:?} after {before}");
        }
    }
}

/// It was free at the moment of the cancel: whoever waited has it and knows it.
#[test]
fn a_lock_that_comes_with_the_cancel_is_held() {
    let world = World::new(1);
    let fs = world.fs();
    let ino = touch(&world, &fs, "locked");
    world.run(fs.lock(ino, lock(1, LockKind::Write))).expect("free");
    let interrupted = async {
        world.clock.sleep(300).await;
        fs.unlock_owner(ino, 1, false).await.expect("unlock");
    };
    let end = world.run(fs.lock_wait(ino, lock(2, LockKind::Write), interrupted)).expect("an end");
    assert_eq!(end, LockEnd::Held);
    let held = world.run(fs.test_lock(ino, lock(9, LockKind::Write))).expect("test");
    assert_eq!(held.map(|lock| lock.owner), Some(2));
}

async fn both<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut value, mut rest) = (None, true);
    std::future::poll_fn(move |cx| {
        if value.is_none()
            && let std::task::Poll::Ready(v) = first.as_mut().poll(cx)
        {
            value = Some(v);
        }
        if rest && second.as_mut().poll(cx).is_ready() {
            rest = false;
        }
        match value.take_if(|_| !rest) {
            Some(v) => std::task::Poll::Ready(v),
            None => std::task::Poll::Pending,
        }
    })
    .await
}

#[test]
fn calls_may_run_on_any_executor() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let world = World::new(1);
    let fs = world.fs();
    let future = is_send({
        let fs = fs.clone();
        async move {
            let entry = fs.create(Cred::default(), root(), b"f", Create::default()).await?;
            fs.write(entry.ino, 0, Bytes::from_static(b"x"), false, false).await?;
            fs.copy_range(entry.ino, 0, entry.ino, 9, 1, false).await?;
            fs.lock_wait(entry.ino, lock(1, LockKind::Read), pending()).await?;
            fs.readdir(root(), 0, 9, true).await?;
            fs.seek(entry.ino, 0, Seek::Data).await?;
            fs.statfs().await?;
            fs.read(entry.ino, 0, 10).await
        }
    });
    assert_eq!(world.run(future).expect("all of it").len(), 10);
    let session = Session::new(world.clone(), ClientId(8));
    let error = world.run(session.call(FsId(1), Cred::default(), Op::Statfs)).expect_err("no route");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
