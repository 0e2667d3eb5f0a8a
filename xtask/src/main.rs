//! The house keeper: `cargo xtask tidy | ci | fix | help`.
//!
//! `tidy` holds what the compiler cannot see (cards, dependency edges, licences, sizes, words), `gate` runs the
//! one read-only gate and its rewriting twin.

mod gate;
mod source;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask tidy    check cards, edges and circles, licences, sizes, words, decision pages (read-only)
cargo xtask ci      the gate: format, tidy, clippy, advisories, tests (read-only)
cargo xtask fix     rewrite what can be rewritten: clippy suggestions and format
cargo xtask help    this page
";

fn main() -> ExitCode {
    let root = gate::workspace_root();
    let done = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(&root),
        Some("ci") => gate::ci(&root),
        Some("fix") => gate::fix(&root),
        None | Some("help") => print_help(),
        Some(other) => Err(format!("no task named '{other}'; expected tidy, ci, fix or help")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn print_help() -> Result<(), String> {
    print!("{HELP}");
    Ok(())
}
