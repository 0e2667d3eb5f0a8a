//! The configuration of a partition, as it stands in the coordinator's register (design 5.1, 5.3).

use std::fmt;

use braid_base::Result;
use braid_base::codec::{Reader, Writer};
use braid_base::ids::{Guid, HostId, Term};

const VERSION: u8 = 1;

/// A replica: a store on a host. A store that lost data is a new store (R9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Where it runs.
    pub host: HostId,
    /// Which store it is.
    pub store: Guid,
}

/// Who replicates a partition. Every change of primary or members has a new term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// +1 with every change.
    pub term: Term,
    /// The only replica that may append in this term.
    pub primary: Member,
    /// Holds every committed entry (I1); `primary` among them.
    pub members: Vec<Member>,
    /// Asked to become members; the controller may change them without a new term.
    pub learners: Vec<Member>,
}

impl Config {
    /// True if this very store is a member.
    pub fn has(&self, store: Guid) -> bool {
        self.members.iter().any(|m| m.store == store)
    }

    /// The next configuration, led by `primary`, with `members`. A new member is no learner any more.
    pub fn succeeded_by(&self, primary: Member, members: Vec<Member>) -> Self {
        let learners = self.learners.iter().filter(|l| !members.contains(l)).copied().collect();
        Self { term: Term(self.term.0 + 1), primary, members, learners }
    }

    /// Appends `version | term | primary | count, members | count, learners`.
    pub fn encode(&self, out: &mut Writer) {
        out.put_u8(VERSION).put_u64(self.term.0);
        self.primary.encode(out);
        for list in [&self.members, &self.learners] {
            out.put_u16(u16::try_from(list.len()).expect("a partition has far fewer than 65,536 replicas"));
            list.iter().for_each(|m| m.encode(out));
        }
    }

    /// Takes a configuration off `from`; `Corrupt` if it is none.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.version(VERSION, "a partition's configuration")?;
        let (term, primary) = (Term(from.u64()?), Member::decode(from)?);
        Ok(Self { term, primary, members: Member::decode_list(from)?, learners: Member::decode_list(from)? })
    }
}

impl Member {
    fn encode(&self, out: &mut Writer) {
        out.put_u32(self.host.0).put_raw(&self.store.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { host: HostId(from.u32()?), store: Guid(from.array()?) })
    }

    fn decode_list(from: &mut Reader<'_>) -> Result<Vec<Self>> {
        let count = from.u16()?;
        (0..count).map(|_| Self::decode(from)).collect()
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.store)
    }
}
