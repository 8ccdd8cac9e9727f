//! An informer whose line is cut for longer than one lives, for `make chaos` only.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ChildStdin;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{NAMESPACE, Running, line, ready};
use super::{client, informer};
use crate::line::{agent_pid, agent_pids, dropped};
use crate::support::api::path;
use crate::support::place::run;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// Longer than both ends take to know that the line is dead.
const CUT: Duration = Duration::from_secs(27);

/// The informer's program, which says what it knows when it is asked.
struct Informer {
    running: Running,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// What it says: the version of each object by its UID, and of which events it heard more than once.
#[derive(Deserialize)]
struct Told {
    cache: BTreeMap<String, String>,
    twice: Vec<String>,
}

impl Informer {
    fn start(world: &World) -> Self {
        let (mut running, lines) = Running::start(&mut client(world, &informer(), &["-follow"]));
        let input = running.0.stdin.take().unwrap();
        line(&lines, "it has its first list", |line| line == "go: synced");
        Self {
            running,
            input,
            lines,
        }
    }

    fn tells(&mut self) -> Told {
        writeln!(self.input).unwrap();
        let told = line(&self.lines, "it tells", |line| line.starts_with('{'));
        serde_json::from_str(&told).unwrap()
    }

    fn ends(self) {
        let Self {
            mut running,
            input,
            lines,
        } = self;
        drop(input);
        line(&lines, "it ends well", |line| line == "go: ok");
        assert!(running.0.wait().unwrap().success());
    }
}

fn map(n: usize) -> String {
    format!("by-informer-{n}")
}

fn create(world: &World, n: usize) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": map(n), "labels": {"by": "informer"}},
    });
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    world.api.create(&maps, &map);
}

fn change(world: &World, n: usize) {
    let data = json!({ "data": { "changed": "true" } });
    world
        .api
        .patch(&path("v1", "ConfigMap", NAMESPACE, &map(n)), &data);
}

fn delete(world: &World, n: usize) {
    let path = path("v1", "ConfigMap", NAMESPACE, &map(n));
    assert!(world.api.delete(&path), "{path} was not there");
}

/// What the API server has of them, by UID.
fn listed(world: &World) -> BTreeMap<String, String> {
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=by%3Dinformer");
    let list = world.api.get(&maps).unwrap();
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    let all = list["items"].as_array().unwrap().iter();
    all.map(|object| (text(object, "uid"), text(object, "resourceVersion")))
        .collect()
}

/// Straight at the API server: some changed, some deleted, some others of the same name, some new, and some that are gone again.
fn rewrite(world: &World) {
    for n in 0..10 {
        change(world, n);
    }
    for n in 10..20 {
        delete(world, n);
    }
    for n in (15..20).chain(30..45) {
        create(world, n);
    }
    for n in 40..45 {
        delete(world, n);
    }
}

/// L1: what was created, changed and deleted while there was neither line nor agent is in the informer's cache afterwards, and nothing
/// was told twice.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_informer_has_what_the_api_server_has_after_its_line_was_cut() {
    let world = world::adopted();
    ready(&world);
    for n in 0..30 {
        create(&world, n);
    }
    let mut informer = Informer::start(&world);
    assert_eq!(informer.tells().cache, listed(&world));
    let (epoch, pid) = (world.epoch(), agent_pid(&world));

    dropped(&world, "-I");
    let began = Instant::now();
    // Where its agent drains, a line hands over to the next one before it ends.
    let of_agent = "app.kubernetes.io/name=linesman-agent";
    let mut kubectl = world.place.kubectl();
    kubectl.args(["-n", "linesman", "delete", "pods", "--wait=false"]);
    run(kubectl.args(["-l", of_agent]));
    rewrite(&world);
    // What is tested: nothing gets through for so long.
    thread::sleep(CUT.saturating_sub(began.elapsed()));
    assert_ne!(informer.tells().cache, listed(&world), "nothing was cut");
    dropped(&world, "-D");

    let (told, took) = eventually("it has all of it", seconds(240), || {
        let (told, listed) = (informer.tells(), listed(&world));
        if told.cache == listed {
            Ok(told)
        } else {
            Err(format!("{:?}, not {listed:?}", told.cache))
        }
    });
    figure(
        "L1",
        "network cut for 27 s and agent's Pod deleted, network back → cache of client-go's informer as at the API server",
        "",
        shown(took),
    );
    assert!(world.epoch() > epoch, "the line was not cut");
    change(&world, 0);
    until("it goes on", seconds(60), || {
        informer.tells().cache == listed(&world)
    });
    assert_eq!(told.twice, [""; 0]);
    assert_eq!(informer.tells().twice, [""; 0]);
    informer.ends();
    let mut kubectl = world.place.kubectl();
    kubectl.args(["-n", NAMESPACE, "delete", "configmaps"]);
    run(kubectl.args(["-l", "by=informer"]));
    until(
        "another agent runs",
        seconds(120),
        || matches!(agent_pids(&world)[..], [new] if new != pid),
    );
}
