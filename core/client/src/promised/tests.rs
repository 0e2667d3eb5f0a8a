use std::future::Future;
use std::pin::pin;
use std::task::Context;

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::msg::fs::RenameMode;

use super::*;
use crate::losses::ANYBODY;

const DIR: Ino = Ino(1);
const SESSION: u64 = 7;
const HERE: (PartitionId, u64) = (PartitionId(0), SESSION);

fn at(sec: i64) -> Time {
    Time { sec, nsec: 0 }
}

fn promise(name: &[u8], ino: u64, sec: i64, what: What) -> Promise {
    let file = Attr { ino: Ino(ino), ctime: at(sec), nlink: 1, ..Attr::default() };
    Promise {
        id: 0,
        partition: PartitionId(0),
        session: SESSION,
        dir: DIR,
        name: name.to_vec(),
        file,
        what,
        is_roomy: true,
        parent: None,
        _removing: None,
    }
}

fn made(open: bool) -> What {
    What::Made { cred: Cred::default(), mode: 0o644, umask: 0, open }
}

fn make(promises: &Promises, name: &[u8], ino: u64, sec: i64, what: What) -> Option<Result<Attr>> {
    promises.make((DIR, name), |_, _| Some(Ok(promise(name, ino, sec, what))))
}

fn ids(gone: &[Promise]) -> Vec<u64> {
    gone.iter().map(|promise| promise.id).collect()
}

fn lookup(name: &[u8]) -> Op {
    Op::Lookup { dir: DIR, name: name.to_vec() }
}

#[test]
fn what_was_promised_of_one_name_happens_in_that_order() {
    let promises = Promises::default();
    assert!(make(&promises, b"a", 10, 1, made(false)).is_some() && make(&promises, b"b", 11, 2, made(false)).is_some());
    let seen = promises.make((DIR, b"a"), |seen, _| {
        assert_eq!(seen.flatten().map(|file| file.ino), Some(Ino(10)));
        Some(Ok(promise(b"a", 10, 3, What::Gone)))
    });
    assert!(seen.is_some() && promises.file(Ino(12)).is_none());
    assert_eq!((promises.file(Ino(10)), promises.file(Ino(11)).flatten().is_some()), (Some(None), true));
    assert_eq!((promises.name(DIR, b"a"), promises.name(DIR, b"b")), (Some(None), Some(Some(Ino(11)))));
    assert_eq!(promises.name(DIR, b"c"), None);
    assert_eq!(ids(&promises.depart()), [1, 2], "the removal waits for the file");
    assert_eq!(ids(&promises.depart()), []);
    promises.landed(1, None);
    assert_eq!(ids(&promises.depart()), [3]);
    promises.landed(3, None);
    promises.landed(2, None);
    assert!(promises.all().is_empty() && promises.name(DIR, b"a").is_none() && promises.untended());
}

#[test]
fn a_lock_file_is_not_made_while_many_promises_about_it_are_open() {
    let promises = Promises::default();
    let lock = Some((DIR, &b"lock"[..]));
    make(&promises, b"other", 9, 1, made(false));
    for (ino, what) in [(10, made(false)), (10, What::Gone), (11, made(false))] {
        make(&promises, b"lock", ino, 1, what);
        assert_eq!(promises.in_the_way(lock), []);
    }
    make(&promises, b"lock", 11, 1, What::Gone);
    assert_eq!(promises.in_the_way(lock), [2, 3, 4, 5]);
    assert_eq!((promises.in_the_way(Some((DIR, b"other"))), promises.in_the_way(None)), (vec![], vec![]));
    promises.landed(2, None);
    assert_eq!(promises.in_the_way(lock), []);
    for ino in 20..20 + OPEN_MAX as u64 {
        make(&promises, &ino.to_be_bytes(), ino, 1, made(false));
    }
    assert_eq!(promises.in_the_way(None).len(), OPEN_MAX, "a removal waits for any");
}

#[test]
fn a_directory_looks_as_if_all_was_done() {
    let promises = Promises::default();
    let shown = |sec| {
        let mut attr = Attr { ino: DIR, ctime: at(sec), mtime: at(1), ..Attr::default() };
        promises.amend(&mut attr);
        (attr.mtime.sec, attr.ctime.sec)
    };
    assert_eq!(shown(3), (1, 3));
    make(&promises, b"a", 10, 5, made(false));
    make(&promises, b"b", 11, 6, made(false));
    assert_eq!((shown(3), shown(8)), ((6, 6), (1, 8)), "a later change of the attributes stays");
    promises.landed(2, None);
    assert_eq!(shown(3), (6, 6));
    promises.landed(1, None);
    assert_eq!(shown(3), (1, 3));
}

#[test]
fn others_wait_for_what_they_may_meet_and_keep_more_away() {
    let promises = Promises::default();
    make(&promises, b"a", 10, 1, made(false));
    let met = |op: &Op| promises.beside(op).1;
    assert_eq!((met(&lookup(b"a")), met(&lookup(b"b"))), (vec![1], vec![]));
    assert_eq!(met(&Op::Lookup { dir: Ino(10), name: b"a".to_vec() }), [1], "which is no directory");
    assert_eq!(met(&Op::Readdir { dir: DIR, cookie: 0, limit: 9, plus: false }), [1]);
    assert_eq!((met(&Op::GetAttr { ino: Ino(10) }), met(&Op::GetAttr { ino: Ino(11) })), (vec![1], vec![]));
    assert_eq!(met(&Op::Rmdir { dir: Ino(77), name: b"d".to_vec() }), [1], "it may be this very directory");
    promises.landed(1, None);
    let rename = Op::Rename {
        from_dir: Ino(70),
        from: b"x".to_vec(),
        to_dir: Ino(71),
        to: b"y".to_vec(),
        mode: RenameMode::Replace,
    };
    for op in [rename, Op::Unlink { dir: DIR, name: b"z".to_vec(), told: None, alone: false }] {
        let (beside, met) = promises.beside(&op);
        assert!(met.is_empty(), "nothing is promised");
        assert!(make(&promises, b"b", 11, 2, made(false)).is_none(), "{op:?} is under way");
        drop(beside);
        assert!(make(&promises, b"b", 11, 2, made(false)).is_some());
        promises.lose(HERE, &ErrorKind::Io.into());
    }
}

#[test]
fn a_directory_that_goes_takes_no_names_and_has_lost_a_link_of_its_parent() {
    let promises = Promises::default();
    let dir = Ino(10);
    let of_dir = |name: &[u8], ino, what| Promise { dir, ..promise(name, ino, 1, what) };
    let may_fill = |asked: Option<&Op>| {
        let _beside = asked.map(|op| promises.beside(op));
        let mut seen = None;
        promises.make((DIR, b"dir"), |_, told| {
            seen = Some((told.is_gone(dir, b"a"), told.may_fill(dir)));
            None
        });
        seen
    };
    assert_eq!(may_fill(None), Some((false, false)));
    promises.make((dir, b"a"), |_, _| Some(Ok(of_dir(b"a", 20, made(false)))));
    promises.make((dir, b"a"), |_, _| Some(Ok(of_dir(b"a", 20, What::Gone))));
    assert_eq!(may_fill(None), Some((true, true)), "it was made, and that has not landed");
    promises.landed(1, None);
    assert_eq!(may_fill(None), Some((true, false)));
    let create = Op::Unlink { dir, name: b"b".to_vec(), told: None, alone: false };
    assert_eq!(may_fill(Some(&create)), Some((true, true)), "its partition is asked to change it");
    let goes = |name: &[u8], ino, links| {
        let mut gone = promise(name, ino, 1, What::Gone);
        gone.file.kind = FileType::Directory;
        gone.parent = Some(Attr { ino: DIR, nlink: links, ..Attr::default() });
        promises.make((DIR, name), |_, _| Some(Ok(gone)))
    };
    let links = || promises.losing_dirs(DIR).map(|looks| looks.map(|looks| looks.nlink));
    assert_eq!(links(), None);
    assert!(goes(b"dir", 10, 5).is_some() && promises.losing_dirs(dir).is_none());
    assert_eq!(links(), Some(Some(4)));
    assert_eq!(promises.about(dir), [2, 3], "it goes after what was in it");
    assert!(promises.make((dir, b"c"), |_, _| Some(Ok(of_dir(b"c", 21, made(false))))).is_none());
    assert_eq!(promises.beside(&create).1, [2, 3], "who asks for names in it hears that it is gone");
    promises.landed(2, None);
    // What the partition says meanwhile does not count.
    assert!(goes(b"next", 11, 9).is_some() && links() == Some(Some(3)));
    let beside = Op::Create {
        dir: DIR,
        name: b"new".to_vec(),
        kind: FileType::Directory,
        mode: 0o755,
        umask: 0,
        rdev: 0,
        target: Vec::new(),
        open: false,
        told: None,
        want: 0,
    };
    assert_eq!((promises.beside(&beside).1, promises.beside(&lookup(b"new")).1), (vec![3, 4], vec![]));
    promises.landed(3, None);
    assert_eq!(links(), Some(Some(3)));
    assert!(goes(b"last", 12, 9).is_some());
    make(&promises, b"last", 13, 2, made(false));
    make(&promises, b"file", 14, 2, made(false));
    assert_eq!(
        [4, 5, 6, 7].map(|id| promises.waits_for_dir(id)),
        [true, true, true, false],
        "6 is a file of that name"
    );
    promises.landed(6, None);
    promises.landed(7, None);
    promises.landed(4, Some(&ErrorKind::NotEmpty.into()));
    assert_eq!(links(), Some(None), "it may be there");
    promises.landed(5, None);
    assert_eq!(links(), None);
    assert!(goes(b"again", 15, 9).is_some() && links() == Some(Some(8)));
    promises.shared_early(DIR);
    assert_eq!(links(), Some(None), "others may change it");
}

#[test]
fn what_is_lost_is_told_once() {
    let promises = Promises::default();
    make(&promises, b"a", 10, 1, made(false));
    make(&promises, b"b", 11, 1, made(false));
    assert_eq!(ids(&promises.depart()), [1, 2]);
    make(&promises, b"c", 12, 1, made(false));
    assert_eq!(promises.lose((PartitionId(1), SESSION), &ErrorKind::Io.into()).len(), 0);
    assert_eq!(promises.lose((PartitionId(0), SESSION - 1), &ErrorKind::Io.into()).len(), 0, "it is late");
    assert_eq!(ids(&promises.lose(HERE, &ErrorKind::Io.into())), [3], "the others are under way");
    let told = |ino| promises.losses.tell(ino, ANYBODY).map(|(_, error)| error.kind());
    assert_eq!((told(Ino(12)), told(Ino(12)), told(Ino(10))), (Some(ErrorKind::Io), None, None));
    assert_eq!(told(DIR), Some(ErrorKind::Io));
    promises.landed(1, Some(&ErrorKind::NoSpace.into()));
    assert_eq!(told(DIR), Some(ErrorKind::NoSpace));
    assert!(!promises.landed(2, None) && !promises.landed(2, None) && told(DIR).is_none());
}

#[test]
fn bytes_are_lost_that_ride_with_a_file_and_none_with_a_name() {
    let promises = Promises::default();
    let mut gone = promise(b"gone", 12, 1, What::Gone);
    gone.file.size = 100;
    make(&promises, b"empty", 10, 1, made(false));
    make(&promises, b"file", 11, 1, made(false));
    promises.make((DIR, b"gone"), |_, _| Some(Ok(gone)));
    assert_eq!(promises.write(Ino(11), Some(0), &Bytes::from_static(b"abc"), at(2)), Some(0));
    assert_eq!(promises.lose(HERE, &ErrorKind::Io.into()).len(), 3);
    let lost = [DIR, Ino(10), Ino(11), Ino(12)].map(|ino| promises.losses.untold_bytes(ino).is_some());
    assert_eq!(lost, [false, false, true, false]);
    assert!([DIR, Ino(10), Ino(12)].iter().all(|ino| promises.losses.is_untold(*ino)));
}

#[test]
fn a_reference_given_back_early_is_not_taken_or_given_back_later() {
    let promises = Promises::default();
    make(&promises, b"a", 10, 1, made(true));
    make(&promises, b"b", 11, 1, made(true));
    assert!(promises.closed(Ino(10)) && !promises.closed(Ino(10)), "one was had");
    let gone = promises.depart();
    assert!(matches!((gone[0].what, gone[1].what), (What::Made { open: false, .. }, What::Made { open: true, .. })));
    assert!(promises.closed(Ino(11)) && !promises.closed(Ino(12)));
    assert!(!promises.landed(1, None) && promises.landed(2, None));
}

#[test]
fn what_is_written_at_once_rides_with_the_file() {
    let promises = Promises::default();
    let data = |len: usize| Bytes::from(vec![1; len]);
    make(&promises, b"a", 10, 1, made(false));
    assert_eq!(promises.write(Ino(10), Some(0), &data(100), at(2)), Some(0));
    assert_eq!(promises.write(Ino(11), Some(0), &data(100), at(3)), None, "another one");
    assert_eq!(promises.write(Ino(10), None, &data(50), at(3)), Some(100));
    assert_eq!(promises.file(Ino(10)).flatten().map(|file| (file.size, file.mtime)), Some((150, at(3))));
    let id = promises.depart()[0].id;
    let taken = |all: Option<(u64, Vec<Bytes>, Time)>| all.map(|(off, parts, at)| (off, parts.concat().len(), at.sec));
    assert_eq!(taken(promises.content(id)), Some((0, 150, 3)));
    assert_eq!(promises.write(Ino(10), Some(150), &data(8), at(4)), Some(150), "the file is on its way");
    assert_eq!((taken(promises.content(id)), taken(promises.content(id))), (Some((150, 8, 4)), None));
    assert_eq!(promises.write(Ino(10), Some(158), &data(8), at(5)), None, "it will land at once");
    promises.landed(id, None);
    for (name, off, len, why) in [(b"b", 99, 100, "over what is there"), (b"c", 100, CONTENT_MAX as usize, "too much")]
    {
        make(&promises, name, 20, 1, made(false));
        assert_eq!(promises.write(Ino(20), None, &data(100), at(2)), Some(0));
        assert_eq!(promises.write(Ino(20), Some(off), &data(len), at(3)), None, "{why}");
        assert_eq!(promises.write(Ino(20), Some(100), &data(8), at(3)), None, "it would overtake that");
        let id = promises.depart()[0].id;
        assert_eq!((taken(promises.content(id)), taken(promises.content(id))), (Some((0, 100, 2)), None));
        promises.landed(id, None);
    }
    for number in 0..100 {
        make(&promises, &[number], 100 + u64::from(number), 1, made(false));
        promises.write(Ino(100 + u64::from(number)), None, &data(CONTENT_MAX as usize), at(6));
    }
    let full = |ino: u64| promises.file(Ino(100 + ino)).flatten().map(|file| file.size);
    assert_eq!((full(63), full(64)), (Some(CONTENT_MAX), Some(0)), "16 MiB in all");
    let first = promises.depart()[0].id;
    assert!(promises.content(first).is_some());
    make(&promises, b"y", 299, 1, made(false));
    assert_eq!(promises.write(Ino(299), None, &data(9), at(7)), None, "what is on its way counts");
    assert!(promises.content(first).is_none());
    make(&promises, b"z", 300, 1, made(false));
    assert_eq!(promises.write(Ino(300), None, &data(9), at(7)), Some(0));
}

#[test]
fn a_directory_is_wanted_but_while_others_look() {
    let promises = Promises::default();
    let wanted: Vec<u16> = (0..5).map(|_| promises.numbers(DIR, 10)).collect();
    assert_eq!(wanted, [128, 512, 1_024, 1_024, 1_024]);
    assert!(promises.wants(DIR, 10) && promises.wants(Ino(2), 10));
    promises.shared(DIR, 20);
    let after: Vec<u16> = [30, 20 + SHARED_MS].into_iter().map(|ms| promises.numbers(DIR, ms)).collect();
    assert_eq!(after, [0, 128]);
}

#[test]
fn a_new_directory_is_asked_for_but_while_they_are_made_for_others() {
    let promises = Promises::default();
    assert!(promises.comes(DIR, 10) && promises.is_coming(DIR));
    let mut cx = Context::from_waker(Waker::noop());
    let mut arrival = pin!(promises.arrival(DIR));
    assert!(arrival.as_mut().poll(&mut cx).is_pending());
    promises.came(DIR);
    assert!(!promises.is_coming(DIR) && arrival.as_mut().poll(&mut cx).is_ready());
    assert!(pin!(promises.arrival(DIR)).poll(&mut cx).is_ready());
    // Something was promised in it before others wanted to see it.
    make(&promises, b"a", 7, 1, made(false));
    promises.shared(DIR, 20);
    assert!(promises.comes(Ino(2), 20));
    promises.came(Ino(2));
    promises.shared(Ino(2), 30);
    assert!(!promises.comes(Ino(3), 30 + SHARED_MS - 1) && promises.comes(Ino(3), 30 + SHARED_MS));
}
