//! The gate: the same steps on a laptop and in CI, read-only; `fix` is its rewriting twin.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that holds the workspace's `Cargo.toml`. As Cargo says now: several clones may share one target folder, and
/// the program that one of them built.
pub fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// Runs every step of the gate, stops at the first that fails.
///
/// Clippy and the tests use the release profile, so that RocksDB is compiled once for both.
pub fn ci(root: &Path) -> Result<(), String> {
    step(root, "format", &["fmt", "--all", "--check"])?;
    eprintln!("== tidy");
    crate::tidy::run(root)?;
    step(root, "clippy", &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    advisories(root);
    // There are no examples in doc comments; asking rustdoc for them costs a minute.
    step(root, "tests", &["test", "--release", "--workspace", "--lib", "--bins", "--tests"])
}

/// A test program that takes longer hangs, seconds: the slowest takes about 3 minutes on 2 cores. The harness has
/// named the test that does not end by then, and a gate that never ends tells nobody anything.
const TEST_PROGRAM_S: u32 = 1_200;

/// Applies what clippy and rustfmt can rewrite by themselves.
pub fn fix(root: &Path) -> Result<(), String> {
    step(root, "clippy", &["clippy", "--fix", "--allow-dirty", "--release", "--workspace", "--all-targets"])?;
    step(root, "format", &["fmt", "--all"])
}

/// Known faults of crates: looked up where that is possible, and said where it is not. Advice that comes after a
/// commit must not make that commit fail, so it is never an error.
fn advisories(root: &Path) {
    let skipped = |why: &str| eprintln!("== advisories: skipped, {why}");
    if !installed("cargo-deny") {
        return skipped("cargo-deny is not installed; licences, bans and sources were checked by tidy");
    }
    if step(root, "advisories: fetching", &["deny", "fetch", "db"]).is_err() {
        return skipped("their database cannot be reached");
    }
    if let Err(message) = step(root, "advisories", &["deny", "check", "advisories"]) {
        eprintln!("== {message}: read the advice above");
    }
}

fn step(root: &Path, name: &str, arguments: &[&str]) -> Result<(), String> {
    eprintln!("== {name}");
    // CARGO is the cargo that runs this task. What it says of this package must not reach the next: `ring` would be
    // compiled anew for it, and with it all that uses TLS, and once more by a cargo without a task around it.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
    let mut command = Command::new(cargo);
    let of_package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(of_package) {
        command.env_remove(name);
    }
    let status = command
        .args(arguments)
        .env(runner, format!("timeout --foreground --kill-after=10 {TEST_PROGRAM_S}"))
        .env("RUST_TEST_THREADS", test_threads().to_string())
        .current_dir(root)
        .status()
        .map_err(|error| format!("{name}: cargo does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed: cargo {}", arguments.join(" "))) }
}

/// Tests that run at the same time: many of them wait, for drives and hosts that fall silent.
fn test_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get())
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
