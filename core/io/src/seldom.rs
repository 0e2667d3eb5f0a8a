//! Lines of the log about what is tried again and again: each once a minute.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::clock;

/// The same words are due again after this, milliseconds.
const AGAIN_MS: u64 = 60_000;
/// Different words that are remembered; the oldest are forgotten.
const KEPT: usize = 64;

/// Words said last, and when, in milliseconds of [`clock::mono_ms`].
#[derive(Default)]
struct Said(BTreeMap<String, u64>);

impl Said {
    fn is_due(&mut self, words: &str, now_ms: u64) -> bool {
        if self.0.get(words).is_some_and(|at_ms| now_ms < at_ms + AGAIN_MS) {
            return false;
        }
        if self.0.len() >= KEPT {
            let oldest = self.0.iter().min_by_key(|(_, at_ms)| **at_ms).map(|(words, _)| words.clone());
            oldest.map(|words| self.0.remove(&words));
        }
        self.0.insert(words.to_owned(), now_ms);
        true
    }
}

/// Were `words` not said for a minute? They count as said then.
pub fn is_due(words: &str) -> bool {
    static SAID: Mutex<Said> = Mutex::new(Said(BTreeMap::new()));
    SAID.lock().unwrap_or_else(PoisonError::into_inner).is_due(words, clock::mono_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_words_are_due_once_a_minute_and_the_oldest_are_forgotten() {
        let mut said = Said::default();
        assert!(said.is_due("a", 1) && said.is_due("b", 2) && !said.is_due("a", AGAIN_MS));
        assert!(said.is_due("a", AGAIN_MS + 1) && !said.is_due("b", AGAIN_MS + 1));
        (0..KEPT).for_each(|n| assert!(said.is_due(&format!("n{n}"), AGAIN_MS + 1)));
        assert_eq!(said.0.len(), KEPT);
        assert!(said.is_due("b", AGAIN_MS + 1), "forgotten");
    }
}
