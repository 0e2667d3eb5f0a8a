//! Every room has a card: what it is for, what it offers, what it will never do.

use super::{Finding, TextFile};

const PARTS: [&str; 5] = ["Duty", "Door", "Never", "Flow", "Tests"];

/// Each `lib.rs` opens with a doc comment that has every part of the card, each with words after it.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().filter(|(path, _)| path.ends_with("src/lib.rs")).flat_map(|(path, text)| card(path, text)).collect()
}

fn card(path: &str, text: &str) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let missing = |part: &&&str| {
        let start = format!("//! {part}: ");
        !lines.iter().any(|line| line.starts_with(&start) && line.len() > start.len() + 8)
    };
    PARTS
        .iter()
        .filter(missing)
        .map(|part| Finding::new(path, 1, format!("the card has no '//! {part}: ...'")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lib(text: &str) -> Vec<Finding> {
        check(&[("core/x/src/lib.rs".to_owned(), text.to_owned())])
    }

    #[test]
    fn a_whole_card_passes() {
        let card = PARTS.map(|part| format!("//! {part}: some words of it.\n")).join("//!\n");
        assert_eq!(lib(&card), []);
    }

    #[test]
    fn a_missing_or_empty_part_is_found() {
        let card =
            "//! Duty: keeps the bytes.\n//! Door: [`Shelf`] and no more.\n//! Never: \n//! Flow: in, out, gone.\n";
        let found = lib(card);
        assert_eq!(found.len(), 2);
        assert!(found[0].message.contains("Never") && found[1].message.contains("Tests"));
    }
}
