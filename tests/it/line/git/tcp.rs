//! L44, L51: bare connections: where they reach, how many there may be, and how they end.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use linesman::agent::gitline::{self, Carried};
use linesman::tunnel::{Line, Stream, carry};
use linesman::wire::api::GitRoute;
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::code;
use super::super::world::{PATIENCE, World};
use super::{Relay, up};

async fn git_stream(line: &Line, meta: &'static str) -> Stream {
    let meta = Bytes::from_static(meta.as_bytes());
    line.open(Kind::Git, Class::Normal, meta).await.unwrap()
}

/// The error that the stream ends with.
async fn ends_with(mut stream: Stream) -> (Option<Code>, String) {
    let mut byte = [0; 1];
    let read = timeout(PATIENCE, stream.read(&mut byte)).await.unwrap();
    let error = read.expect_err("the stream is refused");
    (code(&error), error.to_string())
}

/// L44: an agent names no target. Whatever it says, the stream reaches the recorded host or nothing.
#[tokio::test]
async fn a_git_stream_reaches_the_recorded_host_and_nothing_else() {
    let world = World::new().await;
    let (_agent, line) = up(&world).await;
    let good = "{}";
    world.route(GitRoute::Direct).await;
    let (found, words) = ends_with(git_stream(&line, good).await).await;
    assert_eq!(
        found,
        Some(Code::DeniedTarget),
        "a cluster that takes Git directly"
    );
    assert!(words.contains("linesman cluster git"), "{words}");
    world.route(GitRoute::Line).await;
    for meta in [
        r#"{"host":"169.254.169.254","port":80}"#,
        r#"{"address":"127.0.0.1:8443"}"#,
        r#"{"host":"kubernetes.default.svc"}"#,
        r#"{"host":"127.0.0.1","port":10250}"#,
        "[]",
        "null",
        "",
        "\0",
    ] {
        let (found, _) = ends_with(git_stream(&line, meta).await).await;
        assert_eq!(found, Some(Code::DeniedTarget), "{meta}");
    }
    let mut greeting = [0; 8];
    let mut stream = git_stream(&line, good).await;
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"SSH-2.0-");
    world.route(GitRoute::Direct).await;
    let (found, _) = ends_with(git_stream(&line, good).await).await;
    assert_eq!(found, Some(Code::DeniedTarget));
    world.end().await;
}

/// A host that takes connections and says nothing.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn the_sixty_fifth_stream_of_a_line_is_refused() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (_agent, line) = up(&world).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let stream = git_stream(&line, "{}").await;
        let (socket, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
        held.push((stream, socket));
    }
    let (found, words) = ends_with(git_stream(&line, "{}").await).await;
    assert_eq!(found, Some(Code::Limit), "{words}");
    // A place is free as soon as one of them is over.
    drop(held.pop());
    let again = async {
        loop {
            let stream = git_stream(&line, "{}").await;
            let cancelled = stream.cancelled();
            tokio::select! {
                accepted = host.accept() => break (stream, accepted.unwrap().0),
                () = cancelled.cancelled() => {}
            }
        }
    };
    held.push(timeout(PATIENCE, again).await.expect("a place is free"));
    world.end().await;
}

#[tokio::test]
async fn the_engine_gets_sixty_four_connections_and_then_a_reset() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let socket = relay.connect().await;
        let accepted = timeout(PATIENCE, host.accept()).await;
        held.push((socket, accepted.unwrap().unwrap()));
    }
    let mut refused = relay.connect().await;
    let read = timeout(PATIENCE, refused.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}

/// L51: the code of the hub's dial is what the cluster shows, and the engine sees a reset, not an end.
#[tokio::test]
async fn a_failed_dial_resets_the_connection_and_is_shown_with_its_code() {
    let (host, address) = silent().await;
    drop(host);
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let mut relay = Relay::of(&agent).await;
    let mut socket = relay.connect().await;
    let mut byte = [0; 1];
    let read = timeout(PATIENCE, socket.read(&mut byte)).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let Carried::Badly(error) = relay.carried().await else {
        panic!("the dial failed");
    };
    assert_eq!(error.code, Code::DialRefused);
    assert!(error.text.contains(&address.to_string()), "{error}");
    let (carried, _) = watch::channel(Carried::Nothing);
    let heard = gitline::heard(agent.state.clone(), &carried, PATIENCE).await;
    assert_eq!(heard.err().map(|e| e.code), Some(Code::DialRefused));
    world.end().await;
}

#[tokio::test]
async fn half_close_passes_in_both_directions() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut engine = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    engine.write_all(b"question").await.unwrap();
    engine.shutdown().await.unwrap();
    let mut question = String::new();
    let read = server.read_to_string(&mut question);
    timeout(PATIENCE, read)
        .await
        .expect("the end arrives")
        .unwrap();
    assert_eq!(question, "question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    let read = engine.read_to_string(&mut answer);
    timeout(PATIENCE, read)
        .await
        .expect("the end arrives")
        .unwrap();
    assert_eq!(answer, "answer");
    // And a reset is a reset.
    let mut engine = relay.connect().await;
    let (server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    carry::reset(&server);
    drop(server);
    let read = timeout(PATIENCE, engine.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}

/// L51: a line that breaks in the middle of a clone must not look like its end; the next try waits for the next line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_breaks_resets_what_it_carried_and_a_retry_goes_over_the_next() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let mut engine = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let mut pack = JoinSet::new();
    pack.spawn(async move {
        let block = vec![7; 64 << 10];
        while server.write_all(&block).await.is_ok() {}
    });
    let mut part = vec![0; 1 << 20];
    timeout(PATIENCE, engine.read_exact(&mut part))
        .await
        .unwrap()
        .unwrap();
    world.cut.send_modify(|cuts| *cuts += 1);
    let rest = async {
        loop {
            match engine.read(&mut part).await {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        }
    };
    let end = timeout(PATIENCE, rest).await.expect("the cut is noticed");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let done = timeout(PATIENCE, pack.join_next()).await;
    done.expect("the Git host hears of it, too");
    // Straight away, while the line is still away.
    let mut again = relay.connect().await;
    let (mut server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    server.write_all(b"hello").await.unwrap();
    let mut hello = [0; 5];
    timeout(PATIENCE, again.read_exact(&mut hello))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&hello, b"hello");
    world.end().await;
}

#[tokio::test]
async fn a_silent_connection_is_over_after_its_time() {
    let (host, address) = silent().await;
    let world = World::dialling(address).await;
    world.route(GitRoute::Line).await;
    let (_agent, line) = up(&world).await;
    let stream = git_stream(&line, "{}").await;
    let (_server, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let (listener, address) = silent().await;
    let mut engine = TcpStream::connect(address).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let idle = Duration::from_millis(50);
    let carried = timeout(PATIENCE, carry::carry(stream, socket, idle))
        .await
        .unwrap();
    assert_eq!(carried.unwrap_err().kind(), ErrorKind::TimedOut);
    let read = timeout(PATIENCE, engine.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.end().await;
}
