//! Objects of which much is not in use, for long: people are told that it is not reclaimed as it should be.

use std::collections::BTreeMap;

use braid_base::ids::Term;
use braid_base::msg::event::{Event, EventType};
use braid_cluster::snapshot::Snapshot;
use braid_cluster::stores;
use braid_cluster::view::stores::HeldView;
use braid_host::run::Host;

/// How often it is looked at, milliseconds: partitions of all hosts are asked.
const LOOK_MS: u64 = 60_000;
/// How long it has to be so, milliseconds.
const LONG_MS: u64 = 600_000;

/// What was seen.
#[derive(Default)]
pub(super) struct Unreclaimed {
    looked_ms: u64,
    /// What is above the mark, by file system and store: since when, and whether it was told.
    high: BTreeMap<(String, String), (u64, bool)>,
}

impl Unreclaimed {
    /// Looks, if it is time to, and tells what has been so for long.
    pub(super) async fn look(&mut self, host: &Host, now: &Snapshot) {
        let now_ms = braid_io::clock::mono_ms();
        if now_ms < self.looked_ms + LOOK_MS || now.filesystems.iter().all(|fs| fs.stores.is_empty()) {
            return;
        }
        self.looked_ms = now_ms;
        let reports = host.partitions().await;
        let served = reports.iter().filter(|report| report.term != Term(0)).map(|report| &report.data);
        let held = stores::held((&now.filesystems, &now.object_stores), None, served);
        self.seen(held, now_ms).into_iter().for_each(|event| host.event_log().tell(event));
    }

    /// What is to be told of what is `held` at `now_ms`.
    fn seen(&mut self, held: Vec<HeldView>, now_ms: u64) -> Vec<Event> {
        // Nothing in use at all is as much as can be.
        let is_high = |held: &HeldView| held.reclaimable_percent.is_none_or(|percent| percent > held.high_percent);
        let high: Vec<HeldView> = held.into_iter().filter(is_high).collect();
        self.high.retain(|(fs, store), _| high.iter().any(|held| held.filesystem == *fs && held.store == *store));
        let mut news = Vec::new();
        for held in high {
            let key = (held.filesystem.clone(), held.store.clone());
            let (since_ms, told) = self.high.entry(key).or_insert((now_ms, false));
            if now_ms >= *since_ms + LONG_MS && !std::mem::replace(told, true) {
                news.push(event(&held));
            }
        }
        news
    }
}

fn event(held: &HeldView) -> Event {
    let HeldView { filesystem, store, high_percent, .. } = held;
    let much = held.reclaimable_percent.map_or("all".to_owned(), |percent| format!("{percent:.2} %"));
    let (long, way) = (LONG_MS / 60_000, "see `braid fs tier capacity`, and `braid fs tier` whether the store works");
    let text = format!(
        "file system {filesystem}: of what its objects hold in {store} {much} can be reclaimed, and more than \
         {high_percent:.2} % for {long} minutes: {way}"
    );
    Event::new(EventType::UNRECLAIMED, text).about("filesystem", filesystem).about("object_store", store)
}

#[cfg(test)]
mod tests {
    use braid_cluster::view::stores::HeldView;

    use super::{LONG_MS, Unreclaimed};

    fn held(reclaimable_percent: Option<f64>) -> Vec<HeldView> {
        vec![HeldView {
            filesystem: "one".to_owned(),
            store: "cold".to_owned(),
            objects: 1,
            object_bytes: 100,
            consumed_bytes: 100,
            used_bytes: 50,
            reclaimable_percent,
            low_percent: 7.0,
            high_percent: 13.0,
        }]
    }

    #[test]
    fn told_once_after_a_while_and_again_after_it_was_well() {
        let mut seen = Unreclaimed::default();
        let mut told = |percent, now_ms| seen.seen(held(percent), now_ms);
        assert!(told(Some(13.0), 0).is_empty() && told(Some(13.1), 1).is_empty());
        assert!(told(Some(20.0), LONG_MS).is_empty());
        let events = told(Some(20.0), LONG_MS + 1);
        assert!(events.len() == 1 && events[0].text.contains("20.00 %") && events[0].about["object_store"] == "cold");
        assert!(told(None, 3 * LONG_MS).is_empty(), "once");
        assert!(told(Some(1.0), 4 * LONG_MS).is_empty() && told(None, 5 * LONG_MS).is_empty());
        assert!(told(None, 6 * LONG_MS)[0].text.contains("all can be reclaimed"));
    }
}
