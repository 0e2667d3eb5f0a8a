//! Directed schedules: what a learner costs its primary.

use braid_base::ids::Index;

use super::schedules::{Lab, member, payload, start};
use crate::config::{Config, Member};
use crate::replica::Replica;
use crate::replica::event::Event;

/// Two members with `count` records of `bytes` each, and a learner that has none of them, and writes nothing.
fn with_learner(count: u64, bytes: usize) -> Lab {
    let mut lab = Lab::started(2, None);
    (1..=count).for_each(|op| lab.step(0, Event::Propose(payload(op, bytes))));
    lab.tick_until(|lab| lab.committed(0) == count);
    lab.hung = Some(2);
    add_learner(&mut lab, member(2, 50));
    lab.tick_until(|lab| needed(lab).is_some());
    lab.step(0, Event::Applied { upto: Index(count) });
    lab
}

fn add_learner(lab: &mut Lab, learner: Member) {
    lab.members.push(learner);
    lab.replicas.push(Replica::new(lab.now, start(learner, 0, &Config::default())));
    lab.seen.push(Vec::new());
    lab.register.learners.push(learner);
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
}

/// From where on the first member keeps its log for learners.
fn needed(lab: &Lab) -> Option<Index> {
    lab.replicas[0].oldest_needed(lab.now, Index(0))
}

#[test]
fn a_learner_keeps_so_many_bytes_in_memory() {
    let lab = with_learner(100, 1 << 20);
    let kept = (1..=100).filter(|index| lab.replicas[0].record(Index(*index)).is_some()).count();
    assert!((60..=64).contains(&kept), "{kept} MiB");
    let lab = with_learner(100, 1);
    assert!(lab.replicas[0].record(Index(1)).is_some(), "small ones cost little");
}

#[test]
fn the_log_is_kept_for_a_learner_that_comes_nearer() {
    let mut lab = with_learner(10, 1);
    assert_eq!(needed(&lab), Some(Index(1)));
    let (began, learner) = (lab.now, lab.members[2]);
    // It takes the view.
    lab.replicas[0].view_asked(began, learner, &[], Index(5));
    for row in 1..=100_u8 {
        let until = lab.now + 1_000;
        lab.tick_until(|lab| lab.now >= until);
        let now = lab.now;
        lab.replicas[0].view_asked(now, learner, &[row], Index(9));
        assert_eq!(needed(&lab), Some(Index(5)), "after {} ms", now - began);
    }
    // It does no longer.
    let began = lab.now;
    while needed(&lab) == Some(Index(5)) {
        let until = lab.now + 50;
        lab.tick_until(|lab| lab.now >= until);
        assert!(lab.now < began + 90_000);
    }
    assert!(lab.now > began + 50_000, "{} ms", lab.now - began);
    assert_eq!(needed(&lab), None, "the log may go");
}

#[test]
fn the_log_is_kept_for_a_learner_that_is_silent_for_a_moment() {
    let mut lab = with_learner(10, 1);
    let (began, learner) = (lab.now, lab.members[2]);
    lab.replicas[0].view_asked(began, learner, &[], Index(5));
    let term = lab.replicas[0].term();
    while lab.now < began + 50_000 {
        // At half time the other member goes, too: the members change, and nobody hears the learner in the new term.
        let others = if lab.now < began + 25_000 { 2 } else { 1 };
        lab.now += 50;
        (0..others).for_each(|host| lab.step(host, Event::Tick));
        (others..3).for_each(|host| lab.lose(host));
        for (_, to, msg) in std::mem::take(&mut lab.wires) {
            lab.step(to, Event::Msg(msg));
        }
        assert_eq!(needed(&lab), Some(Index(5)), "after {} ms", lab.now - began);
    }
    assert!(lab.replicas[0].term() > term && lab.replicas[0].is_active(), "the members changed");
    // It is not asked to join while its host is away, and comes back as another.
    lab.register.learners.clear();
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    lab.step(0, Event::Tick);
    assert_eq!(needed(&lab), Some(Index(5)));
    lab.register.learners.push(member(2, 51));
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    lab.step(0, Event::Tick);
    assert_eq!(needed(&lab), Some(Index(11)), "the store is gone; the other member had all");
}

#[test]
fn the_log_is_kept_for_the_one_of_two_learners_that_the_log_can_help() {
    let mut lab = with_learner(10, 1);
    lab.replicas[0].view_asked(lab.now, lab.members[2], &[], Index(5));
    assert_eq!(needed(&lab), Some(Index(5)));
    add_learner(&mut lab, member(3, 60));
    // It has none of it, and says so.
    lab.tick_until(|lab| needed(lab) == Some(Index(1)));
    assert_eq!(lab.replicas[0].oldest_needed(lab.now, Index(3)), Some(Index(5)), "which takes the view instead");
}
