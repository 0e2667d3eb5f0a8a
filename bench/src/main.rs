//! Workloads that drive any mounted file system: `braid-bench help`.
//!
//! One program, so that the tests outside, the demo and the figures all run the same code.

mod arguments;
mod bigdir;
mod chance;
mod clock;
mod contest;
mod field;
mod fio;
mod flip;
mod fsx2;
mod litmus;
mod map;
mod meta;
mod oracle;
mod posix;
mod small;
mod soak;
mod suite;
mod target;

use arguments::Arguments;
use std::process::ExitCode;

/// What every workload returns: nothing, or a sentence for people.
pub type Outcome<T> = Result<T, String>;

const HELP: &str = "\
braid-bench suite  --out DIR --commit ID [--base DIR] [--dir DIR] [--braid BIN --state DIR --mount DIR]
                   [--compare BIN] [--rounds N] [--only GROUP...] [--quick]
                                              every figure, a column for each target; see bench/README.md
braid-bench meta   --dir DIR --files N --procs P   create, stat, unlink: operations per second
braid-bench small  --dir DIR --files N             small files created, read, listed, counted, removed
braid-bench soak   --dir DIR --pid PID --minutes N --mib N --percent N   4 KiB overwrites of a file in a full cluster
braid-bench bigdir --dir DIR --files N --stats M --pid PID   one directory of N files
braid-bench posix  --dir DIR [--only WORDS]        one check for each thing a local file system offers
braid-bench litmus [--only WORDS] [--rounds N] DIR DIR...   is what one mount does seen by the other
braid-bench contest [--seconds S] [--until PATH] [--round MS] [--longest S] [--only KIND]
                    [--history FILE] DIR DIR... [--cached]
                                              names, bytes and a lock fought over through several mounts: linearizable
braid-bench fsx2   [--seed S] [--seeds N] [--ops N] [--pass nothing|fsync|close] DIR DIR...
                                              one stream of operations over two mounts against one model
braid-bench oracle write --dir DIR --log DIR --seed S --seconds T   a mixed load that notes what was acknowledged
braid-bench oracle check --dir DIR --log DIR       is every acknowledged byte and name there, and nothing half
braid-bench flip   --file PATH --flips N --seed S  flip N bytes of a file where it holds data
braid-bench field  PATH < JSON                     print one field of a JSON text, a.b.0.c
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let done = Arguments::parse(words).and_then(|arguments| match command.as_str() {
        "suite" => suite::run(&arguments),
        "fsx2" => fsx2::run(&arguments),
        "contest" => contest::run(&arguments),
        "litmus" => litmus::run(&arguments),
        "meta" => meta::run(&arguments),
        "small" => small::run(&arguments),
        "bigdir" => bigdir::run(&arguments),
        "soak" => soak::run(&arguments),
        "oracle" => oracle::run(&arguments),
        "posix" => posix::run(&arguments),
        "flip" => flip::run(&arguments),
        "field" => field::run(&arguments),
        "" | "help" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("no workload named '{other}'; see braid-bench help")),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("braid-bench {command}: {message}");
            ExitCode::FAILURE
        }
    }
}
