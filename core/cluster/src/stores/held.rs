//! What file systems hold in object stores.

use std::collections::BTreeMap;

use braid_base::ids::{FsId, StoreId};
use braid_base::limits::RECLAIM_PERCENT;
use braid_base::msg::host::{SeatData, Stored};

use crate::facts::{Filesystem, ObjectStore};
use crate::view::stores::HeldView;

/// What each file system, or `only` one, holds in each store that it uses, or has used, as `partitions` say; also what is
/// left of file systems that are gone.
pub fn held<'a>(
    (filesystems, stores): (&[Filesystem], &[ObjectStore]),
    only: Option<FsId>,
    partitions: impl IntoIterator<Item = &'a SeatData>,
) -> Vec<HeldView> {
    let mut sums: BTreeMap<(FsId, StoreId), Stored> = BTreeMap::new();
    for fs in filesystems {
        sums.extend(fs.stores.iter().map(|attached| ((fs.id, attached.store), Stored::default())));
    }
    for data in partitions {
        for (at, stored) in &data.stored {
            let sum = sums.entry(*at).or_default();
            sum.objects += stored.objects;
            sum.bytes += stored.bytes;
            sum.held += stored.held;
            sum.live += stored.live;
        }
    }
    let fs_name = |id| filesystems.iter().find(|fs| fs.id == id).map(|fs| fs.name.clone());
    let store_name = |id| stores.iter().find(|store| store.id == id).map(|store| store.name.clone());
    let (low, high) = RECLAIM_PERCENT;
    let view = |((fs, store), sum): ((FsId, StoreId), Stored)| HeldView {
        filesystem: fs_name(fs).unwrap_or_else(|| fs.to_string()),
        store: store_name(store).unwrap_or_else(|| store.to_string()),
        objects: sum.objects,
        object_bytes: sum.bytes,
        consumed_bytes: sum.held,
        used_bytes: sum.live,
        reclaimable_percent: reclaimable(sum),
        low_percent: low as f64,
        high_percent: high as f64,
    };
    sums.into_iter().filter(|((fs, _), _)| only.is_none_or(|only| only == *fs)).map(view).collect()
}

/// What nothing names, in per cent of what is named, to the hundredth; none if there is some and nothing is.
fn reclaimable(Stored { held, live, .. }: Stored) -> Option<f64> {
    let free = u128::from(held.saturating_sub(live));
    if free == 0 {
        return Some(0.0);
    }
    Some((free * 10_000).checked_div(u128::from(live))? as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use braid_base::ids::{FsId, StoreId};
    use braid_base::msg::host::{SeatData, Stored};
    use braid_base::store::{Place, StoreSpec};

    use super::{held, reclaimable};
    use crate::facts::{Filesystem, ObjectStore};
    use crate::records;

    fn fs() -> Filesystem {
        let text = r#"{"version":1,"id":4,"uuid":"04040404-0404-0404-0404-040404040404","name":"one","group":"default",
            "created_s":6,"object_mib":64,"removing":false,"root_vp":4,"ssd_bytes":null,"total_bytes":null,
            "stores":[{"store":5,"mode":"writable","detaching":false,"attached_s":8}]}"#;
        records::decode("fs", text.as_bytes()).expect("a file system")
    }

    #[test]
    fn partitions_are_added_up() {
        let store = |id, name: &str| {
            let place = Place::Dir { path: "/d".to_owned() };
            ObjectStore { id: StoreId(id), name: name.to_owned(), spec: StoreSpec::at(place) }
        };
        let data = |fs, store, held, live| SeatData {
            stored: BTreeMap::from([((FsId(fs), StoreId(store)), Stored { objects: 1, bytes: held + 9, held, live })]),
            ..SeatData::default()
        };
        let facts = ([fs()], [store(5, "cold"), store(6, "other")]);
        let nothing = held((&facts.0, &facts.1), None, []);
        let (one, percent) = (&nothing[0], nothing[0].reclaimable_percent);
        assert_eq!((nothing.len(), one.store.as_str(), one.consumed_bytes, percent), (1, "cold", 0, Some(0.0)));
        let seats = [data(4, 5, 600, 500), data(4, 5, 560, 500), data(4, 6, 7, 7), data(9, 6, 8, 0)];
        let all = held((&facts.0, &facts.1), None, &seats);
        let rows: Vec<(&str, &str, u64, u64)> = all
            .iter()
            .map(|row| (row.filesystem.as_str(), row.store.as_str(), row.consumed_bytes, row.used_bytes))
            .collect();
        let gone = FsId(9).to_string();
        assert_eq!(rows, [("one", "cold", 1_160, 1_000), ("one", "other", 7, 7), (gone.as_str(), "other", 8, 0)]);
        let first = &all[0];
        assert_eq!((first.objects, first.object_bytes, first.reclaimable_percent), (2, 1_178, Some(16.0)));
        assert_eq!((first.low_percent, first.high_percent), (7.0, 13.0));
        assert_eq!(held((&facts.0, &facts.1), Some(FsId(4)), &seats), all[..2]);
    }

    #[test]
    fn what_can_be_reclaimed() {
        let percent = |held, live| reclaimable(Stored { held, live, ..Stored::default() });
        assert_eq!((percent(0, 0), percent(5, 5), percent(4, 5)), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!((percent(8, 7), percent(5, 0)), (Some(14.28), None));
        assert_eq!(percent(u64::MAX, 1 << 63), Some(99.99));
    }
}
