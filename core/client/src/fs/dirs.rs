//! Directory listings.

use braid_base::attr::{Attr, FileType};
use braid_base::ids::Ino;
use braid_base::msg::fs::{DirEntry, Op, Reply};
use braid_base::{ErrorKind, Result};

use super::Fs;
use crate::bodies::BODY_MAX;
use crate::join::join_bounded;
use crate::session::unexpected;

/// Attributes that are asked for at a time where a listing came without.
const ATTRS_AT_ONCE: usize = 32;

impl Fs {
    /// Up to `limit` entries of `dir` after `cookie` (0: from the start), without `.` and `..`; and whether the
    /// end was reached. Cookies stay good while the directory changes. With `plus` every entry that still exists
    /// has its attributes.
    pub async fn readdir(&self, dir: Ino, cookie: u64, limit: u32, plus: bool) -> Result<(Vec<DirEntry>, bool)> {
        self.walks(dir);
        if let Some(known) = self.listed(dir, cookie, limit, plus) {
            self.0.ahead.listed(dir, known.0.len());
            return Ok(known);
        }
        let (mut entries, end) = match self.ask(Op::Readdir { dir, cookie, limit, plus }).await? {
            Reply::Entries { entries, end } => (entries, end),
            other => return Err(unexpected("readdir", &other)),
        };
        self.note_listed(dir, &entries);
        self.0.ahead.came(entries.len());
        for entry in &mut entries {
            let said = entry.attr.take().filter(|attr| self.0.promises.losing_dirs(attr.ino).is_none());
            entry.attr = said.map(|attr| self.amended(attr));
        }
        if plus {
            let missing: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].attr.is_none()).collect();
            let asked = missing.iter().map(|at| self.getattr(entries[*at].ino)).collect();
            let answers = join_bounded(ATTRS_AT_ONCE, asked).await;
            for (at, answer) in missing.into_iter().zip(answers) {
                match answer {
                    Ok(attr) => entries[at].attr = Some(attr),
                    // Removed since the listing was made: the name is shown, its attributes are not.
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((entries, end))
    }

    /// A page of a listing that came before, if `dir` is still like that, and so are the attributes that are wanted.
    fn listed(&self, dir: Ino, cookie: u64, limit: u32, plus: bool) -> Option<(Vec<DirEntry>, bool)> {
        if !self.0.promises.about(dir).is_empty() {
            // The partition, which is asked when they have landed, says how names come in.
            return None;
        }
        let (mut entries, end) = self.0.session.leases()?.listed(self.0.fs, dir, cookie, limit)?;
        for entry in entries.iter_mut().filter(|_| plus) {
            entry.attr = Some(self.amended(self.known(entry.ino)?));
        }
        Some((entries, end))
    }

    /// The parent of `dir`, if it is certain.
    pub(super) fn known_parent(&self, dir: Ino) -> Option<Ino> {
        let (parent, name) = self.0.siblings.place(dir)?;
        let there = self.0.session.leases()?.name(self.0.fs, parent, &name)?;
        (there == Some(dir)).then_some(parent)
    }

    /// Files that a program may read next, and directories that it may enter.
    pub(super) fn note_listed(&self, dir: Ino, entries: &[DirEntry]) {
        if self.0.session.shares_fate() {
            // Nothing is far enough to be asked for ahead.
            return;
        }
        let small = |attr: &Attr| attr.kind == FileType::File && (1..=BODY_MAX).contains(&attr.size);
        let files = entries.iter().filter(|entry| entry.attr.as_ref().is_some_and(small));
        self.0.bodies.listed(dir, files.map(|entry| entry.ino));
        for entry in entries.iter().filter(|entry| entry.kind == FileType::Directory) {
            self.0.siblings.listed(dir, &entry.name, entry.cookie, entry.ino);
        }
    }
}
