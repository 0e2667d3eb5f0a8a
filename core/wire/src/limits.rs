//! The bounds of a connection.

use braid_base::limits::{HEARTBEAT_MS, SESSION_TTL_MS};

/// Connections of a client to one server: one for what is small, so that it does not wait behind bulk, the others for bulk.
pub const CONNECTIONS: usize = 4;
/// The number of a connection that stands beside those of the pool of its host.
pub const CHANNEL_BESIDE: u8 = 255;
/// Messages with at least so many bytes of data, asked for or sent along, count as bulk.
pub const BULK_MIN: usize = 32 << 10;
/// Longest meta part: a layout of a whole GiB in its worst shape takes 9 MB.
pub const META_MAX: usize = 16 << 20;
/// Longest data part: far above a write (1 MiB), a shard's blocks and the staged bytes that come with a layout.
pub const DATA_MAX: usize = 64 << 20;
/// Longest frame before the handshake is done.
pub const HELLO_MAX: usize = 8 << 10;
/// Bytes handed to the kernel at once: they are still in the processor's cache when it copies them.
pub const WRITE_AT_ONCE: usize = 256 << 10;
/// Pieces handed to the kernel at once.
pub const PIECES_AT_ONCE: usize = 64;
/// Bytes read at once where no large message is awaited: many small messages, and not too much of a large one, which
/// has to be copied to its own place.
pub const READ_AT_ONCE: usize = 16 << 10;
/// Whoever waits for the rest of a large message is woken when so many bytes of it are there, or all: each waking costs
/// as much as copying 40 KiB.
pub const WAKE_FROM_MAX: usize = 128 << 10;
/// A shorter rest is waited for without saying so.
pub const WAKE_FROM_MIN: usize = 32 << 10;
/// Bytes that wait to be sent on a connection of a client; who wants to send more waits.
pub const QUEUE_MAX: usize = 16 << 20;
/// Bytes of requests under way and of answers to them on a connection of the server; beyond, it reads no more.
pub const SERVED_MAX: usize = 64 << 20;
/// Bytes of unasked messages that a client may leave unread; beyond, its connection is closed.
pub const PUSHED_MAX: usize = 8 << 20;
/// Requests on a connection up to which each is sent by its own thread at once; more are worth collecting.
pub const EAGER_MAX: usize = 2;
/// Largest message that is sent by the thread that made it.
pub const EAGER_BYTES_MAX: usize = 16 << 10;
/// Bytes of a burst that are sent by the thread that ran it.
pub const BURST_BYTES_MAX: usize = 96 << 10;
/// Time for a connection to stand and the handshake to be done, milliseconds.
pub const HELLO_MS: u64 = 5_000;
/// Time for a connection to stand where there may be another way, milliseconds: the system asks again once, after 1 s.
pub const CONNECT_MS: u64 = 1_500;
/// Hosts that are asked to relay one after the other, before a direct connection is tried again.
pub const RELAYS_TRIED: usize = 4;
/// First pause after none of them reaches the host either, milliseconds; doubled each time.
pub const RELAY_PAUSE_FIRST_MS: u64 = 250;
/// Longest such pause: of a host that is down all others are asked.
pub const RELAY_PAUSE_MAX_MS: u64 = 8_000;
/// Bytes that are relayed at once.
pub const CARRIED_AT_ONCE: usize = 64 << 10;
/// Bytes that wait to be relayed, at most.
pub const CARRIED_MAX: usize = 1 << 20;
/// After this long without a word from the other side a client or host asks whether it is there.
pub const PING_MS: u64 = 2_500;
/// After this long without a word in spite of that the connection is given up: soon enough for a new one, by way of
/// another host if need be, to extend the session before it ends.
pub const SILENCE_MS: u64 = 6_000;
/// A server gives up a connection on which nothing came for so long: whoever is there asks every [`PING_MS`].
pub const ABSENT_MS: u64 = 60_000;
/// Connections of a server that have not said yet who they are, at most.
pub const STRANGERS_MAX: usize = 512;
/// First pause before a connection is tried again, milliseconds; doubled each time.
pub const BACKOFF_FIRST_MS: u64 = 10;
/// Longest such pause.
pub const BACKOFF_MAX_MS: u64 = 1_000;
/// A map of the cluster is asked for again at least this often, milliseconds.
pub const MAP_MS: u64 = 1_000;
/// And not more often than this, however many hear that somebody moved.
pub const MAP_MS_MIN: u64 = 50;
/// This often it is asked for when somebody was asked in vain,
pub const MAP_MS_OFTEN: u64 = 100;
/// so many times.
pub const OFTEN: u32 = 40;
/// When one host has said what it knows, the others have so long.
pub const STRAGGLERS_MS: u64 = 200;
/// How long a host may take to say what it knows.
pub const HOST_MS: u64 = 2_000;
/// How long a question to a drive outlives broken connections: asking again does no harm, and reads have no other
/// patience with the only server, which starts anew. (With several there are other shards to read.)
pub const DRIVE_PATIENCE_MS: u64 = 25_000;

const _: () = assert!(BULK_MIN > EAGER_BYTES_MAX && QUEUE_MAX > WRITE_AT_ONCE);
const _: () = assert!(HELLO_MAX < READ_AT_ONCE && PING_MS < SILENCE_MS && SILENCE_MS < SESSION_TTL_MS);
const _: () = assert!(ABSENT_MS > SILENCE_MS + PING_MS && CONNECTIONS <= CHANNEL_BESIDE as usize);
const _: () = assert!(2 * CONNECT_MS < HELLO_MS);
const _: () = assert!(HEARTBEAT_MS + SILENCE_MS + PING_MS / 2 + CONNECT_MS < SESSION_TTL_MS);
const _: () = assert!(META_MAX + DATA_MAX < u32::MAX as usize);
