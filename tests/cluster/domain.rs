//! A cluster whose Services are below another domain than `cluster.local`: the parts of Flux find each other by that.

use serde_json::{Value, json};

use crate::events::{SINK, with_sink};
use crate::healing::{LIMIT, heals, settle};
use crate::support::api::{deployment, path};
use crate::support::place::{Place, run};
use crate::support::world::{CLUSTER, DOMAIN, FLUX, OTHER_DOMAIN, World, git_repository};
use crate::support::{eventually, figure, seconds, shown, until};

/// As source-controller's manifest has it.
const STORE: &str = "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.cluster.local.";
const FLAGS: [&str; 2] = ["--events-addr=", "--storage-adv-addr="];
/// What an address that is not as wanted would be taken for.
const DRIFT: [&str; 3] = ["EventSinkMissing", "ObjectAltered", "ReadyButUseless"];

mod whole {
    use super::adopted_below_another_domain;

    /// W1, W31: nothing in the cluster answers below the usual domain.
    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn a_cluster_with_another_domain_is_adopted_and_follows_the_catalog() {
        adopted_below_another_domain();
    }
}

fn adopted_below_another_domain() {
    let manifest = with_sink(&Place::bundle("flux"));
    let mut world = World::open_from(OTHER_DOMAIN, "flux", &manifest);
    assert!(
        world.place.lab.is_some(),
        "a cluster that is given has the domain that it has"
    );
    world.adopt();
    figure(
        "W1",
        "cluster of another domain: adoption YAML applied → first revision applied",
        "≤ 45 s",
        shown(world.adoption.unwrap()),
    );
    the_agent_found_it(&world);
    settle(&world);
    assert_eq!(addresses(&world), wanted());
    follows_the_catalog(&world);
    let mut drift = heals(&world);
    drift.retain(|heal| DRIFT.iter().any(|class| heal["class"] == *class));
    assert_eq!(drift, [] as [Value; 0], "an address of the cluster's own");
    one_below_the_usual_domain_is_mended(&world);
    world.close();
}

/// Its first line in the log says so.
fn the_agent_found_it(world: &World) {
    let mut kubectl = world.place.kubectl();
    let log = run(kubectl.args(["-n", "linesman", "logs", "deployment/linesman-agent"]));
    let first = log.lines().find(|line| line.contains("agent starts"));
    let found = format!("domain={DOMAIN}");
    assert!(first.is_some_and(|line| line.contains(&found)), "{first:?}");
}

/// kustomize-controller fetches a commit from source-controller, at the address that this one gives.
fn follows_the_catalog(world: &World) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "followed", "namespace": "default"}, "data": {"is": "there"},
    });
    world.push(
        &format!("clusters/{CLUSTER}/followed.yaml"),
        &map.to_string(),
    );
    let map = path("v1", "ConfigMap", "default", "followed");
    let took = until("the commit is applied", seconds(LIMIT), || {
        world.uid(&map).is_some()
    });
    figure(
        "W1",
        "cluster of another domain: commit pushed → applied",
        "",
        shown(took),
    );
    eventually("the head is applied", seconds(LIMIT), || world.synced());
    let source = world.api.get(&git_repository(FLUX)).unwrap();
    let url = source["status"]["artifact"]["url"].as_str().unwrap();
    let below = format!("http://source-controller.{FLUX}.svc.{DOMAIN}./");
    assert!(url.starts_with(&below), "{url}");
}

/// What works in nearly every other cluster is drift here.
fn one_below_the_usual_domain_is_mended(world: &World) {
    let controller = deployment(FLUX, "kustomize-controller");
    let args = args(world, "kustomize-controller");
    let at = args.iter().position(|arg| arg.starts_with(FLAGS[0]));
    let at = format!("/spec/template/spec/containers/0/args/{}", at.unwrap());
    let usual = json!([{"op": "replace", "path": at, "value": SINK}]);
    world.api.json_patch(&controller, &usual);
    let took = until("it is the cluster's own again", seconds(LIMIT), || {
        addresses(world) == wanted()
    });
    figure(
        "W31",
        "cluster of another domain: address of events set below cluster.local → as before",
        "",
        shown(took),
    );
    settle(world);
}

/// The addresses of Services that Flux' controllers are told, each behind its controller's name.
fn addresses(world: &World) -> Vec<String> {
    let of = |name: &&str| {
        let told = args(world, name).into_iter();
        let told = told.filter(|arg| FLAGS.iter().any(|flag| arg.starts_with(flag)));
        told.map(|arg| format!("{name} {arg}"))
            .collect::<Vec<String>>()
    };
    let mut all: Vec<String> = ["kustomize-controller", "source-controller"]
        .iter()
        .flat_map(of)
        .collect();
    all.sort();
    all
}

/// The same as they are to be: the manifest's, below the cluster's domain.
fn wanted() -> Vec<String> {
    let moved = |argument: &str| argument.replace("cluster.local", DOMAIN);
    vec![
        format!("kustomize-controller {}", moved(SINK)),
        format!("source-controller {}", moved(SINK)),
        format!("source-controller {}", moved(STORE)),
    ]
}

fn args(world: &World, name: &str) -> Vec<String> {
    let live = world.api.get(&deployment(FLUX, name)).unwrap_or_default();
    let args = &live["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().into_iter().flatten();
    args.filter_map(Value::as_str).map(str::to_owned).collect()
}
