//! What the machine of the leases hears and says.

use braid_base::ids::{FsId, Ino, PartitionId};
use braid_base::msg::fs::Op;
use braid_base::msg::lease::{Answer, LeaseKind, Push};

/// When and how a request was sent: to be noted before, and told with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The session that it names; 0: none.
    pub session: u64,
    /// Under that one only.
    pub fixed: bool,
    /// From [`Core::asking`].
    pub stamp: u64,
}

/// What the machine hears.
#[expect(missing_docs, reason = "fields are named after what they hold; each variant says the rest")]
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Time has passed (about twice a second).
    Tick,
    /// A request is about to go to this partition: a session there is worth having.
    Wanted(PartitionId),
    /// The answer to a `Hello` of session `session` that was sent at `sent_ms`.
    Hello { p: PartitionId, session: u64, sent_ms: u64, answer: &'a Answer },
    /// The answer to a `Reassert` of session `session` that was sent at `sent_ms`.
    Reasserted { p: PartitionId, session: u64, sent_ms: u64, answer: &'a Answer },
    /// A partition pushed something.
    Pushed(Push),
    /// What was held back under this lease is written (or given up): the answer to the [`Effect::Flush`] of that session.
    Flushed { fs: FsId, ino: Ino, session: u64 },
    /// Pushes may have been lost: the way to the server was cut for a while.
    Reconnected,
    /// The answer to a request of file system `fs`.
    Answered { p: PartitionId, asked: Asked, fs: FsId, op: &'a Op, answer: &'a Answer },
    /// This change of file system `fs` may or may not take effect, now or later: nobody knows.
    Doubt { fs: FsId, op: &'a Op },
}

/// What the machine says.
#[expect(missing_docs, reason = "fields are named after what they hold; each variant says the rest")]
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send this to a partition under `session`. Answers of `Hello` and `Reassert` come back as events.
    Ask { p: PartitionId, session: u64, body: Op },
    /// Write what is held back of this inode, and hold nothing more back; then say [`Event::Flushed`]. With `keep`
    /// what was read may still be remembered.
    Flush { fs: FsId, ino: Ino, keep: Option<LeaseKind>, session: u64 },
    /// Forget what was read of this inode, in the kernel too; of a directory, these names.
    Forget { fs: FsId, ino: Ino, names: Vec<Vec<u8>> },
    /// Everything that was held back of inodes of this partition under this session is lost.
    Lost { p: PartitionId, session: u64 },
}

impl Effect {
    /// True for what keeps a session alive.
    pub(super) fn is_beat(&self) -> bool {
        matches!(self, Self::Ask { body: Op::Hello { .. } | Op::Reassert { .. }, .. })
    }
}
