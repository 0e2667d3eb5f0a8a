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
    let LostList { parts, more, silent_partitions } = list;
    let silent: Vec<String> = silent_partitions.iter().map(|id| format!("p{id}")).collect();
    let unknown = (!silent.is_empty()).then(|| {
        format!("not known of partitions that do not answer: {}; see `braid cluster partition`", silent.join(", "))
    });
    if parts.is_empty() {
        let nothing = || "nothing is lost: all data can be read".to_owned();
        return out::lines(&[unknown.unwrap_or_else(nothing)]);
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
    let others = if more { "there are more than these" } else { "all others succeed" };
    let mut lines = vec![format!("`find MOUNT -inum INODE` tells the path; reads of these parts fail, {others}")];
    lines.extend(unknown);
    out::lines(&lines)
}
