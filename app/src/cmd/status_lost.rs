//! `braid status lost`: the parts of files that cannot be read.

use braid_cluster::view::LostView;

use crate::client::Client;
use crate::exit::Outcome;
use crate::measure::size;
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
        let LostView { filesystem, inode, offset, bytes } = part;
        vec![filesystem.into(), inode.to_string().into(), offset.to_string().into(), size(bytes).into()]
    };
    out::table(&["FILESYSTEM", "INODE>", "OFFSET>", "LOST>"], parts.into_iter().map(row).collect())?;
    out::lines(&["`find MOUNT -inum INODE` tells the path; reads of these parts fail, all others succeed".to_owned()])
}
