//! Replicas that should not lead: their view has no room.

use braid_base::ids::PartitionId;
use braid_base::msg::fs::Cred;
use braid_sim::board::{Board, Node};
use braid_sim::config::{FaultPlan, SimConfig};
use braid_sim::run::{ROOT, Run};

const P: PartitionId = PartitionId(0);
const SECOND_US: u64 = 1_000_000;

/// One partition on three hosts, of which the first should lead, and does.
fn cluster() -> Run {
    // Seats are told where replicas may leave; none will here.
    let faults = FaultPlan { leave_every_us: 1 << 50, ..FaultPlan::none() };
    let config = SimConfig { partitions: 1, hosts: 3, members: 3, faults, ..SimConfig::calm(1) };
    let mut run = Run::new(config, Board::default()).expect("it starts");
    run.set_up().expect("set up");
    // The lead may have begun elsewhere, and moves after 20 s; the same again, and nothing else will move it.
    pass(&mut run, 60 * SECOND_US);
    assert_eq!(run.world.server(P), Some(0));
    run
}

fn pass(run: &mut Run, us: u64) {
    run.world.run(us, |_| false);
}

/// Writes something, so that views have to take it.
fn write(run: &mut Run, number: u64) {
    let fs = run.mount(Node::Auditor);
    let made = async move {
        let name = format!("name{number}");
        fs.mkdir(Cred::default(), ROOT, name.as_bytes(), 0o755, 0).await.map(drop)
    };
    let done = run.wait("a directory", Node::Auditor, 10 * SECOND_US, made);
    done.expect("in time").expect("made");
}

#[test]
fn a_primary_whose_view_is_full_names_another_one_and_is_not_named_again() {
    let mut run = cluster();
    run.world.set_view_full(0, true);
    let (began_us, served) = (run.world.now_us(), run.world.counts.serves);
    write(&mut run, 1);
    run.world.run(10 * SECOND_US, |world| world.server(P).is_some_and(|host| host > 0));
    let took_us = run.world.now_us() - began_us;
    assert!(took_us < 2 * SECOND_US, "{took_us} us: nobody waited for it to fall silent");
    for number in 2..12 {
        pass(&mut run, 10 * SECOND_US);
        write(&mut run, number);
    }
    assert_eq!(run.world.counts.serves - served, 1, "one other, and it kept the lead");
    assert!(run.world.server(P).is_some_and(|host| host > 0));
    run.world.set_view_full(0, false);
    pass(&mut run, 60 * SECOND_US);
    assert_eq!(run.world.server(P), Some(0), "where it should be");
}

#[test]
fn views_that_are_all_full_cost_no_copy() {
    let mut run = cluster();
    (0..3).for_each(|host| run.world.set_view_full(host, true));
    write(&mut run, 1);
    pass(&mut run, 15 * SECOND_US);
    let before = run.world.register_of(P);
    pass(&mut run, 60 * SECOND_US);
    assert_eq!(run.world.register_of(P), before, "nobody could take the place of another");
    assert_eq!(before.members.len(), 3);
    (0..3).for_each(|host| run.world.set_view_full(host, false));
    pass(&mut run, 20 * SECOND_US);
    write(&mut run, 2);
    assert_eq!(run.world.register_of(P).members.len(), 3);
}
