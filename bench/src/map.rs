//! A file mapped into memory, shared: the one way to its bytes that is no read and no write.
//!
//! Loads and stores go through `/proc/self/mem`: the kernel takes the same page faults as for a program that
//! touches the memory, but what would end that program (a page beyond the end of the file) is an error here.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// A shared mapping of the first bytes of a file; gone when dropped.
pub struct Map {
    start: *mut c_void,
    len: usize,
    memory: File,
}

impl Map {
    /// Maps `len` bytes, more than 0.
    pub fn new(file: &File, len: usize) -> std::io::Result<Map> {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks a place that is free; nothing but this `Map` knows it.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        Ok(Map { start, len, memory })
    }

    /// Stores `bytes` from byte `at` on.
    pub fn store(&mut self, at: usize, bytes: &[u8]) -> std::io::Result<()> {
        let place = self.place(at, bytes.len());
        self.memory.write_all_at(bytes, place)
    }

    /// Loads `len` bytes from byte `at` on.
    pub fn load(&self, at: usize, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, self.place(at, len))?;
        Ok(bytes)
    }

    /// Makes what was stored part of the file, durable and for all to see.
    pub fn sync(&self) -> std::io::Result<()> {
        // SAFETY: exactly the range that was mapped.
        unsafe { msync(self.start, self.len, MsyncFlags::SYNC) }.map_err(Into::into)
    }

    fn place(&self, at: usize, len: usize) -> u64 {
        assert!(at + len <= self.len, "a place beyond the mapping");
        (self.start.addr() + at) as u64
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; no reference into it was ever given out.
        let gone = unsafe { munmap(self.start, self.len) };
        assert!(gone.is_ok(), "a mapping that exists can be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::Map;

    #[test]
    fn stores_reach_the_file_and_the_end_is_an_error() {
        let path = std::env::temp_dir().join(format!("braid-bench-map-{}", std::process::id()));
        std::fs::write(&path, b"before").expect("a file can be made");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("it was just made");
        let mut map = Map::new(&file, 20_000).expect("any length may be mapped");
        map.store(2, b"go").expect("within the file");
        map.sync().expect("a local file");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"begore");
        assert_eq!(map.load(0, 6).expect("within the file"), b"begore");
        assert!(map.load(10_000, 1).is_err(), "a page beyond the end");
        std::fs::remove_file(&path).expect("it is there");
    }
}
