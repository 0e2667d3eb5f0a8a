//! Directory listings: the dots that only a mount shows, then the names, in pieces that fit a reply.

use braid_base::ids::Ino;
use braid_base::msg::fs::DirEntry;

use crate::calls::{Answer, Calls};

/// Cookies of `.` and `..`; those of names are larger.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Most bytes of listing fetched at a time.
const PIECE_BYTES_MAX: u32 = 64 * 1024;
/// Bytes of a listed entry with the shortest name, without and with attributes: bounds how many fit a reply.
const DIRENT_BYTES: u32 = 24 + 8;
const DIRENT_PLUS_BYTES: u32 = 128 + DIRENT_BYTES;

/// A piece of a directory.
pub(crate) struct Listing {
    /// Cookie, inode and name.
    pub(crate) dots: Vec<(u64, Ino, &'static [u8])>,
    pub(crate) names: Vec<DirEntry>,
}

/// What follows `offset` in `dir`, about as much as fits into `room` bytes. With `plus` at least one name has attributes, unless none is left: a piece without
/// any would look like the end.
pub(crate) async fn after(calls: &Calls, dir: Ino, offset: u64, room: u32, plus: bool) -> Answer<Listing> {
    let mut dots: Vec<(u64, Ino, &'static [u8])> = Vec::new();
    if offset < DOT {
        dots.push((DOT, dir, b"."));
    }
    if offset < DOT_DOT {
        dots.push((DOT_DOT, calls.parent(dir).await?, b".."));
    }
    let limit = room.min(PIECE_BYTES_MAX) / if plus { DIRENT_PLUS_BYTES } else { DIRENT_BYTES };
    let limit = limit.max(1);
    let mut cookie = if offset <= DOT_DOT { 0 } else { offset };
    loop {
        let names = calls.readdir(dir, cookie, limit, plus).await?;
        match names.last() {
            Some(last) if plus && names.iter().all(|name| name.attr.is_none()) => cookie = last.cookie,
            _ => return Ok(Listing { dots, names }),
        }
    }
}
