//! etcd by way of other hosts, for one that cannot reach it (decision 55).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use braid_base::ids::HostId;
use braid_base::msg::host::{HostOp, HostReply, HostResult};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::Detour;
use braid_wire::Routes;
use tokio::runtime::Handle;

/// Hosts that are asked in turn. If two cannot reach etcd, it is likely away.
const ASKED_MAX: usize = 2;

/// Asks the hosts that `routes` reaches.
pub fn by(routes: Arc<Routes>, runtime: Handle) -> Detour {
    let turn = AtomicUsize::new(0);
    Box::new(move |path, body, again| {
        let mut hosts = routes.reached();
        let first = turn.load(Ordering::Relaxed) % hosts.len().max(1);
        hosts.rotate_left(first);
        let mut why = Error::new(ErrorKind::Io, "no other host is reached");
        for host in hosts.into_iter().take(ASKED_MAX) {
            let op = HostOp::Coordinator { path: path.to_owned(), body: body.to_owned() };
            match verdict(ask((&routes, &runtime), host, op), again) {
                Err(error) if error.kind() == ErrorKind::Io => why = error.within(host),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    turn.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
                said => return said,
            }
            turn.fetch_add(1, Ordering::Relaxed);
        }
        Err(why)
    })
}

/// What the answer of another host says about the question; `Io`: ask the next one.
fn verdict(answer: HostResult, again: bool) -> Result<String> {
    let strange = |other| Error::new(ErrorKind::Io, format!("what etcd says was asked for, {other:?} came"));
    match answer {
        Ok(HostReply::Coordinator(said)) => said,
        Ok(other) => Err(strange(other)),
        // One of an earlier release, or it asks for nobody.
        Err(error) if again || matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NotPermitted) => {
            Err(Error::new(ErrorKind::Io, error.message().to_owned()))
        }
        Err(error) => {
            let words = format!("another host did not say what became of a change: {}", error.message());
            Err(Error::new(ErrorKind::TimedOut, words))
        }
    }
}

/// Asks from a thread of whatever kind.
fn ask((routes, runtime): (&Arc<Routes>, &Handle), host: HostId, op: HostOp) -> HostResult {
    let (tell, told) = mpsc::sync_channel(1);
    let routes = Arc::clone(routes);
    runtime.spawn(async move {
        // Who asked is there until it hears.
        let _ = tell.send(routes.ask(host, op).await);
    });
    told.recv().unwrap_or_else(|_| Err(Error::new(ErrorKind::Stopped, "this host is stopping")))
}

#[cfg(test)]
mod tests {
    use braid_base::msg::host::HostReply;
    use braid_base::{Error, ErrorKind};

    use super::verdict;

    #[test]
    fn what_may_have_been_taken_is_not_asked_again() {
        fn failed<T>(kind: ErrorKind) -> Result<T, Error> {
            Err(kind.into())
        }
        let kind = |answer, again| verdict(answer, again).map_err(|error| error.kind());
        assert_eq!(kind(Ok(HostReply::Coordinator(Ok("{}".to_owned()))), false), Ok("{}".to_owned()));
        // What the other host heard of etcd counts as if it was heard here.
        for said in [ErrorKind::Io, ErrorKind::TimedOut, ErrorKind::Stale] {
            assert_eq!(kind(Ok(HostReply::Coordinator(failed(said))), true), Err(said));
        }
        for lost in [ErrorKind::Stopped, ErrorKind::TimedOut] {
            assert_eq!(kind(failed(lost), true), Err(ErrorKind::Io));
            assert_eq!(kind(failed(lost), false), Err(ErrorKind::TimedOut));
        }
        assert_eq!(kind(failed(ErrorKind::Unsupported), false), Err(ErrorKind::Io));
        assert_eq!(kind(Ok(HostReply::Clock(1)), false), Err(ErrorKind::Io));
    }
}
