//! A program of a client: a random stream of calls on a subtree of its own, each checked against the model.
//!
//! 1. It chooses a call, notes it as being in flight, makes it, compares the answer, goes on.
//! 2. If its process is killed, the next one does not know whether the call in flight took effect: it waits until
//!    nothing of the old process can happen any more, looks, and accepts both.

use std::sync::{Arc, Mutex};

use braid_base::ErrorKind;
use braid_base::ids::Ino;
use braid_base::limits::HELD_MS_MAX;
use braid_client::Fs;
use braid_io::chance::Rng;

use crate::board::Board;
use crate::compare::Inspector;
use crate::generate;
use crate::model::{Action, Model};
use crate::perform::{Verdict, judge, perform};

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
    rng: Rng,
    /// [`Board::power_losses`] when the model's open references were last known to hold.
    power_losses: u64,
}

/// Shared between the world and the running process.
pub type HandRef = Arc<Mutex<Hand>>;

impl Hand {
    /// A program that will make `calls` calls below `top`.
    pub fn new(number: u32, model: Model, calls: u32, scarce: bool, rng: Rng) -> HandRef {
        Arc::new(Mutex::new(Self { number, model, in_flight: None, left: calls, scarce, rng, power_losses: 0 }))
    }

    /// The next call. Open references that a power loss may have ended are forgotten first.
    fn choose(&mut self, board: &Board) -> Option<Action> {
        let losses = board.power_losses();
        if losses != self.power_losses {
            self.model.forget_nameless();
            self.power_losses = losses;
        }
        self.left = self.left.checked_sub(1)?;
        let action = generate::next(&self.model, &mut self.rng);
        self.in_flight = Some(action.clone());
        Some(action)
    }

    /// True if the answer says nothing: it is about an inode that only an open reference kept, and power was lost.
    fn is_moot(&self, action: &Action, board: &Board) -> bool {
        let nameless = action.ino().and_then(|ino| self.model.node(ino)).is_some_and(|node| node.nlink == 0);
        nameless && board.power_losses() != self.power_losses
    }

    fn pause_ms(&mut self) -> u64 {
        match self.rng.below(40) {
            0 => self.rng.below(6_000),
            1..8 => self.rng.below(300),
            _ => self.rng.below(20),
        }
    }
}

/// Makes calls until none is left. `again`: an earlier process was killed.
pub async fn work(hand: HandRef, fs: Fs, board: Board, again: bool) {
    if again && let Err(what) = resolve(&hand, &fs, &board).await {
        return board.violation(format!("hand {}: {what}", lock(&hand).number));
    }
    loop {
        let Some(action) = lock(&hand).choose(&board) else { return };
        let number = lock(&hand).number;
        board.note(|| format!("hand {number}: {}", action.line()));
        let answer = perform(&fs, &action).await;
        let pause = {
            let mut hand = lock(&hand);
            let verdict = judge(&hand.model, &action, &answer, hand.scarce);
            let moot = hand.is_moot(&action, &board);
            board.note(|| format!("hand {number}: {} -> {}", action.line(), brief(&verdict)));
            match verdict {
                Verdict::Right(new) => hand.model.apply(&action, new),
                Verdict::Refused => {}
                // On a full cluster each refusal takes long, and more of them tell nothing new.
                Verdict::Hindered => hand.left = hand.left.saturating_sub(30),
                Verdict::Wrong(_) if moot => {}
                Verdict::Wrong(what) => return board.violation(format!("hand {number}: {what}")),
            }
            hand.in_flight = None;
            hand.pause_ms()
        };
        fs.session().wire().sleep_ms(pause).await;
    }
}

/// Finds out whether the call in flight of a killed process took effect.
async fn resolve(hand: &HandRef, fs: &Fs, board: &Board) -> Result<(), String> {
    let _quiet = board.quiet();
    fs.session().wire().sleep_ms(AFTERMATH_MS).await;
    let (before, action, mut rng) = {
        let mut hand = lock(hand);
        hand.model.forget_nameless();
        hand.power_losses = board.power_losses();
        (hand.model.clone(), hand.in_flight.take(), Rng::new(hand.rng.next_u64()))
    };
    let number = lock(hand).number;
    let action = action.filter(Action::changes).filter(|action| before.expect(action).is_ok());
    let Some(action) = action else { return Inspector { fs, rng: &mut rng, rival: None }.compare(&before).await };
    let mut after = before.clone();
    after.apply(&action, made_by(fs, &action).await?);
    after.forget_nameless();
    let undone = Inspector { fs, rng: &mut rng, rival: Some(&after) }.compare(&before).await;
    let Err(undone) = undone else {
        board.note(|| format!("hand {number}: {} had no effect", action.line()));
        return Ok(());
    };
    if let Err(done) = (Inspector { fs, rng: &mut rng, rival: Some(&before) }).compare(&after).await {
        let line = action.line();
        return Err(format!("{line} was in flight; the tree is neither without it ({undone}) nor with it ({done})"));
    }
    board.note(|| format!("hand {number}: {} had its effect", action.line()));
    lock(hand).model = after;
    Ok(())
}

/// The inode that a creation made, if it did.
async fn made_by(fs: &Fs, action: &Action) -> Result<Ino, String> {
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
