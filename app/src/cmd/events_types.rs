//! `braid events types`: the types of events that there are.

use braid_cluster::events;
use braid_cluster::view::events::EventTypeView;

use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

/// Of this program; no cluster need run.
pub fn run(whole: &Whole) -> Outcome {
    let known = events::known();
    if whole.json {
        return out::json(&known);
    }
    let row = |EventTypeView { name, category, severity, description }: EventTypeView| {
        vec![category.into(), name.into(), severity.into(), description.into()]
    };
    out::table(&["CATEGORY", "TYPE", "SEVERITY", "WHAT HAPPENED"], known.into_iter().map(row).collect())
}
