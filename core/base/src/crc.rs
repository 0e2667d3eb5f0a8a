//! CRC32C, the one checksum of Braid: over every 4 KiB block from client to drive and object.

use crate::limits::BLOCK;

/// CRC32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // crc-fast keeps every checksum in 64 bits; CRC32C fills the low half only.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of the concatenation of `parts`, without copying them together.
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// One CRC32C for each 4 KiB block of `bytes` (the last may be short).
pub fn block_crcs(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK).map(crc32c).collect()
}

#[cfg(test)]
mod tests {
    use super::{block_crcs, crc32c, crc32c_parts};

    #[test]
    fn check_value_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn parts_equal_whole() {
        let whole: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(crc32c_parts(&[&whole[..33], &whole[33..5000], &whole[5000..]]), crc32c(&whole));
        assert_eq!(block_crcs(&whole).len(), 3);
        assert_eq!(block_crcs(&whole)[1], crc32c(&whole[4096..8192]));
    }
}
