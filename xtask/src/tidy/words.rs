//! Words that a reader must not meet, or only in their place.

use super::Finding;
use crate::source::{Source, has_word};

/// Rooms where `unsafe` has its place: system calls and vector instructions, and the mapping that workloads test.
const UNSAFE_ROOMS: [&str; 6] = [
    "core/io/",
    "core/erasure/",
    "doors/fuse/src/wire/device.rs",
    "doors/fuse/src/wire/ring.rs",
    "doors/fuse/src/wire/writes.rs",
    "bench/src/map.rs",
];
/// How far above the word the reason may stand, in lines.
const SAFETY_LINES_ABOVE_MAX: usize = 8;

/// `unwrap`, `unsafe`, glob imports, re-exports and unfinished work.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().flat_map(|source| (0..source.code.len()).filter_map(|at| line(source, at))).collect()
}

fn line(source: &Source, at: usize) -> Option<Finding> {
    let (code, test) = (source.code[at].as_str(), source.test[at]);
    let message = if !test && code.contains(".unwrap()") {
        "unwrap() outside tests: return the error, or expect() with the reason"
    } else if has_word(code, "unsafe") && !UNSAFE_ROOMS.iter().any(|room| source.path.starts_with(room)) {
        "unsafe has its place in core/io, core/erasure, the FUSE device and rings, and the bench's mapping only"
    } else if is_promise(code) && !has_reason(source, at) {
        "unsafe without a '// SAFETY:' above it"
    } else if is_glob(code, test) {
        "a glob import hides where names come from: list them"
    } else if has_word(code, "pub use") && !is_door(source, code) {
        "a re-export: only lib.rs, or a module of its own private parts, is a door"
    } else if unfinished(&source.notes[at]) {
        "unfinished work in a comment: do it, or write an issue"
    } else {
        return None;
    };
    Some(Finding::new(&source.path, at + 1, message))
}

fn is_glob(code: &str, test: bool) -> bool {
    let code = code.trim();
    let import = has_word(code, "use") && (code.ends_with("::*;") || code.contains("::*,") || code.contains("::*}"));
    import && !(test && (code == "use super::*;" || code.ends_with("prelude::*;")))
}

/// May the line re-export? `lib.rs` may, and a module may show what lies in a part that it declares itself.
fn is_door(source: &Source, code: &str) -> bool {
    let from = code.split_once("pub use ").map_or("", |(_, path)| path).trim_start_matches("self::");
    let part = format!("mod {};", from.split("::").next().unwrap_or_default());
    source.path.ends_with("/lib.rs") || source.code.iter().any(|line| line.trim() == part)
}

/// Does the line promise something to the compiler? `unsafe fn` only passes the promise on to its callers.
fn is_promise(code: &str) -> bool {
    has_word(code, "unsafe {") || has_word(code, "unsafe impl") || code.contains("unsafe(")
}

/// Some comment just above, or on the line, says why the code is sound. Lines that are themselves `unsafe`
/// may share one reason, as the methods of one `unsafe impl` do.
fn has_reason(source: &Source, at: usize) -> bool {
    let from = at.saturating_sub(SAFETY_LINES_ABOVE_MAX);
    source.notes[from..=at].iter().any(|note| note.contains("SAFETY:") || note.contains("# Safety"))
}

fn unfinished(note: &str) -> bool {
    // Put together, so that this line is not found by itself.
    ["TO", "FIX", "XX"].iter().zip(["DO", "ME", "X"]).any(|(head, tail)| has_word(note, &format!("{head}{tail}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[Source::parse(path, text)]).len()
    }

    #[test]
    fn unwrap_is_for_tests() {
        assert_eq!(found("core/meta/src/a.rs", "let a = b.unwrap();"), 1);
        assert_eq!(found("core/meta/src/a.rs", "let a = b.unwrap_or(1); // .unwrap()"), 0);
        assert_eq!(found("core/meta/tests/a.rs", "let a = b.unwrap();"), 0);
        assert_eq!(found("core/meta/src/a.rs", "#[cfg(test)]\nmod tests {\n  let a = b.unwrap();\n}"), 0);
    }

    #[test]
    fn unsafe_has_its_place_and_its_reason() {
        assert_eq!(found("core/meta/src/a.rs", "// SAFETY: sure\nunsafe { f() }"), 1);
        assert_eq!(found("core/io/src/a.rs", "unsafe { f() }"), 1);
        assert_eq!(found("core/io/src/a.rs", "// SAFETY: the buffer outlives the call.\nunsafe { f() }"), 0);
        assert_eq!(found("doors/fuse/src/wire/device.rs", "// SAFETY: sure\nunsafe { f() }"), 0);
        assert_eq!(found("doors/fuse/src/wire/session.rs", "// SAFETY: sure\nunsafe { f() }"), 1);
    }

    #[test]
    fn globs_and_re_exports_are_found() {
        assert_eq!(found("core/io/src/a.rs", "use std::fs::*;"), 1);
        assert_eq!(found("core/io/src/a.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n}"), 0);
        assert_eq!(found("core/io/src/a.rs", "pub use crate::b::C;"), 1);
        assert_eq!(found("core/io/src/lib.rs", "pub use crate::b::C;"), 0);
        assert_eq!(found("core/io/src/a.rs", "mod b;\npub use b::C;"), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        let word = ["FIX", "ME"].concat();
        assert_eq!(found("core/io/src/a.rs", &format!("// {word}: later")), 1);
        assert_eq!(found("core/io/src/a.rs", &format!("let a = \"{word}\";")), 0);
    }
}
