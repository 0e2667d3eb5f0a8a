//! `braid bucket` on a directory of objects, as a cluster leaves it behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use braid_base::ids::{BlobId, FsId, Guid, Ino, PartitionId, Term};
use braid_tier::blob::{self, Block, Header, keys};
use bytes::Bytes;
use serde_json::Value;

const CLUSTER: Guid = Guid([1; 16]);
const FS: Guid = Guid([2; 16]);

struct Place {
    home: tempfile::TempDir,
}

impl Place {
    /// Inode 77 is in three objects: blocks 0 to 299, then 4 and 5 anew, then 400.
    fn new() -> Self {
        let place = Self { home: tempfile::tempdir().expect("dir") };
        place.put(1, FS, 77, 0..300, b'a');
        place.put(2, FS, 77, 4..6, b'b');
        place.put(3, FS, 77, 400..401, b'c');
        place
    }

    fn put(&self, serial: u64, fs_uuid: Guid, ino: u64, range: std::ops::Range<u64>, letter: u8) -> PathBuf {
        let (blob, term) = (BlobId::new(PartitionId(145), serial), Term(7));
        let blocks: Vec<Block> = range.map(|block| Block { ino: Ino(ino), block }).collect();
        let data_len = blocks.len() as u64 * 4096;
        let header = Header { cluster: CLUSTER, fs_uuid, fs: FsId(4), blob, term, data_len, created_s: 1_700_000_000 };
        let object = blob::build(&header, &blocks, &[Bytes::from(vec![letter; data_len as usize])]).concat();
        let path = self.bucket().join(keys::data(CLUSTER, blob, term));
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        fs::write(&path, object).expect("written");
        path
    }

    fn bucket(&self) -> PathBuf {
        self.home.path().join("bucket")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.home.path()).arg("bucket").args(&words[..1]);
        command.arg(format!("file://{}", self.bucket().display())).args(&words[1..]);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(&[words, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", err(&output)))
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn expected() -> Vec<u8> {
    let mut file = vec![b'a'; 300 * 4096];
    file[4 * 4096..6 * 4096].fill(b'b');
    file.resize(400 * 4096, 0);
    file.resize(401 * 4096, b'c');
    file
}

/// Turns a bit of byte `at` around.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("read");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("written");
}

#[test]
fn objects_are_listed() {
    let place = Place::new();
    let table = out(&place.run(&["ls"]));
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.contains("145") && table.contains(&FS.to_string()) && table.contains("ok"), "{table}");
    let listed = place.json(&["ls"]);
    let first = &listed.as_array().expect("a list")[0];
    assert_eq!(first["key"], format!("B_541/{CLUSTER}/d/I_1/7"));
    assert_eq!((&first["serial"], &first["files"], &first["data_bytes"]), (&1.into(), &1.into(), &(300 * 4096).into()));
    let files = out(&place.run(&["ls", "--files"]));
    assert!(files.contains("0-299") && files.contains("4-5") && files.contains("400"), "{files}");
    assert_eq!(place.json(&["ls", "--files"])[1]["runs"][0]["block"], 4);
}

#[test]
fn a_file_is_put_together() {
    let place = Place::new();
    let output = place.run(&["cat", "77"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(output.stdout == expected());
    assert!(err(&output).contains("bytes 1228800 to 1638400: no object has them"), "{}", err(&output));
    let written = place.json(&["cat", "77", "--output", "new"]);
    assert_eq!((&written["bytes"], &written["hole_bytes"]), (&(401 * 4096).into(), &(100 * 4096).into()));
    assert!(fs::read(place.home.path().join("new")).expect("written") == expected());
    let again = place.run(&["cat", "77", "-o", "new"]);
    assert_eq!(again.status.code(), Some(1), "a file that is there is left alone");
    assert_eq!(place.run(&["cat", "78"]).status.code(), Some(1));
    place.put(9, Guid([3; 16]), 77, 0..1, b'z');
    let several = place.run(&["cat", "77"]);
    assert_eq!(several.status.code(), Some(2));
    assert!(err(&several).contains("--fs") && several.stdout.is_empty(), "{}", err(&several));
    assert!(place.run(&["cat", "77", "--fs", &FS.to_string()]).stdout == expected());
}

#[test]
fn damage_is_told() {
    let place = Place::new();
    let sound = place.run(&["verify"]);
    assert_eq!((sound.status.code(), out(&sound).contains("3 objects")), (Some(0), true), "{}", err(&sound));
    flip(&place.bucket().join(format!("B_541/{CLUSTER}/d/I_1/7")), 8192 + 2 * 4096);
    let output = place.run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("/d/I_1/7: byte 16384: expected checksum"), "{}", out(&output));
    assert!(err(&output).contains("1 of 3 objects"), "{}", err(&output));
    let json = place.json(&["verify"]);
    assert_eq!((&json["damaged"], &json["damages"][0]["offset"]), (&1.into(), &16_384.into()));
    let output = place.run(&["cat", "77"]);
    assert_eq!(output.status.code(), Some(1));
    let mut zeroed = expected();
    zeroed[8192..12_288].fill(0);
    assert!(output.stdout == zeroed);
    assert!(err(&output).contains("bytes 8192 to 12288 are lost"), "{}", err(&output));
    flip(&place.bucket().join(format!("B_541/{CLUSTER}/d/I_2/7")), 0);
    let listed = place.run(&["ls"]);
    assert_eq!((listed.status.code(), out(&listed).contains("damaged")), (Some(1), true), "{}", err(&listed));
}

#[test]
fn whoever_stops_reading_has_enough() {
    let place = Place::new();
    let mut child = place.command(&["cat", "77"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
}

#[test]
fn wrong_words_say_what_is_right() {
    let place = Place::new();
    for (words, code, says) in [
        (&["ls", "nonsense"][..], 2, "s3://BUCKET"),
        (&["ls", "file:///there/is/none"], 2, "/there/is/none"),
        (&["ls", "s3://b"], 2, "AWS_SECRET_ACCESS_KEY"),
        (&["cat", "file:///", "x"], 2, "INODE"),
        (&["cat", "file:///", "1", "--json"], 2, "--output"),
        (&["verify", "azure://a/c"], 2, "AZURE_STORAGE_KEY"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.arg("bucket").args(words).env_clear().current_dir(place.home.path());
        let output = command.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", err(&output));
        assert!(err(&output).contains(says), "{words:?}: {}", err(&output));
    }
}
