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
    Ok(Piece { part: line.part, bytes_max, ..Piece::whole(line.path.clone()) })
}

/// The same pieces, each at most `step` bytes long, which end where the file has a multiple of it.
pub fn cut(
    pieces: impl Iterator<Item = Result<Piece, Trouble>> + Send,
    step: u64,
) -> impl Iterator<Item = Result<Piece, Trouble>> + Send {
    pieces.flat_map(move |piece| {
        let (whole, trouble) = match piece {
            Ok(piece) => (Some(piece), None),
            Err(trouble) => (None, Some(Err(trouble))),
        };
        whole.into_iter().flat_map(move |piece| parts(&piece, step)).map(Ok).chain(trouble)
    })
}

fn parts(piece: &Piece, step: u64) -> impl Iterator<Item = Piece> + Send + use<> {
    let from = piece.part.map_or(0, |(off, _)| off);
    let (to, piece, mut next) = (from + piece.bytes_max, piece.clone(), Some(from));
    std::iter::from_fn(move || {
        let at = next?;
        let end = ((at / step + 1) * step).min(to);
        next = (end < to).then_some(end);
        if (at, end) == (from, to) {
            return Some(piece.clone());
        }
        Some(Piece { part: Some((at, end - at)), bytes_max: end - at, ..piece.clone() })
    })
}

/// Reads the plan in `file`.
pub fn read(file: &Path) -> Result<impl Iterator<Item = Result<Piece, Trouble>> + Send + use<>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("--plan {}: {error}", file.display()))?;
    Ok(parse(&text))
}

#[cfg(test)]
mod tests {
    use super::{Line, cut, line, parse};
    use crate::errands::Piece;
    use crate::tree::Trouble;

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
    fn long_pieces_are_cut() {
        let piece = |part: Option<(u64, u64)>, bytes_max| Ok(Piece { part, bytes_max, ..Piece::whole("p".into()) });
        let plan = [
            piece(None, 10),
            piece(None, 0),
            Err(Trouble::new("x".as_ref(), "no")),
            piece(None, 25),
            piece(Some((7, 99)), 9),
        ];
        let parts: Vec<_> = cut(plan.into_iter(), 10).map(|piece| piece.map(|p| (p.part, p.bytes_max)).ok()).collect();
        let part = |off, len| Some((Some((off, len)), len));
        let expected =
            [Some((None, 10)), Some((None, 0)), None, part(0, 10), part(10, 10), part(20, 5), part(7, 3), part(10, 6)];
        assert_eq!(parts, expected);
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
