//! One lock.

use super::{History, State};

/// Which client holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock(pub Option<u64>);

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Take it, now or when it is free.
    Take(u64),
    /// Give it back.
    Give(u64),
    /// Its session ends, and the lock with it if it has it; or the primary, which alone knew of it.
    Lose(u64),
    /// It does not have it.
    Not(u64),
}

/// Call `number` of client `me`, which would not wait, is answered: another one has the lock. A lock that nobody was told
/// of ends with its primary: `me` may have had it there, until that was replaced, and others were told so.
pub fn refused_elsewhere(history: &mut History<Lock>, number: usize, me: u64, now_us: u64) {
    history.meanwhile(number, me, Call::Take(me), now_us);
    history.meanwhile(number, me, Call::Lose(me), now_us);
    history.end(number, Answer::Busy, now_us);
    // But from now on it has it not.
    let not = history.begin(me, Call::Not(me), now_us);
    history.end(not, Answer::Done, now_us);
}

/// Call `number` of client `me` got the lock of another primary than it first asked. Likewise it may have had it there
/// before. Most histories need no such explanation, and two calls more that may have been or not cost four times the states.
pub fn came_again(history: &mut History<Lock>, number: usize, me: u64) {
    history.during(number, me, Call::Take(me));
    history.during(number, me, Call::Lose(me));
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// Another client has it.
    Busy,
}

impl State for Lock {
    type Call = Call;
    type Answer = Answer;

    fn step(&self, call: &Call, answer: Option<&Answer>) -> Option<Self> {
        let free = |me: u64| self.0.is_none_or(|holder| holder == me);
        match (call, answer) {
            (Call::Take(me), Some(Answer::Done)) => free(*me).then_some(Self(Some(*me))),
            (Call::Take(me), Some(Answer::Busy)) => (!free(*me)).then(|| self.clone()),
            (Call::Take(me), None) if free(*me) => Some(Self(Some(*me))),
            (Call::Take(_), None) | (Call::Give(_) | Call::Lose(_), Some(Answer::Done) | None) => match call {
                Call::Give(me) | Call::Lose(me) if self.0 == Some(*me) => Some(Self(None)),
                _ => Some(self.clone()),
            },
            (Call::Not(me), _) => (self.0 != Some(*me)).then(|| self.clone()),
            (Call::Give(_) | Call::Lose(_), Some(Answer::Busy)) => None,
        }
    }

    fn looks(call: &Call, answer: Option<&Answer>) -> bool {
        answer == Some(&Answer::Busy) || matches!(call, Call::Not(_))
    }
}
