//! What the way through the hub costs, beside the same request straight to the API server. For `make bench` only:
//! `make test` leaves these out, there is nothing in them that can be wrong.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::AttachParams;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::{NAMESPACE, POD, ready};
use crate::figures::{hub_pid, processor};
use crate::line::agent_pid;
use crate::support::figure;
use crate::support::world::{self, World};

mod logs;
mod peer;

const GETS: usize = 500;
const SESSIONS: usize = 40;
const ROUNDS: usize = 5;
const WATCHES: usize = 200;
const LOGS: usize = 20;
const PODS: usize = 5_000;
/// For how long as many requests as possible are made in a round.
const BUSY: Duration = Duration::from_secs(3);

/// The same client straight to the API server and through the hub.
pub(super) struct Ways {
    direct: Client,
    pub(super) hub: Client,
}

impl Ways {
    pub(super) async fn of(world: &World) -> Self {
        let direct = Kubeconfig::read_from(&world.place.kubeconfig).unwrap();
        let ca = STANDARD.encode(fs::read(world.hub.ca()).unwrap());
        let server = format!("{}/clusters/{}", world.hub.url(), world::CLUSTER);
        let hub = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "clusters": [{"name": "hub", "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": "hub", "user": {"token": world.hub.token()}}],
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
        });
        let hub = Kubeconfig::from_yaml(&hub.to_string()).unwrap();
        let (direct, hub) = tokio::join!(client(direct), client(hub));
        Self { direct, hub }
    }
}

async fn client(file: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn get(client: &Client, path: &str) -> usize {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.into_body().collect().await.unwrap().to_bytes().len()
}

/// Times of requests one after the other.
async fn gets(client: &Client, path: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..GETS {
        let began = Instant::now();
        get(client, path).await;
        times.push(began.elapsed());
    }
    times
}

/// The middle of what the rounds gave, with the least and the most.
fn spread(mut rounds: Vec<f64>, digits: usize, unit: &str) -> String {
    rounds.sort_by(f64::total_cmp);
    let (middle, most) = (rounds[rounds.len() / 2], rounds[rounds.len() - 1]);
    let least = rounds[0];
    format!("{middle:.digits$}{unit} ({least:.digits$}–{most:.digits$})")
}

fn percentile_of(values: &[f64], part: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() * part / 100]
}

/// That percentile of each round.
fn percentile(rounds: &[Vec<Duration>], part: usize) -> String {
    let at = |times: &Vec<Duration>| {
        let times: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
        percentile_of(&times, part)
    };
    spread(rounds.iter().map(at).collect(), 2, " ms")
}

/// A row: what it belongs to, what it is of, and the bar of its p50.
type Row<'a> = (&'a str, &'a str, &'a str);

/// What `times` takes both ways, in turn, so that what else the machine does hits both.
async fn compared(
    ways: &Ways,
    (id, what, bar): Row<'_>,
    times: impl AsyncFn(&Client) -> Vec<Duration>,
) {
    let (mut direct, mut hub) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(times(&ways.direct).await);
        hub.push(times(&ways.hub).await);
    }
    for part in [50, 99] {
        let bar = if part == 50 { bar } else { "" };
        let figures = format!("{} / {}", percentile(&direct, part), percentile(&hub, part));
        let what = format!("{what}, p{part}: direct / through the hub");
        figure(id, &what, bar, figures);
    }
}

/// Requests that never end by themselves, read as they come.
fn endless(client: &Client, path: &str, count: usize, tasks: &mut JoinSet<()>) {
    for _ in 0..count {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let client = client.clone();
        tasks.spawn(async move {
            let answer = client.send(request).await.unwrap();
            assert!(answer.status().is_success());
            let mut body = answer.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        });
    }
}

/// L52: a GET through the hub, alone and beside what a busy team has open.
#[test]
#[ignore = "a benchmark: make bench"]
fn a_get_through_the_hub() {
    let world = world::adopted();
    ready(&world);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ways = Ways::of(&world).await;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/box");
        let row = ("L52", "GET of a small object", "added ≤ 3 ms");
        compared(&ways, row, async |client| gets(client, &path).await).await;
        let mut open = JoinSet::new();
        let watch = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1");
        endless(&ways.hub, &watch, WATCHES, &mut open);
        let log = format!("/api/v1/namespaces/{NAMESPACE}/pods/box/log?follow=1");
        endless(&ways.hub, &log, LOGS, &mut open);
        let what = format!("GET of a small object beside {WATCHES} watches and {LOGS} logs -f");
        let row = ("L52", what.as_str(), "added ≤ 3 ms");
        compared(&ways, row, async |client| gets(client, &path).await).await;
        assert_eq!(open.len(), WATCHES + LOGS, "all of them run");
    });
}

/// L3: from the request for a session to the first byte of the shell's prompt, kubectl's own start left out. The API server and
/// the hub have served the user before; each session has a connection of its own, as one of kubectl has.
#[test]
#[ignore = "a benchmark: make bench"]
fn a_prompt_through_the_hub() {
    let world = world::adopted();
    ready(&world);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ways = Ways::of(&world).await;
        for client in [&ways.direct, &ways.hub] {
            prompt(client).await;
        }
        let row = ("L3", "exec of a shell with a terminal → its prompt", "");
        compared(&ways, row, async |client| {
            let mut times = Vec::new();
            for _ in 0..SESSIONS {
                times.push(prompt(client).await);
            }
            times
        })
        .await;
    });
}

async fn prompt(client: &Client) -> Duration {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let terminal = AttachParams::interactive_tty();
    let began = Instant::now();
    let mut session = pods.exec(POD, ["sh"], &terminal).await.unwrap();
    let mut said = session.stdout().unwrap();
    said.read_exact(&mut [0]).await.unwrap();
    let took = began.elapsed();
    // Over before the next one begins, and by itself: nothing is left that the node would have to end meanwhile.
    let ended = session.take_status().unwrap();
    let mut input = session.stdin().unwrap();
    input.write_all(b"exit\n").await.unwrap();
    assert!(ended.await.is_some(), "the shell says how it ended");
    took
}

/// Rows in the order in which the first round had them, with what each round gave.
#[derive(Default)]
struct Rows(Vec<(String, &'static str, Vec<f64>)>);

impl Rows {
    fn add(&mut self, what: String, bar: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _, _)| *known == what) {
            Some((_, _, values)) => values.push(value),
            None => self.0.push((what, bar, vec![value])),
        }
    }
}

/// What is counted while requests pass.
struct Counted {
    pids: [(&'static str, u32); 2],
    nginx: Option<peer::Nginx>,
    path: Arc<String>,
}

/// L52: how many small requests hub and agent carry with a core each. What the API server and this client spend is not in it.
#[test]
#[ignore = "a benchmark: make bench"]
fn gets_a_second_per_core() {
    let mut world = world::adopted();
    // As an operator runs it. The level of the tests writes a line for each request.
    world.hub.stop();
    world.hub.level = "info";
    world.hub.up();
    ready(&world);
    let counted = Counted {
        pids: [("hub", hub_pid(&world)), ("agent", agent_pid(&world))],
        nginx: peer::Nginx::before(&world),
        path: Arc::new(format!("/api/v1/namespaces/{NAMESPACE}/pods/box")),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (what, workers) in [("one after the other", 1), ("32 at a time", 32)] {
        let mut rows = Rows::default();
        for _ in 0..ROUNDS {
            runtime.block_on(counted.round(&world, (what, workers), &mut rows));
        }
        for (what, bar, values) in rows.0 {
            let (digits, unit) = if what.contains(WAITS) {
                (1, "")
            } else {
                (0, " /s")
            };
            figure("L52", &what, bar, spread(values, digits, unit));
        }
    }
}

const WAITS: &str = "times that a thread of the hub begins to wait";

impl Counted {
    async fn round(&self, world: &World, (what, workers): (&str, usize), rows: &mut Rows) {
        let [(_, hub), _] = self.pids;
        // Connected before anything is counted.
        let ways = Ways::of(world).await;
        get(&ways.hub, &self.path).await;
        let (before, waited) = (self.pids.map(|(_, pid)| processor(pid)), waits(hub));
        let began = Instant::now();
        let done = as_many_as_pass(&ways.hub, &self.path, workers).await;
        let all = done / began.elapsed().as_secs_f64();
        let name = format!("GETs of a small object through the hub, {what}");
        rows.add(name, "", all);
        for ((name, pid), before) in self.pids.iter().zip(before) {
            let bar = if *name == "hub" { "≥ 10,000 /s" } else { "" };
            let used = processor(*pid) - before;
            rows.add(
                format!("… per core of the {name}, {what}"),
                bar,
                done / used,
            );
        }
        let name = format!("… {WAITS}, for each, {what}");
        rows.add(name, "", (waits(hub) - waited) / done);
        if let Some(nginx) = &self.nginx {
            let client = nginx.client().await;
            get(&client, &self.path).await;
            let before = processor(nginx.pid());
            let done = as_many_as_pass(&client, &self.path, workers).await;
            let used = processor(nginx.pid()) - before;
            let name = format!(
                "… per core of nginx, which forwards and logs the same and does no more, {what}"
            );
            rows.add(name, "", done / used);
        }
    }
}

/// Requests that `workers` get answered in [`BUSY`].
async fn as_many_as_pass(client: &Client, path: &Arc<String>, workers: usize) -> f64 {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (client, path) = (client.clone(), path.clone());
        tasks.spawn(async move {
            let mut done = 0.0;
            while began.elapsed() < BUSY {
                get(&client, &path).await;
                done += 1.0;
            }
            done
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// How often threads of a process gave up their core because there was nothing to do (Linux).
fn waits(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads
        .map(|thread| {
            // It may have ended meanwhile.
            let status = fs::read_to_string(thread.unwrap().path().join("status"));
            let status = status.unwrap_or_default();
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.map_or(0.0, |count| count.trim().parse::<f64>().unwrap())
        })
        .sum()
}

/// L52: a list as of a large cluster.
#[test]
#[ignore = "a benchmark: make bench"]
fn a_list_of_many_pods_through_the_hub() {
    let world = world::adopted();
    ready(&world);
    make(&world);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=many");
    runtime.block_on(async {
        let ways = Ways::of(&world).await;
        let mut times = [Vec::new(), Vec::new()];
        let mut bytes = 0;
        for _ in 0..ROUNDS {
            for (client, times) in [&ways.direct, &ways.hub].into_iter().zip(&mut times) {
                let began = Instant::now();
                bytes = get(client, &path).await;
                times.push(began.elapsed());
            }
        }
        let [direct, hub] = times.map(|times| {
            let seconds = times.iter().map(Duration::as_secs_f64);
            spread(seconds.collect(), 2, " s")
        });
        let what = format!(
            "list of {PODS} Pods ({} MB): direct / through the hub",
            bytes / 1_000_000
        );
        figure("L52", &what, "", format!("{direct} / {hub}"));
        let gone = format!("{path}&gracePeriodSeconds=0");
        let request = Request::builder().method(Method::DELETE).uri(gone);
        let request = request.body(Body::empty()).unwrap();
        assert!(
            ways.direct
                .send(request)
                .await
                .unwrap()
                .status()
                .is_success()
        );
    });
}

/// Pods that no scheduler takes.
fn make(world: &World) {
    let pods = Arc::new(format!("/api/v1/namespaces/{NAMESPACE}/pods"));
    let all: Vec<_> = (0..PODS).collect();
    thread::scope(|scope| {
        for part in all.chunks(PODS.div_ceil(8)) {
            let pods = pods.clone();
            scope.spawn(move || {
                for n in part {
                    let pod = json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": format!("many-{n}"), "labels": {"many": "yes"}},
                        "spec": {
                            "schedulerName": "nobody",
                            "containers": [{"name": "main", "image": "lab.invalid/pause:1", "env": [
                                {"name": "PURPOSE", "value": "one of many Pods in a list"},
                            ]}],
                        },
                    });
                    world.api.create(&pods, &pod);
                }
            });
        }
    });
}
