//! The bytes of a file in the model: pages in a map, zero where there is none.

use std::collections::BTreeMap;

use braid_base::limits::BLOCK;

const PAGE: u64 = BLOCK as u64;
/// So much of a file is always read whole: most programs write nowhere else.
const HEAD: u64 = 4 << 20;

/// Bytes and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Length, bytes.
    pub size: u64,
    pages: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Content {
    /// Puts `data` at `off`.
    pub fn write(&mut self, off: u64, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let byte = off + at as u64;
            let skip = (byte % PAGE) as usize;
            let n = (BLOCK - skip).min(data.len() - at);
            let page = self.pages.entry(byte / PAGE).or_insert_with(|| Box::new([0; BLOCK]));
            page[skip..skip + n].copy_from_slice(&data[at..at + n]);
            at += n;
        }
        if !data.is_empty() {
            self.size = self.size.max(off + data.len() as u64);
        }
    }

    /// Bytes of the pages that hold something.
    pub fn held(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Makes `[from, to)` zero; the size stays.
    pub fn punch(&mut self, from: u64, to: u64) {
        let pages: Vec<u64> = self.pages.range(from / PAGE..=to.saturating_sub(1) / PAGE).map(|(n, _)| *n).collect();
        for number in pages {
            let (first, end) = (number * PAGE, (number + 1) * PAGE);
            if from <= first && end <= to {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                page[(from.max(first) - first) as usize..(to.min(end) - first) as usize].fill(0);
            }
        }
    }

    /// Sets the size; what is beyond it is gone.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size);
        }
        self.size = size;
    }

    /// Bytes `[off, off+len)`, cut at the size.
    pub fn read(&self, off: u64, len: u64) -> Vec<u8> {
        let end = off.saturating_add(len).min(self.size);
        let mut out = vec![0; end.saturating_sub(off) as usize];
        if out.is_empty() {
            return out;
        }
        for (number, page) in self.pages.range(off / PAGE..=(end - 1) / PAGE) {
            let (from, to) = ((number * PAGE).max(off), ((number + 1) * PAGE).min(end));
            let source = &page[(from - number * PAGE) as usize..(to - number * PAGE) as usize];
            out[(from - off) as usize..(to - off) as usize].copy_from_slice(source);
        }
        out
    }

    /// Ranges worth reading to know the whole file: its beginning, its end, and all else where this or `other` has
    /// something, with some hole around.
    pub fn ranges(&self, other: Option<&Self>) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = vec![(0, HEAD), (self.size.saturating_sub(PAGE), self.size)];
        let pages = self.pages.keys().chain(other.iter().flat_map(|other| other.pages.keys()));
        out.extend(pages.map(|n| (n.saturating_sub(1) * PAGE, (n + 2) * PAGE)));
        out.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in out {
            let to = to.min(self.size);
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ if from < to => joined.push((from, to)),
                _ => {}
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::Content;
    use braid_io::chance::Rng;

    #[test]
    fn same_as_a_byte_array() {
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
            for _ in 0..20 {
                let (a, b) = (rng.below(20_000), rng.below(9_000));
                match rng.below(3) {
                    0 => {
                        let data = vec![rng.next_u64() as u8 | 1; b as usize];
                        content.write(a, &data);
                        if b > 0 {
                            plain.resize(plain.len().max((a + b) as usize), 0);
                            plain[a as usize..(a + b) as usize].copy_from_slice(&data);
                        }
                    }
                    1 => {
                        content.punch(a, a + b);
                        let end = plain.len();
                        plain[(a as usize).min(end)..((a + b) as usize).min(end)].fill(0);
                    }
                    _ => {
                        content.resize(a);
                        plain.resize(a as usize, 0);
                    }
                }
                assert_eq!(content.read(0, u64::MAX), plain);
                let covered = content.ranges(None);
                let outside = |at: u64| covered.iter().all(|(from, to)| at < *from || at >= *to);
                assert!((0..plain.len()).all(|at| plain[at] == 0 || !outside(at as u64)));
            }
        }
    }
}
