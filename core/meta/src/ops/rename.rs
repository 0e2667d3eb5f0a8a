//! Rename: a name moves, replaces or swaps with another one.
//!
//! Who decides: for files, and for directories that stay in their parent, the partition of the target
//! directory; for a directory that gets another parent, the home partition of the file system, one such move
//! at a time, because two moves that are harmless alone can make a cycle together.

use std::collections::BTreeSet;

use braid_base::attr::FileType;
use braid_base::ids::{FsId, Ino};
use braid_base::msg::fs::{Name, Op, RenameMode, Reply, Request};
use braid_base::msg::peer::{Intent, Note};
use braid_base::{Error, ErrorKind, Result};

use crate::event::Token;
use crate::ops::{Verdict, dentry};
use crate::peers;
use crate::peers::plan::{Plan, Stop, View};
use crate::state::State;
use crate::txn::Txn;

/// One log entry if both names, and the directories that move or go, live here.
pub(super) fn rename(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    peers::flight::start(t, s, token.into(), request)
}

/// An end of the rename.
struct End<'a> {
    dir: Ino,
    name: &'a Name,
    entry: Option<(Ino, FileType)>,
}

/// What must change where.
pub(super) fn plan(view: &View<'_, '_>, request: &Request) -> std::result::Result<Plan, Stop> {
    let Op::Rename { from_dir, from, to_dir, to, mode } = &request.body else { return Err(super::misrouted().into()) };
    dentry::check_name(from)?;
    dentry::check_name(to)?;
    let (from_quota, from_entry) = view.name(*from_dir, from)?;
    let (to_quota, to_entry) = view.name(*to_dir, to)?;
    let source = End { dir: *from_dir, name: from, entry: from_entry };
    let target = End { dir: *to_dir, name: to, entry: to_entry };
    let Some(moved) = source.entry else { return Err(Error::from(ErrorKind::NotFound).into()) };
    match (mode, target.entry) {
        (RenameMode::NoReplace, Some(_)) => return Ok(refused(view, moved, &source, &target, ErrorKind::Exists)),
        (RenameMode::Exchange, None) => return Ok(refused(view, moved, &source, &target, ErrorKind::NotFound)),
        (_, Some((other, _))) if other == moved.0 => return Ok(nothing(view, moved, &source, &target)),
        _ => {}
    }
    if from_quota != to_quota {
        return Err(Error::new(ErrorKind::CrossDevice, "a rename cannot leave its quota; copy and remove").into());
    }
    if *mode == RenameMode::Exchange {
        exchange(view, request.fs, &source, &target)
    } else {
        replace(view, request.fs, &source, &target)
    }
}

/// Two names of one inode: POSIX asks that nothing happens. But both must be there at one moment: what another partition
/// said of its name may be older than a rename from there to here, and then there is one name only.
fn nothing(view: &View<'_, '_>, same: (Ino, FileType), source: &End<'_>, target: &End<'_>) -> Plan {
    let mut plan = Plan::new(Reply::Renamed { moved: same.0, other: None });
    plan.add(view.home_of(source.dir), set(source, same));
    plan.add(view.home_of(target.dir), set(target, same));
    plan
}

/// The names are such that this cannot be done: if they are so at one moment, for the same reason.
fn refused(view: &View<'_, '_>, moved: (Ino, FileType), source: &End<'_>, target: &End<'_>, kind: ErrorKind) -> Plan {
    Plan { refusal: Some(kind.into()), ..nothing(view, moved, source, target) }
}

fn replace(view: &View<'_, '_>, fs: FsId, source: &End<'_>, target: &End<'_>) -> std::result::Result<Plan, Stop> {
    let Some(same @ (ino, kind)) = source.entry else { return Err(Error::from(ErrorKind::NotFound).into()) };
    let is_dir = kind == FileType::Directory;
    let refusal = match target.entry {
        Some((_, FileType::Directory)) if !is_dir => Some(ErrorKind::IsDirectory),
        Some((_, other)) if is_dir && other != FileType::Directory => Some(ErrorKind::NotDirectory),
        _ => None,
    };
    if let Some(kind) = refusal {
        return Ok(refused(view, same, source, target, kind));
    }
    let moves = is_dir && source.dir != target.dir;
    if moves {
        view.turn(fs)?;
        off_the_path(view, ino, target.dir)?;
    }
    let mut plan = Plan::new(Reply::Renamed { moved: ino, other: target.entry.map(|(other, _)| other) });
    plan.moves = moves;
    match target.entry {
        Some((old, FileType::Directory)) => plan.add(view.home_of(old), Intent::RemoveDir { ino: old }),
        Some((old, _)) => plan.notes.push(Note::Unlinked { ino: old, at: view.t.now.wall }),
        None => {}
    }
    moved(view, &mut plan, ino, moves.then_some((source.dir, target.dir)));
    plan.add(view.home_of(source.dir), Intent::Clear { dir: source.dir, name: source.name.clone(), ino, kind });
    plan.add(view.home_of(target.dir), set(target, (ino, kind)));
    Ok(plan)
}

fn exchange(view: &View<'_, '_>, fs: FsId, source: &End<'_>, target: &End<'_>) -> std::result::Result<Plan, Stop> {
    let (Some(one), Some(other)) = (source.entry, target.entry) else {
        return Err(Error::from(ErrorKind::NotFound).into());
    };
    let moves = |end: (Ino, FileType)| end.1 == FileType::Directory && source.dir != target.dir;
    if moves(one) || moves(other) {
        view.turn(fs)?;
    }
    if moves(one) {
        off_the_path(view, one.0, target.dir)?;
    }
    if moves(other) {
        off_the_path(view, other.0, source.dir)?;
    }
    let mut plan = Plan::new(Reply::Renamed { moved: one.0, other: Some(other.0) });
    plan.moves = moves(one) || moves(other);
    moved(view, &mut plan, one.0, moves(one).then_some((source.dir, target.dir)));
    moved(view, &mut plan, other.0, moves(other).then_some((target.dir, source.dir)));
    plan.add(view.home_of(source.dir), set(source, other));
    plan.add(view.home_of(target.dir), set(target, one));
    Ok(plan)
}

/// What the moved inode itself sees of it: a new parent, or its ctime only.
fn moved(view: &View<'_, '_>, plan: &mut Plan, ino: Ino, parents: Option<(Ino, Ino)>) {
    match parents {
        Some((from, to)) => plan.add(view.home_of(ino), Intent::Reparent { ino, from, to }),
        None => plan.notes.push(Note::Renamed { ino, at: view.t.now.wall }),
    }
}

fn set(end: &End<'_>, (ino, kind): (Ino, FileType)) -> Intent {
    Intent::Set { dir: end.dir, name: end.name.clone(), old: end.entry, ino, kind }
}

/// `Invalid` if directory `ino` is `dir` or above it. Only whoever has the turn may ask: the path stands still.
fn off_the_path(view: &View<'_, '_>, ino: Ino, dir: Ino) -> std::result::Result<(), Stop> {
    let (mut at, mut seen) = (dir, BTreeSet::new());
    while seen.insert(at) {
        if at == ino {
            return Err(Error::new(ErrorKind::Invalid, "a directory cannot move into itself").into());
        }
        let parent = view.parent(at)?;
        if parent == at {
            return Ok(());
        }
        at = parent;
    }
    Err(Error::new(ErrorKind::Corrupt, format!("directory {dir} is below itself; check the file system")).into())
}
