//! Clients in other processes: their requests take the same way to the seats as those of this process, what partitions push
//! goes back over the connection.
//!
//! A connection that ends ends nothing else: the client may be on its way back with all that it holds. One that was
//! killed, or cut off for too long, is given up when its sessions expire, like any that falls silent; no earlier, because
//! until then it may count on them. So every request that others could feel afterwards must name a session: what has
//! none would be held for ever, and a copy that lay here unread could be carried out when its client is gone and
//! forgotten. What names an ended session is refused by the partition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use braid_base::ids::{ClientId, DriveId, Guid, HostId, PartitionId, Term};
use braid_base::msg::drive::{DriveOp, DriveResult};
use braid_base::msg::fs::{Op, Request};
use braid_base::msg::host::{Attached, HostOp, HostReply, HostResult, Map};
use braid_base::msg::lease::{Answer, Push};
use braid_base::msg::peer::PeerMsg;
use braid_base::{Error, ErrorKind, Result};
use braid_client::wire::PushSink;
use braid_replica::replica::event::Msg;
use braid_wire::tls::Peer;
use braid_wire::{Address, Caller, Handler, Hello, Pusher, ReplyTo, Who};

use super::seat_actor::{self, SeatMsg};
use super::wire::{Switch, wall_ms};

/// How other hosts prove that they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// There are none.
    None,
    /// They know this secret.
    Secret(String),
    /// By certificates of the cluster's authority.
    Certificates,
}

/// Makes a new client of the file system of that name.
pub type Attach = Box<dyn Fn(&str) -> Result<Attached> + Send + Sync>;

/// Tells what a host has kept.
pub type Recall = Box<dyn Fn() -> Result<String> + Send + Sync>;

/// Asks the coordinator for another host: path and body of the question, to what became of it.
pub type AskForAnother = Box<dyn Fn(&str, &str) -> Result<String> + Send + Sync>;

/// Who is let in, and what it is told first.
pub struct Gate {
    /// Of those that name this cluster,
    pub cluster: Guid,
    /// clients and visitors that know this secret,
    pub secret: String,
    /// and hosts that know this one, or show their certificates, if there are others.
    pub hosts: Hosts,
    /// Partitions of the cluster.
    pub partitions: u16,
    /// Where this host listens.
    pub addresses: Vec<String>,
    /// Makes the number of a new client of a file system. Blocks.
    pub attach: Attach,
    /// What this host has kept of the coordinator, in JSON. Blocks.
    pub recall: Recall,
    /// Asks etcd for a host that cannot reach it. Blocks.
    pub ask_for_another: AskForAnother,
}

/// The clients that are connected, and the way from them, and from other hosts, to the parts of this host.
pub struct Clients {
    switch: Arc<Switch>,
    gate: Gate,
    here: Mutex<BTreeMap<ClientId, Connected>>,
    this: Weak<Self>,
}

/// A client while its first connection stands.
struct Connected {
    who: Who,
    way: Arc<Way>,
}

/// The way back to a client; the switch knows it as long as [`Connected`] holds it.
struct Way(Pusher);

impl PushSink for Way {
    fn pushed(&self, push: Push) {
        // Lost with the connection: partitions repeat what matters.
        let _ = self.0.push(&push);
    }
}

impl Clients {
    pub(super) fn new(switch: Arc<Switch>, gate: Gate) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { switch, gate, here: Mutex::default(), this: Weak::clone(this) })
    }

    /// Who is connected, ordered by number.
    pub fn list(&self) -> Vec<Who> {
        self.here().values().map(|connected| connected.who.clone()).collect()
    }

    /// Where everything is.
    fn map(&self) -> Map {
        if let Some(company) = &self.switch.company {
            return (*company.routes.map()).clone();
        }
        let me = self.switch.host;
        let hosts = vec![(me, self.gate.addresses.clone())];
        let primaries = vec![Some(me); usize::from(self.gate.partitions)];
        let drives = self.switch.drive_ids().into_iter().map(|drive| (drive, me)).collect();
        Map { version: 0, hosts, primaries, drives }
    }

    fn here(&self) -> MutexGuard<'_, BTreeMap<ClientId, Connected>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Clients {
    fn admit(&self, peer: Peer, hello: &Hello) -> Result<u16> {
        let secret = match (&hello.caller, &self.gate.hosts) {
            (Caller::Host(_), Hosts::None) => {
                return Err(Error::new(
                    ErrorKind::Refused,
                    "this cluster runs on one host: `braid up` takes no others",
                ));
            }
            (Caller::Host(_), Hosts::Secret(secret)) => secret,
            // Its certificate is of this cluster, or it would have come no further than TLS.
            (Caller::Host(host), Hosts::Certificates) if peer == Peer::Host(*host) => return Ok(self.gate.partitions),
            (Caller::Host(host), Hosts::Certificates) => {
                let words = format!("host {host} shows no certificate of its own: it needs the join secret to get one");
                return Err(Error::new(ErrorKind::NotPermitted, words));
            }
            // Hosts, too, are relayed.
            (Caller::Relay(_), Hosts::Certificates) if matches!(peer, Peer::Host(_)) => {
                return Ok(self.gate.partitions);
            }
            (Caller::Relay(_), Hosts::Secret(secret)) if hello.check(self.gate.cluster, secret).is_ok() => secret,
            _ => &self.gate.secret,
        };
        hello.check(self.gate.cluster, secret).map(|()| self.gate.partitions)
    }

    fn joined(&self, who: &Who, push: Pusher) {
        let way = Arc::new(Way(push));
        let sink: Arc<dyn PushSink> = way.clone();
        self.switch.listen(who.client, &sink);
        self.here().insert(who.client, Connected { who: who.clone(), way });
        tracing::info!("client {} (pid {}) has joined: {} on {}", who.client, who.pid, who.filesystem, who.point);
    }

    fn left(&self, who: &Who, push: &Pusher) {
        let mut here = self.here();
        // It may have joined anew before the end of its old connection was noticed.
        if here.get(&who.client).is_some_and(|known| known.way.0.is_same(push)) {
            here.remove(&who.client);
            tracing::info!("client {} (pid {}) has left", who.client, who.pid);
        }
    }

    fn partition(&self, from: ClientId, p: PartitionId, term: Term, mut request: Request, answer: ReplyTo<Answer>) {
        if request.op.client != from {
            let words = format!("client {from} asks in the name of client {}", request.op.client);
            return answer.send(&Error::new(ErrorKind::NotPermitted, words).into());
        }
        match &mut request.body {
            // It does not live and die with this process, whatever it says.
            Op::Hello { home, .. } => *home = None,
            Op::EndSession => {}
            body if request.session == 0 && !body.is_session() => {
                let words = "begin a session first: over a socket every request names one";
                return answer.send(&Error::new(ErrorKind::SessionLost, words).into());
            }
            _ => {}
        }
        match self.switch.seat(p) {
            // A message that cannot be sent drops the answer, which says so.
            Ok(seat) => drop(seat.request(term, request, Box::new(move |result| answer.send(&result)))),
            Err(elsewhere) => answer.send(&elsewhere.into()),
        }
    }

    fn drive(&self, from: &Caller, d: DriveId, op: DriveOp, answer: ReplyTo<DriveResult>) {
        if !matches!(from, Caller::Host(_)) && !matches!(op, DriveOp::Read { .. } | DriveOp::Put { .. } | DriveOp::Stat)
        {
            let words = "clients read and write blocks; shards are made and dropped by partitions";
            return answer.send(&Err(Error::new(ErrorKind::NotPermitted, words)));
        }
        match self.switch.drive(d) {
            Ok(drive) => drive.call(op, move |result| answer.send(&result)),
            Err(error) => answer.send(&Err(error)),
        }
    }

    fn host(&self, from: &Caller, op: HostOp, answer: ReplyTo<HostResult>) {
        let (switch, runtime) = (Arc::clone(&self.switch), &self.switch.runtime);
        match op {
            HostOp::Map => answer.send(&Ok(HostReply::Map(self.map()))),
            HostOp::Mounts => answer.send(&Ok(HostReply::Mounts(self.list()))),
            HostOp::Absent => answer.send(&match switch.absent() {
                Some(absent) => Ok(HostReply::Absent(absent.into_iter().collect())),
                None => Err(Error::new(ErrorKind::Busy, "this host has not looked at the drives yet")),
            }),
            HostOp::Ways => answer.send(&Ok(HostReply::Ways(switch.ways()))),
            HostOp::Clock => answer.send(&Ok(HostReply::Clock(wall_ms()))),
            HostOp::Seats => {
                runtime.spawn_blocking(move || answer.send(&Ok(HostReply::Seats(switch.reports()))));
            }
            HostOp::Lost => {
                runtime.spawn_blocking(move || {
                    answer.send(&Ok(HostReply::Lost(seat_actor::lost(&switch.all_seats()))));
                });
            }
            // It has the secrets of object stores, which stay on hosts.
            HostOp::Recall if !matches!(from, Caller::Host(_)) => {
                let words = "what a host has kept of the coordinator is told to hosts only: ask in the name of one";
                answer.send(&Err(Error::new(ErrorKind::NotPermitted, words)));
            }
            HostOp::Recall => {
                let Some(this) = self.this.upgrade() else { return };
                runtime.spawn_blocking(move || answer.send(&(this.gate.recall)().map(HostReply::Recalled)));
            }
            HostOp::Coordinator { .. } if !matches!(from, Caller::Host(_)) => {
                let words = "the coordinator is asked for hosts only: ask in the name of one";
                answer.send(&Err(Error::new(ErrorKind::NotPermitted, words)));
            }
            HostOp::Coordinator { path, body } => {
                let Some(this) = self.this.upgrade() else { return };
                runtime.spawn_blocking(move || {
                    answer.send(&Ok(HostReply::Coordinator((this.gate.ask_for_another)(&path, &body))));
                });
            }
            HostOp::Stores { look } => {
                runtime.spawn(async move { answer.send(&Ok(HostReply::Stores(switch.objects.reports(look).await))) });
            }
            HostOp::StoreOps { store } => answer.send(&switch.objects.operations(store).map(HostReply::StoreOps)),
            HostOp::Events { filter } => {
                let events = Arc::clone(switch.objects.events());
                runtime.spawn_blocking(move || answer.send(&events.list(&filter).map(HostReply::Events)));
            }
            op @ (HostOp::Objects { .. } | HostOp::Judge { .. }) => {
                runtime.spawn(async move { answer.send(&switch.answer_audit(op).await) });
            }
            HostOp::Attach { filesystem } => {
                let Some(this) = self.this.upgrade() else { return };
                runtime.spawn_blocking(move || {
                    answer.send(&(this.gate.attach)(&filesystem).map(HostReply::Attached));
                });
            }
        }
    }

    fn replica(&self, from: HostId, message: Msg) {
        if message.from.host != from {
            tracing::warn!("host {from} speaks for host {}: not heard", message.from.host);
            return;
        }
        self.switch.hear(message);
    }

    fn peer(&self, from: PartitionId, to: PartitionId, message: PeerMsg) {
        let _ = self.switch.tell(to, SeatMsg::Peer(from, message));
    }

    fn way(&self, to: HostId) -> Result<Address> {
        match &self.switch.company {
            Some(company) => company.routes.way(to),
            None => Err(Error::new(ErrorKind::Unsupported, "this host is alone")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak, mpsc};
    use std::time::Duration;

    use braid_base::ids::{ClientId, FsId, Guid, HostId, Ino, OpId, PartitionId, Term};
    use braid_base::msg::fs::{Op, Reply, Request};
    use braid_base::msg::host::{HostOp, HostReply};
    use braid_base::msg::lease::{Answer, Push, PushBody};
    use braid_base::{ErrorKind, Result};
    use braid_client::Wire;
    use braid_client::wire::PushSink;
    use braid_cluster::Embedded;
    use braid_io::reactor::{self, Actor, IoDone, Token, Turn};
    use braid_replica::MapKv;
    use braid_wire::tls::Peer;
    use braid_wire::{Address, Caller, Find, Handler, Hello, Listener, RemoteWire, Target, Visit, Who};

    use super::{Clients, Gate, Hosts};
    use crate::run::Events;
    use crate::run::objects::HostObjects;
    use crate::run::seat_actor::SeatMsg;
    use crate::run::shared_seat::{SeatDoor, Shared};
    use crate::run::wire::Switch;

    const CLUSTER: Guid = Guid([5; 16]);

    /// In place of a partition: passes on what it is asked, and says `Done`.
    struct Desk(mpsc::Sender<Request>);

    impl Actor for Desk {
        type Msg = SeatMsg;

        fn on_msg(&mut self, msg: SeatMsg, turn: &mut Turn) {
            match msg {
                SeatMsg::Request(_, request, answer) => {
                    let _ = self.0.send(request);
                    answer(Answer::plain(Term(4), Ok(Reply::Done)));
                }
                _ => turn.stop(),
            }
        }

        fn on_io(&mut self, _token: Token, _result: Result<IoDone>, _turn: &mut Turn) {}
    }

    struct Told(tokio::sync::mpsc::UnboundedSender<Push>);

    impl PushSink for Told {
        fn pushed(&self, push: Push) {
            let _ = self.0.send(push);
        }
    }

    fn request(client: ClientId, session: u64, body: Op) -> Request {
        let op = OpId { client, seq: 1 };
        Request { op, session, done_upto: 0, fs: FsId(1), cred: Default::default(), early: true, body }
    }

    async fn connect(path: &Path, client: ClientId) -> RemoteWire {
        let address = Address::Unix(path.to_owned());
        let find = move || -> Find {
            let address = address.clone();
            Box::new(move || {
                Ok(Target { address: address.clone(), cluster: CLUSTER, secret: "s".to_owned(), tls: None })
            })
        };
        let who = Who { client, pid: 1, fs: FsId(1), filesystem: "f".into(), point: "/m".into(), since_s: 0 };
        RemoteWire::connect(find(), Box::new(move |_, _| find()), who).await.expect("it listens")
    }

    fn gate() -> Gate {
        let attach = |_: &str| Err(ErrorKind::NotFound.into());
        Gate {
            cluster: CLUSTER,
            secret: "s".to_owned(),
            hosts: Hosts::None,
            partitions: 1,
            addresses: Vec::new(),
            attach: Box::new(attach),
            recall: Box::new(|| Ok(String::new())),
            ask_for_another: Box::new(|path, body| Ok(format!("{path} {body}"))),
        }
    }

    async fn until(what: impl Fn() -> bool) {
        let mut tries = 0;
        while !what() {
            tries += 1;
            assert!(tries < 5_000, "it does not come about");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn switch(dir: &Path, runtime: &tokio::runtime::Handle) -> (Arc<Switch>, mpsc::Receiver<Request>) {
        let (tx, asked) = mpsc::channel();
        let (desk, _thread) = reactor::spawn("desk", Desk(tx)).expect("a thread");
        let door = SeatDoor::new(PartitionId(0), desk, Shared::default());
        let links = Arc::new(braid_tier::Links::new(CLUSTER, HostId(1)));
        let events = Events::start(dir.join("events")).expect("a thread");
        let switch = Switch {
            host: HostId(1),
            tiers: Mutex::default(),
            objects: HostObjects::new(CLUSTER, links, runtime.clone(), events),
            seats: RwLock::new([(PartitionId(0), door)].into()),
            idle: Mutex::default(),
            drives: RwLock::default(),
            runtime: runtime.clone(),
            reader: OnceLock::new(),
            clients: Mutex::default(),
            kv: Weak::<MapKv>::new(),
            coordinator: Arc::new(Embedded::in_memory(Arc::new(|| 0)).expect("memory")),
            asking: Mutex::default(),
            drive_set: Mutex::default(),
            marks: Mutex::default(),
            absent: Mutex::default(),
            company: None,
            capacity: Arc::new(AtomicU64::new(5 << 30)),
            limits: Arc::new(Mutex::new([(FsId(3), 3 << 30)].into())),
        };
        (Arc::new(switch), asked)
    }

    #[tokio::test]
    async fn whoever_may_ask_a_host_is_relayed_and_nobody_else() {
        let dir = tempfile::tempdir().expect("dir");
        let (switch, _asked) = switch(dir.path(), &tokio::runtime::Handle::current());
        let clients = |hosts| Clients::new(Arc::clone(&switch), Gate { hosts, ..gate() });
        let admitted = |hosts: Hosts, peer, secret: &str| {
            let caller = Caller::Relay(HostId(2));
            let hello = Hello { cluster: CLUSTER, secret: secret.to_owned(), caller, channel: 255 };
            clients(hosts).admit(peer, &hello).map_err(|error| error.kind())
        };
        let of_hosts = || Hosts::Secret("of hosts".to_owned());
        assert_eq!(admitted(of_hosts(), Peer::Anonymous, "s"), Ok(1));
        assert_eq!(admitted(of_hosts(), Peer::Anonymous, "of hosts"), Ok(1));
        assert_eq!(admitted(Hosts::Certificates, Peer::Anonymous, "s"), Ok(1));
        assert_eq!(admitted(Hosts::Certificates, Peer::Host(HostId(3)), ""), Ok(1));
        for hosts in [Hosts::None, of_hosts(), Hosts::Certificates] {
            assert_eq!(admitted(hosts, Peer::Anonymous, "another"), Err(ErrorKind::NotPermitted));
        }
        assert_eq!(admitted(Hosts::Certificates, Peer::Anonymous, "of hosts"), Err(ErrorKind::NotPermitted));
        let alone = clients(Hosts::None).way(HostId(2)).map_err(|error| error.kind());
        assert_eq!(alone, Err(ErrorKind::Unsupported));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn requests_reach_partitions_as_those_of_strangers_may() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let (switch, asked) = switch(dir.path(), &tokio::runtime::Handle::current());
        let clients = Clients::new(switch, gate());
        tokio::spawn(braid_wire::serve(Listener::unix(&path).expect("a socket"), clients));
        let (me, p) = (ClientId(7), PartitionId(0));
        let wire = connect(&path, me).await;
        let kind = |answer: Answer| answer.result.map(drop).map_err(|error| error.kind());

        let ask = |session, body| wire.partition(p, request(me, session, body));
        assert_eq!(kind(ask(0, Op::Open { ino: Ino(1), truncate: false }).await), Err(ErrorKind::SessionLost));
        let other = wire.partition(p, request(ClientId(8), 3, Op::Statfs)).await;
        assert_eq!(kind(other), Err(ErrorKind::NotPermitted));
        assert!(asked.try_recv().is_err(), "neither gets through");

        let hello = ask(1, Op::Hello { begin: true, home: Some(HostId(1)), open: Vec::new() }).await;
        assert_eq!((hello.term, kind(hello)), (Term(4), Ok(())));
        let heard = asked.try_recv().expect("it came");
        assert!(matches!(heard.body, Op::Hello { begin: true, home: None, .. }), "{heard:?}");
        assert_eq!(kind(ask(1, Op::Open { ino: Ino(1), truncate: false }).await), Ok(()));
        let heard = asked.try_recv().expect("it came");
        assert!(heard.session == 1 && !heard.early, "{heard:?}");
        assert_eq!(kind(ask(0, Op::EndSession).await), Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_host_has_kept_and_what_the_coordinator_says_is_told_to_hosts() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let (switch, _asked) = switch(dir.path(), &tokio::runtime::Handle::current());
        let hosts = Hosts::Secret("of hosts".to_owned());
        let clients = Clients::new(switch, Gate { hosts, recall: Box::new(|| Ok("kept".to_owned())), ..gate() });
        tokio::spawn(braid_wire::serve(Listener::unix(&path).expect("a socket"), clients));
        let find = |secret: &'static str| -> Find {
            let address = Address::Unix(path.clone());
            Box::new(move || {
                Ok(Target { address: address.clone(), cluster: CLUSTER, secret: secret.to_owned(), tls: None })
            })
        };
        let visitor = Visit::begin(find("s")).await.expect("let in");
        let refused = visitor.ask(HostOp::Recall).await.map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::NotPermitted));
        let question = || HostOp::Coordinator { path: "kv".to_owned(), body: "{}".to_owned() };
        let refused = visitor.ask(question()).await.map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::NotPermitted));
        assert!(matches!(visitor.ask(HostOp::Map).await, Ok(HostReply::Map(_))));
        let pretends = Visit::of_host(find("s"), HostId(2)).await.map(drop).map_err(|error| error.kind());
        assert_eq!(pretends, Err(ErrorKind::NotPermitted), "with the secret of clients");
        let host = Visit::of_host(find("of hosts"), HostId(2)).await.expect("let in");
        assert_eq!(host.ask(HostOp::Recall).await, Ok(HostReply::Recalled("kept".to_owned())));
        assert_eq!(host.ask(question()).await, Ok(HostReply::Coordinator(Ok("kv {}".to_owned()))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pushes_find_a_client_that_came_back() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let (switch, _asked) = switch(dir.path(), &tokio::runtime::Handle::current());
        let clients = Clients::new(Arc::clone(&switch), gate());
        let serve = || tokio::spawn(braid_wire::serve(Listener::unix(&path).expect("a socket"), clients.clone()));
        let (me, mut server) = (ClientId(7), serve());
        let wire = connect(&path, me).await;
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let sink: Arc<dyn PushSink> = Arc::new(Told(told));
        assert!(wire.listen(me, Arc::clone(&sink)));
        let push = |n| Push { to: me, session: n, from: PartitionId(0), term: Term(1), body: PushBody::Reassert };
        for round in 0..5 {
            until(|| clients.list().iter().any(|who| who.client == me)).await;
            switch.push(push(round));
            let pushed = tokio::time::timeout(Duration::from_secs(10), heard.recv()).await;
            assert_eq!(pushed, Ok(Some(push(round))));
            server.abort();
            until(|| clients.list().is_empty()).await;
            switch.push(push(100));
            server = serve();
        }
        until(|| !clients.list().is_empty()).await;
        drop(wire);
        until(|| clients.list().is_empty()).await;
        switch.push(push(100));
        assert!(heard.try_recv().is_err(), "what comes while it is away is lost");
        let known: BTreeMap<_, _> = switch.clients.lock().expect("no panic").clone().into_iter().collect();
        assert!(known.is_empty(), "a client that has gone is forgotten");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_that_goes_while_it_comes_back_is_gone() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let (switch, _asked) = switch(dir.path(), &tokio::runtime::Handle::current());
        let clients = Clients::new(switch, gate());
        let serve = || tokio::spawn(braid_wire::serve(Listener::unix(&path).expect("a socket"), clients.clone()));
        for round in 0..100 {
            let server = serve();
            let wire = connect(&path, ClientId(7)).await;
            server.abort();
            until(|| clients.list().is_empty()).await;
            let server = serve();
            // The moment at which its keeper is told that it is let in, more or less.
            while clients.list().is_empty() {
                tokio::task::yield_now().await;
            }
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            drop(wire);
            until(|| clients.list().is_empty()).await;
            server.abort();
        }
    }
}
