//! A replica of a hub that is cut off from the records: nothing new passes there, and what is taken away at another one
//! meanwhile ends there as soon as the records are back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use linesman::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::hub::refusal;
use super::world::{PATIENCE, World, get};
use crate::wait::measured;

/// From the moment when the records are back; a part of them that is given up is asked for again after 10 s.
const OVER: Duration = Duration::from_secs(8);

/// The way between a replica and the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// Connections break, and no new ones are made.
    Broken,
    /// Nothing arrives, and nobody is told; what was sent arrives once it is open again.
    Silent,
    /// The same, and connections that something was said on meanwhile stay silent for ever.
    Lost,
    /// Goes on, but of each connection that was there before the next ping is lost, and the connection with it: that is how a pool tries
    /// what comes back.
    Returned,
}

/// The length of a bare Sync of PostgreSQL's protocol (five bytes, and the type of the record) as TLS 1.3 sends it.
const SYNC: usize = 5 + 6 + 16;

/// Two, of which the first has a way of its own to the records.
pub(super) struct Site {
    pub(super) a: World,
    pub(super) b: World,
    pub(super) way: watch::Sender<Way>,
    /// Connections that a ping was lost on.
    pub(super) returned: Arc<AtomicUsize>,
    /// The way of the second.
    pub(super) url: String,
    pub(super) _relay: JoinSet<()>,
}

impl Site {
    pub(super) async fn new() -> Self {
        let url = crate::postgres::database().await;
        let (url, _) = crate::postgres::with_tls(&url).await;
        let (server, name) = url.rsplit_once('/').unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], port(server)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let way = watch::Sender::new(Way::Open);
        let mut relay = JoinSet::new();
        let returned = Arc::default();
        relay.spawn(pass(listener, to, way.subscribe(), Arc::clone(&returned)));
        let own = format!("postgres://linesman@{at}/{name}");
        let [a, b] = World::reaching([&own, &url]).await;
        Self {
            a,
            b,
            way,
            returned,
            url,
            _relay: relay,
        }
    }
}

fn port(server: &str) -> u16 {
    server.rsplit_once(':').unwrap().1.parse().unwrap()
}

async fn pass(
    listener: TcpListener,
    to: SocketAddr,
    way: watch::Receiver<Way>,
    returned: Arc<AtomicUsize>,
) {
    let mut open = JoinSet::new();
    while let Ok((inside, _)) = listener.accept().await {
        let mut way = way.clone();
        let now = *way.borrow();
        if now == Way::Broken {
            continue;
        }
        let told = (now != Way::Returned).then(|| returned.clone());
        open.spawn(async move {
            let outside = TcpStream::connect(to).await.unwrap();
            let (from, to) = (inside.into_split(), outside.into_split());
            tokio::select! {
                () = one_way(from.0, to.1, way.clone(), told) => {}
                () = one_way(to.0, from.1, way.clone(), None) => {}
                _ = way.wait_for(|way| *way == Way::Broken) => {}
            }
        });
    }
}

/// `returned` counts what is lost by [`Way::Returned`]; None = nothing is, on a connection that was made since, and of what the server says.
async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
    returned: Option<Arc<AtomicUsize>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let pinged = n == SYNC && buffer[..3] == [0x17, 3, 3];
        let now = *way.borrow();
        let lost = match &returned {
            Some(count) if pinged && now == Way::Returned => {
                count.fetch_add(1, Ordering::SeqCst);
                true
            }
            _ => now == Way::Lost,
        };
        if lost {
            std::future::pending::<()>().await;
        }
        let passes = |way: &Way| matches!(way, Way::Open | Way::Returned);
        let ends = way.wait_for(passes).await.is_err();
        if ends || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// The status of `/readyz`, as a balancer asks for it.
pub(super) async fn ready(world: &World) -> u16 {
    let mut socket = TcpStream::connect(world.hub.config.health_listen)
        .await
        .unwrap();
    let ask = b"GET /readyz HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n";
    socket.write_all(ask).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// line.md §11 "Store away", H17: revoked at one replica while another one is cut off.
async fn heeds_what_was_revoked(cut: Way) {
    let server = ApiServer::start().await;
    let Site {
        mut a,
        b,
        way,
        _relay,
        returned: _,
        url: _,
    } = Site::new().await;
    a.agent(&server).await;
    let mut watch = a.send(get("/api/v1/pods?watch=1")).await.into_body();
    let mut event = async |text: &str| {
        server.event(text);
        let frame = timeout(PATIENCE, watch.frame()).await.unwrap();
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), text);
    };
    event("before\n").await;
    assert_eq!(ready(&a).await, 200);
    let asked = server.seen().len();

    way.send_replace(cut);
    let began = Instant::now();
    let (new, ready_there) = tokio::join!(a.send(get("/api/v1/pods")), ready(&a));
    let took = began.elapsed();
    assert!(took < PATIENCE, "{cut:?}: {took:?}");
    assert_eq!((new.status().as_u16(), ready_there), (503, 503), "{cut:?}");
    assert_eq!(new.headers()["retry-after"], "1");
    assert_eq!(refusal(new).await.1, "hub");
    assert_eq!(server.seen().len(), asked, "nothing left without a record");
    let token = a.token.split('.').nth(1).unwrap();
    let revoked = b.hub.store.revoke_api_token(token, clock::now());
    revoked.await.unwrap();
    // Who is cut off cannot know.
    event("meanwhile\n").await;
    // Each of its looks took a connection with it.
    tokio::time::sleep(Duration::from_secs(5)).await;
    event("still\n").await;

    way.send_replace(Way::Open);
    let ended = async { while let Some(Ok(_)) = watch.frame().await {} };
    let what = format!("records back ({cut:?}) → what was revoked over");
    measured(("H17", &what, "≤ 2 s"), OVER, ended).await;
    server.no_watches().await;
    assert_eq!(a.send(get("/api/v1/pods")).await.status(), 401, "{cut:?}");
    let ready_again = async {
        while ready(&a).await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(timeout(PATIENCE, ready_again).await.is_ok(), "{cut:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_connections_broke_heeds_what_was_revoked_meanwhile() {
    heeds_what_was_revoked(Way::Broken).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_in_silence_heeds_what_was_revoked_meanwhile() {
    heeds_what_was_revoked(Way::Silent).await;
}
