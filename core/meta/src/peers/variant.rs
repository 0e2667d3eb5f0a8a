//! Deliberately broken rules, one at a time, to prove that the tests see what each rule is for (K14).
//! A product build has no way to choose one.

use super::Peers;

/// A rule left out (the names of `rename2.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The coordinator says "aborted" of a flight that it may still commit.
    NoAbortLog,
    /// A participant shows names that it has promised.
    NoLock,
    /// A participant takes a promise back when it hears nothing for a while.
    UnlockOnTimeout,
    /// Answers that are in no log entry are not remembered.
    Forgetful,
}

impl Peers {
    /// Leaves a rule out from now on.
    #[cfg(any(test, feature = "broken"))]
    pub fn leave_out(&mut self, variant: Option<Variant>) {
        self.variant = variant;
        self.held.blind = variant == Some(Variant::NoLock);
    }

    pub(super) fn is_broken(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }
}
