//! How one is let in by a server: where it is, and the first words.

use std::sync::Arc;

use braid_base::ids::{Guid, HostId};
use braid_base::{Error, ErrorKind, Result};

use crate::codec::Message;
use crate::frame::Kind;
use crate::hello::{Caller, Hello, Welcome};
use crate::intake::Intake;
use crate::limits::HELLO_MS;
use crate::link::{Link, Parcel};
use crate::stream::{Address, Stream};
use crate::tls;

/// Where a server is and how it knows us.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// The cluster.
    pub cluster: Guid,
    /// Its secret.
    pub secret: String,
    /// How to secure TCP, and the host that must be there; none: any host of the cluster.
    pub tls: Option<(tls::Client, Option<HostId>)>,
}

/// Finds the server; asked before each connection, because a server that starts anew has another secret.
pub type Find = Box<dyn Fn() -> Result<Target> + Send + Sync>;

/// Secures `stream`, which leads to `target`, and says hello there.
pub(crate) async fn greet(stream: Stream, target: &Target, caller: Caller, channel: u8) -> Result<(Arc<Link>, Intake)> {
    let stream = match &target.tls {
        Some((client, host)) => {
            let secured = stream.secure(client, target.cluster, *host).await;
            secured.map_err(|error| error.within(&target.address))?
        }
        None => stream,
    };
    let link = Link::new(stream);
    let writer = Arc::clone(&link);
    tokio::spawn(async move { writer.write_on().await });
    let closing = Closing(Some(Arc::clone(&link)));
    let hello = Hello { cluster: target.cluster, secret: target.secret.clone(), caller, channel };
    let parcel = Parcel { kind: Kind::Hello, id: 0, target: 0, message: hello.encode(), check_data: true };
    link.send(parcel, true);
    let mut intake = Intake::new();
    let frame = link.frame_within(&mut intake, HELLO_MS).await?;
    if frame.header.kind != Kind::Welcome {
        return Err(Error::new(ErrorKind::Corrupt, format!("expected a welcome, found {:?}", frame.header.kind)));
    }
    match Welcome::decode(&frame.meta, frame.data)? {
        Welcome::In { .. } => {
            intake.trust();
            closing.forget();
            Ok((link, intake))
        }
        Welcome::No { error } => Err(error),
    }
}

/// Closes a connection that did not come about.
struct Closing(Option<Arc<Link>>);

impl Closing {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.close();
        }
    }
}
