//! Counts what the tier of a partition did since it began to serve: by these numbers a simulator knows what it drove a
//! partition to, and at which of these steps power was lost.

use crate::state::State;

/// How often each step was proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSteps {
    /// Objects were begun with what is left of others.
    pub reclaims: u64,
    /// Chunks came to name an object.
    pub named: u64,
    /// An object is named by some of its chunks, and not yet by the others.
    pub partly: bool,
    /// Chunks gave up their place on flash.
    pub released: u64,
    /// The same because a drive without parity was lost.
    pub gave_up: u64,
    /// Chunks forgot an object whose store is to be left.
    pub left: u64,
    /// The same because the object is damaged.
    pub saved: u64,
    /// Objects were found to have no reference, or failed to arrive.
    pub buried: u64,
    /// Records of objects were deleted.
    pub erased: u64,
}

impl State {
    /// What the tier did since this partition is served here.
    pub fn tier_steps(&self) -> TierSteps {
        self.data.tier.steps
    }

    /// An object gets the names of so many chunks with one entry from now on, so that a test can look between two of them.
    #[cfg(any(test, feature = "broken"))]
    pub fn name_few(&mut self, chunks: usize) {
        self.data.tier.few = chunks;
    }
}
