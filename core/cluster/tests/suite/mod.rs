//! What every coordinator must do, as functions over the trait: run by `embedded.rs` and by whoever comes later.

use std::sync::Arc;
use std::thread;

use braid_base::ErrorKind;
use braid_cluster::coordinator::{Check, Coordinator, Outcome, Revision, TXN_OPS_MAX, Txn};

/// A fresh, empty coordinator seen by two clients, and a way to let time pass for its sessions.
pub struct Subject {
    pub one: Arc<dyn Coordinator>,
    pub two: Arc<dyn Coordinator>,
    pub pass_ms: Box<dyn Fn(u64)>,
}

/// Runs every rule, each on a subject of its own.
pub fn conform(make: &dyn Fn() -> Subject) {
    type Rule = (&'static str, fn(&Subject));
    let rules: [Rule; 12] = [
        ("reads what was put", reads_what_was_put),
        ("ranges are ordered, bounded and of one revision", ranges),
        ("compares guard every write", compares_guard),
        ("created and modified revisions", revisions),
        ("a transaction without effect keeps the revision", no_effect),
        ("malformed transactions are refused whole", malformed),
        ("counters never repeat", counters),
        ("watch sees changes once, in order, from a revision", watch_in_order),
        ("watch keeps transactions together and waits", watch_waits),
        ("a watch from what cannot come next says so", watch_ahead),
        ("sessions take their keys along", sessions_end),
        ("sessions live while kept alive", sessions_live),
    ];
    for (name, rule) in rules {
        println!("rule: {name}");
        rule(&make());
    }
}

fn done(outcome: Outcome) -> Revision {
    match outcome {
        Outcome::Done(revision) => revision,
        Outcome::Conflict => panic!("expected the transaction to be applied, found a conflict"),
    }
}

fn put(c: &dyn Coordinator, key: &str, value: &str) -> Revision {
    done(c.txn(&Txn::new().put(key, value)).expect("a plain put works"))
}

fn text(c: &dyn Coordinator, key: &str) -> Option<String> {
    let item = c.get(key).expect("get works");
    item.map(|item| String::from_utf8(item.value).expect("the test puts text"))
}

fn reads_what_was_put(s: &Subject) {
    assert_eq!(text(&*s.one, "a"), None);
    put(&*s.one, "a", "1");
    assert_eq!(text(&*s.two, "a").as_deref(), Some("1"), "the other client sees it");
    done(s.two.txn(&Txn::new().put("a", "2").put("b", Vec::new())).expect("put"));
    assert_eq!(text(&*s.one, "a").as_deref(), Some("2"));
    assert_eq!(text(&*s.one, "b").as_deref(), Some(""), "an empty value is a value");
    done(s.one.txn(&Txn::new().delete("a").delete("never")).expect("delete"));
    assert_eq!(text(&*s.two, "a"), None);
}

fn ranges(s: &Subject) {
    for key in ["fs/2", "fs/10", "fs", "fs0", "fr/9", "ft"] {
        put(&*s.one, key, key);
    }
    let found = s.two.range("fs/").expect("range");
    let keys: Vec<&str> = found.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["fs/10", "fs/2"]);
    assert!(found.revision >= found.items.iter().map(|item| item.modified).max().expect("two items"));
    assert_eq!(s.one.range("").expect("range").items.len(), 6);
    assert_eq!(s.one.range("zzz").expect("range").items, []);
}

fn compares_guard(s: &Subject) {
    let create = Txn::new().when("k", Check::Absent).put("k", "1").put("side", "1");
    let first = done(s.one.txn(&create).expect("create"));
    assert_eq!(s.two.txn(&create).expect("no error"), Outcome::Conflict);
    let second = put(&*s.two, "k", "2");
    let stale = Txn::new().when("k", Check::Modified(first)).put("k", "3").put("side", "3").delete("other");
    assert_eq!(s.one.txn(&stale).expect("no error"), Outcome::Conflict);
    assert_eq!(text(&*s.one, "side").as_deref(), Some("1"), "a conflict changes nothing at all");
    done(s.one.txn(&Txn::new().when("k", Check::Modified(second)).put("k", "4")).expect("fresh"));
    let controller = Txn::new().when("k", Check::Created(first)).when("gone", Check::Absent).put("x", "y");
    done(s.two.txn(&controller).expect("the creation revision survives puts"));
    let missing = Txn::new().when("gone", Check::Modified(Revision(0))).put("x", "z");
    assert_eq!(s.one.txn(&missing).expect("no error"), Outcome::Conflict, "a missing key has no revision 0");
}

fn revisions(s: &Subject) {
    let first = put(&*s.one, "k", "1");
    let second = put(&*s.one, "k", "2");
    let item = s.one.get("k").expect("get").expect("there");
    assert_eq!((item.created, item.modified), (first, second));
    assert!(second > first);
    done(s.one.txn(&Txn::new().delete("k")).expect("delete"));
    let third = put(&*s.one, "k", "3");
    let item = s.two.get("k").expect("get").expect("there");
    assert_eq!((item.created, item.modified), (third, third), "a new life has a new creation revision");
}

fn no_effect(s: &Subject) {
    let before = put(&*s.one, "k", "1");
    let after = done(s.one.txn(&Txn::new().when("k", Check::Modified(before)).delete("never")).expect("no error"));
    assert_eq!(after, before);
}

fn malformed(s: &Subject) {
    let twice = Txn::new().put("a", "1").put("a", "2");
    let both = Txn::new().put("a", "1").delete("a");
    let many = (0..=TXN_OPS_MAX).fold(Txn::new(), |txn, i| txn.put(&format!("k{i}"), "v"));
    let large = Txn::new().put("a", vec![0; 2 << 20]);
    for bad in [twice, both, many, large, Txn::new().put("", "v")] {
        let error = s.one.txn(&bad).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(s.one.range("").expect("range").items, []);
}

fn counters(s: &Subject) {
    assert_eq!(s.one.counter("fs").expect("counter"), 1);
    assert_eq!(s.two.counter("fs").expect("counter"), 2);
    assert_eq!(s.two.counter("drive").expect("counter"), 1, "names are apart");
    let mut given: Vec<u64> = thread::scope(|scope| {
        let takers = [s.one.clone(), s.two.clone()]
            .map(|c| scope.spawn(move || (0..10).map(|_| c.counter("fs").expect("counter")).collect::<Vec<_>>()));
        takers.into_iter().flat_map(|taker| taker.join().expect("no panic")).collect()
    });
    given.sort_unstable();
    assert_eq!(given, (3..=22).collect::<Vec<_>>());
}

fn watch_in_order(s: &Subject) {
    put(&*s.one, "w/a", "0");
    let start = s.one.range("w/").expect("range").revision.next();
    let mut watch = s.two.watch("w/", start).expect("watch");
    put(&*s.one, "w/a", "1");
    put(&*s.one, "other", "1");
    done(s.one.txn(&Txn::new().delete("w/a").put("w/b", "2")).expect("txn"));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let events = watch.next(2_000).expect("events");
        assert!(!events.is_empty(), "three events expected within two seconds, found {seen:?}");
        seen.extend(events.into_iter().map(|e| (e.revision, e.key, e.item.map(|item| item.value))));
    }
    assert_eq!((seen[0].1.as_str(), seen[0].2.as_deref()), ("w/a", Some(&b"1"[..])));
    let mut last = [seen[1].clone(), seen[2].clone()];
    last.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!((last[0].1.as_str(), &last[0].2), ("w/a", &None));
    assert_eq!((last[1].1.as_str(), last[1].2.as_deref()), ("w/b", Some(&b"2"[..])));
    assert!(seen[0].0 < last[0].0 && last[0].0 == last[1].0);
    assert_eq!(watch.next(0).expect("nothing more"), []);
    let mut again = s.one.watch("w/", last[0].0).expect("watch from the past");
    assert_eq!(again.next(2_000).expect("events").len(), 2, "history from the asked revision");
}

/// As after the place was put back to an old state.
fn watch_ahead(s: &Subject) {
    let now = s.one.range("").expect("range").revision;
    let error = match s.two.watch("w/", Revision(now.0 + 1_000)) {
        Ok(mut watch) => watch.next(5_000).expect_err("it would be silent"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
}

fn watch_waits(s: &Subject) {
    let start = s.one.range("").expect("range").revision.next();
    let mut watch = s.two.watch("w/", start).expect("watch");
    thread::scope(|scope| {
        let waiter = scope.spawn(move || watch.next(5_000));
        thread::yield_now();
        done(s.one.txn(&Txn::new().put("w/1", "").put("w/2", "").put("w/3", "")).expect("txn"));
        let events = waiter.join().expect("no panic").expect("events");
        assert_eq!(events.len(), 3, "one transaction arrives whole");
    });
}

fn sessions_end(s: &Subject) {
    let short = s.one.session(2_000).expect("session");
    let long = s.one.session(600_000).expect("session");
    done(
        s.one
            .txn(&Txn::new().put_live("live/1", "a", short).put_live("live/2", "b", long).put("stays", "c"))
            .expect("txn"),
    );
    let start = s.one.range("live/").expect("range").revision.next();
    let mut watch = s.two.watch("live/", start).expect("watch");
    (s.pass_ms)(6_000);
    assert_eq!(text(&*s.two, "live/1"), None, "its session ran out");
    assert_eq!(text(&*s.two, "live/2").as_deref(), Some("b"));
    let events = watch.next(5_000).expect("events");
    assert_eq!(events.iter().map(|e| (e.key.as_str(), e.item.is_none())).collect::<Vec<_>>(), [("live/1", true)]);
    assert_eq!(s.one.keep_alive(short).expect_err("it has ended").kind(), ErrorKind::Stale);
    let late = s.one.txn(&Txn::new().put_live("live/1", "z", short)).expect_err("it has ended");
    assert_eq!(late.kind(), ErrorKind::Stale);
    s.one.end_session(long).expect("end");
    s.one.end_session(long).expect("twice is no error");
    assert_eq!(text(&*s.one, "live/2"), None);
    assert_eq!(text(&*s.one, "stays").as_deref(), Some("c"));
}

fn sessions_live(s: &Subject) {
    let session = s.one.session(5_000).expect("session");
    done(s.one.txn(&Txn::new().put_live("live/1", "a", session)).expect("txn"));
    for _ in 0..3 {
        (s.pass_ms)(2_500);
        s.one.keep_alive(session).expect("alive");
    }
    assert_eq!(text(&*s.two, "live/1").as_deref(), Some("a"));
    put(&*s.two, "live/1", "mine now");
    s.one.end_session(session).expect("end");
    assert_eq!(text(&*s.one, "live/1").as_deref(), Some("mine now"), "a plain put frees the key of its session");
}
