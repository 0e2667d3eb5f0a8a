//! One run: set up, trouble, peace, and the audit of everything that was acknowledged.

mod audit;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use braid_base::ids::{Ino, Vp};
use braid_base::msg::fs::Cred;
use braid_client::session::Patience;
use braid_client::{Fs, Session};
use braid_io::chance::Rng;

use crate::board::{Beside, Board, Node};
use crate::broken::Broken;
use crate::config::SimConfig;
use crate::contest::{self, Arena, ArenaRef};
use crate::desk::{self, Desk, DeskRef, Worker};
use crate::hand::{self, Hand, HandRef, Ways};
use crate::kernel::Kernel;
use crate::model::Model;
use crate::points::Coverage;
use crate::register::Losses;
use crate::world::{Counts, World};

/// The root directory.
pub const ROOT: Ino = Ino(1);
/// Nobody waits longer than this without an answer before asking again, milliseconds.
const ATTEMPT_MS: u64 = 1_500;
/// Nobody gives up: what is not answered in this time is stuck, milliseconds.
const DEADLINE_MS: u64 = 3_600_000;
/// Longest time of trouble, microseconds.
const TROUBLE_MAX_US: u64 = 300_000_000;
/// Everything must come to its end within this time of peace, microseconds.
const PEACE_MAX_US: u64 = 600_000_000;

/// What a run that kept all promises has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Crash points.
    pub coverage: Coverage,
    /// Messages and writes.
    pub counts: Counts,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// Simulated time, microseconds.
    pub took_us: u64,
    /// True if everything staged was moved to the drives in the end.
    pub destaged: bool,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub config: SimConfig,
    /// The promise.
    pub what: String,
    /// The last lines of the schedule.
    pub schedule: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.schedule)?;
        writeln!(f, "{:?}", self.config)?;
        writeln!(f, "seed {}: {}", self.config.seed, self.what)?;
        writeln!(f, "again (with BRAID_WORLD, if it was no plain one):")?;
        write!(f, "BRAID_SEED={} cargo test -p braid-sim --release one_seed -- --nocapture", self.config.seed)
    }
}

/// Runs one simulation. A panic of a core is a failure like any other.
pub fn run(config: SimConfig) -> Result<Report, Box<Failure>> {
    run_on(Board::default(), config)
}

/// The same; `board` keeps the schedule.
pub fn run_on(board: Board, config: SimConfig) -> Result<Report, Box<Failure>> {
    let inside = board.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| Run::new(config.clone(), inside)?.all()));
    let what = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            format!("panic: {text}")
        }
    };
    Err(Box::new(Failure { config, what, schedule: board.schedule() }))
}

/// One run under way.
pub struct Run {
    /// The world.
    pub world: World,
    hands: Vec<HandRef>,
    arena: Option<ArenaRef>,
    desk: Option<DeskRef>,
    /// Programs of each client, to be started again after a kill.
    clients: Vec<Vec<HandRef>>,
}

impl Run {
    /// A cluster that runs, with nothing in it.
    pub fn new(config: SimConfig, board: Board) -> Result<Self, String> {
        let world = World::new(config, board).map_err(|error| format!("the cluster does not start: {error}"))?;
        Ok(Self { world, hands: Vec::new(), arena: None, desk: None, clients: Vec::new() })
    }

    fn all(mut self) -> Result<Report, String> {
        self.set_up()?;
        self.trouble()?;
        let destaged = self.audit()?;
        let world = self.world;
        Ok(Report {
            coverage: world.coverage.clone(),
            counts: world.counts,
            fingerprint: world.board.fingerprint(),
            took_us: world.now_us(),
            destaged,
        })
    }

    /// A file system as a new client at `node` sees it.
    pub fn mount(&mut self, node: Node) -> Fs {
        let patience = Patience { deadline_ms: DEADLINE_MS, attempt_ms: ATTEMPT_MS, ..Patience::default() };
        let (id, wire) = (self.world.new_client_id(), self.world.wire(node));
        let session = Session::with_patience(Arc::new(wire), id, patience);
        if self.world.config.leases && matches!(node, Node::Client(_)) {
            self.world.spawn(node, Box::pin(session.keep_leases(None)));
            if let (Some(Broken::Opens(mutation)), Some(leases)) = (self.world.config.broken, session.leases()) {
                leases.leave_out(Some(mutation));
            }
            let bytes = self.world.config.behind_bytes;
            if bytes > 0 {
                let beside = Beside { board: self.world.board.clone(), node };
                let fs = Fs::with_write_behind(session, crate::FS, ROOT, Arc::new(beside), bytes);
                if let Some(Broken::Promises(mutation)) = self.world.config.broken {
                    fs.leave_out(Some(mutation));
                }
                if self.world.config.gather_ms > 0 {
                    fs.promise_names(self.world.config.gather_ms);
                }
                return fs;
            }
        }
        Fs::new(session, crate::FS, ROOT)
    }

    /// Runs `task` of `node` to its end in at most `limit_us`.
    pub fn wait<T: 'static>(
        &mut self,
        what: &str,
        node: Node,
        limit_us: u64,
        task: impl Future<Output = T> + 'static,
    ) -> Result<T, String> {
        let result = std::rc::Rc::new(std::cell::RefCell::new(None));
        let place = result.clone();
        let task = async move {
            let value = task.await;
            *place.borrow_mut() = Some(value);
        };
        self.world.spawn(node, Box::pin(task));
        let done = self.world.run(limit_us, |_| result.borrow().is_some());
        self.broken()?;
        let value = result.borrow_mut().take();
        value.filter(|_| done).ok_or_else(|| format!("{what} does not come to an end"))
    }

    /// The promise that a task reported as broken.
    fn broken(&self) -> Result<(), String> {
        self.world.board.violated().map_or(Ok(()), Err)
    }

    /// The root, a directory for each program, the arena, the desk.
    pub fn set_up(&mut self) -> Result<(), String> {
        assert_eq!(ROOT, Ino::new(Vp(0), 1), "the root is the first inode of virtual partition 0");
        let fs = self.mount(Node::Auditor);
        let (clients, hands) = (self.world.config.clients, self.world.config.hands);
        let (scarce, desk) = (self.world.config.is_scarce(), self.world.config.desk);
        let setup = async move {
            fs.make_root(0o755).await?;
            let mut tops = Vec::new();
            for number in 0..clients * hands {
                let name = format!("hand{number}");
                tops.push(fs.mkdir(Cred::default(), ROOT, name.as_bytes(), 0o755, 0).await?.ino);
            }
            let arena = Arena::prepare(&fs, scarce).await?;
            let desk = if desk { Some(Desk::prepare(&fs, scarce).await?) } else { None };
            fs.end_session().await?;
            Ok::<_, braid_base::Error>((tops, arena, desk))
        };
        let made = self.wait("set-up", Node::Auditor, 60_000_000, setup)?;
        let (tops, arena, desk) = made.map_err(|error| format!("set-up: {error}"))?;
        (self.arena, self.desk) = (Some(arena), desk);
        let config = self.world.config.clone();
        let (scarce, fills, tiered) = (config.is_scarce(), config.fills, config.tiered);
        let ways = Ways { scarce, fills, behind: config.behind_bytes > 0, tiered };
        let mut rng = Rng::new(config.seed ^ 0xBA5E);
        for (number, top) in tops.into_iter().enumerate() {
            let model = Model::new(top, ROOT, 0o755);
            let rng = Rng::new(rng.next_u64());
            self.hands.push(Hand::new(number as u32, model, config.ops, ways, rng));
        }
        self.clients = self.hands.chunks(hands as usize).map(<[_]>::to_vec).collect();
        Ok(())
    }

    fn trouble(&mut self) -> Result<(), String> {
        self.world.begin_trouble();
        self.world.killable = (0..self.world.config.clients).collect();
        for client in 0..self.world.config.clients {
            self.start_client(client, false);
        }
        if !self.work(TROUBLE_MAX_US)? {
            self.world.killable.clear();
            self.world.end_trouble();
            if !self.work(PEACE_MAX_US)? {
                return Err(format!("stuck: {}", self.unfinished()));
            }
        }
        self.world.killable.clear();
        self.world.end_trouble();
        Ok(())
    }

    /// Lets clients work, starts killed ones again; true once all are done.
    fn work(&mut self, limit_us: u64) -> Result<bool, String> {
        let end = self.world.now_us() + limit_us;
        loop {
            let clients = self.world.config.clients;
            let left = end.saturating_sub(self.world.now_us());
            let done = self
                .world
                .run(left, |world| !world.fallen.is_empty() || (0..clients).all(|client| world.client_is_done(client)));
            self.broken()?;
            for client in std::mem::take(&mut self.world.fallen) {
                self.start_client(client, true);
            }
            if !done || (0..clients).all(|client| self.world.client_is_done(client)) {
                return Ok(done);
            }
        }
    }

    fn start_client(&mut self, client: u32, again: bool) {
        let node = Node::Client(client);
        let fs = self.mount(node);
        let losses = Losses::of(&fs, &self.world.board);
        for hand in self.clients[client as usize].clone() {
            let task = hand::work(hand, (fs.clone(), losses.clone()), self.world.board.clone(), again);
            self.world.spawn(node, Box::pin(task));
        }
        if let Some(arena) = self.arena.clone() {
            let rng = Rng::new(self.world.config.seed ^ u64::from(client) << 32 ^ self.world.now_us());
            let rounds = self.world.config.ops / 4;
            let task = contest::compete(
                arena,
                (fs.clone(), losses.clone()),
                self.world.board.clone(),
                rng,
                client == 0,
                rounds,
            );
            self.world.spawn(node, Box::pin(task));
        }
        if let Some(desk) = self.desk.clone() {
            desk::fallen(&desk, client);
            let rng = Rng::new(self.world.config.seed ^ 0xDE5C ^ u64::from(client) << 32 ^ self.world.now_us());
            let (board, kernel) = (self.world.board.clone(), Kernel::beside(&fs));
            let worker = Worker { desk, fs, losses, board, rng, process: client, kernel };
            self.world.spawn(node, Box::pin(worker.work(self.world.config.ops)));
        }
    }

    fn unfinished(&mut self) -> String {
        let what = |hand: &HandRef| {
            let hand = hand::lock(hand);
            let action = hand.in_flight.as_ref()?;
            Some(format!("hand {} waits for {}", hand.number, action.line()))
        };
        let hands = self.hands.iter().filter_map(what).collect::<Vec<_>>().join("; ");
        format!("{hands}; {}", self.world.status())
    }
}
