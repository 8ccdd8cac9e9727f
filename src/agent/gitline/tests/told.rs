//! What condition `GitOverLine` says of the engine's connections, from what the hub's end of a stream ends with (L51).

use std::io::ErrorKind;

use time::OffsetDateTime;
use tokio::io::{AsyncWriteExt as _, duplex};

use super::*;
use crate::agent::News;
use crate::clock::Steady;
use crate::tunnel::driver::{self, Identity, Socket};
use crate::tunnel::session::{Config, Role};
use crate::tunnel::{Incoming, Line};

const PATIENCE: Duration = Duration::from_secs(10);

/// An engine with its agent; what the hub gets of both.
struct World {
    port: u16,
    carried: watch::Sender<Carried>,
    streams: mpsc::Receiver<Incoming>,
    news: mpsc::Receiver<News>,
    _tasks: JoinSet<()>,
}

/// The agent's end of a line, and the streams that come to the hub's.
fn line(tasks: &mut JoinSet<()>) -> (Line, mpsc::Receiver<Incoming>) {
    let (hub, agent) = duplex(64 << 10);
    let mut end = |io, role, streams| {
        let identity = Identity {
            epoch: 1,
            session: String::new(),
            remote: String::new(),
            instance: String::new(),
            since: OffsetDateTime::UNIX_EPOCH,
            hub_clock: Steady::new(0, std::time::Instant::now()),
            cap: None,
        };
        let socket = Socket::new(io, role, Bytes::new());
        let stop = CancellationToken::new();
        let (line, run) = driver::line(socket, Config::new(role), identity, streams, stop);
        tasks.spawn(async move { drop(run.await) });
        line
    };
    let (arriving, arrived) = mpsc::channel(8);
    end(hub, Role::Hub, arriving);
    (end(agent, Role::Agent, mpsc::channel(1).0), arrived)
}

impl World {
    async fn new() -> Self {
        let mut tasks = JoinSet::new();
        let (line, streams) = line(&mut tasks);
        let keyset = Vec::new();
        let up = watch::channel(LinkState::Up { line, keyset }).1;
        let (sender, news) = mpsc::channel(8);
        let mut context = relay(client(&Shared::default())).context;
        context.news = sender;
        let carried = watch::Sender::new(Carried::Nothing);
        tasks.spawn(tell(context, carried.subscribe()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tasks.spawn(serve(
            listener,
            up,
            carried.clone(),
            CancellationToken::new(),
        ));
        Self {
            port,
            carried,
            streams,
            news,
            _tasks: tasks,
        }
    }

    /// A connection of the engine's, and what the hub has of it.
    async fn connect(&mut self) -> (TcpStream, Stream) {
        let engine = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let arrived = timeout(PATIENCE, self.streams.recv()).await;
        let arrived = arrived.expect("a stream opens").unwrap();
        assert_eq!((arrived.kind, &arrived.meta[..]), (Kind::Git, &b"{}"[..]));
        (engine, arrived.stream)
    }

    /// The hub ends the next connection like this, which the engine sees as a reset.
    async fn refused(&mut self, code: Code, text: &str) {
        let (mut engine, stream) = self.connect().await;
        stream.reset(code, text);
        let read = timeout(PATIENCE, engine.read(&mut [0; 1])).await.unwrap();
        let kind = read.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::ConnectionReset, "{code:?}");
    }

    /// Status, reason and message of the next condition that is told.
    async fn told(&mut self) -> (Status, String, String) {
        let told = timeout(PATIENCE, self.news.recv()).await;
        let News::Condition(told) = told.expect("it is told").unwrap() else {
            panic!("something else is told");
        };
        assert_eq!(told.kind, ConditionType::GitOverLine);
        (told.status, told.reason, told.message)
    }
}

/// L51: each of the codes that the protocol has for the hub's dial, with the text that comes with it.
#[tokio::test]
async fn each_code_of_the_hubs_dial_is_told() {
    let mut world = World::new().await;
    for (code, reason, text, message) in [
        (
            Code::DialRefused,
            "DialRefused",
            "the hub dials git.example:22: Connection refused",
            "connection refused: the hub dials git.example:22: Connection refused",
        ),
        (
            Code::DialTimeout,
            "DialTimeout",
            "the hub dials git.example:22: no answer in 10 s",
            "connection timed out: the hub dials git.example:22: no answer in 10 s",
        ),
        (
            Code::Dns,
            "Dns",
            "the hub dials git.example:22: no address",
            "name not found: the hub dials git.example:22: no address",
        ),
        (
            Code::Unreachable,
            "Unreachable",
            "the hub dials git.example:22: No route to host",
            "unreachable: the hub dials git.example:22: No route to host",
        ),
        (Code::Tls, "Tls", "", "TLS failed"),
        (
            Code::DeniedTarget,
            "DeniedTarget",
            "this cluster takes Git directly; see: linesman cluster git",
            "target not allowed: this cluster takes Git directly; see: linesman cluster git",
        ),
    ] {
        world.refused(code, text).await;
        let told = (Status::False, reason.to_owned(), message.to_owned());
        assert_eq!(world.told().await, told, "{code:?}");
    }
}

/// What ends for another reason says nothing of the hub's way to the Git host.
#[tokio::test]
async fn the_condition_follows_the_hubs_way_and_nothing_else() {
    let mut world = World::new().await;
    let gone = (Code::Unreachable, "No route to host");
    world.refused(gone.0, gone.1).await;
    assert_eq!(world.told().await.1, "Unreachable");
    world.refused(gone.0, gone.1).await;
    for code in [
        Code::Cancelled,
        Code::Limit,
        Code::OverBudget,
        Code::Internal,
        Code::Revoked,
        Code::Unavailable,
        Code::Other(900),
    ] {
        world.refused(code, "").await;
    }
    // The next word is that of a connection that ended well.
    let (mut engine, mut stream) = world.connect().await;
    engine.shutdown().await.unwrap();
    stream.shutdown().await.unwrap();
    let well = (Status::True, "Carried".to_owned(), String::new());
    assert_eq!(world.told().await, well);
    // As where the assignment leads the engine to the Git host itself again.
    world.carried.send_replace(Carried::Nothing);
    let direct = (Status::Unknown, "Direct".to_owned(), String::new());
    assert_eq!(world.told().await, direct);
}
