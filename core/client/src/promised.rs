//! Names that programs were told of, and that their partition has not heard of yet (decision 31).
//!
//! Files made and removed in a directory that this client has for itself: each is a promise, made in one step with the
//! look at the lease. Promises go to their partition together, in any order but that of one name; until one is kept, this
//! client answers for it. What is written into a new file at once rides with it.
//!
//! | a promise is | until |
//! |---|---|
//! | waiting | it departs: with others after a while, or because somebody waits |
//! | under way | it has landed: kept, or lost, which the next `fsync` says |
//!
//! A directory that is removed this way was emptied before, as far as programs were told: its removal goes to the
//! partition of its name when those from it have landed, wherever they went.
//!
//! Operations of other kinds wait for the promises that they might meet, and keep others from being made meanwhile
//! ([`Promises::beside`]).

mod coming;
mod dirs;
mod meets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use braid_base::attr::{Attr, Time};
use braid_base::ids::{Ino, PartitionId};
use braid_base::limits::{NUMBERS_MAX, whole_blocks};
use braid_base::msg::fs::{Cred, Op};
use braid_base::{Error, Result};
use bytes::Bytes;
use coming::Coming;
use dirs::OfDir;
pub(crate) use dirs::Told;
use meets::{Meets, of_op};

use crate::landings::{self, Landings};
use crate::leases::Removing;
use crate::losses::{Losses, Lost};
use crate::wakers;
use crate::wire::Wire;

/// Promises of one client; who would make more waits.
const OPEN_MAX: usize = 4_096;
/// Promises about one name, with which no file is made under it. They land one after the other, and whoever asks for the
/// name, of a lock file that comes and goes, waits for all of them.
const NAME_MAX: usize = 4;
/// Directories whose use is remembered; beyond, all start afresh.
const DIRS_MAX: usize = 1_024;
/// Numbers asked for first; then four times as many each time.
const NUMBERS_FIRST: u16 = 128;
/// Bytes of one file that ride with it, and of all: larger ones are worth a way of their own.
const CONTENT_MAX: u64 = 256 << 10;
const BYTES_MAX: usize = 16 << 20;
/// A directory that others wanted to see is not asked for so long, milliseconds.
const SHARED_MS: u64 = 1_000;

/// Rules that a test may break to show that it notices. A product build has no way to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseMutation {
    /// A lease is given back before what was promised under it is kept.
    GiveBackFirst,
    /// Operations of other kinds do not wait for promises, nor promises for them.
    Beside,
}

/// A file made or removed.
#[derive(Clone)]
pub(crate) struct Promise {
    /// Which one; grows.
    pub(crate) id: u64,
    pub(crate) partition: PartitionId,
    /// The session under whose lease it was made.
    pub(crate) session: u64,
    pub(crate) dir: Ino,
    pub(crate) name: Vec<u8>,
    /// The file as programs see it when it was made (its btime) or removed (its ctime).
    pub(crate) file: Attr,
    pub(crate) what: What,
    /// There is room for what small files hold.
    pub(crate) is_roomy: bool,
    /// Of a directory that is removed: what it was in, as its partition has it, if that is known.
    pub(crate) parent: Option<Attr>,
    /// A file that is removed is not opened without a word any more.
    pub(crate) _removing: Option<Arc<Removing>>,
}

/// What was promised.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The file was made. `mode` and `umask` as the program gave them; `open`: with an open reference.
    Made { cred: Cred, mode: u16, umask: u16, open: bool },
    /// Its only name was removed: of a file, or of an empty directory.
    Gone,
}

struct Entry {
    promise: Promise,
    is_under_way: bool,
    /// The program has closed it meanwhile.
    is_closed: bool,
    /// What was written at the end of the file and is not on its way yet.
    content: Vec<Bytes>,
    /// Bytes that are.
    departed: usize,
    /// Nothing more rides with it.
    is_sealed: bool,
    /// It is about to land: kernels are to believe nothing of it any more that no lease makes certain.
    is_landing: bool,
}

/// How a directory is used.
#[derive(Clone, Copy, Default)]
struct Habit {
    /// How many numbers were asked for last.
    numbers: u16,
    shared_until: u64,
}

#[derive(Default)]
struct Held {
    last: u64,
    open: BTreeMap<u64, Entry>,
    /// Of these, how many have not departed.
    waiting: usize,
    names: HashMap<(Ino, Vec<u8>), Vec<u64>>,
    files: HashMap<Ino, Vec<u64>>,
    dirs: HashMap<Ino, OfDir>,
    /// Operations under way that may change names or attributes of these directories in another way.
    changing: HashMap<Ino, u32>,
    /// Those under way that may meet any promise.
    changing_all: u32,
    habits: HashMap<Ino, Habit>,
    landings: Landings,
    is_tended: bool,
    /// Of all content.
    bytes: usize,
    mutation: Option<PromiseMutation>,
    /// Directories that were made here.
    coming: Coming,
}

/// The promises of one file system.
#[derive(Default)]
pub(crate) struct Promises {
    held: Mutex<Held>,
    losses: Arc<Losses>,
}

/// An operation of another kind is under way; see [`Promises::beside`].
pub(crate) struct Beside<'a> {
    promises: &'a Promises,
    dirs: Vec<Ino>,
    all: bool,
}

impl Promises {
    pub(crate) fn new(losses: Arc<Losses>) -> Self {
        Self { held: Mutex::default(), losses }
    }

    /// Makes a promise, if `may` finds that it may be made: what it returns is looked at in one step with that. `may`
    /// hears how the name looks: `Some(None)` if it is certainly free, `Some(Some(file))` if it is one that was promised,
    /// `None` if nothing was promised about it; and what was promised about other names. `None` if the partition must be
    /// asked.
    pub(crate) fn make(
        &self,
        (dir, name): (Ino, &[u8]),
        may: impl FnOnce(Option<Option<&Attr>>, &Told<'_>) -> Option<Result<Promise>>,
    ) -> Option<Result<Attr>> {
        let mut held = self.held();
        let is_changing = held.changing_all > 0 || held.changing.contains_key(&dir);
        // A directory that was removed itself takes no names any more, as its partition will say.
        if is_changing || held.open.len() >= OPEN_MAX || held.files.contains_key(&dir) {
            return None;
        }
        let mut promise = match may(held.told(dir, name), &Told(&held))? {
            Ok(promise) => promise,
            Err(error) => return Some(Err(error)),
        };
        held.last += 1;
        promise.id = held.last;
        held.coming.used(dir);
        let (id, file) = (promise.id, promise.file.clone());
        held.names.entry((dir, name.to_vec())).or_default().push(id);
        held.files.entry(file.ino).or_default().push(id);
        let of_dir = held.dirs.entry(dir).or_default();
        of_dir.count(&promise, 1);
        of_dir.at = file.ctime;
        held.waiting += 1;
        held.open.insert(
            id,
            Entry {
                promise,
                is_under_way: false,
                is_closed: false,
                content: Vec::new(),
                departed: 0,
                is_sealed: false,
                is_landing: false,
            },
        );
        Some(Ok(file))
    }

    /// What `name` stands for as far as was promised: `Some(None)` if it was removed.
    pub(crate) fn name(&self, dir: Ino, name: &[u8]) -> Option<Option<Ino>> {
        self.held().told(dir, name).map(|file| file.map(|file| file.ino))
    }

    /// A file about which something was promised: how it looks, if it was made, with what was written into it, and
    /// nothing else has happened to it; `Some(None)`: its partition has to be asked when it has heard of that.
    pub(crate) fn file(&self, ino: Ino) -> Option<Option<Attr>> {
        let mut held = self.held();
        held.files.contains_key(&ino).then(|| held.made(ino).map(|entry| entry.promise.file.clone()))
    }

    /// Of a file that was made, and to which nothing else has happened: its directory, and the session under whose lease.
    /// `None` also if that is about to land.
    pub(crate) fn maker(&self, ino: Ino) -> Option<(Ino, u64)> {
        let mut held = self.held();
        let entry = held.made(ino).filter(|entry| !entry.is_landing)?;
        Some((entry.promise.dir, entry.promise.session))
    }

    /// A promise is about to land: [`Self::maker`] knows nothing of it from now on.
    pub(crate) fn lands(&self, id: u64) {
        if let Some(entry) = self.held().open.get_mut(&id) {
            entry.is_landing = true;
        }
    }

    /// A program writes at `off` (none: at the end) of such a file: where, if that may ride with it.
    pub(crate) fn write(&self, ino: Ino, off: Option<u64>, data: &Bytes, at: Time) -> Option<u64> {
        let mut held = self.held();
        let room = BYTES_MAX.saturating_sub(held.bytes);
        let entry = held.made(ino)?;
        let file = &mut entry.promise.file;
        let (end, len) = (file.size, data.len() as u64);
        let fits = off.is_none_or(|off| off == end) && len > 0 && end + len <= CONTENT_MAX && data.len() <= room;
        if entry.is_sealed || !entry.promise.is_roomy || !fits || file.mode & 0o6000 != 0 {
            // It goes another way, and what follows must not overtake it.
            entry.is_sealed = true;
            return None;
        }
        (file.size, file.mtime, file.ctime) = (end + len, at, at);
        file.used = whole_blocks(end + len);
        // The few bytes must not keep a buffer of the door's.
        entry.content.push(Bytes::copy_from_slice(data));
        held.bytes += data.len();
        Some(end)
    }

    /// What is to be written into the file next, where and when it was written; none: nothing more rides with it.
    pub(crate) fn content(&self, id: u64) -> Option<(u64, Vec<Bytes>, Time)> {
        let mut held = self.held();
        let entry = held.open.get_mut(&id)?;
        let parts = std::mem::take(&mut entry.content);
        entry.is_sealed |= parts.is_empty();
        let len: usize = parts.iter().map(Bytes::len).sum();
        let (size, at) = (entry.promise.file.size, entry.promise.file.mtime);
        // What was asked for before is written.
        let written = std::mem::replace(&mut entry.departed, len);
        held.bytes -= written;
        (len > 0).then_some((size - len as u64, parts, at))
    }

    /// A directory in which something was promised looks as if that was done; as the partition reckons, too.
    pub(crate) fn amend(&self, attr: &mut Attr) {
        if let Some(of_dir) = self.held().dirs.get(&attr.ino) {
            stamp(attr, of_dir.at);
        }
    }

    /// A program gives back the open reference that it had with the file: true if that is done here.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        let mut held = self.held();
        let is_open = |entry: &Entry| matches!(entry.promise.what, What::Made { open: true, .. }) && !entry.is_closed;
        let ids = held.files.get(&ino).cloned().unwrap_or_default();
        let Some(id) = ids.into_iter().find(|id| held.open.get(id).is_some_and(is_open)) else { return false };
        let Some(entry) = held.open.get_mut(&id) else { return false };
        match &mut entry.promise.what {
            What::Made { open, .. } if !entry.is_under_way => *open = false,
            _ => entry.is_closed = true,
        }
        true
    }

    /// Those that may go now: the first of each name.
    pub(crate) fn depart(&self) -> Vec<Promise> {
        let held = &mut *self.held();
        let Held { open, names, waiting, .. } = held;
        let mut gone = Vec::new();
        for entry in open.values_mut().filter(|entry| !entry.is_under_way) {
            let Promise { id, dir, name, .. } = &entry.promise;
            if names.get(&(*dir, name.clone())).and_then(|ids| ids.first()) == Some(id) {
                entry.is_under_way = true;
                gone.push(entry.promise.clone());
            }
        }
        *waiting -= gone.len();
        gone
    }

    /// A promise was kept, or lost with this error. True if the program has closed the file since it departed.
    pub(crate) fn landed(&self, id: u64, error: Option<&Error>) -> bool {
        let mut held = self.held();
        let Some(entry) = held.forget(id) else { return false };
        if let Some(error) = error {
            held.unsettle(&entry.promise);
            self.spoil(&entry.promise, error);
        }
        wake(held);
        entry.is_closed
    }

    /// All that were made under a session in a partition are lost; those that had not departed.
    pub(crate) fn lose(&self, of: (PartitionId, u64), why: &Error) -> Vec<Promise> {
        let mut held = self.held();
        let is_of = |promise: &Promise| (promise.partition, promise.session) == of;
        let lost = |entry: &&Entry| is_of(&entry.promise) && !entry.is_under_way;
        let ids: Vec<u64> = held.open.values().filter(lost).map(|entry| entry.promise.id).collect();
        let gone: Vec<Promise> = ids.into_iter().filter_map(|id| Some(held.forget(id)?.promise)).collect();
        for promise in &gone {
            held.unsettle(promise);
            self.spoil(promise, why);
        }
        wake(held);
        gone
    }

    /// Who has the file or its directory open is told. Of a file that was made all bytes are lost that ride with it.
    fn spoil(&self, promise: &Promise, error: &Error) {
        let has_bytes = matches!(promise.what, What::Made { .. }) && promise.file.size > 0;
        self.losses.add(promise.dir, Lost::Name, error);
        self.losses.add(promise.file.ino, if has_bytes { Lost::Bytes } else { Lost::Name }, error);
    }

    /// Announces an operation that is to be asked of a partition, and says which open promises it may meet: those have to
    /// land first. While the guard lives no more are made that it could meet, so it waits once.
    pub(crate) fn beside(&self, body: &Op) -> (Beside<'_>, Vec<u64>) {
        let (mut meets, mut dirs, mut all) = of_op(body);
        let mut held = self.held();
        if held.mutation == Some(PromiseMutation::Beside) {
            (meets, dirs, all) = (Meets::None, Vec::new(), false);
        }
        for dir in &dirs {
            *held.changing.entry(*dir).or_default() += 1;
        }
        held.changing_all += u32::from(all);
        let met = held.met(&meets);
        drop(held);
        (Beside { promises: self, dirs, all }, met)
    }

    /// True if all open promises are removals.
    pub(crate) fn are_removals(&self) -> bool {
        self.held().open.values().all(|entry| matches!(entry.promise.what, What::Gone))
    }

    /// Promises about this inode, or names in it.
    pub(crate) fn about(&self, ino: Ino) -> Vec<u64> {
        self.held().met(&Meets::Inode(ino))
    }

    /// All promises.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.held().open.keys().copied().collect()
    }

    /// Ready when one more has landed than `landings`, or none of `ids` is open.
    pub(crate) async fn landing(&self, landings: u64, ids: &[u64]) {
        let ready = |held: &mut Held| held.landings.count != landings || !held.is_any_open(ids);
        wakers::wait(&self.held, |held| &mut held.landings.wakers, ready).await;
    }

    /// How many have landed so far, if any of `ids` has not.
    pub(crate) fn landings(&self, ids: &[u64]) -> Option<u64> {
        let held = self.held();
        held.is_any_open(ids).then_some(held.landings.count)
    }

    /// How many of `ids` have not landed, and where they go.
    pub(crate) fn left(&self, ids: &[u64]) -> (u64, Vec<PartitionId>) {
        let held = self.held();
        let homes: Vec<_> = ids.iter().filter_map(|id| Some(held.open.get(id)?.promise.partition)).collect();
        (homes.len() as u64, homes.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Ready when any has landed, or none of `ids` is open. False if none does for long.
    pub(crate) async fn any_lands(&self, wire: &dyn Wire, ids: &[u64]) -> bool {
        let are_gone = |held: &Held| !held.is_any_open(ids);
        landings::one_more(wire, &self.held, |held| &mut held.landings, are_gone).await
    }

    /// True if `crowd` of them wait, or more.
    pub(crate) fn is_crowded(&self, crowd: usize) -> bool {
        self.held().waiting >= crowd
    }

    /// Promises of which one has to land before one more is made; `made`: that a file is made under this name.
    pub(crate) fn in_the_way(&self, made: Option<(Ino, &[u8])>) -> Vec<u64> {
        let held = self.held();
        if held.open.len() >= OPEN_MAX {
            return held.open.keys().copied().collect();
        }
        let of_name = made.and_then(|(dir, name)| held.names.get(&(dir, name.to_vec())));
        of_name.filter(|ids| ids.len() >= NAME_MAX).cloned().unwrap_or_default()
    }

    /// A name in `dir` has to be asked for: how many numbers to ask for with it; 0: others want to see it.
    pub(crate) fn numbers(&self, dir: Ino, now_ms: u64) -> u16 {
        let mut held = self.held();
        let Some(habit) = held.habit(dir, now_ms) else { return 0 };
        habit.numbers =
            if habit.numbers == 0 { NUMBERS_FIRST } else { habit.numbers.saturating_mul(4).min(NUMBERS_MAX) };
        habit.numbers
    }

    /// A name in `dir` has to be removed by asking: true if the directory is wanted for this client alone.
    pub(crate) fn wants(&self, dir: Ino, now_ms: u64) -> bool {
        self.held().habit(dir, now_ms).is_some()
    }

    /// Others want to see `dir`.
    pub(crate) fn shared(&self, dir: Ino, now_ms: u64) {
        let mut held = self.held();
        held.coming.shared(dir, now_ms);
        if let Some(habit) = held.habits.get_mut(&dir) {
            *habit = Habit { shared_until: now_ms + SHARED_MS, ..Habit::default() };
        }
    }

    /// Leaves a rule out.
    pub(crate) fn leave_out(&self, mutation: Option<PromiseMutation>) {
        self.held().mutation = mutation;
    }

    /// True if leases wait for what was promised under them.
    pub(crate) fn hold_leases(&self) -> bool {
        self.held().mutation != Some(PromiseMutation::GiveBackFirst)
    }

    /// True if somebody has to look after them from now on; then until [`Self::untended`] says so.
    pub(crate) fn tend(&self) -> bool {
        !std::mem::replace(&mut self.held().is_tended, true)
    }

    /// True if none is left: the one who looked after them is free.
    pub(crate) fn untended(&self) -> bool {
        let mut held = self.held();
        held.is_tended = !held.open.is_empty();
        !held.is_tended
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics while it holds the promises")
    }
}

impl Held {
    /// How `name` looks by what was promised about it last: `Some(None)` if it is gone, `None` if nothing was.
    fn told(&self, dir: Ino, name: &[u8]) -> Option<Option<&Attr>> {
        if self.open.is_empty() {
            return None;
        }
        let last = self.names.get(&(dir, name.to_vec()))?.last()?;
        let promise = &self.open.get(last)?.promise;
        Some(matches!(promise.what, What::Made { .. }).then_some(&promise.file))
    }

    /// The file that was made and that nothing else has happened to.
    fn made(&mut self, ino: Ino) -> Option<&mut Entry> {
        let [id] = self.files.get(&ino)?[..] else { return None };
        self.open.get_mut(&id).filter(|entry| matches!(entry.promise.what, What::Made { .. }))
    }

    fn met(&self, meets: &Meets<'_>) -> Vec<u64> {
        if self.open.is_empty() {
            return Vec::new();
        }
        match meets {
            Meets::None => Vec::new(),
            Meets::All => self.open.keys().copied().collect(),
            // What is no directory is asked for a name like one.
            Meets::Name(dir, _) if self.files.contains_key(dir) => self.met(&Meets::Inode(*dir)),
            Meets::Name(dir, name) => self.names.get(&(*dir, name.to_vec())).into_iter().flatten().copied().collect(),
            Meets::Change(dir, name) => {
                let mut met = self.met(&Meets::Name(*dir, name));
                if self.dirs.get(dir).is_some_and(|of_dir| of_dir.dirs > 0) {
                    let of_dir = self.open.values().map(|entry| &entry.promise).filter(|promise| promise.dir == *dir);
                    met.extend(of_dir.filter(|promise| promise.is_dir()).map(|promise| promise.id));
                }
                met
            }
            Meets::Inode(ino) => self.met(&Meets::Inodes(&[*ino])),
            Meets::Inodes(inos) => {
                if !inos.iter().any(|ino| self.files.contains_key(ino) || self.dirs.contains_key(ino)) {
                    return Vec::new();
                }
                let is_of =
                    |entry: &&Entry| inos.contains(&entry.promise.dir) || inos.contains(&entry.promise.file.ino);
                self.open.values().filter(is_of).map(|entry| entry.promise.id).collect()
            }
        }
    }

    fn is_any_open(&self, ids: &[u64]) -> bool {
        ids.iter().any(|id| self.open.contains_key(id))
    }

    fn forget(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        self.waiting -= usize::from(!entry.is_under_way);
        let Promise { dir, name, file, .. } = &entry.promise;
        take_out(&mut self.names, &(*dir, name.clone()), id);
        take_out(&mut self.files, &file.ino, id);
        self.bytes -= entry.departed + entry.content.iter().map(Bytes::len).sum::<usize>();
        if let Some(of_dir) = self.dirs.get_mut(dir) {
            of_dir.count(&entry.promise, -1);
            if of_dir.count == 0 {
                self.dirs.remove(dir);
            }
        }
        Some(entry)
    }

    /// A directory was to be removed, and may still be there: how many links its parent has is for the partition to say.
    fn unsettle(&mut self, promise: &Promise) {
        if let Some(of_dir) = self.dirs.get_mut(&promise.dir).filter(|_| promise.is_dir()) {
            of_dir.looks = None;
        }
    }

    /// How `dir` is used, if it should be for this client alone.
    fn habit(&mut self, dir: Ino, now_ms: u64) -> Option<&mut Habit> {
        if self.habits.len() >= DIRS_MAX && !self.habits.contains_key(&dir) {
            self.habits.clear();
        }
        let habit = self.habits.entry(dir).or_default();
        (now_ms >= habit.shared_until).then_some(habit)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let mut held = self.promises.held();
        for dir in &self.dirs {
            if let Some(count) = held.changing.get_mut(dir) {
                *count -= 1;
                if *count == 0 {
                    held.changing.remove(dir);
                }
            }
        }
        held.changing_all -= u32::from(self.all);
    }
}

/// One more has landed: whoever waits looks again, when nothing is held any more.
fn wake(mut held: MutexGuard<'_, Held>) {
    let wakers = held.landings.add();
    drop(held);
    wakers.into_iter().for_each(Waker::wake);
}

fn take_out<K: Eq + Hash>(lists: &mut HashMap<K, Vec<u64>>, key: &K, id: u64) {
    if let Some(ids) = lists.get_mut(key) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            lists.remove(key);
        }
    }
}

/// A change in a directory: what happened later by the partition's clock stays.
fn stamp(dir: &mut Attr, at: Time) {
    if at >= dir.ctime {
        (dir.mtime, dir.ctime) = (at, at);
    }
}

#[cfg(test)]
mod tests;
