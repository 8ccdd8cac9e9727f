//! What the way through the hub adds to a log that is followed, without kubectl's own start.

use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use kube::client::Body;
use kube::{Api, Client};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::super::{NAMESPACE, POD, ready};
use super::{ROUNDS, Ways, compared, get, percentile_of, spread};
use crate::support::figure;
use crate::support::world;

const FIRSTS: usize = 100;
const LINES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(30);

/// A log that is followed from its last line on.
struct Followed {
    body: Body,
    said: String,
}

impl Followed {
    async fn by(client: &Client) -> Self {
        let log = format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}/log?follow=1&tailLines=1");
        let request = Request::get(log).body(Body::empty()).unwrap();
        let answer = client.send(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        Self {
            body: answer.into_body(),
            said: String::new(),
        }
    }

    /// When this line had come.
    async fn line(&mut self, wanted: &str) -> Instant {
        let wanted = format!("got {wanted}\n");
        while !self.said.ends_with(&wanted) {
            let frame = timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.expect("the line comes").expect("it goes on");
            let data = frame.unwrap().into_data().unwrap();
            self.said.push_str(std::str::from_utf8(&data).unwrap());
        }
        self.said.clear();
        Instant::now()
    }
}

async fn say(input: &mut (impl AsyncWrite + Unpin), text: &str) {
    let text = format!("{text}\n");
    input.write_all(text.as_bytes()).await.unwrap();
    input.flush().await.unwrap();
}

/// L2: how much later than without the hub the first line of a log comes that is followed, and each line after it. Of the first one,
/// both ways have a connection.
#[test]
#[ignore = "a benchmark: make bench"]
fn a_log_through_the_hub() {
    let world = world::adopted();
    ready(&world);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ways = Ways::of(&world).await;
        let pods: Api<Pod> = Api::namespaced(ways.direct.clone(), NAMESPACE);
        let input = AttachParams::default()
            .stdin(true)
            .stdout(false)
            .stderr(false);
        let mut session = pods.attach(POD, &input).await.unwrap();
        let mut input = session.stdin().unwrap();
        say(&mut input, "first").await;
        let row = ("L2", "logs -f → its first line", "added ≤ 1 round trip");
        let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}");
        compared(&ways, row, async |client| {
            let mut times = Vec::new();
            for _ in 0..FIRSTS {
                get(client, &pod).await;
                let began = Instant::now();
                let at = Followed::by(client).await.line("first").await;
                times.push(at - began);
            }
            times
        })
        .await;
        let mut direct = Followed::by(&ways.direct).await;
        let mut through = Followed::by(&ways.hub).await;
        tokio::join!(direct.line("first"), through.line("first"));
        let mut rounds: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            let mut later = Vec::new();
            for n in 0..LINES {
                let text = format!("line {n}");
                say(&mut input, &text).await;
                let (direct, through) = tokio::join!(direct.line(&text), through.line(&text));
                let behind = through.saturating_duration_since(direct).as_secs_f64();
                let ahead = direct.saturating_duration_since(through).as_secs_f64();
                later.push((behind - ahead) * 1e3);
            }
            for (round, part) in rounds.iter_mut().zip([50, 99]) {
                round.push(percentile_of(&later, part));
            }
        }
        for (round, part) in rounds.into_iter().zip([50, 99]) {
            let what = format!("a line of logs -f later than without the hub, p{part}");
            figure("L2", &what, "≤ 5 ms", spread(round, 2, " ms"));
        }
    });
}
