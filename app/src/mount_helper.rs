//! `mount -t braid`: this program under the name `mount.braid`, as `mount(8)` calls its helpers.
//!
//! `mount.braid SOURCE DIR [-sfnv] [-o OPTIONS]`; SOURCE is `HOST[,HOST...]/FS`, `CLUSTERDIR/FS`, or `FS` of the
//! only cluster that runs.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::attach::Server;
use crate::client::Client;
use crate::cmd::mount::{self, Wish};
use crate::exit::{Failure, USAGE};
use crate::mount_options::MountOptions;

/// The name under which this is meant.
const NAME: &str = "mount.braid";
/// `mount(8)`'s word for wrong usage.
const WRONG: u8 = 1;
/// `mount(8)`'s word for a mount that failed.
const FAILED: u8 = 32;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    source: String,
    point: PathBuf,
    options: String,
    sloppy: bool,
    fake: bool,
    verbose: bool,
}

/// Mounts, if this program was called under that name.
pub fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next()?;
    if Path::new(&program).file_name()? != NAME {
        return None;
    }
    let done = parse(words).and_then(|asked| go(&asked));
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Without stderr there is nobody to tell.
            let _ = writeln!(stderr(), "{NAME}: {failure}");
            ExitCode::from(if failure.code == USAGE { WRONG } else { FAILED })
        }
    })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, Failure> {
    let usage = || Failure::usage("usage: mount.braid SOURCE DIR [-sfnv] [-o OPTIONS]");
    let (mut asked, mut plain) = (Asked::default(), Vec::new());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some("o") => {
                let more = words.next().ok_or_else(usage)?;
                asked.options = if asked.options.is_empty() { more } else { format!("{},{more}", asked.options) };
            }
            // The namespace is entered by mount(8), and the type is ours.
            Some("t" | "N") => drop(words.next().ok_or_else(usage)?),
            Some(flags) if !flags.is_empty() => {
                for flag in flags.chars() {
                    match flag {
                        's' => asked.sloppy = true,
                        'f' => asked.fake = true,
                        'v' => asked.verbose = true,
                        'n' => {}
                        _ => return Err(usage()),
                    }
                }
            }
            _ => plain.push(word),
        }
    }
    let Ok([source, point]) = <[String; 2]>::try_from(plain) else { return Err(usage()) };
    Ok(Asked { source, point: point.into(), ..asked })
}

fn go(asked: &Asked) -> Result<(), Failure> {
    let options = MountOptions::parse(&asked.options, asked.sloppy).map_err(Failure::usage)?;
    let (server, filesystem) = match asked.source.rsplit_once('/') {
        Some((server, filesystem)) => (Server::parse(server), filesystem),
        None => (Server::Dir(Client::find(None)?.dir), asked.source.as_str()),
    };
    if filesystem.is_empty() {
        return Err(Failure::usage(format!("{}: HOST[,HOST...]/FS, CLUSTERDIR/FS or FS expected", asked.source)));
    }
    let server = match server {
        Server::Dir(dir) => Server::Dir(Client::at(&dir)?.dir),
        hosts => hosts,
    };
    let path = crate::mountpoint::check(&asked.point, server.dir())?;
    if asked.fake {
        return Ok(());
    }
    mount::warn_of(&options);
    let wish = Wish {
        server,
        filesystem: filesystem.to_owned(),
        path,
        options,
        words: asked.options.clone(),
        sloppy: asked.sloppy,
        source: Some(asked.source.clone()),
    };
    let ready = mount::in_background(&wish)?;
    if asked.verbose {
        // Whoever closed stderr does not want to know.
        let _ = writeln!(stderr(), "{NAME}: {} is mounted, served by process {}", asked.source, ready.pid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Asked, parse};
    use crate::attach::Server;

    fn asked(words: &str) -> Option<Asked> {
        parse(words.split(' ').map(str::to_owned)).ok()
    }

    #[test]
    fn words_as_mount_gives_them() {
        let found = asked("/c/default /mnt -sv -n -o ro,noatime -t braid -o qos_max_ops=5").expect("good words");
        let expected = Asked {
            source: "/c/default".into(),
            point: "/mnt".into(),
            options: "ro,noatime,qos_max_ops=5".into(),
            sloppy: true,
            fake: false,
            verbose: true,
        };
        assert_eq!(found, expected);
        assert!(asked("/c/default /mnt -f").is_some_and(|asked| asked.fake));
        for words in ["/c/default", "/c/default /mnt more", "/c/default /mnt -x", "/c/default /mnt -o"] {
            assert_eq!(asked(words), None, "{words}");
        }
    }

    #[test]
    fn sources() {
        let dir = |path: &str| Server::Dir(path.into());
        assert_eq!(Server::parse("/var/c"), dir("/var/c"));
        assert_eq!((Server::parse(""), Server::parse("./c")), (dir("/"), dir("./c")));
        let hosts = |hosts: &[&str]| Server::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        assert_eq!(Server::parse("h1,10.0.0.2:14001"), hosts(&["h1", "10.0.0.2:14001"]));
    }
}
