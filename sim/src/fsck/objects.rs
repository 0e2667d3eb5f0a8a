//! Objects: every pointer leads to one that is whole in its store and finds it by a hint, every count is high enough.

use std::collections::BTreeMap;

use braid_base::ids::BlobId;
use braid_base::msg::job::ObjectKey;
use braid_base::record::BlobState;

use super::{Finding, Media, Part, Tables};

pub(super) fn check(part: &Part<'_>, tables: &Tables, media: &mut dyn Media, findings: &mut Vec<Finding>) {
    let mut live: BTreeMap<BlobId, u64> = BTreeMap::new();
    for (ino, chunk, extent) in tables.extents() {
        let Some(at) = extent.place.object() else { continue };
        let mut add = |rule, what: String| {
            findings.push(Finding { rule, what: format!("{ino} {chunk} [{}+{}]: {what}", extent.off, extent.len) });
        };
        *live.entry(at.blob).or_default() += u64::from(extent.len);
        if at.blob.partition() != part.id {
            add("I11", format!("points to {} of another partition", at.blob));
        }
        if !tables.blob_hints.contains(&(at.blob, ino, chunk)) {
            add("I10", format!("points to {} without a hint", at.blob));
        }
        match tables.blobs.get(&at.blob) {
            None => add("I24", format!("points to {}, which does not exist", at.blob)),
            Some(rec) if rec.state != BlobState::Present => {
                add("I24", format!("points to {}, which is {:?}", at.blob, rec.state));
            }
            Some(rec) if u64::from(at.off) + u64::from(extent.len) > u64::from(rec.size) => {
                add("I24", format!("points to byte {} of {}, which has {}", at.off, at.blob, rec.size));
            }
            Some(_) => {}
        }
    }
    for (blob, rec) in &tables.blobs {
        let mut add = |what: String| findings.push(Finding { rule: "I24", what: format!("{blob}: {what}") });
        let pointed = live.get(blob).copied().unwrap_or(0);
        if rec.live_upper < pointed {
            add(format!("at least {pointed} bytes are pointed to, its count says {}", rec.live_upper));
        }
        let found = media.object(ObjectKey { store: rec.store, blob: *blob, term: rec.term });
        if rec.state == BlobState::Present && pointed > 0 && found != Some(u64::from(rec.size)) {
            add(format!("expected {} bytes in {}, found {found:?}", rec.size, rec.store));
        }
    }
}
