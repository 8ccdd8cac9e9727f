//! One engine takes the other's place, and gives it back: no workload is deleted or restarted, whatever happens
//! meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use crate::healing::{on_record, settle, since, workloads};
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, application, root};
use crate::support::place::{Place, output, run};
use crate::support::world::{self, ARGOCD, CLUSTER, FLUX, World, git_repository, kustomization};
use crate::support::{figure, seconds, shown, until};
use crate::upgrade::{SILENT, silent};
use crate::versions::variant;

mod whole;

/// What the catalog has for Argo CD, as a new cluster gets it.
const APPLICATIONS: [(&str, &str); 2] = [
    (
        "apps.yaml",
        include_str!("../../src/hub/catalog/argocd/apps.yaml"),
    ),
    (
        "base.yaml",
        include_str!("../../src/hub/catalog/argocd/base.yaml"),
    ),
];
const FLUX_RIGHTS: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-reconciler-flux-system";
const ARGOCD_RIGHTS: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/argocd-application-controller";

/// Workloads and their Pods, by path or name, with their UIDs.
fn living(world: &World) -> BTreeMap<String, String> {
    let mut all = workloads(world);
    for kind in ["replicasets", "pods"] {
        let group = if kind == "pods" {
            "/api/v1"
        } else {
            "/apis/apps/v1"
        };
        let list = world
            .api
            .get(&format!("{group}/namespaces/hello/{kind}"))
            .unwrap();
        for item in list["items"].as_array().unwrap() {
            let text = |key: &str| item["metadata"][key].as_str().unwrap().to_owned();
            all.insert(format!("{kind} {}", text("name")), text("uid"));
        }
    }
    all
}

fn command(world: &World, args: &[&str]) -> std::process::Command {
    world
        .hub
        .cli(&[&["cluster", "engine", CLUSTER], args].concat())
}

fn refused(world: &World, args: &[&str]) -> String {
    let refused = output(&mut command(world, args));
    assert!(!refused.status.success(), "{args:?} was taken");
    String::from_utf8_lossy(&refused.stderr).into_owned()
}

/// Puts Argo CD in Flux' place; the agent is killed in the midst of it.
fn replaced_over_a_kill(world: &World) -> Value {
    let mut going = command(world, &["argocd", "--replace", "--wait=5m", "-o", "json"]);
    let going = going
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the old engine's rights are cut", seconds(60), || {
        world.uid(FLUX_RIGHTS).is_none()
    });
    let kill = [
        "-n",
        "linesman",
        "delete",
        "pod",
        "-l",
        "app.kubernetes.io/name=linesman-agent",
        "--grace-period=0",
        "--force",
    ];
    run(world.place.kubectl().args(kill));
    let ended = going.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// A Flux whose image nobody has, and a Pod of it that never ends: Argo CD comes back, and the cluster says why.
fn one_that_cannot_run(world: &World) {
    silent(world);
    // Whoever deletes it.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stuck", "namespace": FLUX, "labels": {"app": "source-controller"}},
        "spec": {
            "terminationGracePeriodSeconds": 900,
            "containers": [{
                "name": "manager", "image": SILENT, "lifecycle": {"preStop": {"sleep": {"seconds": 890}}},
            }],
        },
    });
    let file = world.directory.join("stuck.json");
    fs::write(&file, pod.to_string()).unwrap();
    run(world
        .place
        .kubectl()
        .args(["create", "-f", file.to_str().unwrap()]));
    variant(world, "2.92.0", |text| {
        text.replace("/source-controller:v", "/source-controller:v0.0.0-not-")
    });
    let began = Instant::now();
    let args = ["flux", "--replace", "--version", "2.92.0"];
    let said = refused(world, &[&args[..], &["--within=30s", "--wait=4m"]].concat());
    assert!(
        said.contains("did not work within 30 s") && said.contains("back at argocd"),
        "{said}"
    );
    assert!(
        said.contains("stuck first: without rights they were not waited for"),
        "{said}"
    );
    until("the engine that is back is shown", seconds(60), || {
        let told = world.hub.json(&["cluster", "engine", CLUSTER]);
        (&told["engine"], &told["wished"]["engine"]) == (&json!(ARGOCD), &json!("flux"))
    });
    let kill = [
        "-n",
        FLUX,
        "delete",
        "pod",
        "stuck",
        "--grace-period=0",
        "--force",
    ];
    run(world.place.kubectl().args(kill));
    until("Argo CD works again, alone", seconds(120), || {
        world.engine_available()
            && world
                .uid(&deployment(FLUX, "kustomize-controller"))
                .is_none()
            && world.uid(FLUX_RIGHTS).is_none()
    });
    world.function(seconds(120));
    figure(
        "#5 §2",
        "cluster engine --replace: a Flux that cannot run, given 30 s, and a Pod of it that never ends → Argo CD with function",
        "30 s + 75 s + 60 s",
        shown(began.elapsed()),
    );
}

/// Nothing of an engine is left but what holds other things.
fn gone(world: &World, gone: &[String], stay: &[String]) {
    for path in gone {
        assert_eq!(world.uid(path), None, "{path} is left");
    }
    for path in stay {
        assert!(world.uid(path).is_some(), "{path} is gone");
    }
}

fn crd(name: &str) -> String {
    path(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        name,
    )
}

/// Issue 5 §2: Flux → Argo CD with the agent killed in between, one attempt that fails, and Argo CD → Flux.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_engine_takes_the_others_place_and_no_workload_is_touched() {
    // A lab of its own: what stays behind is nothing for other tests.
    let mut world = World::open("replace");
    world.adopt();
    let version = prepared(&world);
    let (before, heals) = (living(&world), on_record(&world));

    not_by_the_way(&world);
    to_argocd(&world, "");
    world.engine = ARGOCD;
    assert_eq!(living(&world), before, "a workload was touched");
    one_that_cannot_run(&world);
    assert_eq!(living(&world), before, "a workload was touched");
    to_flux(&world, "", &version);
    world.engine = "flux";
    assert_eq!(living(&world), before, "a workload was touched");
    settle(&world);
    assert_eq!(living(&world), before, "a workload was touched");
    let mut told = since(&world, &heals);
    told.retain(|h| h["class"] == json!("SourceAltered") || h["class"] == json!("ObjectAltered"));
    assert_eq!(told, Vec::<Value>::new(), "nobody altered anything");
    world.close();
}

/// Flux is at work in a cluster that was adopted just now, and Argo CD is imported. Returns the version of Flux.
fn prepared(world: &World) -> String {
    settle(world);
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    until("deployment hello is available", seconds(120), || {
        let live = world.api.try_get(hello).ok().flatten();
        live.is_some_and(|d| world::condition(&d, "Available"))
    });
    let bundle = world.directory.join("argocd.yaml");
    fs::write(&bundle, Place::bundle("argocd")).unwrap();
    world
        .hub
        .linesman(&["engine", "import", bundle.to_str().unwrap()]);
    let flux = world.hub.json(&["cluster", "engine", CLUSTER]);
    flux["version"].as_str().unwrap().to_owned()
}

fn not_by_the_way(world: &World) {
    let said = refused(world, &["argocd"]);
    assert!(said.contains("--replace"), "{said}");
    let said = refused(world, &["argocd", "--replace"]);
    assert!(
        said.contains("the catalog has nothing for argocd")
            && said.contains("clusters/demo/apps.yaml is written for flux"),
        "{said}"
    );
}

/// `case` is what the figure says of the cluster.
fn to_argocd(world: &World, case: &str) {
    let url = world.api.get(&git_repository(FLUX)).unwrap()["spec"]["url"].clone();
    let files = APPLICATIONS.map(|(file, text)| {
        let text = text
            .replace("NAMESPACE", ARGOCD)
            .replace("CLUSTER", CLUSTER)
            .replace("CATALOG", url.as_str().unwrap())
            .replace("BRANCH", "main");
        (format!("clusters/{CLUSTER}.argocd/{file}"), text)
    });
    world.push_all(&files);
    let began = Instant::now();
    let told = replaced_over_a_kill(world);
    assert_eq!(told["path"], json!("clusters/demo.argocd"), "{told}");
    figure(
        "#5 §2",
        &format!("cluster engine --replace: Flux → Argo CD, the agent killed meanwhile{case}"),
        "",
        shown(began.elapsed()),
    );
    gone(
        world,
        &[
            deployment(FLUX, "source-controller"),
            deployment(FLUX, "kustomize-controller"),
            kustomization(FLUX),
            kustomization("app-hello"),
            git_repository(FLUX),
            path("v1", "Secret", FLUX, FLUX),
            FLUX_RIGHTS.to_owned(),
        ],
        &[
            crd("kustomizations.kustomize.toolkit.fluxcd.io"),
            format!("/api/v1/namespaces/{FLUX}"),
            application("app-hello"),
        ],
    );
    until("the root prunes again", seconds(60), || {
        let live = world.api.get(&root()).unwrap();
        live["spec"]["syncPolicy"]["automated"]["prune"] == json!(true)
    });
}

fn to_flux(world: &World, case: &str, version: &str) {
    let began = Instant::now();
    let back = ["flux", "--replace", "--version"];
    let back = [&back[..], &[version, "--wait=5m", "-o", "json"]].concat();
    let told = run(&mut command(world, &back));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["path"], json!("clusters/demo"), "{told}");
    figure(
        "#5 §2",
        &format!("cluster engine --replace: Argo CD → Flux{case}"),
        "",
        shown(began.elapsed()),
    );
    gone(
        world,
        &[
            deployment(ARGOCD, "argocd-repo-server"),
            CONTROLLER.to_owned(),
            root(),
            application("app-hello"),
            path("v1", "Secret", ARGOCD, "argocd-redis"),
            ARGOCD_RIGHTS.to_owned(),
        ],
        &[
            crd("applications.argoproj.io"),
            format!("/api/v1/namespaces/{ARGOCD}"),
            kustomization("app-hello"),
        ],
    );
    until("the root prunes again", seconds(60), || {
        let live = world.api.get(&kustomization(FLUX)).unwrap();
        live["spec"]["prune"] == json!(true)
    });
}
