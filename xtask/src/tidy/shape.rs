//! Sizes and names: a file is read in one go, a function in one look, a module says what it holds.

use super::Finding;
use crate::source::{Source, has_word};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;
/// Names that hold anything and therefore say nothing.
const EMPTY_NAMES: [&str; 6] = ["common", "util", "utils", "helper", "helpers", "manager"];

/// File length, function length, module names.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if source.code.len() > FILE_LINES_MAX {
            let message = format!("{} lines, at most {FILE_LINES_MAX}: split the file", source.code.len());
            findings.push(Finding::new(&source.path, FILE_LINES_MAX + 1, message));
        }
        findings.extend(long_functions(source));
        findings.extend(empty_names(source));
    }
    findings
}

fn long_functions(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.code.iter().enumerate().filter(|(_, line)| has_word(line, "fn")) {
        let Some(end) = source.end_of_item(at) else { continue };
        let lines = end - at;
        // `fn(...)` as a type has no name behind the word; its line is part of some other item.
        if lines > FUNCTION_LINES_MAX && !line.contains("fn(") {
            let message = format!("a function of {lines} lines, at most {FUNCTION_LINES_MAX}: split it");
            findings.push(Finding::new(&source.path, at + 1, message));
        }
    }
    findings
}

fn empty_names(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let of_path = source.path.split('/').map(|part| part.trim_end_matches(".rs"));
    for part in of_path.filter(|part| EMPTY_NAMES.contains(part)) {
        findings.push(Finding::new(&source.path, 1, format!("'{part}' names no content: name it after what it holds")));
    }
    for (at, line) in source.code.iter().enumerate() {
        let inline = EMPTY_NAMES.iter().find(|name| line.contains(&format!("mod {name} {{")));
        if let Some(name) = inline {
            findings.push(Finding::new(&source.path, at + 1, format!("module '{name}' names no content")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_the_limit_pass_and_above_fail() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    a();\n".repeat(lines - 2));
        assert_eq!(check(&[Source::parse("core/x/src/a.rs", &function(100))]), []);
        let found = check(&[Source::parse("core/x/src/a.rs", &function(101))]);
        assert_eq!(found, [Finding::new("core/x/src/a.rs", 1, "a function of 101 lines, at most 100: split it")]);
        assert_eq!(check(&[Source::parse("core/x/src/a.rs", &"// x\n".repeat(600))]), []);
        assert_eq!(check(&[Source::parse("core/x/src/a.rs", &"// x\n".repeat(601))]).len(), 1);
    }

    #[test]
    fn names_without_content_are_found() {
        assert_eq!(check(&[Source::parse("core/x/src/util.rs", "")]).len(), 1);
        assert_eq!(check(&[Source::parse("core/x/tests/common/mod.rs", "")]).len(), 1);
        assert_eq!(check(&[Source::parse("core/x/src/a.rs", "mod manager {\n}")]).len(), 1);
        assert_eq!(check(&[Source::parse("core/x/src/a.rs", "mod utilities {\n}\n// mod util {")]), []);
    }
}
