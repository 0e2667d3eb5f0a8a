//! Changes of a file's content, made through the client and on a plain vector of bytes.

use braid_base::attr::SetAttr;
use braid_base::ids::Ino;
use braid_base::msg::fs::FallocMode;
use braid_client::Fs;
use bytes::Bytes;

use super::World;

/// What a program does to the content of a file.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Write(u64, usize),
    Append(usize),
    Cut(u64),
    Punch(u64, u64),
    Zero(u64, u64),
    Read(u64, u64),
}

/// A dice of its own for each seed: a number below the one given.
pub fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

impl Change {
    /// Makes the change with `byte`; what is read must be what `plain` holds. `case` names the step.
    pub fn make(self, world: &World, fs: &Fs, ino: Ino, plain: &mut Vec<u8>, byte: u8, case: &str) {
        match self {
            Self::Write(off, len) => {
                let done = world.run(fs.write(ino, off, Bytes::from(vec![byte; len]), false, false)).expect("write");
                assert_eq!((done.off, done.len), (off, len as u64), "{case}");
                set(plain, off, len as u64, byte, true);
            }
            Self::Append(len) => {
                let done = world.run(fs.write(ino, 0, Bytes::from(vec![byte; len]), true, false)).expect("append");
                assert_eq!(done.off, plain.len() as u64, "{case}");
                set(plain, done.off, len as u64, byte, true);
            }
            Self::Cut(size) => {
                world.run(fs.setattr(ino, SetAttr { size: Some(size), ..SetAttr::default() })).expect("cut");
                plain.resize(size as usize, 0);
            }
            Self::Punch(off, len) => {
                world.run(fs.fallocate(ino, off, len, FallocMode::Punch, true)).expect("punch");
                set(plain, off, len, 0, false);
            }
            Self::Zero(off, len) => {
                world.run(fs.fallocate(ino, off, len, FallocMode::Zero, false)).expect("zero");
                set(plain, off, len, 0, true);
            }
            Self::Read(off, len) => {
                let got = world.run(fs.read(ino, off, len)).expect("read");
                let (from, to) = ((off as usize).min(plain.len()), ((off + len) as usize).min(plain.len()));
                assert!(got == plain[from..to], "{case}");
            }
        }
    }
}

fn set(plain: &mut Vec<u8>, off: u64, len: u64, value: u8, grow: bool) {
    let end = (off + len) as usize;
    if grow && plain.len() < end {
        plain.resize(end, 0);
    }
    let end = end.min(plain.len());
    plain[(off as usize).min(end)..end].fill(value);
}
