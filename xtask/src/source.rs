//! One Rust file, split into what the compiler reads and what people read.

/// A Rust file as two texts of equal length and equal line breaks: `code` without comments and without
/// the insides of literals, `notes` with nothing but comments. A rule then cannot mistake one for the other.
pub struct Source {
    /// Path below the workspace, with forward slashes.
    pub path: String,
    /// The code; comments and literals are blanks.
    pub code: Vec<String>,
    /// The comments; everything else is blank.
    pub notes: Vec<String>,
    /// For each line: is it compiled for tests only?
    pub test: Vec<bool>,
}

impl Source {
    /// Splits `text`, the content of the file at `path`.
    pub fn parse(path: &str, text: &str) -> Source {
        let (code, notes) = split(text);
        let code: Vec<String> = code.lines().map(str::to_owned).collect();
        let notes = notes.lines().map(str::to_owned).collect();
        let test = test_lines(path, &code);
        Source { path: path.to_owned(), code, notes, test }
    }

    /// The 1-based number of the line that closes the first brace opened at or after line `from` (0-based),
    /// or `None` when a semicolon ends the item before any brace.
    pub fn end_of_item(&self, from: usize) -> Option<usize> {
        end_of_item(&self.code, from)
    }
}

/// Does `line` contain `word` with no identifier character on either side?
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part) && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

/// The two texts of a file, see [`Source`].
fn split(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut notes) = (String::new(), String::new());
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, width) = advance(state, &chars, at);
        for &c in &chars[at..at + width] {
            let in_code = state == State::Code && next == State::Code;
            let in_note = is_comment(state) || is_comment(next);
            code.push(if in_code || c == '\n' { c } else { ' ' });
            notes.push(if in_note || c == '\n' { c } else { ' ' });
        }
        at += width;
        state = next;
    }
    (code, notes)
}

fn is_comment(state: State) -> bool {
    matches!(state, State::LineComment | State::BlockComment(_))
}

/// The state after the token at `at`, and how many characters the token has.
fn advance(state: State, chars: &[char], at: usize) -> (State, usize) {
    let two = (chars[at], chars.get(at + 1).copied().unwrap_or('\n'));
    match (state, two) {
        (State::Code, ('/', '/')) => (State::LineComment, 2),
        (State::Code, ('/', '*')) => (State::BlockComment(1), 2),
        (State::Code, ('"', _)) => (State::Text, 1),
        (State::Code, ('r', '"' | '#')) => raw_start(chars, at).unwrap_or((State::Code, 1)),
        (State::Code, ('\'', _)) => (State::Code, char_literal(chars, at)),
        (State::LineComment, ('\n', _)) => (State::Code, 1),
        (State::BlockComment(depth), ('/', '*')) => (State::BlockComment(depth + 1), 2),
        (State::BlockComment(1), ('*', '/')) => (State::Code, 2),
        (State::BlockComment(depth), ('*', '/')) => (State::BlockComment(depth - 1), 2),
        (State::Text, ('\\', _)) => (State::Text, 2.min(chars.len() - at)),
        (State::Text, ('"', _)) => (State::Code, 1),
        (State::RawText(hashes), ('"', _)) if chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes => {
            (State::Code, 1 + hashes)
        }
        _ => (state, 1),
    }
}

/// `r"`, `r#"`, ... when the `r` at `at` starts a raw string and is not the end or start of a name.
fn raw_start(chars: &[char], at: usize) -> Option<(State, usize)> {
    let before = at.checked_sub(1).map(|i| chars[i]);
    if before.is_some_and(|c| (c.is_alphanumeric() || c == '_') && c != 'b' && c != 'c') {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some((State::RawText(hashes), 2 + hashes))
}

/// The width of the character literal at `at`, or 1 when the quote begins a lifetime.
fn char_literal(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.iter().skip(at + 3).position(|c| *c == '\'');
        return close.map_or(1, |offset| offset + 4);
    }
    if chars.get(at + 2) == Some(&'\'') { 3 } else { 1 }
}

fn test_lines(path: &str, code: &[String]) -> Vec<bool> {
    let whole = ["/tests/", "/examples/", "/benches/", "/tests.rs"].iter().any(|part| path.contains(part));
    let mut test = vec![whole; code.len()];
    for at in 0..code.len() {
        if code[at].contains("#[cfg(test)]") || code[at].contains("#[test]") {
            let end = end_of_item(code, at).unwrap_or(at + 2).min(code.len());
            test[at..end].fill(true);
        }
    }
    test
}

fn end_of_item(code: &[String], from: usize) -> Option<usize> {
    let mut depth = 0_u32;
    let mut brackets = 0_i32;
    for (number, line) in code.iter().enumerate().skip(from) {
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth <= 1 => return Some(number + 1),
                '}' => depth -= 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_leave_the_code() {
        let text =
            "let a = \"x // y\"; // unsafe\nlet b = 'c'; /* a /* b */ c */ let d = r#\"un\"safe\"#;\nfn f<'a>() {}";
        let source = Source::parse("core/x/src/a.rs", text);
        assert!(source.code[0].starts_with("let a = ") && !source.code[0].contains("unsafe"));
        assert!(source.notes[0].ends_with("// unsafe"));
        assert!(source.code[1].contains("let d") && !source.code[1].contains("safe"));
        assert!(source.notes[1].contains("/* a /* b */ c */"));
        assert_eq!(source.code[2], "fn f<'a>() {}");
    }

    #[test]
    fn escaped_quotes_and_byte_chars_do_not_open_strings() {
        let source = Source::parse("a.rs", "let q = '\\''; let r = b'\"'; let s = \"\\\\\"; unsafe {}");
        assert!(source.code[0].ends_with("unsafe {}"), "{}", source.code[0]);
    }

    #[test]
    fn test_modules_and_test_files_are_marked() {
        let source =
            Source::parse("core/x/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}");
        assert_eq!(source.test, [false, true, true, true, true, false]);
        assert_eq!(Source::parse("core/x/tests/a.rs", "fn a() {}").test, [true]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(!has_word("unsafe_op_in_unsafe_fn", "unsafe"));
    }
}
