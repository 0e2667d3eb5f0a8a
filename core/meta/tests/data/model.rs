//! The reference: files as plain pages of bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

use braid_base::ids::Ino;

pub const PAGE: u64 = 4096;

/// What a client asked for.
#[derive(Clone, Debug)]
pub enum Act {
    Write { ino: Ino, parts: Vec<(u64, Vec<u8>)>, append: bool },
    Truncate { ino: Ino, size: u64 },
    Hole { ino: Ino, from: u64, to: u64, extend: bool },
    Extend { ino: Ino, to: u64 },
    Unlink { ino: Ino },
    Other,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub name: Vec<u8>,
    pub size: u64,
    pub linked: bool,
    pages: BTreeMap<u64, Rc<Vec<u8>>>,
}

/// All files.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub files: BTreeMap<Ino, File>,
}

impl Model {
    /// Carries out `act`; for a write the offset where it landed.
    pub fn apply(&mut self, act: &Act) -> Result<u64, String> {
        match act {
            Act::Other => {}
            Act::Write { ino, parts, append } => {
                let file = self.get(*ino)?;
                let shift = if *append { file.size - parts[0].0 } else { 0 };
                for (off, bytes) in parts {
                    file.put(off + shift, bytes);
                }
                return Ok(parts[0].0 + shift);
            }
            Act::Truncate { ino, size } => {
                let file = self.get(*ino)?;
                file.hole(*size, file.size);
                file.size = *size;
            }
            Act::Hole { ino, from, to, extend } => {
                let file = self.get(*ino)?;
                file.hole(*from, *to);
                file.size = if *extend { file.size.max(*to) } else { file.size };
            }
            Act::Extend { ino, to } => {
                let file = self.get(*ino)?;
                file.size = file.size.max(*to);
            }
            Act::Unlink { ino } => self.get(*ino)?.linked = false,
        }
        Ok(0)
    }

    fn get(&mut self, ino: Ino) -> Result<&mut File, String> {
        self.files.get_mut(&ino).ok_or(format!("an operation took effect on {ino}, which is gone"))
    }
}

impl File {
    /// An empty file with a name.
    pub fn new(name: Vec<u8>) -> Self {
        Self { name, linked: true, ..Self::default() }
    }

    /// Page numbers that were written.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// The bytes of one page.
    pub fn page(&self, number: u64) -> Vec<u8> {
        self.pages.get(&number).map_or_else(|| vec![0; PAGE as usize], |page| page.to_vec())
    }

    fn put(&mut self, off: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let at = off + i as u64;
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Rc::new(vec![0; PAGE as usize]));
            Rc::make_mut(page)[(at % PAGE) as usize] = *byte;
        }
        self.size = self.size.max(off + bytes.len() as u64);
    }

    fn hole(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        for (number, page) in self.pages.range_mut(from / PAGE..=to / PAGE) {
            let start = number * PAGE;
            let (low, high) = (from.clamp(start, start + PAGE), to.clamp(start, start + PAGE));
            Rc::make_mut(page)[(low - start) as usize..(high - start) as usize].fill(0);
        }
    }
}
