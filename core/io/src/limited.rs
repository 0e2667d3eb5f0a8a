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
) -> Vec<(I, Option<T>)>
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
    items.into_iter().zip(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_hangs_keeps_nobody_waiting() {
        let (end, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(std::sync::Mutex::new(hangs));
        let work = move |item: &u64| {
            if *item == 2 {
                let _ = hangs.lock().expect("no panic").recv();
            }
            item * 10
        };
        let began_ms = clock::mono_ms();
        assert_eq!(each_within("test", 300, vec![1, 2, 3], work), [(1, Some(10)), (2, None), (3, Some(30))]);
        assert!((300..3_000).contains(&(clock::mono_ms() - began_ms)));
        drop(end);
        let began_ms = clock::mono_ms();
        assert_eq!(each_within("test", 60_000, vec![1, 2], |item: &u64| *item), [(1, Some(1)), (2, Some(2))]);
        assert!(clock::mono_ms() - began_ms < 30_000, "it does not wait for nothing");
    }
}
