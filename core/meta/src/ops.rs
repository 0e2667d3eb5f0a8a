//! Dispatch: one file per operation, one function per request.
//!
//! An operation checks first and changes last: whoever returns an error has written nothing, in the
//! transaction or in the state.

use braid_base::attr::FileType;
use braid_base::ids::{Index, Ino, PartitionId};
use braid_base::msg::drive::DriveResult;
use braid_base::msg::fs::{FsResult, Op, Reply, Request};
use braid_base::msg::job::Scrubbed;
use braid_base::msg::lease::{Grant, LeaseKind};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};

use crate::data;
use crate::event::Token;
use crate::leases;
use crate::peers::plan::{Plan, Stop, View};
use crate::state::State;
use crate::txn::Txn;

// names
mod acl;
mod attrs;
pub(crate) mod create;
pub(crate) mod dentry;
pub(crate) mod inode;
pub(crate) mod link;
mod lookup;
mod readdir;
mod rename;
pub(crate) mod rmdir;
mod unlink;
mod xattr;
// data
mod fallocate;
mod layout;
mod open;
pub(crate) mod write;

/// What an operation says when it returns.
pub(crate) enum Verdict {
    /// This answer, once everything read and written is committed.
    Reply(Reply),
    /// The answer comes later; whoever keeps the token owes it.
    Later,
}

impl From<Reply> for Verdict {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// Runs a client's request.
pub(crate) fn request(t: &mut Txn<'_>, s: &mut State, token: Token, request: Request) {
    if let Err(error) = leases::check(s, &request) {
        return t.reply(token, Err(error));
    }
    s.dedup.saw(&request);
    if request.body.is_session() {
        let result = leases::session_op(t, s, &request);
        if let Err(error) = &result {
            t.fail(error);
        }
        return t.reply(token, result);
    }
    if request.body.is_read() {
        return read(t, s, token, &request);
    }
    match s.dedup.find(t, request.op) {
        Ok(_) if s.peers.attach(request.op, token.into()) => return,
        Ok(None) => {}
        Ok(Some(result)) => {
            let opened = create::opens_again(t, s, &request, &result);
            return t.reply(token, opened.and(result));
        }
        Err(error) => return t.reply(token, Err(error)),
    }
    match leases::must_wait(t, s, token, &request) {
        Ok(true) => return,
        Ok(false) => {}
        Err(error) => return t.reply(token, Err(error)),
    }
    match dispatch(t, s, token, &request) {
        Ok(Verdict::Reply(reply)) => {
            let reply = Ok(reply);
            let grants = grants(t, s, &request, &reply);
            let Ok(reply) = reply else { return };
            t.grant(grants);
            let is_kept = t.is_dirty() && s.dedup.keep(t, &request, &reply);
            if matches!(request.body, Op::EndSession) {
                s.dedup.ended(request.op);
            }
            let result = Ok(reply);
            if !is_kept {
                t.answered(request.op, &result);
            }
            say(t, token, &request, result);
        }
        Ok(Verdict::Later) => {}
        Err(error) => {
            t.fail(&error);
            let result = Err(error);
            t.answered(request.op, &result);
            say(t, token, &request, result);
        }
    }
}

/// The leases that go with an answer; who has a directory for itself hears whether there is room.
fn grants(t: &mut Txn<'_>, s: &mut State, request: &Request, result: &FsResult) -> Vec<Grant> {
    let mut grants = leases::grants(t, s, request, result);
    let is_alone = |grant: &&mut Grant| grant.kind == LeaseKind::Exclusive && grant.attr.kind == FileType::Directory;
    if let Some(alone) = grants.iter_mut().find(is_alone) {
        alone.roomy = data::is_roomy(s, request.fs);
    }
    grants
}

/// The answer to a request, early if its sender leaves that to us.
fn say(t: &mut Txn<'_>, token: Token, request: &Request, result: FsResult) {
    if request.early && !matches!(request.body, Op::Sync { .. }) {
        t.reply_early(token, result);
    } else {
        t.reply(token, result);
    }
}

/// Runs a request that changes nothing.
fn read(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) {
    let result = match leases::must_wait(t, s, token, request) {
        Ok(true) => return,
        Ok(false) => dispatch(t, s, token, request),
        Err(error) => Err(error),
    };
    assert!(!t.is_dirty(), "{:?} is no reading operation", request.body);
    let result = match result {
        Ok(Verdict::Reply(reply)) => Ok(reply),
        Ok(Verdict::Later) => return,
        Err(error) => Err(error),
    };
    let shows = result.is_ok() || result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let grants = if shows { grants(t, s, request, &result) } else { Vec::new() };
    t.grant(grants);
    say(t, token, request, result);
}

fn dispatch(t: &mut Txn<'_>, s: &mut State, token: Token, request: &Request) -> Result<Verdict> {
    let fs = request.fs;
    Ok(match &request.body {
        Op::Lookup { dir, name } => lookup::lookup(t, s, request, *dir, name)?.into(),
        Op::Readlink { ino } => lookup::readlink(t, fs, *ino)?.into(),
        Op::GetAttr { ino } | Op::AskLease { ino, .. } => attrs::get(t, s, fs, *ino)?.into(),
        Op::SetAttr { ino, set } => attrs::set(t, s, request, *ino, set)?.into(),
        Op::Accessed { files } => attrs::accessed(t, s, request, files)?.into(),
        Op::Create { .. } => create::create(t, s, token, request)?,
        Op::Link { .. } => link::link(t, s, token, request)?,
        Op::Unlink { .. } => unlink::unlink(t, s, token, request)?,
        Op::Rmdir { .. } => rmdir::rmdir(t, s, token, request)?,
        Op::Rename { .. } => rename::rename(t, s, token, request)?,
        Op::Readdir { dir, cookie, limit, plus } => {
            readdir::readdir(t, s, request, *dir, *cookie, *limit, *plus)?.into()
        }
        Op::Open { ino, truncate } => open::open(t, s, request, *ino, *truncate)?.into(),
        Op::Close { inos } => open::close(s, request, inos)?.into(),
        Op::Write { .. } => write::write(t, s, token, request)?,
        Op::GetSpace { bytes, back, .. } => write::space(t, s, request, (*bytes, back))?.into(),
        Op::CommitWrite { .. } => write::commit(t, s, request)?.into(),
        Op::Layout { ino, off, len, recall } => layout::layout(t, s, fs, *ino, (*off, *len), *recall)?.into(),
        Op::Residency { ino, from } => layout::residency(t, s, fs, *ino, *from)?.into(),
        Op::ReadObject { at, len, more } => return data::tier::read(t, s, token, *at, (*len, *more)),
        Op::Tier { ino, off, len, want } => data::tier::want(t, s, fs, *ino, (*off, *len), *want)?.into(),
        Op::NextData { ino, off } => layout::next_data(t, s, fs, *ino, *off)?.into(),
        Op::Fallocate { .. } => fallocate::fallocate(t, s, request)?.into(),
        Op::SetXattr { ino, name, value, mode } => xattr::set(t, s, fs, *ino, name, value, *mode)?.into(),
        Op::GetXattr { ino, name } => xattr::get(t, s, fs, *ino, name)?.into(),
        Op::ListXattr { ino } => xattr::list(t, s, fs, *ino)?.into(),
        Op::RemoveXattr { ino, name } => xattr::remove(t, s, fs, *ino, name)?.into(),
        Op::Lock { ino, lock, wait } => return s.locks.lock(t, token, request, *ino, *lock, *wait),
        Op::CancelLock { ino, seq } => s.locks.cancel(t, &s.dedup, request, *ino, *seq)?.into(),
        Op::TestLock { ino, lock } => s.locks.test(request, *ino, *lock)?.into(),
        Op::UnlockOwner { ino, owner, flock } => s.locks.unlock_owner(t, request, *ino, *owner, *flock)?.into(),
        Op::Statfs => layout::usage(t, s, fs)?.into(),
        Op::Sync { .. } => sync(t).into(),
        Op::MakeRoot { ino, mode } => create::make_root(t, request, *ino, *mode)?.into(),
        Op::EndSession => open::end_session(t, s, request)?.into(),
        Op::Hello { .. } | Op::Reassert { .. } | Op::ReleaseLease { .. } => return Err(misrouted()),
        Op::ReadStage { .. } => {
            return Err(Error::new(
                ErrorKind::Invalid,
                "staged bytes are read from the log's keeper, not from the partition",
            ));
        }
    })
}

/// `Op::Sync`: its answer waits for all that was proposed before.
fn sync(t: &Txn<'_>) -> Reply {
    t.saw(Index(t.index.0 - 1));
    Reply::Done
}

/// What an operation that may span partitions must change where.
pub(crate) fn plan(view: &View<'_, '_>, request: &Request) -> std::result::Result<Plan, Stop> {
    match &request.body {
        Op::Create { .. } => create::plan(view, request),
        Op::Link { .. } => link::plan(view, request),
        Op::Rmdir { .. } => rmdir::plan(view, request),
        Op::Rename { .. } => rename::plan(view, request),
        _ => Err(misrouted().into()),
    }
}

/// The directories whose names such an operation looks at.
pub(crate) fn dirs(body: &Op) -> Vec<Ino> {
    match body {
        Op::Create { dir, .. } | Op::Link { dir, .. } | Op::Rmdir { dir, .. } => vec![*dir],
        Op::Rename { from_dir, to_dir, .. } => vec![*from_dir, *to_dir],
        _ => Vec::new(),
    }
}

/// A request reached the function of another operation: a fault in the dispatch, or a peer that passed on what
/// is not to be passed on.
fn misrouted() -> Error {
    Error::new(ErrorKind::Invalid, "this operation cannot be carried out here")
}

/// Takes a message of another partition.
pub(crate) fn peer(t: &mut Txn<'_>, s: &mut State, from: PartitionId, message: PeerMsg) {
    crate::peers::take(t, s, from, message);
}

/// Takes the end of a bulk move.
pub(crate) fn job_done(t: &mut Txn<'_>, s: &mut State, id: u64, result: Result<()>) {
    crate::data::job_done(t, s, id, result);
}

/// Takes the end of the check of a pack.
pub(crate) fn scrubbed(t: &mut Txn<'_>, s: &mut State, id: u64, result: Result<Scrubbed>) {
    crate::data::scrubbed(t, s, id, result);
}

/// Takes a drive's answer.
pub(crate) fn drive(t: &mut Txn<'_>, s: &mut State, id: u64, result: DriveResult) {
    crate::data::drive(t, s, id, result);
}

/// One step of background work; the caller repeats while something was written.
pub(crate) fn background(t: &mut Txn<'_>, s: &mut State) {
    leases::background(t, s);
    if !t.is_dirty() {
        crate::peers::background(t, s);
    }
    if !t.is_dirty() {
        crate::data::background(t, s);
    }
}
