//! A wait for a lock, its copies and its cancel, around the moment in which the lock is free and another primary takes over.

use braid_base::ErrorKind;
use braid_base::ids::{Ino, OpId};
use braid_base::msg::fs::{Cred, LockKind, LockSpec, Op, Reply, Request};
use braid_base::msg::lease::Holdings;
use braid_meta::{Event, Token};

use super::{A, B, FS, World};

/// What may come to pass around a wait of A for a lock that B holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Come {
    /// The wait, or a copy of it.
    Wait,
    Cancel,
    /// The same number without waiting: what has become of it?
    Look,
    /// B gives the lock up.
    Free,
    /// Another primary takes over; A says what it holds.
    Next,
    /// B says what it holds, too.
    Says,
}

/// The number of the wait; what goes with it is open until it is looked at.
const WAIT: u64 = 1_000;

/// Carries `order` out. Errors: what is wrong.
fn lock_story(order: &[Come]) -> Result<(), String> {
    let mut world = World::new();
    for client in [A, B] {
        world
            .tell(client, Op::Hello { begin: true, home: None, open: Vec::new() })
            .expect("answered")
            .expect("a session");
    }
    let ino = Ino::root(FS);
    let spec = |owner, kind| LockSpec { owner, pid: 1, start: 0, end: 9, kind, flock: false };
    let lock = |owner, kind, wait| Op::Lock { ino, lock: spec(owner, kind), wait };
    world.tell(B, lock(2, LockKind::Write, false)).expect("answered").expect("it is free");
    world.answers.clear();
    let send = |world: &mut World, seq, body| {
        world.asked += 1;
        let (op, done_upto, cred) = (OpId { client: A, seq }, WAIT - 1, Cred::default());
        let request = Request { op, session: 1, done_upto, fs: FS, cred, early: false, body };
        world.step(Event::Request(Token(world.asked), request));
        world.commit();
        world.asked
    };
    let heard = |world: &World, token| {
        let result = world.answers.iter().find(|(number, _)| *number == token).map(|(_, result)| result.clone());
        result.map(|result| result.map(drop).map_err(|error| error.kind()))
    };
    let reassert = |world: &mut World, client, locks: Vec<LockSpec>| {
        let locks = locks.into_iter().map(|lock| (FS, ino, lock)).collect();
        let body = Op::Reassert { holdings: Holdings { opens: Vec::new(), writes: Vec::new(), locks } };
        world.ask_as(client, 1, false, body);
        world.commit();
    };
    let (mut free, mut cancelled, mut look) = (false, false, None);
    for what in order {
        match what {
            Come::Wait => {
                let token = send(&mut world, WAIT, lock(1, LockKind::Write, true));
                if cancelled && heard(&world, token).is_none() {
                    return Err("it waits after its cancel".to_owned());
                }
            }
            Come::Cancel => {
                let token = send(&mut world, WAIT + 1, Op::CancelLock { ino, seq: WAIT });
                assert_eq!(heard(&world, token), Some(Ok(())), "a cancel waits for nobody");
                cancelled = true;
            }
            Come::Look => {
                let token = send(&mut world, WAIT, lock(1, LockKind::Write, false));
                if cancelled && heard(&world, token).is_none() {
                    return Err("after the cancel it is known what became of it".to_owned());
                }
                look = Some(token);
            }
            Come::Free => {
                free = true;
                world.ask_as(B, 1, false, lock(2, LockKind::Unlock, false));
                world.commit();
            }
            Come::Next => {
                cancelled = false;
                world.fail_over();
                let held = look.is_some_and(|token| heard(&world, token) == Some(Ok(())));
                reassert(&mut world, A, held.then_some(spec(1, LockKind::Write)).into_iter().collect());
            }
            Come::Says => reassert(&mut world, B, (!free).then_some(spec(2, LockKind::Write)).into_iter().collect()),
        }
    }
    let outcome = look.and_then(|token| heard(&world, token));
    world.answers.clear();
    let asked = world.ask_as(B, 1, false, Op::TestLock { ino, lock: spec(3, LockKind::Write) });
    let found = world.answers.iter().find(|(token, _)| *token == asked).map(|(_, result)| result.clone());
    let Some(Ok(Reply::Locked(found))) = found else { return Err(format!("a test of the lock: {found:?}")) };
    match (outcome, found.map(|lock| lock.owner)) {
        (Some(Ok(())), Some(1)) | (Some(Err(ErrorKind::WouldBlock)), None) => Ok(()),
        (outcome, holder) => Err(format!("A was told {outcome:?}, and {holder:?} holds the lock")),
    }
}

/// Calls `each` with every order of `left` behind `first`.
fn orders(first: &mut Vec<Come>, left: &mut Vec<Come>, each: &mut impl FnMut(&[Come])) {
    if left.is_empty() {
        return each(first);
    }
    for at in 0..left.len() {
        first.push(left.remove(at));
        orders(first, left, each);
        left.insert(at, first.pop().expect("it was pushed"));
    }
}

/// In every order: what A is told is what is so.
#[test]
fn a_wait_that_is_given_up_is_held_or_not_and_that_is_known() {
    use Come::{Cancel, Free, Look, Next, Says, Wait};
    let mut told = 0;
    orders(&mut Vec::new(), &mut vec![Wait, Wait, Cancel, Look, Free, Next, Says], &mut |order| {
        let at = |what| order.iter().position(|come| *come == what).expect("each comes");
        let last_wait = order.iter().rposition(|come| *come == Wait).expect("it comes");
        // A asks what became of it when its cancel is answered, and what it sends to a primary it sends to no earlier one
        // any more; a primary hears nothing of B, and B nothing of it, before B has said what it holds.
        let happens = at(Cancel) < at(Look) && at(Next) < at(Says) && (at(Free) < at(Next) || at(Says) < at(Free));
        if !happens || (at(Cancel) < at(Next) && at(Next) < last_wait) {
            return;
        }
        told += 1;
        if let Err(what) = lock_story(order) {
            panic!("{order:?}: {what}");
        }
    });
    assert!(told > 300, "{told} orders");
}
