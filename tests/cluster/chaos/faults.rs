//! The faults, by engine.

use serde_json::{Value, json};

use super::budget::{Class, tried};
use super::{AsBefore, Fault};
use crate::blocked::pods_of;
use crate::healing::{all_that_lets_it_run, all_that_runs, chosen};
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, root};
use crate::support::place::{lab, run};
use crate::support::world::{ARGOCD, FLUX, World, git_repository, kustomization, ready};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

pub(crate) fn flux() -> Vec<Fault> {
    let controllers = ["source-controller", "kustomize-controller"];
    let deployments = controllers.map(|name| deployment(FLUX, name));
    let accounts = controllers.map(|name| path("v1", "ServiceAccount", FLUX, name));
    let bindings =
        ["cluster-reconciler", "crd-controller"].map(|n| format!("{BINDINGS}/{n}-{FLUX}"));
    let mut all = vec![];
    for gone in [&deployments[0], &deployments[1], &accounts[1], &bindings[0]] {
        all.push(deleted("W5", "≤ 60 s", &short(gone), vec![gone.clone()]));
    }
    all.push(everything());
    all.push(deleted(
        "W13",
        "≤ 60 s",
        "Git Secret",
        vec![path("v1", "Secret", FLUX, FLUX)],
    ));
    for gone in [git_repository(FLUX), kustomization(FLUX)] {
        all.push(allowed("W11", "≤ 60 s", gone));
    }
    for name in ["gitrepositories.source", "kustomizations.kustomize"] {
        all.push(allowed(
            "W11",
            "≤ 120 s",
            format!("{CRDS}/{name}.toolkit.fluxcd.io"),
        ));
    }
    all.push(scaled());
    all.push(wrong(
        "image",
        deployments[0].clone(),
        json!("lab.invalid/none:0"),
    ));
    all.push(wrong(
        "args",
        deployments[1].clone(),
        json!(["--no-such-flag"]),
    ));
    for name in controllers {
        // A dead leader's Lease has to run out; a stopped one answers no liveness probe.
        let process = format!("^/usr/local/bin/{name}");
        let pod = ("app", name);
        all.push(signalled("W5", "KILL", "≤ 100 s", pod, &process));
        all.push(signalled("W12", "STOP", "≤ probe + 150 s", pod, &process));
    }
    // The last, for it takes all else along.
    all.push(allowed(
        "W9",
        "≤ 180 s",
        format!("/api/v1/namespaces/{FLUX}"),
    ));
    all
}

pub(crate) fn argo_cd() -> Vec<Fault> {
    let repo_server = deployment(ARGOCD, "argocd-repo-server");
    let redis = deployment(ARGOCD, "argocd-redis");
    let account = path(
        "v1",
        "ServiceAccount",
        ARGOCD,
        "argocd-application-controller",
    );
    let binding = format!("{BINDINGS}/argocd-application-controller");
    let mut all = vec![];
    for gone in [
        &CONTROLLER.to_owned(),
        &repo_server,
        &redis,
        &account,
        &binding,
    ] {
        all.push(deleted("W5", "≤ 60 s", &short(gone), vec![gone.clone()]));
    }
    all.push(everything());
    all.push(deleted(
        "W13",
        "≤ 60 s",
        "repository Secret",
        vec![path("v1", "Secret", ARGOCD, "linesman-catalog")],
    ));
    all.push(allowed("W35", "≤ 60 s", root()));
    for name in ["applications", "appprojects"] {
        all.push(allowed(
            "W34",
            "≤ 120 s",
            format!("{CRDS}/{name}.argoproj.io"),
        ));
    }
    all.push(scaled());
    all.push(wrong(
        "image",
        CONTROLLER.to_owned(),
        json!("lab.invalid/none:0"),
    ));
    all.push(wrong("args", repo_server, json!(["/no/such/program"])));
    all.push(signalled(
        "W5",
        "KILL",
        "≤ 60 s",
        ("app.kubernetes.io/name", "argocd-application-controller"),
        "^/usr/local/bin/argocd-application-controlle[r]",
    ));
    all.push(allowed(
        "W9",
        "≤ 180 s",
        format!("/api/v1/namespaces/{ARGOCD}"),
    ));
    all
}

/// `Deployment/name` of an object's path, near enough for people.
fn short(path: &str) -> String {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    format!("{}/{name}", parts.next().unwrap_or_default())
}

fn deleted(row: &'static str, goal: &'static str, what: &str, paths: Vec<String>) -> Fault {
    Fault {
        row,
        what: format!("{what} deleted"),
        goal,
        damage: Box::new(move |world| gone(world, paths.clone())),
    }
}

/// All Deployments and `StatefulSets`, ServiceAccounts and bindings.
fn everything() -> Fault {
    Fault {
        row: "W6",
        what: "all workloads, ServiceAccounts and bindings deleted".to_owned(),
        goal: "≤ 90 s",
        damage: Box::new(|world| gone(world, all_that_lets_it_run(world))),
    }
}

fn gone(world: &World, paths: Vec<String>) -> AsBefore {
    let uids: Vec<_> = paths.iter().map(|p| world.uid(p).unwrap()).collect();
    for path in &paths {
        assert!(world.api.delete(path), "{path} was not there");
    }
    anew(paths, uids)
}

/// What the guard policy keeps, deleted after somebody allowed it.
fn allowed(row: &'static str, goal: &'static str, path: String) -> Fault {
    Fault {
        row,
        what: format!("{} deleted, past the guard policy", short(&path)),
        goal,
        damage: Box::new(move |world| {
            let uid = world.uid(&path).unwrap();
            world.delete_guarded(&path);
            anew(vec![path.clone()], vec![uid])
        }),
    }
}

fn anew(paths: Vec<String>, uids: Vec<String>) -> AsBefore {
    Box::new(move |world| {
        let mut pairs = paths.iter().zip(&uids);
        pairs.all(|(path, uid)| world.uid(path).is_some_and(|new| new != *uid))
    })
}

fn scaled() -> Fault {
    Fault {
        row: "W7",
        what: "all workloads scaled to 0".to_owned(),
        goal: "≤ 60 s",
        damage: Box::new(move |world| {
            let paths = all_that_runs(world);
            for path in &paths {
                tried(path, Class::ScaledToZero);
                world.api.patch(path, &json!({ "spec": { "replicas": 0 } }));
            }
            Box::new(move |world| {
                let replicas = |p: &String| {
                    world
                        .api
                        .try_get(p)
                        .ok()??
                        .pointer("/spec/replicas")?
                        .as_u64()
                };
                paths.iter().all(|p| replicas(p) == Some(1))
            })
        }),
    }
}

fn wrong(field: &'static str, path: String, value: Value) -> Fault {
    Fault {
        row: "W8",
        what: format!("wrong {field} of {}", short(&path)),
        goal: "≤ 90 s",
        damage: Box::new(move |world| {
            let spec = |o: &Value| chosen(&o["spec"]["template"]["spec"]);
            let good = spec(&world.api.get(&path).unwrap());
            let class = if field == "image" {
                Class::BadImage
            } else {
                Class::ReadyButUseless
            };
            tried(&path, class);
            let place = format!("/spec/template/spec/containers/0/{field}");
            let bad = world.api.json_patch(
                &path,
                &json!([{ "op": "replace", "path": place, "value": value }]),
            );
            assert_ne!(spec(&bad), good);
            let path = path.clone();
            Box::new(move |world| {
                world
                    .api
                    .try_get(&path)
                    .is_ok_and(|o| o.is_some_and(|o| spec(&o) == good))
            })
        }),
    }
}

/// A signal to a controller's process inside its Pod, which has this label. Restarting it is the kubelet's part, and as before is a Pod
/// of a later start that the kubelet's probe, every ten seconds, finds ready; the engine's answer counts.
fn signalled(
    row: &'static str,
    signal: &str,
    goal: &'static str,
    pod: (&'static str, &'static str),
    process: &str,
) -> Fault {
    let script = format!("kill -{signal} $(pgrep -f '{process}')");
    let name = pod.1.trim_start_matches("argocd-");
    Fault {
        row,
        what: format!("{name} ended by SIG{signal}"),
        goal,
        damage: Box::new(move |world| {
            let before: Vec<Value> = pods_of(world, pod).iter().map(start).collect();
            run(lab().args(["exec", world.place.lab(), "sh", "-c", &script]));
            Box::new(move |world| {
                let again = |live: &Value| {
                    let going = !live["metadata"]["deletionTimestamp"].is_null();
                    !going && ready(live) && !before.contains(&start(live))
                };
                pods_of(world, pod).iter().any(again)
            })
        }),
    }
}

/// Which Pod, and how often its container was started anew.
fn start(pod: &Value) -> Value {
    let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
    json!([pod["metadata"]["uid"], restarts])
}
