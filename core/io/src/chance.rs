//! Chance: the kernel's for identities, a seeded generator for simulators and back-off.

use braid_base::ids::Guid;
use braid_base::{Error, Result};

/// Fills `out` with random bytes of the kernel.
pub fn fill(out: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: `rest` is valid for writes of `rest.len()` bytes for the whole call.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(n) => done += n,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(Error::os("random bytes from the kernel", &error));
                }
            }
        }
    }
    Ok(())
}

/// A new random identity.
pub fn guid() -> Result<Guid> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(Guid(bytes))
}

/// A random number of the kernel, for example to seed an [`Rng`].
pub fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A small seeded generator (splitmix64): the same seed gives the same run. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: no division, bias below 2^-64 * bound.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into something of `len` items; 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `share` times in `of`.
    pub fn chance(&mut self, share: u64, of: u64) -> bool {
        self.below(of) < share
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let bits = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&bits[..piece.len()]);
        }
    }

    /// Puts `items` into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rng, guid};

    #[test]
    fn kernel_guids_differ() {
        assert_ne!(guid().expect("getrandom works"), guid().expect("getrandom works"));
    }

    #[test]
    fn same_seed_same_run_and_bounds_hold() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..1000 {
            let x = a.below(10);
            assert_eq!(x, b.below(10));
            assert!(x < 10);
        }
        let mut items: Vec<u32> = (0..100).collect();
        a.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
