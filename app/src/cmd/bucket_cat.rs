//! `braid bucket cat`: a file out of all objects.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Stdout, Write, stderr, stdout};
use std::path::PathBuf;

use braid_base::ids::{Guid, Ino};
use braid_base::{Error, ErrorKind, Result};
use braid_tier::salvage::{Damage, Part};
use clap::Args;
use serde_json::json;

use super::bucket::{self, Bucket, damage};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::out;
use crate::whole::Whole;

/// Holes are written in pieces of so many zeros.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[derive(Args, Debug)]
#[command(after_help = bucket::HELP)]
pub struct Cat {
    #[command(flatten)]
    bucket: Bucket,
    /// Number of the inode, as `braid bucket ls --files` lists it
    #[arg(value_name = "INODE")]
    inode: u64,
    /// File system, if several have such an inode
    #[arg(long, value_name = "UUID", value_parser = uuid)]
    fs: Option<Guid>,
    /// New file to write, with holes [default: stdout, holes are zeros]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What became of the file.
#[derive(Default)]
struct Written {
    fs: Option<Guid>,
    bytes: u64,
    hole_bytes: u64,
    lost_bytes: u64,
    damages: Vec<Damage>,
}

pub fn run(whole: &Whole, cat: &Cat) -> Outcome {
    if whole.json && cat.output.is_none() {
        return Err(Failure::usage("--json needs --output FILE: the bytes of the file go to stdout"));
    }
    let mut written = Written::default();
    let done = bucket::read(&cat.bucket, async |salvage| {
        let mut unseen = Vec::new();
        let found = salvage.find(Ino(cat.inode), cat.fs, |damage| unseen.push(damage)).await;
        // Where nothing is found, this may be why.
        unseen.iter().for_each(|damage| say(&format!("not looked into: {damage}: something of the file may be there")));
        let file = found?;
        written = Written { fs: Some(file.fs), damages: unseen, ..Written::default() };
        let mut sink = Sink::open(cat.output.as_ref())?;
        file.read(|at, part| written.take(at, part, &mut sink)).await?;
        sink.finish()
    });
    match done {
        // A reader that went away has what it wanted.
        Err(failure) if failure.message == GONE => return Ok(()),
        done => done?,
    }
    report(whole, cat, &written)
}

fn report(whole: &Whole, cat: &Cat, written: &Written) -> Outcome {
    let Written { fs, bytes, hole_bytes, lost_bytes, damages } = written;
    let fs = fs.unwrap_or_default().to_string();
    if whole.json {
        out::json(&json!({
            "inode": cat.inode,
            "filesystem": fs,
            "bytes": bytes,
            "hole_bytes": hole_bytes,
            "lost_bytes": lost_bytes,
            "damages": damages.iter().map(damage).collect::<Vec<_>>(),
        }))?;
    }
    say(&format!(
        "inode {} of file system {fs}: {bytes} bytes, up to the end of the last block that an object has; objects do \
         not tell where the file ends",
        cat.inode
    ));
    match damages.len() {
        0 => Ok(()),
        // Each was told when it was met.
        _ if *lost_bytes == 0 => Err(Failure { code: FAILURE, message: "not all objects could be looked into".into() }),
        _ => Err(Failure { code: FAILURE, message: format!("{lost_bytes} bytes are lost and are zeros") }),
    }
}

impl Written {
    fn take(&mut self, at: u64, part: Part, sink: &mut Sink) -> Result<()> {
        let (bytes, end) = (part.bytes(), at + part.bytes());
        self.bytes = end;
        match part {
            Part::Data(data) => return sink.write(&data),
            Part::Hole(_) => {
                self.hole_bytes += bytes;
                say(&format!("bytes {at} to {end}: no object has them: zeros"));
            }
            Part::Lost(_, damage) => {
                self.lost_bytes += bytes;
                say(&format!("bytes {at} to {end} are lost and are zeros: {damage}"));
                self.damages.push(damage);
            }
        }
        sink.skip(bytes)
    }
}

/// Where the file goes.
enum Sink {
    Stdout(Stdout),
    /// With its name.
    File(File, String),
}

/// What says that nobody reads stdout any more.
const GONE: &str = "nobody reads any more";

impl Sink {
    /// Errors: `Exists`: there is such a file.
    fn open(output: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = output else { return Ok(Self::Stdout(stdout())) };
        let name = path.display().to_string();
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        Ok(Self::File(file.map_err(|error| Error::os(&name, &error))?, name))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(bytes).map_err(|error| to_stdout(&error)),
            Self::File(file, name) => file.write_all(bytes).map_err(|error| Error::os(name, &error)),
        }
    }

    /// Zeros, which a file need not hold.
    fn skip(&mut self, mut bytes: u64) -> Result<()> {
        match self {
            Self::Stdout(_) => {
                while bytes > 0 {
                    let zeros = &ZEROS[..ZEROS.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
                    self.write(zeros)?;
                    bytes -= zeros.len() as u64;
                }
                Ok(())
            }
            Self::File(file, name) => {
                let by = i64::try_from(bytes).map_err(|_| Error::from(ErrorKind::FileTooBig))?;
                file.seek(SeekFrom::Current(by)).map(drop).map_err(|error| Error::os(name, &error))
            }
        }
    }

    /// All of it is where it should be.
    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush().map_err(|error| to_stdout(&error)),
            Self::File(mut file, name) => {
                // What was skipped last counts as well.
                let end = file.stream_position().and_then(|end| file.set_len(end)).and_then(|()| file.sync_all());
                end.map_err(|error| Error::os(name, &error))
            }
        }
    }
}

fn to_stdout(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Error::new(ErrorKind::Stopped, GONE);
    }
    Error::os("writing to stdout", error)
}

fn say(words: &str) {
    // Without stderr there is nobody to tell.
    let _ = writeln!(stderr(), "braid: {words}");
}

fn uuid(text: &str) -> std::result::Result<Guid, String> {
    Guid::parse(text).ok_or_else(|| format!("a UUID of 32 hex digits expected, found {text:?}"))
}
