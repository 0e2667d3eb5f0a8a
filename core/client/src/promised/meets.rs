//! Which promises an operation of another kind may meet.

use braid_base::ids::Ino;
use braid_base::msg::fs::Op;

/// Which promises an operation may meet.
pub(super) enum Meets<'a> {
    None,
    All,
    Name(Ino, &'a [u8]),
    /// This name, and what directories were removed beside it: how many links their parent has is counted in turn.
    Change(Ino, &'a [u8]),
    Inode(Ino),
    Inodes(&'a [Ino]),
}

/// Which promises an operation may meet, the directories that it may change in a way that no promise must meet, and
/// whether it may meet any.
pub(super) fn of_op(body: &Op) -> (Meets<'_>, Vec<Ino>, bool) {
    match body {
        Op::Create { dir, name, .. } | Op::Unlink { dir, name, .. } => (Meets::Change(*dir, name), vec![*dir], false),
        Op::Lookup { dir, name } => (Meets::Name(*dir, name), Vec::new(), false),
        // A directory is emptied or replaced, a file gets another name: which one is for the partition to say.
        Op::Rmdir { .. } | Op::Rename { .. } | Op::Link { .. } => (Meets::All, Vec::new(), true),
        // What new files inherit of a directory.
        Op::SetAttr { ino, .. } | Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => {
            (Meets::Inode(*ino), vec![*ino], false)
        }
        Op::Close { inos } => (Meets::Inodes(inos), Vec::new(), false),
        // Whoever read a file has waited for it; room is asked for by any inode of its partition.
        Op::Accessed { .. } | Op::GetSpace { .. } | Op::MakeRoot { .. } => (Meets::None, Vec::new(), false),
        _ => (body.route().map_or(Meets::None, Meets::Inode), Vec::new(), false),
    }
}
