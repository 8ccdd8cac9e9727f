//! L8: requests that never end by themselves, opened and left again in numbers: by the API server's own count none goes on.

use std::thread;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::task::JoinSet;

use super::benches::Ways;
use super::ready;
use super::replicas::signal;
use crate::line::agent_pid;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown};

const ROUNDS: usize = 20;
/// Open at the same time.
const AT_ONCE: usize = 50;
/// How long the agent stands still, in every second round.
const STALL: Duration = Duration::from_millis(50);

/// Of a kind that nobody else watches by namespace.
const WATCH: &str = "/api/v1/namespaces/kubectl-tests/podtemplates?watch=1";

/// How many watches of [`WATCH`] the API server says it serves.
fn served(world: &World) -> Result<usize, String> {
    let text = world.api.text("/metrics")?;
    let of_ours = |line: &&str| {
        line.starts_with("apiserver_longrunning_requests{")
            && [
                r#"resource="podtemplates""#,
                r#"scope="namespace""#,
                r#"verb="WATCH""#,
            ]
            .iter()
            .all(|label| line.contains(label))
    };
    let values = text.lines().filter(of_ours).map(|line| {
        let value = line.rsplit(' ').next().unwrap_or_default();
        value.parse::<usize>().map_err(|e| format!("{line}: {e}"))
    });
    values.sum()
}

/// As many as [`AT_ONCE`] watches that have been answered, and run.
async fn opened(hub: &Client) -> Vec<http::Response<Body>> {
    let mut asked = JoinSet::new();
    for _ in 0..AT_ONCE {
        let hub = hub.clone();
        asked.spawn(async move {
            let request = Request::get(WATCH).body(Body::empty()).unwrap();
            hub.send(request).await.unwrap()
        });
    }
    let open = asked.join_all().await;
    assert!(open.iter().all(|answer| answer.status() == 200));
    open
}

/// Waits until the API server serves so many; says how long that took.
fn come_to(world: &World, count: usize) -> Duration {
    let what = format!("the API server serves {count}");
    let look = || match served(world)? {
        n if n == count => Ok(()),
        n => Err(format!("it serves {n}")),
    };
    eventually(&what, seconds(30), look).1
}

/// L8
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_thousand_watches_that_are_left_end_at_the_api_server() {
    let world = world::adopted();
    ready(&world);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ways = runtime.block_on(Ways::of(&world));
    let (agent, epoch, before) = (agent_pid(&world), world.epoch(), served(&world).unwrap());
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        let open = runtime.block_on(opened(&ways.hub));
        if round == 0 {
            come_to(&world, before + AT_ONCE);
        }
        if round % 2 == 0 {
            drop(open);
        } else {
            // The fault itself; nothing is waited for.
            signal(agent, "-STOP");
            drop(open);
            thread::sleep(STALL);
            signal(agent, "-CONT");
        }
        slowest = slowest.max(come_to(&world, before));
    }
    assert_eq!((world.line_is_up(), world.epoch()), (true, epoch));
    assert_eq!(agent_pid(&world), agent);
    figure(
        "L8",
        &format!(
            "{} watches opened and left, {AT_ONCE} at once → none at the API server, slowest round",
            ROUNDS * AT_ONCE
        ),
        "",
        format!("{}; all in {}", shown(slowest), shown(began.elapsed())),
    );
}
