//! Replica <-> replica of a partition.
//!
//! A record's payload is bulk data, with one checksum for each 4 KiB that its primary made and every log keeps; the
//! receiver checks it against those, so the frame has no checksum of its own over it.

use braid_base::Result;
use braid_base::crc::block_crcs;
use braid_base::ids::OpId;
use braid_base::limits::WRITE_MAX;
use braid_base::{Error, ErrorKind};
use braid_replica::config::Member;
use braid_replica::replica::event::{Body, Msg};
use braid_replica::{Batch, Entry, Record};
use bytes::Bytes;

use super::{Field, In, Out, wire_enum, wire_struct};

wire_struct!(Msg { partition, term, from, to_store, body });
wire_struct!(Member { host, store });
wire_struct!(Record { term, index, entry, state_hash });

wire_enum!(Body, "message of a replica" {
    1 = Append { prev, records, commit, inherited, stage_from, sent_ms },
    2 = Ack { held, echo_ms },
    3 = Mismatch { hint, echo_ms },
    4 = Refuse,
    5 = Probe,
    6 = ProbeReply { last },
    7 = Pull { from },
    8 = Pulled { prev, records },
    9 = Behind { first },
    10 = AskView { after },
    11 = View { after, start, applied, rows, last },
    12 = Leaving,
    13 = Released,
});

impl Field for Entry {
    fn put(&self, out: &mut Out) {
        // Sixteen bytes for each operation, four for each checksum, and what counts them.
        let lists = 16 * self.ops().len() + 4 * self.payload_crcs().len() + 16;
        out.meta.reserve(lists + self.batch().encoded_len());
        OpId::put_list(self.ops(), out);
        self.batch().encode(&mut out.meta);
        u32::put_list(self.payload_crcs(), out);
        self.payload().put(out);
    }

    fn take(from: &mut In<'_>) -> Result<Self> {
        let ops = Field::take(from)?;
        let batch = Batch::decode(&mut from.meta)?;
        let crcs: Vec<u32> = Field::take(from)?;
        let payload = Bytes::take(from)?;
        if payload.len() > WRITE_MAX || block_crcs(&payload) != crcs {
            let words = format!("the {} bytes that a record stages do not match their checksums", payload.len());
            return Err(Error::new(ErrorKind::Corrupt, words));
        }
        Ok(Self::with_crcs(ops, batch, payload, crcs))
    }

    #[cfg(test)]
    fn any(rng: &mut braid_io::chance::Rng) -> Self {
        let mut batch = Batch::new();
        for _ in 0..rng.below(4) {
            let [one, other, value]: [Vec<u8>; 3] = std::array::from_fn(|_| Field::any(rng));
            batch.put(one, value).delete(other);
        }
        Self::new(Field::any(rng), batch, Field::any(rng))
    }
}
