//! The segment files of one partition's log in a directory: zero-filled ahead, recycled afterwards.
//!
//! ```text
//! DIR/seg-00000000000000000007     segment 7
//! DIR/spare-3                      written once over its whole length, waiting to become a segment
//! DIR/filling-4                    on its way to that
//! ```
//!
//! A file that was never written costs a journal commit of the host's file system at every durable write;
//! one that was written before costs none. So segments are made from spares, and go back to be spares. Spares outlive
//! the process: a host that starts would otherwise write 64 MiB twice for each of its logs, beside all else that it does
//! then. For the same reason the next one is made only when some of a segment is used.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use braid_base::{Error, ErrorKind, Result};
use braid_io::file::{self, File, OpenMode, ReadAt};
use braid_io::reactor::{FileId, Turn};
use braid_replica::log::{LogReader, Segment};

/// Spares kept for reuse, at most: what a busy partition drops in one go.
const SPARES_MAX: usize = 8;
/// Of these so many outlive the process: the rest of a burst gives its room back when the host is started again.
const KEPT_MAX: usize = 2;
const FILL_BYTES: usize = 1 << 20;
/// The next spare is made when one of so many parts of a segment is used.
const ORDER_AT: u64 = 4;
const SPARE: &str = "spare-";
const FILLING: &str = "filling-";
/// What a new segment leaves free beside itself: the view, which lies on the same disk, must be able to write its
/// buffers and to put files together, or it takes no more of what the log says.
const VIEW_ROOM_BYTES: u64 = 192 << 20;
/// A read of a segment this long is one of many in a row: what follows is fetched meanwhile.
const FETCH_FROM: usize = 1 << 20;
/// How much of it.
const FETCH_BYTES: u64 = 8 << 20;

/// The number of a file that was made last, in any directory: a seat that is opened again must not take a name that the
/// thread of the one before still has in hand.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Segment files by number.
pub(super) struct SegmentDir {
    dir: PathBuf,
    open: HashMap<Segment, FileId>,
    /// A spare that is being made on another thread, ahead of need.
    next: Option<Receiver<Result<PathBuf>>>,
    /// Those that are ready. A cell: what a replica begins with is given up before anything is written.
    spares: RefCell<Vec<PathBuf>>,
    /// Not needed any more, and still there; the oldest first.
    leaving: VecDeque<Segment>,
    bytes: u64,
    reader: Rc<SegmentReader>,
}

/// Reads the segments of a directory.
pub(super) struct SegmentReader {
    dir: PathBuf,
    /// The segment that was read last.
    reading: RefCell<Option<(Segment, File)>>,
}

fn segment_path(dir: &Path, segment: Segment) -> PathBuf {
    dir.join(format!("seg-{:020}", segment.0))
}

impl SegmentDir {
    /// The segments in `dir` (made if missing); files of `bytes` each. Starts making a spare if there is none.
    pub(super) fn open(dir: &Path, bytes: u64) -> Result<Self> {
        file::make_dir(dir)?;
        let mut spares = Vec::new();
        for name in file::list(dir)? {
            let (path, name) = (dir.join(&name), name.to_string_lossy());
            let spare = name.strip_prefix(SPARE);
            let Some(number) = spare.or_else(|| name.strip_prefix(FILLING)) else { continue };
            LAST.fetch_max(number.parse().unwrap_or(0), Ordering::Relaxed);
            let may_stay = spare.is_some() && spares.len() < KEPT_MAX;
            if may_stay && File::open(&path, OpenMode::READ_CACHED)?.size()? == bytes {
                spares.push(path);
            } else {
                file::remove(&path)?;
            }
        }
        let mut this = Self {
            dir: dir.to_owned(),
            open: HashMap::new(),
            next: None,
            spares: RefCell::new(spares),
            leaving: VecDeque::new(),
            bytes,
            reader: Rc::new(SegmentReader { dir: dir.to_owned(), reading: RefCell::default() }),
        };
        if this.spares.borrow().is_empty() {
            this.order_spare()?;
        }
        Ok(this)
    }

    /// What reads them.
    pub(super) fn reader(&self) -> Rc<SegmentReader> {
        Rc::clone(&self.reader)
    }

    /// Waits for what an earlier process has under way even though it was killed: a write that came after recovery
    /// would be taken for an entry at the next one. Then makes durable what it left in caches.
    pub(super) fn settle(&self) -> Result<()> {
        for segment in self.reader.segments()? {
            File::open(&segment_path(&self.dir, segment), OpenMode::READ_CACHED.alone())?.sync()?;
        }
        Ok(())
    }

    /// The file of `segment` for a write at `off`, the first of which makes it from a spare.
    pub(super) fn file_to_write(&mut self, segment: Segment, off: u64, turn: &mut Turn) -> Result<FileId> {
        if off >= self.bytes / ORDER_AT && self.spares.get_mut().is_empty() {
            // If no thread is to be had, whoever takes the spare tries again.
            drop(self.order_spare());
        }
        self.file(segment, off == 0, turn)
    }

    /// The file of `segment`; made from a spare if `create`.
    pub(super) fn file(&mut self, segment: Segment, create: bool, turn: &mut Turn) -> Result<FileId> {
        if let Some(id) = self.open.get(&segment) {
            return Ok(*id);
        }
        let path = segment_path(&self.dir, segment);
        if create {
            let spare = self.take_spare()?;
            file::rename(&spare, &path)?;
        }
        let id = turn.open(&path, OpenMode::WRITE)?;
        turn.file(id).map_or(Ok(()), File::hold)?;
        self.open.insert(segment, id);
        Ok(id)
    }

    /// Removes all segments, before any is open. Spares, too: they may have been segments whose numbers are used again.
    pub(super) fn discard(&self) -> Result<()> {
        self.reader.reading.take();
        self.spares.take().iter().try_for_each(|path| file::remove(path))?;
        self.reader.segments()?.into_iter().try_for_each(|segment| file::remove(&segment_path(&self.dir, segment)))?;
        file::sync_dir(&self.dir)
    }

    /// The segment is not needed any more: it goes, after those that were not needed before it.
    pub(super) fn remove(&mut self, segment: Segment, turn: &mut Turn) -> Result<()> {
        if let Some(id) = self.open.remove(&segment) {
            turn.close(id);
        }
        self.let_go(segment)
    }

    /// One that went while an older one stays would be a hole, which the next start takes for lost entries; and it may be what
    /// says that entries of the older one were truncated. So each is gone for good,
    /// also after a loss of power, before the next one goes. Where that fails, those behind it stay as well, and the next
    /// segment that is to go begins with them.
    fn let_go(&mut self, segment: Segment) -> Result<()> {
        self.reader.reading.take();
        let behind = !self.leaving.is_empty();
        self.leaving.push_back(segment);
        if behind {
            // The one that failed may be gone from the directory, but not durably.
            file::sync_dir(&self.dir)?;
        }
        while let Some(oldest) = self.leaving.front().copied() {
            self.recycle(&segment_path(&self.dir, oldest))?;
            self.leaving.pop_front();
        }
        Ok(())
    }

    /// What lies at `path` is a spare, or gone; durable at return.
    fn recycle(&mut self, path: &Path) -> Result<()> {
        if self.spares.get_mut().len() >= SPARES_MAX {
            return file::remove(path);
        }
        let spare = self.new_path(SPARE);
        match file::rename(path, &spare) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            renamed => {
                renamed?;
                self.spares.get_mut().push(spare);
            }
        }
        Ok(())
    }

    fn take_spare(&mut self) -> Result<PathBuf> {
        if let Some(path) = self.spares.get_mut().pop() {
            return Ok(path);
        }
        self.order_spare()?;
        let made = self.next.take().and_then(|next| next.recv().ok());
        made.unwrap_or_else(|| Err(Error::new(ErrorKind::Stopped, "the thread that makes log segments died")))
    }

    /// Begins to make a spare, if none is being made.
    fn order_spare(&mut self) -> Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        let (done, next): (SyncSender<Result<PathBuf>>, _) = sync_channel(1);
        let (path, spare, bytes) = (self.new_path(FILLING), self.new_path(SPARE), self.bytes);
        std::thread::Builder::new()
            .name("log-spare".into())
            .spawn(move || {
                let made = room(&path, bytes).and_then(|()| fill(&path, bytes));
                let made = made.and_then(|()| file::rename(&path, &spare));
                if made.is_err() {
                    let _ = file::remove(&path); // what little there was room for is not to be kept
                }
                drop(done.send(made.map(|()| spare)));
            })
            .map_err(|e| Error::os("start a thread for a log segment", &e))?;
        self.next = Some(next);
        Ok(())
    }

    fn new_path(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("{kind}{}", LAST.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

/// `NoSpace` if a segment of `bytes` would leave too little.
fn room(path: &Path, bytes: u64) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    let (free, need) = (file::free_bytes(dir)?, bytes + VIEW_ROOM_BYTES);
    if free >= need {
        return Ok(());
    }
    let text = format!("the disk of {} has {free} bytes free, the next log segment asks for {need}", dir.display());
    Err(Error::new(ErrorKind::NoSpace, text))
}

/// Writes zeros over the whole file, so that no later write has to allocate.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let file = File::open(path, OpenMode::new_file(bytes))?;
    let zeros = braid_io::buf::AlignedBuf::zeroed(FILL_BYTES).into_bytes();
    let mut off = 0;
    while off < bytes {
        let len = FILL_BYTES.min((bytes - off) as usize);
        file.write_at(off, &zeros.slice(..len))?;
        off += len as u64;
    }
    file.sync()
}

impl LogReader for SegmentReader {
    fn segments(&self) -> Result<Vec<Segment>> {
        let names = file::list(&self.dir)?;
        Ok(names.iter().filter_map(|n| n.to_str()?.strip_prefix("seg-")?.parse().ok().map(Segment)).collect())
    }

    fn read(&self, segment: Segment, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut reading = self.reading.borrow_mut();
        if reading.as_ref().is_none_or(|(open, _)| *open != segment) {
            *reading = Some((segment, File::open(&segment_path(&self.dir, segment), OpenMode::READ_CACHED)?));
        }
        let Some((_, file)) = reading.as_ref() else { return Ok(Vec::new()) };
        let len = len.min(file.size()?.saturating_sub(offset) as usize);
        if len >= FETCH_FROM {
            file.will_need(offset + len as u64, FETCH_BYTES);
        }
        Ok(file.read_at(offset, len)?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::{SPARES_MAX, SegmentDir, room, segment_path};
    use braid_base::ErrorKind;
    use braid_io::file;
    use braid_replica::log::{LogReader, Segment};
    use std::path::Path;

    const BYTES: u64 = 1 << 20;

    fn names(dir: &Path) -> Vec<String> {
        let names = file::list(dir).expect("it is there");
        names.into_iter().map(|name| name.into_string().expect("ASCII")).collect()
    }

    #[test]
    fn spares_outlive_the_process_and_not_the_replica() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let seg = "seg-00000000000000000007";
        for (name, bytes) in [("spare-3", BYTES), ("spare-4", BYTES / 2), ("filling-5", BYTES), (seg, BYTES)] {
            std::fs::write(dir.join(name), vec![7; bytes as usize]).expect("written");
        }
        let mut segments = SegmentDir::open(dir, BYTES).expect("opened");
        assert_eq!(names(dir), [seg, "spare-3"], "what is whole is kept, and nothing new is made");
        assert_eq!(segments.take_spare().expect("there is one"), dir.join("spare-3"));
        let made = segments.take_spare().expect("another is made");
        assert!(made != dir.join("spare-3") && std::fs::read(&made).expect("read") == vec![0; BYTES as usize]);

        let segments = SegmentDir::open(dir, BYTES).expect("opened again");
        segments.discard().expect("discarded");
        assert_eq!(names(dir), [""; 0], "numbers start again, so what had them goes");
    }

    #[test]
    fn segments_go_in_their_order_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |segment| segment_path(dir.path(), Segment(segment));
        std::fs::write(dir.path().join("spare-1"), vec![0; BYTES as usize]).expect("written");
        let mut segments = SegmentDir::open(dir.path(), BYTES).expect("opened");
        // So many that others are removed, which a directory in place of a file does not let happen.
        *segments.spares.get_mut() = vec![dir.path().join("spare-1"); SPARES_MAX];
        for segment in [1, 2, 4, 5] {
            std::fs::write(at(segment), [7_u8; 8]).expect("written");
        }
        std::fs::create_dir(at(3)).expect("made");
        let there = |segments: &SegmentDir| {
            let mut found = segments.reader().segments().expect("listed");
            found.sort_unstable();
            found.into_iter().map(|segment| segment.0).collect::<Vec<_>>()
        };
        for segment in [1, 2] {
            segments.let_go(Segment(segment)).expect("gone");
        }
        for segment in [3, 4] {
            segments.let_go(Segment(segment)).expect_err("a directory");
            assert_eq!(there(&segments), [3, 4, 5], "no hole");
        }
        std::fs::remove_dir(at(3)).expect("removed");
        std::fs::write(at(3), [7_u8; 8]).expect("written");
        segments.let_go(Segment(5)).expect("gone");
        assert_eq!(there(&segments), [0; 0], "those that stayed went first");
        segments.let_go(Segment(6)).expect("nothing was left of it");
    }

    #[test]
    fn a_spare_that_would_fill_the_disk_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = room(&dir.path().join("filling-1"), u64::MAX / 2).expect_err("no disk is so large");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
