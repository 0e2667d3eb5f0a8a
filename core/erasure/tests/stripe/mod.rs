//! A stripe of random bytes with its parity, and a seeded source of chance.
#![allow(dead_code)]

use braid_erasure::Code;

/// xorshift64*; never seeded with zero.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize) % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 56) as u8).collect()
    }
}

pub struct Stripe {
    pub code: Code,
    /// Data, then parity.
    pub shards: Vec<Vec<u8>>,
}

impl Stripe {
    pub fn random(code: Code, len: usize, chance: &mut Chance) -> Stripe {
        let shards = (0..code.shards()).map(|_| chance.bytes(len)).collect();
        let mut stripe = Stripe { code, shards };
        stripe.encode();
        stripe
    }

    pub fn encode(&mut self) {
        let (data, parity) = self.shards.split_at_mut(self.code.data());
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        self.code.encode(&data, &mut slices(parity));
    }

    /// Encodes into buffers that start at the odd offset `shift`, and checks the bytes around them.
    pub fn encode_between_guards(&mut self, shift: usize) {
        const GUARD: usize = 128;
        let (data, parity) = self.shards.split_at_mut(self.code.data());
        let len = data[0].len();
        let shifted: Vec<Vec<u8>> = data.iter().map(|shard| [&vec![0xEE; shift], shard.as_slice()].concat()).collect();
        let data: Vec<&[u8]> = shifted.iter().map(|shard| &shard[shift..]).collect();
        let mut guarded = vec![vec![0xC3; shift + len + GUARD]; parity.len()];
        let mut inner: Vec<&mut [u8]> = guarded.iter_mut().map(|shard| &mut shard[shift..shift + len]).collect();
        self.code.encode(&data, &mut inner);
        for (shard, guarded) in parity.iter_mut().zip(&guarded) {
            shard.copy_from_slice(&guarded[shift..shift + len]);
            let around = guarded[..shift].iter().chain(&guarded[shift + len..]);
            assert!(around.copied().all(|byte| byte == 0xC3), "{:?} wrote outside", self.code);
        }
    }

    /// Loses the shards of the mask `lost` and asks for those of the mask `want`.
    pub fn check_repair(&self, lost: u32, want: u32) {
        let set = |mask: u32, shard: usize| mask >> shard & 1 == 1;
        let present: Vec<(usize, &[u8])> = (0..self.code.shards())
            .filter(|&shard| !set(lost, shard))
            .map(|shard| (shard, self.shards[shard].as_slice()))
            .collect();
        let wanted: Vec<usize> = (0..self.code.shards()).filter(|&shard| set(want, shard)).collect();
        let mut found = vec![vec![0x5A; self.shards[0].len()]; wanted.len()];
        let mut outputs: Vec<(usize, &mut [u8])> = wanted.iter().copied().zip(slices(&mut found)).collect();
        let enough = self.code.reconstruct(&present, &mut outputs);
        assert_eq!(enough, Ok(()), "{:?} lost {lost:b}", self.code);
        for (shard, found) in wanted.iter().zip(&found) {
            assert!(found == &self.shards[*shard], "{:?} lost {lost:b}, shard {shard}", self.code);
        }
    }
}

pub fn slices(shards: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    shards.iter_mut().map(Vec::as_mut_slice).collect()
}
