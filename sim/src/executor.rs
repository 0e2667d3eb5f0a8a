//! Runs asynchronous code in one thread, in an order that the seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use braid_io::chance::Rng;

use crate::board::Node;

/// A future that the executor owns.
pub type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks, and which of them want to be polled.
#[derive(Default)]
pub struct Executor {
    tasks: BTreeMap<u64, Task>,
    ready: Arc<Mutex<BTreeSet<u64>>>,
    next: u64,
}

struct Task {
    owner: Node,
    future: TaskFuture,
    waker: Waker,
}

struct Bell {
    task: u64,
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ready.lock().expect("nothing panics while it holds the list").insert(self.task);
    }
}

impl Executor {
    /// Adds a task of `owner`; it runs at the next [`Executor::run_ready`].
    pub fn spawn(&mut self, owner: Node, future: TaskFuture) {
        self.next += 1;
        let bell = Bell { task: self.next, ready: Arc::clone(&self.ready) };
        let waker = Waker::from(Arc::new(bell));
        waker.wake_by_ref();
        self.tasks.insert(self.next, Task { owner, future, waker });
    }

    /// Drops all tasks of `owner`, wherever they wait.
    pub fn kill(&mut self, owner: Node) {
        self.tasks.retain(|_, task| task.owner != owner);
    }

    /// Polls whoever was woken, in random order, until nobody is.
    pub fn run_ready(&mut self, rng: &mut Rng) {
        loop {
            let chosen = {
                let mut ready = self.ready.lock().expect("nothing panics while it holds the list");
                let Some(chosen) = ready.iter().nth(rng.index(ready.len())).copied() else { return };
                ready.remove(&chosen);
                chosen
            };
            let Some(task) = self.tasks.get_mut(&chosen) else { continue };
            let waker = task.waker.clone();
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks.remove(&chosen);
            }
        }
    }

    /// Tasks of `owner` that have not ended.
    pub fn count(&self, owner: Node) -> usize {
        self.tasks.values().filter(|task| task.owner == owner).count()
    }
}

#[cfg(test)]
mod tests {
    use super::Executor;
    use crate::board::{Node, Slot};
    use braid_io::chance::Rng;
    use std::sync::{Arc, Mutex};

    #[test]
    fn order_comes_from_the_seed_and_killed_tasks_stop() {
        let run = |seed| {
            let (mut exec, mut rng) = (Executor::default(), Rng::new(seed));
            let log = Arc::new(Mutex::new(Vec::new()));
            let gate = Slot::new();
            for i in 0..8u32 {
                let (log, gate) = (Arc::clone(&log), gate.clone());
                let task = async move {
                    log.lock().expect("one thread").push(i);
                    if i == 7 {
                        let () = gate.await;
                        log.lock().expect("one thread").push(99);
                    }
                };
                exec.spawn(Node::Client(i / 4), Box::pin(task));
            }
            exec.run_ready(&mut rng);
            assert_eq!((exec.count(Node::Client(0)), exec.count(Node::Client(1))), (0, 1));
            if seed % 2 == 0 {
                exec.kill(Node::Client(1));
            }
            gate.fill(());
            exec.run_ready(&mut rng);
            log.lock().expect("one thread").clone()
        };
        assert_eq!(run(2), run(2));
        assert_ne!(run(2), run(4));
        assert!(!run(2).contains(&99) && run(3).contains(&99));
    }
}
