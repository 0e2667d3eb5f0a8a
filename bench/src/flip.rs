//! Bit rot on demand: flips bytes of a drive file where it holds data.

use crate::Outcome;
use crate::arguments::Arguments;
use crate::chance::Chance;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

/// Offsets tried for one flip before the file counts as empty: a page of data in 20 MiB is found all but always.
const TRIES_MAX: u32 = 100_000;

/// Flips `--flips` bytes of `--file` at offsets drawn from `--seed`. Empty (zero) places are passed over:
/// a flip that nothing refers to proves nothing.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let path = arguments.path("file")?;
    let flips = arguments.number("flips", 64)?;
    let mut chance = Chance::new(arguments.number("seed", 1)?);
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(say)?;
    let len = file.metadata().map_err(say)?.len();
    if len == 0 {
        return Err(format!("{}: empty, nothing to flip", path.display()));
    }
    for _ in 0..flips {
        let mut byte = [0];
        let mut at = 0;
        let mut tries = 0;
        while byte[0] == 0 {
            if tries == TRIES_MAX {
                return Err(format!("{}: {tries} places are all empty, nothing to flip", path.display()));
            }
            tries += 1;
            at = chance.below(len);
            file.read_exact_at(&mut byte, at).map_err(say)?;
        }
        let mask = 1_u8 << chance.below(8);
        file.write_all_at(&[byte[0] ^ mask], at).map_err(say)?;
    }
    file.sync_all().map_err(say)?;
    println!("flipped {flips} bytes of {}", path.display());
    Ok(())
}
