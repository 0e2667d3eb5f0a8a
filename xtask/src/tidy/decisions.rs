//! A decision page answers four questions, so that someone can undo it with open eyes.

use super::{Finding, TextFile};

const HEADINGS: [&str; 4] = ["## Problem", "## Decision", "## Alternatives", "## What would change our mind"];

/// Each page in `docs/decisions/` is numbered and has the four headings in order, each with text below it.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let pages = files.iter().filter_map(|(path, text)| Some((path, path.strip_prefix("docs/decisions/")?, text)));
    pages.flat_map(|(path, name, text)| page(path, name, text)).collect()
}

fn page(path: &str, name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let numbered = name.len() > 8 && name.ends_with(".md") && name.bytes().take(4).all(|b| b.is_ascii_digit());
    if !numbered {
        findings.push(Finding::new(path, 1, "a decision page is named NNNN-words.md"));
    }
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
    if found != HEADINGS {
        findings.push(Finding::new(path, 1, format!("headings are {found:?}, expected {HEADINGS:?}")));
    }
    for section in text.split("\n## ").skip(1).filter(|section| section.trim().lines().count() < 2) {
        let heading = section.lines().next().unwrap_or_default();
        findings.push(Finding::new(path, 1, format!("nothing stands below '{heading}'")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> usize {
        check(&[(format!("docs/decisions/{name}"), text.to_owned())]).len()
    }

    #[test]
    fn a_page_needs_its_number_headings_and_text() {
        let whole = HEADINGS.map(|heading| format!("{heading}\ntext\n\n")).concat();
        let whole = format!("# Title\n\n{whole}");
        assert_eq!(found("0001-short-hash.md", &whole), 0);
        assert_eq!(found("short-hash.md", &whole), 1);
        assert_eq!(found("0001-short-hash.md", &whole.replace("## Alternatives", "## Others")), 1);
        assert_eq!(found("0001-short-hash.md", &whole.replacen("## Problem\ntext\n", "## Problem\n", 1)), 1);
    }
}
