//! Carries an action out through the client library and judges the answer by the model.

use braid_base::attr::{Attr, FileType, SetAttr};
use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, TierWant};
use braid_base::{Error, ErrorKind, Result};
use braid_client::Fs;
use braid_client::fs::Create;

use crate::model::{Action, Answer, Expect, Look, Model};

/// It is looked so often whether bytes are where they are to be, milliseconds.
const WATCH_MS: u64 = 400;
/// How it is refused to move bytes of a file system without an object store.
const NO_STORE: &str = "has no object store";

/// Does it.
pub async fn perform(fs: &Fs, action: &Action) -> Result<Answer> {
    Ok(match action.clone() {
        Action::Create { dir, name, kind, mode, target } => {
            let what = Create { kind, mode, target, ..Create::default() };
            let made = fs.create(Cred::default(), dir, &name, what).await?;
            Answer::Entry(made.ino, made.attr)
        }
        Action::Link { ino, dir, name } => {
            let linked = fs.link(ino, dir, &name).await?;
            Answer::Entry(linked.ino, linked.attr)
        }
        Action::Unlink { dir, name } => Answer::Ino(fs.unlink(dir, &name).await?),
        Action::Rmdir { dir, name } => Answer::Ino(fs.rmdir(dir, &name).await?),
        Action::Rename { from_dir, from, to_dir, to, mode } => {
            let renamed = fs.rename(from_dir, &from, to_dir, &to, mode).await?;
            Answer::Renamed(renamed.moved, renamed.other)
        }
        Action::Lookup { dir, name } => Answer::Ino(fs.lookup(dir, &name).await?.ino),
        Action::Stat { ino } => Answer::Entry(ino, fs.getattr(ino).await?),
        Action::List { dir, limit, plus } => Answer::Names(list(fs, dir, limit, plus).await?),
        Action::Readlink { ino } => Answer::Bytes(fs.readlink(ino).await?.into()),
        Action::Write { ino, off, data, append } => {
            let written = fs.write(ino, off, data, append, false).await?;
            let held_back = written.attr.is_none();
            let attr = match written.attr {
                Some(attr) => attr,
                None => fs.getattr(ino).await?,
            };
            Answer::Wrote { off: written.off, attr, held_back }
        }
        Action::Read { ino, off, len } => Answer::Bytes(fs.read(ino, off, len).await?),
        Action::Truncate { ino, size } => set(fs, ino, SetAttr { size: Some(size), ..SetAttr::default() }).await?,
        Action::Chmod { ino, mode } => set(fs, ino, SetAttr { mode: Some(mode), ..SetAttr::default() }).await?,
        Action::Falloc { ino, off, len, mode, keep } => {
            Answer::Entry(ino, fs.fallocate(ino, off, len, mode, keep).await?)
        }
        Action::Fsync { ino } => {
            fs.fsync(ino).await?;
            Answer::Done
        }
        Action::Fetch { ino, off, len, wait_ms } => {
            Answer::Moved(moves(fs, ino, (off, len), TierWant::Flash, wait_ms).await?)
        }
        Action::Release { ino, off, len, wait_ms } => {
            Answer::Moved(moves(fs, ino, (off, len), TierWant::Object, wait_ms).await?)
        }
        Action::Open { ino, truncate } => Answer::Entry(ino, fs.open(ino, truncate).await?),
        Action::Close { ino } => {
            fs.close(ino).await?;
            Answer::Done
        }
        Action::SetXattr { ino, name, value, mode } => {
            fs.setxattr(ino, &name, &value, mode).await?;
            Answer::Done
        }
        Action::GetXattr { ino, name } => Answer::Bytes(fs.getxattr(ino, &name).await?.into()),
        Action::ListXattr { ino } => Answer::Xattrs(fs.listxattr(ino).await?),
        Action::RemoveXattr { ino, name } => {
            fs.removexattr(ino, &name).await?;
            Answer::Done
        }
    })
}

async fn set(fs: &Fs, ino: Ino, set: SetAttr) -> Result<Answer> {
    Ok(Answer::Entry(ino, fs.setattr(ino, set).await?))
}

/// Says where bytes of a file are to be, and waits until they are. True if some were elsewhere and none is now.
async fn moves(fs: &Fs, ino: Ino, (off, len): (u64, u64), want: TierWant, wait_ms: u64) -> Result<bool> {
    let elsewhere = async || {
        let sums = fs.residency(ino).await?;
        Ok::<_, Error>(match want {
            TierWant::Flash => sums.object,
            TierWant::Object => sums.write_cache + sums.read_cache,
        })
    };
    let before = elsewhere().await?;
    fs.tier(ino, off, len, want).await?;
    let wire = fs.session().wire();
    let end_ms = wire.now_ms() + wait_ms;
    while before > 0 && wire.now_ms() < end_ms {
        wire.sleep_ms(WATCH_MS).await;
        if elsewhere().await? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A name, its inode, its attributes if they were asked for.
pub type Listed = (Vec<u8>, Ino, Option<Attr>);

/// A whole directory, `limit` entries at a time. Errors: the partition's, and `Corrupt` if cookies do not ascend.
pub async fn list(fs: &Fs, dir: Ino, limit: u32, plus: bool) -> Result<Vec<Listed>> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let (entries, end) = fs.readdir(dir, cookie, limit, plus).await?;
        for entry in &entries {
            if entry.cookie <= cookie {
                return Err(Error::new(ErrorKind::Corrupt, format!("readdir of {dir}: cookies do not ascend")));
            }
            cookie = entry.cookie;
        }
        if entries.is_empty() && !end {
            return Err(Error::new(ErrorKind::Corrupt, format!("readdir of {dir}: nothing more, and no end")));
        }
        all.extend(entries.into_iter().map(|entry| (entry.name, entry.ino, entry.attr)));
        if end {
            return Ok(all);
        }
    }
}

/// How an answer stands against the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the model says; what is new has this number.
    Right(Ino),
    /// Refused as the model says.
    Refused,
    /// The world was in the way: nothing can be said, nothing happened.
    Hindered,
    /// A promise is broken.
    Wrong(String),
}

/// How a write is refused that waited for room in the stage for too long.
const STAGE_FULL: &str = "the write stage is full and";

/// Compares. `scarce`: the cluster may be full. What only reads may fail with `Io` while the world misbehaves.
pub fn judge(model: &Model, action: &Action, answer: &Result<Answer>, scarce: bool) -> Verdict {
    let expected = model.expect(action);
    match (&expected, answer) {
        (Ok(_), Err(e)) if e.kind() == ErrorKind::NoSpace && scarce && action.needs_space() => Verdict::Hindered,
        // Drives that fail every move for a minute, with the stage full: nothing was written.
        (Ok(_), Err(e)) if e.message().starts_with(STAGE_FULL) && scarce && action.needs_space() => Verdict::Hindered,
        (_, Err(e)) if is_unreadable(e) && !action.changes() => Verdict::Hindered,
        (Ok(_), Err(e)) if e.message().contains(NO_STORE) => Verdict::Refused,
        (Err(kinds), Err(error)) if kinds.contains(&error.kind()) => Verdict::Refused,
        (Ok(expect), Ok(answer)) => match fits(expect, answer) {
            Ok(new) => Verdict::Right(new),
            Err(why) => Verdict::Wrong(format!("{}: {why}", action.line())),
        },
        _ => Verdict::Wrong(format!("{}: expected {}, found {}", action.line(), brief(&expected), brief(answer))),
    }
}

fn fits(expect: &Expect, answer: &Answer) -> std::result::Result<Ino, String> {
    let same =
        |yes: bool| if yes { Ok(Ino(0)) } else { Err(format!("expected {}, found {}", brief(expect), brief(answer))) };
    match (expect, answer) {
        (Expect::Done, Answer::Done | Answer::Moved(_)) => Ok(Ino(0)),
        (Expect::Ino(a), Answer::Ino(b)) => same(a == b),
        (Expect::New(look), Answer::Entry(ino, attr)) => same(*look == Look::of(attr)).map(|_| *ino),
        (Expect::Look(look), Answer::Entry(_, attr)) => same(alike(look, &Look::of(attr))),
        (Expect::Bytes(a), Answer::Bytes(b)) if a == b => Ok(Ino(0)),
        (Expect::Bytes(a), Answer::Bytes(b)) => Err(difference(a, b)),
        (Expect::Wrote { off, size }, Answer::Wrote { off: at, attr, .. }) => same(off == at && *size == attr.size),
        (Expect::Names(a), Answer::Names(b)) => {
            let mut found: Vec<_> = b.iter().map(|(name, ino, _)| (name.clone(), *ino)).collect();
            found.sort_unstable();
            same(*a == found)
        }
        (Expect::Xattrs(a), Answer::Xattrs(b)) => {
            let mut found = b.clone();
            found.sort_unstable();
            same(*a == found)
        }
        (Expect::Renamed(a, b), Answer::Renamed(c, d)) => same((a, b) == (c, d)),
        _ => same(false),
    }
}

/// Equal, but that the link count of a file may fall late: another partition hears of a removed name in its time.
fn alike(expected: &Look, found: &Look) -> bool {
    let late = expected.kind != FileType::Directory && found.nlink > expected.nlink;
    *expected == if late { Look { nlink: expected.nlink, ..*found } } else { *found }
}

/// Where two byte strings differ.
pub fn difference(expected: &[u8], found: &[u8]) -> String {
    if expected.len() != found.len() {
        return format!("expected {} bytes, found {}", expected.len(), found.len());
    }
    let wrong: Vec<usize> = (0..found.len()).filter(|at| expected[*at] != found[*at]).collect();
    let (Some(first), Some(last)) = (wrong.first(), wrong.last()) else { return "no difference".to_owned() };
    let zero = wrong.iter().filter(|at| found[**at] == 0).count();
    format!(
        "{} of {} bytes differ, from {first} to {last}; {zero} of them read as zero; at {first} expected {:#04x}, found {:#04x}",
        wrong.len(),
        found.len(),
        expected[*first],
        found[*first]
    )
}

fn brief(what: &impl std::fmt::Debug) -> String {
    format!("{what:?}").chars().take(300).collect()
}

/// Bytes could not be had: from drives, or from an object.
pub fn is_unreadable(error: &Error) -> bool {
    error.kind() == ErrorKind::Io || (error.kind() == ErrorKind::Corrupt && error.message().contains("object"))
}
