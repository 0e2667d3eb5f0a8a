//! Deliberately broken rules, one at a time, to prove that the tests see what each rule is for (K9).
//! A product build has no way to choose one.

use super::Replica;

/// A rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// R3: a learner becomes a member before it holds the log.
    AddLate,
    /// R3: a silent member no longer counts before the register says so.
    DropEarly,
    /// R5: reads are served without promises.
    NoLease,
    /// R6: a restarted replica campaigns at once.
    ForgetPromise,
    /// R4: a new primary drops what it does not know to be committed.
    DiscardTail,
    /// R4: a member keeps what a new primary's log does not have.
    KeepBeyond,
    /// R9: replicas are told apart by host.
    NoUuid,
    /// R9: messages do not name the store they are meant for.
    MsgNoUuid,
    /// R6: a member campaigns while its promise holds.
    NoWait,
    /// R5: a primary that wants another one to lead gives the promises back before the register took it.
    ReleaseEarly,
}

impl Replica {
    /// The same replica without one rule.
    #[cfg(test)]
    pub(super) fn without_rule(mut self, now_ms: u64, variant: Option<Variant>) -> Self {
        self.leave_out(now_ms, variant);
        self
    }

    /// Leaves one rule out from now on.
    #[cfg(any(test, feature = "broken"))]
    pub fn leave_out(&mut self, now_ms: u64, variant: Option<Variant>) {
        self.broken = variant;
        if variant == Some(Variant::ForgetPromise) {
            self.promise_until = now_ms;
        }
    }

    #[cfg(any(test, feature = "broken"))]
    pub(super) fn is_broken(&self, variant: Variant) -> bool {
        self.broken == Some(variant)
    }

    #[cfg(not(any(test, feature = "broken")))]
    pub(super) fn is_broken(&self, _variant: Variant) -> bool {
        false
    }
}
