//! Directed schedules: what a learner costs its primary.

use braid_base::ids::Index;

use super::schedules::{Lab, member, payload, start};
use crate::config::Config;
use crate::replica::Replica;
use crate::replica::event::Event;

/// Two members with `count` records of `bytes` each, and a learner that has none of them, and writes nothing.
fn with_learner(count: u64, bytes: usize) -> Lab {
    let mut lab = Lab::started(2, None);
    (1..=count).for_each(|op| lab.step(0, Event::Propose(payload(op, bytes))));
    lab.tick_until(|lab| lab.committed(0) == count);
    let learner = member(2, 50);
    lab.members.push(learner);
    lab.replicas.push(Replica::new(lab.now, start(learner, 0, &Config::default())));
    lab.seen.push(Vec::new());
    lab.hung = Some(2);
    lab.register.learners.push(learner);
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    lab.tick_until(|lab| lab.replicas[0].oldest_needed().is_some());
    lab.step(0, Event::Applied { upto: Index(count) });
    lab
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
    let first = |lab: &Lab| lab.replicas[0].oldest_needed();
    assert_eq!(first(&lab), Some(Index(1)));
    let (began, learner) = (lab.now, lab.members[2]);
    // It takes the view.
    lab.replicas[0].keep_for(learner, Index(5));
    for row in 1..=100_u8 {
        let until = lab.now + 1_000;
        lab.tick_until(|lab| lab.now >= until);
        let now = lab.now;
        lab.replicas[0].view_asked(now, learner, &[row]);
        assert_eq!(first(&lab), Some(Index(5)), "after {} ms", now - began);
    }
    // It does no longer.
    let began = lab.now;
    while first(&lab) == Some(Index(5)) {
        let until = lab.now + 50;
        lab.tick_until(|lab| lab.now >= until);
        assert!(lab.now < began + 90_000);
    }
    assert!(lab.now > began + 50_000, "{} ms", lab.now - began);
    assert_eq!(first(&lab), None, "the log may go");
}
