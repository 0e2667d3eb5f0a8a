//! # braid: the one binary
//!
//! Duty: the command line, and the list of parts that `braid up` puts together.
//! Door: the commands; `braid --help` lists them with their exit codes.
//! Never: contains logic of the cluster: what a command means is decided behind REST, in [`node`] and below.
//! Flow: [`cli`] reads the words, [`hide`] takes secrets out of them, [`cmd`] holds one file per command, most of them
//! one REST call by [`client`].
//! Tests: `tests/` runs the binary against a made-up cluster; `sim` and the gate run the real one.

mod attach;
mod cli;
mod client;
mod cmd;
mod detach;
mod errands;
mod exit;
mod follow;
mod hide;
mod measure;
mod mount_guard;
mod mount_helper;
mod mount_options;
mod mountpoint;
mod node;
mod out;
mod plan;
mod progress;
mod reach;
mod residence;
mod serve;
mod systemd;
mod tree;
mod whole;
mod whose;
mod words;
mod workers;

use braid_io::huge::Huge;
use mimalloc::MiMalloc;

/// The requests of a busy server are made on one thread and freed on another, which the allocator of the C library
/// does slowly (decisions/0016); large buffers lie in huge pages (decisions/0043).
#[global_allocator]
static ALLOCATOR: Huge<MiMalloc> = Huge::new(MiMalloc);

fn main() -> std::process::ExitCode {
    mount_guard::run().or_else(mount_helper::run).unwrap_or_else(cli::run)
}
