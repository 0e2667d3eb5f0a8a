//! Calls on names: of the kernel, if it knows, else of the cluster.

use braid_base::ErrorKind;
use braid_base::ids::Ino;
use braid_base::msg::fs::Cred;
use braid_client::fs::Create;

use super::{Told, Worker, full_name};
use crate::deeds::Deed;
use braid_linear::names::{self, Place};

impl Worker {
    pub(super) async fn ask_name(&self, dirs: &[Ino], generation: usize, call: &names::Call) -> Told<names::Answer> {
        let fs = &self.fs;
        let name = |place: Place| (dirs[place.0], full_name(generation, place));
        let result = match call {
            names::Call::Create { at, .. } => {
                let (dir, name) = name(*at);
                self.kernel.changes(dir, &name);
                let made = fs.create(Cred::default(), dir, &name, Create::default()).await;
                made.map(|made| self.shown(dir, &name, made.ino))
            }
            names::Call::Lookup(at) => {
                let (dir, name) = name(*at);
                match self.kernel.knows(fs, dir, &name) {
                    Some(ino) => {
                        if fs.is_promised(dir, &name) {
                            self.board.did(Deed::PromiseBelieved);
                        }
                        Ok(names::Answer::Ino(ino))
                    }
                    None => fs.lookup(dir, &name).await.map(|found| self.shown(dir, &name, found.ino)),
                }
            }
            names::Call::Unlink(at) => {
                let (dir, name) = name(*at);
                self.kernel.changes(dir, &name);
                fs.unlink(dir, &name).await.map(names::Answer::Ino)
            }
            names::Call::Rename { from, to, mode } => {
                let ((from_dir, from), (to_dir, to)) = (name(*from), name(*to));
                self.kernel.changes(from_dir, &from);
                self.kernel.changes(to_dir, &to);
                let renamed = fs.rename(from_dir, &from, to_dir, &to, *mode).await;
                renamed.map(|renamed| names::Answer::Moved(renamed.moved, renamed.other))
            }
            names::Call::Unmake { .. } | names::Call::Restore { .. } => unreachable!("nobody asks for that"),
        };
        match result {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(Some(names::Answer::Missing)),
                ErrorKind::Exists => Ok(Some(names::Answer::Exists)),
                ErrorKind::Io => Ok(None),
                _ if self.is_no_room(&error) => Ok(Some(names::Answer::NoRoom)),
                kind => Err(format!("{call:?}: {kind:?}: {error}")),
            },
        }
    }

    /// The kernel sees what a name stands for.
    fn shown(&self, dir: Ino, name: &[u8], ino: Ino) -> names::Answer {
        self.kernel.shown(&self.fs, dir, name, ino);
        names::Answer::Ino(ino)
    }
}
