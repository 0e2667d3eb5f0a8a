//! Secrets that stand on the command line, where every user of the machine can read them as long as the process runs.
//!
//! 1. [`take`] looks for them before anything else is done.
//! 2. Each is written into a pipe, and the option that names it is replaced by the one that reads a file: the pipe.
//! 3. The process becomes this program anew, with these words. Only between its start and this, milliseconds, could the
//!    secret be seen; from then on neither the words nor the environment have it.

use std::ffi::{OsStr, OsString};
use std::io::{Error, PipeReader, Result, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::exit::{FAILURE, Failure};

/// Options whose values are secrets; each has a brother with `-file` behind it.
const SECRETS: [&str; 3] = ["--secret-key", "--access-key", "--sas"];
/// The least that a pipe holds, bytes: so much can be written before anybody reads.
const PIPE_BYTES: usize = 4096;

/// Begins anew without the secrets among `words`, the first of which is the name of the program. Returns if there are none.
pub fn take(words: &[OsString]) -> std::result::Result<(), Failure> {
    let failed = |error: Error| {
        let message = format!("hiding the secret of the command line: {error}; give it in a file (--secret-key-file)");
        Failure { code: FAILURE, message }
    };
    let mut pipes = Vec::new();
    let hidden = replaced(words, |secret| {
        let pipe = filled(secret)?;
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        pipes.push(pipe);
        Ok(path)
    });
    let Some(hidden) = hidden.map_err(failed)? else { return Ok(()) };
    let (program, rest) = hidden.split_first().ok_or_else(|| failed(Error::other("no program")))?;
    Err(failed(Command::new("/proc/self/exe").arg0(program).args(rest).exec()))
}

/// The words with a file instead of each secret, which `put` puts there; none if there is no secret.
fn replaced(words: &[OsString], mut put: impl FnMut(&OsStr) -> Result<String>) -> Result<Option<Vec<OsString>>> {
    let (mut hidden, mut found) = (Vec::new(), false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            hidden.push(word.clone());
            break;
        }
        let text = word.as_bytes();
        let (name, value) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]))),
            None => (text, None),
        };
        let option = SECRETS.iter().find(|secret| secret.as_bytes() == name);
        // Without a value it is a mistake that is told like all others.
        let secret =
            option.and_then(|option| Some((option, value.or_else(|| rest.clone().next().map(OsString::as_os_str))?)));
        let Some((option, secret)) = secret else {
            hidden.push(word.clone());
            continue;
        };
        if value.is_none() {
            rest.next();
        }
        hidden.push(format!("{option}-file={}", put(secret)?).into());
        found = true;
    }
    hidden.extend(rest.cloned());
    Ok(found.then_some(hidden))
}

/// The end to read of a pipe with `secret` in it, which the next program inherits.
fn filled(secret: &OsStr) -> Result<PipeReader> {
    let bytes = secret.as_bytes();
    if bytes.len() > PIPE_BYTES {
        return Err(Error::other(format!("a secret of at most {PIPE_BYTES} bytes expected, found {}", bytes.len())));
    }
    let (reader, mut writer) = pipe()?;
    fcntl_setfd(&reader, FdFlags::empty())?;
    writer.write_all(bytes)?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::replaced;

    fn shown(words: &[&str]) -> Option<Vec<String>> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let put = |secret: &std::ffi::OsStr| Ok(format!("<{}>", secret.to_string_lossy()));
        let hidden = replaced(&words, put).expect("no error")?;
        Some(hidden.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn secrets_are_replaced_and_nothing_else_is() {
        assert_eq!(shown(&["braid", "fs"]), None);
        assert_eq!(shown(&["braid", "--secret-key-file", "f"]), None);
        assert_eq!(shown(&["braid", "--secret-key"]), None, "the value is missing");
        assert_eq!(shown(&["braid", "--", "--secret-key", "s"]), None, "no option");
        let hidden = |words: &[&str]| shown(words).expect("secrets").join(" ");
        assert_eq!(hidden(&["braid", "x", "--secret-key", "s", "y"]), "braid x --secret-key-file=<s> y");
        assert_eq!(hidden(&["braid", "--access-key=a=b=", "z"]), "braid --access-key-file=<a=b=> z");
        assert_eq!(hidden(&["braid", "--sas", "-s", "--", "--sas", "t"]), "braid --sas-file=<-s> -- --sas t");
    }
}
