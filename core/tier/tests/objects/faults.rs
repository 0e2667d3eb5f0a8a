//! What becomes of a request when the server, or what is between, misbehaves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_base::ids::{BlobId, FsId, Guid, HostId, Ino, PartitionId, Term};
use braid_base::store::{AzureAuth, Place, Protocol, S3, S3Auth, Secret, StoreSpec};
use braid_base::{Error, ErrorKind};
use braid_tier::blob::{self, Block, Header};
use braid_tier::{Store, open, verify};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use crate::faulty::{Asked, Faulty, Reply};
use crate::{SECRET, azure_at, endpoint, https, s3_at};

fn store(spec: &StoreSpec) -> Arc<dyn Store> {
    open(spec).unwrap()
}

/// The error of a read to which the server replies so.
async fn read(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Error {
    let server = Faulty::start(move |_: &Asked, _| reply()).await;
    let mut spec = s3_at(server.port);
    spec.errors_timeout_s = 1;
    let error = store(&spec).get("a/b", Some(0..10)).await.expect_err("it is a fault");
    assert_eq!(server.seen().len(), 1, "repeating is for the link: {error}");
    sound(&error);
    error
}

/// A message names what was asked for and tells no secret.
fn sound(error: &Error) {
    assert!(!error.message().contains(SECRET), "{error}");
    assert!(error.message().contains("a/b"), "{error}");
}

#[tokio::test]
async fn answers_have_their_kinds() {
    let table = [
        (429, "SlowDown", ErrorKind::TimedOut),
        (500, "InternalError", ErrorKind::Io),
        (503, "ServiceUnavailable", ErrorKind::TimedOut),
        (507, "InsufficientStorage", ErrorKind::Quota),
        (403, "QuotaExceeded", ErrorKind::Quota),
        (403, "AccessDenied", ErrorKind::AccessDenied),
        (403, "RequestTimeTooSkewed", ErrorKind::AccessDenied),
        (404, "NoSuchKey", ErrorKind::NotFound),
        (404, "NoSuchBucket", ErrorKind::NotFound),
        (416, "InvalidRange", ErrorKind::Range),
        (301, "PermanentRedirect", ErrorKind::Refused),
    ];
    for (status, code, kind) in table {
        let error = read(move || Reply::Code(status, code)).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(&format!("HTTP {status} {code}")), "{error}");
    }
    let skewed = read(|| Reply::Code(403, "RequestTimeTooSkewed")).await;
    assert!(skewed.message().contains("clocks"), "{skewed}");
    let missing = read(|| Reply::Code(404, "NoSuchBucket")).await;
    assert!(missing.message().contains("bucket 'cold'") && missing.message().contains("upper and lower"), "{missing}");
}

#[tokio::test]
async fn half_an_answer_is_none() {
    let ranged = |body: &'static [u8], range: &'static str| {
        move || Reply::Send(206, vec![("Content-Range", range.to_owned())], body.to_vec())
    };
    let cut = || {
        Reply::Send(
            206,
            vec![("Content-Range", "bytes 0-9/99".into()), ("Content-Length", "10".into())],
            b"some".to_vec(),
        )
    };
    let mut found = vec![("closed", read(|| Reply::Close).await, ErrorKind::Io)];
    found.push(("noise", read(|| Reply::Noise).await, ErrorKind::Io));
    found.push(("whole object", read(|| Reply::Cut(10)).await, ErrorKind::Refused));
    found.push(("other range", read(ranged(b"0123456789", "bytes 5-14/99")).await, ErrorKind::Io));
    found.push(("short object", read(ranged(b"01234", "bytes 0-4/5")).await, ErrorKind::Range));
    found.push(("silent in the middle", read(cut).await, ErrorKind::TimedOut));
    for (what, error, kind) in found {
        assert_eq!(error.kind(), kind, "{what}: {error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_or_stalls_in_the_middle_fails() {
    for stall in [false, true] {
        let server = Faulty::start(move |_: &Asked, _| if stall { Reply::Stall(1000) } else { Reply::Cut(1000) }).await;
        let mut spec = s3_at(server.port);
        spec.errors_timeout_s = 1;
        let began = Instant::now();
        let error = store(&spec).get("a/b", None).await.expect_err("996 bytes are missing");
        assert_eq!(error.kind(), if stall { ErrorKind::TimedOut } else { ErrorKind::Io }, "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "it is found out soon: {error}");
        sound(&error);
    }
}

/// A put of `hello`, and what came to the server.
async fn put(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> (braid_base::Result<()>, Vec<Asked>) {
    let server = Faulty::start(move |asked: &Asked, _| reply(asked)).await;
    let parts = vec![Bytes::from_static(b"he"), Bytes::from_static(b"llo")];
    let done = store(&s3_at(server.port)).put("a/b", parts).await;
    (done, server.seen())
}

#[tokio::test]
async fn a_put_is_verified() {
    let echo = |asked: &Asked| asked.header("x-amz-checksum-sha256").unwrap().to_owned();
    let (done, seen) = put(move |asked| Reply::Send(200, vec![("x-amz-checksum-sha256", echo(asked))], vec![])).await;
    done.unwrap();
    assert_eq!((seen.len(), seen[0].body.as_slice()), (1, b"hello".as_slice()));
    assert_eq!(seen[0].target, "/cold/a/b");
    assert!(seen[0].header("user-agent").unwrap().starts_with("Braid/"));

    let (done, _) = put(|_| Reply::Send(200, vec![("x-amz-checksum-sha256", STANDARD.encode([7; 32]))], vec![])).await;
    assert!(done.unwrap_err().message().contains("other bytes"));

    // A store that says nothing is asked how long the object is.
    let size = |length: &str| {
        Reply::Send(
            200,
            vec![("Content-Length", length.to_owned()), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT".into())],
            vec![],
        )
    };
    let (done, seen) = put(move |asked| size(if asked.method == "HEAD" { "5" } else { "0" })).await;
    done.unwrap();
    assert_eq!(seen[1].method, "HEAD");
    let (done, _) = put(move |asked| size(if asked.method == "HEAD" { "4" } else { "0" })).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Io);

    // Success, and then nothing there.
    let (done, _) =
        put(|asked| if asked.method == "HEAD" { Reply::Code(404, "") } else { Reply::Send(200, vec![], vec![]) }).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_missing_object_is_as_good_as_a_removed_one_but_a_missing_bucket_is_not() {
    for (code, well) in [("NoSuchKey", true), ("", true), ("NoSuchBucket", false)] {
        let server = Faulty::start(move |_: &Asked, _| Reply::Code(404, code)).await;
        let done = store(&s3_at(server.port)).delete("a/b").await;
        assert_eq!(done.is_ok(), well, "{code}: {done:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_so() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused = store(&s3_at(free)).get("a/b", None).await.unwrap_err();
    assert!(refused.message().contains("no server listens there"), "{refused}");
    sound(&refused);

    let mut spec = s3_at(free);
    endpoint(&mut spec).hostname = "no-such-host.invalid".to_owned();
    let unknown = store(&spec).get("a/b", None).await.unwrap_err();
    assert!(unknown.message().contains("no-such-host.invalid cannot be resolved"), "{unknown}");

    let server = Faulty::start(|_: &Asked, _| Reply::Close).await;
    let clear = Faulty::start(|_: &Asked, _| Reply::Noise).await;
    drop(server);
    let noise = store(&s3_at(clear.port)).get("a/b", None).await.unwrap_err();
    assert!(noise.message().contains("does not answer in HTTP"), "{noise}");
}

#[tokio::test]
async fn tls_to_a_server_without_it_is_said_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            kept.push(stream);
        }
    });
    let error = store(&https(s3_at(port), Protocol::Https, None)).get("a/b", None).await.unwrap_err();
    assert!(error.message().contains("does not speak TLS"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn azure_is_asked_in_its_own_way() {
    let sum = crc64(b"hello");
    let reply = move |asked: &Asked, _| match asked.method.as_str() {
        "PUT" => Reply::Send(201, vec![("x-ms-content-crc64", sum.clone())], vec![]),
        "DELETE" => Reply::Code(404, "BlobNotFound"),
        _ => Reply::Code(404, "ContainerNotFound"),
    };
    let server = Faulty::start(reply).await;
    for auth in [AzureAuth::Key(Secret(SECRET.to_owned())), AzureAuth::Sas(Secret(format!("?sv=2023&sig={SECRET}")))] {
        let by_key = matches!(auth, AzureAuth::Key(_));
        let before = server.seen().len();
        let store = store(&azure_at(server.port, auth));
        store.put("a/b", vec![Bytes::from_static(b"hello")]).await.unwrap();
        store.delete("a/b").await.unwrap();
        let error = store.get("a/b", None).await.unwrap_err();
        assert!(error.message().contains("container 'cold'"), "{error}");
        sound(&error);
        let (put, delete) = (server.seen()[before].clone(), server.seen()[before + 1].clone());
        assert!(delete.target.starts_with("/devaccount/cold/pre/a/b"), "{}", delete.target);
        assert_eq!((delete.method.as_str(), delete.target.contains("sig=")), ("DELETE", !by_key));
        assert!(put.target.starts_with("/devaccount/cold/pre/a/b"), "{}", put.target);
        assert_eq!(put.target.contains("sig="), !by_key);
        assert_eq!(put.header("authorization").is_some_and(|a| a.starts_with("SharedKey devaccount:")), by_key);
        assert_eq!(put.header("x-ms-blob-type"), Some("BlockBlob"));
    }
}

#[tokio::test]
async fn objects_have_a_class_and_tags_if_they_are_to() {
    let sum = crc64(b"hello");
    let reply = move |asked: &Asked, _| match asked.header("x-amz-checksum-sha256") {
        Some(sum) => Reply::Send(200, vec![("x-amz-checksum-sha256", sum.to_owned())], vec![]),
        None => Reply::Send(201, vec![("x-ms-content-crc64", sum.clone())], vec![]),
    };
    let server = Faulty::start(reply).await;
    let (cluster, fs_uuid, blob) = (Guid([1; 16]), Guid([2; 16]), BlobId::new(PartitionId(3), 4));
    let header = Header { cluster, fs_uuid, fs: FsId(7), blob, term: Term(5), data_len: 4096, created_s: 6 };
    let object = || blob::build(&header, &[Block { ino: Ino(9), block: 0 }], &[vec![1; 4096].into()]);
    let plain = s3_at(server.port);
    let mut tagged = plain.clone();
    if let Place::S3(S3 { upload_tags, storage_class, .. }) = &mut tagged.place {
        (*upload_tags, *storage_class) = (true, Some("STANDARD_IA".to_owned()));
    }
    for auth in [S3Auth::AWSSignature4, S3Auth::AWSSignature2] {
        let mut tagged = tagged.clone();
        if let Place::S3(s3) = &mut tagged.place {
            s3.auth = auth;
        }
        store(&tagged).put("B_3/a", object()).await.unwrap();
        let seen = server.seen().pop().unwrap();
        let tags = format!("braidBlobType=DATA&braidGuid={cluster}&braidFsId=7&braidFsGuid={fs_uuid}");
        assert_eq!(seen.header("x-amz-tagging"), Some(tags.as_str()));
        assert_eq!(seen.header("x-amz-storage-class"), Some("STANDARD_IA"));
    }
    store(&tagged).put("keepalive", vec![Bytes::from_static(b"hello")]).await.unwrap();
    assert_eq!(server.seen().pop().unwrap().header("x-amz-tagging"), Some("braidBlobType=CHECK"));
    store(&plain).put("B_3/a", object()).await.unwrap();
    let seen = server.seen().pop().unwrap();
    assert_eq!((seen.header("x-amz-tagging"), seen.header("x-amz-storage-class")), (None, None));
    let mut cool = azure_at(server.port, AzureAuth::Key(Secret(SECRET.to_owned())));
    for tier in [None, Some("Cool")] {
        if let Place::Azure(azure) = &mut cool.place {
            azure.storage_class = tier.map(str::to_owned);
        }
        store(&cool).put("a/b", vec![Bytes::from_static(b"hello")]).await.unwrap();
        assert_eq!(server.seen().pop().unwrap().header("x-ms-access-tier"), tier);
    }
}

#[tokio::test]
async fn azure_is_believed_only_if_it_has_the_same_bytes() {
    let sum = crc64(b"jello");
    let server =
        Faulty::start(move |_: &Asked, _| Reply::Send(201, vec![("x-ms-content-crc64", sum.clone())], vec![])).await;
    let store = store(&azure_at(server.port, AzureAuth::Key(Secret(SECRET.to_owned()))));
    let error = store.put("a/b", vec![Bytes::from_static(b"hello")]).await.unwrap_err();
    assert!(error.message().contains("other bytes"), "{error}");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_guessed() {
    let reply = |asked: &Asked, _| match asked.target.strip_prefix("/cold") {
        Some(rest) if rest.starts_with('?') => {
            Reply::Send(200, vec![], b"<ListBucketResult></ListBucketResult>".to_vec())
        }
        _ => Reply::Code(404, "NoSuchBucket"),
    };
    let server = Faulty::start(reply).await;
    let tried = |name: &'static str| {
        let mut spec = s3_at(server.port);
        if let Place::S3(S3 { bucket, .. }) = &mut spec.place {
            name.clone_into(bucket);
        }
        async move { verify(&spec, Guid([9; 16]), HostId(1)).await.unwrap_err() }
    };
    let error = tried("other").await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.message().contains("bucket 'other'") && error.message().contains("step 1, PUT of one byte"),
        "{error}"
    );
    assert!(!error.message().contains("is that the one"), "{error}");
    let error = tried("Cold").await;
    assert!(error.message().contains("there is one named 'cold'"), "{error}");
    let error = tried("OLD").await;
    assert!(!error.message().contains("is that the one"), "{error}");
}

#[tokio::test]
async fn a_trial_names_the_step_that_fails() {
    let echo = |asked: &Asked| asked.header("x-amz-checksum-sha256").unwrap_or_default().to_owned();
    for (method, body, words) in [
        ("PUT", "B", "step 1, PUT"),
        ("GET", "B", "step 2, GET"),
        ("-", "x", "others came back"),
        ("DELETE", "B", "step 3, DELETE"),
    ] {
        let server = Faulty::start(move |asked: &Asked, _| {
            let headers =
                vec![("x-amz-checksum-sha256", echo(asked)), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT".into())];
            match asked.method.as_str() {
                of if of == method => Reply::Code(403, "AccessDenied"),
                "GET" => Reply::Send(200, headers, body.as_bytes().to_vec()),
                _ => Reply::Send(200, headers, vec![]),
            }
        })
        .await;
        let error = verify(&s3_at(server.port), Guid([9; 16]), HostId(1)).await.unwrap_err();
        assert!(error.message().contains(words), "{error}");
    }
}

#[tokio::test]
async fn words_that_cannot_be_right_are_refused() {
    let check = |change: fn(&mut StoreSpec), words: &str| {
        let mut spec = s3_at(1);
        change(&mut spec);
        let error = open(&spec).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.message().contains(words), "{error}");
    };
    check(|spec| endpoint(spec).hostname.clear(), "host name");
    check(
        |spec| *spec = https(spec.clone(), Protocol::Https, Some("no PEM".to_owned())),
        "expected certificates in PEM",
    );
    check(|spec| *spec = azure_at(1, AzureAuth::Key(Secret("no base64!!".to_owned()))), "line break");
    check(|spec| *spec = azure_at(1, AzureAuth::Key(Secret("no-base64!!".to_owned()))), "base64");
    check(|spec| *spec = StoreSpec::at(Place::Dir { path: "here".to_owned() }), "absolute path");
}

fn crc64(bytes: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    STANDARD.encode(sum.to_le_bytes())
}
