//! A prefetch plan: what a job will read, in that order.

use std::fs;
use std::path::{Path, PathBuf};

use crate::errands::Piece;
use crate::tree::Trouble;

/// One line: a path, or a path and the bytes of it that will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    path: PathBuf,
    part: Option<(u64, u64)>,
}

/// Reads a plan. Paths are looked at only when their turn has come.
pub fn parse(text: &str) -> impl Iterator<Item = Result<Piece, Trouble>> + Send + use<> {
    let lines: Vec<Line> = text.lines().filter(|line| !line.trim().is_empty()).map(line).collect();
    lines.into_iter().map(|line| piece(&line))
}

/// `path offset length`, where the two are numbers of bytes; anything else is a path. So blanks in a path do no harm, and
/// one that ends in two numbers is written with a range.
fn line(text: &str) -> Line {
    let mut words = text.trim_end().rsplitn(3, [' ', '\t']);
    let (len, off, path) = (words.next(), words.next(), words.next());
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    match (path.map(str::trim_end), number(off), number(len)) {
        (Some(path), Some(off), Some(len)) if !path.is_empty() => Line { path: path.into(), part: Some((off, len)) },
        _ => Line { path: text.trim_end().into(), part: None },
    }
}

fn piece(line: &Line) -> Result<Piece, Trouble> {
    let found = fs::symlink_metadata(&line.path).map_err(|error| Trouble::new(&line.path, error))?;
    if !found.is_file() {
        return Err(Trouble::new(&line.path, "not a file: a plan names files, one a line"));
    }
    let (off, len) = line.part.unwrap_or((0, u64::MAX));
    let bytes_max = found.len().saturating_sub(off).min(len);
    Ok(Piece { path: line.path.clone(), part: line.part, bytes_max })
}

/// Reads the plan in `file`.
pub fn read(file: &Path) -> Result<impl Iterator<Item = Result<Piece, Trouble>> + Send + use<>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("--plan {}: {error}", file.display()))?;
    Ok(parse(&text))
}

#[cfg(test)]
mod tests {
    use super::{Line, line, parse};

    #[test]
    fn lines() {
        let whole = |path: &str| Line { path: path.into(), part: None };
        let part = |path: &str, off, len| Line { path: path.into(), part: Some((off, len)) };
        for (text, expected) in [
            ("/m/a", whole("/m/a")),
            ("/m/a 0 4096", part("/m/a", 0, 4096)),
            ("/m/a\t5\t6\r", part("/m/a", 5, 6)),
            ("/m/a b", whole("/m/a b")),
            ("/m/a b 1 2", part("/m/a b", 1, 2)),
            ("/m/a 7", whole("/m/a 7")),
            ("/m/a 1 2 0 18446744073709551615", part("/m/a 1 2", 0, u64::MAX)),
            ("/m/a -1 2", whole("/m/a -1 2")),
            ("1 2", whole("1 2")),
        ] {
            assert_eq!(line(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_plan_goes_on_after_what_is_missing() {
        let dir = tempfile::tempdir().expect("dir");
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("a"), [0; 100]).expect("write");
        let text = format!("{} 90 50\n\n{}\n{}\n{}\n", at("a"), at("none"), at(""), at("a"));
        let pieces: Vec<_> =
            parse(&text).map(|piece| piece.map(|p| (p.part, p.bytes_max)).map_err(|t| t.reason)).collect();
        assert_eq!((&pieces[0], &pieces[3]), (&Ok((Some((90, 50)), 10)), &Ok((None, 100))));
        assert!(pieces[1].as_ref().is_err_and(|why| why.contains("No such")));
        assert!(pieces[2].as_ref().is_err_and(|why| why.contains("not a file")));
        assert_eq!(pieces.len(), 4);
    }
}
