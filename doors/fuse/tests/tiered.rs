//! Where files are, as attributes say it, and reads and writes that leave flash alone.
//!
//! Needs root and `/dev/fuse`; without root the tests say so and pass, because only root may mount.

mod stand;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use braid_base::msg::fs::TierWant;
use braid_fuse::Options;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use stand::{Stand, all_other_ways, at_last};

fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = [0; 256];
    let len = rustix::fs::lgetxattr(path, name, &mut value)?;
    Ok(String::from_utf8_lossy(&value[..len]).into_owned())
}

fn set(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::lsetxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

fn location(kind: &str, size: u64, write: u64, object: u64) -> Result<String, Errno> {
    Ok(format!(
        "{{\"file_type\":\"{kind}\",\"file_size\":{size},\"ssd_write_cache_bytes\":{write},\
         \"ssd_read_cache_bytes\":0,\"object_storage_bytes\":{object}}}"
    ))
}

#[test]
fn the_guard_of_a_mount() {
    stand::be_guard();
}

#[test]
fn attributes_say_where_files_are_and_move_them() {
    let Some(mut stand) = Stand::new("tiered") else { return };
    stand.world.server.state().tier.has_store = true;
    let at = stand.mount("m");
    let (file, dir, link) = (at.join("f"), at.join("d"), at.join("l"));
    fs::write(&file, vec![5; 3_000_000]).expect("write");
    fs::create_dir(&dir).expect("mkdir");
    symlink("f", &link).expect("symlink");
    assert_eq!(get(&file, "braid.location"), location("file", 3_000_000, 3_000_000, 0));
    assert_eq!(get(&file, "braid.recall").as_deref(), Ok("no"));
    set(&file, "braid.tier", "release").expect("release");
    assert_eq!(get(&file, "braid.location"), location("file", 3_000_000, 0, 3_000_000));
    assert_eq!(get(&file, "braid.recall").as_deref(), Ok("yes"));
    assert_eq!(get(&file, "braid.recall.4096.10").as_deref(), Ok("yes"));
    assert_eq!(get(&file, "braid.recall.3000000.10").as_deref(), Ok("no"), "there is nothing behind the end");
    set(&file, "braid.tier", "fetch 0 1048576").expect("fetch a part");
    assert_eq!(get(&file, "braid.recall.0.1048576").as_deref(), Ok("no"));
    assert_eq!(get(&file, "braid.location"), location("file", 3_000_000, 1_048_576, 1_951_424));
    assert!(fs::read(&file).expect("read").iter().all(|byte| *byte == 5));
    assert_eq!(get(&dir, "braid.location"), location("directory", 0, 0, 0));
    assert_eq!(get(&link, "braid.location"), location("symlink", 0, 0, 0));
    assert_eq!(get(&dir, "braid.recall").as_deref(), Ok("no"));
    let mut names = [0_u8; 64];
    assert_eq!(rustix::fs::listxattr(&file, &mut names), Ok(0), "they are not listed");
    assert_eq!(get(&file, "braid.none"), Err(Errno::NODATA));
    assert_eq!(get(&file, "braid.tier"), Err(Errno::NODATA));
    assert_eq!(set(&file, "braid.location", "x"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&file, "braid.tier", "away"), Err(Errno::INVAL));
    assert_eq!(set(&dir, "braid.tier", "fetch"), Err(Errno::ISDIR));
    assert_eq!(rustix::fs::removexattr(&file, "braid.tier"), Err(Errno::OPNOTSUPP));
    stand.world.server.state().tier.has_store = false;
    assert_eq!(set(&file, "braid.tier", "fetch"), Err(Errno::OPNOTSUPP), "there is no store");
}

#[test]
fn a_mount_that_leaves_flash_alone() {
    let Some(mut stand) = Stand::new("obs-direct") else { return };
    stand.world.server.state().tier.has_store = true;
    let at = stand.mount_with("m", Options { obs_direct: true, ..Options::new("test") });
    let (file, copy) = (at.join("f"), at.join("g"));
    fs::write(&file, vec![5; 200_000]).expect("write");
    assert!(at_last(|| get(&file, "braid.location") == location("file", 200_000, 0, 200_000)), "it has left flash");
    stand.world.server.state().recalls.clear();
    assert!(fs::read(&file).expect("read").iter().all(|byte| *byte == 5));
    fs::copy(&file, &copy).expect("copy");
    assert_eq!(fs::read(&copy).expect("read").len(), 200_000);
    let state = stand.world.server.state();
    assert!(!state.recalls.contains(&true), "nothing comes back");
    assert!(state.tier.asked.iter().all(|(.., want)| *want == TierWant::Object));
    drop(state);
    // What is long open leaves before it is closed.
    let long = fs::File::create(at.join("long")).expect("create");
    let asked = || stand.world.server.state().tier.asked.len();
    let (before, mib) = (asked(), vec![7; 1 << 20]);
    for n in 0..66 {
        std::os::unix::fs::FileExt::write_all_at(&long, &mib, n << 20).expect("write");
    }
    assert!(at_last(|| asked() > before), "while it is open");
    drop(long);
    assert!(
        at_last(|| get(&at.join("long"), "braid.location") == location("file", 66 << 20, 0, 66 << 20)),
        "all of it"
    );
    // Reading alone sends nothing away.
    assert!(at_last(|| get(&copy, "braid.location") == location("file", 200_000, 0, 200_000)));
    let before = stand.world.server.state().tier.asked.len();
    fs::read(&file).expect("read");
    assert_eq!(stand.world.server.state().tier.asked.len(), before);
}

#[test]
fn the_same_the_other_ways() {
    all_other_ways("the_same_the_other_ways");
}
