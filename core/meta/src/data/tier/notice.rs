//! What people are told of the tier.

use braid_base::ids::FsId;

use crate::data::tier::wall_s;
use crate::event::{Effect, Notice};
use crate::state::State;
use crate::txn::Txn;

/// The same is not told again within this, milliseconds.
const AGAIN_MS: u64 = 600_000;

/// Data of `fs` that counts from `since_s` left flash because that is short: people hear of it if it was promised to stay
/// longer, once the entry is committed in which it leaves.
pub(super) fn left(t: &mut Txn<'_>, s: &mut State, fs: FsId, since_s: u32) {
    let tier = &mut s.data.tier;
    let Some(policy) = tier.policies.get(&fs) else { return };
    let (now_ms, stays_s) = (t.now.mono_ms, since_s.saturating_add(policy.retention_s));
    // What is in no object yet stays: then nothing left just now.
    let is_early = stays_s > wall_s(t) && tier.moved.get(&fs) == Some(&now_ms);
    if is_early && tier.told.get(&fs).is_none_or(|told_ms| now_ms >= told_ms + AGAIN_MS) {
        tier.told.insert(fs, now_ms);
        t.after(Effect::Notice(Notice::LeftEarly(fs)));
    }
}
