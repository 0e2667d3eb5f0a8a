//! Tells systemd that a service is ready (sd_notify(3)): what `Type=notify` waits for.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that all is up, if somebody waits to hear it. Nothing depends on whether it was heard.
pub fn ready() {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET")
        && let Err(error) = tell(&socket, b"READY=1")
    {
        tracing::warn!("systemd was not told that all is up: {error}");
    }
}

fn tell(socket: &OsStr, words: &[u8]) -> std::io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(words, &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::tell;

    #[test]
    fn who_waits_is_told_at_a_path_or_at_a_name() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("notify");
        let name = format!("braid-test-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).expect("a name");
        let heard = [
            (UnixDatagram::bind(&path).expect("bound"), path.into_os_string()),
            (UnixDatagram::bind_addr(&named).expect("bound"), OsString::from(format!("@{name}"))),
        ];
        for (socket, place) in heard {
            tell(&place, b"READY=1").expect("told");
            let mut words = [0; 16];
            let len = socket.recv(&mut words).expect("heard");
            assert_eq!(&words[..len], b"READY=1");
        }
        assert!(tell("/nowhere/at/all".as_ref(), b"READY=1").is_err());
    }
}
