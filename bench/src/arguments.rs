//! `--name value`, `--flag` and bare words.

use crate::Outcome;
use std::path::PathBuf;

/// The words behind the command.
pub struct Arguments {
    /// Words without a name, in order.
    pub bare: Vec<String>,
    named: Vec<(String, String)>,
    flags: Vec<String>,
}

impl Arguments {
    /// Splits the words. A `--name` followed by another `--name`, or by nothing, is a flag.
    pub fn parse(words: impl Iterator<Item = String>) -> Outcome<Arguments> {
        let mut arguments = Arguments { bare: Vec::new(), named: Vec::new(), flags: Vec::new() };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                arguments.bare.push(word);
                continue;
            };
            match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => arguments.named.push((name.to_owned(), value)),
                None => arguments.flags.push(name.to_owned()),
            }
        }
        Ok(arguments)
    }

    /// Was `--name` given without a value?
    pub fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }

    /// The value of `--name`, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The path of `--name`, which must be given.
    pub fn path(&self, name: &str) -> Outcome<PathBuf> {
        self.text(name).map(PathBuf::from).ok_or_else(|| format!("--{name} PATH is missing"))
    }

    /// The number of `--name`, or `default`.
    pub fn number(&self, name: &str, default: u64) -> Outcome<u64> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text}: expected a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    #[test]
    fn names_flags_and_bare_words() {
        let words = ["write", "--dir", "/a", "--quick", "--files", "12"].map(str::to_owned);
        let arguments = Arguments::parse(words.into_iter()).expect("no word is refused");
        assert_eq!(arguments.bare, ["write"]);
        assert!(arguments.flag("quick") && !arguments.flag("dir"));
        assert_eq!(arguments.number("files", 1), Ok(12));
        assert_eq!(arguments.number("procs", 4), Ok(4));
        assert!(arguments.path("out").is_err());
    }
}
