//! A program of a client: a random stream of calls on a subtree of its own, each checked against the model.
//!
//! 1. It chooses a call, notes it as being in flight, makes it, compares the answer, goes on.
//! 2. If its process is killed, the next one does not know whether the call in flight took effect: it waits until
//!    nothing of the old process can happen any more, looks, and accepts both.

use std::sync::{Arc, Mutex};

use braid_base::ids::Ino;
use braid_base::limits::HELD_MS_MAX;
use braid_base::{ErrorKind, Result};
use braid_client::Fs;
use braid_io::chance::Rng;

use crate::board::Board;
use crate::compare::Inspector;
use crate::deeds::Deed;
use crate::doubts::{self, Doubts};
use crate::generate;
use crate::model::{Action, Answer, Model};
use crate::perform::{Verdict, judge, perform};
use crate::register::Losses;
use crate::unsynced::Unsynced;

/// Between the death of a process and the look at what it did, milliseconds: longer than any message and any
/// unfinished operation or write held back lives once nothing new goes wrong.
const AFTERMATH_MS: u64 = HELD_MS_MAX + 25_000;

/// What survives the process.
pub struct Hand {
    /// Its number.
    pub number: u32,
    /// What its subtree must look like.
    pub model: Model,
    /// The call whose answer is not known.
    pub in_flight: Option<Action>,
    /// Calls to make.
    pub left: u32,
    /// The cluster may run full.
    pub scarce: bool,
    /// It fills the cluster.
    pub fills: bool,
    /// Its client holds bytes back.
    behind: bool,
    /// It says now and then where files are to be.
    tiered: bool,
    /// So many calls it takes something away before it goes on.
    full: u32,
    /// Files of which bytes may be held back.
    unsynced: Unsynced,
    /// Names that may not be there, or still be there.
    doubts: Doubts,
    rng: Rng,
    /// [`Board::power_losses`] when the model's open references were last known to hold.
    power_losses: u64,
}

/// What it is like.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// The cluster may run full.
    pub scarce: bool,
    /// It fills the cluster.
    pub fills: bool,
    /// Its client holds bytes back.
    pub behind: bool,
    /// It says now and then where files are to be.
    pub tiered: bool,
}

/// Shared between the world and the running process.
pub type HandRef = Arc<Mutex<Hand>>;

impl Hand {
    /// A program that will make `calls` calls below `top`.
    pub fn new(number: u32, model: Model, calls: u32, ways: Ways, rng: Rng) -> HandRef {
        let (in_flight, left, full, power_losses) = (None, calls, 0, 0);
        let Ways { scarce, fills, behind, tiered } = ways;
        Arc::new(Mutex::new(Self {
            number,
            model,
            in_flight,
            left,
            scarce,
            fills,
            behind,
            tiered,
            full,
            unsynced: Unsynced::default(),
            doubts: Doubts::default(),
            rng,
            power_losses,
        }))
    }

    /// The next call. Open references that a power loss may have ended are forgotten first.
    fn choose(&mut self, board: &Board) -> Option<Action> {
        let losses = board.power_losses();
        if losses != self.power_losses {
            self.model.forget_nameless();
            self.unsynced.forget_gone(&self.model);
            self.power_losses = losses;
        }
        self.left = self.left.checked_sub(1)?;
        if let Some(ino) = self.unsynced.crowded() {
            self.in_flight = Some(Action::Fsync { ino });
            return self.in_flight.clone();
        }
        let full = self.full > 0;
        self.full = self.full.saturating_sub(1);
        let action = match self.fills {
            _ if self.tiered && self.rng.chance(1, 10) => generate::tiered(&self.model, &mut self.rng),
            true => generate::greedy(&self.model, &mut self.rng, full),
            false => generate::next(&self.model, &mut self.rng),
        };
        let action = match action {
            // No kernel lets such a write come here, and bytes that are held back are looked at later.
            Action::Write { ino, .. } if self.behind && !self.model.is_file(ino) => Action::Stat { ino },
            // What is left of its content would depend on whether it goes.
            Action::Unlink { dir, name } => match self.unsynced.is_named(&self.model, dir, &name) {
                Some(ino) => Action::Fsync { ino },
                None => Action::Unlink { dir, name },
            },
            action => action,
        };
        self.in_flight = Some(action.clone());
        Some(action)
    }

    /// True if the answer says nothing: it is about an inode that only an open reference kept, and power was lost.
    fn is_moot(&self, action: &Action, board: &Board) -> bool {
        let nameless = |ino: &Ino| self.model.node(*ino).is_some_and(|node| node.nlink == 0);
        action.inos().iter().any(nameless) && board.power_losses() != self.power_losses
    }

    /// Takes note of an answer. Errors: a promise that seems to be broken.
    fn told(
        &mut self,
        action: &Action,
        answer: &Result<Answer>,
        (fs, board): (&Fs, &Board),
    ) -> std::result::Result<(), String> {
        let verdict = judge(&self.model, action, answer, self.scarce);
        let (moot, number) = (self.is_moot(action, board), self.number);
        board.note(|| format!("hand {number}: {} -> {}", action.line(), brief(&verdict)));
        match (verdict, answer) {
            (Verdict::Right(new), Ok(answer)) => {
                if self.full > 0 && action.changes() && !action.needs_space() {
                    board.did(Deed::RemovedWhenFull);
                }
                if let (Action::Fetch { .. }, Answer::Moved(true)) = (action, answer) {
                    board.did(Deed::FetchedByCommand);
                }
                if let (Action::Release { .. }, Answer::Moved(true)) = (action, answer) {
                    board.did(Deed::ReleasedByCommand);
                }
                let held_back = matches!(answer, Answer::Wrote { held_back: true, .. });
                let node = action.ino().filter(|_| held_back).and_then(|ino| self.model.node(ino));
                let before = node.map(|node| node.content.clone());
                let was = doubts::before(action, &self.model);
                self.model.apply(action, new);
                self.doubts.answered(action, fs, was, &self.model);
                if !self.doubts.is_empty() {
                    board.did(Deed::NamePromised);
                }
                if let Action::Rmdir { dir, name } = action
                    && fs.is_promised(*dir, name)
                {
                    board.did(Deed::DirPromised);
                }
                self.unsynced.answered(action, answer, before, &self.model);
            }
            (_, Err(error)) if matches!(action, Action::Fsync { .. }) => return Err(format!("fsync: {error}")),
            (Verdict::Hindered, _) => self.hindered(),
            (Verdict::Wrong(what), _) if !moot => return Err(what),
            _ => {}
        }
        Ok(())
    }

    /// It was told that there is no room.
    fn hindered(&mut self) {
        // On a full cluster each refusal takes long, and more of them tell nothing new.
        self.left = self.left.saturating_sub(if self.fills { 3 } else { 30 });
        self.full = 1 + self.rng.below(5) as u32;
    }

    /// Files and directories of which something may not have reached the cluster.
    fn dirty(&self) -> Vec<Ino> {
        self.unsynced.files().into_iter().chain(self.doubts.dirs()).collect()
    }

    fn pause_ms(&mut self) -> u64 {
        if !self.doubts.is_empty() && self.rng.chance(1, 3) {
            // Most calls end all doubts: without this hardly any would be left when the process dies.
            return self.rng.below(6_000);
        }
        match self.rng.below(40) {
            0 => self.rng.below(6_000),
            1..8 => self.rng.below(300),
            _ => self.rng.below(20),
        }
    }
}

/// Makes calls until none is left. `again`: an earlier process was killed.
pub async fn work(hand: HandRef, (fs, _losses): (Fs, Arc<Losses>), board: Board, again: bool) {
    if again && let Err(what) = resolve(&hand, &fs, &board, AFTERMATH_MS).await {
        return board.violation(format!("hand {}: {what}", lock(&hand).number));
    }
    loop {
        let Some(action) = lock(&hand).choose(&board) else { break };
        let number = lock(&hand).number;
        let lasts = doubts::lasts(&action);
        if lasts {
            // They go on beyond the deadline, and so does the wait for them.
            while fs.names_settled().await.is_err() {}
        }
        lock(&hand).doubts.prune(&fs);
        board.note(|| format!("hand {number}: {}", action.line()));
        let in_doubt = lasts && !lock(&hand).doubts.is_empty();
        if in_doubt {
            lock(&hand).in_flight = None;
            let what = "names are in doubt after all were settled".to_owned();
            if let Err(what) = perhaps_lost((&hand, false), &fs, &board, what).await {
                return board.violation(format!("hand {number}: {what}"));
            }
            continue;
        }
        let answer = perform(&fs, &action).await;
        let scarce = lock(&hand).scarce;
        let told = lock(&hand).told(&action, &answer, (&fs, &board));
        if let Err(what) = told
            && let Err(what) = perhaps_lost((&hand, is_told(&action, &answer, scarce)), &fs, &board, what).await
        {
            return board.violation(format!("hand {number}: {what}"));
        }
        let pause = {
            let mut hand = lock(&hand);
            hand.in_flight = None;
            hand.pause_ms()
        };
        fs.session().wire().sleep_ms(pause).await;
    }
    let dirty = lock(&hand).dirty();
    for ino in dirty {
        // What is lost by then was lost before: the tree is compared with what is there.
        let _ = fs.fsync(ino).await;
    }
    let unsynced = !lock(&hand).dirty().is_empty();
    if unsynced && let Err(what) = resolve(&hand, &fs, &board, 0).await {
        board.violation(format!("hand {}: {what}", lock(&hand).number));
    }
}

/// True if the program was told that bytes are lost that it had written.
fn is_told(action: &Action, answer: &Result<Answer>, scarce: bool) -> bool {
    matches!((action, answer), (Action::Fsync { .. }, Err(error)) if is_loss(error.kind(), scarce))
}

/// What `fsync` says of bytes that were written and are lost. Room was lent for them; but when a drive does not take
/// its part, they need room in the log, which may not be there.
fn is_loss(kind: ErrorKind, scarce: bool) -> bool {
    kind == ErrorKind::Io || (scarce && kind == ErrorKind::NoSpace)
}

/// `what` is wrong: unless bytes were held back and their session was given up, a promise is broken. `told`: the
/// program knows of it already.
async fn perhaps_lost(
    (hand, told): (&HandRef, bool),
    fs: &Fs,
    board: &Board,
    what: String,
) -> std::result::Result<(), String> {
    let (files, scarce) = {
        let hand = lock(hand);
        (hand.dirty(), hand.scarce)
    };
    let mut told = told;
    for ino in files {
        told |= fs.fsync(ino).await.is_err_and(|error| is_loss(error.kind(), scarce));
    }
    if !told {
        return Err(what);
    }
    board.note(|| format!("hand {}: a program was told that written bytes are lost", lock(hand).number));
    resolve(hand, fs, board, 0).await
}

/// Finds out whether the call in flight of a killed process took effect, once `wait_ms` have passed.
async fn resolve(hand: &HandRef, fs: &Fs, board: &Board, wait_ms: u64) -> std::result::Result<(), String> {
    let _quiet = board.quiet();
    fs.session().wire().sleep_ms(wait_ms).await;
    let (mut before, action, mut rng, mut unsynced, mut doubts) = {
        let mut hand = lock(hand);
        hand.model.forget_nameless();
        hand.power_losses = board.power_losses();
        let rng = Rng::new(hand.rng.next_u64());
        let (unsynced, doubts) = (std::mem::take(&mut hand.unsynced), std::mem::take(&mut hand.doubts));
        (hand.model.clone(), hand.in_flight.take(), rng, unsynced, doubts)
    };
    let number = lock(hand).number;
    if doubts.adopt(fs, &mut before).await? {
        board.did(Deed::NameLost);
    }
    unsynced.forget_gone(&before);
    let action = action.filter(Action::changes).filter(|action| before.expect(action).is_ok());
    if let Some((action, ino)) = action.as_ref().and_then(|action| Some((action, action.ino()?))) {
        let mut after = before.clone();
        after.apply(action, Ino(0));
        unsynced.reached(ino, &after);
    }
    if unsynced.adopt(fs, board, &mut before).await? {
        board.did(Deed::HeldBackLost);
    }
    lock(hand).model = before.clone();
    let Some(action) = action else {
        return Inspector { fs, rng: &mut rng, rival: None, board }.compare(&before).await;
    };
    let mut after = before.clone();
    after.apply(&action, made_by(fs, &action).await?);
    after.forget_nameless();
    let undone = Inspector { fs, rng: &mut rng, rival: Some(&after), board }.compare(&before).await;
    let Err(undone) = undone else {
        board.note(|| format!("hand {number}: {} had no effect", action.line()));
        return Ok(());
    };
    if let Err(done) = (Inspector { fs, rng: &mut rng, rival: Some(&before), board }).compare(&after).await {
        let line = action.line();
        return Err(format!("{line} was in flight; the tree is neither without it ({undone}) nor with it ({done})"));
    }
    board.note(|| format!("hand {number}: {} had its effect", action.line()));
    lock(hand).model = after;
    Ok(())
}

/// The inode that a creation made, if it did.
async fn made_by(fs: &Fs, action: &Action) -> std::result::Result<Ino, String> {
    let Action::Create { dir, name, .. } = action else { return Ok(Ino(0)) };
    match fs.lookup(*dir, name).await {
        Ok(found) => Ok(found.ino),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ino(0)),
        Err(error) => Err(format!("lookup after a lost creation: {error}")),
    }
}

/// Nobody panics while holding it but a simulation that has failed already.
pub fn lock(hand: &HandRef) -> std::sync::MutexGuard<'_, Hand> {
    hand.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn brief(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Right(Ino(0)) => "right".to_owned(),
        Verdict::Right(ino) => format!("right, {ino}"),
        other => format!("{other:?}"),
    }
}
