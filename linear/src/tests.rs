use braid_base::ids::Ino;
use braid_base::msg::fs::RenameMode;
use braid_io::chance::Rng;

use super::content::{self, Content};
use super::locks::{self, Lock};
use super::names::{self, Names};
use super::{History, State, check};

/// Client, begin, end, call, answer; an end of 0: never.
type Line<S> = (u64, u64, u64, <S as State>::Call, Option<<S as State>::Answer>);

fn history<S: State>(lines: Vec<Line<S>>) -> History<S> {
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        moments.push((line.1, false, at));
        if line.2 > 0 {
            moments.push((line.2, true, at));
        }
    }
    moments.sort_unstable();
    let (mut history, mut numbers) = (History::default(), vec![0; lines.len()]);
    for (us, ends, at) in moments {
        let (who, _, _, call, answer) = &lines[at];
        match (ends, answer) {
            (false, _) => numbers[at] = history.begin(*who, call.clone(), us),
            (true, Some(answer)) => history.end(numbers[at], answer.clone(), us),
            (true, None) => panic!("an end has an answer"),
        }
    }
    history
}

fn is_right<S: State + Default>(lines: Vec<Line<S>>) -> bool {
    check(&S::default(), &history::<S>(lines)).is_ok()
}

const A: names::Place = (0, 0);
const B: names::Place = (1, 0);

fn create(serial: u32) -> names::Call {
    names::Call::Create { at: A, serial }
}

fn made(ino: u64) -> Option<names::Answer> {
    Some(names::Answer::Ino(Ino(ino)))
}

fn rename(mode: RenameMode) -> names::Call {
    names::Call::Rename { from: A, to: B, mode }
}

fn write(tag: u32) -> content::Call {
    content::Call::Write { at: 0, units: 2, tag }
}

fn append(tag: u32) -> content::Call {
    content::Call::Append { units: 1, tag }
}

const READ: content::Call = content::Call::Read { at: 0, units: 9 };

fn units(units: &[u32]) -> Option<content::Answer> {
    Some(content::Answer::Units(units.to_vec()))
}

fn at(unit: usize) -> Option<content::Answer> {
    Some(content::Answer::At(unit))
}

#[test]
fn an_exclusive_creation_has_one_winner() {
    let exists = Some(names::Answer::Exists);
    assert!(is_right::<Names>(vec![(1, 1, 4, create(1), made(7)), (2, 2, 3, create(2), exists.clone())]));
    assert!(!is_right::<Names>(vec![(1, 1, 4, create(1), made(7)), (2, 2, 3, create(2), made(8))]));
    assert!(!is_right::<Names>(vec![(1, 3, 4, create(1), made(7)), (2, 1, 2, create(2), exists)]), "exists too early");
}

#[test]
fn a_renamed_file_has_one_name_and_keeps_its_inode() {
    let moved = Some(names::Answer::Moved(Ino(7), None));
    let missing = Some(names::Answer::Missing);
    let (old, new) = (names::Call::Lookup(A), names::Call::Lookup(B));
    let begin = || vec![(1, 1, 2, create(1), made(7)), (1, 3, 9, rename(RenameMode::Replace), moved.clone())];
    let with = |more: Vec<_>| is_right::<Names>(begin().into_iter().chain(more).collect());
    assert!(with(vec![(2, 4, 5, old.clone(), made(7)), (2, 6, 7, new.clone(), made(7))]));
    assert!(!with(vec![(2, 4, 5, new.clone(), made(7)), (2, 6, 7, old.clone(), made(7))]), "two names");
    assert!(!with(vec![(2, 4, 5, old.clone(), missing.clone()), (2, 6, 7, new.clone(), missing.clone())]), "no name");
    assert!(!with(vec![(2, 10, 11, new.clone(), made(8))]), "another inode");
    assert!(!with(vec![(2, 10, 11, old, made(7))]), "the old name afterwards");
    let refused = (2, 10, 11, rename(RenameMode::NoReplace), Some(names::Answer::Exists));
    assert!(with(vec![refused.clone()]));
    assert!(!with(vec![(2, 10, 11, names::Call::Unlink(B), made(7)), (2, 12, 13, refused.3, refused.4)]));
}

#[test]
fn who_is_told_no_inode_still_needs_the_names_to_fit() {
    let done = Some(names::Answer::Done);
    let begin = || vec![(1, 1, 2, create(1), made(7)), (1, 3, 4, rename(RenameMode::NoReplace), done.clone())];
    let with = |line| is_right::<Names>(begin().into_iter().chain([line]).collect());
    assert!(with((2, 5, 6, names::Call::Lookup(B), made(7))));
    assert!(with((2, 5, 6, names::Call::Unlink(B), done.clone())));
    assert!(!with((2, 5, 6, names::Call::Unlink(A), done.clone())), "it has another name");
    assert!(!with((2, 5, 6, rename(RenameMode::Replace), done.clone())), "nothing to move");
    let other = names::Call::Create { at: A, serial: 2 };
    let exchange = |mode| vec![(2, 5, 6, other.clone(), made(8)), (2, 7, 8, rename(mode), done.clone())];
    let with = |mode| is_right::<Names>(begin().into_iter().chain(exchange(mode)).collect());
    assert!(with(RenameMode::Exchange) && with(RenameMode::Replace) && !with(RenameMode::NoReplace));
    let seen = |mode, name, ino| {
        let looks = [(2, 9, 10, names::Call::Lookup(name), made(ino))];
        is_right::<Names>(begin().into_iter().chain(exchange(mode)).chain(looks).collect())
    };
    assert!(seen(RenameMode::Replace, B, 8) && !seen(RenameMode::Replace, A, 7) && !seen(RenameMode::Replace, B, 9));
}

/// Two kernels move one file: the second looked the new name up when the first had moved it there.
#[test]
fn a_kernel_that_sees_one_file_under_both_names_moves_nothing() {
    let done = || Some(names::Answer::Done);
    let of = |mode, begin, mine: names::Call| {
        let first = (1, 3, 8, rename(RenameMode::Replace), done());
        let mut all = history::<Names>(vec![(1, 1, 2, create(1), made(7)), first, (2, begin, begin + 5, mine, done())]);
        let look = all.begin(1, names::Call::Lookup(B), 90);
        all.end(look, names::Answer::Ino(Ino(7)), 91);
        let strict = check(&Names::default(), &all).is_ok();
        all.of_kernels();
        assert!(!strict, "{mode:?}: there is one to move");
        check(&Names::default(), &all).is_ok()
    };
    assert!(of(RenameMode::Replace, 4, rename(RenameMode::Replace)));
    assert!(of(RenameMode::Exchange, 4, rename(RenameMode::Exchange)));
    assert!(of(RenameMode::NoReplace, 4, rename(RenameMode::NoReplace)), "then it was the other one");
    assert!(!of(RenameMode::Replace, 20, rename(RenameMode::Replace)), "nobody came between");
}

#[test]
fn exchanged_names_change_places_at_one_moment() {
    let make_b = names::Call::Create { at: B, serial: 2 };
    let swapped = Some(names::Answer::Moved(Ino(7), Some(Ino(8))));
    let look = |at, ino| (names::Call::Lookup(at), made(ino));
    let with = |(first, seen), (then, found)| {
        is_right::<Names>(vec![
            (1, 1, 2, create(1), made(7)),
            (1, 3, 4, make_b.clone(), made(8)),
            (1, 5, 20, rename(RenameMode::Exchange), swapped.clone()),
            (2, 6, 7, first, seen),
            (2, 8, 9, then, found),
        ])
    };
    assert!(with(look(A, 7), look(B, 7)));
    assert!(with(look(A, 8), look(B, 7)));
    assert!(!with(look(A, 8), look(B, 8)), "under both names at once");
    assert!(!with(look(B, 7), look(A, 7)));
}

#[test]
fn an_open_creation_made_one_inode_or_none() {
    let lookup = || names::Call::Lookup(A);
    let missing = Some(names::Answer::Missing);
    let with = |a: Option<names::Answer>, b: Option<names::Answer>| {
        is_right::<Names>(vec![(1, 1, 0, create(1), None), (2, 2, 3, lookup(), a), (3, 4, 5, lookup(), b)])
    };
    assert!(with(made(7), made(7)));
    assert!(with(missing.clone(), made(7)), "it may take effect late");
    assert!(with(missing.clone(), missing.clone()), "or never");
    assert!(!with(made(7), made(8)));
    assert!(!with(made(7), missing));
    let again = (2, 2, 3, names::Call::Create { at: A, serial: 2 }, made(7));
    assert!(!is_right::<Names>(vec![(1, 1, 0, create(1), None), again, (2, 4, 5, lookup(), made(8))]));
}

#[test]
fn a_read_sees_the_last_write_that_ended_before_it() {
    let done = Some(content::Answer::Done);
    let with = |found: &[u32]| {
        is_right::<Content>(vec![
            (1, 1, 2, write(1), done.clone()),
            (1, 3, 8, write(2), done.clone()),
            (2, 4, 5, READ, units(found)),
        ])
    };
    assert!(with(&[1, 1]) && with(&[2, 2]));
    assert!(!with(&[1, 2]), "half of a write");
    assert!(!with(&[]) && !with(&[0, 0]), "too old");
    let back = |a: &[u32], b: &[u32]| {
        is_right::<Content>(vec![
            (1, 1, 2, write(1), done.clone()),
            (1, 3, 0, write(2), None),
            (2, 4, 5, READ, units(a)),
            (3, 6, 7, READ, units(b)),
        ])
    };
    assert!(back(&[1, 1], &[2, 2]) && back(&[2, 2], &[2, 2]) && back(&[1, 1], &[1, 1]));
    assert!(!back(&[2, 2], &[1, 1]), "what was seen is not taken back");
}

#[test]
fn appends_follow_each_other() {
    let two = |a, b, found: &[u32]| {
        is_right::<Content>(vec![
            (1, 1, 5, append(1), at(a)),
            (2, 2, 6, append(2), at(b)),
            (3, 7, 8, READ, units(found)),
            (3, 9, 10, content::Call::Size, Some(content::Answer::Size(found.len()))),
        ])
    };
    assert!(two(0, 1, &[1, 2]) && two(1, 0, &[2, 1]));
    assert!(!two(0, 0, &[1]) && !two(0, 1, &[2, 1]) && !two(0, 2, &[1, 0, 2]));
    assert!(!two(0, 1, &[1, 2, 2]), "twice");
    let cut = (2, 3, 4, content::Call::Truncate { units: 0 }, Some(content::Answer::Done));
    assert!(is_right::<Content>(vec![(1, 1, 2, append(1), at(0)), cut.clone(), (1, 5, 6, append(3), at(0))]));
    assert!(!is_right::<Content>(vec![(1, 1, 2, append(1), at(0)), cut, (1, 5, 6, append(3), at(1))]));
    let untold = |found: &[u32]| {
        let append = |tag, begin| (u64::from(tag), begin, begin + 3, append(tag), Some(content::Answer::Done));
        is_right::<Content>(vec![append(1, 1), append(2, 2), (3, 7, 8, READ, units(found))])
    };
    assert!(untold(&[1, 2]) && untold(&[2, 1]) && !untold(&[1]) && !untold(&[1, 1]));
    let torn = Some(content::Answer::Torn("of two".to_owned()));
    assert!(!is_right::<Content>(vec![(1, 1, 2, append(1), at(0)), (1, 3, 4, READ, torn)]));
    assert!(is_right::<Content>(vec![
        (1, 1, 2, append(1), Some(content::Answer::NoRoom)),
        (1, 3, 4, READ, units(&[]))
    ]));
}

#[test]
fn a_lock_has_one_holder_until_it_is_given_back_or_lost() {
    let (done, busy) = (Some(locks::Answer::Done), Some(locks::Answer::Busy));
    let take = |me| locks::Call::Take(me);
    let two = |end, give: Option<u64>| {
        let mut lines = vec![(1, 1, 2, take(1), done.clone()), (2, 3, end, take(2), done.clone())];
        lines.extend(give.map(|at| (1, at, at + 1, locks::Call::Give(1), done.clone())));
        is_right::<Lock>(lines)
    };
    assert!(two(9, Some(4)) && !two(9, None) && !two(4, Some(5)));
    assert!(!is_right::<Lock>(vec![(2, 3, 4, take(2), busy.clone())]), "nobody has it");
    assert!(is_right::<Lock>(vec![(1, 1, 2, take(1), done.clone()), (2, 3, 4, take(2), busy)]));
    let mut lost = history::<Lock>(vec![(1, 1, 2, take(1), done.clone()), (2, 3, 4, take(2), done)]);
    assert!(check(&Lock::default(), &lost).is_err());
    lost.perhaps_since(0, 1, locks::Call::Lose(1));
    assert_eq!(check(&Lock::default(), &lost), Ok(()));
}

/// Seed 2529 of the leaving world: client 1 had the lock in a term that ended before it was told so, client 2 was refused
/// because of that, got it from the next primary and gave it back, and then client 1 got it again.
#[test]
fn a_lock_that_nobody_was_told_of_may_come_again() {
    let (done, busy) = (locks::Answer::Done, locks::Answer::Busy);
    let of = |failed_over: bool| {
        let mut all = history::<Lock>(vec![(1, 1, 0, locks::Call::Take(1), None)]);
        let calls = [(locks::Call::Take(2), busy.clone()), (locks::Call::Take(2), done.clone())];
        for (at, (call, answer)) in calls.into_iter().chain([(locks::Call::Give(2), done.clone())]).enumerate() {
            let number = all.begin(2, call, 10 * at as u64 + 2);
            all.end(number, answer, 10 * at as u64 + 3);
        }
        all.end(0, locks::Answer::Done, 40);
        if failed_over {
            locks::came_again(&mut all, 0, 1);
        }
        check(&Lock::default(), &all).is_ok()
    };
    assert!(of(true) && !of(false));
}

/// Seed 2067 of the tiered world: client 1 had the lock in a term that ended before it was told so, client 2 was refused
/// because of that, client 3 got it from the next primary, which then refused client 1.
#[test]
fn a_lock_that_nobody_was_told_of_ends_with_its_primary() {
    let (done, busy) = (Some(locks::Answer::Done), Some(locks::Answer::Busy));
    let take = |me| locks::Call::Take(me);
    // Client 2 asks at `at`; client 3 gives the lock back before that, or never.
    let of = |at: u64, failed_over: bool, gives: bool| {
        let mut lines = vec![(1, 1, 0, take(1), None), (2, at, at + 1, take(2), busy.clone())];
        lines.push((3, 6, 7, take(3), done.clone()));
        lines.extend(gives.then(|| (3, 12, 13, locks::Call::Give(3), done.clone())));
        lines.sort_by_key(|line| line.1);
        let before = |line: &Line<Lock>| line.1 < 10;
        let (early, late): (Vec<_>, Vec<_>) = lines.into_iter().partition(before);
        let mut all = history::<Lock>(early);
        match failed_over {
            true => locks::refused_elsewhere(&mut all, 0, 1, 10),
            false => all.end(0, locks::Answer::Busy, 10),
        }
        for (who, begin, end, call, answer) in late {
            let number = all.begin(who, call, begin);
            all.end(number, answer.expect("it was answered"), end);
        }
        check(&Lock::default(), &all).is_ok()
    };
    assert!(of(3, true, false), "client 1 had it then");
    assert!(!of(3, false, false), "without a change of primary nobody had it");
    assert!(of(8, false, false) && of(8, true, false), "client 3 has it");
    assert!(!of(20, true, true), "client 1 has it not any more, and client 3 gave it back");
}

#[test]
fn what_is_cut_off_is_not_judged_and_what_was_under_way_is_open() {
    let done = Some(content::Answer::Done);
    let mut all = history::<Content>(vec![
        (1, 1, 2, write(1), done.clone()),
        (2, 3, 9, write(2), done.clone()),
        (1, 4, 5, write(3), done),
        (3, 10, 11, READ, units(&[7])),
    ]);
    assert!(check(&Content::default(), &all).is_err());
    all.cut(2);
    assert_eq!((all.entries().len(), all.open()), (2, 1));
    assert_eq!(check(&Content::default(), &all), Ok(()));
}

#[test]
fn a_broken_history_is_shown_without_what_does_not_matter() {
    let mut lines = Vec::new();
    for call in 0..40u64 {
        lines.push((1, 10 * call + 1, 10 * call + 2, append(call as u32 + 1), at(call as usize)));
        lines.push((2, 10 * call + 3, 10 * call + 5, content::Call::Read { at: 0, units: 0 }, units(&[])));
    }
    lines.push((1, 500, 600, append(41), at(40)));
    lines.push((2, 501, 502, content::Call::Size, Some(content::Answer::Size(41))));
    lines.push((3, 503, 504, content::Call::Size, Some(content::Answer::Size(41))));
    lines.push((2, 505, 506, content::Call::Size, Some(content::Answer::Size(40))));
    let told = check(&Content::default(), &history::<Content>(lines)).expect_err("the size fell");
    let calls: Vec<&str> = told.lines().skip(2).collect();
    assert_eq!(calls.len(), 4, "{told}");
    assert!(calls[1].contains("Append { units: 1, tag: 41 }") && calls[3].contains("Size(40)"), "{told}");
}

/// Clients on a real object in random order: right; one answer changed: wrong whenever it can be told.
#[test]
fn histories_of_a_real_object_are_right_and_changed_answers_are_found() {
    let mut found = 0;
    for seed in 0..200 {
        let rng = &mut Rng::new(seed);
        let (mut object, mut all) = (Content::default(), History::<Content>::default());
        let mut under_way: Vec<(u64, usize, content::Call, Option<content::Answer>)> = Vec::new();
        for tag in 0..60u32 {
            // Each call takes effect at a moment of its own between its begin and its end.
            if under_way.len() < 4 {
                let call = match rng.below(4) {
                    0 => content::Call::Write { at: rng.index(6), units: 1 + rng.index(3), tag: tag + 1 },
                    1 => append(tag + 1),
                    2 => content::Call::Truncate { units: rng.index(6) },
                    _ => READ,
                };
                let who = (1..9).find(|who| under_way.iter().all(|call| call.0 != *who)).unwrap_or(9);
                under_way.push((who, all.begin(who, call.clone(), 0), call, None));
            }
            let at = rng.index(under_way.len());
            match &mut under_way[at] {
                (_, _, call, answer @ None) => {
                    let (size, now) = (object.0.len(), object.clone());
                    *answer = Some(match call {
                        content::Call::Append { .. } => content::Answer::At(size),
                        content::Call::Read { .. } => content::Answer::Units(now.0[..size.min(9)].to_vec()),
                        _ => content::Answer::Done,
                    });
                    object = object.step(call, answer.as_ref()).expect("this is what it does");
                }
                (_, number, _, Some(answer)) => {
                    all.end(*number, answer.clone(), 0);
                    under_way.swap_remove(at);
                }
            }
        }
        assert_eq!(check(&Content::default(), &all), Ok(()), "seed {seed}");
        let appends = |entry: &&mut super::Entry<Content>| matches!(entry.answer, Some(content::Answer::At(_)));
        if let Some(entry) = all.entries.iter_mut().rev().find(appends)
            && let Some(content::Answer::At(place)) = &mut entry.answer
        {
            *place += 1_000;
            assert!(check(&Content::default(), &all).is_err(), "seed {seed}");
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}
