//! What one of the hosts decides for all: which stores begin a partition, and which join it again.
//!
//! Any host may be the controller; the key `controller` says which one is. Whatever it writes compares that key and the
//! record that it changes, so one that was held up does no harm.

use braid_base::Result;
use braid_base::ids::{HostId, Term};

use crate::coordinator::{Check, Coordinator, Outcome, Revision, SessionId, Txn};
use crate::facts::{Member, Partition, Seats};
use crate::records::{self, Record, Stored};
use crate::snapshot::Snapshot;

/// The key of whoever is the controller.
const KEY: &str = "controller";

/// The right to write as the controller, as of some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Office(Revision);

/// Makes `host` the controller if nobody is, as long as `session` lasts; tells if it is.
pub fn stand(coordinator: &dyn Coordinator, host: HostId, session: SessionId) -> Result<Option<Office>> {
    let own = host.0.to_string();
    if coordinator.get(KEY)?.is_none() {
        // Whoever is faster is it.
        coordinator.txn(&Txn::new().when(KEY, Check::Absent).put_live(KEY, own.clone(), session))?;
    }
    let found = coordinator.get(KEY)?;
    Ok(found.filter(|item| item.value == own.as_bytes()).map(|item| Office(item.created)))
}

/// The records of partitions that should be different, as they should be:
///
/// 1. A partition that never had a member begins with the stores of all its hosts, once all have made them: an empty
///    store is as good as any other only then.
/// 2. A store on a host that runs, and that is no member (any more), is asked to join.
pub fn plan(now: &Snapshot) -> Vec<Stored<Partition>> {
    let mut changes = Vec::new();
    for Stored { value, revision } in &now.partitions {
        let Some(hosts) = now.seats.get(&value.id) else { continue };
        let made: Vec<Member> = hosts
            .iter()
            .filter_map(|host| now.store(value.id, *host))
            .map(|store| Member { host: store.host, store: store.store })
            .collect();
        let mut wanted = value.clone();
        if value.members.is_empty() {
            if value.term != Term(0) || made.is_empty() || made.len() < hosts.len() {
                continue;
            }
            (wanted.term, wanted.members) = (Term(1), made);
        } else {
            let joins = |member: &Member| now.live.contains(&member.host) && !value.members.contains(member);
            wanted.learners = made.into_iter().filter(joins).collect();
        }
        if wanted != *value {
            changes.push(Stored { value: wanted, revision: *revision });
        }
    }
    changes
}

/// Writes where replicas should be. False: somebody else is the controller.
pub fn put_seats(coordinator: &dyn Coordinator, office: Office, changes: &[Seats]) -> Result<bool> {
    for seats in changes {
        let txn = Txn::new().when(KEY, Check::Created(office.0)).put(&seats.key(), records::encode(seats)?);
        if coordinator.txn(&txn)? == Outcome::Conflict {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes what was planned, as far as nobody changed it meanwhile. False: somebody else is the controller.
pub fn carry_out(coordinator: &dyn Coordinator, office: Office, changes: &[Stored<Partition>]) -> Result<bool> {
    for Stored { value, revision } in changes {
        let key = value.key();
        let txn = Txn::new().when(KEY, Check::Created(office.0)).when(&key, Check::Modified(*revision));
        let done = coordinator.txn(&txn.put(&key, records::encode(value)?))?;
        if done == Outcome::Conflict && coordinator.get(KEY)?.is_none_or(|item| item.created != office.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_base::ids::{Guid, HostId, PartitionId, Term};

    use super::{carry_out, plan, stand};
    use crate::coordinator::{Coordinator, Revision};
    use crate::embedded::Embedded;
    use crate::facts::{Member, Partition, Store};
    use crate::records::{self, Stored};
    use crate::snapshot::Snapshot;

    const P: PartitionId = PartitionId(0);

    fn member(host: u32, store: u8) -> Member {
        Member { host: HostId(host), store: Guid([store; 16]) }
    }

    fn snapshot(term: u64, members: &[Member], stores: &[Member], live: &[u32]) -> Snapshot {
        let (members, learners) = (members.to_vec(), Vec::new());
        let value = Partition { id: P, term: Term(term), primary: None, members, learners };
        Snapshot {
            partitions: vec![Stored { value, revision: Revision(1) }],
            seats: [(P, vec![HostId(1), HostId(2), HostId(3)])].into(),
            stores: stores.iter().map(|m| Store { partition: P, host: m.host, store: m.store }).collect(),
            live: live.iter().map(|host| HostId(*host)).collect(),
            ..Snapshot::default()
        }
    }

    fn planned(now: &Snapshot) -> Option<(u64, Vec<Member>, Vec<Member>)> {
        let change = plan(now).pop()?.value;
        Some((change.term.0, change.members, change.learners))
    }

    #[test]
    fn a_partition_begins_with_all_its_stores_and_never_twice() {
        let all = [member(1, 1), member(2, 2), member(3, 3)];
        assert_eq!(planned(&snapshot(0, &[], &all[..2], &[1, 2, 3])), None, "one is missing");
        assert_eq!(planned(&snapshot(0, &[], &all, &[])), Some((1, all.to_vec(), vec![])));
        assert_eq!(planned(&snapshot(7, &[], &all, &[1, 2, 3])), None, "it had members once");
    }

    #[test]
    fn a_store_that_was_dropped_or_replaced_joins_while_its_host_runs() {
        let (two, three) = ([member(1, 1), member(2, 2)], [member(1, 1), member(2, 2), member(3, 9)]);
        assert_eq!(planned(&snapshot(5, &two, &three, &[1, 2])), None, "it does not run");
        assert_eq!(planned(&snapshot(5, &two, &three, &[1, 2, 3])), Some((5, two.to_vec(), vec![member(3, 9)])));
        assert_eq!(planned(&snapshot(5, &three, &three, &[1, 2, 3])), None, "all are there");
        let replaced = [member(1, 1), member(2, 8), member(3, 9)];
        let seen = planned(&snapshot(5, &three, &replaced, &[2]));
        assert_eq!(seen, Some((5, three.to_vec(), vec![member(2, 8)])), "the new store beside the lost one");
    }

    #[test]
    fn one_host_decides_until_its_session_ends() {
        let store = Embedded::in_memory(Arc::new(|| 0)).expect("memory");
        let (one, two) = (store.session(1_000).expect("a session"), store.session(1_000).expect("a session"));
        let first = stand(&store, HostId(1), one).expect("asked").expect("nobody is");
        assert_eq!(stand(&store, HostId(2), two), Ok(None));
        assert_eq!(stand(&store, HostId(1), one), Ok(Some(first)));
        let value = Partition { id: P, term: Term(0), primary: None, members: vec![], learners: vec![] };
        let was = records::create(&store, &value).expect("new");
        let change = |term| vec![Stored { value: Partition { term: Term(term), ..value.clone() }, ..was.clone() }];
        assert_eq!(carry_out(&store, first, &change(1)), Ok(true));
        assert_eq!(carry_out(&store, first, &change(2)), Ok(true), "it was changed meanwhile, and stays");
        store.end_session(one).expect("ends");
        let second = stand(&store, HostId(2), two).expect("asked").expect("nobody is");
        assert_eq!(carry_out(&store, first, &change(3)), Ok(false));
        let now = records::must::<Partition>(&store, "partition/00000").expect("there");
        assert_eq!(now.value.term, Term(1));
        let again = vec![Stored { value: Partition { term: Term(4), ..value }, revision: now.revision }];
        assert_eq!(carry_out(&store, second, &again), Ok(true));
        assert_eq!(records::must::<Partition>(&store, "partition/00000").map(|now| now.value.term), Ok(Term(4)));
    }
}
