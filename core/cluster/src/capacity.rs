//! How much a cluster holds: net = raw x (F - spares) / F x D / (D + P) x (100 % - reserve).

use braid_base::limits::RESERVE_PERCENT;

use crate::facts::Protection;

/// What users have stored on drives, as far as partitions say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDrives {
    /// Bytes of file data.
    pub bytes: u64,
    /// Partitions that do not say what they hold.
    pub silent: usize,
}

impl OnDrives {
    /// What stands against relying on it.
    pub fn objection(&self) -> Option<String> {
        let words = if self.silent == 1 {
            "partition does not say what it holds"
        } else {
            "partitions do not say what they hold"
        };
        (self.silent > 0).then(|| format!("{} {words}: see `braid status`", self.silent))
    }
}

/// Bytes that users can store on `raw_bytes` of flash spread over `domains` failure domains, of which the room of
/// `spares` is kept free for rebuilding.
pub fn net_bytes(raw_bytes: u64, protection: Protection, domains: usize, spares: usize) -> u64 {
    let (domains, spares) = (domains.max(1) as u128, spares as u128);
    let (data, width) = (u128::from(protection.data), protection.width().max(1) as u128);
    let kept = domains.saturating_sub(spares) * data * u128::from(100 - RESERVE_PERCENT);
    // Multiplied before it is divided: 2^64 bytes x 2^16 domains x 16 x 100 stay far below 2^128.
    u64::try_from(u128::from(raw_bytes) * kept / (domains * width * 100)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::net_bytes;
    use crate::facts::Protection;

    /// The published figures of a reference system: 48 drives of 3.84 TB in 8 hosts, 5+2 and one spare host.
    #[test]
    fn known_cluster() {
        let protection = Protection { data: 5, parity: 2 };
        assert_eq!(net_bytes(184_320_000_000_000, protection, 8, 1), 103_680_000_000_000);
        let with_spare = net_bytes(184_320_000_000_000, protection, 8, 1);
        let without = net_bytes(184_320_000_000_000, protection, 8, 0);
        let tib = (without - with_spare) as f64 / f64::from(1 << 20) / f64::from(1 << 20);
        assert!((13.4..13.5).contains(&tib), "one failure domain is 13.46 TiB net, found {tib}");
    }

    #[test]
    fn odd_inputs() {
        assert_eq!(net_bytes(0, Protection { data: 4, parity: 2 }, 6, 0), 0);
        assert_eq!(net_bytes(1_000, Protection { data: 1, parity: 0 }, 1, 0), 900);
        assert_eq!(net_bytes(1_000, Protection { data: 1, parity: 1 }, 1, 2), 0);
        assert_eq!(net_bytes(u64::MAX, Protection { data: 16, parity: 0 }, 65_535, 0), u64::MAX / 10 * 9 + 4);
    }
}
