//! Attributes that are not stored: they say where a file is, and ask for it to be elsewhere.
//!
//! | name | get | set |
//! |---|---|---|
//! | `braid.location` | a JSON object with what is on flash, and what in objects | - |
//! | `braid.ages` | a JSON object with from when that counts, and what is wrong with it | - |
//! | `braid.read` | up to which byte the file was last read here, and how long ago | - |
//! | `braid.recall`, `braid.recall.OFF.LEN` | `yes` if a read of the file, or of that part of it, waits for a store | - |
//! | `braid.tier` | - | `fetch` or `release`, or with a part: `fetch OFF LEN` |
//!
//! No listing has them, so nothing copies them. The kernel checks the permission to read or write the file, as for every
//! attribute. Offsets and lengths are decimal numbers of bytes.

use braid_base::attr::{Attr, FileType};
use braid_base::ids::Ino;
use braid_base::limits::CHUNK;
use braid_base::msg::fs::{Ages, Residency, TierWant};
use braid_base::{Error, ErrorKind};
use braid_client::Fs;

use crate::errno::of_inode;
use crate::reads::{Read, Reads};
use crate::table::Hints;
use crate::wire::errno::Errno;

/// Every name that begins so is here, or nowhere.
const SPACE: &[u8] = b"braid.";
/// Files that are remembered as written; what is forgotten leaves flash by its age.
const WRITTEN_MAX: usize = 100_000;

/// A file that is open for long leaves flash in pieces of so much, bytes.
const PIECE_BYTES: u64 = 64 << 20;

/// After so long it is looked whether a file that is to leave flash has done so, milliseconds.
const AGAIN_MS: [u64; 4] = [1_000, 2_000, 5_000, 10_000];

/// What can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Location,
    Ages,
    Read,
    /// Of the bytes `[off, off+len)`.
    Recall(u64, u64),
}

/// True if `name` stands for none of the attributes that are stored.
pub(crate) fn is_virtual(name: &[u8]) -> bool {
    name.starts_with(SPACE)
}

/// The value of virtual attribute `name` of the inode that looks like `attr`.
pub(crate) async fn value(fs: &Fs, reads: &Reads, attr: &Attr, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let question = question(name).ok_or(Errno::ENODATA)?;
    let is_file = attr.kind == FileType::File;
    Ok(match question {
        Question::Location | Question::Ages => {
            let found = if is_file { fs.residency(attr.ino).await } else { Ok(Residency::default()) };
            let found = found.map_err(|e| of_inode(&e))?;
            if question == Question::Location { location(attr, &found) } else { ages(&found.ages) }.into_bytes()
        }
        Question::Read => read(reads.of(attr.ino, fs.session().wire().now_ms())).into_bytes(),
        Question::Recall(off, len) => {
            let far = if is_file { is_far(fs, attr.ino, off, len).await } else { Ok(false) };
            if far.map_err(|e| of_inode(&e))? { b"yes".to_vec() } else { b"no".to_vec() }
        }
    })
}

async fn is_far(fs: &Fs, ino: Ino, off: u64, len: u64) -> Result<bool, Error> {
    if (off, len) == (0, u64::MAX) {
        // Sums are cheaper than layouts.
        return fs.residency(ino).await.map(|found| found.object > found.read_cache);
    }
    fs.far_bytes(ino, off, len).await.map(|far| far > 0)
}

/// Sets virtual attribute `name`: asks for bytes to move.
pub(crate) async fn set(fs: &Fs, attr: &Attr, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    if name != b"braid.tier" {
        return Err(Errno::EOPNOTSUPP);
    }
    let (want, off, len) = errand(value).ok_or(Errno::EINVAL)?;
    match attr.kind {
        FileType::File => {}
        FileType::Directory => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    fs.tier(attr.ino, off, len, want).await.map_err(|error| match error.kind() {
        // The file was there a moment ago: what is missing is an object store.
        ErrorKind::NotFound => Errno::EOPNOTSUPP,
        _ => of_inode(&error),
    })
}

/// Asks that all of `ino` leaves flash, and again what was on its way from the log to the drives just then. If it does not
/// leave, its age makes it leave.
pub(crate) async fn send_away(fs: &Fs, ino: Ino) {
    for pause_ms in AGAIN_MS {
        if let Err(error) = fs.tier(ino, 0, u64::MAX, TierWant::Object).await {
            tracing::debug!(%ino, %error, "what was written does not leave flash at once");
            return;
        }
        fs.session().wire().sleep_ms(pause_ms).await;
        match fs.residency(ino).await {
            Ok(found) if found.write_cache + found.read_cache > 0 => {}
            _ => return,
        }
    }
}

/// Asks that the part `[from, to)` of `ino`, which is being written, leaves flash. If it does not, the whole file does when it
/// is closed.
pub(crate) async fn send_piece(fs: &Fs, ino: Ino, (from, to): (u64, u64)) {
    if let Err(error) = fs.tier(ino, from, to - from, TierWant::Object).await {
        tracing::debug!(%ino, %error, "what was written does not leave flash before the file is closed");
    }
}

fn question(name: &[u8]) -> Option<Question> {
    match std::str::from_utf8(name.strip_prefix(SPACE)?).ok()? {
        "location" => Some(Question::Location),
        "ages" => Some(Question::Ages),
        "read" => Some(Question::Read),
        "recall" => Some(Question::Recall(0, u64::MAX)),
        other => {
            let (off, len) = other.strip_prefix("recall.")?.split_once('.')?;
            Some(Question::Recall(number(off)?, number(len)?))
        }
    }
}

fn errand(value: &[u8]) -> Option<(TierWant, u64, u64)> {
    let words: Vec<&str> = std::str::from_utf8(value).ok()?.split(' ').collect();
    let (verb, part) = words.split_first()?;
    let want = match *verb {
        "fetch" => TierWant::Flash,
        "release" => TierWant::Object,
        _ => return None,
    };
    match part {
        [] => Some((want, 0, u64::MAX)),
        [off, len] => Some((want, number(off)?, number(len)?)),
        _ => None,
    }
}

/// Digits only: `parse` would take a sign as well.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn location(attr: &Attr, found: &Residency) -> String {
    let kind = match attr.kind {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Socket => "socket",
    };
    let size = if attr.kind == FileType::File { attr.size } else { 0 };
    let Residency { write_cache, read_cache, object, .. } = found;
    format!(
        "{{\"file_type\":\"{kind}\",\"file_size\":{size},\"ssd_write_cache_bytes\":{write_cache},\
         \"ssd_read_cache_bytes\":{read_cache},\"object_storage_bytes\":{object}}}"
    )
}

fn ages(found: &Ages) -> String {
    let Ages { now_s, unmerged, fresh_s, copied_s, read_s, lost, leaving } = found;
    let span = |span: &Option<(u32, u32)>| span.map_or("null".to_owned(), |(from, to)| format!("[{from},{to}]"));
    let read = read_s.map_or("null".to_owned(), |read_s| read_s.to_string());
    format!(
        "{{\"now_s\":{now_s},\"unmerged_bytes\":{unmerged},\"write_cache_since_s\":{},\"read_cache_since_s\":{},\
         \"last_read_s\":{read},\"lost_bytes\":{lost},\"leaving_bytes\":{leaving}}}",
        span(fresh_s),
        span(copied_s)
    )
}

/// `END AGO`, a byte and milliseconds, or that it was not read.
fn read(last: Option<Read>) -> String {
    last.map_or("never".to_owned(), |Read { end, ago_ms }| format!("{end} {ago_ms}"))
}

/// What was written to a file since something of it was last sent away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    from: u64,
    to: u64,
    bytes: u64,
}

impl Written {
    /// `[off, off+len)` was written, too.
    fn and(self, off: u64, len: u64) -> Self {
        let end = off.saturating_add(len);
        let (from, to) = if self.bytes == 0 { (off, end) } else { (self.from.min(off), self.to.max(end)) };
        Self { from, to, bytes: self.bytes.saturating_add(len) }
    }

    /// What of it is sent away now, in whole chunks, and what is left: none while it is little, or if it lies here and there.
    fn cut(self) -> (Self, Option<(u64, u64)>) {
        let end = self.to / CHUNK * CHUNK;
        if self.bytes < PIECE_BYTES {
            return (self, None);
        }
        if self.from >= end || self.to - self.from > 2 * self.bytes {
            return (Self::default(), None);
        }
        (Self { from: end, to: self.to, bytes: self.to - end }, Some((self.from, end)))
    }
}

/// Files that were written through a mount whose data is to leave flash first (`obs_direct`): all of one when it is closed,
/// and piece by piece while it is written.
pub(crate) struct Departures(Hints<Ino, Written>);

impl Departures {
    pub(crate) fn new() -> Self {
        Self(Hints::new(WRITTEN_MAX))
    }

    /// `[off, off+len)` of `ino` was written; the part of it that leaves now, if there is enough.
    pub(crate) fn written(&self, ino: Ino, off: u64, len: u64) -> Option<(u64, u64)> {
        // In one go: writes of one file end on several threads at once.
        self.0.update(ino, |written| {
            let (left, piece) = written.unwrap_or_default().and(off, len).cut();
            *written = Some(left);
            piece
        })
    }

    /// True if `ino`, which is closed, was written since the last close.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        self.0.take(&ino).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Departures, PIECE_BYTES, Question, ages, errand, is_virtual, location, question, read};
    use crate::reads::Read;
    use braid_base::attr::{Attr, FileType};
    use braid_base::ids::Ino;
    use braid_base::limits::CHUNK;
    use braid_base::msg::fs::{Ages, Residency, TierWant};

    #[test]
    fn names() {
        assert!(is_virtual(b"braid.") && is_virtual(b"braid.x") && !is_virtual(b"user.braid.location"));
        assert_eq!(question(b"braid.location"), Some(Question::Location));
        assert_eq!((question(b"braid.ages"), question(b"braid.read")), (Some(Question::Ages), Some(Question::Read)));
        assert_eq!(question(b"braid.recall"), Some(Question::Recall(0, u64::MAX)));
        assert_eq!(question(b"braid.recall.10.18446744073709551615"), Some(Question::Recall(10, u64::MAX)));
        for name in ["braid.", "braid.tier", "braid.recall.", "braid.recall.1", "braid.recall.1.", "braid.recall.+1.2"]
        {
            assert_eq!(question(name.as_bytes()), None, "{name}");
        }
        assert_eq!(question(b"braid.recall.1.\xff"), None);
    }

    #[test]
    fn errands() {
        assert_eq!(errand(b"fetch"), Some((TierWant::Flash, 0, u64::MAX)));
        assert_eq!(errand(b"release"), Some((TierWant::Object, 0, u64::MAX)));
        assert_eq!(errand(b"fetch 4096 10"), Some((TierWant::Flash, 4096, 10)));
        for value in ["", "fetch ", "Fetch", "fetch 1", "fetch 1 2 3", "fetch -1 2", "fetch\n", "drop"] {
            assert_eq!(errand(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn from_when_it_counts_and_how_far_it_was_read() {
        let none = "{\"now_s\":9,\"unmerged_bytes\":0,\"write_cache_since_s\":null,\"read_cache_since_s\":null,\
                    \"last_read_s\":null,\"lost_bytes\":0,\"leaving_bytes\":0}";
        assert_eq!(ages(&Ages { now_s: 9, ..Ages::default() }), none);
        let some = Ages { fresh_s: Some((3, 7)), read_s: Some(8), lost: 5, ..Ages::default() };
        let text = ages(&some);
        assert!(text.contains("\"write_cache_since_s\":[3,7]") && text.contains("\"last_read_s\":8"), "{text}");
        assert_eq!((read(None).as_str(), read(Some(Read { end: 5, ago_ms: 70 })).as_str()), ("never", "5 70"));
    }

    #[test]
    fn what_is_written_leaves_piece_by_piece() {
        let (departures, ino) = (Departures::new(), Ino(7));
        let mut sent = Vec::new();
        for at in (0..200 << 20).step_by(1_000_000) {
            sent.extend(departures.written(ino, at, 1_000_000));
        }
        assert!(sent.len() == 3 && sent[0].0 == 0 && sent.windows(2).all(|pair| pair[0].1 == pair[1].0), "{sent:?}");
        assert!(
            sent.iter().all(|(from, to)| to % CHUNK == 0 && (to - from).abs_diff(PIECE_BYTES) <= CHUNK),
            "{sent:?}"
        );
        let far = (0..200).filter_map(|n| departures.written(Ino(8), (n * 7919 % 200) << 30, 1 << 20));
        assert_eq!(far.count(), 0, "here and there: when it is closed");
        assert!(departures.closed(ino) && !departures.closed(ino) && departures.closed(Ino(8)));
    }

    #[test]
    fn where_a_file_is() {
        let found = Residency { write_cache: 1, read_cache: 2, object: 3, ..Residency::default() };
        let expected = "{\"file_type\":\"file\",\"file_size\":9,\"ssd_write_cache_bytes\":1,\
                        \"ssd_read_cache_bytes\":2,\"object_storage_bytes\":3}";
        assert_eq!(location(&Attr { size: 9, ..Attr::default() }, &found), expected);
        let dir = Attr { kind: FileType::Directory, size: 4096, ..Attr::default() };
        let text = location(&dir, &Residency::default());
        assert!(text.contains("\"directory\"") && text.contains("\"file_size\":0"), "{text}");
    }
}
