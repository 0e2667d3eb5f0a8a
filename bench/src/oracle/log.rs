//! What a worker was promised: one line when an operation begins, one when it is done.

use crate::Outcome;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// A log being written. Each line is one write, so that a kill of the writer leaves whole lines.
pub struct Log {
    file: File,
    operations: u64,
}

impl Log {
    /// Starts an empty log at `path`.
    pub fn create(path: &Path) -> Outcome<Log> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.map_err(|error| format!("log {}: {error}", path.display()))?;
        Ok(Log { file, operations: 0 })
    }

    /// Operations that are done.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Notes `what`, does it, notes that it is done.
    pub fn operation<T>(&mut self, what: &str, action: impl FnOnce() -> std::io::Result<T>) -> Outcome<T> {
        self.line(&format!("begin {what}"))?;
        let result = action().map_err(|error| format!("{what}: {error}"))?;
        self.line("done")?;
        self.operations += 1;
        Ok(result)
    }

    fn line(&mut self, text: &str) -> Outcome<()> {
        self.file.write_all(format!("{text}\n").as_bytes()).map_err(|error| format!("log: {error}"))
    }
}

/// One operation of a log that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its words: operation, then arguments.
    pub words: Vec<String>,
    /// Was it acknowledged? Only the last operation of a log may not be.
    pub done: bool,
}

impl Line {
    /// Argument `at` (0 is the operation) as a number.
    pub fn number(&self, at: usize) -> Outcome<u64> {
        let word = self.words.get(at).map_or("", String::as_str);
        word.parse().map_err(|_| format!("log line {:?}: word {at} is not a number", self.words))
    }
}

/// Reads a log back. A last line that lost its end was never followed by its operation.
pub fn read(path: &Path) -> Outcome<Vec<Line>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("log {}: {error}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Outcome<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let open = lines.last().is_some_and(|last| !last.done);
        match (line.strip_prefix("begin "), open) {
            (Some(what), false) => {
                lines.push(Line { words: what.split(' ').map(str::to_owned).collect(), done: false });
            }
            (None, true) if line == "done" => lines.iter_mut().last().into_iter().for_each(|last| last.done = true),
            _ => return Err(format!("a log line out of order: '{line}'")),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operation_may_be_open_and_a_torn_line_is_dropped() {
        let lines = parse("begin sync a\ndone\nbegin write a 1\nbeg").expect("in order");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].done && !lines[1].done);
        assert_eq!(lines[1].number(2), Ok(1));
        assert!(parse("done\n").is_err());
        assert!(parse("begin a\nbegin b\n").is_err());
    }
}
