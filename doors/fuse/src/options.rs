//! How to mount.

use std::time::Duration;

use braid_client::qos::Limits;

/// No name is believed for longer than that: so long may wait who first meets another mount in a directory (decision 47).
pub const NAME_AGE_MAX: Duration = Duration::from_secs(1);

/// What is kept in memory of file contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Reads and writes: writes may be held back until they are synced, as far as the client does that.
    #[default]
    Write,
    /// Reads; writes are durable when they return.
    Read,
    /// Nothing: every open is as with `O_DIRECT`.
    Direct,
}

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the file system.
    pub name: String,
    /// The source in the mount table; `braid:<name>` if none is given.
    pub source: Option<String>,
    /// Refuse all changes.
    pub read_only: bool,
    /// Ignore set-id bits, devices, programs.
    pub ignore: Ignore,
    /// Move access times by the rule of `relatime`; otherwise they move only when set.
    pub atime: bool,
    /// Accept a mount point with something in it, which the mount then hides.
    pub over_content: bool,
    /// Threads that take requests from the kernel; 0 chooses by the number of processors, or lets the runtime do it.
    pub threads: usize,
    /// Kernel readahead, KiB.
    pub readahead_kib: u32,
    /// How long the kernel may believe a name ([`NAME_AGE_MAX`] at most) and attributes.
    pub positive_age: Duration,
    /// How long the kernel may believe that there is no such name.
    pub negative_age: Duration,
    /// What is kept in memory.
    pub cache: CacheMode,
    /// `close` returns when everything is durable.
    pub sync_on_close: bool,
    /// What is in an object store only is read from there and not brought back to flash, and what is written leaves flash
    /// before anything else.
    pub obs_direct: bool,
    /// How much may pass.
    pub limits: Limits,
    /// Take requests over io_uring where this host lets it be, else over `/dev/fuse` as ever.
    pub io_uring: bool,
}

/// What the kernel ignores on the mount, as `mount(8)` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignore {
    /// `nosuid`.
    pub suid: bool,
    /// `nodev`.
    pub dev: bool,
    /// `noexec`.
    pub exec: bool,
}

impl Options {
    /// How long the kernel may believe a name.
    pub(crate) fn name_age(&self) -> Duration {
        self.positive_age.min(NAME_AGE_MAX)
    }

    /// The usual way to mount file system `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source: None,
            read_only: false,
            ignore: Ignore::default(),
            atime: true,
            over_content: false,
            threads: 0,
            readahead_kib: 8192,
            positive_age: Duration::from_secs(1),
            negative_age: Duration::ZERO,
            cache: CacheMode::default(),
            sync_on_close: false,
            obs_direct: false,
            limits: Limits::default(),
            io_uring: false,
        }
    }
}
