//! The users: one asks each cluster for an object, one request after the other, and some hold watches. What is refused is asked
//! again a moment later, and so is a watch that ended, from the event after its last one, as `client-go` does it.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use linesman::clock;
use reqwest::{Client, Response};
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::io::StreamReader;

use super::CLUSTERS;
use crate::end::{self, Opener};
use crate::load::{self, Duplex, Figures};
use crate::storm;

/// Of each cluster.
const WATCHES: usize = 10;
/// Between an answer and the next request.
const PACE: Duration = Duration::from_millis(200);
/// Between what did not go well and the next attempt.
const AGAIN: Duration = Duration::from_millis(50);

/// What the suite said, and when.
#[derive(Debug, Clone, Copy, Default)]
struct Phase {
    fault: Option<OffsetDateTime>,
    /// Nothing stands in the way any more.
    over: Option<OffsetDateTime>,
}

/// Prints `SERVED` once everybody has had something, takes `FAULT` and `OVER`, and prints the result when everybody has had
/// something that is from after that.
pub(super) async fn run(data: &Path) {
    let hub = storm::reference(data);
    let token = std::fs::read_to_string(data.with_extension("token")).unwrap();
    let (suite, told) = Suite::new(CLUSTERS * (1 + WATCHES));
    let (mut asking, mut watching) = (JoinSet::new(), JoinSet::new());
    for n in 0..CLUSTERS {
        let user = User {
            client: storm::client(&hub).build().unwrap(),
            pods: format!("{}/clusters/{}/api/v1/pods", hub.urls[0], storm::name(n)),
            token: token.clone(),
        };
        for _ in 0..WATCHES {
            watching.spawn(watched(user.clone(), told.clone()));
        }
        asking.spawn(asked(Ask::Object(user), told.clone()));
    }
    suite.until_over().await;
    let figures = figures(&asking.join_all().await, &watching.join_all().await);
    println!("RESULT {}", serde_json::to_string(&figures).unwrap());
}

/// The same of one who has an echo on a TLS connection to the agents' side, with nothing else between: what TCP makes of a loss.
pub(super) async fn beside(target: &str, directory: &Path) {
    let opener = Opener::Tls {
        connector: end::connector(directory),
        address: target.to_owned(),
    };
    let mut stream = opener.open().await.unwrap();
    stream.write_all(b"e").await.unwrap();
    let (suite, told) = Suite::new(1);
    let mut asking = JoinSet::new();
    asking.spawn(asked(Ask::Echo(stream), told));
    suite.until_over().await;
    let figures = figures(&asking.join_all().await, &[]);
    println!("RESULT {}", serde_json::to_string(&figures).unwrap());
}

/// The one who makes the fault.
struct Suite {
    said: watch::Sender<Phase>,
    served: mpsc::Receiver<()>,
    /// How many have to be served.
    count: usize,
}

/// What everybody knows of it.
#[derive(Clone)]
struct Told {
    phase: watch::Receiver<Phase>,
    /// Told once, at the first answer or event.
    served: mpsc::Sender<()>,
}

impl Suite {
    fn new(count: usize) -> (Self, Told) {
        let (said, phase) = watch::channel(Phase::default());
        let (first, served) = mpsc::channel(count);
        let told = Told {
            phase,
            served: first,
        };
        let suite = Self {
            said,
            served,
            count,
        };
        (suite, told)
    }

    async fn until_over(mut self) {
        for _ in 0..self.count {
            self.served.recv().await.unwrap();
        }
        println!("SERVED");
        let mut phase = self.said.subscribe();
        std::thread::spawn(move || {
            for word in io::stdin().lines().map_while(Result::ok) {
                self.said.send_modify(|phase| match word.as_str() {
                    "FAULT" => phase.fault = Some(clock::now()),
                    _ => phase.over = Some(clock::now()),
                });
            }
        });
        let over = phase.wait_for(|phase| phase.over.is_some());
        drop(over.await.expect("the suite lives"));
    }
}

fn figures(asked: &[Asked], watched: &[Watched]) -> Figures {
    let mut worst: Vec<f64> = asked.iter().map(|asked| millis(asked.worst)).collect();
    worst.sort_by(f64::total_cmp);
    let back = asked.iter().map(|asked| asked.back.as_secs_f64());
    let refused = asked.iter().filter(|asked| asked.refused);
    let mut figures = Figures::from([
        ("worst request ms".into(), worst[worst.len() - 1]),
        (
            "worst request ms, median of clusters".into(),
            worst[worst.len() / 2],
        ),
        (
            "s until all answer, from its end".into(),
            back.fold(0.0, f64::max),
        ),
        (
            "% of clusters that refused".into(),
            percent(refused.count(), asked.len()),
        ),
    ]);
    if let Some(late) = watched.iter().map(|watched| watched.late).max() {
        let uncut = watched.iter().filter(|watched| !watched.cut).count();
        let whole = watched.iter().filter(|watched| !watched.missed).count();
        figures.extend([
            ("% of watches uncut".into(), percent(uncut, watched.len())),
            ("% of watches whole".into(), percent(whole, watched.len())),
            ("worst event ms late".into(), millis(late)),
        ]);
    }
    figures
}

fn percent(some: usize, all: usize) -> f64 {
    some as f64 / all as f64 * 100.0
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// None where it is the other way round: clocks are read by several threads.
fn between(from: OffsetDateTime, to: OffsetDateTime) -> Duration {
    (to - from).try_into().unwrap_or_default()
}

#[derive(Clone)]
struct User {
    client: Client,
    /// The URL of a cluster's Pods.
    pods: String,
    token: String,
}

impl User {
    async fn get(&self, what: &str) -> Option<Response> {
        let url = format!("{}{what}", self.pods);
        let request = self.client.get(url).bearer_auth(&self.token);
        let answer = request.send().await.ok()?;
        answer.status().is_success().then_some(answer)
    }
}

/// What is asked for.
enum Ask {
    Object(User),
    Echo(Duplex),
}

impl Ask {
    async fn is_answered(&mut self) -> bool {
        match self {
            Self::Object(user) => match user.get("/one").await {
                Some(answer) => answer.bytes().await.is_ok(),
                None => false,
            },
            Self::Echo(stream) => load::round(stream).await.is_ok(),
        }
    }
}

/// What who asked a cluster met since the fault.
#[derive(Default)]
struct Asked {
    /// From the first attempt to the answer.
    worst: Duration,
    refused: bool,
    /// From the end of the fault to the first answer.
    back: Duration,
}

/// Asks until a request that began after the fault is answered.
async fn asked(mut ask: Ask, told: Told) -> Asked {
    let (mut asked, mut served, mut back) = (Asked::default(), false, None);
    loop {
        let (began, mut refused) = (clock::now(), false);
        while !ask.is_answered().await {
            refused = true;
            sleep(AGAIN).await;
        }
        let ended = clock::now();
        if !std::mem::replace(&mut served, true) {
            told.served.send(()).await.unwrap();
        }
        let phase = *told.phase.borrow();
        if phase.fault.is_some_and(|fault| ended >= fault) {
            asked.worst = asked.worst.max(between(began, ended));
            asked.refused |= refused;
        }
        if let Some(over) = phase.over.filter(|over| ended >= *over) {
            asked.back = *back.get_or_insert_with(|| between(over, ended));
            if began >= over {
                return asked;
            }
        }
        sleep(PACE).await;
    }
}

/// What became of a watch since the fault.
#[derive(Default)]
struct Watched {
    /// It ended.
    cut: bool,
    /// An event did not come at all, or twice.
    missed: bool,
    /// The most that one came after it was made.
    late: Duration,
}

/// Watches until there is an event that was made after the fault.
async fn watched(user: User, told: Told) -> Watched {
    let (mut watched, mut last) = (Watched::default(), None::<u32>);
    loop {
        let from = last.map_or_else(String::new, |last| format!("&resourceVersion={last}"));
        if let Some(answer) = user.get(&format!("?watch=1{from}")).await {
            let body = answer.bytes_stream().map_err(io::Error::other);
            let mut events = BufReader::new(StreamReader::new(body)).lines();
            while let Ok(Some(event)) = events.next_line().await {
                let (number, made) = event.split_once(' ').unwrap();
                let (number, made): (u32, i128) = (number.parse().unwrap(), made.parse().unwrap());
                let (made, now) = (clock::from_nanoseconds(made).unwrap(), clock::now());
                match last.replace(number) {
                    None => told.served.send(()).await.unwrap(),
                    Some(last) => watched.missed |= number != last + 1,
                }
                let phase = *told.phase.borrow();
                if phase.fault.is_some_and(|fault| now >= fault) {
                    watched.late = watched.late.max(between(made, now));
                }
                if phase.over.is_some_and(|over| made >= over) {
                    return watched;
                }
            }
        }
        watched.cut |= told.phase.borrow().fault.is_some();
        sleep(AGAIN).await;
    }
}
