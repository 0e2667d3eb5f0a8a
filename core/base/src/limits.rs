//! Every bound of Braid in one place, with the arithmetic that relates them checked by the compiler.

/// Unit of checksums, drive I/O and coding: 4 KiB.
pub const BLOCK: usize = 4096;
/// `bytes` rounded up to whole blocks: what they take on the drives.
pub const fn whole_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64)
}

/// What clients were promised room for may take so much more in whole blocks, bytes: a file held back in pieces of
/// half a MiB or more needs at most one block beside them, and a mount holds 64 MiB back.
pub const ROUNDED_BYTES_MAX: u64 = 4 << 20;
/// Piece of a file that owns one list of extents: 1 MiB.
pub const CHUNK: u64 = 1 << 20;
/// Largest file, bytes: chunk numbers are 32 bits wide, so 4 PiB, less one chunk so that rounding up cannot overflow.
pub const FILE_MAX: u64 = (u32::MAX as u64) * CHUNK;
/// Longest name of a directory entry, bytes (POSIX NAME_MAX of every Linux file system).
pub const NAME_MAX: usize = 255;
/// Longest symbolic link target, bytes (PATH_MAX less the NUL).
pub const SYMLINK_MAX: usize = 4095;
/// Largest extended attribute value, bytes (XATTR_SIZE_MAX of Linux).
pub const XATTR_VALUE_MAX: usize = 65_536;
/// Longest extended attribute name, bytes (XATTR_NAME_MAX of Linux).
pub const XATTR_NAME_MAX: usize = 255;
/// Largest sum of attribute names of one inode, bytes (XATTR_LIST_MAX of Linux).
pub const XATTR_LIST_MAX: usize = 65_536;
/// Most hard links of one file (ext4 has 65,000; u32 with room for pending ones).
pub const LINK_MAX: u32 = 1_000_000;
/// Most bytes of file data in one write request and so in one log entry: 1 MiB.
pub const WRITE_MAX: usize = 1 << 20;
/// Most bytes of one log record's effects: a write of 1 MiB touches at most 2 chunks, a cleanup at most 1,000 keys.
pub const RECORD_META_MAX: usize = 1 << 20;
/// Most keys that one background cleanup entry deletes (design K24).
pub const CLEANUP_KEYS_MAX: usize = 1_000;
/// Largest data part of one shard, bytes (design 3: S default 8 MiB).
pub const SHARD_BYTES_MAX: u64 = 64 << 20;
/// Default shard size, bytes.
pub const SHARD_BYTES: u64 = 8 << 20;
/// Shard size of toy clusters (drives under 1 GiB), bytes.
pub const SHARD_BYTES_TOY: u64 = 1 << 20;
/// Most data shards and parity shards of one pack (design: any D 1..16, P 0..4).
pub const DATA_SHARDS_MAX: usize = 16;
/// Most parity shards of one pack.
pub const PARITY_SHARDS_MAX: usize = 4;
/// Logical bytes of the stripes that destage writes: 1 MiB.
pub const STRIPE_BYTES: usize = 1 << 20;
/// Virtual partitions of the universal space (12 bits).
pub const VP_COUNT: u16 = 4096;
/// Partitions of a cluster at most.
pub const PARTITIONS_MAX: u16 = 4096;
/// Log segment, bytes.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Staged bytes per partition above which small writes are held back to destage speed.
pub const STAGE_CAP_BYTES: u64 = 512 << 20;
/// Staged bytes per partition above which destage starts at once. The more is gathered, the more of one chunk moves
/// together: its base is written once for all of it, and what was overwritten meanwhile never moves. All of it, with
/// what comes while it moves, lies in the memory that a host keeps for it.
pub const DESTAGE_START_BYTES: u64 = 160 << 20;
/// Age above which staged bytes are destaged, milliseconds, once nothing more is written.
pub const DESTAGE_AGE_MS: u64 = 10_000;
/// While the partition is being written to, they may become so many times older.
pub const DESTAGE_AGE_BUSY: u64 = 6;
/// Nothing was written for so long: the partition is calm, and work that can wait is done now, milliseconds.
pub const CALM_MS: u64 = 2_000;
/// Slices of one chunk above which it is compacted: a reader looks through all of them.
pub const SLICES_PER_CHUNK_MAX: usize = 64;
/// Slices of one chunk above which it is compacted at once, not after [`CROWDED_MS`].
pub const SLICES_PER_CHUNK_URGENT: usize = 8 * SLICES_PER_CHUNK_MAX;
/// How long a chunk may have more than [`SLICES_PER_CHUNK_MAX`] slices, milliseconds: a burst of small writes
/// into one chunk is merged once and not after every ninth write.
pub const CROWDED_MS: u64 = 1_000;
/// What one slice counts beside its bytes towards the stage limits: its key, record and place in memory.
pub const SLICE_COST_BYTES: u64 = 256;
/// Writes of at least so many bytes go straight to the drives; smaller ones ride in the log: six shards with their
/// syncs cost more than half a MiB in one place.
pub const DIRECT_MIN: usize = 512 << 10;
/// Bytes that a client asks room for at once, at most.
pub const GRANT_BYTES_MAX: u64 = 16 << 20;
/// How long a range that was lent may be named in a commit, milliseconds; a client begins no write in it after half of
/// that time.
pub const GRANT_MS: u64 = 30_000;
/// Writes held back while the stage is full (each at most WRITE_MAX); more are sent back as busy.
pub const HELD_MAX: usize = 256;
/// How long a write is held back while there is no room to destage to, milliseconds: less than a client waits before
/// it gives up (30 s), so that a program is told of the lack of space.
pub const HELD_FULL_MS_MAX: u64 = 20_000;
/// How long a write is held back while flash of its file system is full and nothing leaves for the object store,
/// milliseconds: a store may be away for a moment.
pub const HELD_STORE_MS_MAX: u64 = 60_000;
/// Whose write is held back for that reason hears so after this, milliseconds, so that it does not give up.
pub const HELD_TOLD_MS: u64 = 5_000;
/// How long a write is held back while there is room and no move succeeds, milliseconds: its client has given up by
/// then, unless it waits longer than others.
pub const HELD_MS_MAX: u64 = 60_000;
/// Pieces of one write request: each becomes at most two slices of about 80 bytes in its log entry.
pub const WRITE_PARTS_MAX: usize = 1_024;
/// Bytes of a file that one layout may cover: 1 GiB, at most 1,024 chunks of 256 extents and the cuts in them.
pub const LAYOUT_BYTES_MAX: u64 = 1 << 30;
/// Chunks that one request brings back to flash or sends off it, at most: who wants more asks again.
pub const TIER_CHUNKS_MAX: usize = 16_384;
/// Logical bytes of one bulk move: 8 stripes.
pub const JOB_BYTES_MAX: usize = 8 * STRIPE_BYTES;

/// Most data of an object that is got with one request, bytes: pieces that lie side by side (decision 39).
pub const OBJECT_READ_MAX: u64 = 4 * CHUNK;
/// Bulk moves of one partition under way at once.
pub const JOBS_MAX: usize = 2;
/// Bytes of effects that the commit of one bulk move may have, estimated at planning: half of a record, because
/// pack records and hints come on top.
pub const JOB_META_MAX: usize = RECORD_META_MAX / 2;
/// Slices of one chunk that one merge consumes: bounds its deletes.
pub const MERGE_SLICES_MAX: usize = 2_000;
/// Chunks whose bytes a cut counts at once; beyond, cleanup counts them later.
pub const CUT_CHUNKS_MAX: usize = 32;
/// Free slots, per cent, below which packs that hold next to nothing are collected.
pub const GC_EARLY_PERCENT: u64 = 50;
/// Free slots in per cent of all below which garbage is collected while the partition is calm.
pub const GC_START_PERCENT: u64 = 20;
/// Free slots in per cent of all below which it is collected whatever else there is to do. As late as can be: the
/// longer a pack waits, the less of it is left to copy (a slot in twenty more in use saves a fifth of the copying at
/// 80 % full).
pub const GC_URGENT_PERCENT: u64 = 5;
/// Most operations that a drive target has under way; the next ones are answered `Busy`.
pub const DRIVE_OPS_MAX: usize = 4096;
/// Most memory for checksum tables of one drive: 64 MiB cover 43 GiB of recently used 8 MiB shards.
pub const DRIVE_TABLE_CACHE_BYTES: usize = 64 << 20;
/// A drive whose requests take longer than this is slow: new data goes to others, milliseconds. A healthy one under more
/// work than it can do stays below, so that what is slow is the drive and not the machine.
pub const DRIVE_SLOW_MS: u64 = 3_000;
/// A request that is under way for so long is not slow: it will not end, milliseconds. Systems give a request up after 30 s
/// and try again, so one that comes back does so before.
pub const DRIVE_HUNG_MS: u64 = 60_000;
/// How long a drive may take to be looked at, and again to open, when its host starts, milliseconds: one that is well does
/// it in a second or two, however large it is, and a system that gives a request up and tries again has done so by then. The
/// host starts without one that takes longer, and takes it in when it has opened.
pub const DRIVE_OPEN_WAIT_MS: u64 = 30_000;
/// How long a drive must be well after trouble before it gets new data again, milliseconds; doubles each time that it
/// comes back soon.
pub const DRIVE_CALM_MS: u64 = 10_000;
/// The most that comes of the doubling, milliseconds.
pub const DRIVE_CALM_MS_MAX: u64 = 120_000;
/// How long a dropped slot keeps its bytes unless space is needed, milliseconds.
pub const QUARANTINE_MS: u64 = 600_000;
/// Share of flash kept back from users, per cent.
pub const RESERVE_PERCENT: u64 = 10;
/// How long a client counts on its session and leases, from when it sent the last accepted heartbeat, milliseconds.
pub const SESSION_VALID_MS: u64 = 10_000;
/// How long a change with unknown outcome may still take effect, milliseconds: twice the patience of a session.
pub const DOUBT_MS: u64 = 60_000;
/// How long a partition keeps the session of a client that it does not hear of, milliseconds.
pub const SESSION_TTL_MS: u64 = 15_000;
/// Inode numbers that a client may have lent with one answer, for files that it makes before the partition hears of it.
pub const NUMBERS_MAX: u16 = 1_024;
/// Inode numbers that are kept with a new directory, for who makes files in it first. Who runs out waits for more, behind
/// all that was promised before; what nobody takes is lost, of 2^52.
pub const NUMBERS_WITH_DIR: u16 = NUMBERS_MAX;
/// Free bytes of a file system in a partition above which a client may hold small files back without asking for room.
/// One holds 16 MiB at most.
pub const ROOMY_BYTES: u64 = 256 << 20;
/// Files whose access times one message moves.
pub const ACCESSED_MAX: usize = 256;
/// How often a client sends a heartbeat to each partition that it has a session in, milliseconds.
pub const HEARTBEAT_MS: u64 = 5_000;
/// Operations without an answer that a heartbeat names: all files that a client promises, with as much again. 64 KiB.
pub const OPEN_NUMBERS_MAX: usize = 8_192;
/// How long a client may take to give a lease back; then its heartbeats are refused, milliseconds. With the time that
/// its session then still lasts it is less than others wait before they give up (30 s).
pub const RECALL_MS: u64 = 12_000;
/// How long a request may wait for others without being asked again by its client, milliseconds: a client that still
/// waits asks every ten seconds.
pub const ASKED_AGAIN_MS: u64 = 15_000;
/// Leases of one client in one partition; beyond, its answers come without.
pub const LEASES_PER_CLIENT_MAX: usize = 1 << 18;
/// Requests that wait for leases of others to come back; more are sent back as busy.
pub const RECALLED_WAITS_MAX: usize = 4_096;
/// What is said to be free in a file system without a bound whose cold data leaves flash, bytes: its bucket takes what comes,
/// and programs that look for room before they write are to find some.
pub const UNBOUNDED_FREE_BYTES: u64 = 1 << 50;
/// Bytes in an object store that nothing names, in per cent of those that are named: above the second they are reclaimed,
/// until they are below the first (as the reference system does it).
pub const RECLAIM_PERCENT: (u64, u64) = (7, 13);
/// Events that are asked for at a time, at most: each has a few texts of up to a KiB, and all of a host are one message.
pub const EVENTS_MAX: u32 = 1_000;
/// Objects of a partition that are told in one message: some 24 bytes each.
pub const OBJECTS_MAX: u32 = 10_000;
/// Objects that a partition says something about in one message, after its store was asked for each that should be there, all
/// at a time: a host is waited for two seconds.
pub const JUDGED_MAX: usize = 16;
/// Bytes per second that a drive is read with to check what lies there, unless something else is set.
pub const SCRUB_BYTES_PER_S: u64 = 128 << 20;
/// Clocks of two machines drift apart by at most this, per cent (design K31).
pub const DRIFT_PERCENT: u64 = 5;

const _: () = assert!(
    SESSION_VALID_MS * (100 + DRIFT_PERCENT) < SESSION_TTL_MS * (100 - DRIFT_PERCENT),
    "a client stops before its partition ends the session, however their clocks drift"
);
const _: () = assert!(HEARTBEAT_MS * 2 <= SESSION_VALID_MS, "one heartbeat may be lost");
const _: () = assert!(CHUNK.is_multiple_of(BLOCK as u64));
const _: () = assert!(WRITE_MAX as u64 <= CHUNK);
const _: () = assert!(SEGMENT_BYTES >= 16 * (WRITE_MAX + RECORD_META_MAX) as u64);
const _: () = assert!(DESTAGE_START_BYTES < STAGE_CAP_BYTES);
const _: () = assert!(WRITE_PARTS_MAX * 2 * 128 < RECORD_META_MAX);
const _: () = assert!(MERGE_SLICES_MAX * 33 < JOB_META_MAX);
const _: () = assert!(HELD_MAX as u64 * WRITE_MAX as u64 <= STAGE_CAP_BYTES);
const _: () = assert!(SHARD_BYTES.is_multiple_of(BLOCK as u64) && SHARD_BYTES <= SHARD_BYTES_MAX);
// sb and ul are 16 bits of 4 KiB blocks.
const _: () = assert!(SHARD_BYTES_MAX / BLOCK as u64 <= u16::MAX as u64);
