//! The page that shows the newest whole run.

use crate::Outcome;
use std::fs;

const BEGIN: &str = "<!-- newest run: written by make bench -->\n";
const END: &str = "<!-- end of the newest run -->\n";

/// Puts picture and table of the run `name` between the two marks of the page at `path`.
pub fn show(path: &str, name: &str, table: &str) -> Outcome<()> {
    let page = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let page = put(&page, name, table).ok_or_else(|| format!("{path}: the marks of the newest run are not in it"))?;
    fs::write(path, page).map_err(|error| format!("{path}: {error}"))
}

fn put(page: &str, name: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let picture = format!("![Ratios to ext4](results/{name}.svg)");
    Some(format!("{before}{BEGIN}\n{picture}\n\n{}\n\n{END}{after}", table.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, put};

    #[test]
    fn only_what_stands_between_the_marks_changes() {
        let page = format!("head\n{BEGIN}old\n{END}tail\n");
        let new = put(&page, "day-commit", "| a |\n").expect("the marks are there");
        assert!(new.starts_with("head\n") && new.ends_with("tail\n") && !new.contains("old"));
        assert!(new.contains("results/day-commit.svg") && new.contains("| a |"));
        assert_eq!(put(&new, "day-commit", "| a |\n"), Some(new), "twice is the same as once");
        assert_eq!(put("no marks", "a", "b"), None);
    }
}
