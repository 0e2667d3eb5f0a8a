//! The link of a host to a store: limits, repeats, states, record.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use braid_base::ids::{Guid, HostId};
use braid_base::store::{Bandwidth, Concurrency, Place, StoreSpec};
use braid_base::{Error, ErrorKind, Result};
use braid_tier::{BoxFuture, CHECKS_MAX, Direction, Kind, Link, Listed, RECENT_MAX, State, Store, Total, open};
use bytes::Bytes;
use tokio::time::Instant;

use crate::faulty::{Asked, Faulty, Reply};
use crate::s3_at;

/// A store that takes a second for everything, counts, and fails as it is told.
#[derive(Clone, Default)]
struct Slow {
    under_way: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    fails: Option<ErrorKind>,
    /// From now on it does not.
    mends: Arc<AtomicBool>,
}

impl Slow {
    fn work<T: Send + 'static>(&self, done: T) -> BoxFuture<Result<T>> {
        let this = self.clone();
        Box::pin(async move {
            this.asked.fetch_add(1, Ordering::SeqCst);
            let now = this.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            this.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            this.under_way.fetch_sub(1, Ordering::SeqCst);
            let fails = this.fails.filter(|_| !this.mends.load(Ordering::SeqCst));
            fails.map_or(Ok(done), |kind| Err(Error::new(kind, "as the test wants it")))
        })
    }
}

impl Store for Slow {
    fn put(&self, _: &str, _: Vec<Bytes>) -> BoxFuture<Result<()>> {
        self.work(())
    }

    fn get(&self, _: &str, range: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        let length = range.map_or(63, |range| usize::try_from(range.end - range.start).unwrap());
        self.work(vec![0; length].into())
    }

    fn size(&self, _: &str) -> BoxFuture<Result<u64>> {
        self.work(0)
    }

    fn delete(&self, _: &str) -> BoxFuture<Result<()>> {
        self.work(())
    }

    fn list(&self, _: &str, _: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        self.work(Vec::new())
    }
}

fn spec() -> StoreSpec {
    StoreSpec::at(Place::Dir { path: "/none".to_owned() })
}

fn link(store: impl Store, spec: &StoreSpec) -> Link {
    Link::new(Arc::new(store), spec, Guid([7; 16]), HostId(3)).unwrap()
}

async fn over_http(server: &Faulty, seconds: u32) -> Link {
    let mut spec = s3_at(server.port);
    spec.errors_timeout_s = seconds;
    Link::new(open(&spec).unwrap(), &spec, Guid([7; 16]), HostId(3)).unwrap()
}

fn bytes(length: usize) -> Vec<Bytes> {
    vec![vec![0; length].into()]
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_of_a_kind_than_allowed_are_under_way() {
    let (store, mut spec) = (Slow::default(), spec());
    spec.concurrency = Concurrency { uploads: 2, downloads: 3, removals: 1 };
    let link = link(store.clone(), &spec);
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (one, two, three) = (link.clone(), link.clone(), link.clone());
        tasks.spawn(async move { one.put(&format!("u{n}"), bytes(1)).await });
        tasks.spawn(async move { two.get("d", Some(0..1)).await.map(drop) });
        tasks.spawn(async move { three.delete("r").await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(store.most.load(Ordering::SeqCst), 2 + 3 + 1);
    assert_eq!(began.elapsed().as_secs(), 6, "removals go one after another");
    let widest = |kind| link.operations().iter().filter(|o| o.kind == kind).map(|o| o.concurrency).max();
    assert_eq!((widest(Kind::Upload), widest(Kind::Remove)), (Some(2), Some(1)));
    let total = |kind| link.totals().into_iter().find(|(of, _)| *of == kind).map(|(_, total)| total);
    let took = std::time::Duration::from_secs(6);
    assert_eq!(total(Kind::Upload), Some(Total { done: 6, failed: 0, bytes: 6, requests: 6, took }));
    assert_eq!(total(Kind::Remove), Some(Total { done: 6, failed: 0, bytes: 0, requests: 6, took }));
    assert_eq!(total(Kind::Check), None);
}

#[tokio::test(start_paused = true)]
async fn bandwidth_is_kept() {
    let mut spec = spec();
    spec.bandwidth = Bandwidth { upload: Some(1_000_000), ..Bandwidth::default() };
    let link = link(Slow::default(), &spec);
    let began = Instant::now();
    let uploads: Vec<_> = (0..11)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move { link.put("k", bytes(500_000)).await })
        })
        .collect();
    for upload in uploads {
        upload.await.unwrap().unwrap();
    }
    // Ten times half a second until the last one begins, and the second that it takes.
    assert_eq!(began.elapsed().as_secs(), 6);
    let began = Instant::now();
    link.get("k", Some(0..50_000_000)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 1, "downloads have no limit here");
    link.download("k", Some(0..7), |got| Some(got.len() as u64)).await.unwrap();
    assert_eq!(link.operations()[0].inode, Some(7), "what came told whose it is");
}

#[tokio::test(start_paused = true)]
async fn removals_are_paced_as_if_objects_were_full() {
    let mut spec = spec();
    spec.bandwidth = Bandwidth { all: Some(1), remove: Some(32 << 20), ..Bandwidth::default() };
    let (link, began) = (link(Slow::default(), &spec), Instant::now());
    for _ in 0..4 {
        link.remove("k").await.unwrap();
    }
    // Two seconds each but the last, and the second that it takes; what goes over the line has a limit of its own.
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test]
async fn a_busy_store_is_asked_again() {
    let server = Faulty::start(|asked: &Asked, n| match n {
        0 => Reply::Code(503, "SlowDown"),
        1 => Reply::Close,
        _ => Reply::Send(
            200,
            vec![("x-amz-checksum-sha256", asked.header("x-amz-checksum-sha256").unwrap().into())],
            vec![],
        ),
    })
    .await;
    let link = over_http(&server, 20).await;
    link.upload("k", bytes(5), Some(42)).await.unwrap();
    assert_eq!(server.seen().len(), 3);
    let operation = &link.operations()[0];
    assert_eq!(operation.results_line(), "TIMED_OUT: 1, IO: 1, SUCCESS: 1");
    assert_eq!(operation.last_http_error.as_deref(), Some("HTTP 503 SlowDown"));
    assert_eq!(link.failures(), [(Kind::Upload, None, 1), (Kind::Upload, Some(503), 1)]);
    assert_eq!((operation.line_errors, operation.size, operation.inode), (1, 5, Some(42)));
    assert_eq!((operation.phase(), operation.kind.word(), operation.key.as_str()), ("Recent", "UPLOAD", "k"));
    assert!(operation.previous.unwrap() <= operation.took && operation.started.sec > 1_700_000_000);
    assert_eq!(link.health(Direction::Upload).state, State::Up);
    assert_eq!(link.health(Direction::Download).state, State::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_silent_is_given_up_in_time() {
    let (store, mut spec) = (Slow { fails: Some(ErrorKind::Io), ..Slow::default() }, spec());
    spec.errors_timeout_s = 60;
    let link = link(store.clone(), &spec);
    for direction in [Direction::Download, Direction::Upload] {
        let (began, asked) = (Instant::now(), store.asked.load(Ordering::SeqCst));
        let error = match direction {
            Direction::Download => link.get("k", None).await.unwrap_err(),
            _ => link.put("k", bytes(1)).await.unwrap_err(),
        };
        let (took, tries) = (began.elapsed().as_secs(), store.asked.load(Ordering::SeqCst) - asked);
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!((40..=61).contains(&took), "{took} s: to the end, and no longer");
        assert!((7..=20).contains(&tries), "{tries} tries: the pauses grow, to a limit");
        assert!(error.message().contains(&format!("tried {tries} times")), "{error}");
        let health = link.health(direction);
        assert_eq!((health.state, health.last_error.as_deref()), (State::Down, Some("as the test wants it")));
    }
}

/// A store that fails so often, and then never answers.
#[derive(Default)]
struct Silent(AtomicUsize);

impl Silent {
    fn work<T: Send + 'static>(&self) -> BoxFuture<Result<T>> {
        let fails = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match fails {
            Ok(_) => Box::pin(std::future::ready(Err(Error::new(ErrorKind::Io, "as the test wants it")))),
            Err(_) => Box::pin(std::future::pending()),
        }
    }
}

impl Store for Silent {
    fn put(&self, _: &str, _: Vec<Bytes>) -> BoxFuture<Result<()>> {
        self.work()
    }

    fn get(&self, _: &str, _: Option<Range<u64>>) -> BoxFuture<Result<Bytes>> {
        self.work()
    }

    fn size(&self, _: &str) -> BoxFuture<Result<u64>> {
        self.work()
    }

    fn delete(&self, _: &str) -> BoxFuture<Result<()>> {
        self.work()
    }

    fn list(&self, _: &str, _: Option<&str>) -> BoxFuture<Result<Vec<Listed>>> {
        self.work()
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_said_is_the_reason_when_the_last_attempt_is_broken_off() {
    let mut spec = spec();
    spec.errors_timeout_s = 60;
    let link = link(Silent(AtomicUsize::new(1)), &spec);
    let error = link.get("k", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("as the test wants it (tried 2 times in 60 s)"), "{error}");
    assert_eq!(link.operations()[0].results_line(), "IO: 1, TIMED_OUT: 1");
    assert_eq!(link.health(Direction::Download).last_error.as_deref(), Some("as the test wants it"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_end_has_one() {
    let mut spec = spec();
    spec.errors_timeout_s = 60;
    let link = link(Silent::default(), &spec);
    let began = Instant::now();
    assert_eq!(link.get("k", None).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(link.put("k", bytes(1)).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 60 + 240, "an upload may need longer than a store may be silent");
}

#[tokio::test]
async fn a_missing_object_is_no_outage_and_a_missing_bucket_is() {
    let server = Faulty::start(|asked: &Asked, _| {
        Reply::Code(404, if asked.target.contains("object") { "NoSuchKey" } else { "NoSuchBucket" })
    })
    .await;
    let link = over_http(&server, 20).await;
    assert_eq!(link.get("object", None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(server.seen().len(), 1, "asking again does not help");
    assert_eq!(link.health(Direction::Download).state, State::Up);
    for _ in 0..3 {
        assert_eq!(link.get("other", None).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(link.health(Direction::Download).state, State::Down);
}

#[tokio::test]
async fn wrong_credentials_are_down_at_once() {
    let server = Faulty::start(|_: &Asked, n| match n {
        0 => Reply::Code(403, "InvalidAccessKeyId"),
        _ => Reply::Send(204, vec![], vec![]),
    })
    .await;
    let link = over_http(&server, 20).await;
    assert_eq!(link.delete("k").await.unwrap_err().kind(), ErrorKind::AccessDenied);
    assert_eq!(link.health(Direction::Remove).state, State::Down);
    link.delete("k").await.unwrap();
    assert_eq!(link.health(Direction::Remove).state, State::Up);
}

#[tokio::test]
async fn a_full_store_stops_uploads_and_nothing_else() {
    let server = Faulty::start(|asked: &Asked, _| match asked.method.as_str() {
        "PUT" => Reply::Code(507, "InsufficientStorage"),
        _ => Reply::Send(200, vec![("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT".into())], b"bytes".to_vec()),
    })
    .await;
    let link = over_http(&server, 20).await;
    for _ in 0..5 {
        assert_eq!(link.put("k", bytes(1)).await.unwrap_err().kind(), ErrorKind::Quota);
    }
    let puts = server.seen().iter().filter(|asked| asked.method == "PUT").count();
    assert_eq!(puts, 1, "the others did not leave the host");
    assert!(link.is_full());
    assert_eq!(link.health(Direction::Upload).state, State::Down);
    assert_eq!(link.get("k", None).await.unwrap(), "bytes");
    assert_eq!(link.health(Direction::Download).state, State::Up);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_room_again_is_found_out_though_nobody_uploads() {
    let store = Slow { fails: Some(ErrorKind::Quota), ..Slow::default() };
    let link = link(store.clone(), &spec());
    link.look_for_room().await.unwrap();
    assert_eq!(store.asked.load(Ordering::SeqCst), 0, "it is not known to be full");
    link.put("k", bytes(1)).await.unwrap_err();
    let look = async || {
        let before = store.asked.load(Ordering::SeqCst);
        let found = link.look_for_room().await.map_err(|error| error.kind());
        (store.asked.load(Ordering::SeqCst) - before, found)
    };
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(look().await, (0, Ok(())), "somebody may come with an upload soon");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(look().await, (1, Err(ErrorKind::Quota)));
    assert_eq!(look().await, (0, Ok(())), "once a minute");
    assert!(link.is_full() && link.health(Direction::Upload).state == State::Down);
    store.mends.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(look().await, (1, Ok(())));
    assert!(!link.is_full() && link.health(Direction::Upload).state == State::Up);
}

#[tokio::test(start_paused = true)]
async fn the_record_is_bounded_and_shows_what_is_under_way() {
    let link = link(Slow::default(), &spec());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..RECENT_MAX + 7 {
        let link = link.clone();
        tasks.spawn(async move { link.remove(&format!("k{n}")).await });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ongoing: Vec<_> = link.operations().into_iter().filter(|o| o.ongoing).collect();
    assert_eq!(ongoing.len(), 64);
    assert!(ongoing.iter().all(|o| o.phase() == "Ongoing" && o.took == Duration::from_millis(500)));
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    let all = link.operations();
    assert_eq!(all.len(), RECENT_MAX);
    assert!(all.windows(2).all(|pair| !pair[0].ongoing && pair[0].id > pair[1].id), "the newest first");
    assert!(all.iter().all(|o| o.results_line() == "SUCCESS: 1" && o.took == Duration::from_secs(1)));
    for _ in 0..CHECKS_MAX + 7 {
        link.check().await.unwrap();
    }
    let all = link.operations();
    let checks = all.iter().filter(|o| o.kind == Kind::Check).count();
    assert_eq!((checks, all.len()), (CHECKS_MAX, RECENT_MAX), "questions do not push out what was moved");
    assert!(all.windows(2).all(|pair| pair[0].id > pair[1].id));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_any_more_frees_the_slot() {
    let mut spec = spec();
    spec.concurrency.downloads = 1;
    let link = link(Slow::default(), &spec);
    let given_up = tokio::time::timeout(Duration::from_millis(100), link.get("k", None)).await;
    assert!(given_up.is_err());
    assert_eq!(link.operations()[0].results_line(), "CANCELLED: 1");
    let failed: u64 = link.totals().iter().map(|(_, total)| total.failed).sum();
    assert!(failed > 0, "{:?}", link.totals());
    assert!(!link.operations()[0].ongoing);
    link.get("k", None).await.unwrap();
}

#[tokio::test]
async fn the_keepalive_is_written_once_and_read_after() {
    let folder = tempfile::tempdir().unwrap();
    let spec = StoreSpec::at(Place::Dir { path: folder.path().to_str().unwrap().to_owned() });
    let link = Link::new(open(&spec).unwrap(), &spec, Guid([7; 16]), HostId(3)).unwrap();
    for lost in [Some(false), None, None] {
        link.check().await.unwrap();
        assert_eq!(link.take_lost(), lost, "it was not there at first");
    }
    let key = "07070707/verify/3/keepalive/0707-0707-0707-070707070707";
    assert_eq!(link.size(key).await.unwrap(), 63);
    let kinds: Vec<_> = link.operations().iter().rev().map(|o| o.kind).collect();
    assert_eq!(kinds, [Kind::Check, Kind::Upload, Kind::Check, Kind::Check, Kind::Check]);
    link.delete(key).await.unwrap();
    link.check().await.unwrap();
    assert_eq!((link.take_lost(), link.take_lost()), (Some(true), None), "somebody removed it");
    drop(folder);
    link.check().await.unwrap_err();
    assert_eq!(link.health(Direction::Download).state, State::Down, "once is enough: nobody repeats it");
}
