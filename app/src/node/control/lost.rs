//! What of the files cannot be read.

use braid_base::Result;
use braid_base::msg::host::{Lost, LostParts};
use braid_cluster::view::{LostList, LostView};
use braid_tier::blob::keys;

use super::super::problems;
use super::Node;

impl Node {
    /// The parts of files that cannot be read, and of which partitions that is not known.
    pub(super) async fn lost_list(&self) -> Result<LostList> {
        let recorded = self.recorded()?.0;
        let name = |id| recorded.filesystems.iter().find(|fs| fs.id == id).map(|fs| fs.name.clone());
        let store = |id| recorded.object_stores.iter().find(|store| store.id == id).map(|store| store.name.clone());
        let view = |part: Lost| LostView {
            filesystem: name(part.fs).unwrap_or_else(|| part.fs.to_string()),
            inode: part.ino.0,
            offset: part.off,
            bytes: part.len,
            why: problems::why_lost(part.object.as_ref()).to_owned(),
            store: part.object.map(|of| store(of.store).unwrap_or_else(|| of.store.to_string())),
            object: part.object.map(|of| keys::data(self.cluster.guid, of.blob, of.term)),
            since_s: part.object.map(|of| of.since_s),
        };
        let LostParts { partitions, parts, more, unchecked } = self.host()?.lost().await?;
        let all = recorded.partitions.iter().map(|partition| partition.value.id);
        let silent = all.filter(|id| !partitions.contains(id)).map(|id| id.0);
        Ok(LostList {
            parts: parts.into_iter().map(view).collect(),
            more,
            silent_partitions: silent.collect(),
            unchecked_packs: unchecked,
        })
    }
}
