//! The file `replica.meta`: what a replica must never forget, in two blocks written in turn.

use braid_base::codec::{Reader, Writer};
use braid_base::crc::crc32c;
use braid_base::ids::{Guid, Index, PartitionId, Term};
use braid_base::limits::BLOCK;
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;

use super::LogIdent;
use super::buffer::AlignedBuffer;
use crate::config::Config;

const MAGIC: &[u8; 8] = b"BRAIDREP";
const FORMAT: u32 = 1;
/// Of a store whose view is on its way: an earlier release would take it for whole.
const FORMAT_IMPORTING: u32 = 2;
/// With a cut: an earlier release would take for records what does not count.
const FORMAT_CUT: u32 = 3;

/// `magic 8 | fmt u32 | seq u64 | cluster 16 | partition u16 | store 16 | term u64 | log start term u64,
/// index u64 | clean u8 (2: importing, format 2) | last index u64 | config len u32, config | format 3: cut term u64,
/// index u64 | crc u32`; blocks A at 0 and B at
/// 4096, the valid one with the higher `seq` counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaMeta {
    /// Whose store.
    pub ident: LogIdent,
    /// Highest term ever adopted; lower ones are refused (R1).
    pub term: Term,
    /// Last configuration known.
    pub config: Config,
    /// The log begins after this record.
    pub log_start: (Term, Index),
    /// Set when the store was closed in order: the log must reach this index.
    pub clean: Option<Index>,
    /// Records of terms before this one do not count beyond this index, even if the log still has them. (0, 0): all do.
    pub cut: (Term, Index),
    /// The view is on its way here: what the engine holds of it is worth nothing yet, and the log is empty.
    pub importing: bool,
    /// +1 with each write.
    pub seq: u64,
}

impl ReplicaMeta {
    /// The meta of a store that never saw anything.
    pub fn new(ident: LogIdent) -> Self {
        Self {
            ident,
            term: Term(0),
            config: Config::default(),
            log_start: (Term(0), Index(0)),
            clean: None,
            cut: (Term(0), Index(0)),
            importing: false,
            seq: 0,
        }
    }

    /// The next version: raises `seq` and gives the block and where it goes (0 or 4096).
    pub fn write(&mut self) -> (u64, Bytes) {
        self.seq += 1;
        let mut block = AlignedBuffer::new(BLOCK);
        block.put(&self.encode());
        ((self.seq % 2) * BLOCK as u64, block.finish())
    }

    /// Reads both blocks (8 KiB, or fewer if the file is shorter). `Ok(None)` if nothing was ever
    /// written; `Corrupt` if something was and neither block can be read.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let mut best: Option<Self> = None;
        for block in bytes.chunks(BLOCK).take(2) {
            let Some(meta) = Self::decode(block)? else { continue };
            if best.as_ref().is_none_or(|b| b.seq < meta.seq) {
                best = Some(meta);
            }
        }
        if best.is_none() && bytes.iter().any(|b| *b != 0) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "replica.meta: neither of its two blocks can be read: put the right file back, or rebuild the replica as \
                 a new store from the other members if there are any",
            ));
        }
        Ok(best)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(BLOCK);
        let is_cut = self.cut != (Term(0), Index(0));
        let format = match (self.importing, is_cut) {
            (true, _) => FORMAT_IMPORTING, // its log is empty
            (false, true) => FORMAT_CUT,
            (false, false) => FORMAT,
        };
        out.put_raw(MAGIC).put_u32(format).put_u64(self.seq).put_raw(&self.ident.cluster.0);
        out.put_u16(self.ident.partition.0).put_raw(&self.ident.store.0).put_u64(self.term.0);
        out.put_u64(self.log_start.0.0).put_u64(self.log_start.1.0);
        let state = if self.importing { 2 } else { u8::from(self.clean.is_some()) };
        out.put_u8(state).put_u64(self.clean.unwrap_or_default().0);
        let mut config = Writer::new();
        self.config.encode(&mut config);
        out.put_bytes(&config.finish());
        if format == FORMAT_CUT {
            out.put_u64(self.cut.0.0).put_u64(self.cut.1.0);
        }
        let mut bytes = out.finish();
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        assert!(bytes.len() <= BLOCK, "a configuration of {} members fits a block", self.config.members.len());
        bytes
    }

    /// `None` if the block is damaged or empty.
    fn decode(block: &[u8]) -> Result<Option<Self>> {
        Self::parse(block).or_else(|e| if e.kind() == ErrorKind::Corrupt { Ok(None) } else { Err(e) })
    }

    fn parse(block: &[u8]) -> Result<Option<Self>> {
        let mut from = Reader::new(block);
        let magic: [u8; 8] = from.array()?;
        let format = from.u32()?;
        if &magic == MAGIC && format > FORMAT_CUT {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "replica.meta: expected format {FORMAT_CUT} or older, found {format}; use the release that wrote it"
                ),
            ));
        }
        let seq = from.u64()?;
        let cluster = Guid(from.array()?);
        let ident = LogIdent { cluster, partition: PartitionId(from.u16()?), store: Guid(from.array()?) };
        let term = Term(from.u64()?);
        let log_start = (Term(from.u64()?), Index(from.u64()?));
        let (state, last) = (from.u8()?, Index(from.u64()?));
        let config = Config::decode(&mut Reader::new(from.bytes()?))?;
        let cut = if format == FORMAT_CUT { (Term(from.u64()?), Index(from.u64()?)) } else { Default::default() };
        let covered = block.len() - from.remaining();
        if &magic != MAGIC || from.u32()? != crc32c(&block[..covered]) {
            return Ok(None);
        }
        let clean = (state == 1).then_some(last);
        Ok(Some(Self { ident, term, config, log_start, clean, cut, importing: state == 2, seq }))
    }
}
