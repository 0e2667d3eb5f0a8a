//! The binary against a made-up cluster that a server in this process answers for.

#[path = "../../doors/admin/tests/fake/mod.rs"]
mod fake;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use braid_admin::{Access, Server, registry};
use fake::Fake;
use serde_json::Value;

struct Running {
    home: tempfile::TempDir,
    dir: PathBuf,
    port: u16,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    fake: Arc<Fake>,
}

impl Running {
    fn start() -> Self {
        let home = tempfile::tempdir().expect("dir");
        let dir = home.path().canonicalize().expect("path").join("cluster");
        fs::create_dir(&dir).expect("mkdir");
        let server = Server::bind(0).expect("a free port");
        let port = server.port();
        let access = Access::new(port).expect("access");
        access.write(&dir).expect("admin.json");
        register(home.path(), &dir);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let fake = Arc::new(Fake::new());
        let control = fake.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            let until = async move { drop(stopped.await) };
            runtime.block_on(server.run(control, access.token, until)).expect("served");
        });
        Self { home, dir, port, stop: Some(stop), thread: Some(thread), fake }
    }

    fn braid(&self, words: &[&str]) -> Output {
        braid(self.home.path(), words)
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.braid(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", err(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic in the server");
        }
    }
}

/// The registry reads its place from the environment, which tests of one process share.
fn register(home: &Path, dir: &Path) {
    static ENVIRONMENT: Mutex<()> = Mutex::new(());
    let _one = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let place = home.join("run");
    fs::create_dir_all(&place).expect("mkdir");
    // What `registry::enter` writes, without touching this process's environment.
    fs::write(place.join("one"), dir.as_os_str().as_encoded_bytes()).expect("entry");
    assert_eq!(registry::PLACE_VARIABLE, "BRAID_RUN_DIR");
}

fn braid(home: &Path, words: &[&str]) -> Output {
    command(home, words).output().expect("the binary runs")
}

fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(words).current_dir(home).env("BRAID_RUN_DIR", home.join("run")).env_remove("BRAID_DIR");
    command.env("HOME", home).env_remove("http_proxy");
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Exit code, and that stderr is one line which contains all `words`.
fn fails(output: &Output, code: i32, words: &[&str]) {
    let text = err(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("braid: ") && text.trim_end().lines().count() == 1, "one line expected, found {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} expected in {text}");
    }
}

#[test]
fn finds_the_cluster() {
    let running = Running::start();
    let dir = running.dir.to_str().expect("text");
    assert_eq!(running.json(&["status"])["state"], "ok", "the only one that runs");
    assert_eq!(running.json(&["status", "--dir", dir])["name"], "fake");
    let by_variable =
        Command::new(env!("CARGO_BIN_EXE_braid")).args(["fs"]).env("BRAID_DIR", dir).output().expect("runs");
    assert!(by_variable.status.success());
    let other = running.braid(&["--dir", "elsewhere", "status"]);
    fails(&other, 3, &["no cluster runs in", "elsewhere", "braid up"]);
    let empty = tempfile::tempdir().expect("dir");
    let none = braid(empty.path(), &["fs"]);
    fails(&none, 3, &["no cluster runs on this machine", "--dir"]);
    let status = braid(empty.path(), &["status", "--json"]);
    assert_eq!((status.status.code(), out(&status).contains("\"stopped\"")), (Some(3), true));
}

#[test]
fn status_for_people_and_programs() {
    let running = Running::start();
    let text = out(&running.braid(&["status"]));
    for words in ["OK", "4+2", "6 active", "2 serving", "14.40 GiB net", "up 1m 1s"] {
        assert!(text.contains(words), "{words:?} expected in:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours into a pipe");
    *running.fake.drive_2.lock().unwrap_or_else(PoisonError::into_inner) = "missing".to_owned();
    let text = out(&running.braid(&["status"]));
    assert!(text.contains("DEGRADED") && text.contains("drive d2 (/srv/drive-2) is missing"), "{text}");
    let json = running.json(&["status"]);
    assert_eq!((&json["state"], &json["drives"][1]["state"]), (&Value::from("degraded"), &Value::from("missing")));
    assert_eq!(json["pid"], std::process::id());
    let drives = out(&running.braid(&["cluster", "drive"]));
    assert_eq!(drives.lines().count(), 7);
    assert!(drives.lines().nth(2).is_some_and(|line| line.starts_with("d2") && line.contains("missing")), "{drives}");
    assert_eq!(running.json(&["cluster", "partition"])[1]["id"], 1);
    assert!(out(&running.braid(&["cluster", "partitions"])).contains("serving"));
}

#[test]
fn file_systems() {
    let running = Running::start();
    assert_eq!(running.json(&["fs"]), serde_json::json!([]));
    let added = running.json(&["fs", "add", "one", "--total-capacity", "1GiB"]);
    assert_eq!((&added["name"], &added["total_bytes"]), (&Value::from("one"), &Value::from(1_u64 << 30)));
    fails(&running.braid(&["fs", "add", "one"]), 1, &["one exists already"]);
    fails(&running.braid(&["fs", "add", "a/b"]), 2, &["a/b", "slash"]);
    fails(&running.braid(&["fs", "add", "x", "nogroup"]), 1, &["no group nogroup"]);
    let listed = running.json(&["fs"]);
    for field in ["name", "group", "used_bytes", "total_bytes"] {
        assert!(!listed[0][field].is_null(), "{field} expected in {listed}");
    }
    assert_eq!(listed[0]["flash_bytes"], listed[0]["used_bytes"], "the fake has all of it on flash");
    let table = out(&running.braid(&["fs"]));
    assert!(table.contains("1.00 GiB") && table.contains("default") && table.starts_with("ID"), "{table}");
    assert!(table.contains("SSD USED") && table.contains("SSD FREE"), "{table}");
    let updated = running.json(&["fs", "update", "one", "--new-name", "two", "--total-capacity", "0"]);
    assert_eq!((&updated["name"], &updated["limited"]), (&Value::from("two"), &Value::from(false)));
    fails(&running.braid(&["fs", "update", "two"]), 2, &["--new-name"]);
    fails(&running.braid(&["fs", "update", "two", "--total-capacity", "1MiB"]), 4, &["holds"]);
    fails(&running.braid(&["fs", "remove", "two"]), 2, &["--force"]);
    assert_eq!(running.json(&["fs", "remove", "two", "--force"])["removed"], "two");
    fails(&running.braid(&["fs", "remove", "two", "--force"]), 1, &["no file system two"]);
}

#[test]
fn object_stores() {
    let running = Running::start();
    let tier = |words: &[&str]| running.braid(&[&["fs", "tier"], words].concat());
    let json = |words: &[&str]| running.json(&[&["fs", "tier"], words].concat());
    let s3 =
        ["--hostname", "http://h:9000", "--bucket", "Bucket/a", "--access-key-id", "i", "--secret-key", "very secret"];
    let tried = out(&tier(&[&["s3", "add", "cold", "--dry-run"], &s3[..]].concat()));
    assert!(tried.contains("PUT of one byte: ok, 3 ms") && tried.contains("dry run"), "{tried}");
    assert_eq!(json(&[]), serde_json::json!([]));
    let added = out(&tier(&[&["s3", "add", "cold"], &s3[..]].concat()));
    assert!(added.contains("object store cold is added"), "{added}");
    let path = running.home.path().join("objects");
    let dir = path.to_str().expect("text");
    assert!(tier(&["dir", "add", "near", "--path", "objects", "--prefetch-mib", "7"]).status.success());
    assert_eq!(json(&["dir"])[0]["bucket"], dir, "said in full");
    let listed = json(&["s3"]);
    let (address, secret) = (&listed[0]["address"], &listed[0]["secret_key"]);
    assert_eq!(
        (address, secret, listed.as_array().map(Vec::len)),
        (&Value::from("h:9000"), &Value::from("***"), Some(1))
    );
    let changed = json(&["s3", "update", "cold", "--errors-timeout", "2m"]);
    assert_eq!(
        (&changed["store"]["errors_timeout_s"], &changed["store"]["region"]),
        (&Value::from(120), &Value::from("us-east-1"))
    );
    fails(&tier(&["s3", "update", "cold"]), 2, &["what to change"]);
    fails(&tier(&["dir", "update", "cold", "--prefetch-mib", "1"]), 2, &["braid fs tier s3 update"]);
    fails(&tier(&["s3", "update", "cold", "--errors-timeout", "2h"]), 2, &["60 to 900 s expected, found 7200 s"]);
    fails(&tier(&["azure", "add", "x", "--account", "a", "--container", "c"]), 2, &["a key or a shared access"]);

    let fs =
        running.json(&["fs", "add", "one", "--total-capacity", "4GiB", "--ssd-capacity", "1GiB", "--obs-name", "near"]);
    assert_eq!((&fs["ssd_bytes"], &fs["stores"][0]["store"]), (&Value::from(1_u64 << 30), &Value::from("near")));
    fails(&running.braid(&["fs", "update", "one", "--ssd-capacity", "5GiB"]), 2, &["4294967296", "5368709120"]);
    let table = out(&tier(&["s3", "attach", "one", "cold"]));
    assert!(table.contains("near (read-only), cold") && table.contains("1.00 GiB"), "{table}");
    let listed = tier(&[]);
    let table = out(&listed);
    assert!(table.starts_with("NAME") && table.contains("Bucket/a") && !table.contains("secret"), "{table}");
    let down = "UP (1 of 3 hosts down, 1 unknown)";
    assert!(table.contains("UP (1 of 3 hosts unknown)") && table.contains(down) && !table.contains("DOWN "), "{table}");
    assert!(err(&listed).contains("host shed does not answer"), "{}", err(&listed));
    let download = &json(&[])[0]["download"];
    let counts = ["nodes_up", "nodes_down", "nodes_unknown"].map(|name| download[name].as_u64());
    assert_eq!(counts, [Some(1); 3]);
    assert_eq!(download["last_error"], "host barn: no route");
    fails(&tier(&["dir", "remove", "near"]), 4, &["file system one uses it"]);
    fails(&tier(&["dir", "detach", "one", "near"]), 2, &["--force"]);
    assert_eq!(json(&["dir", "detach", "one", "near", "--force"])["stores"][0]["detaching"], true);
    fails(&tier(&["dir", "detach", "one", "nothing", "--force"]), 1, &["no object store nothing"]);
}

#[test]
fn events() {
    let running = Running::start();
    let shown = running.braid(&["events"]);
    let table = out(&shown);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("TIME") && lines[0].ends_with("TEXT"), "{table}");
    for word in ["2023-11-14 22:11:50", "major", "ObjectStorage", "ObjectStoreStatusDown", "no route (3 times more)"] {
        assert!(lines[1].contains(word), "{word} in {table}");
    }
    assert!(err(&shown).contains("host shed does not answer"), "{}", err(&shown));
    assert!(running.braid(&["events", "trigger", "hello, world"]).status.success());
    let kinds = |words: &[&str]| -> Vec<String> {
        let all = running.json(&[&["events"], words].concat());
        let all = all.as_array().expect("a list").iter();
        all.map(|event| event["type"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(kinds(&[]), ["Custom", "ObjectStoreStatusDown"]);
    assert_eq!(kinds(&["local", "--direction", "asc"]), ["ObjectStoreStatusDown", "Custom"]);
    assert_eq!(kinds(&["--category", "Drive", "--category", "custom"]), ["Custom"]);
    assert_eq!(kinds(&["--start-time", "-1m"]), ["Custom"]);
    assert_eq!(kinds(&["--end-time=-1m", "--exclude-type", "Custom"]), ["ObjectStoreStatusDown"]);
    assert!(out(&running.braid(&["events", "--filesystem", "none"])).contains("no such events"));
    fails(&running.braid(&["events", "--type", "Costum"]), 2, &["Costum", "there are Custom, "]);
    fails(&running.braid(&["events", "--end-time", "then"]), 2, &["2026-11-25T16:41:59Z"]);
    fails(&running.braid(&["events", "trigger", " "]), 2, &["1 to 1024 bytes"]);
    fails(&running.braid(&["events", "--severity", "major", "local"]), 2, &["behind `local`"]);
    assert!(running.braid(&["events", "--json", "local", "--severity", "major"]).status.success());
    let empty = tempfile::tempdir().expect("dir");
    let types = out(&braid(empty.path(), &["events", "types"]));
    assert!(types.starts_with("CATEGORY") && types.contains("TieredFilesystemBreakingPolicy"), "{types}");
}

#[test]
fn what_is_done_and_held_in_object_stores() {
    let running = Running::start();
    let tier = |words: &[&str]| running.braid(&[&["fs", "tier"], words].concat());
    let json = |words: &[&str]| running.json(&[&["fs", "tier"], words].concat());
    assert!(out(&tier(&["capacity"])).contains("no file system has an object store"));
    for name in ["cold", "idle"] {
        assert!(tier(&["dir", "add", name, "--path", "/objects"]).status.success());
    }
    assert!(running.braid(&["fs", "add", "one", "--obs-name", "cold"]).status.success());
    assert!(running.braid(&["fs", "add", "two"]).status.success());

    let shown = tier(&["ops", "cold"]);
    let table = out(&shown);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("PROCESS") && lines[0].contains("CONNECTION ERRORS"), "{table}");
    assert!(lines[1].contains("DOWNLOAD") && lines[1].contains("Ongoing") && lines[1].contains("1.250 s"), "{table}");
    for word in ["box", "B_1/key-1", "UPLOAD", "2023-11-14 22:13:20", "24.00 MiB", "IO: 2, SUCCESS: 1", "HTTP 503"] {
        assert!(lines[2].contains(word), "{word} in {table}");
    }
    assert!(err(&shown).contains("host shed does not answer"), "{}", err(&shown));
    let all = json(&["ops", "cold"]);
    let mut keys: Vec<&String> = all[0].as_object().expect("an object").keys().collect();
    keys.sort_unstable();
    let expected = [
        "concurrency",
        "connection_errors",
        "exec_time",
        "id",
        "inode",
        "key",
        "last_exec_time",
        "last_http_error",
        "phase",
        "process",
        "results",
        "size",
        "start_time",
        "type",
    ];
    assert_eq!(keys, expected);
    let ids = |words: &[&str]| {
        let found = json(&[&["ops", "cold"], words].concat());
        let ids = found.as_array().expect("a list").iter().map(|op| op["id"].as_u64().expect("a number"));
        ids.collect::<Vec<u64>>()
    };
    assert_eq!((ids(&[]), ids(&["--ongoing"]), ids(&["--type", "upload"])), (vec![2, 1], vec![2], vec![1]));
    assert_eq!((ids(&["--host", "box"]), ids(&["--type", "remove"])), (vec![2, 1], vec![]));
    assert!(out(&tier(&["ops", "cold", "--type", "remove"])).contains("none of the 2 operations"));
    assert!(out(&tier(&["ops", "idle"])).contains("nothing is under way at object store idle"));
    let everywhere = out(&tier(&["ops"]));
    assert!(everywhere.starts_with("STORE") && everywhere.lines().count() == 3, "{everywhere}");
    assert!(everywhere.lines().skip(1).all(|line| line.starts_with("cold")), "{everywhere}");
    assert_eq!(json(&["ops", "--ongoing"])[0]["store"], Value::from("cold"));
    assert!(out(&tier(&["ops", "--type", "remove"])).contains("none of the 2 operations at any object store"));
    fails(&tier(&["ops", "cold", "--host", "boks"]), 2, &["no host boks", "there are box"]);
    let odd = tier(&["ops", "cold", "--type", "tape"]);
    assert!(odd.status.code() == Some(2) && err(&odd).contains("upload, download, remove or check expected"));
    fails(&tier(&["ops", "nothing"]), 1, &["no object store nothing"]);

    let shown = tier(&["capacity"]);
    let table = out(&shown);
    assert!(table.starts_with("FILESYSTEM") && table.lines().count() == 2, "{table}");
    for word in ["one", "cold", "5.86 KiB", "4.88 KiB", "20.00", "7.00", "13.00"] {
        assert!(table.lines().last().expect("a row").contains(word), "{word} in {table}");
    }
    assert!(err(&shown).contains("1 partitions do not answer"), "{}", err(&shown));
    let held = json(&["capacity", "one"]);
    assert_eq!((&held[0]["consumed_bytes"], &held[0]["used_bytes"]), (&Value::from(6_000), &Value::from(5_000)));
    assert_eq!(json(&["capacity", "--filesystem", "one"]), held);
    assert_eq!(tier(&["capacity", "one", "--filesystem", "one"]).status.code(), Some(2));
    assert!(out(&tier(&["capacity", "two"])).contains("file system two has no object store"));
    fails(&tier(&["capacity", "three"]), 1, &["no file system three"]);
}

/// Whoever lists processes sees the words that a process was started with as long as it runs.
#[test]
fn a_secret_does_not_stay_in_the_list_of_processes() {
    let running = Running::start();
    let words = ["fs", "tier", "s3", "add", "x", "--hostname", "h", "--bucket", "b", "--access-key-id", "i"];
    // It waits for certificates in a pipe that nobody writes to.
    let pipe = running.home.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let file = pipe.to_str().expect("text");
    let mut started =
        command(running.home.path(), &[&words[..], &["--secret-key", "very secret", "--ca-cert", file]].concat())
            .spawn()
            .expect("the binary runs");
    let seen = |name: &str| fs::read(format!("/proc/{}/{name}", started.id())).unwrap_or_default();
    let shown = |name: &str| String::from_utf8_lossy(&seen(name)).into_owned();
    for _ in 0..1000 {
        if shown("cmdline").contains("--secret-key-file=/proc/self/fd/") {
            break;
        }
        thread::park_timeout(std::time::Duration::from_millis(10));
    }
    let (words, environment) = (shown("cmdline"), shown("environ"));
    assert!(words.contains("--secret-key-file=/proc/self/fd/") && !words.contains("very secret"), "{words}");
    assert!(!environment.contains("very secret"));
    fs::write(&pipe, "").expect("nothing");
    assert!(started.wait().expect("ended").success(), "the secret arrived");
    assert_eq!(running.json(&["fs", "tier"])[0]["secret_key"], "***");
}

#[test]
fn groups() {
    let running = Running::start();
    let added = running.json(&["fs", "group", "add", "hot", "--target-ssd-retention", "1d5h"]);
    assert_eq!(added["target_ssd_retention_s"], 104_400);
    let table = out(&running.braid(&["fs", "group"]));
    assert!(table.contains("1d 5h") && table.contains("15m"), "{table}");
    let updated = running.json(&["fs", "group", "update", "hot", "--start-demote", "10s", "--new-name", "warm"]);
    assert_eq!((&updated["name"], &updated["start_demote_s"]), (&Value::from("warm"), &Value::from(10)));
    fails(&running.braid(&["fs", "group", "remove", "default"]), 4, &["default"]);
    assert!(running.braid(&["fs", "group", "remove", "warm"]).status.success());
}

#[test]
fn usage_and_help() {
    let home = tempfile::tempdir().expect("dir");
    for words in
        [&["nonsense"][..], &["fs", "add"], &["up", "d", "--drive-size", "4X"], &["up", "d", "--protection", "4"], &[]]
    {
        let output = braid(home.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
    }
    let help = braid(home.path(), &["--help"]);
    assert!(
        help.status.success() && out(&help).contains("Exit codes:") && out(&help).contains("no cluster runs there")
    );
    assert!(out(&braid(home.path(), &["--version"])).starts_with("braid 0."));
    for shell in ["bash", "zsh", "fish"] {
        assert!(out(&braid(home.path(), &["completion", shell])).contains("umount"), "{shell}");
    }
    assert!(out(&braid(home.path(), &["man"])).contains(".TH braid"));
    let pages = home.path().join("pages");
    assert!(braid(home.path(), &["man", "pages"]).status.success());
    let names: Vec<String> =
        fs::read_dir(&pages).expect("made").flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.contains(&"braid-fs-add.1".to_owned()) && names.len() > 15, "{names:?}");
}

#[test]
fn what_up_refuses() {
    let running = Running::start();
    let home = running.home.path();
    let up = |words: &[&str]| braid(home, &[&["up"], words].concat());
    fails(&up(&["cluster"]), 4, &["runs already", "braid down"]);
    fails(&up(&["cluster", "--detach"]), 4, &["runs already"]);
    let port = running.port.to_string();
    fails(&up(&["new", "--admin-port", &port]), 4, &[&port, "--admin-port"]);
    fs::create_dir_all(home.join("foreign/sub")).expect("mkdir");
    fails(&up(&["foreign"]), 4, &["foreign", "sub", "empty directory"]);
    fs::write(home.join("file"), "x").expect("write");
    fails(&up(&["file"]), 4, &["a directory expected, found a file"]);
    assert_eq!(fs::read(home.join("file")).expect("read"), b"x");
    fails(&up(&["new", "--mount", "file", "--admin-port", "0"]), 4, &["file"]);
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let (code, words) = if fuse { (1, ["nowhere", "mkdir -p"]) } else { (4, ["/dev/fuse", "modprobe"]) };
    fails(&up(&["new", "--mount", "nowhere", "--admin-port", "0"]), code, &words);
    let usage = up(&["new", "--drives", "6", "--drive", "/dev/null"]);
    assert_eq!(usage.status.code(), Some(2), "{}", err(&usage));
}

/// What fails in the background process arrives as one line and its code, and nothing is left running.
#[test]
fn a_detached_start_that_fails_says_why() {
    let home = tempfile::tempdir().expect("dir");
    let output = braid(home.path(), &["up", "new", "--protection", "200+100", "--admin-port", "0", "--detach"]);
    let code = output.status.code().expect("a code");
    assert_ne!(code, 0);
    fails(&output, code, &[]);
    assert!(home.path().join("new/braid.log").exists(), "its log is there");
    assert!(!home.path().join("new/admin.json").exists(), "it does not say that it runs");
    fails(&braid(home.path(), &["down", "new"]), 3, &["no cluster runs"]);
}

/// The disk of the log is full: its lines are lost, and nothing else is.
#[test]
fn a_log_without_room_ends_nothing() {
    let home = tempfile::tempdir().expect("dir");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let words = ["up", "new", "--protection", "200+100", "--admin-port", "0", "--announce"];
    let output = command(home.path(), &words).stderr(full).output().expect("the binary runs");
    let text = out(&output);
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(last["failed"]["code"].as_i64(), output.status.code().map(i64::from), "{text}");
}

#[test]
fn places_of_files_need_no_cluster_but_a_mount() {
    let home = tempfile::tempdir().expect("dir");
    let tree = home.path().join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(tree.join("file"), "x").expect("write");
    for words in
        [&["location", "tree/file"][..], &["explain", "tree/file"], &["fetch", "tree"], &["release", "-v", "tree/file"]]
    {
        let output = braid(home.path(), &[&["fs", "tier"], words].concat());
        fails(&output, 1, &["tree", "not on a file system of Braid"]);
    }
    let several = braid(home.path(), &["fs", "tier", "location", "tree", "none"]);
    let text = err(&several);
    assert_eq!((several.status.code(), text.lines().count()), (Some(1), 3), "{text}");
    assert!(text.contains("none: No such file") && text.contains("2 of 2 paths: their place is not known"), "{text}");
    fs::write(home.path().join("plan"), "tree/file 0 1\n\nnone\n").expect("write");
    for (words, code) in [(&["fetch", "none"][..], 1), (&["fetch", "--non-existing", "ignore", "none"], 0)] {
        let output = braid(home.path(), &[&["fs", "tier"], words].concat());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", err(&output));
    }
    let warned = braid(home.path(), &["fs", "tier", "release", "--non-existing", "warn", "none"]);
    assert!(warned.status.success() && err(&warned).contains("none: No such file"), "{}", err(&warned));
    let planned = braid(home.path(), &["fs", "tier", "fetch", "--plan", "plan", "--json"]);
    assert_eq!(planned.status.code(), Some(1));
    let ended: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    assert_eq!((&ended["files"], &ended["failed"][1]["path"]), (&Value::from(0), &Value::from("tree/file")));
    fails(&braid(home.path(), &["fs", "tier", "fetch", "--plan", "none"]), 2, &["--plan none", "No such file"]);
    for words in [&["fetch"][..], &["fetch", "a", "--plan", "b"], &["fetch", "a", "--ahead", "1G"], &["release"]] {
        let output = braid(home.path(), &[&["fs", "tier"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
    }
}
