use braid_base::attr::{Attr, FileType};
use braid_base::ids::{ClientId, FsId, Ino, PartitionId, Term};
use braid_base::limits::DOUBT_MS;
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::lease::{Answer, Grant, LeaseKind, Numbers, Push, PushBody, Release};

use super::Core;
use crate::leases::{Asked, Effect, Event};

const P: PartitionId = PartitionId(0);
const FS: FsId = FsId(1);

/// A client in its first session, with exclusive leases on inodes 1 to `inodes`.
fn holder(inodes: u64) -> Core {
    let mut core = Core::new(ClientId(1), 1, None);
    core.step(0, Event::Wanted(P), &mut Vec::new());
    live(&mut core, 1, 0);
    (1..=inodes).for_each(|ino| drop(shown(&mut core, Ino(ino), ino, 0)));
    core
}

fn live(core: &mut Core, session: u64, now: u64) {
    let answer = Answer::plain(Term(1), Ok(Reply::Session { reassert: false }));
    core.step(now, Event::Hello { p: P, session, sent_ms: now, answer: &answer }, &mut Vec::new());
}

/// The answer to a question about `ino` comes, with lease `seq`.
fn shown(core: &mut Core, ino: Ino, seq: u64, now: u64) -> Vec<Effect> {
    let attr = Attr { ino, kind: FileType::File, nlink: 1, ..Attr::default() };
    let (empty, roomy, numbers) = (false, false, Numbers::default());
    let grant = Grant { ino, kind: LeaseKind::Exclusive, seq, attr: attr.clone(), empty, numbers, roomy };
    let answer = Answer { term: Term(1), grants: vec![grant], result: Ok(Reply::Attr(attr)) };
    let asked = Asked { session: core.session(P), fixed: false, stamp: core.asking() };
    let (op, mut out) = (Op::GetAttr { ino }, Vec::new());
    core.step(now, Event::Answered { p: P, asked, fs: FS, op: &op, answer: &answer }, &mut out);
    out
}

/// This session was lost, and the next one begins.
fn lost(core: &mut Core, session: u64, now: u64) {
    let push = Push { to: ClientId(1), session, from: P, term: Term(1), body: PushBody::Evicted };
    core.step(now, Event::Pushed(push), &mut Vec::new());
    core.step(now, Event::Tick, &mut Vec::new());
    live(core, session + 1, now);
}

/// The answer to an `Open` or `Close` that was sent under `session`.
fn done(core: &mut Core, session: u64, op: &Op) {
    let asked = Asked { session, fixed: false, stamp: core.asking() };
    let answer = Answer::plain(Term(1), Ok(Reply::Done));
    core.step(1, Event::Answered { p: P, asked, fs: FS, op, answer: &answer }, &mut Vec::new());
}

fn recall(ino: Ino, seq: u64) -> Event<'static> {
    let body = PushBody::Recall { fs: FS, ino, seq, keep: None };
    Event::Pushed(Push { to: ClientId(1), session: 1, from: P, term: Term(1), body })
}

/// A change of which anything may be meant.
fn removal() -> Op {
    Op::Unlink { dir: Ino(1), name: b"a".to_vec(), told: None, alone: false }
}

fn flushes(out: &[Effect]) -> Vec<Ino> {
    let flush = |effect: &Effect| if let Effect::Flush { ino, .. } = effect { Some(*ino) } else { None };
    out.iter().filter_map(flush).collect()
}

/// What each message gives back.
fn releases(out: &[Effect]) -> Vec<Vec<Release>> {
    let release = |effect: &Effect| match effect {
        Effect::Ask { body: Op::ReleaseLease { leases }, .. } => Some(leases.clone()),
        _ => None,
    };
    out.iter().filter_map(release).collect()
}

#[test]
fn leases_that_go_unasked_have_their_turn_and_share_messages() {
    const LEASES: u64 = 2_000;
    let (mut core, mut out) = (holder(LEASES), Vec::new());
    core.step(1, Event::Doubt { fs: FS, op: &removal() }, &mut out);
    let (mut waiting, mut told) = (flushes(&out), releases(&out));
    let mut done = Vec::new();
    while !waiting.is_empty() {
        assert!(waiting.len() <= 64, "{} are flushed at a time", waiting.len());
        let ino = waiting.remove(0);
        let mut out = Vec::new();
        core.step(2, Event::Flushed { fs: FS, ino, session: 1 }, &mut out);
        waiting.extend(flushes(&out));
        told.extend(releases(&out));
        done.push(ino);
    }
    let mut out = Vec::new();
    core.step(3, Event::Tick, &mut out);
    told.extend(releases(&out));
    let of: Vec<Ino> = told.concat().iter().map(|release| release.ino).collect();
    assert_eq!(of, done, "each is given back once, and when it was flushed");
    assert_eq!((of.len() as u64, told.len() as u64), (LEASES, LEASES.div_ceil(512)));
}

#[test]
fn one_that_is_recalled_does_not_wait_for_its_turn() {
    let (mut core, mut out) = (holder(200), Vec::new());
    core.step(1, Event::Doubt { fs: FS, op: &removal() }, &mut out);
    let (first, last) = (Ino(1), Ino(200));
    assert!(flushes(&out).contains(&first) && !flushes(&out).contains(&last));
    for (ino, flushed) in [(last, vec![last]), (first, vec![])] {
        let mut out = Vec::new();
        core.step(2, recall(ino, ino.0), &mut out);
        assert_eq!(flushes(&out), flushed, "told once, and at once");
        core.step(2, Event::Flushed { fs: FS, ino, session: 1 }, &mut out);
        let alone = Release { fs: FS, ino, seq: ino.0, keep: None };
        assert_eq!(releases(&out), [[alone]], "somebody waits for it");
    }
    let mut done = 2;
    while let Some(ino) = core.parts[0].flushing.first().map(|key| key.1) {
        let mut out = Vec::new();
        core.step(3, Event::Flushed { fs: FS, ino, session: 1 }, &mut out);
        assert!(!flushes(&out).contains(&last), "it had its turn");
        done += 1;
    }
    assert_eq!((done, core.len()), (200, 0));
}

#[test]
fn who_waited_for_a_turn_in_a_session_that_is_lost_has_none_in_the_next() {
    let (mut core, mut out) = (holder(200), Vec::new());
    core.step(1, Event::Doubt { fs: FS, op: &removal() }, &mut out);
    let later = 1 + DOUBT_MS;
    lost(&mut core, 1, later);
    shown(&mut core, Ino(200), 300, later);
    let mut out = Vec::new();
    core.step(later, Event::Flushed { fs: FS, ino: Ino(1), session: 1 }, &mut out);
    assert_eq!((flushes(&out), releases(&out)), (vec![], vec![]));
    assert_eq!(core.lease(FS, Ino(200), later), Some(LeaseKind::Exclusive));
}

#[test]
fn a_change_in_doubt_takes_what_it_may_touch() {
    let (a, b) = (Ino(1), Ino(2));
    let set = Op::SetXattr { ino: a, name: Vec::new(), value: Vec::new(), mode: braid_base::msg::fs::XattrMode::Any };
    let link = Op::Link { ino: b, dir: a, name: b"b".to_vec() };
    for (op, touched, left) in [(set, vec![a], vec![b]), (link, vec![a, b], vec![]), (removal(), vec![a, b], vec![])] {
        let (mut core, mut out) = (holder(2), Vec::new());
        core.step(1, Event::Doubt { fs: FS, op: &op }, &mut out);
        assert_eq!(flushes(&out), touched, "{op:?}");
        for ino in touched {
            assert_eq!((core.lease(FS, ino, 1), core.may_hold(FS, ino, 1)), (None, false));
            core.step(1, Event::Flushed { fs: FS, ino, session: 1 }, &mut out);
            core.step(1, Event::Tick, &mut out);
            // It may have been asked for before the change, and said after.
            shown(&mut core, ino, 10 + ino.0, 2);
            assert_eq!(core.lease(FS, ino, 2), None, "the change may still come");
            let over = 1 + DOUBT_MS;
            live(&mut core, 1, over);
            shown(&mut core, ino, 20 + ino.0, over);
            assert!(core.lease(FS, ino, over).is_some(), "now it cannot");
        }
        for ino in left {
            assert!(core.lease(FS, ino, 1).is_some() && core.attr(FS, ino, 1).is_some(), "no part of {op:?}");
        }
    }
}

#[test]
fn with_too_many_in_doubt_all_are() {
    let mut core = holder(2);
    let doubt = |core: &mut Core, ino| {
        let op = Op::Open { ino, truncate: true };
        core.step(1, Event::Doubt { fs: FS, op: &op }, &mut Vec::new());
    };
    (10..10 + crate::doubts::DOUBTS_MAX as u64).for_each(|ino| doubt(&mut core, Ino(ino)));
    assert!(core.may_hold(FS, Ino(1), 1) && !core.may_hold(FS, Ino(10), 1));
    doubt(&mut core, Ino(1));
    assert!(!core.may_hold(FS, Ino(2), 1));
    core.step(1 + DOUBT_MS, Event::Tick, &mut Vec::new());
    live(&mut core, 1, 1 + DOUBT_MS);
    assert!(core.may_hold(FS, Ino(2), 1 + DOUBT_MS) && core.may_hold(FS, Ino(10), 1 + DOUBT_MS));
}

#[test]
fn a_reference_is_nothing_in_the_next_session() {
    let ino = Ino(1);
    let open = Op::Open { ino, truncate: false };
    // Asked for or not, before the loss and after it.
    for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut core = holder(1);
        let opens = |core: &mut Core, session, is_asked| match is_asked {
            true => done(core, session, &open),
            false => assert!(core.borrow(FS, ino, 1)),
        };
        opens(&mut core, 1, before);
        lost(&mut core, 1, 1);
        shown(&mut core, ino, 2, 1);
        opens(&mut core, 2, after);
        let left = |core: &mut Core| core.opens(FS, ino) + u32::from(core.borrowed.any(|_| true));
        assert!(core.give(FS, ino), "the first one was of a session that is over");
        assert_eq!(left(&mut core), 1, "the second one has the file open");
        assert_eq!(core.give(FS, ino), !after, "its partition knows of that if it was asked");
        done(&mut core, 2, &Op::Close { inos: vec![ino] });
        assert_eq!(left(&mut core), 0);
    }
}

#[test]
fn what_a_session_answered_is_nothing_when_it_is_over() {
    let ino = Ino(1);
    let mut core = holder(0);
    lost(&mut core, 1, 1);
    done(&mut core, 1, &Op::Open { ino, truncate: false });
    assert_eq!(core.opens(FS, ino), 0, "its answer came late");
    done(&mut core, 2, &Op::Open { ino, truncate: false });
    done(&mut core, 1, &Op::Close { inos: vec![ino] });
    assert_eq!(core.opens(FS, ino), 1, "another reference was closed then");
    assert!(core.give(FS, ino) && !core.give(FS, ino));
}

#[test]
fn what_is_lost_is_of_a_session() {
    let mut core = holder(1);
    for session in 1..=2 {
        let push = Push { to: ClientId(1), session, from: P, term: Term(1), body: PushBody::Evicted };
        let mut out = Vec::new();
        core.step(1, Event::Pushed(push), &mut out);
        let lost = out
            .iter()
            .find_map(|effect| if let Effect::Lost { p, session } = effect { Some((*p, *session)) } else { None });
        assert_eq!(lost, Some((P, session)));
        core.step(1, Event::Tick, &mut Vec::new());
        live(&mut core, session + 1, 1);
    }
}
