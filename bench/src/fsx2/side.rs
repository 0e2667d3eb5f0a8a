//! The file through one mount.

use super::Op;
use super::model::Model;
use crate::map::Map;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One mount's view; closed for a while under `--pass close`.
pub struct Side {
    path: PathBuf,
    file: Option<File>,
}

impl Side {
    /// Opens a file that is there.
    pub fn open(path: &Path) -> std::io::Result<Side> {
        let mut side = Side { path: path.to_owned(), file: None };
        side.reopen()?;
        Ok(side)
    }

    /// Closes and opens.
    pub fn reopen(&mut self) -> std::io::Result<()> {
        self.close();
        self.file = Some(OpenOptions::new().read(true).write(true).open(&self.path)?);
        Ok(())
    }

    /// Closes.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// fsync, if it is open.
    pub fn sync(&self) -> std::io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_all)
    }

    /// Does an operation here and in the model; a sentence if the two part.
    pub fn apply(&mut self, op: Op, number: u64, model: &mut Model) -> Result<(), String> {
        if matches!(op, Op::Reopen) {
            return self.reopen().map_err(|error| error.to_string());
        }
        let file = self.file.as_ref().ok_or("the file is not open")?;
        match op {
            Op::Read(offset, len) => {
                let mut found = vec![0; count(len)];
                file.read_exact_at(&mut found, offset).map_err(|error| format!("read: {error}"))?;
                return model.compare(offset, &found);
            }
            Op::MapRead(offset, len) => {
                let map = whole(file, model)?;
                let found = map.load(count(offset), count(len)).map_err(|error| format!("mapped read: {error}"))?;
                return model.compare(offset, &found);
            }
            Op::Stat => {
                let found = file.metadata().map_err(|error| format!("fstat: {error}"))?.len();
                let named = std::fs::metadata(&self.path).map_err(|error| format!("stat: {error}"))?.len();
                if (found, named) != (model.len(), model.len()) {
                    return Err(format!("{found:#x} long, {named:#x} by name, expected {:#x}", model.len()));
                }
                return Ok(());
            }
            Op::MapWrite(offset, len) => {
                let bytes = Model::bytes_of(number, offset, len);
                let mut map = whole(file, model)?;
                map.store(count(offset), &bytes).map_err(|error| format!("mapped write: {error}"))?;
                map.sync().map_err(|error| format!("msync: {error}"))?;
                model.put(number, offset, &bytes);
                return Ok(());
            }
            _ => {}
        }
        self.change(file, op, number, model).map_err(|error| error.to_string())
    }

    fn change(&self, file: &File, op: Op, number: u64, model: &mut Model) -> std::io::Result<()> {
        match op {
            Op::Write(offset, len) => {
                let bytes = Model::bytes_of(number, offset, len);
                file.write_all_at(&bytes, offset)?;
                model.put(number, offset, &bytes);
            }
            Op::Append(len) => {
                let (offset, mut file) = (model.len(), OpenOptions::new().append(true).open(&self.path)?);
                let bytes = Model::bytes_of(number, offset, len);
                file.write_all(&bytes)?;
                model.put(number, offset, &bytes);
            }
            Op::Truncate(len) => {
                file.set_len(len)?;
                model.resize(number, len);
            }
            Op::Punch(offset, len) => {
                rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?;
                model.punch(number, offset, len);
            }
            Op::Fsync => file.sync_all()?,
            Op::Reopen | Op::Stat | Op::Read(..) | Op::MapRead(..) | Op::MapWrite(..) => {}
        }
        Ok(())
    }
}

/// The whole file mapped, as long as it must be.
fn whole(file: &File, model: &Model) -> Result<Map, String> {
    let found = file.metadata().map_err(|error| format!("fstat: {error}"))?.len();
    if found != model.len() {
        return Err(format!("{found:#x} long before it was mapped, expected {:#x}", model.len()));
    }
    Map::new(file, count(found)).map_err(|error| format!("mmap: {error}"))
}

fn count(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
