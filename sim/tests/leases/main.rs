//! Sessions and leases between partition cores and client cores, under lost, late, doubled and reordered messages,
//! new primaries, silent and stopped clients, clocks that drift.
//!
//! Checked all the time: two clients never count on conflicting leases (I19); whatever a client would answer from
//! memory is what the partition would answer now, unless a change of its own is on its way; what was held back under
//! an exclusive lease is written onto what it was read from.
//!
//! And each rule of `leases.py`, left out, is noticed.

mod client;
mod world;

use braid_base::attr::Attr;
use braid_base::ids::{ClientId, FsId, Ino, PartitionId, Term};
use braid_base::msg::fs::{Op, Reply};
use braid_base::msg::lease::{Answer, Grant, LeaseKind, Numbers, Push, PushBody};
use braid_client::leases::{Asked, Core, CoreMutation, Event};
use braid_meta::LeaseMutation;
use world::{Broken, World};

const SEEDS: u64 = 30;

fn run(seed: u64, broken: Broken) -> Result<world::Met, String> {
    World::new(seed, broken).run(150_000)
}

#[test]
fn the_rules_hold() {
    let mut met = world::Met::default();
    for seed in 0..SEEDS {
        match run(seed, Broken::default()) {
            Ok(one) => met.add(&one),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{met:?}");
    assert!(met.hits > 10_000 && met.flushed > 30, "the caches were of use: {met:?}");
    assert!(met.lost > 10 && met.restarts > 50 && met.recalls > 1_000, "what should go wrong did: {met:?}");
    assert!(met.done > 10_000, "operations came to an end: {met:?}");
}

fn is_caught(broken: Broken) {
    let found = (0..100).find_map(|seed| run(seed, broken).err().map(|what| (seed, what)));
    let (seed, what) = found.unwrap_or_else(|| panic!("{broken:?} was not noticed"));
    println!("{broken:?}: seed {seed}: {what}");
}

#[test]
fn a_session_without_a_mark_is_noticed() {
    is_caught(Broken { partition: Some(LeaseMutation::NoMarker), client: None });
}

#[test]
fn a_primary_that_does_not_wait_is_noticed() {
    is_caught(Broken { partition: Some(LeaseMutation::NoWait), client: None });
}

#[test]
fn a_session_that_ends_too_early_is_noticed() {
    is_caught(Broken { partition: Some(LeaseMutation::ExpireFast), client: None });
}

#[test]
fn grants_overtaken_by_their_recall_are_noticed() {
    is_caught(Broken { partition: None, client: Some(CoreMutation::RecallCross) });
}

/// What a client holds after a grant of session 1 and term 1 came so late that the partition has given it up and may have
/// given the inode to someone else: chance hardly ever makes such a schedule, because the numbers of leases are in the
/// way of most.
fn held_after(broken: Option<CoreMutation>, mean_while: &[(u64, Term, bool)]) -> Option<LeaseKind> {
    let (p, fs, ino) = (PartitionId(0), FsId(1), Ino(5));
    let mut core = Core::new(ClientId(1), 1, None);
    core.leave_out(broken);
    let mut out = Vec::new();
    let hello = |core: &mut Core, session: u64, term: Term, reassert: bool| {
        let answer = Answer::plain(term, Ok(Reply::Session { reassert }));
        core.step(1, Event::Hello { p, session, sent_ms: 1, answer: &answer }, &mut Vec::new());
    };
    core.step(0, Event::Wanted(p), &mut out);
    hello(&mut core, 1, Term(1), false);
    let asked = Asked { session: core.session(p), fixed: false, stamp: core.asking() };
    let attr = Attr { ino, ..Attr::default() };
    let grant = Grant {
        ino,
        kind: LeaseKind::Exclusive,
        seq: 7,
        attr: attr.clone(),
        empty: false,
        numbers: Numbers::default(),
        roomy: false,
    };
    let late = Answer { term: Term(1), grants: vec![grant], result: Ok(Reply::Attr(attr)) };
    for (session, term, reassert) in mean_while {
        if *session > core.session(p) {
            let body = PushBody::Evicted;
            let push = Push { to: ClientId(1), session: session - 1, from: p, term: *term, body };
            core.step(1, Event::Pushed(push), &mut out);
            core.step(1, Event::Tick, &mut out);
        }
        hello(&mut core, *session, *term, *reassert);
    }
    let op = Op::GetAttr { ino };
    core.step(2, Event::Answered { p, asked, fs, op: &op, answer: &late }, &mut out);
    core.lease(fs, ino, 2)
}

#[test]
fn grants_of_an_older_term_are_noticed() {
    let new_primary = [(1, Term(2), true)];
    assert_eq!(held_after(None, &[]), Some(LeaseKind::Exclusive));
    assert_eq!(held_after(None, &new_primary), None);
    assert_eq!(held_after(Some(CoreMutation::StaleTerm), &new_primary), Some(LeaseKind::Exclusive));
}

#[test]
fn grants_of_an_earlier_session_are_noticed() {
    let new_session = [(2, Term(1), false)];
    assert_eq!(held_after(None, &new_session), None);
    assert_eq!(held_after(Some(CoreMutation::StaleSession), &new_session), Some(LeaseKind::Exclusive));
}
