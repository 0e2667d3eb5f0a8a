//! The files with the events of a host: a line of JSON for each, added to the newest file; a few files, the oldest goes.
//!
//! A line that is cut (by a crash, or a disk without room) or damaged is left out when they are read; what comes after
//! it begins a line of its own. Nothing is synced: after a loss of power the last seconds may lack.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use braid_base::msg::event::{Event, EventFilter};
use braid_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// A file with so many bytes takes no more.
const FILE_BYTES: u64 = 2 << 20;
/// Files that are kept.
const FILES_MAX: usize = 4;
/// How the name of a file ends; before that stands the number of its first event.
const ENDING: &str = ".jsonl";
/// Version of a line.
const VERSION: u32 = 1;

/// A line.
#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    /// Of its type, for who reads the files without this program.
    #[serde(skip_deserializing)]
    name: String,
    #[serde(flatten)]
    event: Event,
}

/// The files, for the one who adds to them.
pub(super) struct Files {
    dir: PathBuf,
    newest: Option<Newest>,
}

/// The file that is added to.
struct Newest {
    file: File,
    bytes: u64,
    /// The number of the next event.
    next_id: u64,
}

impl Files {
    /// Those in `dir`, which is made when there is something to keep.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, newest: None }
    }

    /// Adds `event`, under the next number.
    ///
    /// Errors: as the disk has it; then it is not there, and the next one may be.
    pub(super) fn append(&mut self, event: Event) -> Result<()> {
        let failed = |error: io::Error| Error::os(self.dir.display(), &error);
        // After an error it is looked at anew.
        let mut newest = match self.newest.take() {
            Some(newest) => newest,
            None => open(&self.dir).map_err(failed)?,
        };
        if newest.bytes >= FILE_BYTES {
            newest = begin(&self.dir, newest.next_id).map_err(failed)?;
        }
        let event = Event { id: newest.next_id, ..event };
        let line = Line { version: VERSION, name: event.kind.to_string(), event };
        let mut text = serde_json::to_vec(&line).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        text.push(b'\n');
        newest.file.write_all(&text).map_err(failed)?;
        newest.bytes += text.len() as u64;
        newest.next_id += 1;
        self.newest = Some(newest);
        Ok(())
    }
}

/// The newest file in `dir`, to go on with it.
fn open(dir: &Path) -> io::Result<Newest> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let Some((first_id, path)) = list(dir)?.pop() else { return begin(dir, 1) };
    let mut file = OpenOptions::new().read(true).append(true).open(&path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let last_id = lines(&text).map(|event| event.id).max();
    if text.last().is_some_and(|byte| *byte != b'\n') {
        file.write_all(b"\n")?;
    }
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok(Newest { file, bytes, next_id: last_id.map_or(first_id, |last| last + 1) })
}

/// A new file whose first event has the number `first_id`; the oldest ones go.
fn begin(dir: &Path, first_id: u64) -> io::Result<Newest> {
    let path = dir.join(format!("{first_id:020}{ENDING}"));
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let known = list(dir)?;
    for (_, oldest) in &known[..known.len().saturating_sub(FILES_MAX)] {
        fs::remove_file(oldest)?;
    }
    Ok(Newest { file, bytes: 0, next_id: first_id })
}

/// The files in `dir`, the oldest first, with the numbers of their first events.
fn list(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(first_id) = name.strip_suffix(ENDING).and_then(|number| number.parse().ok()) {
            found.push((first_id, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The events in a file, without what is no line.
fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = Event> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    lines.filter(|line| line.version == VERSION).map(|line| line.event)
}

/// The events in `dir` that `filter` wants, as many as may be shown; none if there is no such directory.
pub(super) fn read(dir: &Path, filter: &EventFilter) -> Result<Vec<Event>> {
    let failed = |error: io::Error| Error::os(dir.display(), &error);
    let mut known = match list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        known => known.map_err(failed)?,
    };
    if !filter.oldest {
        known.reverse();
    }
    let (mut found, most) = (Vec::new(), usize::try_from(filter.most).unwrap_or(usize::MAX));
    for (_, path) in known {
        let text = match fs::read(&path) {
            // It was the oldest just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(failed)?,
        };
        let wanted = lines(&text).filter(|event| filter.wants(event));
        // The others of this file are as old, or as new.
        let left = most.saturating_sub(found.len());
        match filter.oldest {
            true => found.extend(wanted.take(left)),
            false => found.extend(wanted.rev().take(left)),
        }
        if found.len() >= most {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use braid_base::msg::event::{Event, EventFilter, EventType};

    use super::{FILE_BYTES, FILES_MAX, Files, list, read};

    fn event(at_ms: u64, text: &str) -> Event {
        Event { at_ms, ..Event::new(EventType::STORE_DOWN, text).about("object_store", "cold") }
    }

    fn ids(dir: &Path, most: u32, oldest: bool) -> Vec<u64> {
        let filter = EventFilter { until_ms: u64::MAX, most, oldest, ..EventFilter::default() };
        read(dir, &filter).expect("files").iter().map(|event| event.id).collect()
    }

    fn add(path: &Path, bytes: &[u8]) {
        fs::OpenOptions::new().append(true).open(path).expect("there").write_all(bytes).expect("written");
    }

    #[test]
    fn a_line_is_as_drawn() {
        let home = tempfile::tempdir().expect("dir");
        Files::new(home.path().to_owned()).append(event(1_700_000_000_000, "gone")).expect("kept");
        let text = fs::read_to_string(home.path().join("00000000000000000001.jsonl")).expect("a file");
        let page = include_str!("../../../../../docs/formats.md");
        assert!(page.contains(text.trim_end()), "{text}");
        assert!(text.ends_with('\n') && text.lines().count() == 1);
    }

    #[test]
    fn what_is_cut_or_damaged_or_newer_is_left_out() {
        let home = tempfile::tempdir().expect("dir");
        let dir = home.path().join("events");
        let mut files = Files::new(dir.clone());
        files.append(event(1, "one")).expect("kept");
        files.append(event(2, "two")).expect("kept");
        let path = list(&dir).expect("listed").remove(0).1;
        add(&path, b"{\"version\":2,\"id\":77,\"at_ms\":1,\"type\":5,\"severity\":\"info\",\"count\":1}\n\xff\n{\"version\":1,\"id\":3,");
        assert_eq!(ids(&dir, 9, true), [1, 2]);
        let mut again = Files::new(dir.clone());
        again.append(event(3, "three")).expect("kept");
        again.append(event(4, "four")).expect("kept");
        assert_eq!((ids(&dir, 9, true), ids(&dir, 9, false)), (vec![1, 2, 3, 4], vec![4, 3, 2, 1]));
        // One that nobody can read at all: numbers go on with that in its name.
        fs::write(dir.join("00000000000000000009.jsonl"), "nothing").expect("written");
        Files::new(dir.clone()).append(event(5, "five")).expect("kept");
        assert_eq!(ids(&dir, 2, false), [9, 4]);
    }

    #[test]
    fn there_are_a_few_files_of_a_bounded_size_and_the_oldest_goes() {
        let home = tempfile::tempdir().expect("dir");
        let (dir, mut files, text) = (home.path(), Files::new(home.path().to_owned()), "x".repeat(1_000));
        let each = FILE_BYTES / 1_100;
        for at in 0..each * (FILES_MAX as u64 + 2) {
            files.append(event(at, &text)).expect("kept");
        }
        let known = list(dir).expect("listed");
        assert_eq!(known.len(), FILES_MAX);
        let sizes: Vec<u64> = known.iter().map(|(_, path)| fs::metadata(path).expect("there").len()).collect();
        assert!(sizes.iter().all(|size| *size < FILE_BYTES + 2_000), "{sizes:?}");
        assert!(sizes[..FILES_MAX - 1].iter().all(|size| *size >= FILE_BYTES), "{sizes:?}");
        let kept = ids(dir, u32::MAX, true);
        assert_eq!(kept.first(), known.first().map(|(first, _)| first));
        assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "none is missing between");
        assert_eq!(ids(dir, 3, true), kept[..3]);
        let last = kept[kept.len() - 1];
        assert_eq!(ids(dir, 3, false), [last, last - 1, last - 2]);
        // Over the border of two files.
        let many = ids(dir, 4_000, false);
        assert_eq!((many.len(), many[3_999]), (4_000, last - 3_999));
    }
}
