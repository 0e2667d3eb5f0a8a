//! Fallocate: reserve, punch, zero.

use braid_base::limits::FILE_MAX;
use braid_base::msg::fs::{FallocMode, Op, Reply, Request};
use braid_base::{Error, ErrorKind, Result};

use crate::data::chunk::FileId;
use crate::data::{cut, reserve};
use crate::ops::inode;
use crate::ops::write::load_file;
use crate::state::State;
use crate::txn::Txn;

/// `Op::Fallocate`.
///
/// Allocate and zero keep room for what is not held in the range ([`reserve`]); bytes are placed when they are written.
pub(crate) fn fallocate(t: &mut Txn<'_>, s: &mut State, request: &Request) -> Result<Reply> {
    let Op::Fallocate { ino, off, len, mode, keep_size } = &request.body else {
        return Err(ErrorKind::Invalid.into());
    };
    s.check_fault()?;
    let (fs, ino, off) = (request.fs, *ino, *off);
    s.peers.held.may_stat(fs, ino)?; // the answer shows the link count
    let mut file = load_file(t, s, fs, ino)?;
    if *len == 0 {
        return Err(Error::new(ErrorKind::Invalid, "fallocate: expected a length above 0"));
    }
    let end = off.checked_add(*len).filter(|end| *end <= FILE_MAX).ok_or(ErrorKind::FileTooBig)?;
    let id = FileId::first(fs, ino);
    match mode {
        FallocMode::Allocate => reserve::keep(t, s, id, &mut file, off, end)?,
        FallocMode::Punch | FallocMode::Zero => {
            if *mode == FallocMode::Zero {
                reserve::keep(t, s, id, &mut file, off, end)?;
            }
            reserve::release(t, s, id, &mut file, (off, end))?;
            cut::cut(t, s, id, &mut file, off, end)?;
            if *mode == FallocMode::Zero {
                reserve::keep_hidden(t, s, fs, &mut file, (off, end))?;
            }
        }
    }
    if *mode != FallocMode::Punch && !keep_size {
        file.attr.size = file.attr.size.max(end);
    }
    inode::touch(&mut file, t.now.wall);
    inode::store(t, fs, ino, &mut file);
    Ok(Reply::Attr(file.attr))
}
