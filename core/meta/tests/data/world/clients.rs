//! The clients of the world: what they ask at random, and what they must read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use braid_base::ErrorKind;
use braid_base::attr::{FileType, SetAttr};
use braid_base::ids::{Ino, OpId};
use braid_base::limits::{BLOCK, CHUNK};
use braid_base::msg::fs::{Cred, FallocMode, FsResult, Laid, Layout, Op, Reply, Request};
use braid_base::record::{Place, StripeAt};
use braid_meta::{Event, Token};
use bytes::Bytes;

use super::{CLIENT, FS, World, root};
use crate::model::{Act, File, PAGE};

/// Writes that clients wait for.
#[derive(Default)]
pub struct Asked {
    bodies: HashMap<OpId, Op>,
    /// Those that were asked more than once.
    again: HashMap<Token, OpId>,
    /// Those of which it was said that they wait.
    told: Vec<OpId>,
}

impl World {
    pub fn request(&mut self, body: Op, act: Act) -> Result<(OpId, Token), String> {
        self.seq += 1;
        let op = OpId { client: CLIENT, seq: self.seq };
        let token = Token(self.seq);
        self.acts.insert(op, act);
        if matches!(body, Op::Write { .. }) {
            self.asked.bodies.insert(op, body.clone());
        }
        let request = Request { op, session: 0, done_upto: 0, fs: FS, cred: Cred::default(), early: false, body };
        self.send(token, request)?;
        Ok((op, token))
    }

    /// Asks the same once more: its client still waits.
    pub fn again(&mut self, op: OpId, body: Op) -> Result<Token, String> {
        self.seq += 1;
        let token = Token(self.seq);
        self.asked.again.insert(token, op);
        let request = Request { op, session: 0, done_upto: 0, fs: FS, cred: Cred::default(), early: false, body };
        self.send(token, request)?;
        Ok(token)
    }

    /// Alone, or with what comes next.
    fn send(&mut self, token: Token, request: Request) -> Result<(), String> {
        let event = if self.chance.percent(50) { Event::Gather } else { Event::Request };
        self.feed(event(token, request))
    }

    /// Whoever was told that a write waits asks for it again, or is gone.
    pub fn ask_again(&mut self) -> Result<(), String> {
        for op in std::mem::take(&mut self.asked.told) {
            if let Some(body) = self.asked.bodies.get(&op).cloned()
                && !(self.wish.chaos && self.chance.percent(10))
            {
                self.again(op, body)?;
            }
        }
        Ok(())
    }

    pub fn answered(&mut self, token: Token, result: FsResult) -> Result<(), String> {
        let op = self.asked.again.get(&token).copied().unwrap_or(OpId { client: CLIENT, seq: token.0 });
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Held) {
            self.met.insert("a write told that it waits");
            self.asked.told.push(op);
            self.replies.insert(token, result);
            return Ok(());
        }
        let act = self.acts.remove(&op);
        if let (Some(off), Ok(Reply::Wrote { off: found, .. })) = (self.landed.remove(&op), &result)
            && off != *found
        {
            return Err(format!("{act:?} landed at {found}, expected {off}"));
        }
        if let (Some(act), Err(error)) = (&act, &result) {
            // Only a file that went away meanwhile, or a full stage (which the drives may not take), may refuse.
            let gone = matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound);
            let full = matches!(error.kind(), ErrorKind::Busy | ErrorKind::NoSpace | ErrorKind::Io)
                && (self.wish.cap_bytes < 1 << 20 || self.wish.tiered);
            if !gone && !full {
                return Err(format!("{act:?}: {error:?}").chars().take(300).collect());
            }
        }
        self.replies.insert(token, result);
        Ok(())
    }

    /// Asks and waits for the answer.
    pub fn sync(&mut self, body: Op, act: Act) -> Result<FsResult, String> {
        let (_, token) = self.request(body, act)?;
        self.commit(usize::MAX)?;
        self.replies.remove(&token).ok_or(format!("no answer to {token:?} although all is committed"))
    }

    pub fn create(&mut self) -> Result<(), String> {
        let name = format!("f{}", self.seq).into_bytes();
        let body = Op::Create {
            dir: root(),
            name: name.clone(),
            kind: FileType::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            target: Vec::new(),
            open: false,
            told: None,
            want: 0,
        };
        match self.sync(body, Act::Other)? {
            Ok(Reply::Entry { ino, .. }) => {
                self.model.files.insert(ino, File::new(name));
                Ok(())
            }
            other => Err(format!("create: {other:?}")),
        }
    }

    pub fn some_file(&mut self) -> Option<Ino> {
        let files: Vec<Ino> = self.model.files.keys().copied().collect();
        (!files.is_empty()).then(|| files[self.chance.below(files.len() as u64) as usize])
    }

    /// An operation that is refused; nothing may change.
    pub fn sync_expecting_refusal(&mut self, body: Op) -> Result<FsResult, String> {
        self.seq += 1;
        let (op, token) = (OpId { client: CLIENT, seq: self.seq }, Token(self.seq));
        let request = Request { op, session: 0, done_upto: 0, fs: FS, cred: Cred::default(), early: false, body };
        self.feed(Event::Request(token, request))?;
        self.commit(usize::MAX)?;
        self.replies.remove(&token).ok_or(format!("no answer to {token:?} although all is committed"))
    }

    /// Takes a file's only name.
    pub fn unlink_file(&mut self, ino: Ino) -> Result<(), String> {
        let name = self.model.files[&ino].name.clone();
        self.sync(Op::Unlink { dir: root(), name, told: None, alone: false }, Act::Unlink { ino })?
            .map(drop)
            .map_err(|e| e.to_string())
    }

    pub fn unlink(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        let file = &self.model.files[&ino];
        if file.linked {
            self.request(
                Op::Unlink { dir: root(), name: file.name.clone(), told: None, alone: false },
                Act::Unlink { ino },
            )?;
        }
        Ok(())
    }

    pub fn open_or_close(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        if self.opens.contains_key(&ino) && self.chance.percent(50) {
            return self.close(ino);
        }
        match self.sync(Op::Open { ino, truncate: false }, Act::Other)? {
            Ok(_) => *self.opens.entry(ino).or_default() += 1,
            Err(error) => return Err(format!("open {ino}: {error}")),
        }
        Ok(())
    }

    pub fn close(&mut self, ino: Ino) -> Result<(), String> {
        self.sync(Op::Close { inos: vec![ino] }, Act::Other)?.map_err(|e| e.to_string())?;
        let count = self.opens.entry(ino).or_default();
        *count -= 1;
        if *count == 0 {
            self.opens.remove(&ino);
        }
        self.forget_gone();
        Ok(())
    }

    /// Files without a name and without an open reference are gone for everyone.
    pub fn forget_gone(&mut self) {
        let opens = &self.opens;
        self.model.files.retain(|ino, file| file.linked || opens.contains_key(ino));
    }

    pub fn some_place(&mut self) -> u64 {
        let base = [0, 0, CHUNK - 5_000, 2 * CHUNK - 3_000, 5 * CHUNK][self.chance.below(5) as usize];
        let off = base + self.chance.below(20_000);
        if self.chance.percent(30) { off / PAGE * PAGE } else { off }
    }

    pub fn some_bytes(&mut self) -> Vec<u8> {
        let len = match self.chance.below(4) {
            0 => 1 + self.chance.below(40),
            1 => PAGE * (1 + self.chance.below(3)),
            _ => 1 + self.chance.below(9_000),
        };
        let first = self.chance.below(251);
        (0..len).map(|i| ((first + i * 7) % 251 + 1) as u8).collect()
    }

    /// A step of a large write: asks for room, writes a stripe, or commits one, perhaps late, perhaps again.
    fn direct(&mut self, ino: Ino) -> Result<(), String> {
        let bytes = 1 + self.chance.below(300_000);
        match self.chance.below(8) {
            n if n == 0 || self.space.is_empty() && self.laid.is_empty() => {
                let back = self.give_up();
                match self.sync(Op::GetSpace { ino, bytes, back }, Act::Other)? {
                    Ok(Reply::Space(lent)) => {
                        lent.iter().try_for_each(|(at, place)| self.lend(*at, place))?;
                        self.space.extend(lent);
                        Ok(())
                    }
                    other => Err(format!("space: {other:?}")),
                }
            }
            1..=3 => {
                if !self.space.is_empty() {
                    let which = self.chance.below(self.space.len() as u64) as usize;
                    self.lay(which);
                }
                Ok(())
            }
            _ if self.laid.is_empty() => Ok(()),
            n => {
                let which = self.chance.below(self.laid.len() as u64) as usize;
                let (laid, bytes) = if n == 4 { self.laid[which].clone() } else { self.laid.swap_remove(which) };
                let off = self.some_place();
                let body = Op::CommitWrite { ino, off, stripes: vec![laid], kill_suid_sgid: false, at: None };
                self.request(body, Act::Write { ino, parts: vec![(off, bytes)], append: false }).map(drop)
            }
        }
    }

    /// Now and then the rest of a range, which is written no more, and a stripe, which may still be named: in vain.
    fn give_up(&mut self) -> Vec<StripeAt> {
        let mut back = Vec::new();
        if !self.space.is_empty() && self.chance.percent(50) {
            let which = self.chance.below(self.space.len() as u64) as usize;
            back.push(self.space.swap_remove(which).0);
        }
        if !self.laid.is_empty() && self.chance.percent(20) {
            let which = self.chance.below(self.laid.len() as u64) as usize;
            back.push(self.laid[which].0.at);
        }
        back
    }

    /// A large write at `off` of as much of `bytes` as room is lent for now; how much that was.
    pub fn write_laid(&mut self, ino: Ino, off: u64, bytes: &[u8]) -> Result<usize, String> {
        let asked = self.sync(Op::GetSpace { ino, bytes: bytes.len() as u64, back: Vec::new() }, Act::Other)?;
        let Ok(Reply::Space(lent)) = asked else { return Err(format!("space: {asked:?}")) };
        let (mut stripes, mut done) = (Vec::new(), 0);
        for (at, place) in lent {
            self.lend(at, &place)?;
            let whole = usize::from(place.data) * usize::from(at.ul) * BLOCK;
            let mut padded = bytes[done..bytes.len().min(done + whole)].to_vec();
            if padded.is_empty() {
                continue;
            }
            stripes.push(Laid { at, epoch: place.epoch, len: padded.len() as u32 });
            done += padded.len();
            padded.resize(whole, 0);
            self.flash.insert((at.pack, at.sb), (at.ul, padded));
        }
        if done > 0 {
            let body = Op::CommitWrite { ino, off, stripes, kill_suid_sgid: false, at: None };
            let act = Act::Write { ino, parts: vec![(off, bytes[..done].to_vec())], append: false };
            self.sync(body, act)?.map_err(|e| e.to_string())?;
        }
        Ok(done)
    }

    /// Writes a stripe into the front of a range; what a drive does not take is never committed.
    fn lay(&mut self, which: usize) {
        let bytes = self.some_bytes();
        let (range, place) = &mut self.space[which];
        let width = usize::from(place.data) * BLOCK;
        let ul = bytes.len().div_ceil(width) as u16;
        if ul > range.ul {
            self.space.swap_remove(which);
            return;
        }
        let (at, place) = (StripeAt { ul, ..*range }, place.clone());
        (range.sb, range.ul) = (range.sb + ul, range.ul - ul);
        if self.chance.percent(10) || !self.is_there(at.pack, &place) {
            return;
        }
        let mut padded = bytes.clone();
        padded.resize(width * usize::from(ul), 0);
        self.flash.insert((at.pack, at.sb), (ul, padded));
        self.laid.push((Laid { at, epoch: place.epoch, len: bytes.len() as u32 }, bytes));
    }

    pub fn change(&mut self) -> Result<(), String> {
        let Some(ino) = self.some_file() else { return Ok(()) };
        if self.chance.percent(25) {
            return self.direct(ino);
        }
        match self.chance.below(20) {
            0..=2 => {
                let size = if self.chance.percent(30) { 0 } else { self.some_place() };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.request(Op::SetAttr { ino, set }, Act::Truncate { ino, size })?;
            }
            3..=5 => {
                let (from, len) = (self.some_place(), 1 + self.chance.below(3 * CHUNK / 2));
                let zero = self.chance.percent(50);
                let keep_size = self.chance.percent(50) || !zero;
                let mode = if zero { FallocMode::Zero } else { FallocMode::Punch };
                let act = Act::Hole { ino, from, to: from + len, extend: !keep_size };
                self.request(Op::Fallocate { ino, off: from, len, mode, keep_size }, act)?;
            }
            6 => {
                let (off, len) = (self.some_place(), 1 + self.chance.below(CHUNK));
                let body = Op::Fallocate { ino, off, len, mode: FallocMode::Allocate, keep_size: false };
                self.request(body, Act::Extend { ino, to: off + len })?;
            }
            7 => {
                // One small piece in each of many chunks: more than a cut counts at once.
                let parts: Vec<_> = (0..40).map(|n| (n * CHUNK + 77, vec![n as u8 + 1; 10])).collect();
                self.write(ino, parts, false)?;
            }
            n => {
                let count = if self.chance.percent(20) { 3 } else { 1 };
                let parts: Vec<_> = (0..count).map(|_| (self.some_place(), self.some_bytes())).collect();
                let append = n == 8 && count == 1;
                self.write(ino, parts, append)?;
            }
        }
        Ok(())
    }

    pub fn write(&mut self, ino: Ino, parts: Vec<(u64, Vec<u8>)>, append: bool) -> Result<(), String> {
        let parts: Vec<_> = if append { parts.into_iter().map(|(_, bytes)| (0, bytes)).collect() } else { parts };
        let sent = parts.iter().map(|(off, bytes)| (*off, Bytes::from(bytes.clone()))).collect();
        let body = Op::Write { ino, parts: sent, append, kill_suid_sgid: false, at: None };
        self.request(body, Act::Write { ino, parts, append }).map(drop)
    }

    pub fn read_one(&mut self) -> Result<(), String> {
        self.some_file().map_or(Ok(()), |ino| self.read(ino))
    }

    /// Reads a whole file and compares it with the model.
    pub fn read(&mut self, ino: Ino) -> Result<(), String> {
        self.read_range(ino, 0, u64::MAX)
    }

    /// Reads a part of a file and compares it with the model. `off` is at a page.
    pub fn read_range(&mut self, ino: Ino, off: u64, len: u64) -> Result<(), String> {
        let layout = match self.sync(Op::Layout { ino, off, len, recall: true }, Act::Other)? {
            Ok(Reply::Layout(layout)) => layout,
            other => return Err(format!("layout of {ino}: {other:?}")),
        };
        let file = &self.model.files[&ino];
        if layout.size != file.size {
            return Err(format!("{ino} has {} bytes, expected {}", layout.size, file.size));
        }
        let pages = self.read_pages(&layout)?;
        let numbers: BTreeSet<u64> = pages.keys().copied().chain(file.pages()).collect();
        let end = off.saturating_add(len).min(file.size);
        for number in numbers.into_iter().filter(|number| (off..end).contains(&(number * PAGE))) {
            let mut expected = file.page(number);
            expected.truncate((file.size - number * PAGE).min(PAGE) as usize);
            let mut found = pages.get(&number).cloned().unwrap_or(vec![0; PAGE as usize]);
            found.truncate(expected.len());
            if let Some(at) = (0..expected.len()).find(|i| expected[*i] != found[*i]) {
                let place = number * PAGE + at as u64;
                return Err(format!("{ino} at {place}: found {}, expected {}", found[at], expected[at]));
            }
        }
        Ok(())
    }

    pub fn read_pages(&self, layout: &Layout) -> Result<BTreeMap<u64, Vec<u8>>, String> {
        let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut end = 0;
        for (off, extent) in &layout.extents {
            if *off < end || off + u64::from(extent.len) > layout.size || off % CHUNK != u64::from(extent.off) {
                return Err(format!("layout: {extent:?} at {off} is out of order or out of the file"));
            }
            end = off + u64::from(extent.len);
            if let Place::Flash { stripe, .. } = extent.place
                && !layout.packs.iter().any(|(pack, _)| *pack == stripe.pack)
            {
                return Err(format!("layout: {} is not placed", stripe.pack));
            }
            for (i, byte) in self.bytes_at(&extent.place, extent.len)?.into_iter().enumerate() {
                let at = off + i as u64;
                pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize])[(at % PAGE) as usize] = byte;
            }
        }
        Ok(pages)
    }

    /// The bytes of a place, if they can be had.
    pub fn bytes_at(&self, place: &Place, len: u32) -> Result<Vec<u8>, String> {
        let (bytes, from) = match place {
            Place::Object(at) => return self.object_bytes(*at, len),
            Place::Stage { at, poff } => (self.log.get(at).ok_or(format!("{at} is not in the log"))?, *poff),
            Place::Flash { stripe, delta, .. } => {
                let (ul, bytes) =
                    self.flash.get(&(stripe.pack, stripe.sb)).ok_or(format!("{stripe:?} was not written"))?;
                if *ul != stripe.ul {
                    return Err(format!("{stripe:?} has another width on flash: {ul}"));
                }
                let shards = self.drives.values().flatten().filter(|id| id.pack == stripe.pack).count();
                let all = self.shards.get(&stripe.pack).copied().unwrap_or(usize::MAX);
                if shards < all {
                    return Err(format!("{}: only {shards} of {all} shards are there", stripe.pack));
                }
                (bytes, *delta)
            }
        };
        let found = bytes.get(from as usize..(from + len) as usize);
        found.map(<[u8]>::to_vec).ok_or(format!("{place:?} of {len} bytes is out of bounds"))
    }
}
