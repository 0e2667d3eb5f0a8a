//! Options of a mount, in the words of `mount -o`.

use std::path::PathBuf;
use std::time::Duration;

use braid_client::qos::Limits;
use braid_fuse::{CacheMode, Ignore, Options};

use crate::workers::CORES_MAX;

/// Longest age that the kernel is told, milliseconds: a day.
const AGE_MS_MAX: u32 = 86_400_000;
/// Most readahead, KiB: 1 GiB.
const READAHEAD_KB_MAX: u32 = 1 << 20;

/// What can be asked of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro` or `rw`.
    pub read_only: bool,
    /// `nosuid`, `nodev`, `noexec`.
    pub ignore: Ignore,
    /// `relatime` or `noatime`.
    pub atime: bool,
    /// `writecache`, `readcache` or `forcedirect`.
    pub cache: CacheMode,
    /// `sync_on_close` or `nosync_on_close`.
    pub sync_on_close: bool,
    /// `obs_direct`: nothing comes back to flash for reads, and what is written leaves it first.
    pub obs_direct: bool,
    /// `dirsync`: names are durable when the call returns. (In the process of the cluster no mount has it.)
    pub dirsync: bool,
    /// `readahead_kb=`.
    pub readahead_kb: Option<u32>,
    /// `io_uring` or `noio_uring`.
    pub io_uring: bool,
    /// `dentry_max_age_positive=`, milliseconds.
    pub positive_ms: u32,
    /// `dentry_max_age_negative=`, milliseconds.
    pub negative_ms: u32,
    /// `qos_max_throughput_mbps=`: megabytes (of 1,000,000 bytes) per second.
    pub throughput_mbps: Option<u32>,
    /// `qos_max_ops=`: reads and writes per second.
    pub ops: Option<u32>,
    /// `num_cores=`: processors to work with, in a process of the mount's own; all if not said.
    pub num_cores: Option<u16>,
    /// `auth_token_path=`: what lets the client in, if it comes over the network.
    pub auth_token_path: Option<PathBuf>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            ignore: Ignore::default(),
            atime: true,
            cache: CacheMode::Write,
            sync_on_close: false,
            obs_direct: false,
            dirsync: false,
            readahead_kb: None,
            io_uring: false,
            positive_ms: 1000,
            negative_ms: 0,
            throughput_mbps: None,
            ops: None,
            num_cores: None,
            auth_token_path: None,
        }
    }
}

impl MountOptions {
    /// Reads `a,b=1,...`; later ones win. `sloppy`: unknown ones are passed over, as `mount -s` asks.
    pub fn parse(text: &str, sloppy: bool) -> Result<Self, String> {
        let mut options = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let known = match word.split_once('=') {
                Some(("auth_token_path", path)) => {
                    options.auth_token_path = Some(path.into());
                    true
                }
                Some((name, value)) => options.set_number(name, value)?,
                None => options.set_flag(word),
            };
            if !known && !is_for_others(word) && !sloppy {
                return Err(format!("unknown mount option {word:?}: `man braid-mount` lists them"));
            }
        }
        Ok(options)
    }

    fn set_flag(&mut self, word: &str) -> bool {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "nosuid" => self.ignore.suid = true,
            "suid" => self.ignore.suid = false,
            "nodev" => self.ignore.dev = true,
            "dev" => self.ignore.dev = false,
            "noexec" => self.ignore.exec = true,
            "exec" => self.ignore.exec = false,
            "noatime" => self.atime = false,
            "relatime" | "atime" => self.atime = true,
            "writecache" => self.cache = CacheMode::Write,
            "readcache" => self.cache = CacheMode::Read,
            "forcedirect" => self.cache = CacheMode::Direct,
            "sync_on_close" => self.sync_on_close = true,
            "nosync_on_close" => self.sync_on_close = false,
            "obs_direct" => self.obs_direct = true,
            "dirsync" => self.dirsync = true,
            "io_uring" => self.io_uring = true,
            "noio_uring" => self.io_uring = false,
            _ => return false,
        }
        true
    }

    fn set_number(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = |least: u32, most: u32| {
            let wrong = || format!("mount option {name}: a number from {least} to {most} expected, found {value:?}");
            value.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(wrong)
        };
        match name {
            "readahead_kb" => self.readahead_kb = Some(number(0, READAHEAD_KB_MAX)?),
            "dentry_max_age_positive" => self.positive_ms = number(0, AGE_MS_MAX)?,
            "dentry_max_age_negative" => self.negative_ms = number(0, AGE_MS_MAX)?,
            "qos_max_throughput_mbps" => self.throughput_mbps = Some(number(1, u32::MAX)?),
            "qos_max_ops" => self.ops = Some(number(1, u32::MAX)?),
            "num_cores" => self.num_cores = u16::try_from(number(1, CORES_MAX.into())?).ok(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The same for the door: a mount of file system `name`.
    pub fn of(&self, name: &str, source: Option<String>) -> Options {
        let usual = Options::new(name);
        Options {
            source,
            read_only: self.read_only,
            ignore: self.ignore,
            atime: self.atime,
            readahead_kib: self.readahead_kb.unwrap_or(usual.readahead_kib),
            positive_age: Duration::from_millis(self.positive_ms.into()),
            negative_age: Duration::from_millis(self.negative_ms.into()),
            cache: self.cache,
            sync_on_close: self.sync_on_close,
            obs_direct: self.obs_direct,
            io_uring: self.io_uring,
            limits: Limits {
                bytes_per_s: self.throughput_mbps.map(|mb| u64::from(mb) * 1_000_000),
                ops_per_s: self.ops.map(u64::from),
            },
            ..usual
        }
    }
}

/// Options that are for `mount(8)`, systemd or udev, which have dealt with them, or that ask for nothing.
fn is_for_others(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    matches!(
        name,
        "defaults"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "nofail"
            | "_netdev"
            | "async"
    ) || name == "comment"
        || name.starts_with("x-")
        || name.starts_with("X-")
}

#[cfg(test)]
mod tests {
    use super::MountOptions;
    use braid_fuse::CacheMode;
    use std::time::Duration;

    fn parsed(text: &str) -> MountOptions {
        MountOptions::parse(text, false).expect("good options")
    }

    #[test]
    fn nothing_said_is_the_usual_mount() {
        for text in ["", "defaults", "rw,relatime,writecache", "_netdev,nofail,x-systemd.automount,comment=a b"] {
            assert_eq!(parsed(text), MountOptions::default(), "{text}");
        }
        assert_eq!(MountOptions::default().of("f", None), braid_fuse::Options::new("f"));
    }

    #[test]
    fn each_word_has_its_effect() {
        let all = "ro,nosuid,nodev,noexec,noatime,forcedirect,sync_on_close,readahead_kb=64,dentry_max_age_positive=5,\
                   dentry_max_age_negative=7,qos_max_throughput_mbps=3,qos_max_ops=9,io_uring,obs_direct";
        let options = parsed(all).of("f", Some("a/f".into()));
        assert!(options.read_only && !options.atime && options.sync_on_close);
        assert!(options.io_uring && options.obs_direct);
        assert_eq!((parsed("num_cores=2").num_cores, parsed(all).num_cores), (Some(2), None));
        assert!(parsed("dirsync").dirsync && !parsed(all).dirsync);
        assert!(options.ignore.suid && options.ignore.dev && options.ignore.exec);
        assert_eq!((options.cache, options.readahead_kib), (CacheMode::Direct, 64));
        assert_eq!(options.positive_age, Duration::from_millis(5));
        assert_eq!(options.negative_age, Duration::from_millis(7));
        assert_eq!((options.limits.bytes_per_s, options.limits.ops_per_s), (Some(3_000_000), Some(9)));
        assert_eq!((options.name.as_str(), options.source.as_deref()), ("f", Some("a/f")));
    }

    #[test]
    fn later_words_win() {
        let options = parsed(
            "ro,rw,forcedirect,readcache,nosuid,suid,noatime,relatime,sync_on_close,nosync_on_close,io_uring,noio_uring",
        );
        assert_eq!(options, MountOptions { cache: CacheMode::Read, ..MountOptions::default() });
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (text, words) in [
            ("rw,wirtecache", "\"wirtecache\""),
            ("readahead_kb=many", "readahead_kb: a number from 0"),
            ("qos_max_ops=0", "from 1"),
            ("num_cores=0", "from 1 to 1024"),
            ("dentry_max_age_positive=-1", "\"-1\""),
            ("dentry_max_age_negative", "dentry_max_age_negative"),
            ("ro=1", "ro=1"),
            ("remount", "remount"),
        ] {
            let error = MountOptions::parse(text, false).expect_err(text);
            assert!(error.contains(words), "{words} expected in {error}");
        }
        assert_eq!(MountOptions::parse("wirtecache,ro", true).map(|o| o.read_only), Ok(true));
        assert!(MountOptions::parse("readahead_kb=many", true).is_err(), "sloppy is about names only");
    }
}
