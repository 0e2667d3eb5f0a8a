//! A sign of life on stderr for whatever takes longer than two seconds, on a terminal only.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Silence before the first sign.
const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(120);

/// A spinner that appears after two seconds and goes when dropped.
pub struct Progress {
    words: Option<Sender<String>>,
    painter: Option<thread::JoinHandle<()>>,
}

impl Progress {
    /// Starts waiting; `what` is shown beside the spinner.
    pub fn new(what: &str) -> Self {
        if !stderr().is_terminal() {
            return Self { words: None, painter: None };
        }
        let (words, heard) = channel();
        let what = what.to_owned();
        Self { words: Some(words), painter: Some(thread::spawn(move || paint(what, &heard))) }
    }

    /// Changes the words.
    pub fn say(&self, what: &str) {
        if let Some(words) = &self.words {
            // The painter only ends before us if it panicked; then there is nothing to show.
            let _ = words.send(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.words = None;
        if let Some(painter) = self.painter.take() {
            // A painter that panicked has nothing to clear.
            let _ = painter.join();
        }
    }
}

/// Runs `work` with a spinner that says `what`.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _progress = Progress::new(what);
    work()
}

fn paint(mut what: String, heard: &Receiver<String>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    let mut shown = false;
    loop {
        match heard.recv_timeout(if shown { TICK } else { PATIENCE }) {
            Ok(words) => what = words,
            Err(RecvTimeoutError::Timeout) if !shown => {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                shown = true;
            }
            Err(RecvTimeoutError::Timeout) => bar.tick(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        bar.set_message(what.clone());
    }
    bar.finish_and_clear();
}
