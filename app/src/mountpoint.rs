//! Mount points: may one be mounted on, which are dead. Whether one is dead and who holds one is told by the FUSE door.
//!
//! When the process dies by SIGKILL its FUSE mounts stay as dead ones (every call answers ENOTCONN). They are
//! told by the kernel's list of mounts and by `DIR/mounts.json`, where the process notes its own.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_base::{Error, ErrorKind, Result};
use braid_fuse::is_dead;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

/// What mounts of Braid are called in the kernel's list: type `fuse.braid`, or a source that starts so.
const NAME: &str = "braid";

/// A line of the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub path: PathBuf,
    pub kind: String,
    pub source: String,
}

impl Mount {
    fn is_ours(&self) -> bool {
        self.kind == format!("fuse.{NAME}") || (self.kind == "fuse" && self.source.starts_with(NAME))
    }
}

/// `path` as the kernel lists it, if a file system may be mounted there by the cluster in `dir`: an empty
/// directory that is no mount. A dead mount of Braid on it is taken away first.
pub fn check(path: &Path, dir: &Path) -> Result<PathBuf> {
    check_fuse()?;
    let path = settle(path)?;
    let shown = path.display();
    if is_dead(&path) {
        let ours = list()?.into_iter().rev().find(|mount| mount.path == path).is_some_and(|mount| mount.is_ours());
        if !ours && !remembered(dir).contains(&path) {
            return Err(refused(format!(
                "mount point {shown} is a dead mount of something else: take it away (umount -l {shown})"
            )));
        }
        detach(&path)?;
    }
    let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!("mount point {shown}: a directory expected, found nothing: make it first (mkdir -p {shown})"),
        ),
        _ => Error::os(format_args!("mount point {shown}"), &error),
    })?;
    if !metadata.is_dir() {
        return Err(refused(format!("mount point {shown}: a directory expected, found a file: choose a directory")));
    }
    if let Some(mount) = list()?.into_iter().rev().find(|mount| mount.path == path) {
        let (source, kind) = (mount.source, mount.kind);
        return Err(refused(format!(
            "mount point {shown} is a mount already ({source}, {kind}): choose another, or unmount it first"
        )));
    }
    if dir.starts_with(&path) {
        return Err(refused(format!(
            "mount point {shown} would hide the cluster's own directory {}: choose another",
            dir.display()
        )));
    }
    let mut entries = fs::read_dir(&path).map_err(|error| Error::os(format_args!("mount point {shown}"), &error))?;
    if let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_string_lossy().into_owned();
        return Err(refused(format!(
            "mount point {shown} is not empty ({name}), a mount would hide that: choose an empty directory"
        )));
    }
    Ok(path)
}

/// Whether a mount of Braid is on `path` (as [`settle`] gives it).
pub fn is_mounted(path: &Path) -> Result<bool> {
    Ok(list()?.into_iter().rev().find(|mount| mount.path == path).is_some_and(|mount| mount.is_ours()))
}

/// Takes away what a killed process of the cluster in `dir` left mounted. Returns the paths.
pub fn sweep(dir: &Path) -> Result<Vec<PathBuf>> {
    let mounted: BTreeSet<PathBuf> =
        list()?.into_iter().filter(|mount| mount.kind.starts_with("fuse")).map(|mount| mount.path).collect();
    let dead: Vec<PathBuf> =
        remembered(dir).into_iter().filter(|path| mounted.contains(path) && is_dead(path)).collect();
    dead.iter().try_for_each(|path| detach(path))?;
    write(dir, &BTreeSet::new())?;
    Ok(dead)
}

/// Takes away every mount that the cluster in `dir` has noted, in use or not.
pub fn detach_all(dir: &Path) -> Result<()> {
    let mounted: BTreeSet<PathBuf> =
        list()?.into_iter().filter(|mount| mount.kind.starts_with("fuse")).map(|mount| mount.path).collect();
    remembered(dir).iter().filter(|path| mounted.contains(*path)).try_for_each(|path| detach(path))
}

/// Notes that the cluster in `dir` has mounted on `path`. Call it before mounting: a note too many is harmless.
pub fn remember(dir: &Path, path: &Path) -> Result<()> {
    let mut all = remembered(dir);
    if all.insert(path.to_path_buf()) { write(dir, &all) } else { Ok(()) }
}

/// Takes a mount out of the tree at once; what still holds it gets errors.
pub fn detach(path: &Path) -> Result<()> {
    match unmount(path, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let run = Command::new("fusermount3").arg("-u").arg("-z").arg("--").arg(path).output();
            match run {
                Ok(output) if output.status.success() => Ok(()),
                _ => Err(Error::new(
                    ErrorKind::NotPermitted,
                    format!("unmounting {}: run as root, or fusermount3 -uz it", path.display()),
                )),
            }
        }
        Err(error) => Err(Error::os(format_args!("unmounting {}", path.display()), &error.into())),
    }
}

/// `path` without links and dots. The last component is not followed into: it may be a dead mount. A mount of ours is
/// not even looked at: its server may be away, and every look would wait for it.
pub fn settle(path: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| Error::os(format_args!("mount point {}", path.display()), &error);
    let plain = std::path::absolute(path).map_err(failed)?;
    if let (Some(parent), Some(name)) = (plain.parent(), plain.file_name())
        && let Ok(parent) = parent.canonicalize()
        && is_mounted(&parent.join(name))?
    {
        return Ok(parent.join(name));
    }
    if let Ok(settled) = path.canonicalize() {
        return Ok(settled);
    }
    match (plain.parent(), plain.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
        _ => Ok(plain),
    }
}

/// The kernel's list, in the order of mounting.
pub fn list() -> Result<Vec<Mount>> {
    let place = "/proc/self/mountinfo";
    let text = fs::read(place).map_err(|error| Error::os(place, &error))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// One line: `id parent major:minor root PATH options fields* - KIND SOURCE options`.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(&unescape(bytes)).into_owned();
    Some(Mount {
        path: PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.get(4)?))),
        kind: text(fields.get(dash + 1)?),
        source: text(fields.get(dash + 2)?),
    })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| digits.iter().try_fold(0_u32, |n, d| Some(n * 8 + char::from(*d).to_digit(8)?));
        match tail.first_chunk::<3>().filter(|_| *first == b'\\').and_then(|digits| octal(digits)) {
            Some(byte) => {
                out.push(byte as u8);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn check_fuse() -> Result<()> {
    let device = "/dev/fuse";
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::new(
            ErrorKind::NotPermitted,
            format!("{device}: no permission to use it: run as root, or allow this user"),
        )),
        Err(error) => {
            let message = format!(
                "{device} cannot be used ({error}): load the module (modprobe fuse), or give it to the container (--device /dev/fuse)"
            );
            Err(refused(message))
        }
    }
}

fn place(dir: &Path) -> PathBuf {
    dir.join("mounts.json")
}

/// The mounts that the cluster in `dir` has noted. What cannot be read is as good as nothing: it only helps.
fn remembered(dir: &Path) -> BTreeSet<PathBuf> {
    fs::read(place(dir)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(dir: &Path, all: &BTreeSet<PathBuf>) -> Result<()> {
    let place = place(dir);
    let failed = |error: io::Error| Error::os(place.display(), &error);
    if all.is_empty() && !place.exists() {
        return Ok(());
    }
    let new = dir.join("mounts.json.new");
    let text = serde_json::to_vec(all).map_err(|error| failed(error.into()))?;
    fs::write(&new, text).and_then(|()| fs::rename(&new, &place)).map_err(failed)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::{Mount, check, list, parse, remember, remembered, sweep};
    use std::fs;
    use std::path::Path;

    #[test]
    fn reads_the_kernels_list() {
        let line =
            b"36 35 98:0 /r /mnt/a\\040b\\134c rw,noatime master:1 - fuse.braid braid:x\\040y rw,errors=continue";
        let mount = parse(line).expect("a mount");
        let expected =
            Mount { path: "/mnt/a b\\c".into(), kind: "fuse.braid".to_owned(), source: "braid:x y".to_owned() };
        assert_eq!(mount, expected);
        assert!(mount.is_ours());
        assert!(!Mount { kind: "fuse".to_owned(), source: "sshfs".to_owned(), ..expected }.is_ours());
        assert_eq!(parse(b""), None);
        assert!(list().expect("the real one").iter().any(|mount| mount.path == Path::new("/")));
    }

    #[test]
    fn wrong_mount_points() {
        let dir = tempfile::tempdir().expect("dir");
        let (cluster, file, full) = (dir.path().join("c"), dir.path().join("file"), dir.path().join("full"));
        fs::create_dir_all(&cluster).expect("mkdir");
        fs::create_dir_all(full.join("x")).expect("mkdir");
        fs::write(&file, "").expect("write");
        for (path, words) in [
            (dir.path().join("none"), "mkdir -p"),
            (file, "found a file"),
            (full, "not empty (x)"),
            (cluster.clone(), "hide the cluster's own directory"),
            ("/proc".into(), "is a mount already"),
            ("/".into(), "is a mount already"),
            (dir.path().join("a/b/c"), "No such file"),
        ] {
            let error = check(&path, &cluster).expect_err("refused");
            // Without a FUSE device every answer is about that.
            let fuse = error.message().starts_with("/dev/fuse");
            assert!(fuse || error.message().contains(words), "{words:?} expected in {error}");
        }
    }

    #[test]
    fn notes() {
        let dir = tempfile::tempdir().expect("dir");
        remember(dir.path(), Path::new("/mnt/a b")).expect("note");
        remember(dir.path(), Path::new("/mnt/a b")).expect("twice is no error");
        assert_eq!(remembered(dir.path()).into_iter().collect::<Vec<_>>(), [Path::new("/mnt/a b")]);
        assert_eq!(sweep(dir.path()).expect("sweep"), Vec::<std::path::PathBuf>::new(), "it is no mount");
        assert!(remembered(dir.path()).is_empty());
    }
}
