//! Bytes: every pointer leads to something that can be read, every stripe that is pointed to is found by its hint.

use std::collections::BTreeMap;

use braid_base::ids::{Index, PackId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::job::ObjectKey;
use braid_base::record::{Extent, PackState, Place, Placement, StripeAt};

use super::{Finding, Part, Tables};

/// What the drives hold, and the object stores.
pub trait Media {
    /// How many of the D+P shards of `stripe` have all its blocks, readable and matching their checksums.
    fn readable_shards(&mut self, stripe: StripeAt, place: &Placement) -> usize;

    /// Data bytes of an object that is in its store, or was until that lost it for good.
    fn object(&mut self, key: ObjectKey) -> Option<u64>;
}

pub(super) fn check(part: &Part<'_>, tables: &Tables, media: &mut dyn Media, findings: &mut Vec<Finding>) {
    let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
    // Up to where each is pointed to, and whether some of that is in no object.
    let mut stripes: BTreeMap<StripeAt, (u64, bool)> = BTreeMap::new();
    for (ino, chunk, extent) in tables.extents() {
        let mut add = |rule, what: String| {
            findings.push(Finding { rule, what: format!("{ino} {chunk} [{}+{}]: {what}", extent.off, extent.len) });
        };
        if extent.len == 0 || u64::from(extent.off) + u64::from(extent.len) > CHUNK {
            add("I9", "an extent lies within its chunk and is not empty".to_owned());
        }
        match extent.place {
            Place::Stage { at, .. } => {
                if part.log_first.is_none_or(|first| at < first) {
                    add("I9", format!("points to the log entry {at}, the log begins at {:?}", part.log_first));
                }
            }
            Place::Object(_) => {}
            Place::Flash { stripe, delta, copy } => {
                *live.entry(stripe.pack).or_default() += u64::from(extent.len);
                let (end, alone) = stripes.entry(stripe).or_default();
                *end = (*end).max(u64::from(delta) + u64::from(extent.len));
                *alone |= copy.is_none();
                let bare = tables.packs.get(&stripe.pack).is_some_and(|pack| pack.place.parity == 0);
                if bare && copy.is_none() {
                    add("I9", format!("is in {}, which has no parity, and in no object", stripe.pack));
                }
                if stripe.pack.partition() != part.id {
                    add("I11", format!("points to {} of another partition", stripe.pack));
                }
                if !tables.hints.contains_key(&(stripe.pack, stripe.sb, ino, chunk)) {
                    add("I10", format!("points to {} block {} without a hint", stripe.pack, stripe.sb));
                }
            }
        }
    }
    for (stripe, pointed) in stripes {
        pointed_to(tables, stripe, pointed, media, findings);
    }
    packs(tables, &live, findings);
    merged(tables, findings);
}

fn pointed_to(
    tables: &Tables,
    stripe: StripeAt,
    (end, alone): (u64, bool),
    media: &mut dyn Media,
    findings: &mut Vec<Finding>,
) {
    let mut add = |rule, what: String| findings.push(Finding { rule, what: format!("{stripe:?}: {what}") });
    match tables.stripes.get(&(stripe.pack, stripe.sb)) {
        Some(rec) if rec.ul == stripe.ul => {}
        other => add("I9", format!("is pointed to, expected it among the committed stripes, found {other:?}")),
    }
    let Some(pack) = tables.packs.get(&stripe.pack) else {
        return add("I9", "is pointed to, but its pack does not exist".to_owned());
    };
    if pack.state == PackState::Dead {
        add("I10", "is pointed to, but its pack is dead".to_owned());
    }
    let capacity = u64::from(pack.place.data) * u64::from(stripe.ul) * BLOCK as u64;
    if end > capacity {
        add("I9", format!("is pointed to up to byte {end}, but holds {capacity}"));
    }
    let readable = media.readable_shards(stripe, &pack.place);
    // Where there is no parity nothing makes up for a drive but the objects.
    if readable < usize::from(pack.place.data) && (alone || pack.place.parity > 0) {
        add("I9", format!("expected {} readable shards, found {readable} of {:?}", pack.place.data, pack.place));
    }
}

fn packs(tables: &Tables, live: &BTreeMap<PackId, u64>, findings: &mut Vec<Finding>) {
    for (id, pack) in &tables.packs {
        let pointed = live.get(id).copied().unwrap_or(0);
        if pack.live_upper < pointed {
            let what = format!("{id}: at least {pointed} bytes are pointed to, its count says {}", pack.live_upper);
            findings.push(Finding { rule: "I10", what });
        }
    }
    for (id, sb) in tables.stripes.keys() {
        if !tables.packs.contains_key(id) {
            findings.push(Finding { rule: "I9", what: format!("{id} block {sb}: a stripe of a pack that is gone") });
        }
    }
    for id in tables.suspects.iter().filter(|id| !tables.packs.contains_key(id)) {
        findings
            .push(Finding { rule: "I9", what: format!("{id}: is said to have lost data, and there is no such pack") });
    }
}

/// Merged extents are sorted and disjoint.
fn merged(tables: &Tables, findings: &mut Vec<Finding>) {
    for ((ino, chunk), base) in &tables.bases {
        let sorted = |pair: &[Extent]| pair[0].off + pair[0].len <= pair[1].off;
        if !base.extents.windows(2).all(sorted) {
            findings.push(Finding { rule: "I9", what: format!("{ino} {chunk}: merged extents overlap") });
        }
        let newest = |extent: &Extent| match extent.place {
            Place::Stage { at, .. } => at,
            Place::Flash { .. } | Place::Object(_) => Index(0),
        };
        if base.extents.iter().map(newest).max().is_some_and(|at| at > base.upto) {
            findings
                .push(Finding { rule: "I5", what: format!("{ino} {chunk}: a merged extent is newer than its base") });
        }
    }
}
