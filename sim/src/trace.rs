//! The schedule of a run: its last lines as text, all of it as one number.

use std::collections::VecDeque;
use std::fmt::Write;

use braid_base::msg::drive::DriveOp;
use braid_base::msg::fs::{FsResult, Op, Reply};

/// Lines kept for people, if nobody wants more.
const LINES: usize = 250;
/// A line is cut there.
const LINE_MAX: usize = 220;

/// The lines.
pub struct Trace {
    lines: VecDeque<(u64, String)>,
    /// Lines kept.
    pub lines_max: usize,
    fingerprint: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { lines: VecDeque::new(), lines_max: LINES, fingerprint: 0 }
    }
}

impl Trace {
    /// Adds a line of time `now_us`.
    pub fn add(&mut self, now_us: u64, mut line: String) {
        for byte in line.bytes().chain(now_us.to_le_bytes()) {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if line.len() > LINE_MAX {
            let end = (0..=LINE_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(end);
        }
        self.lines.push_back((now_us, line));
        if self.lines.len() > self.lines_max {
            self.lines.pop_front();
        }
    }

    /// The lines kept, with their times in seconds.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (us, line) in &self.lines {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{:>5}.{:06} {line}", us / 1_000_000, us % 1_000_000);
        }
        out
    }

    /// A fold of all lines ever added.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// An operation without its bytes.
pub fn op(op: &Op) -> String {
    match op {
        Op::Write { ino, parts, append, .. } => {
            let parts: Vec<(u64, usize)> = parts.iter().map(|(off, bytes)| (*off, bytes.len())).collect();
            format!("Write {ino} {parts:?}{}", if *append { " append" } else { "" })
        }
        Op::CommitWrite { ino, off, stripes, .. } => {
            let lens: Vec<u32> = stripes.iter().map(|laid| laid.len).collect();
            format!("CommitWrite {ino} at {off} {lens:?}")
        }
        Op::SetXattr { ino, name, value, mode } => {
            format!("SetXattr {ino} {} {} bytes {mode:?}", text(name), value.len())
        }
        Op::Create { dir, name, kind, .. } => format!("Create {dir}/{} {kind:?}", text(name)),
        Op::Lookup { dir, name } => format!("Lookup {dir}/{}", text(name)),
        Op::Link { ino, dir, name } => format!("Link {ino} {dir}/{}", text(name)),
        Op::Unlink { dir, name, .. } => format!("Unlink {dir}/{}", text(name)),
        Op::Rmdir { dir, name } => format!("Rmdir {dir}/{}", text(name)),
        Op::Rename { from_dir, from, to_dir, to, mode } => {
            format!("Rename {from_dir}/{} {to_dir}/{} {mode:?}", text(from), text(to))
        }
        other => format!("{other:?}"),
    }
}

/// An answer without its bytes.
pub fn reply(result: &FsResult) -> String {
    match result {
        Ok(Reply::Data(bytes)) => format!("{} bytes", bytes.len()),
        Ok(Reply::Value(bytes)) => format!("value of {} bytes", bytes.len()),
        Ok(Reply::Attr(attr)) => format!("{} size {} nlink {}", attr.ino, attr.size, attr.nlink),
        Ok(Reply::Wrote { off, attr }) => format!("wrote at {off}, size {}", attr.size),
        Ok(Reply::Entry { ino, kind, attr }) => format!("{ino} {kind:?} attr {}", attr.is_some()),
        Ok(Reply::Entries { entries, end }) => format!("{} entries, end {end}", entries.len()),
        Ok(Reply::Layout(layout)) => {
            format!("layout size {} extents {:?}", layout.size, layout.extents.iter().take(4).collect::<Vec<_>>())
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

/// A drive operation without its bytes.
pub fn drive_op(op: &DriveOp) -> String {
    match op {
        DriveOp::Put { id, block, data, .. } => {
            format!("Put {} shard {} block {block} {} bytes", id.pack, id.shard, data.len())
        }
        other => format!("{other:?}"),
    }
}

/// A name as people read it.
pub fn text(name: &[u8]) -> String {
    match name {
        [start @ .., _] if start.len() >= 32 => {
            format!("{}... ({} bytes)", String::from_utf8_lossy(&start[..8]), name.len())
        }
        _ => String::from_utf8_lossy(name).into_owned(),
    }
}
