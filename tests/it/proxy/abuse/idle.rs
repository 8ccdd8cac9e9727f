//! L40, L46: connections that are there and ask for nothing: they end, and they are in nobody's way.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::hub::Bounds;
use linesman::hub::serve::Connections;
use linesman::hub::store::AuditRow;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::client::TlsStream;

use super::super::apiserver::ApiServer;
use super::super::told::{Row, told};
use super::super::world::{PATIENCE, World, get};
use super::http2::{PREFACE, frame};
use super::left_with;

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

const FEW: Connections = Connections {
    strangers: 8,
    users: 4,
    lines: 2,
    // The TLS handshake of a user who behaves is a part of it.
    first: Duration::from_secs(5),
    idle: Duration::from_millis(400),
};

/// By then one that asks for nothing is over: it has [`FEW`]'s time and 2 s more.
const OVER: Duration = Duration::from_secs(20);

async fn world(connections: Connections, server: &ApiServer) -> World {
    let mut world = World::bounded(Bounds {
        connections,
        ..Bounds::default()
    })
    .await;
    world.agent(server).await;
    world
}

/// Says no more than HTTP/2 asks for, or not even that, and never goes by itself; gives the types of the frames that came.
async fn stays(mut tls: TlsStream<TcpStream>, acks: bool) -> Vec<u8> {
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    tls.write_all(&hello).await.unwrap();
    let mut kinds = Vec::new();
    let mut header = [0; 9];
    while tls.read_exact(&mut header).await.is_ok() {
        let [_, high, low, kind, flags, ..] = header;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        tls.read_exact(&mut payload).await.unwrap();
        kinds.push(kind);
        if acks && flags & ACK == 0 && [SETTINGS, PING].contains(&kind) {
            let said = if kind == PING { &payload[..] } else { &[] };
            // The hub may be gone already.
            drop(tls.write_all(&frame(kind, ACK, 0, said)).await);
        }
    }
    kinds
}

/// L40: whether it answers PINGs or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_asks_for_nothing_is_told_to_go_and_ended() {
    let server = ApiServer::start().await;
    let world = world(FEW, &server).await;
    let ends = async |acks| {
        let tls = world.connect(&[b"h2"]).await;
        let ended = timeout(OVER, stays(tls, acks)).await;
        let kinds = ended.expect("it ends");
        assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    };
    tokio::join!(ends(true), ends(false));
    // HTTP/1.1, between two requests.
    let head = format!(
        "GET /clusters/eu1/api/v1/pods HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
        world.token
    );
    let mut tls = world.connect(&[]).await;
    tls.write_all(head.as_bytes()).await.unwrap();
    let mut said = String::new();
    let ended = timeout(PATIENCE, tls.read_to_string(&mut said)).await;
    drop(ended.expect("it ends"));
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    left_with(&world, 1).await;
}

/// L40: what runs is no idleness, however little of it passes; and the client comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_a_silent_watch_or_session_stays() {
    let server = ApiServer::start().await;
    let world = world(FEW, &server).await;
    let mut tasks = JoinSet::new();
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    tasks.spawn(async move { drop(connection.await) });
    let request = http::Request::get("https://localhost/clusters/eu1/api/v1/pods?watch=1")
        .header("authorization", format!("Bearer {}", world.token))
        .body(Empty::<bytes::Bytes>::new());
    let watch = sender.send_request(request.unwrap()).await.unwrap();
    let mut watch = watch.into_body();
    let mut exec = get("/api/v1/namespaces/a/pods/x/exec");
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        exec.headers_mut().insert(name, value.parse().unwrap());
    }
    let session = world.send(exec).await;
    assert_eq!(session.status(), 101);
    let mut session = TokioIo::new(hyper::upgrade::on(session).await.unwrap());
    // Longer than they would have without.
    let tls = world.connect(&[b"h2"]).await;
    timeout(OVER, stays(tls, true)).await.unwrap();
    server.event("event\n");
    let event = timeout(PATIENCE, watch.frame()).await.unwrap();
    assert_eq!(event.unwrap().unwrap().into_data().unwrap(), "event\n");
    session.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    timeout(PATIENCE, session.read_exact(&mut echoed))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&echoed, b"HELLO");
    drop((watch, sender, session));
    left_with(&world, 1).await;
}

/// L46: the silent and the users take all that they can get, and the agent comes in all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_users_nor_silent_sockets_take_an_agents_place() {
    let server = ApiServer::start().await;
    let few = Connections {
        first: PATIENCE,
        ..FEW
    };
    let world = world(few, &server).await;
    // They hang at the hub, whatever becomes of the line.
    let after = *world.hub.audit.head().borrow() + 1_000;
    let admin = world.admin();
    let mut users = Vec::new();
    for n in 0..few.users {
        let waits = format!(
            "GET /v1/audit?user=nobody-{n}&after={after}&wait=30 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {admin}\r\n\r\n"
        );
        let mut tls = world.connect(&[]).await;
        tls.write_all(waits.as_bytes()).await.unwrap();
        users.push(tls);
    }
    // Each question is on record before it waits.
    let mut looks = interval(Duration::from_millis(10));
    let asked = async {
        let read = |row: &AuditRow| row.action == "audit.read";
        while world.audit().await.into_iter().filter(read).count() < few.users {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, asked).await.expect("they all wait");
    let row = Row {
        hop: "hub",
        code: 503,
        reason: "Connections",
        what: "the hub has as many connections of users as it takes",
        next: "repeat it; if it stays, end watches and sessions that are not needed, or add a replica of the hub",
        after: Some(1),
    };
    told(world.send(get("/api/v1/pods")).await, row).await;
    let mut silent = Vec::new();
    for _ in 0..few.strangers * 8 {
        silent.push(TcpStream::connect(world.https).await.unwrap());
    }
    let before = world.hub.tunnels.get(&super::super::world::name()).unwrap();
    world.door.send_modify(|door| door.cuts += 1);
    timeout(PATIENCE, before.closed()).await.unwrap();
    world.has_line(true).await;
    told(world.send(get("/api/v1/pods")).await, row).await;
    // One user's place is free again.
    users.pop();
    let again = async {
        while world.send(get("/api/v1/pods")).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("there is room again");
    drop((users, silent));
    left_with(&world, 1).await;
}

/// L46: what they ask for has no end, and no user waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_who_ask_for_something_keep_no_user_out() {
    let server = ApiServer::start().await;
    let few = Connections {
        first: PATIENCE,
        ..FEW
    };
    let world = world(few, &server).await;
    let head = |query: &str| {
        format!(
            "GET /clusters/eu1/api/v1/pods{query} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
            world.token
        )
    };
    let asks = async |query: &str| {
        let mut tls = world.connect(&[]).await;
        tls.write_all(head(query).as_bytes()).await.unwrap();
        let mut code = [0; 12];
        let answered = timeout(PATIENCE, tls.read_exact(&mut code)).await;
        answered.expect("an answer").unwrap();
        assert_eq!(&code, b"HTTP/1.1 200");
        tls
    };
    let mut watch = asks("?watch=1").await;
    // What is not signed is refused before its body is asked for.
    let half = "POST /v1/join HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\
        Linesman-Signature: v1;key=k;t=1;sig=AAAA\r\n\r\n{";
    let mut strangers = Vec::new();
    for _ in 0..few.strangers * 4 {
        let mut tls = world.connect(&[]).await;
        tls.write_all(half.as_bytes()).await.unwrap();
        strangers.push(tls);
    }
    for _ in 0..few.users * 8 {
        drop(asks("").await);
    }
    // Who was there longest made room, in the midst of what it asked for.
    let mut said = Vec::new();
    let ended = timeout(PATIENCE, strangers[0].read_to_end(&mut said)).await;
    drop(ended.expect("it was ended"));
    assert_eq!(said, b"");
    server.event("event\n");
    let event = async {
        let mut said = String::new();
        let mut part = [0; 512];
        while !said.contains("event\n") {
            let read = watch.read(&mut part).await.unwrap();
            assert!(read > 0, "{said}");
            said.push_str(std::str::from_utf8(&part[..read]).unwrap());
        }
    };
    timeout(PATIENCE, event).await.expect("the watch goes on");
    drop((watch, strangers));
    left_with(&world, 1).await;
}

/// L40: what nothing runs on makes room for what is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_of_users_make_room_for_others() {
    let server = ApiServer::start().await;
    let patient = Connections {
        idle: Duration::from_mins(5),
        ..FEW
    };
    let world = world(patient, &server).await;
    let head = format!(
        "GET /clusters/eu1/api/v1/pods HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
        world.token
    );
    let mut kept = Vec::new();
    for _ in 0..patient.users * 5 {
        let mut tls = world.connect(&[]).await;
        tls.write_all(head.as_bytes()).await.unwrap();
        let mut code = [0; 12];
        tls.read_exact(&mut code).await.unwrap();
        assert_eq!(&code, b"HTTP/1.1 200");
        kept.push(tls);
    }
    // Those that came last are left, and the line.
    let most = i64::try_from(patient.users).unwrap() + 1;
    left_with(&world, most).await;
    drop(kept);
}
