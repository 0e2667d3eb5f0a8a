//! What must have happened over many seeds, lest the simulator prove nothing about it.

macro_rules! deeds {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Something that the parts of a cluster do only when they are driven to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Deed {
            $($(#[$doc])* $name,)*
        }

        impl Deed {
            /// All of them.
            pub const ALL: &'static [Deed] = &[$(Deed::$name,)*];
        }
    };
}

deeds! {
    /// A move that collects garbage began.
    GcMoved,
    /// One began because little was free.
    GcUrgent,
    /// Staged bytes were moved while writes waited for room or while garbage had to be collected first.
    DestagePressed,
    /// A pack was opened in slots that only garbage collection may take.
    ReserveUsed,
    /// A partition answered that there is no room.
    NoSpace,
    /// A name or bytes were removed by a program that had just been told so.
    RemovedWhenFull,
    /// A range was lent to a client.
    Lent,
    /// A client's commit was taken.
    Committed,
    /// A client's commit came when its range was not lent to it any more.
    CommitRefused,
    /// A commit reached a partition twice.
    CommitTwice,
    /// A partition asked a client to give a lease back.
    Recalled,
    /// A partition asked a client what it holds, after a change of primary.
    CalledToReassert,
    /// A partition gave a client up that had fallen silent or was dead.
    GivenUp,
    /// A lock was taken that another client had before.
    LockPassed,
    /// Somebody read what another client had written.
    SharedRead,
    /// A write was answered before it reached the cluster.
    HeldBack,
    /// Bytes that were held back were lost with their client.
    HeldBackLost,
    /// A file was made or removed before the cluster heard of it.
    NamePromised,
    /// A directory was removed before the cluster heard of it.
    DirPromised,
    /// A program was told by its kernel of a file that the cluster had not heard of.
    PromiseBelieved,
    /// Such a file, or such a removal, was lost with its client.
    NameLost,
    /// A file without a name was read by somebody who had it open, and somebody else had removed it.
    ReadNameless,
    /// And a partition had another primary meanwhile, or a host no power.
    ReadNamelessLater,
    /// Another replica serves a partition than before.
    TookOver,
    /// A candidate took the end of the log from another member.
    PulledLog,
    /// Records were read from a log, for others or for the view.
    LogRead,
    /// A replica became a member again.
    Admitted,
    /// A store began anew because no log reached back to its end.
    BeganAnew,
    /// A host lost its metadata disk.
    Wiped,
    /// A metadata disk ended nothing for a while.
    LogHung,
    /// A replica took the view from the primary.
    TookView,
    /// A host stopped in order.
    Left,
    /// A primary named another one to lead.
    HandedOver,
    /// A call on something shared overlapped another client's change of it.
    CallsOverlapped,
    /// Whether a change of something shared took effect was never told.
    OutcomeOpen,
    /// A shard of a drive that is emptied was made anew.
    MadeAnew,
    /// The same of an abandoned one: what nobody else makes up for was to be left out.
    MadeAnewWithout,
    /// A pack that may have lost data was checked.
    PackChecked,
    /// Bytes came to be in an object beside flash.
    Demoted,
    /// Bytes gave up their place on flash.
    Released,
    /// A program asked that a file leave flash, and it did.
    ReleasedByCommand,
    /// What a reader met in an object came back to flash.
    RecalledByRead,
    /// A program asked that a file come back, and it did without being read.
    FetchedByCommand,
    /// An object was made of what was left of others.
    Reclaimed,
    /// An object was removed from its store.
    ObjectRemoved,
    /// A store was left: its data came back to flash.
    Detached,
    /// A store was left: its data went into another one.
    Migrated,
    /// Bytes on flash forgot an object that is in a store to be left.
    CopyForgotten,
    /// A partition heard that an object is missing or damaged.
    DamageFound,
    /// What was found damaged can be read again.
    DamageOver,
    /// An object was lost or damaged for good.
    ObjectLost,
    /// Bytes on flash forgot a damaged object, to go into another one.
    CopySaved,
    /// Bytes gave up their place on a lost drive without parity.
    GaveUpDrive,
    /// An object arrived after its sender had died.
    ArrivedLate,
    /// A write waited because flash was full.
    StoreHeldUp,
    /// A store sent other bytes than it has, or fewer.
    StoreGarbled,
    /// A read waited for a store for so long that it had to be asked again.
    StoreStalled,
}

impl Deed {
    /// Those of partitions with several replicas.
    pub const OF_MEMBERS: &'static [Deed] = &[
        Deed::TookOver,
        Deed::PulledLog,
        Deed::LogRead,
        Deed::Admitted,
        Deed::BeganAnew,
        Deed::Wiped,
        Deed::TookView,
        Deed::CallsOverlapped,
        Deed::OutcomeOpen,
        Deed::PromiseBelieved,
    ];

    /// Those of members that leave in order.
    pub const OF_LEAVING: &'static [Deed] = &[Deed::Left, Deed::HandedOver];

    /// Those of members whose disks hang.
    pub const OF_HANGING: &'static [Deed] = &[Deed::LogHung, Deed::TookOver, Deed::Admitted];

    /// Those of drives that are emptied or abandoned.
    pub const OF_GIVING_UP: &'static [Deed] = &[Deed::MadeAnew, Deed::MadeAnewWithout, Deed::PackChecked];

    /// Those of file systems with an object store.
    pub const OF_TIER: &'static [Deed] = &[
        Deed::Demoted,
        Deed::Released,
        Deed::ReleasedByCommand,
        Deed::RecalledByRead,
        Deed::FetchedByCommand,
        Deed::Reclaimed,
        Deed::ObjectRemoved,
        Deed::Detached,
        Deed::Migrated,
        Deed::CopyForgotten,
        Deed::DamageFound,
        Deed::DamageOver,
        Deed::ObjectLost,
        Deed::CopySaved,
        Deed::GaveUpDrive,
        Deed::ArrivedLate,
        Deed::StoreHeldUp,
        Deed::StoreGarbled,
        Deed::StoreStalled,
    ];
}
