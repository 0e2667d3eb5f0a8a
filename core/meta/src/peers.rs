//! Operations that span partitions: remote prepare, local commit, lazy finish (design 5.5).
//!
//! | room | what it does |
//! |---|---|
//! | `plan` | what an operation must change where, and what must be known to say so |
//! | `flight` | the coordinator until the decision |
//! | `outcome` | the decision until all have carried it out |
//! | `party` | the participant |
//! | `intent` | check, promise, fulfil, undo |
//! | `held` | who may look at, or change, what is being decided |
//! | `post` | changes elsewhere that cannot fail |
//! | `forward` | what the home partition must coordinate |
//!
//! The rules, each needed (`rename2.py` breaks them one by one): a participant never decides; the coordinator
//! logs an abort before it says so, and says nothing about a flight that may still commit; nobody looks at a
//! promised name; a number is used once; and a participant refuses a prepare older than what it has finished.

pub(crate) mod flight;
mod forward;
mod held;
pub(crate) mod intent;
mod load;
mod numbers;
mod outcome;
mod party;
pub(crate) mod plan;
pub(crate) mod post;
mod record;
mod variant;

use std::collections::{BTreeMap, VecDeque};

use braid_base::Result;
use braid_base::ids::{ClientId, FsId, Ino, OpId, PartitionId};
use braid_base::msg::fs::FsResult;
use braid_base::msg::peer::PeerMsg;
use braid_replica::kv::Kv;

use crate::config::Config;
use crate::event::{Effect, Token};
use crate::state::State;
use crate::txn::Txn;
use flight::Flight;
use forward::Forwards;
use held::Held;
use numbers::Numbers;
use outcome::Outcomes;
use party::Party;
use post::Post;
pub use variant::Variant;

/// Volatile state; what must survive is in the tables 30 to 33.
pub struct Peers {
    pub(crate) held: Held,
    party: Party,
    flights: BTreeMap<OpId, Flight>,
    /// The flight of a client's operation.
    by_op: BTreeMap<OpId, OpId>,
    /// Flights that wait for their turn to give a directory another parent.
    queue: VecDeque<OpId>,
    /// The flight whose turn it is.
    mover: Option<OpId>,
    outcomes: Outcomes,
    post: Post,
    forwards: Forwards,
    numbers: Numbers,
    questions: u32,
    variant: Option<Variant>,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A client, here.
    Client(Token),
    /// A partition that passed the request on.
    Peer(PartitionId),
}

impl From<Token> for Caller {
    fn from(token: Token) -> Self {
        Self::Client(token)
    }
}

/// Marks a client number as a coordinator's: its partition is in the low bits. Clients count from 1.
const COORDINATOR: u64 = 1 << 63;
/// The number of an operation that needs nobody else.
const NO_TX: OpId = OpId { client: ClientId(COORDINATOR), seq: 0 };

/// Who coordinates `tx`.
fn coordinator(tx: OpId) -> PartitionId {
    PartitionId(tx.client.0 as u16)
}

/// The partition that coordinates directory moves of a file system: that of its root, as [`Ino::root`] places it.
pub(crate) fn home(fs: FsId, partitions: u16) -> PartitionId {
    Ino::root(fs).partition(partitions)
}

impl Peers {
    pub(crate) fn load(config: &Config, kv: &dyn Kv) -> Result<Self> {
        let mut peers = Self {
            held: Held::default(),
            party: Party::default(),
            flights: BTreeMap::new(),
            by_op: BTreeMap::new(),
            queue: VecDeque::new(),
            mover: None,
            outcomes: Outcomes::default(),
            post: Post::default(),
            forwards: Forwards::default(),
            numbers: Numbers::load(config.partition, kv)?,
            questions: 0,
            variant: None,
        };
        load::tables(&mut peers, config.partition, kv)?;
        Ok(peers)
    }

    /// One more who waits for the answer of an operation under way; false if it is not under way.
    pub(crate) fn attach(&mut self, op: OpId, caller: Caller) -> bool {
        let flight = self.by_op.get(&op).and_then(|tx| self.flights.get_mut(tx));
        let Some(flight) = flight else {
            return self.forwards.attach(op, caller) || self.post.attach(op, caller);
        };
        if !flight.callers.contains(&caller) {
            flight.callers.push(caller);
        }
        true
    }

    /// True if nothing is under way or owed: every promise is kept, every decision and note is acknowledged and
    /// its record deleted.
    pub fn is_quiet(&self) -> bool {
        let is_mine_done = self.flights.is_empty() && self.outcomes.is_empty() && self.forwards.is_empty();
        let is_theirs_done = self.party.open.is_empty() && self.held.is_empty();
        is_mine_done && is_theirs_done && self.post.is_empty()
    }

    /// True if a directory may get another parent: no other one is on its way.
    fn turn_is_free(&self) -> bool {
        self.mover.is_none() && !self.outcomes.is_moving()
    }

    fn next_question(&mut self) -> u32 {
        self.questions = self.questions.wrapping_add(1);
        self.questions
    }
}

/// Takes a message. What is late, doubled or makes no sense is dropped: whoever needs an answer asks again.
pub(crate) fn take(t: &mut Txn<'_>, s: &mut State, from: PartitionId, message: PeerMsg) {
    match message {
        PeerMsg::Ask { tx, number, fs, what } => {
            let answer = party::asked(t, s, fs, &what);
            t.after(Effect::Peer(from, PeerMsg::Told { tx, number, answer }));
        }
        PeerMsg::Told { tx, number, answer } => flight::told(t, s, tx, number, answer),
        PeerMsg::Prepare { tx, fs, client, intents } => party::prepare(t, s, from, (tx, client), fs, intents),
        PeerMsg::Prepared { tx, result } => flight::prepared(t, s, from, tx, result),
        // After an error nothing is acknowledged, so the other side repeats until it can be done.
        PeerMsg::Decide { tx, commit } => drop(party::decided(t, s, from, tx, commit)),
        PeerMsg::Finished { tx } => outcome::finished(s, from, tx),
        PeerMsg::Undecided { tx } => outcome::undecided(t, s, from, tx),
        PeerMsg::Forward { request } => forward::take(t, s, from, &request),
        PeerMsg::Forwarded { op, result } => forward::answered(t, s, op, &result),
        PeerMsg::Note { seq, fs, client, note } => drop(post::take(t, s, from, (seq, client), fs, note)),
        PeerMsg::Noted { upto } => post::noted(t, s, from, upto),
    }
    flight::next_move(t, s);
}

/// Background: repeats what was not answered, asks about what was not decided, forgets what is done.
pub(crate) fn background(t: &mut Txn<'_>, s: &mut State) {
    flight::care(t, s);
    flight::next_move(t, s);
    party::ask(t, s);
    outcome::care(t, s);
    post::care(t, s);
    forward::care(t, s);
    s.dedup.clean(t);
}

/// What this transaction sends waits for the commit of the newest entry that changed `key`.
fn wait_for(t: &Txn<'_>, key: &[u8]) {
    // Pending entries are looked at first; if the view itself cannot be read, there was none to wait for.
    drop(t.get(key));
}

/// Answers everyone who waits for an operation.
fn answer(t: &mut Txn<'_>, callers: &[Caller], op: OpId, result: &FsResult) {
    t.answered(op, result);
    for caller in callers {
        match caller {
            Caller::Client(token) => t.reply(*token, result.clone()),
            Caller::Peer(from) => t.after(Effect::Peer(*from, PeerMsg::Forwarded { op, result: result.clone() })),
        }
    }
}
