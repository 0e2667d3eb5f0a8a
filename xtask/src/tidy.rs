//! Checks of what the compiler cannot see. Each rule is a function from the files to findings, so that
//! each can be tested on a made-up file.

mod cards;
mod cycles;
mod decisions;
mod edges;
mod places;
mod shape;
mod supply;
mod words;

use crate::source::Source;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// One broken rule at one place.
#[derive(Debug, PartialEq)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A text file of the repository: path below its root, and content.
type TextFile = (String, String);

/// Runs every rule over the files that git knows or would add.
pub fn run(root: &Path) -> Result<(), String> {
    let files = text_files(root)?;
    let sources: Vec<Source> =
        files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| Source::parse(path, text)).collect();
    let mut findings = edges::check(&edges::read(root)?);
    findings.extend(supply::check(root)?);
    findings.extend(cards::check(&files));
    findings.extend(cycles::check(&sources));
    findings.extend(shape::check(&sources));
    findings.extend(words::check(&sources));
    findings.extend(places::check(&files));
    findings.extend(decisions::check(&files));
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to say", files.len());
        Ok(())
    } else {
        Err(format!("tidy: {} findings in {} files", findings.len(), files.len()))
    }
}

/// Every committed or addable file that is text; binary files (fixtures) are left out.
fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let listed = output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        // A file may be listed and gone (deleted, not yet committed), or not be text.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            files.push((path.to_owned(), text));
        }
    }
    Ok(files)
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("{program} does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{program} printed something that is not UTF-8"))
}
