//! Who keeps a mount busy: looks through `/proc` for processes with a file, directory or mapping under it.

use std::fs;
use std::path::{Path, PathBuf};

/// Holders named in a message; a busy mount can have thousands.
const NAMED_MAX: usize = 5;

/// A sentence part like `bash (pid 12, current directory), vim (pid 13, open file /mnt/a)`; empty if nobody is seen
/// (another user's process without our right to look, a loop device, a mount below).
pub(crate) fn describe(mount: &Path) -> String {
    let mut found: Vec<String> =
        mounts_below(mount).iter().map(|path| format!("a mount on {}", path.display())).collect();
    let mut more = 0;
    for pid in pids() {
        if let Some(how) = hold_of(pid, mount) {
            if found.len() < NAMED_MAX {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                found.push(format!("{} (pid {pid}, {how})", name.trim()));
            } else {
                more += 1;
            }
        }
    }
    if more > 0 {
        found.push(format!("{more} more"));
    }
    found.join(", ")
}

/// What stands behind the name in a `/proc/PID/stat`, counted from 0: the state, and 6 behind it the flags. The name can hold
/// anything, also blanks and parentheses.
pub(crate) fn stat_field(stat: &str, nth: usize) -> Option<&str> {
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(nth))
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// How process `pid` holds something under `mount`. Only names are compared: touching the mount could block.
fn hold_of(pid: u32, mount: &Path) -> Option<String> {
    let under = |path: &Path| path.starts_with(mount);
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).ok().filter(|path| under(path));
    if link("cwd").is_some() {
        return Some("current directory".to_owned());
    }
    if link("root").is_some_and(|_| mount != Path::new("/")) {
        return Some("root directory".to_owned());
    }
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    if let Some(path) = files.filter_map(|fd| fs::read_link(fd.path()).ok()).find(|path| under(path)) {
        return Some(format!("open file {}", path.display()));
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.splitn(6, ' ').nth(5)).map(|path| Path::new(path.trim_start()));
    mapped.into_iter().find(|path| under(path)).map(|path| format!("mapped file {}", path.display()))
}

fn mounts_below(mount: &Path) -> Vec<PathBuf> {
    mount_table()
        .into_iter()
        .map(|line| line.point)
        .filter(|point| point != mount && point.starts_with(mount))
        .collect()
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// `major:minor` of its device.
    pub(crate) device: String,
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// Its type, like `fuse.braid`.
    pub(crate) fstype: String,
    /// Its source, like `braid:home`.
    pub(crate) source: String,
}

/// All mounts that this process sees; later ones cover earlier ones of the same place.
pub(crate) fn mount_table() -> Vec<MountLine> {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(parse_line).collect()
}

/// The topmost mount exactly on `point`.
pub(crate) fn mount_on(point: &Path) -> Option<MountLine> {
    mount_table().into_iter().rfind(|line| line.point == point)
}

fn parse_line(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (fstype, source) = (right.next()?, right.next()?);
    Some(MountLine {
        device: (*left.get(2)?).to_owned(),
        point: unescape(left.get(4)?),
        fstype: fstype.to_owned(),
        source: source.to_owned(),
    })
}

/// The kernel writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::{describe, mount_on, parse_line};
    use std::path::Path;

    #[test]
    fn mountinfo_lines_are_understood() {
        let line = r"98 31 0:45 / /mnt/a\040b rw,relatime shared:5 - fuse.braid braid:home rw,user_id=0";
        let line = parse_line(line).expect("a line of mountinfo");
        assert_eq!(line.device, "0:45");
        assert_eq!(line.point, Path::new("/mnt/a b"));
        assert_eq!((line.fstype.as_str(), line.source.as_str()), ("fuse.braid", "braid:home"));
        assert!(parse_line("nonsense").is_none());
        assert!(mount_on(Path::new("/")).is_some() || mount_on(Path::new("/proc")).is_some());
    }

    #[test]
    fn an_open_file_is_found() {
        let dir = std::env::temp_dir().join(format!("braid-holders-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        assert_eq!(describe(&dir), "");
        let file = std::fs::File::create(dir.join("held")).expect("a file");
        let text = describe(&dir);
        assert!(text.contains(&format!("pid {}", std::process::id())) && text.contains("held"), "{text}");
        drop(file);
        std::fs::remove_dir_all(&dir).expect("clean up");
    }
}
