//! What an own change changes, as far as its answer says.

use braid_base::Result;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Op, Reply};

/// The inodes that an answered change of this client changed, or may have.
pub(super) fn changed(op: &Op, result: &Result<Reply>) -> Vec<Ino> {
    let Ok(reply) = result else {
        // A link that could not be made may have been counted and uncounted.
        return if let Op::Link { ino, .. } = op { vec![*ino] } else { Vec::new() };
    };
    match (op, reply) {
        (Op::Create { dir, .. }, _) => vec![*dir],
        // See `refreshed`.
        (Op::SetAttr { set, .. }, _) if set.access_only => Vec::new(),
        (Op::Link { dir, ino, .. }, _) => vec![*dir, *ino],
        (Op::Unlink { dir, .. } | Op::Rmdir { dir, .. }, Reply::Unlinked { ino }) => vec![*dir, *ino],
        (Op::Rename { from_dir, to_dir, .. }, Reply::Renamed { moved, other }) => {
            [*from_dir, *to_dir, *moved].into_iter().chain(*other).collect()
        }
        (
            Op::SetAttr { ino, .. }
            | Op::Open { ino, truncate: true }
            | Op::Write { ino, .. }
            | Op::CommitWrite { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. },
            _,
        ) => vec![*ino],
        _ => Vec::new(),
    }
}

/// If `op` changes names: those of them that are in `ino`. Nobody needs to forget the rest for it, and no kernel needs to
/// be told: it knows what it asked for. (A notice about names waits in the kernel for requests in that directory; of a
/// server that is killed meanwhile nothing would be left but that thread, which keeps the mount from ending.)
pub(super) fn names_changed(op: &Op, ino: Ino) -> Option<Vec<&[u8]>> {
    let all: Vec<(Ino, &[u8])> = match op {
        Op::Create { dir, name, .. }
        | Op::Link { dir, name, .. }
        | Op::Unlink { dir, name, .. }
        | Op::Rmdir { dir, name } => vec![(*dir, name)],
        Op::Rename { from_dir, from, to_dir, to, .. } => vec![(*from_dir, from), (*to_dir, to)],
        _ => return None,
    };
    Some(all.into_iter().filter(|(dir, _)| *dir == ino).map(|(_, name)| name).collect())
}

/// The inodes whose access time alone was moved. What is remembered of it stays, but for the attributes: it was moved
/// beside what programs do, and a notice to the kernel meets attributes on their way to it, which it then throws away
/// with the size.
pub(super) fn refreshed(op: &Op, result: &Result<Reply>) -> Vec<Ino> {
    match (op, result) {
        (Op::SetAttr { ino, set }, Ok(_)) if set.access_only => vec![*ino],
        (Op::Accessed { files }, Ok(_)) => files.iter().map(|(ino, _)| *ino).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use braid_base::attr::{Attr, FileType, SetAttr, SetTime};
    use braid_base::ids::{ClientId, FsId, Ino, PartitionId, Term};
    use braid_base::msg::fs::{Op, Reply};
    use braid_base::msg::lease::{Answer, Grant, LeaseKind, Numbers};

    use crate::leases::{Asked, Core, Effect, Event};

    const P: PartitionId = PartitionId(0);
    const FS: FsId = FsId(1);
    const INO: Ino = Ino(5);

    /// A client with a lease on [`INO`].
    fn holder() -> Core {
        let (mut core, mut out) = (Core::new(ClientId(1), 1, None), Vec::new());
        core.step(0, Event::Wanted(P), &mut out);
        let Some(Effect::Ask { session, .. }) = out.pop() else { panic!("a session is asked for") };
        let answer = Answer::plain(Term(1), Ok(Reply::Session { reassert: false }));
        core.step(0, Event::Hello { p: P, session, sent_ms: 0, answer: &answer }, &mut out);
        let attr = Attr { ino: INO, nlink: 1, ..Attr::default() };
        let grant = Grant {
            ino: INO,
            kind: LeaseKind::Shared,
            seq: 7,
            attr: attr.clone(),
            empty: false,
            numbers: Numbers::default(),
            roomy: false,
        };
        let answer = Answer { term: Term(1), grants: vec![grant], result: Ok(Reply::Attr(attr)) };
        tell(&mut core, &Op::GetAttr { ino: INO }, &answer);
        assert!(core.attr(FS, INO, 0).is_some());
        core
    }

    fn tell(core: &mut Core, op: &Op, answer: &Answer) -> Vec<Effect> {
        let (asked, mut out) = (Asked { session: core.session(P), fixed: false, stamp: core.asking() }, Vec::new());
        core.step(0, Event::Answered { p: P, asked, fs: FS, op, answer }, &mut out);
        out
    }

    #[test]
    fn a_moved_access_time_makes_no_kernel_forget() {
        let answer = Answer::plain(Term(1), Ok(Reply::Attr(Attr { ino: INO, ..Attr::default() })));
        let set = |access_only| SetAttr { atime: Some(SetTime::Now), access_only, ..SetAttr::default() };
        let forgets = |out: &[Effect]| out.iter().any(|effect| matches!(effect, Effect::Forget { .. }));

        let mut core = holder();
        let out = tell(&mut core, &Op::SetAttr { ino: INO, set: set(true) }, &answer);
        assert!(!forgets(&out), "{out:?}");
        assert!(core.attr(FS, INO, 0).is_none(), "it is asked for anew");
        assert_eq!(core.lease(FS, INO, 0), Some(LeaseKind::Shared));

        let out = tell(&mut holder(), &Op::SetAttr { ino: INO, set: set(false) }, &answer);
        assert!(forgets(&out), "any other change: nobody said what became of it");
    }

    #[test]
    fn a_name_changed_without_a_word_leaves_the_rest_of_its_directory() {
        let mut core = holder();
        let found = |name: &[u8], ino: u64, change: u64| {
            let attr = Attr { ino: INO, nlink: 2, change, ..Attr::default() };
            let grant = Grant {
                ino: INO,
                kind: LeaseKind::Shared,
                seq: 7,
                attr,
                empty: false,
                numbers: Numbers::default(),
                roomy: false,
            };
            let result = Ok(Reply::Entry { ino: Ino(ino), kind: FileType::File, attr: None });
            (Op::Lookup { dir: INO, name: name.to_vec() }, Answer { term: Term(1), grants: vec![grant], result })
        };
        for (op, answer) in [found(b"a", 8, 1), found(b"b", 9, 1)] {
            tell(&mut core, &op, &answer);
        }
        let asked = Asked { session: core.session(P), fixed: false, stamp: core.asking() };
        let op = Op::Rmdir { dir: INO, name: b"a".to_vec() };
        let out = tell(&mut core, &op, &Answer::plain(Term(1), Ok(Reply::Unlinked { ino: Ino(8) })));
        assert!(out.is_empty(), "{out:?}");
        assert_eq!(core.name(FS, INO, b"a", 0), None, "asked for anew");
        assert_eq!(core.name(FS, INO, b"b", 0), Some(Some(Ino(9))), "nobody touched it");
        assert!(core.attr(FS, INO, 0).is_none() && core.lease(FS, INO, 0).is_some());

        let (op, answer) = found(b"a", 8, 1);
        let event = Event::Answered { p: P, asked, fs: FS, op: &op, answer: &answer };
        core.step(0, event, &mut Vec::new());
        assert_eq!(core.name(FS, INO, b"a", 0), None, "asked before it was removed");
        let (op, answer) = found(b"c", 3, 5);
        tell(&mut core, &op, &answer);
        assert!(core.attr(FS, INO, 0).is_some());
    }
}
