//! Up or down, per direction, as one host sees it; and whether the store is full.

use std::time::Duration;

use braid_base::attr::Time;
use braid_base::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// Failed attempts, one after another, after which a direction is down even if the requests still go on.
const FAILURES_MAX: u32 = 3;
/// A full store is tried with one upload each so often.
const FULL_RETRY: Duration = Duration::from_secs(60);
/// Who has something to upload tries it again more often than this, see `meta/data/tier/upload`.
const UNWANTED: Duration = Duration::from_secs(120);

/// A direction of traffic between a host and a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Puts.
    Upload,
    /// Gets, and questions.
    Download,
    /// Deletes.
    Remove,
}

/// What is known of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was tried yet.
    Unknown,
    /// The last request succeeded.
    Up,
    /// Requests fail.
    Down,
}

/// The state of a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Up or down.
    pub state: State,
    /// Since when, wall clock.
    pub since: Time,
    /// Why the last attempt that failed did so.
    pub last_error: Option<String>,
    /// How long ago the last attempt ended, or the link was made.
    pub idle: Duration,
}

/// All directions of one store.
pub(super) struct Board {
    /// By direction.
    lines: [Line; 3],
    full: Option<Full>,
}

struct Line {
    health: Health,
    failures: u32,
    /// Since when it is down.
    down: Option<Instant>,
    /// When the last attempt ended.
    tried: Instant,
}

/// The store takes no more; until `next_try` no upload is let through.
struct Full {
    next_try: Instant,
    /// When somebody last wanted to upload something.
    wanted: Instant,
    error: Error,
}

impl Board {
    pub fn new() -> Self {
        let line = || {
            let (since, idle) = (braid_io::clock::now().wall, Duration::ZERO);
            let health = Health { state: State::Unknown, since, last_error: None, idle };
            Line { health, failures: 0, down: None, tried: Instant::now() }
        };
        Self { lines: [line(), line(), line()], full: None }
    }

    pub fn health(&self, direction: Direction) -> Health {
        let line = &self.lines[direction as usize];
        Health { idle: line.tried.elapsed(), ..line.health.clone() }
    }

    /// True if the direction has been down for at least `time`.
    pub fn is_long_down(&self, direction: Direction, time: Duration, now: Instant) -> bool {
        self.lines[direction as usize].down.is_some_and(|since| now >= since + time)
    }

    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// May an upload begin? To a full store one may, now and then, to see whether it is still full.
    ///
    /// Errors: `Quota`: it may not.
    pub fn admit(&mut self, now: Instant) -> Result<()> {
        if let Some(full) = &mut self.full {
            full.wanted = now;
        }
        match &mut self.full {
            Some(full) if now < full.next_try => {
                let message = format!("uploads wait, the store is full: {}", full.error.message());
                Err(Error::new(ErrorKind::Quota, message))
            }
            Some(full) => {
                full.next_try = now + FULL_RETRY;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// True if something small is to be put into a full store to see whether it is still full. While there is something to
    /// upload that tells, and more: it needs the room.
    pub fn probes(&mut self, now: Instant) -> bool {
        let due = |full: &&mut Full| now >= full.next_try && now >= full.wanted + UNWANTED;
        self.full.as_mut().filter(due).map(|full| full.next_try = now + FULL_RETRY).is_some()
    }

    pub fn succeeded(&mut self, direction: Direction) {
        if direction == Direction::Upload {
            self.full = None;
        }
        self.answered(direction);
    }

    /// The store is there, whatever it said.
    pub fn answered(&mut self, direction: Direction) {
        let line = self.line(direction);
        (line.failures, line.tried) = (0, Instant::now());
        line.turn(State::Up);
    }

    /// An attempt failed; it may be repeated.
    pub fn failed(&mut self, direction: Direction, error: &Error) {
        let line = self.line(direction);
        (line.failures, line.tried) = (line.failures.saturating_add(1), Instant::now());
        line.health.last_error = Some(error.message().to_owned());
        if line.failures >= FAILURES_MAX {
            line.turn(State::Down);
        }
    }

    /// A request failed for good, after its attempts were told.
    pub fn gave_up(&mut self, direction: Direction) {
        let line = self.line(direction);
        // Another request may have succeeded since.
        if line.failures > 0 {
            line.turn(State::Down);
        }
    }

    /// The store takes no more.
    pub fn full(&mut self, error: &Error, now: Instant) {
        let wanted = self.full.as_ref().map_or(now, |full| full.wanted);
        self.full = Some(Full { next_try: now + FULL_RETRY, wanted, error: error.clone() });
        let upload = self.line(Direction::Upload);
        upload.health.last_error = Some(error.message().to_owned());
        upload.tried = Instant::now();
        upload.turn(State::Down);
    }

    fn line(&mut self, direction: Direction) -> &mut Line {
        &mut self.lines[direction as usize]
    }
}

impl Line {
    fn turn(&mut self, state: State) {
        if self.health.state != state {
            self.health.state = state;
            self.health.since = braid_io::clock::now().wall;
            self.down = (state == State::Down).then(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Board, Direction, FULL_RETRY, State, UNWANTED};
    use braid_base::{Error, ErrorKind};
    use tokio::time::Instant;

    #[test]
    fn a_blip_is_no_outage_and_a_success_ends_one() {
        let (mut board, error) = (Board::new(), Error::new(ErrorKind::Io, "broken"));
        assert_eq!(board.health(Direction::Download).state, State::Unknown);
        board.succeeded(Direction::Download);
        board.failed(Direction::Download, &error);
        board.failed(Direction::Download, &error);
        assert_eq!(board.health(Direction::Download).state, State::Up);
        board.failed(Direction::Download, &error);
        let health = board.health(Direction::Download);
        assert_eq!((health.state, health.last_error.as_deref()), (State::Down, Some("broken")));
        assert_eq!(board.health(Direction::Upload).state, State::Unknown, "each direction for itself");
        board.succeeded(Direction::Download);
        assert_eq!(board.health(Direction::Download).state, State::Up);
        board.failed(Direction::Download, &error);
        board.gave_up(Direction::Download);
        assert_eq!(board.health(Direction::Download).state, State::Down);
        let (minute, now) = (Duration::from_secs(60), Instant::now());
        let long = |now| board.is_long_down(Direction::Download, minute, now);
        assert!(!long(now) && long(now + minute));
        board.answered(Direction::Download);
        assert!(!board.is_long_down(Direction::Download, minute, now + minute));
    }

    #[tokio::test(start_paused = true)]
    async fn how_old_the_news_is() {
        let mut board = Board::new();
        let pause = Duration::from_secs(5);
        tokio::time::advance(pause).await;
        assert_eq!(board.health(Direction::Upload).idle, pause);
        board.failed(Direction::Upload, &Error::new(ErrorKind::Io, "broken"));
        assert_eq!(board.health(Direction::Upload).idle, Duration::ZERO);
        tokio::time::advance(pause).await;
        board.succeeded(Direction::Remove);
        assert_eq!(
            (board.health(Direction::Remove).idle, board.health(Direction::Upload).idle),
            (Duration::ZERO, pause)
        );
    }

    #[test]
    fn a_full_store_is_tried_by_one_upload_at_a_time() {
        let (mut board, now) = (Board::new(), Instant::now());
        board.full(&Error::new(ErrorKind::Quota, "no more"), now);
        assert_eq!(board.admit(now).expect_err("full").kind(), ErrorKind::Quota);
        let later = now + FULL_RETRY;
        board.admit(later).expect("one may try");
        assert!(board.admit(later).is_err(), "but only one");
        board.succeeded(Direction::Remove);
        assert!(board.is_full(), "other directions say nothing about it");
        board.succeeded(Direction::Upload);
        board.admit(later).expect("room again");
    }

    #[test]
    fn a_full_store_that_nobody_wants_is_tried_with_little() {
        let (mut board, now) = (Board::new(), Instant::now());
        let full = Error::new(ErrorKind::Quota, "no more");
        assert!(!board.probes(now), "there is room");
        board.full(&full, now);
        let wanted = now + FULL_RETRY;
        assert!(!board.probes(wanted), "there may be something to upload");
        assert!(board.admit(wanted).is_ok() && board.admit(wanted).is_err());
        board.full(&full, wanted);
        assert!(!board.probes(now + UNWANTED), "there was");
        let unwanted = wanted + UNWANTED;
        assert!(board.probes(unwanted) && !board.probes(unwanted), "now there is not: one try");
        board.full(&full, unwanted);
        assert!(!board.probes(unwanted + FULL_RETRY / 2) && board.probes(unwanted + FULL_RETRY), "and one each minute");
        board.succeeded(Direction::Upload);
        assert!(!board.is_full() && !board.probes(unwanted + UNWANTED));
    }
}
