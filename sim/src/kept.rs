//! A file that somebody has open outlives its last name, whoever removes that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use braid_base::ErrorKind;
use braid_base::ids::Ino;
use braid_base::msg::fs::{Cred, RenameMode};
use braid_client::Fs;
use braid_client::fs::Create;
use braid_io::chance::Rng;
use bytes::Bytes;

use crate::board::Board;
use crate::deeds::Deed;
use crate::register::Losses;

/// Bytes of each file: across blocks.
const BYTES: u64 = 5_000;
/// How long it is kept open between two looks, at most, milliseconds.
const PAUSE_MS: u64 = 1_500;
/// Looks at an open file.
const LOOKS: u32 = 3;

/// Files that are whole, by number.
#[derive(Default)]
pub struct Files {
    last: u64,
    named: BTreeMap<u64, Ino>,
}

/// Shared by all.
pub type Shared = Arc<Mutex<Files>>;

fn lock(files: &Shared) -> MutexGuard<'_, Files> {
    files.lock().expect("the simulator has one thread")
}

fn name_of(number: u64) -> Vec<u8> {
    format!("kept{number}").into_bytes()
}

fn content_of(number: u64) -> Bytes {
    let mut rng = Rng::new(number);
    (0..BYTES).map(|_| rng.below(256) as u8).collect::<Vec<_>>().into()
}

/// Makes a file in `dir`, removes one, or has one open for a while.
pub async fn round(
    files: &Shared,
    dir: Ino,
    (fs, losses): (&Fs, &Losses),
    board: &Board,
    rng: &mut Rng,
) -> Result<(), String> {
    let some = {
        let numbers: Vec<u64> = lock(files).named.keys().copied().collect();
        (!numbers.is_empty()).then(|| numbers[rng.index(numbers.len())])
    };
    match (some, rng.below(8)) {
        (None, _) | (_, 0 | 1) => make(files, fs, dir).await,
        (Some(number), 2 | 3) => remove(files, fs, (dir, number), rng).await,
        (Some(number), _) => return look((fs, losses), board, (dir, number), rng).await,
    }
    Ok(())
}

async fn make(files: &Shared, fs: &Fs, dir: Ino) {
    let number = {
        let mut files = lock(files);
        files.last += 1;
        files.last
    };
    let Ok(made) = fs.create(Cred::default(), dir, &name_of(number), Create::default()).await else { return };
    let is_written = fs.write(made.ino, 0, content_of(number), false, false).await.is_ok();
    if is_written && fs.fsync(made.ino).await.is_ok() && fs.fsync(dir).await.is_ok() {
        lock(files).named.insert(number, made.ino);
    }
}

/// By unlink, or under another file.
async fn remove(files: &Shared, fs: &Fs, (dir, number): (Ino, u64), rng: &mut Rng) {
    lock(files).named.remove(&number);
    let name = name_of(number);
    if rng.chance(1, 3) {
        let over = format!("{}.new", String::from_utf8_lossy(&name)).into_bytes();
        if fs.create(Cred::default(), dir, &over, Create::default()).await.is_ok() {
            drop(fs.rename(dir, &over, dir, &name, RenameMode::Replace).await);
        }
    }
    // Nobody minds if that fails, or was done already.
    drop(fs.unlink(dir, &name).await);
}

/// What a client has open it has until it loses the session with the partition of the file, whoever serves that.
async fn look(
    (fs, losses): (&Fs, &Losses),
    board: &Board,
    (dir, number): (Ino, u64),
    rng: &mut Rng,
) -> Result<(), String> {
    let expected = content_of(number);
    let (lost, power_losses) = (losses.count(), board.power_losses());
    let Ok(found) = fs.lookup(dir, &name_of(number)).await else { return Ok(()) };
    // The name may stand for another file by now, which is empty.
    if found.attr.size != BYTES || fs.open(found.ino, false).await.is_err() {
        return Ok(());
    }
    let mut result = Ok(());
    for _ in 0..LOOKS {
        let read = fs.read(found.ino, 0, BYTES).await;
        let now = fs.getattr(found.ino).await;
        if losses.count() != lost {
            break;
        }
        let is_gone = now.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale));
        if is_gone || read.as_ref().is_ok_and(|read| *read != expected) {
            let found = read.map(|read| read.len());
            result = Err(format!("file {number} is open here and gone: {now:?}, {found:?} bytes"));
            break;
        }
        if read.is_ok() && now.is_ok_and(|attr| attr.nlink == 0) {
            board.did(Deed::ReadNameless);
            if board.power_losses() != power_losses {
                board.did(Deed::ReadNamelessLater);
            }
        }
        fs.session().wire().sleep_ms(rng.below(PAUSE_MS)).await;
    }
    drop(fs.close(found.ino).await);
    result
}
