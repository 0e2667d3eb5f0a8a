//! Directed schedules: a log that hangs, on a member and on the primary; hosts that stand still.

use braid_base::ids::Index;

use super::schedules::{Lab, entry, member};
use crate::replica::Timing;
use crate::replica::event::{Effect, Event};

const STALL: u64 = Timing::DESIGN.stall_ms;

/// All that `host` was to write is durable.
fn written(lab: &mut Lab, host: usize) {
    let tickets = lab.seen[host].iter().filter_map(|effect| match effect {
        Effect::AppendLog { ticket, .. } => Some(*ticket),
        _ => None,
    });
    if let Some(ticket) = tickets.max() {
        lab.step(host, Event::LogDurable { ticket });
    }
}

fn pass(lab: &mut Lab, ms: u64) {
    let until = lab.now + ms;
    lab.tick_until(|lab| lab.now >= until);
}

#[test]
fn a_member_whose_log_hangs_is_dropped_and_joins_when_it_writes() {
    let mut lab = Lab::started(3, None);
    pass(&mut lab, STALL + 1_000); // nothing was to be written
    let began = lab.now;
    lab.hung = Some(2);
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.register.members.len() == 2);
    let took = lab.now - began;
    assert!((STALL..STALL + 1_000).contains(&took), "{took} ms");
    lab.tick_until(|lab| lab.committed(0) == 1);
    // Its host lives, so it is asked to join. It answers, and would be waited for.
    lab.register.learners = vec![lab.members[2]];
    lab.step(0, Event::ConfigSeen(lab.register.clone()));
    for op in 2..=30 {
        lab.step(0, Event::Propose(entry(op)));
        pass(&mut lab, 1_000);
        assert_eq!((lab.committed(0), lab.register.members.len()), (op, 2));
    }
    lab.hung = None;
    written(&mut lab, 2);
    lab.tick_until(|lab| lab.register.members.len() == 3);
    lab.step(0, Event::Propose(entry(31)));
    lab.tick_until(|lab| lab.committed(2) == 31);
}

#[test]
fn a_slow_member_is_waited_for() {
    let mut lab = Lab::started(3, None);
    lab.hung = Some(2);
    for op in 1..=6 {
        lab.step(0, Event::Propose(entry(op)));
        pass(&mut lab, STALL - 1_000);
        written(&mut lab, 2);
        lab.tick_until(|lab| lab.committed(0) == op);
    }
    assert_eq!(lab.register.members.len(), 3);
}

/// Host 0 leads and its log hangs; `ticks`: its thread does not wait for it. Who leads then, and after how long.
fn successor(lab: &mut Lab, ticks: bool) -> (usize, u64) {
    let began = lab.now;
    lab.hung = Some(0);
    lab.step(0, Event::Propose(entry(1)));
    let mut op = 2;
    while lab.now < began + 2 * STALL {
        lab.now += 50;
        (0..3).filter(|host| ticks || *host > 0).for_each(|host| lab.step(host, Event::Tick));
        // Programs ask again and again, on other threads.
        if lab.now.is_multiple_of(500) && lab.replicas[0].leads() {
            lab.step(0, Event::Propose(entry(op)));
            op += 1;
        }
        std::mem::take(&mut lab.wires).into_iter().for_each(|(_, to, msg)| lab.step(to, Event::Msg(msg)));
        if let Some(host) = (1..3).find(|host| lab.replicas[*host].is_active()) {
            return (host, lab.now - began);
        }
    }
    panic!("nobody else leads: {:?}", lab.register);
}

#[test]
fn a_primary_whose_log_hangs_gives_up_the_lead() {
    for ticks in [true, false] {
        let mut lab = Lab::started(3, None);
        let (heir, took) = successor(&mut lab, ticks);
        assert!((STALL..STALL + 2_000).contains(&took), "{took} ms");
        assert!(lab.committed(heir) > 0 && !lab.replicas[0].leads());
        assert!(!lab.register.has(lab.members[0].store) && lab.register.members.len() == 2);
        assert!(lab.seen[0].iter().any(|effect| matches!(effect, Effect::SteppedDown)));
    }
}

#[test]
fn a_log_that_hangs_keeps_the_lead_where_nobody_else_can_have_it() {
    let mut lab = Lab::started(2, None);
    lab.hung = Some(0);
    lab.step(0, Event::Propose(entry(1)));
    lab.lose(0);
    for _ in 0..2 * STALL / 50 {
        lab.now += 50;
        lab.step(0, Event::Tick);
        lab.wires.clear();
    }
    assert!(lab.replicas[0].leads() && lab.register.members == [member(0, 1)]);
    written(&mut lab, 0);
    assert_eq!(lab.replicas[0].committed(), Index(1));
}

#[test]
fn who_cannot_write_does_not_stand() {
    let mut lab = Lab::started(3, None);
    lab.hung = Some(1);
    lab.step(0, Event::Propose(entry(1)));
    pass(&mut lab, STALL - 500);
    lab.lose(0);
    lab.lose(2);
    lab.tick_alone(1, STALL);
    assert_eq!(lab.register.primary, lab.members[0]);
    written(&mut lab, 1);
    lab.tick_alone(1, STALL);
    assert_eq!(lab.register.primary, lab.members[1]);
}

#[test]
fn nobody_is_dropped_for_a_pause_of_all() {
    for first in 0..3 {
        let mut lab = Lab::started(3, None);
        lab.step(0, Event::Propose(entry(1)));
        lab.tick_until(|lab| lab.committed(2) == 1);
        let before = lab.register.clone();
        lab.now += 60_000;
        (0..3).for_each(|_| lab.step(first, Event::Tick));
        pass(&mut lab, 5_000);
        assert_eq!(lab.register, before, "host {first} was the first to go on");
        lab.step(0, Event::Propose(entry(2)));
        lab.tick_until(|lab| lab.committed(2) == 2 && lab.replicas[0].may_read(lab.now));
    }
}

#[test]
fn who_is_silent_is_missed_on_a_machine_that_is_late() {
    let mut lab = Lab::started(3, None);
    lab.lose(2);
    let began = lab.now;
    for lost in [2, 0] {
        while lab.register.has(lab.members[lost].store) {
            lab.now += 700;
            (0..3).filter(|host| lost == 2 || *host != 0).for_each(|host| lab.step(host, Event::Tick));
            for (from, to, msg) in std::mem::take(&mut lab.wires) {
                if from != lost && to != lost && from != 2 && to != 2 {
                    lab.step(to, Event::Msg(msg));
                }
            }
            assert!(lab.now < began + 20_000, "{:?}", lab.register);
        }
    }
}
