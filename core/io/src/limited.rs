//! Work that may hang in the system, on threads that nobody has to wait for.

use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

use crate::clock;

/// What `work` makes of each of `items`, all at the same time; none where it takes longer than `wait_ms`. That goes on all
/// the same, and what comes of it later is dropped. Blocks.
pub fn each_within<I, T>(
    name: &str,
    wait_ms: u64,
    items: Vec<I>,
    work: impl Fn(&I) -> T + Clone + Send + 'static,
) -> Found<I, T>
where
    I: Clone + Send + 'static,
    T: Send + 'static,
{
    each_or_late(name, wait_ms, items, work).0
}

/// The same, with what brings what comes later.
pub fn each_or_late<I, T>(
    name: &str,
    wait_ms: u64,
    items: Vec<I>,
    work: impl Fn(&I) -> T + Clone + Send + 'static,
) -> (Found<I, T>, Late<I, T>)
where
    I: Clone + Send + 'static,
    T: Send + 'static,
{
    let (done, all) = mpsc::channel();
    for (at, item) in items.iter().cloned().enumerate() {
        let (work, done) = (work.clone(), done.clone());
        let run = move || drop(done.send((at, work(&item))));
        if let Err(error) = Builder::new().name(name.to_owned()).spawn(run) {
            tracing::error!("no thread {name}: {error}");
        }
    }
    drop(done);
    let until_ms = clock::mono_ms() + wait_ms;
    let mut found: Vec<Option<T>> = items.iter().map(|_| None).collect();
    let left = || Duration::from_millis(until_ms.saturating_sub(clock::mono_ms()));
    while let Ok((at, made)) = all.recv_timeout(left()) {
        found[at] = Some(made);
    }
    let late = Late { items: items.clone(), all };
    (items.into_iter().zip(found).collect(), late)
}

/// Each item, and what came of it in time.
pub type Found<I, T> = Vec<(I, Option<T>)>;

/// What was not waited for any more.
pub struct Late<I, T> {
    items: Vec<I>,
    all: mpsc::Receiver<(usize, T)>,
}

impl<I: Clone, T> Late<I, T> {
    /// What has ended since it was last asked for. Does not block.
    pub fn ended(&self) -> Vec<(I, T)> {
        self.all.try_iter().map(|(at, made)| (self.items[at].clone(), made)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times an item, but for 2 only when the first part is dropped.
    fn hangs_at_two() -> (mpsc::Sender<()>, impl Fn(&u64) -> u64 + Clone + Send + 'static) {
        let (end, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(std::sync::Mutex::new(hangs));
        let work = move |item: &u64| {
            if *item == 2 {
                let _ = hangs.lock().expect("no panic").recv();
            }
            item * 10
        };
        (end, work)
    }

    #[test]
    fn one_that_hangs_keeps_nobody_waiting() {
        let (end, work) = hangs_at_two();
        let began_ms = clock::mono_ms();
        assert_eq!(each_within("test", 300, vec![1, 2, 3], work), [(1, Some(10)), (2, None), (3, Some(30))]);
        assert!((300..3_000).contains(&(clock::mono_ms() - began_ms)));
        drop(end);
        let began_ms = clock::mono_ms();
        assert_eq!(each_within("test", 60_000, vec![1, 2], |item: &u64| *item), [(1, Some(1)), (2, Some(2))]);
        assert!(clock::mono_ms() - began_ms < 30_000, "it does not wait for nothing");
    }

    #[test]
    fn one_that_comes_late_comes_once() {
        let (end, work) = hangs_at_two();
        let (found, late) = each_or_late("test", 300, vec![1, 2], work);
        assert_eq!((found, late.ended()), (vec![(1, Some(10)), (2, None)], vec![]));
        drop(end);
        let until_ms = clock::mono_ms() + 30_000;
        let ended = loop {
            let ended = late.ended();
            if !ended.is_empty() || clock::mono_ms() > until_ms {
                break ended;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        };
        assert_eq!((ended, late.ended()), (vec![(2, 20)], vec![]));
    }
}
