//! Files of which bytes may be held back: what they may look like when their client dies or is given up.

use std::collections::BTreeMap;

use braid_base::ids::Ino;
use braid_base::{Error, ErrorKind};
use braid_client::Fs;

use crate::board::Board;
use crate::compare::lost_bytes;
use crate::model::{Action, Answer, Content, Model};
use crate::perform::is_unreadable;

/// States of one file that are kept; then it is time for an `fsync`.
const STATES_MAX: usize = 5;
/// Bytes compared at a time.
const STEP: u64 = 256 << 10;
/// Pause after a read that failed for reasons of the world, milliseconds, and how often it is tried.
const PAUSE_MS: u64 = 2_000;
const TRIES: u32 = 40;

/// All states of such files since they were last known to be on the drives.
#[derive(Default)]
pub struct Unsynced(BTreeMap<Ino, Vec<Content>>);

impl Unsynced {
    /// True if nothing is in doubt.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A file that ought to be synced.
    pub fn crowded(&self) -> Option<Ino> {
        self.0.iter().find(|(_, states)| states.len() > STATES_MAX).map(|(ino, _)| *ino)
    }

    /// All files in doubt.
    pub fn files(&self) -> Vec<Ino> {
        self.0.keys().copied().collect()
    }

    /// The file of that name, if it is in doubt.
    pub fn is_named(&self, model: &Model, dir: Ino, name: &[u8]) -> Option<Ino> {
        let ino = *model.node(dir)?.entries.get(name)?;
        self.0.contains_key(&ino).then_some(ino)
    }

    /// `action` was answered; `before` and `after` it the files look so.
    pub fn answered(&mut self, action: &Action, answer: &Answer, before: Option<Content>, after: &Model) {
        let Some(ino) = action.ino() else { return };
        match (action, answer) {
            (Action::Fsync { .. }, _) => {
                self.0.remove(&ino);
            }
            (_, Answer::Wrote { held_back: true, .. }) => {
                self.0.entry(ino).or_insert_with(|| before.into_iter().collect());
            }
            _ => {}
        }
        self.reached(ino, after);
        self.forget_gone(after);
    }

    /// Forgets the files that are not in `model` any more.
    pub fn forget_gone(&mut self, model: &Model) {
        self.0.retain(|ino, _| model.node(*ino).is_some());
    }

    /// The file came to look so, or may have.
    pub fn reached(&mut self, ino: Ino, after: &Model) {
        if let (Some(states), Some(node)) = (self.0.get_mut(&ino), after.node(ino))
            && states.last() != Some(&node.content)
        {
            states.push(node.content.clone());
        }
    }

    /// Reads all these files: each byte must be that of one of the states. `model` then says what was found. True if
    /// something was lost.
    pub async fn adopt(&mut self, fs: &Fs, board: &Board, model: &mut Model) -> Result<bool, String> {
        let mut lost = false;
        for (ino, states) in std::mem::take(&mut self.0) {
            let Some(content) = model.content_mut(ino) else { continue };
            // A file that is gone holds nothing: the tree says whether it may be.
            let Some(found) = found((fs, board), ino, &states).await? else { continue };
            lost |= states.last() != Some(&found);
            *content = found;
        }
        Ok(lost)
    }
}

async fn found((fs, board): (&Fs, &Board), ino: Ino, states: &[Content]) -> Result<Option<Content>, String> {
    let gone = |kind| matches!(kind, ErrorKind::Stale | ErrorKind::NotFound);
    let size = match again(fs, ino, async || fs.getattr(ino).await.map(|attr| attr.size)).await {
        Ok(size) => size,
        Err(error) if gone(error.kind()) => return Ok(None),
        Err(error) => return Err(format!("stat of {ino}: {error}")),
    };
    let sizes = states.iter().map(|state| state.size);
    if size > sizes.clone().max().unwrap_or(0) || size < sizes.min().unwrap_or(0) {
        return Err(format!("{ino} has {size} bytes, and never had"));
    }
    let mut found = Content::default();
    found.resize(size);
    let mut ranges: Vec<(u64, u64)> = states.iter().flat_map(|state| state.ranges(None)).collect();
    ranges.sort_unstable();
    let mut at = 0;
    for (from, to) in ranges {
        at = from.max(at);
        while at < to.min(size) {
            let len = STEP.min(to.min(size) - at);
            let bytes = match states.last() {
                Some(last) if board.has_lost() => there((fs, board), ino, (at, len), last).await?,
                _ => again(fs, ino, async || fs.read(ino, at, len).await).await.map(|bytes| bytes.to_vec()),
            };
            let bytes = bytes.map_err(|error| format!("read of {ino}: {error}"))?;
            let may: Vec<Vec<u8>> = states
                .iter()
                .map(|state| {
                    let mut bytes = state.read(at, len);
                    bytes.resize(len as usize, 0);
                    bytes
                })
                .collect();
            let wrong = (0..bytes.len()).find(|i| may.iter().all(|state| state[*i] != bytes[*i]));
            if bytes.len() as u64 != len || wrong.is_some() {
                let n = states.len();
                return Err(format!("{ino} at {at}: byte {wrong:?} is in none of the {n} states since its last fsync"));
            }
            found.write(at, &bytes);
            at += len;
        }
    }
    Ok(Some(found))
}

/// Bytes of a file; what an object store lost of them is as it was last.
async fn there(
    (fs, board): (&Fs, &Board),
    ino: Ino,
    (at, len): (u64, u64),
    last: &Content,
) -> Result<braid_base::Result<Vec<u8>>, String> {
    let mut out = last.read(at, len);
    out.resize(len as usize, 0);
    let mut from = at;
    for (first, end) in lost_bytes(fs, board, ino, (at, at + len)).await?.into_iter().chain([(at + len, at + len)]) {
        if from < first {
            match again(fs, ino, async || fs.read(ino, from, first - from).await).await {
                Ok(bytes) => {
                    let start = (from - at) as usize;
                    out[start..start + bytes.len()].copy_from_slice(&bytes);
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        from = end.max(from);
    }
    Ok(Ok(out))
}

/// Repeats while the world is in the way.
pub async fn again<T>(fs: &Fs, ino: Ino, look: impl AsyncFn() -> braid_base::Result<T>) -> braid_base::Result<T> {
    for _ in 0..TRIES {
        match look().await {
            Err(error) if is_unreadable(&error) => fs.session().wire().sleep_ms(PAUSE_MS).await,
            result => return result,
        }
    }
    Err(Error::new(ErrorKind::Io, format!("{ino} cannot be looked at, however often it is tried")))
}
