//! L11: memory, or places for streams, that somebody has used up: whoever comes next is told which end has too little, and to
//! come again.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as Answer;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::hub::Bounds;
use linesman::tunnel::credit::INITIAL_WINDOW;
use linesman::tunnel::{Incoming, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::apiserver::ApiServer;
use super::super::told::{Row, told};
use super::super::world::{PATIENCE, World, get, name, post};
use super::line::{upgraded, welcomed};
use super::{left_with, served};

/// Of one connection, and how many of them are asked for at once.
const STREAMS: usize = 192;
const AT_ONCE: usize = 32;
/// What sockets keep of an endless answer is much more than a window.
const READERS: usize = 4;
/// More than one user may have running at once.
const MOST: usize = 1_024;

/// Connections on which nothing is read of an answer but its head.
struct Users<'a> {
    world: &'a World,
    connections: JoinSet<()>,
    asked: usize,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl<'a> Users<'a> {
    fn new(world: &'a World) -> Self {
        Self {
            world,
            connections: JoinSet::new(),
            asked: 0,
            sender: None,
        }
    }

    async fn sender(&mut self) -> SendRequest<Full<Bytes>> {
        if self.asked.is_multiple_of(STREAMS) {
            let tls = TokioIo::new(self.world.connect(&[b"h2"]).await);
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(1);
            let (sender, connection) = builder.handshake(tls).await.unwrap();
            self.connections
                .spawn(async move { drop(connection.await) });
            self.sender = Some(sender);
        }
        self.asked += 1;
        self.sender.clone().unwrap()
    }

    /// The request so often at once.
    async fn ask(
        &mut self,
        request: &Request<Bytes>,
        times: usize,
    ) -> JoinSet<hyper::Result<Response<Answer>>> {
        let mut asks = JoinSet::new();
        for _ in 0..times {
            let mut sender = self.sender().await;
            let (mut parts, body) = request.clone().into_parts();
            parts.uri = format!("https://localhost{}", parts.uri).parse().unwrap();
            let bearer = format!("Bearer {}", self.world.token).parse().unwrap();
            parts.headers.insert("authorization", bearer);
            let request = Request::from_parts(parts, Full::new(body));
            asks.spawn(async move { sender.send_request(request).await });
        }
        asks
    }
}

/// What the agent does with each stream; gives how many there were.
fn serve<F: Future<Output = ()> + Send + 'static>(
    mut streams: mpsc::Receiver<Incoming>,
    serves: fn(Stream) -> F,
) -> (JoinSet<()>, watch::Receiver<usize>) {
    let (count, arrived) = watch::channel(0);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut open = JoinSet::new();
        while let Some(next) = streams.recv().await {
            // First: whoever has its answer has been counted.
            count.send_modify(|count| *count += 1);
            open.spawn(serves(next.stream));
        }
    });
    (serving, arrived)
}

/// Answers at length, and leaves the stream open.
async fn talks(mut stream: Stream) {
    let mut request = [0; 4096];
    drop(stream.read(&mut request).await);
    let head = &b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"[..];
    drop(
        stream
            .write_all(&[head, &vec![b'x'; 128 << 10]].concat())
            .await,
    );
    std::future::pending::<()>().await;
}

/// A window of each unread answer has arrived, or the hub has made room. Heads overtake what else is on the line, so on a busy
/// machine all may be there before the memory is full.
async fn arrived_unread(world: &World, answers: usize) {
    let line = world.hub.tunnels.get(&name()).unwrap();
    let windows = u64::try_from(answers * (INITIAL_WINDOW as usize)).unwrap();
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    let there = async {
        while line.facts().received < windows && line.facts().live >= answers {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, there).await.expect("a window of each");
}

/// Takes nothing in.
async fn sleeps(stream: Stream) {
    let _kept = stream;
    std::future::pending::<()>().await;
}

/// Nothing of what comes then is sent, so a change may be repeated as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_full_of_answers_that_nobody_reads_says_so_and_sends_nothing() {
    // However long a busy machine takes to fill it, none of them makes room for the next.
    let mut world = World::bounded(Bounds {
        unread_long: Duration::from_hours(1),
        ..Bounds::default()
    })
    .await;
    let (_stop, streams, _state) = world.dial().await;
    let (_agent, arrived) = serve(streams, talks);
    let row = Row {
        hop: "hub",
        code: 429,
        reason: "OverBudget",
        what: "answers that nobody reads take the memory that the hub has for them: 32 MiB of the cluster's line, or a \
               quarter of the hub's memory limit",
        next: "end what nobody reads; if it stays, raise the hub's memory limit",
        after: Some(1),
    };
    let (mut users, mut unread) = (Users::new(&world), Vec::new());
    let refused = loop {
        assert!(users.asked < MOST, "the hub takes all in");
        let asked = users.ask(&get("/api/v1/pods?watch=1"), AT_ONCE).await;
        let answers = timeout(PATIENCE, asked.join_all()).await.unwrap();
        let answers = answers.into_iter().map(Result::unwrap);
        let (good, bad): (Vec<_>, Vec<_>) = answers.partition(|answer| answer.status() == 200);
        unread.extend(good);
        if !bad.is_empty() {
            break bad;
        }
        arrived_unread(&world, unread.len()).await;
    };
    let sent = *arrived.borrow();
    for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        told(world.send(request).await, row).await;
    }
    assert_eq!(*arrived.borrow(), sent, "it was sent");
    drop(refused);
    // Once they have gone there is room again.
    drop((unread, users));
    let again = async {
        while world.send(get("/api/v1/pods")).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("there is room again");
}

/// What was sent may have been executed in part, unless there was nothing to execute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_full_of_input_that_nobody_takes_in_is_told_by_its_name() {
    let mut world = World::new().await;
    let (_stop, streams, _state) = world.dial().await;
    let (_agent, mut arrived) = serve(streams, sleeps);
    let row = Row {
        hop: "agent",
        code: 429,
        reason: "OverBudget",
        what: "input that is not taken in takes the memory that the agent has for it: 24 MiB of the line, or a quarter of \
               the agent's memory limit",
        next: "repeat it; if it stays, raise the memory limit of deployment linesman-agent",
        after: Some(1),
    };
    let change = Row {
        next: "look whether it took effect before repeating it",
        after: None,
        ..row
    };
    let upload = post("/api/v1/namespaces/a/echo", vec![b'x'; 60 << 10]);
    let (mut users, mut uploads) = (Users::new(&world), JoinSet::new());
    // Most wait for an answer; one that has none is the first that was given up.
    let first = loop {
        assert!(users.asked < MOST, "the agent takes all in");
        let mut asked = users.ask(&upload, AT_ONCE).await;
        uploads.spawn(async move { asked.join_next().await.unwrap().unwrap().unwrap() });
        // The agent takes so many in at once only where it is waited for.
        let taken = arrived.wait_for(|arrived| *arrived >= users.asked);
        let next = async {
            tokio::select! {
                answer = uploads.join_next() => Some(answer.unwrap().unwrap()),
                taken = taken => {
                    drop(taken);
                    None
                }
            }
        };
        let next = timeout(PATIENCE, next).await;
        if let Some(answer) = next.expect("they are taken in or one is refused") {
            break answer;
        }
    };
    told(first, change).await;
    told(world.send(get("/api/v1/pods")).await, row).await;
}

/// L40: over HTTP/2, too, an answer that is not taken costs a window; the others of its connection go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_byte_over_http2_cost_a_window_each() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut users = Users::new(&world);
    let asked = users.ask(&get("/api/v1/endless"), READERS).await;
    let answers = timeout(PATIENCE, asked.join_all()).await.unwrap();
    let mut bodies: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.unwrap().into_body())
        .collect();
    server.settled(async || served(&world).await).await;
    // Each byte that one takes is one byte more of its window.
    for body in &mut bodies {
        let byte = timeout(PATIENCE, body.frame()).await.unwrap();
        assert_eq!(byte.unwrap().unwrap().into_data().unwrap(), "x");
    }
    let line = world.hub.tunnels.get(&name()).unwrap();
    let (facts, most) = (line.facts(), u64::try_from(READERS << 20).unwrap());
    assert_eq!(facts.live, READERS);
    assert!(
        facts.received < most,
        "{} came over the line",
        facts.received
    );
    drop((bodies, users));
    left_with(&world, 1).await;
    server.no_watches().await;
    served(&world).await;
}

/// This agent takes in 64 at once, by the same code as any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_has_no_place_for_a_stream_is_told_by_its_name() {
    let mut world = World::new().await;
    let (_stop, streams, _state) = world.dial().await;
    let row = Row {
        hop: "agent",
        code: 429,
        reason: "Busy",
        what: "the agent serves as many requests as it can",
        next: "end watches and sessions that are not needed",
        after: Some(1),
    };
    let mut users = Users::new(&world);
    let mut waiting = Vec::new();
    for _ in 0..64 / AT_ONCE {
        waiting.push(users.ask(&get("/api/v1/pods?watch=1"), AT_ONCE).await);
    }
    let line = world.hub.tunnels.get(&name()).unwrap();
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    let full = async {
        while line.facts().live < 64 {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, full)
        .await
        .expect("they are on their way");
    for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        told(world.send(request).await, row).await;
    }
    drop((waiting, streams));
}

/// Nothing is sent to an agent that says that it takes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_with_as_many_streams_as_the_agent_takes_takes_no_more() {
    let world = World::new().await;
    let mut tls = world.connect(&[]).await;
    upgraded(&mut tls).await;
    welcomed(&world, &mut tls, Some(2)).await;
    world.has_line(true).await;
    let mut users = Users::new(&world);
    let _waiting = users.ask(&get("/api/v1/pods?watch=1"), AT_ONCE).await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    let full = async {
        while line.facts().live < 2 {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, full)
        .await
        .expect("they are on their way");
    let row = Row {
        hop: "hub",
        code: 429,
        reason: "TooManyRequests",
        what: "the cluster's line takes no more requests: limit reached: 2 streams are open on the line",
        next: "end watches and sessions that are not needed",
        after: Some(1),
    };
    for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        told(world.send(request).await, row).await;
    }
    assert_eq!(line.facts().opened, 2);
}
