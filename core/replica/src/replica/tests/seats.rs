//! Directed schedules: who should lead, who cannot, and who leaves.

use braid_base::ids::HostId;

use super::schedules::{G, Lab, entry};
use crate::replica::event::Event;

/// All hosts have a seat; `first` should lead.
fn seated(lab: &mut Lab, first: u32) {
    let count = lab.replicas.len() as u32;
    let seats: Vec<HostId> = (0..count).map(|at| HostId((first + at) % count)).collect();
    (0..lab.replicas.len()).for_each(|host| lab.step(host, Event::Seats(seats.clone())));
}

#[test]
fn nobody_waits_for_a_member_that_leaves() {
    let mut lab = Lab::started(3, None);
    seated(&mut lab, 0);
    let began = lab.now;
    lab.step(2, Event::Leave);
    lab.tick_until(|lab| lab.register.members.len() == 2 && lab.replicas[0].is_active());
    lab.step(0, Event::Propose(entry(1)));
    lab.tick_until(|lab| lab.committed(0) == 1);
    assert!(lab.now - began <= 200, "{} ms", lab.now - began);
    // A second one is one too many: it is waited for as for the silent.
    lab.step(1, Event::Leave);
    lab.tick_until(|lab| lab.now >= began + 2_000);
    assert_eq!(lab.register.members.len(), 2);
}

#[test]
fn a_primary_that_leaves_names_who_leads_at_once() {
    let mut lab = Lab::started(3, None);
    seated(&mut lab, 0);
    lab.step(0, Event::Propose(entry(1)));
    let began = lab.now;
    lab.step(0, Event::Leave);
    lab.tick_until(|lab| lab.replicas[1].is_active() || lab.replicas[2].is_active());
    assert!(lab.now - began <= 1_000, "{} ms", lab.now - began);
    let heir = if lab.replicas[1].is_active() { 1 } else { 2 };
    assert!(!lab.replicas[0].leads() && !lab.register.has(lab.members[0].store));
    assert_eq!((lab.register.members.len(), lab.committed(heir)), (2, 1));
}

#[test]
fn the_lead_goes_to_where_it_should_be_and_members_to_their_seats() {
    let mut lab = Lab::started(3, None);
    seated(&mut lab, 1);
    let began = lab.now;
    lab.tick_until(|lab| lab.now >= began + 10_000);
    assert!(lab.replicas[0].is_active(), "not before it has settled");
    lab.tick_until(|lab| lab.replicas[1].is_active());
    assert_eq!(lab.register.members.len(), 3);
    // A replica should be gone, and then the primary.
    for (seats, left) in [(vec![HostId(1), HostId(0)], 2), (vec![HostId(0)], 1)] {
        (0..3).for_each(|host| lab.step(host, Event::Seats(seats.clone())));
        lab.tick_until(|lab| lab.register.members.len() == left);
    }
    lab.tick_until(|lab| lab.replicas[0].is_active());
}

#[test]
fn nobody_leads_who_cannot_serve_if_another_one_can() {
    let mut lab = Lab::started(3, None);
    seated(&mut lab, 1);
    // Where the lead should be, it cannot be.
    lab.step(0, Event::Unfit(vec![HostId(1)]));
    for _ in 0..3 {
        let until = lab.now + 15_000;
        lab.tick_until(|lab| lab.now >= until);
    }
    assert!(lab.replicas[0].is_active());
    // Nor where it is.
    let began = lab.now;
    lab.replicas[0].set_fit(false);
    lab.tick_until(|lab| lab.replicas[2].is_active());
    assert!(lab.now - began <= 1_000, "{} ms", lab.now - began);
    assert_eq!(lab.register.members.len(), 3);
    // Without anybody who could it stays.
    lab.step(2, Event::Unfit(vec![HostId(0), HostId(1)]));
    lab.replicas[2].set_fit(false);
    for _ in 0..2 {
        let until = lab.now + 15_000;
        lab.tick_until(|lab| lab.now >= until);
    }
    assert!(lab.replicas[2].is_active());
    // One that stops is better followed by such a one than by nobody.
    lab.step(2, Event::Leave);
    lab.tick_until(|lab| lab.replicas[0].is_active() || lab.replicas[1].is_active());
}

#[test]
fn who_could_not_serve_lets_others_stand_first() {
    for unfit in [1, 2] {
        let mut lab = Lab::started(3, None);
        lab.replicas[unfit].set_fit(false);
        let other = 3 - unfit;
        for _ in 0..200 {
            lab.now += 50;
            [1, 2].into_iter().for_each(|host| lab.step(host, Event::Tick));
            lab.lose(0);
            std::mem::take(&mut lab.wires).into_iter().for_each(|(_, to, msg)| lab.step(to, Event::Msg(msg)));
        }
        assert!(lab.replicas[other].is_active());
        assert_eq!(lab.register.members, [lab.members[1], lab.members[2]], "and keeps it as a member");
    }
    // Alone it stands after a while.
    let mut lab = Lab::started(2, None);
    lab.replicas[1].set_fit(false);
    lab.lose(0);
    lab.tick_alone(1, 3 * G);
    assert!(lab.replicas[1].is_active());
}
