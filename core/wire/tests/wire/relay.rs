//! A host that cannot be connected to, and another one that can carry what is for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake::{CLUSTER, Fake, Told, exercise, number, runtime, who};
use braid_base::ids::{ClientId, HostId, PartitionId, Term};
use braid_base::msg::lease::{Push, PushBody};
use braid_client::Wire;
use braid_wire::tls::{Authority, Identity, client_config, server_config};
use braid_wire::{Address, Find, Listener, RemoteWire, Target, serve};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

const NEAR: HostId = HostId(1);
const FAR: HostId = HostId(2);
/// For whatever is repeated until it comes about.
const PATIENCE: Duration = Duration::from_secs(20);

/// Those of a cluster, with TLS or without.
struct Cluster(Option<Authority>);

impl Cluster {
    fn identity(&self, host: HostId) -> Option<Identity> {
        self.0.as_ref().map(|authority| authority.issue(host).expect("issued"))
    }

    /// Serves `fake` as `host` at `at`.
    async fn serve(&self, host: HostId, at: &str, fake: &Arc<Fake>) -> (SocketAddr, AbortHandle) {
        let tcp = TcpListener::bind(at).await.expect("a port");
        let at = tcp.local_addr().expect("bound");
        let listener = match self.identity(host) {
            Some(own) => Listener::Tls(tcp, server_config(&own).expect("an identity")),
            None => Listener::Tcp(tcp),
        };
        (at, tokio::spawn(serve(listener, fake.clone())).abort_handle())
    }

    fn find(&self, host: HostId, at: SocketAddr) -> Find {
        let trust = |authority: &Authority| client_config(&authority.ca(), None).expect("an authority");
        let tls = self.0.as_ref().map(|authority| (trust(authority), Some(host)));
        let target = Target { address: Address::Tcp(at), cluster: CLUSTER, secret: "secret".to_owned(), tls };
        Box::new(move || Ok(target.clone()))
    }
}

async fn answers(wire: &RemoteWire) {
    let asked = async {
        while number(wire, 6).await != Ok(6) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("an answer");
}

/// A client connects to `near` and not to `far`; then it can, and then it cannot again.
async fn goes_by_way_of_another(cluster: Cluster) {
    let [near, far] = [NEAR, FAR].map(|host| Arc::new(Fake { host: host.0 as usize, ..Fake::default() }));
    for fake in [&near, &far] {
        fake.primary.store(2, Ordering::Relaxed);
        *fake.others.lock().expect("no panic") = vec![(FAR, vec![]), (NEAR, vec![])];
    }
    let (near_at, _) = cluster.serve(NEAR, "127.0.0.1:0", &near).await;
    let (far_at, _) = cluster.serve(FAR, "127.0.0.1:0", &far).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    near.ways.lock().expect("no panic").insert(FAR, Address::Tcp(far_at));

    let (to_near, cluster) = (cluster.find(NEAR, near_at), Arc::new(cluster));
    let finds = Arc::clone(&cluster);
    let finder = move |host, _: &[String]| finds.find(host, if host == NEAR { near_at } else { closed });
    let wire = Arc::new(RemoteWire::connect(to_near, Box::new(finder), who()).await.expect("connects"));
    let (told, mut pushed) = tokio::sync::mpsc::unbounded_channel();
    let sink = Arc::new(Told(told));
    assert!(wire.listen(ClientId(9), sink.clone()));
    answers(&wire).await;
    exercise(Arc::clone(&wire)).await;
    assert!(near.relayed.load(Ordering::Relaxed) >= 1);
    let relayed = far.pusher(ClientId(9)).await;
    let (from, to) = (PartitionId(5), ClientId(9));
    let push = Push { from, to, session: 0, term: Term(0), body: PushBody::Evicted };
    assert!(relayed.push(&push));
    assert_eq!(pushed.recv().await, Some(push));

    // It is left as soon as there is a way without it,
    let (_, direct) = cluster.serve(FAR, &closed.to_string(), &far).await;
    let left = async {
        while far.pusher(ClientId(9)).await.is_same(&relayed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, left).await.expect("left");
    let before = near.relayed.load(Ordering::Relaxed);
    answers(&wire).await;
    exercise(Arc::clone(&wire)).await;
    assert_eq!(near.relayed.load(Ordering::Relaxed), before);

    // and taken again when there is none.
    direct.abort();
    let taken = async {
        while near.relayed.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("taken again");
    answers(&wire).await;
}

#[test]
fn who_cannot_connect_goes_by_way_of_another_host() {
    runtime().block_on(goes_by_way_of_another(Cluster(None)));
}

#[test]
fn the_two_ends_talk_tls_with_each_other() {
    runtime().block_on(goes_by_way_of_another(Cluster(Some(Authority::new(CLUSTER).expect("an authority")))));
}

#[test]
fn who_relays_cannot_be_the_host_that_is_meant() {
    runtime().block_on(async {
        let cluster = Cluster(Some(Authority::new(CLUSTER).expect("an authority")));
        // It would answer as the other one does.
        let near = Arc::new(Fake { host: 2, ..Fake::default() });
        near.primary.store(2, Ordering::Relaxed);
        *near.others.lock().expect("no panic") = vec![(FAR, vec![]), (NEAR, vec![])];
        let (near_at, _) = cluster.serve(NEAR, "127.0.0.1:0", &near).await;
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        // It answers for the other one with its own certificate.
        near.ways.lock().expect("no panic").insert(FAR, Address::Tcp(near_at));
        let entry = cluster.find(NEAR, near_at);
        let finder = move |host, _: &[String]| cluster.find(host, if host == NEAR { near_at } else { closed });
        let wire = RemoteWire::connect(entry, Box::new(finder), who()).await.expect("connects");
        let tried = async {
            while near.relayed.load(Ordering::Relaxed) < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(number(&wire, 6).await.is_err());
            }
        };
        tokio::time::timeout(PATIENCE, tried).await.expect("tries");
        assert_eq!(near.asked.load(Ordering::Relaxed), 0);
    });
}
