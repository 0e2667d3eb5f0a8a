//! When object stores are audited without being asked: kept beside the records, so that neither a restart nor another host
//! that looks after the stores puts it off.

use braid_base::Result;
use braid_base::ids::StoreId;

use crate::coordinator::{Check, Coordinator, Outcome, Txn};

const DAY_S: u64 = 24 * 3_600;
/// From one audit of a store to the next, seconds.
const PERIOD_S: u64 = 7 * DAY_S;
/// The first begins so long after somebody looks after the store, seconds.
const FIRST_S: u64 = DAY_S;
/// After one that failed the next begins so much later, seconds.
const AGAIN_S: u64 = 3_600;

/// Where it is kept when the next audit of `store` begins: seconds since 1970, decimal.
pub(super) fn key(store: StoreId) -> String {
    format!("audit/{:010}", store.0)
}

/// True if an audit of `store` is due; who is told so is to begin it, and the next one is due in a week.
pub fn take_audit(coordinator: &dyn Coordinator, store: StoreId, now_s: u64) -> Result<bool> {
    let key = key(store);
    let known = coordinator.get(&key)?;
    let due_s = known.as_ref().and_then(|item| std::str::from_utf8(&item.value).ok()?.parse::<u64>().ok());
    let is_due = due_s.is_some_and(|due_s| now_s >= due_s);
    // A clock that was far ahead is no reason to wait for years.
    let next_s = match due_s {
        Some(due_s) if !is_due && due_s <= now_s + PERIOD_S => return Ok(false),
        Some(_) if is_due => now_s + PERIOD_S,
        _ => now_s + FIRST_S,
    };
    let check = known.map_or(Check::Absent, |item| Check::Modified(item.modified));
    let done = coordinator.txn(&Txn::new().when(&key, check).put(&key, next_s.to_string()))?;
    // If another one was faster, it begins it.
    Ok(is_due && matches!(done, Outcome::Done(_)))
}

/// An audit of `store` failed: the next one is due in an hour.
pub fn audit_failed(coordinator: &dyn Coordinator, store: StoreId, now_s: u64) -> Result<()> {
    let key = key(store);
    coordinator.txn(&Txn::new().put(&key, (now_s + AGAIN_S).to_string())).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::StoreId;

    use super::{AGAIN_S, FIRST_S, PERIOD_S, audit_failed, key, take_audit};
    use crate::Embedded;
    use crate::coordinator::{Coordinator, Txn};

    #[test]
    fn each_store_is_audited_once_a_week_whoever_looks_after_it() {
        let coordinator = Embedded::in_memory(Arc::new(|| 0)).expect("in memory");
        let due = |store, now_s| take_audit(&coordinator, StoreId(store), now_s).expect("it answers");
        // Nobody remembers anything between two looks: each may be of another host.
        assert!(!due(1, 5) && !due(1, 4 + FIRST_S) && !due(2, 4 + FIRST_S) && due(1, 5 + FIRST_S));
        assert!(!due(1, 6 + FIRST_S) && !due(1, 4 + FIRST_S + PERIOD_S) && due(1, 5 + FIRST_S + PERIOD_S));
        audit_failed(&coordinator, StoreId(1), 100 * PERIOD_S).expect("it answers");
        assert!(!due(1, 100 * PERIOD_S + AGAIN_S - 1) && due(1, 100 * PERIOD_S + AGAIN_S));
        for strange in ["", "x", "18446744073709551615"] {
            coordinator.txn(&Txn::new().put(&key(StoreId(3)), strange.to_owned())).expect("put");
            assert!(!due(3, 5) && due(3, 5 + FIRST_S), "{strange:?}");
        }
    }
}
