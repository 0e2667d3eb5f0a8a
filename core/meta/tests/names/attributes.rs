//! What POSIX says about attributes, inheritance, extended attributes and listings, on one partition.

use braid_base::attr::{Attr, FileType, SetAttr, SetTime, Time};
use braid_base::ids::{ClientId, Ino};
use braid_base::msg::fs::{DirEntry, Op, Reply, XattrMode};
use braid_base::{Error, ErrorKind};

use super::world::{FS, Faults, World};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

struct Bench {
    world: World,
    seq: u64,
}

fn root() -> Ino {
    Ino::root(FS)
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { world: World::new(1, 3, Faults::default(), None), seq: 0 };
        bench.run(Op::MakeRoot { ino: root(), mode: 0o755 }).expect("the root can be made");
        bench
    }

    fn run(&mut self, body: Op) -> Result<Reply, ErrorKind> {
        self.seq += 1;
        self.world.now_ms += 10;
        self.world.run(ClientId(1), self.seq, body).map_err(|error: Error| error.kind())
    }

    fn make(&mut self, dir: Ino, name: &[u8], kind: FileType, mode: u16, umask: u16) -> Attr {
        let target = if kind == FileType::Symlink { b"to".to_vec() } else { Vec::new() };
        let create = Op::Create {
            dir,
            name: name.to_vec(),
            kind,
            mode,
            umask,
            rdev: 0x0103,
            target,
            open: false,
            told: None,
            want: 0,
        };
        let Ok(Reply::Entry { attr: Some(attr), .. }) = self.run(create) else { panic!("it can be made") };
        attr
    }

    fn stat(&mut self, ino: Ino) -> Attr {
        let Ok(Reply::Attr(attr)) = self.run(Op::GetAttr { ino }) else { panic!("{ino} is there") };
        attr
    }

    fn set(&mut self, ino: Ino, set: SetAttr) -> Attr {
        let Ok(Reply::Attr(attr)) = self.run(Op::SetAttr { ino, set }) else { panic!("it can be set") };
        attr
    }

    fn setx(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), ErrorKind> {
        self.run(Op::SetXattr { ino, name: name.to_vec(), value: value.to_vec(), mode }).map(drop)
    }

    fn getx(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, ErrorKind> {
        match self.run(Op::GetXattr { ino, name: name.to_vec() })? {
            Reply::Value(value) => Ok(value),
            other => panic!("a value, not {other:?}"),
        }
    }

    fn list(&mut self, dir: Ino, cookie: u64, limit: u32) -> (Vec<DirEntry>, bool) {
        let Ok(Reply::Entries { entries, end }) = self.run(Op::Readdir { dir, cookie, limit, plus: true }) else {
            panic!("{dir} can be listed");
        };
        (entries, end)
    }
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

#[test]
fn new_inodes_are_born_right() {
    let mut b = Bench::new();
    let file = b.make(root(), b"f", FileType::File, 0o6666, 0o022);
    assert_eq!((file.mode, file.nlink, file.uid, file.gid, file.rdev), (0o6644, 1, 7, 8, 0));
    assert_eq!(file.atime, file.btime);
    assert!(file.mtime == file.ctime && file.mtime > Time::default());
    let link = b.make(root(), b"l", FileType::Symlink, 0o600, 0o077);
    assert_eq!((link.mode, link.size), (0o777, 2));
    let Ok(Reply::Value(target)) = b.run(Op::Readlink { ino: link.ino }) else { panic!("a symlink has a target") };
    assert_eq!(target, b"to");
    assert_eq!(b.run(Op::Readlink { ino: file.ino }).map(drop), Err(ErrorKind::Invalid));
    assert_eq!(b.make(root(), b"c", FileType::CharDevice, 0o600, 0).rdev, 0x0103);
    let before = b.stat(root());
    let dir = b.make(root(), b"d", FileType::Directory, 0o777, 0o027);
    assert_eq!((dir.mode, dir.nlink), (0o750, 2));
    let after = b.stat(root());
    assert_eq!(after.nlink, before.nlink + 1);
    assert!(after.mtime > before.mtime && after.ctime == after.mtime && after.change > before.change);
}

#[test]
fn set_group_id_of_a_directory_is_inherited() {
    let mut b = Bench::new();
    let dir = b.make(root(), b"d", FileType::Directory, 0o777, 0).ino;
    b.set(dir, SetAttr { gid: Some(99), ..SetAttr::default() });
    b.set(dir, SetAttr { mode: Some(0o2775), ..SetAttr::default() });
    let file = b.make(dir, b"f", FileType::File, 0o644, 0);
    assert_eq!((file.gid, file.mode), (99, 0o644));
    let sub = b.make(dir, b"s", FileType::Directory, 0o755, 0);
    assert_eq!((sub.gid, sub.mode), (99, 0o2755));
}

#[test]
fn setting_attributes_moves_the_right_times() {
    let mut b = Bench::new();
    let born = b.make(root(), b"f", FileType::File, 0o6755, 0);
    let chmod = b.set(born.ino, SetAttr { mode: Some(0o6711), ..SetAttr::default() });
    assert!(chmod.ctime > born.ctime && chmod.mtime == born.mtime && chmod.atime == born.atime);
    let chown = b.set(born.ino, SetAttr { uid: Some(5), kill_suid_sgid: true, ..SetAttr::default() });
    assert_eq!((chown.uid, chown.mode), (5, 0o711));
    let (past, zero) = (Time { sec: -5, nsec: 3 }, Time { sec: 0, nsec: 0 });
    let times = SetAttr { atime: Some(SetTime::To(past)), mtime: Some(SetTime::To(zero)), ..SetAttr::default() };
    let utimes = b.set(born.ino, times);
    assert_eq!((utimes.atime, utimes.mtime), (past, zero));
    assert!(utimes.ctime > chown.ctime);
    let grown = b.set(born.ino, SetAttr { size: Some(1 << 40), ..SetAttr::default() });
    assert_eq!(grown.size, 1 << 40);
    assert!(grown.mtime > born.mtime && grown.ctime == grown.mtime);
    let nothing = b.set(born.ino, SetAttr::default());
    assert_eq!(nothing, grown);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let too_big = b.run(Op::SetAttr { ino: born.ino, set: size(u64::MAX) }).map(drop);
    assert_eq!(too_big, Err(ErrorKind::FileTooBig));
    assert_eq!(b.run(Op::SetAttr { ino: root(), set: size(0) }).map(drop), Err(ErrorKind::IsDirectory));
}

#[test]
fn names_have_limits() {
    let mut b = Bench::new();
    b.make(root(), &[b'x'; 255], FileType::File, 0o644, 0);
    let create = |name: &[u8]| Op::Create {
        dir: root(),
        name: name.to_vec(),
        kind: FileType::File,
        mode: 0,
        umask: 0,
        rdev: 0,
        target: Vec::new(),
        open: false,
        told: None,
        want: 0,
    };
    assert_eq!(b.run(create(&[b'x'; 256])).map(drop), Err(ErrorKind::NameTooLong));
    assert_eq!(b.run(create(b"")).map(drop), Err(ErrorKind::Invalid));
    assert_eq!(b.run(create(b"a/b")).map(drop), Err(ErrorKind::Invalid));
    assert_eq!(b.run(create(b"..")).map(drop), Err(ErrorKind::Exists));
}

#[test]
fn extended_attributes_keep_their_modes_and_limits() {
    let mut b = Bench::new();
    let ino = b.make(root(), b"f", FileType::File, 0o644, 0).ino;
    assert_eq!(b.getx(ino, b"user.a"), Err(ErrorKind::NoAttribute));
    assert_eq!(b.setx(ino, b"user.a", b"1", XattrMode::Replace), Err(ErrorKind::NoAttribute));
    let before = b.stat(ino);
    assert_eq!(b.setx(ino, b"user.a", b"1", XattrMode::Create), Ok(()));
    let after = b.stat(ino);
    assert!(after.ctime > before.ctime && after.mtime == before.mtime);
    assert_eq!(b.setx(ino, b"user.a", b"2", XattrMode::Create), Err(ErrorKind::Exists));
    assert_eq!(b.setx(ino, b"user.a", b"", XattrMode::Any), Ok(()));
    assert_eq!(b.getx(ino, b"user.a"), Ok(Vec::new()));
    assert_eq!(b.setx(ino, b"trusted.big", &[7; 65_536], XattrMode::Any), Ok(()));
    assert_eq!(b.getx(ino, b"trusted.big").map(|value| value.len()), Ok(65_536));
    assert_eq!(b.setx(ino, b"user.big", &[7; 65_537], XattrMode::Any), Err(ErrorKind::Range));
    assert_eq!(b.setx(ino, b"mine.a", b"", XattrMode::Any), Err(ErrorKind::Unsupported));
    assert_eq!(b.setx(ino, b"user.", b"", XattrMode::Any), Err(ErrorKind::Invalid));
    assert_eq!(b.setx(ino, &[b"user.".as_slice(), &[b'n'; 251]].concat(), b"", XattrMode::Any), Err(ErrorKind::Range));
    let Ok(Reply::Names(names)) = b.run(Op::ListXattr { ino }) else { panic!("names can be listed") };
    assert_eq!(names, [b"trusted.big".to_vec(), b"user.a".to_vec()]);
    assert_eq!(b.run(Op::RemoveXattr { ino, name: b"user.a".to_vec() }).map(drop), Ok(()));
    assert_eq!(b.run(Op::RemoveXattr { ino, name: b"user.a".to_vec() }).map(drop), Err(ErrorKind::NoAttribute));
}

#[test]
fn mode_and_access_list_follow_each_other() {
    let mut b = Bench::new();
    let ino = b.make(root(), b"f", FileType::File, 0o640, 0).ino;
    let list = acl(&[(1, 7, u32::MAX), (2, 5, 42), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 1, u32::MAX)]);
    assert_eq!(b.setx(ino, ACCESS, &list, XattrMode::Any), Ok(()));
    assert_eq!(b.stat(ino).mode, 0o761);
    b.set(ino, SetAttr { mode: Some(0o4750), ..SetAttr::default() });
    let follows = acl(&[(1, 7, u32::MAX), (2, 5, 42), (4, 4, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)]);
    assert_eq!(b.getx(ino, ACCESS), Ok(follows));
    let minimal = acl(&[(1, 6, u32::MAX), (4, 4, u32::MAX), (0x20, 0, u32::MAX)]);
    assert_eq!(b.setx(ino, ACCESS, &minimal, XattrMode::Any), Ok(()));
    assert_eq!(b.getx(ino, ACCESS), Err(ErrorKind::NoAttribute), "the mode says it all");
    assert_eq!(b.stat(ino).mode, 0o4640);
    assert_eq!(b.setx(ino, ACCESS, b"nonsense", XattrMode::Any), Err(ErrorKind::Invalid));
    assert_eq!(b.setx(ino, DEFAULT, &minimal, XattrMode::Any), Err(ErrorKind::AccessDenied));
    assert_eq!(b.run(Op::RemoveXattr { ino, name: ACCESS.to_vec() }).map(drop), Ok(()));
}

#[test]
fn default_access_lists_are_inherited_instead_of_the_umask() {
    let mut b = Bench::new();
    let dir = b.make(root(), b"d", FileType::Directory, 0o777, 0).ino;
    let list = acl(&[(1, 7, u32::MAX), (2, 7, 42), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)]);
    assert_eq!(b.setx(dir, DEFAULT, &list, XattrMode::Any), Ok(()));
    let file = b.make(dir, b"f", FileType::File, 0o666, 0o077);
    assert_eq!(file.mode, 0o664);
    let masked = acl(&[(1, 6, u32::MAX), (2, 7, 42), (4, 5, u32::MAX), (0x10, 6, u32::MAX), (0x20, 4, u32::MAX)]);
    assert_eq!(b.getx(file.ino, ACCESS), Ok(masked));
    assert_eq!(b.getx(file.ino, DEFAULT), Err(ErrorKind::NoAttribute));
    let sub = b.make(dir, b"s", FileType::Directory, 0o755, 0o077);
    assert_eq!(sub.mode, 0o755);
    assert_eq!(b.getx(sub.ino, DEFAULT), Ok(list));
    let link = b.make(dir, b"l", FileType::Symlink, 0, 0);
    assert_eq!(b.getx(link.ino, ACCESS), Err(ErrorKind::NoAttribute));
}

#[test]
fn a_listing_goes_on_while_names_come_and_go() {
    let mut b = Bench::new();
    // The last two have the same hash.
    let names: Vec<Vec<u8>> = (0..40)
        .map(|i| format!("n{i}").into_bytes())
        .chain([b"258c3f35be4b30".to_vec(), b"09235a49f57c32".to_vec()])
        .collect();
    for name in &names {
        b.make(root(), name, FileType::File, 0o644, 0);
    }
    let (all, end) = b.list(root(), 0, 100);
    assert!(end && all.len() == names.len());
    assert!(all.windows(2).all(|pair| pair[0].cookie < pair[1].cookie));
    // Remove every other entry behind and ahead of each position: the rest is seen once, at the same cookies.
    let (gone, stay): (Vec<_>, Vec<_>) = all.iter().partition(|entry| entry.cookie % 7 < 3 || entry.name[0] == b'2');
    let (mut seen, mut cookie, mut step) = (Vec::new(), 0, 0);
    loop {
        let (page, end) = b.list(root(), cookie, 3);
        seen.extend(page.iter().map(|entry| (entry.name.clone(), entry.cookie)));
        cookie = page.last().map_or(cookie, |last| last.cookie);
        if end {
            break;
        }
        if let Some(entry) = gone.get(step) {
            b.run(Op::Unlink { dir: root(), name: entry.name.clone(), told: None, alone: false }).expect("it is there");
        }
        step += 1;
    }
    for entry in &stay {
        assert_eq!(seen.iter().filter(|(name, at)| *name == entry.name && *at == entry.cookie).count(), 1);
    }
    for entry in gone.iter().skip(step) {
        b.run(Op::Unlink { dir: root(), name: entry.name.clone(), told: None, alone: false }).expect("it is there");
    }
    let (left, _) = b.list(root(), 0, 100);
    let left: Vec<_> = left.into_iter().map(|entry| (entry.name, entry.cookie)).collect();
    let want: Vec<_> = stay.iter().map(|entry| (entry.name.clone(), entry.cookie)).collect();
    assert_eq!(left, want);
    for (name, _) in &left {
        b.run(Op::Unlink { dir: root(), name: name.clone(), told: None, alone: false }).expect("it is there");
    }
    assert_eq!(b.list(root(), 0, 100), (Vec::new(), true));
}
