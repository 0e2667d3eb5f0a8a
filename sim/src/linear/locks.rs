//! One lock.

use super::State;

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
    /// Its session ends, and the lock with it if it has it.
    Lose(u64),
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
            (Call::Give(_) | Call::Lose(_), Some(Answer::Busy)) => None,
        }
    }

    fn looks(_: &Call, answer: Option<&Answer>) -> bool {
        answer == Some(&Answer::Busy)
    }
}
