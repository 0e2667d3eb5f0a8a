//! What clients do with names and files that are everybody's: each call and its answer are recorded, and the histories
//! must be linearizable ([`braid_linear`]).
//!
//! 1. A few names in directories of several partitions, one file and its lock: of each a generation at a time. After so
//!    many calls, or some whose outcome is open, the next generation begins, so that each history can be searched.
//! 2. Whoever is killed leaves a call without an end. What it held back goes with it: the history of that file ends
//!    where the first of it was written. Names that it had made or removed without a word may be undone since.
//! 3. At the end of the run somebody looks at everything, after the last power loss; then the histories are judged.

mod asked;
mod units;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::attr::SetAttr;
use braid_base::ids::{ClientId, Ino};
use braid_base::msg::fs::{Cred, LockKind, LockSpec, RenameMode};
use braid_base::{Error, ErrorKind, Result};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_io::chance::Rng;
use bytes::Bytes;

use crate::board::Board;
use crate::deeds::Deed;
use crate::kernel::Kernel;
use crate::perform::is_unreadable;
use crate::register::Losses;
use braid_linear::content::{self, Content};
use braid_linear::locks::{self, Lock};
use braid_linear::names::{self, Names, Place};
use braid_linear::{History, check};
use units::{units_of, whole};

/// Calls of a generation.
const CALLS_MAX: usize = 120;
/// Calls with an open outcome after which the next generation begins.
const OPEN_MAX: usize = 5;
/// Directories, besides the one that they are in.
const DIRS: usize = 3;
/// The names of a generation: few, so that they are fought over.
const PLACES: [Place; 5] = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)];
/// Bytes of a unit: across blocks, and (24 of them) enough to go straight to the drives.
const UNITS: [usize; 2] = [1_000, 20_000];
/// Largest write, units.
const WRITE_MAX: usize = 24;
/// Largest read, units: more than a file comes to have in one generation.
const READ_MAX: usize = 800;
/// The owner of all locks: clients differ.
const OWNER: u64 = 9;
/// A lock that is waited for is asked for again after this at the earliest, milliseconds.
const AGAIN_MS: u64 = 1_000;
/// A call that takes longer counts for several, milliseconds, as in contests.
const SLOW_MS: u64 = 10_000;
const SLOW_CALLS: u32 = 6;

/// One generation of the file.
struct Shared {
    ino: Ino,
    unit: usize,
    content: History<Content>,
    lock: History<Lock>,
    /// The first write that each client holds back, and what it had lost before.
    held_back: BTreeMap<u32, (usize, u64)>,
    /// The first write that was lost.
    lost: Option<usize>,
    /// Locks that were taken and not given back: they may be lost.
    taken: BTreeMap<usize, u64>,
    /// Locks that another primary gave than the one that was asked first.
    again: Vec<(usize, u64)>,
}

/// A call on a name that may be undone.
struct Doubt {
    generation: usize,
    number: usize,
    who: u64,
    at: Place,
    undo: names::Call,
}

/// The state of the desk, outside of all processes.
pub struct Desk {
    dirs: Vec<Ino>,
    names: Vec<History<Names>>,
    files: Vec<Shared>,
    serial: u32,
    /// By process: names that the cluster may not have heard of, the latest last.
    doubts: BTreeMap<u32, Vec<Doubt>>,
    /// Those that it never heard of, or never may have.
    undone: Vec<Doubt>,
    /// The cluster may run full.
    scarce: bool,
}

/// Shared by all.
pub type DeskRef = Arc<Mutex<Desk>>;

/// The words say what is wrong.
type Answer<T> = std::result::Result<T, String>;

/// Nobody panics while holding it but a simulation that has failed already.
fn lock(desk: &DeskRef) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn file_name(generation: usize) -> Vec<u8> {
    format!("file{generation}").into_bytes()
}

fn full_name(generation: usize, place: Place) -> Vec<u8> {
    format!("g{generation}n{}", place.1).into_bytes()
}

impl Desk {
    /// Makes the directories; `scarce`: the cluster may run full.
    pub async fn prepare(fs: &Fs, scarce: bool) -> Result<DeskRef> {
        let cred = Cred::default();
        let mut dirs = vec![fs.mkdir(cred, fs.root(), b"desk", 0o755, 0).await?.ino];
        for number in 0..DIRS {
            let name = format!("dir{number}");
            dirs.push(fs.mkdir(cred, dirs[0], name.as_bytes(), 0o755, 0).await?.ino);
        }
        let (names, files, doubts, undone) = (vec![History::default()], Vec::new(), BTreeMap::new(), Vec::new());
        let desk = Self { dirs, names, files, serial: 0, doubts, undone, scarce };
        Ok(Arc::new(Mutex::new(desk)))
    }

    /// The generation of names to work on.
    fn names_now(&mut self) -> usize {
        let names = self.names.last().expect("there is a first generation");
        if names.entries().len() >= CALLS_MAX || names.open() >= OPEN_MAX {
            self.names.push(History::default());
        }
        self.names.len() - 1
    }

    /// The generation of the file to work on; `None`: it has yet to be made.
    fn file_now(&self) -> Option<usize> {
        let file = self.files.last()?;
        let calls = file.content.entries().len() + file.lock.entries().len();
        let used = calls >= CALLS_MAX || file.content.open() + file.lock.open() >= OPEN_MAX || file.lost.is_some();
        (!used).then(|| self.files.len() - 1)
    }

    fn judge(&mut self, board: &Board) -> Answer<()> {
        let doubts = std::mem::take(&mut self.doubts).into_values().flatten();
        for Doubt { generation, number, who, undo, .. } in doubts.chain(std::mem::take(&mut self.undone)) {
            self.names[generation].perhaps_since(number, who, undo);
        }
        for (generation, names) in self.names.iter().enumerate() {
            note(board, names);
            check(&Names::default(), names).map_err(|what| format!("shared names, generation {generation}: {what}"))?;
        }
        for (generation, file) in self.files.iter_mut().enumerate() {
            for (number, me) in std::mem::take(&mut file.taken) {
                file.lock.perhaps_since(number, me, locks::Call::Lose(me));
            }
            if let Some(lost) = file.lost {
                file.content.cut(lost);
            }
            note(board, &file.lock);
            note(board, &file.content);
            let told = |what| format!("shared file {generation} ({}): {what}", file.ino);
            let again = std::mem::take(&mut file.again);
            if !again.is_empty() && check(&Lock::default(), &file.lock).is_err() {
                again.into_iter().for_each(|(number, me)| locks::came_again(&mut file.lock, number, me));
            }
            check(&Lock::default(), &file.lock).map_err(told)?;
            check(&Content::default(), &file.content).map_err(told)?;
        }
        Ok(())
    }
}

/// The process `client` is dead, and what it held back with it.
pub fn fallen(desk: &DeskRef, client: u32) {
    let desk = &mut lock(desk);
    desk.files.iter_mut().for_each(|file| file.lose(client));
    let undone = desk.doubts.remove(&client).unwrap_or_default();
    desk.undone.extend(undone);
}

/// Checks that all histories are linearizable, and counts what makes that worth saying.
pub fn judge(desk: &DeskRef, board: &Board) -> Answer<()> {
    lock(desk).judge(board)
}

fn note<S: braid_linear::State>(board: &Board, history: &History<S>) {
    if history.overlaps() {
        board.did(Deed::CallsOverlapped);
    }
    if history.open() > 0 {
        board.did(Deed::OutcomeOpen);
    }
}

impl Shared {
    fn of(ino: Ino, unit: usize) -> Self {
        Self {
            ino,
            unit,
            content: History::default(),
            lock: History::default(),
            held_back: BTreeMap::new(),
            lost: None,
            taken: BTreeMap::new(),
            again: Vec::new(),
        }
    }

    fn lose(&mut self, client: u32) {
        if let Some((first, _)) = self.held_back.remove(&client) {
            self.lost = Some(self.lost.map_or(first, |before| before.min(first)));
        }
    }
}

/// A client at the desk.
pub struct Worker {
    /// What it works at.
    pub desk: DeskRef,
    /// Its way to the cluster.
    pub fs: Fs,
    /// What its client lost.
    pub losses: Arc<Losses>,
    /// The schedule.
    pub board: Board,
    /// Chance.
    pub rng: Rng,
    /// The number of its process, which is another one after a kill.
    pub process: u32,
    /// What its programs see without asking. Nobody else in its process touches names of the desk.
    pub kernel: Arc<Kernel>,
}

/// What came of a call: an answer, or its outcome is open.
type Told<T> = Answer<Option<T>>;

impl Worker {
    /// Makes `calls` calls.
    pub async fn work(mut self, calls: u32) {
        let leases = self.fs.session().leases().is_some();
        let mut left = calls;
        while left > 0 {
            let begin_ms = self.fs.session().wire().now_ms();
            let result = match self.rng.below(10) {
                _ if !leases => self.name().await,
                0..4 => self.name().await,
                4..9 => self.file(false).await,
                _ => self.file(true).await,
            };
            if let Err(what) = result {
                return self.board.violation(format!("desk, {}: {what}", self.fs.session().client()));
            }
            let slow = self.fs.session().wire().now_ms() >= begin_ms + SLOW_MS;
            left = left.saturating_sub(if slow { SLOW_CALLS } else { 1 });
            let pause = match self.rng.below(20) {
                0 => self.rng.below(3_000),
                1..4 => self.rng.below(100),
                _ => self.rng.below(4),
            };
            self.fs.session().wire().sleep_ms(pause).await;
        }
        let files = lock(&self.desk).files.len();
        for generation in 0..files {
            self.sync(generation).await;
        }
        let dirs = lock(&self.desk).dirs.clone();
        for dir in dirs {
            self.names_last(dir).await;
        }
    }

    /// Names in `dir` are certain after that, or undone; false: some are.
    async fn names_last(&self, dir: Ino) -> bool {
        let lasts = self.fs.fsync(dir).await.is_ok();
        let desk = &mut lock(&self.desk);
        let dirs = desk.dirs.clone();
        let doubts = desk.doubts.entry(self.process).or_default();
        let gone: Vec<Doubt> = doubts.extract_if(.., |doubt| dirs[doubt.at.0] == dir).collect();
        if !lasts {
            desk.undone.extend(gone);
        }
        lasts
    }

    fn me(&self) -> u64 {
        let ClientId(id) = self.fs.session().client();
        id
    }

    /// Refusals for want of room are right on a full cluster only.
    fn is_no_room(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::NoSpace && lock(&self.desk).scarce
    }

    /// One call on a name.
    async fn name(&mut self) -> Answer<()> {
        let place = |rng: &mut Rng| PLACES[rng.index(PLACES.len())];
        let (at, to) = (place(&mut self.rng), place(&mut self.rng));
        let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][self.rng.index(3)];
        let (generation, call) = {
            let desk = &mut lock(&self.desk);
            desk.serial += 1;
            let call = match self.rng.below(10) {
                0..3 => names::Call::Create { at, serial: desk.serial },
                3 => names::Call::Unlink(at),
                4..8 if at != to => names::Call::Rename { from: at, to, mode },
                _ => names::Call::Lookup(at),
            };
            (desk.names_now(), call)
        };
        self.call_name(generation, call).await
    }

    async fn call_name(&self, generation: usize, call: names::Call) -> Answer<()> {
        let (dirs, number) = {
            let desk = &mut lock(&self.desk);
            let number = desk.names[generation].begin(self.me(), call.clone(), self.board.now_us());
            (desk.dirs.clone(), number)
        };
        self.board.note(|| format!("desk, {}: {call:?} of generation {generation}", self.fs.session().client()));
        if let Some(answer) = self.ask_name(&dirs, generation, &call).await? {
            self.board.note(|| format!("desk, {}: {call:?} -> {answer:?}", self.fs.session().client()));
            let desk = &mut lock(&self.desk);
            let undo = match (&call, &answer) {
                (names::Call::Create { at, .. }, names::Answer::Ino(ino)) => {
                    Some((*at, names::Call::Unmake { at: *at, ino: *ino }))
                }
                (names::Call::Unlink(at), names::Answer::Ino(ino)) => {
                    Some((*at, names::Call::Restore { at: *at, ino: *ino }))
                }
                _ => None,
            };
            desk.names[generation].end(number, answer, self.board.now_us());
            let doubts = desk.doubts.entry(self.process).or_default();
            if let Some((at, undo)) = undo {
                doubts.push(Doubt { generation, number, who: self.me(), at, undo });
            }
            doubts.retain(|doubt| self.fs.is_promised(dirs[doubt.at.0], &full_name(doubt.generation, doubt.at)));
        }
        Ok(())
    }

    /// One call on the file, under its lock or not.
    async fn file(&mut self, locked: bool) -> Answer<()> {
        let now = lock(&self.desk).file_now();
        let Some(generation) = now else { return self.make_file().await };
        if locked {
            return self.hold(generation).await;
        }
        if self.rng.chance(1, 12) {
            self.sync(generation).await;
            return Ok(());
        }
        self.use_file(generation).await
    }

    /// Makes the next generation of the file, if nobody else does.
    async fn make_file(&mut self) -> Answer<()> {
        let (generation, dir) = {
            let desk = lock(&self.desk);
            (desk.files.len(), desk.dirs[desk.files.len() % desk.dirs.len()])
        };
        let made = self.fs.create(Cred::default(), dir, &file_name(generation), Create::default()).await;
        let ino = match made {
            Ok(made) if self.names_last(dir).await => made.ino,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Exists => {
                match self.fs.lookup(dir, &file_name(generation)).await {
                    Ok(found) => found.ino,
                    Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
                    Err(error) => return Err(format!("shared file {generation} exists, and then: {error}")),
                }
            }
            Err(error) if error.kind() == ErrorKind::Io || self.is_no_room(&error) => return Ok(()),
            Err(error) => return Err(format!("shared file {generation}: {error}")),
        };
        let desk = &mut lock(&self.desk);
        match desk.files.get(generation) {
            Some(file) if file.ino != ino => {
                Err(format!("shared file {generation} is {} for one and {ino} for another", file.ino))
            }
            Some(_) => Ok(()),
            None => {
                let unit = if desk.scarce { UNITS[0] } else { UNITS[generation % UNITS.len()] };
                desk.files.push(Shared::of(ino, unit));
                Ok(())
            }
        }
    }

    async fn use_file(&mut self, generation: usize) -> Answer<()> {
        let (at, few, many) = (self.rng.index(40), 1 + self.rng.index(4), 1 + self.rng.index(WRITE_MAX));
        let units = if self.rng.chance(1, 3) { many } else { few };
        let call = {
            let desk = &mut lock(&self.desk);
            desk.serial += 1;
            let tag = desk.serial;
            match self.rng.below(20) {
                0..5 => content::Call::Write { at, units, tag },
                5..10 => content::Call::Append { units: few, tag },
                10 => content::Call::Truncate { units: at },
                11..14 => content::Call::Size,
                14..17 => content::Call::Read { at, units },
                _ => content::Call::Read { at: 0, units: READ_MAX },
            }
        };
        self.call_file(generation, call).await
    }

    async fn call_file(&self, generation: usize, call: content::Call) -> Answer<()> {
        let lost = self.losses.count();
        let (number, ino, unit) = {
            let file = &mut lock(&self.desk).files[generation];
            (file.content.begin(self.me(), call.clone(), self.board.now_us()), file.ino, file.unit)
        };
        self.board.note(|| format!("desk, {}: {call:?} of {ino}", self.fs.session().client()));
        let told = self.ask_file((ino, unit), &call).await?;
        self.board.note(|| format!("desk, {}: {call:?} -> {told:?}", self.fs.session().client()));
        let file = &mut lock(&self.desk).files[generation];
        if let Some((answer, held_back)) = told {
            if held_back {
                file.held_back.entry(self.process).or_insert((number, lost));
            }
            file.content.end(number, answer, self.board.now_us());
        }
        if file.held_back.get(&self.process).is_some_and(|(_, lost)| *lost != self.losses.count()) {
            file.lose(self.process);
        }
        Ok(())
    }

    /// The answer, and whether what it tells of is held back.
    async fn ask_file(&self, (ino, unit): (Ino, usize), call: &content::Call) -> Told<(content::Answer, bool)> {
        let fs = &self.fs;
        let len = |units: usize| (units * unit) as u64;
        let bytes = |units: usize, tag: u32| Bytes::from(tag.to_le_bytes().repeat(units * unit / 4));
        let result = match call {
            content::Call::Write { at, units, tag } => {
                let written = fs.write(ino, len(*at), bytes(*units, *tag), false, false).await;
                written.map(|written| (content::Answer::Done, written.attr.is_none()))
            }
            content::Call::Append { units, tag } => {
                let written = fs.write(ino, 0, bytes(*units, *tag), true, false).await;
                written.map(|written| (whole(written.off, unit, content::Answer::At), false))
            }
            content::Call::Read { at, units } => {
                let read = fs.read(ino, len(*at), len(*units)).await;
                read.map(|bytes| (units_of(&bytes, unit), false))
            }
            content::Call::Size => {
                fs.getattr(ino).await.map(|attr| (whole(attr.size, unit, content::Answer::Size), false))
            }
            content::Call::Truncate { units } => {
                let set = SetAttr { size: Some(len(*units)), ..SetAttr::default() };
                fs.setattr(ino, set).await.map(|_| (content::Answer::Done, false))
            }
        };
        match result {
            Ok(told) => Ok(Some(told)),
            Err(error) if is_unreadable(&error) => Ok(None),
            Err(error) if self.is_no_room(&error) => Ok(Some((content::Answer::NoRoom, false))),
            Err(error) => Err(format!("{call:?} of {ino}: {:?}: {error}", error.kind())),
        }
    }

    /// What this client holds back of the file is durable after that, or lost.
    async fn sync(&self, generation: usize) {
        let (ino, held) = {
            let desk = lock(&self.desk);
            let file = &desk.files[generation];
            (file.ino, file.held_back.get(&self.process).copied())
        };
        let Some((_, lost)) = held else { return };
        let synced = self.fs.fsync(ino).await;
        let file = &mut lock(&self.desk).files[generation];
        if synced.is_ok() && self.losses.count() == lost {
            file.held_back.remove(&self.process);
        } else {
            file.lose(self.process);
        }
    }

    /// Takes the lock of the file, uses the file, gives the lock back.
    async fn hold(&mut self, generation: usize) -> Answer<()> {
        let (me, lost) = (self.me(), self.losses.count());
        let spec = |kind| LockSpec { owner: OWNER, pid: 1, start: 0, end: u64::MAX, kind, flock: false };
        let (ino, number) = {
            let file = &mut lock(&self.desk).files[generation];
            let number = file.lock.begin(me, locks::Call::Take(me), self.board.now_us());
            file.taken.insert(number, me);
            (file.ino, number)
        };
        let (wait, begin_ms) = (self.rng.chance(1, 2), self.fs.session().wire().now_ms());
        let primaries = self.board.power_losses();
        let taken = match wait {
            true => self.fs.lock_wait(ino, spec(LockKind::Write), pending()).await.map(drop),
            false => self.fs.lock(ino, spec(LockKind::Write)).await,
        };
        let answer = match taken {
            Ok(()) => locks::Answer::Done,
            Err(error) if error.kind() == ErrorKind::WouldBlock => locks::Answer::Busy,
            Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
            Err(error) => return Err(format!("lock of {ino}: {error}")),
        };
        let busy = answer == locks::Answer::Busy;
        self.board.note(|| format!("desk, {}: lock of {ino} -> {answer:?}", self.fs.session().client()));
        {
            let file = &mut lock(&self.desk).files[generation];
            let elsewhere = self.board.power_losses() != primaries;
            match busy && elsewhere {
                true => locks::refused_elsewhere(&mut file.lock, number, me, self.board.now_us()),
                false => file.lock.end(number, answer, self.board.now_us()),
            }
            if !busy && elsewhere {
                file.again.push((number, me));
            }
            if wait && self.fs.session().wire().now_ms() >= begin_ms + AGAIN_MS {
                // The answer to an earlier question was lost, and the lock that it had got was given back.
                file.lock.perhaps_since(number, me, locks::Call::Take(me));
                file.lock.perhaps_since(number, me, locks::Call::Lose(me));
            }
            if busy {
                file.taken.remove(&number);
                return Ok(());
            }
        }
        for _ in 0..self.rng.below(3) {
            self.use_file(generation).await?;
        }
        let give = lock(&self.desk).files[generation].lock.begin(me, locks::Call::Give(me), self.board.now_us());
        match self.fs.lock(ino, spec(LockKind::Unlock)).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Io => return Ok(()),
            Err(error) => return Err(format!("the lock of {ino} is given back: {error}")),
        }
        let now_us = self.board.now_us();
        let file = &mut lock(&self.desk).files[generation];
        file.lock.end(give, locks::Answer::Done, now_us);
        if self.losses.count() == lost {
            file.taken.remove(&number);
        }
        Ok(())
    }
}

/// Looks at everything, when all clients are done: what was answered last is still so.
pub async fn look(desk: DeskRef, fs: Fs, board: Board) -> Answer<()> {
    let (losses, rng) = (Losses::of(&fs, &board), Rng::new(0));
    let kernel = Kernel::beside(&fs);
    let auditor = Worker { desk, fs, losses, board, rng, process: u32::MAX, kernel };
    let (names, files) = {
        let desk = lock(&auditor.desk);
        (desk.names.len(), desk.files.len())
    };
    for generation in 0..names {
        for place in PLACES {
            auditor.call_name(generation, names::Call::Lookup(place)).await?;
        }
    }
    for generation in 0..files {
        auditor.call_file(generation, content::Call::Read { at: 0, units: READ_MAX }).await?;
        auditor.call_file(generation, content::Call::Size).await?;
    }
    Ok(())
}
