//! The bytes of the mark of a client: `upto u64 | n x (seq u64)`.

use std::collections::BTreeSet;

use braid_base::Result;
use braid_base::codec::{Reader, Writer};

/// Everything up to `upto` was answered, but `open`.
pub(super) fn encode(upto: u64, open: &BTreeSet<u64>) -> Vec<u8> {
    let mut w = Writer::with_capacity(8 * (1 + open.len()));
    w.put_u64(upto);
    open.iter().for_each(|seq| {
        w.put_u64(*seq);
    });
    w.finish()
}

pub(super) fn decode(bytes: &[u8]) -> Result<(u64, BTreeSet<u64>)> {
    let (r, mut open) = (&mut Reader::new(bytes), BTreeSet::new());
    let upto = r.u64()?;
    while r.remaining() > 0 {
        open.insert(r.u64()?);
    }
    Ok((upto, open))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use crate::drawn::{bytes, n};

    #[test]
    fn a_mark_is_as_drawn() {
        for open in [vec![], vec![3u64, 9]] {
            let fields = [n("upto", 17u64)].into_iter().chain(open.iter().map(|seq| n("seq", *seq)));
            let mark = (17, open.iter().copied().collect());
            let drawn = bytes("answered", &fields.collect::<Vec<_>>());
            assert_eq!((&drawn, decode(&drawn).expect("it is one")), (&encode(17, &mark.1), mark));
        }
        assert!(decode(&[0; 12]).is_err());
    }
}
