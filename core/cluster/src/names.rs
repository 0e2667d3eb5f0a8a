//! Names that people give.

use braid_base::{Error, ErrorKind, Result};

/// Longest name of a cluster, a file system or a group, characters.
const NAME_CHARS_MAX: usize = 32;

/// Refuses names that could not be typed, shown or used as a path component. `what` is the noun for the message.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let chars = name.chars().count();
    let bad = |c: char| c == '/' || c == '\\' || c.is_control() || c.is_whitespace();
    let fault = match name {
        "" => "it is empty".to_owned(),
        "." | ".." => "it means a directory".to_owned(),
        _ if chars > NAME_CHARS_MAX => format!("it has {chars} characters"),
        _ if name.starts_with('-') => "it starts like an option".to_owned(),
        _ if name.contains(bad) => "it contains a slash, backslash, blank or control character".to_owned(),
        _ => return Ok(()),
    };
    let message = format!("{what} name {name:?}: {fault}; 1 to {NAME_CHARS_MAX} characters expected");
    Err(Error::new(ErrorKind::Invalid, message))
}
