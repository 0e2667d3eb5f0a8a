//! Repeatable chance: the same seed gives the same load.

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, good enough to pick offsets.
pub struct Chance(u64);

impl Chance {
    /// Starts from `seed`.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number in `0..below`; `below` is not 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.bits() % below
    }
}

/// Spreads the bits of `value` over all 64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// The byte that write number `generation` leaves at `offset`: any two generations differ almost everywhere.
pub fn pattern_byte(generation: u64, offset: u64) -> u8 {
    let word = mix(generation.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ (offset >> 3));
    word.to_le_bytes()[usize::from(offset.to_le_bytes()[0] & 7)]
}

/// `len` pattern bytes that start at `offset`.
pub fn pattern(generation: u64, offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| pattern_byte(generation, at)).collect()
}
