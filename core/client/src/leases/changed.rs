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
