//! A committed file names no folder of the machine it was written on and no package registry.

use super::{Finding, TextFile};

/// Written in halves, so that this file does not find itself.
const PLACES: &[(&str, &str)] = &[("/ro", "ot/"), ("/wo", "rk/")];
const HOSTS: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("proxy.golang", ".org"),
    ("sum.golang", ".org"),
    ("deb.debian", ".org"),
];

/// Cargo writes the lock file, with its registry in every entry.
const EXEMPT: &[&str] = &["Cargo.lock"];

/// Each line of each text file.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !EXEMPT.contains(&path.as_str())) {
        for (at, line) in text.lines().enumerate() {
            if let Some(place) = first(line, PLACES, true) {
                findings.push(Finding::new(path, at + 1, format!("'{place}' is a folder of one machine")));
            }
            if let Some(host) = first(line, HOSTS, false) {
                findings.push(Finding::new(path, at + 1, format!("'{host}' is the host of a package registry")));
            }
        }
    }
    findings
}

fn first(line: &str, table: &[(&str, &str)], at_start_of_path: bool) -> Option<String> {
    table.iter().map(|(head, tail)| [*head, *tail].concat()).find(|word| {
        line.match_indices(word.as_str()).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !at_start_of_path
                || !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '}' | '$'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, line: &str) -> usize {
        check(&[(path.to_owned(), line.to_owned())]).len()
    }

    #[test]
    fn folders_of_a_machine_are_found() {
        let place = ["/ro", "ot/x"].concat();
        assert_eq!(found("a.sh", &format!("cd {place}")), 1);
        assert_eq!(found("a.sh", "cd \"$dir/work/x\"; ls target/work/"), 0);
    }

    #[test]
    fn registries_are_found_but_in_the_lock_file() {
        let host = ["crates", ".io"].concat();
        assert_eq!(found("README.md", &format!("see {host}")), 1);
        assert_eq!(found("Cargo.lock", &format!("source = \"{host}\"")), 0);
    }
}
