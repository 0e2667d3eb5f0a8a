//! A wait for a lock that is given up while another primary takes over, over a network that loses, doubles and delays: it
//! comes to its end, and whoever waited knows whether the lock is held.

use std::cell::RefCell;
use std::rc::Rc;

use braid_base::ids::{Ino, PartitionId};
use braid_base::msg::fs::{Cred, LockKind, LockSpec};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_client::session::LockEnd;
use braid_io::chance::Rng;
use braid_sim::board::{Board, Node};
use braid_sim::config::{FaultPlan, Net, SimConfig};
use braid_sim::run::{ROOT, Run};

const HOLDER: Node = Node::Client(0);
const WAITER: Node = Node::Client(1);
const THIRD: Node = Node::Client(2);
/// Longest time of anything here, with a fail-over in between, microseconds.
const END_US: u64 = 60_000_000;
const ALL: LockSpec = LockSpec { owner: 1, pid: 1, start: 0, end: u64::MAX, kind: LockKind::Write, flock: false };
const NONE: LockSpec = LockSpec { kind: LockKind::Unlock, ..ALL };

struct Scene {
    run: Run,
    rng: Rng,
    file: Ino,
}

impl Scene {
    fn new(seed: u64) -> Result<Self, String> {
        let rng = Rng::new(seed ^ 0x10C4);
        let rough = Net { min_us: 20, max_us: 20_000, lost: 300, doubled: 1_500, late: 1_000, late_us: 3_000_000 };
        let faults = FaultPlan { down_max_us: 10_000_000, ..FaultPlan::none() };
        let net = if seed.is_multiple_of(2) { Net::CALM } else { rough };
        let calm = SimConfig::calm(seed);
        let config = SimConfig { hosts: 3, members: 3, partitions: 1, clients: 0, leases: true, net, faults, ..calm };
        let run = Run::new(config, Board::default())?;
        let mut scene = Self { run, rng, file: ROOT };
        scene.run.set_up()?;
        Ok(scene)
    }

    fn below(&mut self, us: u64) -> u64 {
        self.rng.below(us)
    }

    fn wait<T: 'static>(
        &mut self,
        what: &str,
        node: Node,
        task: impl Future<Output = T> + 'static,
    ) -> Result<T, String> {
        self.run.wait(what, node, END_US, task)
    }

    fn unlock(&mut self, node: Node, fs: &Fs) -> Result<(), String> {
        let (fs, file) = (fs.clone(), self.file);
        let done = self.wait("an unlock", node, async move { fs.lock(file, NONE).await })?;
        done.map_err(|error| format!("an unlock: {error}"))
    }

    /// How the wait ended.
    fn all(&mut self) -> Result<LockEnd, String> {
        let [holder, waiter, third] = [HOLDER, WAITER, THIRD].map(|node| self.run.mount(node));
        let (fs, made) = (holder.clone(), Create::default());
        let made =
            self.wait("a create", HOLDER, async move { fs.create(Cred::default(), ROOT, b"file", made).await })?;
        self.file = made.map_err(|error| format!("a create: {error}"))?.ino;
        let (file, fs) = (self.file, holder.clone());
        let taken = self.wait("a lock", HOLDER, async move { fs.lock(file, ALL).await })?;
        taken.map_err(|error| format!("a lock that is free: {error}"))?;

        self.run.world.begin_trouble();
        let (lost_us, stop_ms) = (self.below(100_000), 1 + self.below(8_000));
        // Now and then the lock is free while all this goes on.
        let freed_us = (self.below(3) == 0).then(|| self.below(8_000_000));
        let (ended, fs) = (Rc::new(RefCell::new(None)), waiter.clone());
        let end = Rc::clone(&ended);
        let waits = async move {
            let interrupted = fs.session().wire().sleep_ms(stop_ms);
            let how = fs.lock_wait(file, ALL, interrupted).await;
            *end.borrow_mut() = Some(how);
        };
        self.run.world.spawn(WAITER, Box::pin(waits));
        self.run.world.run(lost_us, |_| false);
        self.run.world.lose_primary(PartitionId(0));
        if let Some(us) = freed_us {
            self.run.world.run(us, |_| false);
            self.unlock(HOLDER, &holder)?;
        }
        if !self.run.world.run(END_US, |_| ended.borrow().is_some()) {
            return Err("the wait does not end".to_owned());
        }
        let end = ended.take().expect("it has ended").map_err(|error| format!("the wait: {error}"))?;

        self.run.world.end_trouble();
        if freed_us.is_none() {
            self.unlock(HOLDER, &holder)?;
        }
        if end == LockEnd::Held {
            if freed_us.is_none() {
                return Err("two have the lock".to_owned());
            }
            let fs = third.clone();
            if self.wait("a try", THIRD, async move { fs.lock(file, ALL).await })?.is_ok() {
                return Err("what was told to be held is free".to_owned());
            }
            self.unlock(WAITER, &waiter)?;
        }
        let taken = self.wait("a lock that nobody holds", THIRD, async move {
            let never = std::future::pending();
            third.lock_wait(file, ALL, never).await
        })?;
        taken.map_err(|error| format!("the lock afterwards: {error}"))?;
        Ok(end)
    }
}

#[test]
fn waits_end_beside_a_new_primary() {
    let (mut held, mut interrupted) = (0, 0);
    for seed in 0..100 {
        match Scene::new(seed).and_then(|mut scene| scene.all()) {
            Ok(LockEnd::Held) => held += 1,
            Ok(LockEnd::Interrupted) => interrupted += 1,
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(held > 5 && interrupted > 20, "{held} held, {interrupted} interrupted");
}
