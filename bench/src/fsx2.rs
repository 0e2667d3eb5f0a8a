//! One stream of operations over two mounts of one file, checked against one model in memory.
//!
//! Each operation picks its mount by chance; whatever it reads, through either, must be what the model holds.
//! The same seed gives the same stream, whatever the file system answers.

mod model;
mod side;

use crate::arguments::Arguments;
use crate::chance::Chance;
use crate::{Outcome, clock};
use model::Model;
use side::Side;
use std::collections::VecDeque;
use std::path::PathBuf;

/// The file never grows beyond this.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// Nor an operation.
const OP_BYTES_MAX: u64 = 64 << 10;
/// Operations printed when a difference is found.
const SHOWN: usize = 24;

/// One operation; a place is an offset and a length.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write(u64, u64),
    Append(u64),
    Read(u64, u64),
    Truncate(u64),
    Punch(u64, u64),
    MapWrite(u64, u64),
    MapRead(u64, u64),
    Fsync,
    Reopen,
    Stat,
}

/// What a side does before the other may go on.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// Nothing: only leases keep the two together.
    Nothing,
    /// fsync, as databases that share files do.
    Fsync,
    /// fsync and close; the other opens: what every network file system promises.
    Close,
}

/// `--seeds N` streams of `--ops N` operations from `--seed S` on, over the folders named.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let (first, seeds) = (arguments.number("seed", 1)?, arguments.number("seeds", 1)?);
    let ops = arguments.number("ops", 10_000)?;
    let pass = match arguments.text("pass") {
        None | Some("nothing") => Pass::Nothing,
        Some("fsync") => Pass::Fsync,
        Some("close") => Pass::Close,
        Some(other) => return Err(format!("--pass {other}: expected nothing, fsync or close")),
    };
    let dirs: Vec<PathBuf> = arguments.bare.iter().map(PathBuf::from).collect();
    if dirs.len() < 2 {
        return Err("expected two or more folders, each a mount of the same file system".to_owned());
    }
    let start = clock::seconds();
    for seed in first..first + seeds {
        // Said before, so that a stream that ends the program can be run again.
        println!("seed {seed}");
        stream(&dirs, seed, ops, pass)?;
    }
    let rate = (seeds * ops) as f64 / (clock::seconds() - start);
    println!("{seeds} seeds x {ops} operations over {} mounts, no difference, {rate:.0} per second", dirs.len());
    Ok(())
}

fn stream(dirs: &[PathBuf], seed: u64, ops: u64, pass: Pass) -> Outcome<()> {
    let name = format!("fsx2-{seed}");
    let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.join(&name)).collect();
    let say = |error: std::io::Error| format!("seed {seed}: {name}: {error}");
    std::fs::File::create(&paths[0]).map_err(say)?;
    let mut sides = paths.iter().map(|path| Side::open(path)).collect::<std::io::Result<Vec<_>>>().map_err(say)?;
    let (mut chance, mut model) = (Chance::new(seed), Model::default());
    let (mut last_ops, mut last_side) = (VecDeque::with_capacity(SHOWN), 0);
    for number in 1..=ops {
        let at = usize::try_from(chance.below(dirs.len() as u64)).unwrap_or(0);
        let op = choose(&mut chance, model.len());
        if last_ops.len() == SHOWN {
            last_ops.pop_front();
        }
        last_ops.push_back(format!("{number:>7}  mount {at}  {op:x?}"));
        let handed = if at == last_side { Ok(()) } else { hand_over(&mut sides, last_side, at, pass) };
        last_side = at;
        let done = handed.map_err(|error| error.to_string()).and_then(|()| sides[at].apply(op, number, &mut model));
        if let Err(error) = done {
            let shown: Vec<String> = last_ops.into_iter().collect();
            return Err(format!(
                "seed {seed}, operation {number}, mount {at}: {error}\nthe last operations (places in hex):\n{}",
                shown.join("\n")
            ));
        }
    }
    for (at, side) in sides.iter_mut().enumerate() {
        let whole = side.reopen().map_err(|error| error.to_string()).and_then(|()| {
            side.apply(Op::Stat, ops + 1, &mut model)?;
            side.apply(Op::Read(0, model.len()), ops + 1, &mut model)
        });
        whole.map_err(|error| format!("seed {seed}, at the end, mount {at}: {error}"))?;
    }
    std::fs::remove_file(&paths[0]).map_err(say)
}

fn hand_over(sides: &mut [Side], from: usize, to: usize, pass: Pass) -> std::io::Result<()> {
    if pass != Pass::Nothing {
        sides[from].sync()?;
    }
    if pass == Pass::Close {
        sides[from].close();
        sides[to].reopen()?;
    }
    Ok(())
}

fn choose(chance: &mut Chance, len: u64) -> Op {
    let place = |chance: &mut Chance, max: u64| {
        let offset = chance.below(max);
        (offset, 1 + chance.below(OP_BYTES_MAX.min(max - offset)))
    };
    // Reads and maps look at what is there; in an empty file there is nothing to look at.
    let inside = |chance: &mut Chance| (len > 0).then(|| place(chance, len));
    match chance.below(40) {
        0..10 => {
            let (offset, len) = place(chance, FILE_BYTES_MAX);
            Op::Write(offset, len)
        }
        10..13 => match (1 + chance.below(OP_BYTES_MAX)).min(FILE_BYTES_MAX - len) {
            0 => Op::Truncate(chance.below(FILE_BYTES_MAX)),
            bytes => Op::Append(bytes),
        },
        13..23 => inside(chance).map_or(Op::Stat, |(offset, len)| Op::Read(offset, len)),
        23..26 => Op::Truncate(chance.below(FILE_BYTES_MAX)),
        26..29 => inside(chance).map_or(Op::Stat, |(offset, len)| Op::Punch(offset, len)),
        29..33 => inside(chance).map_or(Op::Fsync, |(offset, len)| Op::MapWrite(offset, len)),
        33..36 => inside(chance).map_or(Op::Fsync, |(offset, len)| Op::MapRead(offset, len)),
        36 => Op::Fsync,
        37 => Op::Reopen,
        _ => Op::Stat,
    }
}
