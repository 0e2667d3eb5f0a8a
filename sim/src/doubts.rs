//! Names of files that were made or removed, and of directories that were removed, without a word to the cluster: what
//! they may stand for when their client dies or is given up.

use std::collections::BTreeMap;

use braid_base::ErrorKind;
use braid_base::attr::FileType;
use braid_base::ids::Ino;
use braid_client::Fs;

use crate::model::{Action, Model, Node};
use crate::unsynced::again;

/// What a name stands for: nothing, or a file that looked so.
type Seen = Option<(Ino, Node)>;

/// All that names in doubt stood for since it was last certain, the latest last.
#[derive(Default)]
pub struct Doubts(BTreeMap<(Ino, Vec<u8>), Vec<Seen>>);

/// The name that `action` makes or removes, if that may be done without a word.
fn named(action: &Action) -> Option<(Ino, &Vec<u8>)> {
    match action {
        Action::Create { dir, name, kind: FileType::File, .. }
        | Action::Unlink { dir, name }
        | Action::Rmdir { dir, name } => Some((*dir, name)),
        _ => None,
    }
}

/// True if it changes something in another way: what was said before is certain before it begins.
pub fn lasts(action: &Action) -> bool {
    action.changes() && named(action).is_none()
}

impl Doubts {
    /// True if nothing is in doubt.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Directories with names in doubt.
    pub fn dirs(&self) -> Vec<Ino> {
        let mut dirs: Vec<Ino> = self.0.keys().map(|(dir, _)| *dir).collect();
        dirs.dedup();
        dirs
    }

    /// Forgets what is certain by now.
    pub fn prune(&mut self, fs: &Fs) {
        self.0.retain(|(dir, name), _| fs.is_promised(*dir, name));
    }

    /// `action` was answered: names looked so before and look so after it.
    pub fn answered(&mut self, action: &Action, fs: &Fs, before: Seen, after: &Model) {
        let Some((dir, name)) = named(action) else { return };
        if fs.is_promised(dir, name) {
            let states = self.0.entry((dir, name.clone())).or_insert_with(|| vec![before]);
            states.push(seen(after, dir, name));
        }
    }

    /// Looks at all these names: each must stand for what it did at some moment. `model` then says what was found. True
    /// if something was lost. A file that none of them knows was made by the call in flight.
    pub async fn adopt(&mut self, fs: &Fs, model: &mut Model) -> Result<bool, String> {
        let mut lost = false;
        let mut left = std::mem::take(&mut self.0);
        // A directory that is there again comes before what is in it.
        let next = |left: &BTreeMap<(Ino, Vec<u8>), Vec<Seen>>, model: &Model| {
            left.keys().find(|(dir, _)| model.node(*dir).is_some()).or(left.keys().next()).cloned()
        };
        while let Some(next) = next(&left, model) {
            let ((dir, name), states) = left.remove_entry(&next).expect("it was found a moment ago");
            let found = match again(fs, dir, async || fs.lookup(dir, &name).await).await {
                Ok(entry) => Some(entry.ino),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => None,
                Err(error) => return Err(format!("lookup of {} in {dir}: {error}", crate::trace::text(&name))),
            };
            let known = states.iter().rev().find(|state| state.as_ref().map(|(ino, _)| *ino) == found);
            let state = match (known, found) {
                (Some(state), _) => state.clone(),
                (None, Some(_)) => None,
                (None, None) => return Err(format!("{} was never missing in {dir}", crate::trace::text(&name))),
            };
            lost |= found.is_none() && seen(model, dir, &name).is_some();
            lost |= found.is_some() && seen(model, dir, &name).is_none() && known.is_some();
            model.put_back(dir, &name, state);
        }
        Ok(lost)
    }
}

/// What `action` is about, as it is before it.
pub fn before(action: &Action, model: &Model) -> Seen {
    named(action).and_then(|(dir, name)| seen(model, dir, name))
}

fn seen(model: &Model, dir: Ino, name: &[u8]) -> Seen {
    let ino = *model.node(dir)?.entries.get(name)?;
    Some((ino, model.node(ino)?.clone()))
}
