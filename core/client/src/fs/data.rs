//! Content: open, close, read, write.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_base::attr::{Attr, FileType};
use braid_base::ids::{Ino, PartitionId};
use braid_base::limits::{CHUNK, DIRECT_MIN, FILE_MAX, WRITE_MAX};
use braid_base::msg::fs::{Layout, Op, Reply};
use braid_base::record::Place;
use braid_base::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};

use super::Fs;
use crate::bodies::BODY_MAX;
use crate::idle::{IDLE_MS, Reference};
use crate::join::{both, join_bounded};
use crate::layouts::by_chunk;
use crate::reader::{OBJECTS_AT_ONCE, StageSource, check_layout, inline_of};
use crate::session::unexpected;

/// A file that is opened to read is read whole if it has no more bytes.
const SMALL_BYTES: u64 = 128 << 10;
/// Most bytes that one read returns; more is answered short.
pub const READ_MAX: u64 = 16 << 20;

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where the first byte landed.
    pub off: u64,
    /// Bytes written: fewer than given only at the largest file size or when a later part failed.
    pub len: u64,
    /// The attributes after it; not known yet if the bytes are held back.
    pub attr: Option<Attr>,
}

impl Fs {
    /// Takes an open reference of a file: its content then outlives its last name until [`Self::close`].
    /// With `truncate` its size becomes 0 in the same step. Errors: `NotFound`.
    pub async fn open(&self, ino: Ino, truncate: bool) -> Result<Attr> {
        let body = Op::Open { ino, truncate };
        if truncate {
            self.settle(ino).await?;
            return self.change_all("open", ino, body).await;
        }
        match self.open_without_a_word(ino) {
            Some(attr) => Ok(attr),
            None => self.ask_attr("open", body).await,
        }
    }

    /// Takes a reference that the partition need not hear of now.
    fn open_without_a_word(&self, ino: Ino) -> Option<Attr> {
        let (_, session) = self.lease(ino)?;
        let attr = self.known(ino)?;
        let leases = self.0.session.leases()?;
        if self.0.idle.take((ino, session)) {
            leases.had(self.0.fs, ino, session);
        } else if !leases.borrow(self.0.fs, ino) {
            return None;
        }
        Some(self.amended(attr))
    }

    /// As [`Self::open`] without `truncate`; if that has to be asked, so is where the bytes of a small file are, because
    /// they will be read.
    pub async fn open_to_read(&self, ino: Ino) -> Result<Attr> {
        if let Some(attr) = self.open_without_a_word(ino) {
            return Ok(attr);
        }
        let small = |attr: &Attr| attr.kind == FileType::File && (1..=SMALL_BYTES).contains(&attr.size);
        match self.known(ino).filter(small) {
            // In the server's process two answers would wake two threads, and nothing is won.
            Some(attr) if !self.0.session.shares_fate() && self.0.layouts.find(ino, 0, attr.size, true).is_none() => {
                let asked = both(self.open(ino, false), self.ask_chunks(ino, 0, attr.size, true));
                // Whoever reads asks again if that failed.
                Box::pin(asked).await.0
            }
            _ => self.open(ino, false).await,
        }
    }

    /// Gives an open reference back, in a while. What is dirty follows by itself; who wants to know how that ends asks
    /// [`Fs::flush`] before.
    pub async fn close(&self, ino: Ino) -> Result<()> {
        if self.0.promises.closed(ino) {
            return Ok(());
        }
        self.launch(self.0.behind.send(ino));
        let given = self.0.session.leases().map_or(Some((0, 0)), |leases| leases.give(self.0.fs, ino));
        let Some((session, opens)) = given else { return Ok(()) };
        if session == 0 {
            return self.ask_done("close", Op::Close { inos: vec![ino] }).await;
        }
        if self.afterwards().is_none() {
            return match self.ask_under(Some(session), Op::Close { inos: vec![ino] }).await {
                // It went with its session.
                Err(error) if error.kind() == ErrorKind::SessionLost => Ok(()),
                closed => closed.map(drop),
            };
        }
        if self.lease(ino).is_none() && opens > 0 {
            // Nobody would say that another client is about to remove it.
            self.close_later(vec![(ino, session)]);
            return Ok(());
        }
        self.close_later(self.0.idle.give((ino, session), opens, self.0.reader.wire().now_ms()));
        self.tend_idle();
        Ok(())
    }

    /// Gives references to the partitions that count them, beside everything else.
    pub(super) fn close_later(&self, references: Vec<Reference>) {
        let Some(background) = self.afterwards() else { return };
        let mut groups: BTreeMap<(PartitionId, u64), Vec<Ino>> = BTreeMap::new();
        for (ino, session) in references {
            groups.entry((self.0.session.home(ino), session)).or_default().push(ino);
        }
        for ((_, session), inos) in groups {
            let this = self.clone();
            background.spawn(Box::pin(async move { this.close_all(session, inos).await }));
        }
    }

    /// Gives references in one partition back, however long that takes.
    pub(super) async fn close_all(&self, session: u64, inos: Vec<Ino>) {
        if let Err(error) = self.ask_under(Some(session), Op::Close { inos }).await {
            // They went with the session, or will.
            tracing::debug!(%error, "open references could not be given back");
        }
    }

    fn tend_idle(&self) {
        let Some(background) = self.afterwards().filter(|_| self.0.idle.tend()) else { return };
        let this = self.clone();
        background.spawn(Box::pin(async move {
            let wire = this.0.reader.wire();
            while !this.0.idle.untended() {
                wire.sleep_ms(IDLE_MS / 2).await;
                this.close_later(this.0.idle.old(wire.now_ms().saturating_sub(IDLE_MS / 2)));
            }
        }));
    }

    /// All bytes of a small file, if they are in memory and stay true until watchers hear otherwise.
    pub fn at_hand(&self, ino: Ino) -> Option<Bytes> {
        self.lease(ino)?;
        let attr = self.known(ino).filter(|attr| (1..=BODY_MAX).contains(&attr.size))?;
        if self.0.behind.is_on() && self.0.behind.over(ino, 0, attr.size) != (Vec::new(), 0) {
            return None;
        }
        let (size, chunks) = self.0.layouts.find(ino, 0, attr.size, true)?;
        let [only] = &chunks[..] else { return None };
        inline_of(only, 0, size).filter(|_| size == attr.size)
    }

    /// A program reads what was [`Self::at_hand`]: what is likely to be read next comes, as it does with [`Self::read`].
    pub fn was_at_hand(&self, ino: Ino) {
        self.read_ahead(ino, true, true);
    }

    /// Bytes `[off, off+len)`, cut at the size of the file and at [`READ_MAX`]. What of them is in objects only comes back
    /// to flash, and what is likely to be read next with it. Errors: `Io` (bytes that cannot be
    /// had or reconstructed), `NotFound`.
    pub async fn read(&self, ino: Ino, off: u64, len: u64) -> Result<Bytes> {
        let len = len.min(READ_MAX);
        self.read_over(ino, off, len, self.read_below(ino, off, len, true)).await
    }

    /// What the cluster holds of it; with `recall`, what is in objects only is brought back.
    pub(super) async fn read_below(&self, ino: Ino, off: u64, len: u64, recall: bool) -> Result<Bytes> {
        match self.read_once(ino, off, len, recall).await {
            Err(error) if error.kind() == ErrorKind::Stale => {
                self.0.layouts.forget(ino, off, len);
                Box::pin(self.read_once(ino, off, len, recall)).await.map_err(|error| match error.kind() {
                    ErrorKind::Stale => Error::new(ErrorKind::Io, error.message().to_owned()),
                    _ => error,
                })
            }
            result => result,
        }
    }

    async fn read_once(&self, ino: Ino, off: u64, len: u64, recall: bool) -> Result<Bytes> {
        let known = self.lease(ino).and_then(|_| self.0.layouts.find(ino, off, len, recall));
        if off == 0 {
            let is_inline = |(_, chunks): &(u64, Vec<Arc<Layout>>)| chunks.iter().all(|chunk| !chunk.inline.is_empty());
            self.read_ahead(ino, known.as_ref().is_some_and(is_inline), recall);
        }
        let (size, chunks) = match known {
            Some(known) => known,
            // In a box, as all that most reads do without: their own future stays small.
            None => Box::pin(self.ask_chunks(ino, off, len, recall)).await?,
        };
        let end = off.saturating_add(len).min(size);
        if off >= end {
            return Ok(Bytes::new());
        }
        let (plain, ahead);
        let stage: &dyn StageSource = if recall {
            plain = self.stage(ino);
            &plain
        } else {
            ahead = self.ahead_stage(ino);
            &ahead
        };
        if let [only] = &chunks[..] {
            return self.0.reader.read_range(only, stage, off, end).await;
        }
        Box::pin(self.read_chunks(&chunks, stage, off, end)).await
    }

    /// Bytes `[off, end)`, which are in `chunks`.
    async fn read_chunks(&self, chunks: &[Arc<Layout>], stage: &dyn StageSource, off: u64, end: u64) -> Result<Bytes> {
        // Chunk after chunk: a read of several is a large one, and each keeps all drives busy by itself; not a store.
        let far = chunks.iter().flat_map(|chunk| &chunk.extents).any(|(_, e)| matches!(e.place, Place::Object(_)));
        let reads = (off / CHUNK..).zip(chunks).map(|(number, chunk)| {
            let (from, to) = ((number * CHUNK).max(off), ((number + 1) * CHUNK).min(end));
            self.0.reader.read_range(chunk, stage, from, to)
        });
        let mut out = BytesMut::with_capacity((end - off) as usize);
        for bytes in join_bounded(if far { OBJECTS_AT_ONCE } else { 1 }, reads.collect()).await {
            out.extend_from_slice(&bytes?);
        }
        Ok(out.freeze())
    }

    /// The first bytes of a file are wanted, and were there or not: fetches small files that are likely to be read
    /// next ([`crate::bodies`]).
    fn read_ahead(&self, ino: Ino, was_there: bool, recall: bool) {
        let Some(background) = self.0.background.as_ref().filter(|_| !self.0.session.shares_fate()) else { return };
        let files = self.0.bodies.read(ino, was_there);
        if !files.is_empty() {
            let this = self.clone();
            background.spawn(Box::pin(async move { this.fetch_bodies(files, recall).await }));
        }
    }

    /// Fetches a small file and keeps its bytes with its layout, as if they had come with that.
    pub(super) async fn fetch_body(&self, ino: Ino, recall: bool) {
        // Before the look at the lease: what changes after that one is gone is seen by the other.
        let asking = self.0.layouts.asking(ino, recall);
        let Some(attr) = self.known(ino).filter(|attr| attr.size <= BODY_MAX) else { return };
        let layout = match self.0.layouts.find(ino, 0, attr.size, recall) {
            Some((_, chunks)) => Ok((attr.size, chunks)),
            None => self.ask_chunks(ino, 0, attr.size, recall).await,
        };
        // Whoever reads it asks again, and hears what is wrong.
        let Ok((size, chunks)) = layout else { return };
        let [only] = &chunks[..] else { return };
        let Ok(bytes) = self.0.reader.read_range(only, &self.stage(ino), 0, size.min(attr.size)).await else { return };
        if self.lease(ino).is_some() {
            // A copy: what came may be part of a large frame.
            let inline = vec![(0, Bytes::copy_from_slice(&bytes))];
            self.0.layouts.keep(asking, size, 0, &[Arc::new(Layout { inline, ..(**only).clone() })]);
        }
    }

    /// Asks where `[off, off+len)` is, and remembers the layout of all chunks that it touches, if that may be remembered.
    pub(super) async fn ask_chunks(
        &self,
        ino: Ino,
        off: u64,
        len: u64,
        recall: bool,
    ) -> Result<(u64, Vec<Arc<Layout>>)> {
        if off >= FILE_MAX || len == 0 {
            return Ok((off, Vec::new()));
        }
        let (first, last) = (off / CHUNK, (off.saturating_add(len) - 1) / CHUNK);
        // Under one lease from the question on: an answer that was given without may be older than the next lease.
        let asking = self.lease(ino).map(|_| self.0.layouts.asking(ino, recall));
        let is_small = || self.known(ino).is_some_and(|attr| attr.size <= SMALL_BYTES);
        let asking = asking.filter(|asking| asking.may_keep() || is_small());
        // What is not to be remembered is asked for as narrow as it is wanted: all the staged bytes of a chunk would come along.
        let (from, to) = match asking {
            Some(_) => (first * CHUNK, (last + 1) * CHUNK),
            None => (off, off.saturating_add(len)),
        };
        let body = Op::Layout { ino, off: from, len: to - from, recall };
        let layout = self.ask_layout(body).await?;
        let end = off.saturating_add(len).min(layout.size);
        if off >= end {
            return Ok((layout.size, Vec::new()));
        }
        let chunks = by_chunk(&layout, first, (end - 1) / CHUNK - first + 1);
        if let Some(asking) = asking.filter(|_| self.lease(ino).is_some()) {
            self.0.layouts.keep(asking, layout.size, first, &chunks);
        }
        Ok((layout.size, chunks))
    }

    /// Where the bytes `[off, off+len)` are, fresh from the partition; nothing comes back because of it. At most
    /// `LAYOUT_BYTES_MAX` at a time.
    pub async fn layout(&self, ino: Ino, off: u64, len: u64) -> Result<Layout> {
        self.ask_layout(Op::Layout { ino, off, len, recall: false }).await
    }

    pub(super) async fn ask_layout(&self, body: Op) -> Result<Layout> {
        match self.ask(body).await? {
            Reply::Layout(layout) => {
                check_layout(&layout)?;
                Ok(layout)
            }
            other => Err(unexpected("layout", &other)),
        }
    }

    /// Writes `data` at `off`, or with `append` at the end of the file as the partition knows it. Durable after
    /// [`Fs::fsync`]. Up to 1 MiB is one step that others see whole. `kill_suid_sgid` also takes the set-id bits off.
    /// Errors: `FileTooBig`, `NoSpace`, `Quota`, `Io`; after a part of a large write succeeded, its length instead.
    pub async fn write(&self, ino: Ino, off: u64, data: Bytes, append: bool, kill_suid_sgid: bool) -> Result<Written> {
        let room = if append { FILE_MAX } else { FILE_MAX.saturating_sub(off) };
        if room == 0 && !data.is_empty() {
            return Err(Error::new(ErrorKind::FileTooBig, format!("a file has at most {FILE_MAX} bytes")));
        }
        let mut left = data.slice(..data.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        let mut whole: Option<Written> = None;
        if append {
            // Where the end is, is for the partition to say.
            self.settle(ino).await?;
            // Bytes that a program believes to be there are not: behind them this would land where it must not.
            if let Some(error) = self.0.losses.untold_bytes(ino) {
                return Err(error);
            }
        }
        while !left.is_empty() || whole.is_none() {
            let part = left.split_to(left.len().min(WRITE_MAX));
            let at = whole.as_ref().map_or(off, |done| done.off + done.len);
            match self.write_part(ino, at, part, append, kill_suid_sgid).await {
                Ok(done) => match &mut whole {
                    None => whole = Some(done),
                    // Another appender came between: what follows would not be at `off + len` any more.
                    Some(before) if append && done.off != before.off + before.len => {
                        tracing::debug!(%ino, "an append of several MiB was split by another one");
                        (before.len, before.attr) = (before.len + done.len, done.attr);
                    }
                    Some(before) => (before.len, before.attr) = (before.len + done.len, done.attr),
                },
                Err(error) => return whole.ok_or(error),
            }
        }
        Ok(whole.expect("the loop above runs at least once"))
    }

    async fn write_part(&self, ino: Ino, off: u64, data: Bytes, append: bool, kill: bool) -> Result<Written> {
        if let Some(off) = self.promise_content(ino, (!append).then_some(off), &data) {
            return Ok(Written { off, len: data.len() as u64, attr: None });
        }
        if !append
            && !data.is_empty()
            && let Some(done) = self.write_behind(ino, off, &data, kill).await?
        {
            return Ok(done);
        }
        if !append
            && data.len() >= DIRECT_MIN
            && let Some(done) =
                Box::pin(self.write_direct(ino, off, std::slice::from_ref(&data), (kill, None), None)).await
        {
            return done;
        }
        let len = data.len() as u64;
        let body = Op::Write { ino, parts: vec![(off, data)], append, kill_suid_sgid: kill, at: None };
        Box::pin(self.wrote("write", (ino, None), body, len)).await
    }

    /// Sends a write of `len` bytes; the session as of [`Self::ask_under`].
    pub(super) async fn wrote(&self, what: &str, of: (Ino, Option<u64>), body: Op, len: u64) -> Result<Written> {
        let changed = self.change(of, body, |reply| match reply {
            Reply::Wrote { off, attr } => Ok((off, len, attr)),
            other => Err(unexpected(what, &other)),
        });
        let (off, len, attr) = changed.await?;
        Ok(Written { off, len, attr: Some(self.amended(attr)) })
    }
}
