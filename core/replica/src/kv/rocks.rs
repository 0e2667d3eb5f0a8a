//! RocksDB as the engine of a host: no write-ahead log, because the partitions' logs are one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_base::{Error, ErrorKind, Result, keys};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, FlushOptions, LruCacheOptions, Options,
    ReadOptions, SliceTransform, WriteBatch, WriteOptions,
};

use super::Kv;
use super::batch::{Batch, Change};

/// `partition u16 | table u8 | fs u32 | ino u64`: all that belongs to one inode shares it.
const PREFIX_BYTES: usize = 15;
/// Four shards of the block cache: partitions seldom look at the same moment.
const CACHE_SHARD_BITS: i32 = 2;

/// Memory bounds of the engine.
#[derive(Clone, Copy, Debug)]
pub struct RocksOptions {
    /// All write buffers together, bytes.
    pub write_buffer_bytes: usize,
    /// Cache of uncompressed blocks, with index and filter blocks in it, bytes.
    pub block_cache_bytes: usize,
    /// Most files held open.
    pub open_files_max: i32,
    /// Threads for flush and compaction.
    pub background_jobs: i32,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self { write_buffer_bytes: 64 << 20, block_cache_bytes: 128 << 20, open_files_max: 512, background_jobs: 2 }
    }
}

/// One database per host.
pub struct RocksKv {
    db: DB,
    path: PathBuf,
    write: WriteOptions,
    /// Set by the first failed write or flush: what the engine holds is unknown from then on.
    poisoned: AtomicBool,
    /// The first damage that was met.
    damage: OnceLock<Error>,
}

impl RocksKv {
    /// Opens the database in `path`, creates it if the directory is empty or absent. Checks every
    /// table file it knows of for presence and size; the message of an error says what to do.
    pub fn open(path: &Path, options: RocksOptions) -> Result<Self> {
        let mut database = database_options(&options);
        // The library would begin anew over the remains of a damaged one, and delete them.
        database.create_if_missing(!has_tables(path)?);
        let db = DB::open(&database, path).map_err(|e| open_error(path, &e))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Self { db, path: path.to_path_buf(), write, poisoned: AtomicBool::new(false), damage: OnceLock::new() })
    }

    /// A failure leaves unknown what the engine holds, except a lack of room: then it has taken nothing, and goes on
    /// by itself when there is some.
    fn guarded(&self, doing: &str, result: std::result::Result<(), rocksdb::Error>) -> Result<()> {
        result.map_err(|e| {
            let error = self.error(doing, &e);
            if error.kind() != ErrorKind::NoSpace {
                self.poisoned.store(true, Ordering::SeqCst);
            }
            error
        })
    }

    fn refuse_if_poisoned(&self) -> Result<()> {
        if !self.poisoned.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Stopped,
            format!(
                "metadata store {}: an earlier write failed; restart the host after its volume works again",
                self.path.display()
            ),
        ))
    }

    fn error(&self, doing: &str, error: &rocksdb::Error) -> Error {
        let what = format!("metadata store {}: {doing}: {error}", self.path.display());
        // A sector that cannot be read is as bad as one that reads wrong.
        if !matches!(kind(error), ErrorKind::Corrupt | ErrorKind::Io) {
            return Error::new(kind(error), what);
        }
        let damage = Error::new(kind(error), format!("{what}; {}", way_out(&self.path)));
        self.damage.get_or_init(|| damage.clone());
        damage
    }
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(|e| self.error("reading a key", &e))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(to);
        // Within one inode the filters can rule out whole files; across inodes they would hide keys.
        let one_inode = from.len() >= PREFIX_BYTES && to <= keys::prefix_end(&from[..PREFIX_BYTES]).as_slice();
        read.set_total_order_seek(!one_inode);
        read.set_prefix_same_as_start(one_inode);
        let mut at = self.db.raw_iterator_opt(read);
        at.seek(from);
        while let Some((key, value)) = at.item() {
            if !visit(key, value) {
                return Ok(());
            }
            at.next();
        }
        at.status().map_err(|e| self.error("scanning keys", &e))
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        self.refuse_if_poisoned()?;
        let mut out = WriteBatch::default();
        for change in batch.changes() {
            match change {
                Change::Put(key, value) => out.put(key, value),
                Change::Delete(key) => out.delete(key),
            }
        }
        self.guarded("writing a batch", self.db.write_opt(out, &self.write))
    }

    fn flush(&self) -> Result<()> {
        self.refuse_if_poisoned()?;
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.guarded("flushing", self.db.flush_opt(&flush))
    }

    fn damage(&self) -> Option<Error> {
        self.damage.get().cloned()
    }
}

fn database_options(options: &RocksOptions) -> Options {
    let mut out = Options::default();
    out.set_paranoid_checks(true);
    out.set_atomic_flush(true);
    out.set_compression_type(DBCompressionType::Lz4);
    // Two buffers: one takes writes while the other is flushed.
    out.set_db_write_buffer_size(options.write_buffer_bytes);
    out.set_write_buffer_size(options.write_buffer_bytes / 2);
    out.set_max_write_buffer_number(2);
    out.set_max_background_jobs(options.background_jobs);
    out.set_max_open_files(options.open_files_max);
    out.set_level_compaction_dynamic_level_bytes(true);
    out.set_bytes_per_sync(1 << 20);
    out.set_keep_log_file_num(4);
    out.set_max_log_file_size(4 << 20);
    out.set_max_manifest_file_size(16 << 20);
    out.set_stats_dump_period_sec(0);
    out.set_prefix_extractor(SliceTransform::create_fixed_prefix(PREFIX_BYTES));
    out.set_memtable_prefix_bloom_ratio(0.1);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache(options.block_cache_bytes));
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    // Filters and indexes in blocks of 4 KiB. As one block each they reach megabytes with a million names in a
    // file, fit no shard of the cache, and every single look-up would read and check them anew.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4096);
    table.set_pin_top_level_index_and_filter(true);
    table.set_format_version(5);
    out.set_block_based_table_factory(&table);
    out
}

/// A cache in a few large shards: by itself the library makes shards of half a megabyte, and what is larger than
/// its shard is never kept.
fn cache(bytes: usize) -> Cache {
    let mut options = LruCacheOptions::default();
    options.set_capacity(bytes);
    options.set_num_shard_bits(CACHE_SHARD_BITS);
    Cache::new_lru_cache_opts(&options)
}

/// True if table files lie there: everything that was ever flushed is in some. `Io` if it cannot be looked at.
fn has_tables(path: &Path) -> Result<bool> {
    match std::fs::read_dir(path) {
        Ok(mut entries) => {
            Ok(entries.any(|entry| entry.is_ok_and(|e| e.path().extension().is_some_and(|x| x == "sst"))))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::os(format_args!("metadata store {}", path.display()), &error)),
    }
}

/// What to do about a damaged database: the logs say the same, as far back as they go.
fn way_out(path: &Path) -> String {
    let path = path.display();
    format!(
        "put a whole copy of {path} back, or stop, move it aside (mv {path} {path}.damaged) and start again: it is \
         rebuilt if the logs still have their first entries, and refused without harm if not"
    )
}

fn open_error(path: &Path, error: &rocksdb::Error) -> Error {
    // The lock file of a running process shows up as an I/O error; only its text tells.
    let says = |words| error.as_ref().contains(words);
    let is_held = error.kind() == rocksdb::ErrorKind::IOError && (says("lock file") || says("lock hold"));
    let kind = if is_held { ErrorKind::Refused } else { kind(error) };
    let way_out = match kind {
        ErrorKind::Corrupt => format!("files are missing or damaged: {}", way_out(path)),
        ErrorKind::Refused => "another process holds it: stop that one first".to_owned(),
        _ => "check that the volume is mounted, writable and not full".to_owned(),
    };
    Error::new(kind, format!("metadata store {}: cannot open: {error}; {way_out}", path.display()))
}

fn kind(error: &rocksdb::Error) -> ErrorKind {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => ErrorKind::Corrupt,
        // Table files without the file that names them.
        rocksdb::ErrorKind::InvalidArgument if error.as_ref().contains("does not exist") => ErrorKind::Corrupt,
        // A file named by the manifest that is not there.
        rocksdb::ErrorKind::IOError if error.as_ref().contains("No such file") => ErrorKind::Corrupt,
        rocksdb::ErrorKind::IOError if error.as_ref().contains("No space") => ErrorKind::NoSpace,
        rocksdb::ErrorKind::Busy | rocksdb::ErrorKind::TryAgain => ErrorKind::Busy,
        rocksdb::ErrorKind::ShutdownInProgress => ErrorKind::Stopped,
        _ => ErrorKind::Io,
    }
}
