//! `braid status lost`: the parts of files that cannot be read.

use braid_cluster::view::LostView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::{moment, size};
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let parts: Vec<LostView> = Client::find(whole.dir.as_deref())?.get("/lost")?;
    if whole.json {
        return out::json(&parts);
    }
    if parts.is_empty() {
        return out::lines(&["nothing is lost: all data can be read".to_owned()]);
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
    out::lines(&["`find MOUNT -inum INODE` tells the path; reads of these parts fail, all others succeed".to_owned()])
}
