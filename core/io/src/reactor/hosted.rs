//! An actor without a thread of its own: it takes its rounds as a task of a runtime.
//!
//! Whoever wakes a thread pays for it, and so does whoever is woken; where threads share few processors each of them
//! finds one message. An actor on the runtime that reads the sockets is not woken by what they bring: it takes its round
//! behind them, and what it answers leaves from there. Its rounds must not block, or the sockets wait.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use braid_base::burst;
use braid_base::{Error, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::mailbox::{self, Inbox, Mailbox};
use super::{Actor, Backend, Completions, Engine, Turn};
use crate::clock;

/// An actor and all that it needs but a thread.
struct Hosted<A: Actor> {
    actor: A,
    inbox: Inbox<A::Msg>,
    turn: Turn,
    messages: VecDeque<A::Msg>,
    completions: Completions,
    /// Dropped last, whether it ends, panics or its runtime does.
    _at_drop: AtDrop,
}

/// When the next round is due.
enum Next {
    /// At once, after the others.
    Now,
    /// When something happens, or the clock shows so many microseconds.
    Later(Option<u64>),
    /// Never: it has ended, and so have its I/Os.
    Ended,
}

/// The end of an actor, wherever it runs.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<Over>);

#[derive(Debug, Default)]
struct Over {
    over: Mutex<bool>,
    told: Condvar,
}

impl Ending {
    /// Waits until it has ended and its I/O is done; also when it panicked.
    pub fn wait(&self) {
        let over = self.0.over.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.told.wait_while(over, |over| !*over));
    }

    /// Whether it has.
    pub fn is_over(&self) -> bool {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes when the result is dropped.
    pub(super) fn at_drop(&self) -> AtDrop {
        AtDrop(self.clone())
    }
}

/// Says the end.
pub(super) struct AtDrop(Ending);

impl Drop for AtDrop {
    fn drop(&mut self) {
        let Over { over, told } = &*self.0.0;
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
    }
}

/// Has `runtime` run the actor that `make` builds here, where it may open files and block.
pub(super) fn spawn<A, F>(name: &str, backend: Backend, runtime: &Handle, make: F) -> Result<(Mailbox<A::Msg>, Ending)>
where
    A: Actor + Send + 'static,
    F: FnOnce(&mut Turn) -> Result<A>,
{
    let rung = Arc::new(Notify::new());
    let bell = Arc::clone(&rung);
    let (mailbox, inbox) = mailbox::hosted(move || bell.notify_one());
    let mut turn = Turn::new(Engine::new(backend, inbox.waker())?, true);
    let actor = make(&mut turn)?;
    let watched =
        watch(&turn.engine, runtime).map_err(|error| error.within(format_args!("watch the ring of {name}")))?;
    let (messages, completions) = Default::default();
    let ending = Ending::default();
    let hosted = Hosted { actor, inbox, turn, messages, completions, _at_drop: ending.at_drop() };
    runtime.spawn(run(hosted, rung, watched));
    Ok((mailbox, ending))
}

/// Readable when an I/O has ended; none if the bell is rung then.
fn watch(engine: &Engine, runtime: &Handle) -> Result<Option<AsyncFd<OwnedFd>>> {
    let Engine::Uring(ring) = engine else { return Ok(None) };
    let os = |error| Error::os("a second descriptor", &error);
    let ring = ring.fd().try_clone_to_owned().map_err(os)?;
    let _in_runtime = runtime.enter();
    // SAFETY: the descriptor is owned by what watches it, which is all that closes it.
    let watched = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    watched.map(Some).map_err(|error| os(error.into()))
}

async fn run<A: Actor>(mut hosted: Hosted<A>, rung: Arc<Notify>, watched: Option<AsyncFd<OwnedFd>>) {
    let mut timer = pin!(sleep_until(Instant::now()));
    // For when it is set; 0: for nothing.
    let mut timer_us = 0;
    loop {
        let until_us = match hosted.round() {
            Next::Ended => return,
            Next::Now => {
                tokio::task::yield_now().await;
                continue;
            }
            Next::Later(until_us) => until_us,
        };
        if let Some(us) = until_us.filter(|us| *us != timer_us) {
            timer_us = us;
            timer.as_mut().reset(Instant::now() + Duration::from_micros(us.saturating_sub(clock::mono_us())));
        }
        tokio::select! {
            biased;
            () = rung.notified() => {}
            () = ended(watched.as_ref()) => {}
            () = timer.as_mut(), if until_us.is_some() => timer_us = 0,
        }
    }
}

/// Ready when an I/O has ended.
async fn ended(watched: Option<&AsyncFd<OwnedFd>>) {
    let Some(watched) = watched else { return std::future::pending().await };
    match watched.readable().await {
        // What ends from here on says so again.
        Ok(mut ready) => ready.clear_ready(),
        // The runtime is ending, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

impl<A: Actor> Hosted<A> {
    /// Takes all events at hand.
    fn round(&mut self) -> Next {
        let Self { actor, inbox, turn, messages, completions, .. } = self;
        let waker = inbox.waker();
        waker.rouse();
        turn.now = clock::now();
        turn.engine.reap(completions);
        completions.extend(turn.early.drain(..));
        if turn.stopping {
            // It ended before; these are waited for and not reported.
            completions.clear();
        } else {
            let closed = inbox.take(messages);
            burst::run(|| super::round(actor, turn, messages, completions, closed));
        }
        turn.hand_over();
        // From here on whoever sends rings; who did so before is seen here.
        waker.doze();
        if turn.stopping && turn.in_flight() == 0 {
            return Next::Ended;
        }
        let is_idle = turn.early.is_empty() && (turn.stopping || inbox.is_idle());
        if !is_idle || turn.engine.is_behind() {
            return Next::Now;
        }
        Next::Later(turn.timer.filter(|_| !turn.stopping))
    }
}
