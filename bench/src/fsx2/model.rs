//! What the file must hold.

use crate::chance::pattern;

/// The bytes, and for each the operation that left it there: a difference can then be named.
#[derive(Default)]
pub struct Model {
    bytes: Vec<u8>,
    by: Vec<u64>,
}

impl Model {
    /// Length of the file, bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes that operation `number` writes at `offset`.
    pub fn bytes_of(number: u64, offset: u64, len: u64) -> Vec<u8> {
        pattern(number, offset, len)
    }

    /// Operation `number` put `bytes` at `offset`; a gap before it is a hole.
    pub fn put(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        let (from, to) = (index(offset), index(offset) + bytes.len());
        if self.bytes.len() < to {
            self.resize(number, to as u64);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        self.by[from..to].fill(number);
    }

    /// Operation `number` made the file `len` long.
    pub fn resize(&mut self, number: u64, len: u64) {
        self.bytes.resize(index(len), 0);
        self.by.resize(index(len), number);
    }

    /// Operation `number` cut a hole.
    pub fn punch(&mut self, number: u64, offset: u64, len: u64) {
        let to = index(offset + len).min(self.bytes.len());
        let from = index(offset).min(to);
        self.bytes[from..to].fill(0);
        self.by[from..to].fill(number);
    }

    /// Is this what is read at `offset`? If not, a sentence.
    pub fn compare(&self, offset: u64, found: &[u8]) -> Result<(), String> {
        let expected = &self.bytes[index(offset)..index(offset) + found.len()];
        let differs = |at: &usize| found[*at] != expected[*at];
        let Some(first) = (0..found.len()).find(differs) else { return Ok(()) };
        let count = (first..found.len()).filter(differs).count();
        let place = offset + first as u64;
        let by = self.by[index(place)];
        Err(format!(
            "byte {place:#x} is {:#04x}, expected {:#04x} as operation {by} left it; {count} of {} bytes differ",
            found[first],
            expected[first],
            found.len()
        ))
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::Model;

    #[test]
    fn holes_cuts_and_differences() {
        let mut model = Model::default();
        model.put(1, 4, b"abcd");
        assert_eq!(model.compare(0, b"\0\0\0\0abcd"), Ok(()));
        model.punch(2, 5, 100);
        model.resize(3, 10);
        assert_eq!((model.len(), model.compare(4, b"a\0\0\0\0\0")), (10, Ok(())));
        let said = model.compare(4, b"ab\0\0\0c").expect_err("two bytes differ");
        assert!(said.contains("byte 0x5") && said.contains("operation 2") && said.contains("2 of 6"), "{said}");
    }
}
