//! W31: where Flux' events go. Each one is posted within a reconciliation, so a sink that is dead stalls all of them.

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, settle, with_hub_and_with_git_alone, works};
use crate::support::api::{deployment, path};
use crate::support::place::run;
use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};
use crate::versions::{in_force, variant};

const NOTIFICATION: &str = "notification-controller";
const FLAG: &str = "--events-addr=";
/// As the release's manifest has it.
pub(crate) const SINK: &str =
    "--events-addr=http://notification-controller.flux-system.svc.cluster.local./";

/// Stands in for notification-controller where the lab has none: it takes no event, and says so at once.
const STAND_IN: &str = r#"---
apiVersion: v1
kind: Service
metadata:
  name: notification-controller
  namespace: flux-system
  labels: {app.kubernetes.io/part-of: flux, app.kubernetes.io/component: notification-controller}
spec:
  selector: {app: notification-controller}
  ports: [{name: http, port: 80, targetPort: 9090}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: notification-controller
  namespace: flux-system
  labels: {app.kubernetes.io/part-of: flux, app.kubernetes.io/component: notification-controller}
spec:
  replicas: 1
  selector: {matchLabels: {app: notification-controller}}
  template:
    metadata:
      labels: {app: notification-controller}
    spec:
      containers:
      - name: manager
        image: lab.invalid/busybox:1
        imagePullPolicy: IfNotPresent
        command: [/bin/busybox, httpd, -f, -p, "9090", -h, /bin]
        readinessProbe: {tcpSocket: {port: 9090}, periodSeconds: 1}
"#;

/// The bundle with the address of the release, whatever the lab made of it.
fn addressed(text: &str) -> String {
    let line = |line: &str| match line.find(FLAG) {
        Some(at) => format!("{}{SINK}\n", &line[..at]),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// With and without the objects of notification-controller.
fn is_of_sink(document: &&str) -> bool {
    document.contains("app.kubernetes.io/component: notification-controller")
}

fn without_sink(text: &str) -> String {
    let own: Vec<&str> = text.split("\n---\n").collect();
    let kept = own.into_iter().filter(|d| !is_of_sink(d));
    addressed(&kept.collect::<Vec<_>>().join("\n---\n"))
}

pub(crate) fn with_sink(text: &str) -> String {
    let has = text.split("\n---\n").any(|d| is_of_sink(&d));
    let more = if has { "" } else { STAND_IN };
    addressed(text) + more
}

fn set(world: &World, args: &[&str]) {
    let args = [&["engine", "set", CLUSTER, "flux"], args, &["--wait=4m"]];
    run(&mut world.hub.cli(&args.concat()));
    settle(world);
}

/// The address that a controller posts its events to.
fn sink(world: &World, controller: &str) -> String {
    let live = world.api.try_get(&deployment(FLUX, controller));
    let live = live.ok().flatten().unwrap_or_default();
    let args = &live["spec"]["template"]["spec"]["containers"][0]["args"];
    let mut args = args.as_array().into_iter().flatten();
    let flag = args.find_map(|a| a.as_str().filter(|a| a.starts_with(FLAG)));
    flag.unwrap_or("none").to_owned()
}

/// W31: an install of source- and kustomize-controller alone has no address for events, and gets rid of one; with
/// notification-controller in the install, that is kept like any other part.
#[test]
#[ignore = "needs a real cluster: make test"]
fn events_go_to_a_sink_that_is_there_or_nowhere() {
    let mut world = world::adopted();
    settle(&world);
    let first = in_force(&world)["digest"].as_str().unwrap().to_owned();

    variant(&world, "2.80.0", |text| without_sink(&text));
    set(&world, &["2.80.0"]);
    with_hub_and_with_git_alone(&mut world, alone);
    variant(&world, "2.81.0", |text| with_sink(&text));
    set(&world, &["2.81.0"]);
    with_hub_and_with_git_alone(&mut world, kept);
    set(&world, &["--bundle", &first]);
}

/// W31: nothing is stalled, and an address that somebody gives is that of nobody.
fn alone(world: &World) {
    let both = ["source-controller", "kustomize-controller"];
    assert_eq!(both.map(|name| sink(world, name)), [FLAG; 2]);
    let took = world.function(seconds(LIMIT));
    figure(
        "W31",
        &world.case("source- and kustomize-controller alone: both reconcile"),
        "≤ 5 s",
        shown(took),
    );
    for name in both {
        let before = on(world, name);
        let at = "/spec/template/spec/containers/0/args";
        let live = world.api.get(&deployment(FLUX, name)).unwrap();
        let args = live.pointer(at).unwrap().as_array().unwrap().iter();
        let args: Vec<Value> = args
            .map(|a| {
                if *a == json!(FLAG) {
                    json!(SINK)
                } else {
                    a.clone()
                }
            })
            .collect();
        let dead = json!([{ "op": "replace", "path": at, "value": args }]);
        world.api.json_patch(&deployment(FLUX, name), &dead);
        let took = until("the address is empty again", seconds(LIMIT), || {
            sink(world, name) == FLAG
        });
        figure(
            "W31",
            &world.case(&format!("{name} given a dead sink → emptied")),
            "",
            shown(took),
        );
        let ((), told) = eventually("it is called EventSinkMissing", seconds(LIMIT), || {
            let new = on(world, name).into_iter().find(|h| !before.contains(h));
            new.map(drop).ok_or("no record")
        });
        let called = format!("{name} given a dead sink → called EventSinkMissing");
        figure("W31", &world.case(&called), "≤ 60 s", shown(took + told));
        let after = format!("{name} given a dead sink, emptied → function");
        works(world, "W31", &world.case(&after), "≤ 60 s");
    }
}

/// Ids of the records that say so of a controller.
fn on(world: &World, controller: &str) -> Vec<Value> {
    let object = json!(format!("Deployment {FLUX}/{controller}"));
    let all = heals(world).into_iter();
    let sinks = all.filter(|h| h["class"] == "EventSinkMissing" && h["object"] == object);
    sinks.map(|h| h["id"].clone()).collect()
}

/// W31: what takes the events is gone.
fn kept(world: &World) {
    assert_eq!(sink(world, "source-controller"), SINK);
    for object in [
        deployment(FLUX, NOTIFICATION),
        path("v1", "Service", FLUX, NOTIFICATION),
    ] {
        let uid = world.uid(&object).unwrap();
        assert!(world.api.delete(&object));
        let took = until(&format!("{object} is back"), seconds(LIMIT), || {
            world.uid(&object).is_some_and(|new| new != uid)
        });
        let kind = object.rsplit('/').nth(1).unwrap();
        figure(
            "W31",
            &world.case(&format!("{NOTIFICATION} deleted ({kind}) → back")),
            "≤ 5 s",
            shown(took),
        );
        assert_eq!(sink(world, "source-controller"), SINK, "it is only away");
        let after = format!("{NOTIFICATION} deleted ({kind}), back → function");
        works(world, "W31", &world.case(&after), "≤ 60 s");
    }
}
