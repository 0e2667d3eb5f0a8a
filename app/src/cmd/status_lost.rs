//! `braid status lost`: the parts of files that cannot be read.

use braid_cluster::view::{LostList, LostView};

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::{moment, size};
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let list: LostList = Client::find(whole.dir.as_deref())?.get("/lost")?;
    if whole.json {
        return out::json(&list);
    }
    let LostList { parts, more, silent_partitions, unchecked_packs } = list;
    let silent: Vec<String> = silent_partitions.iter().map(|id| format!("p{id}")).collect();
    let mut unknown = Vec::new();
    if !silent.is_empty() {
        let silent = silent.join(", ");
        unknown.push(format!("not known of partitions that do not answer: {silent}; see `braid cluster partition`"));
    }
    if unchecked_packs > 0 {
        unknown.push(format!("packs that may have lost data and are not checked yet: {unchecked_packs}"));
    }
    if parts.is_empty() {
        if unknown.is_empty() {
            unknown.push("nothing is lost: all data can be read".to_owned());
        }
        return out::lines(&unknown);
    }
    let row = |part: LostView| {
        let LostView { filesystem, inode, offset, bytes, why, store, object, since_s } = part;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            filesystem.into(),
            inode.to_string().into(),
            offset.to_string().into(),
            size(bytes).into(),
            why.into(),
            or_none(store).into(),
            or_none(since_s.map(|at_s| moment(at_s as f64))).into(),
            or_none(object).into(),
        ]
    };
    let titles = ["FILESYSTEM", "INODE>", "OFFSET>", "LOST>", "WHY", "STORE", "SINCE", "OBJECT"];
    out::table(&titles, parts.into_iter().map(row).collect())?;
    let others = match (more, unknown.is_empty()) {
        (true, _) => "there are more than these",
        (false, true) => "all others succeed",
        (false, false) => "and there may be more than these",
    };
    let mut lines = vec![format!("`find MOUNT -inum INODE` tells the path; reads of these parts fail, {others}")];
    lines.extend(unknown);
    out::lines(&lines)
}
