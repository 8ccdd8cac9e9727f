//! W25: an API server half of whose answers are errors makes nothing broken that is not; what is broken meanwhile waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::replicas::credential;
use super::{Agent, kubeconfig_named};
use crate::healing::{chosen, install, on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path, path_of};
use crate::support::audit::Mark;
use crate::support::place::output;
use crate::support::unreliable::Unreliable;
use crate::support::world::{ARGOCD, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};
use crate::versions::variant;

/// So many requests are answered with an error before anything is broken: each list and watch meets several.
const ERRORS: usize = 200;

const UNHEALTHY: &str = "ApiUnhealthy";
const OLD: &str = "KubernetesUnsupported";

/// UID and what is wanted of each object of the install.
fn wanted(world: &World) -> BTreeMap<String, [Value; 2]> {
    let all = install(world).into_iter();
    let of = |o: &Value| [o["metadata"]["uid"].clone(), o["spec"].clone()];
    all.map(|o| (path_of(&o), of(&o))).collect()
}

/// A kubeconfig's requests go through the proxy.
fn send_through(kubeconfig: &Path, proxy: &Unreliable) {
    let text = fs::read_to_string(kubeconfig).unwrap();
    let mut lines = text.lines().map(str::trim);
    let server = lines.find(|l| l.starts_with("server:")).unwrap();
    let through = format!("server: {}", proxy.url);
    fs::write(kubeconfig, text.replace(server, &through)).unwrap();
}

/// The names of a Service and of a Deployment that break while there are errors.
fn parts(world: &World) -> [&'static str; 2] {
    if world.engine == ARGOCD {
        ["argocd-metrics", "argocd-repo-server"]
    } else {
        ["source-controller", "kustomize-controller"]
    }
}

/// W25, F56 in a lab whose agents run on this machine, and of which none does.
pub(super) fn lied_to(world: &World) {
    let proxy = Unreliable::before(&world.place.kubeconfig);
    let (kubeconfig, token) = kubeconfig_named(world, "agent");
    send_through(&kubeconfig, &proxy);
    let agents = credential(&token);
    errors_are_no_fault(world, &proxy, (&kubeconfig, &agents));
    a_kubernetes_that_is_too_old_is_reported(world, &proxy, (&kubeconfig, &agents));
}

/// W25, there as well.
pub(crate) fn with_half_of_the_answers(world: &World) {
    let proxy = Unreliable::before(&world.place.kubeconfig);
    let (kubeconfig, token) = kubeconfig_named(world, "agent");
    send_through(&kubeconfig, &proxy);
    errors_are_no_fault(world, &proxy, (&kubeconfig, &credential(&token)));
}

/// W25: half of the API server's answers to the agent are 500, 503 or 429, and its watches end: nothing is written but
/// probes and the Lease, and no heal is on record but that it is so. What is broken meanwhile is mended when the errors are over.
fn errors_are_no_fault(world: &World, proxy: &Unreliable, (kubeconfig, agents): (&Path, &str)) {
    let mut agent = Agent::start(world, kubeconfig, None);
    eventually("the cluster is adopted", seconds(240), || world.synced());
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "2m"];
    world.hub.linesman(&wait);
    settle(world);
    let (before, known) = (wanted(world), on_record(world));
    let workloads = workloads(world);

    let mark = Mark::now(&world.audit);
    proxy.fail(true);
    let took = until("the agent has met errors", seconds(120), || {
        proxy.errors() >= ERRORS
    });
    assert_eq!(mark.mended_by(agents), [""; 0], "it healed what works");
    let new = since(world, &known);
    assert!(new.iter().all(|h| h["class"] == UNHEALTHY), "{new:#?}");
    assert_eq!(wanted(world), before);
    figure(
        "W25",
        &world.said(&format!(
            "{ERRORS} errors of the API server met, nothing written"
        )),
        "no heal",
        shown(took),
    );

    let service = what_breaks_meanwhile_waits(world, proxy, (&mark, agents));
    settle(world);
    assert!(!agent.ended(), "the agent ended by itself");
    let written: BTreeSet<String> = mark.mended_by(agents).into_iter().collect();
    let [of_service, of_controller] = parts(world);
    let mended = [
        format!("patch deployments/{of_controller}"),
        format!("patch services/{of_service}"),
    ];
    assert_eq!(written, mended.into());
    let new = since(world, &known);
    let results = new.iter().map(|h| (&h["class"], &h["result"]));
    let mut results: BTreeSet<String> = results.map(|(c, r)| format!("{c} {r}")).collect();
    // Whether one kind of object stayed without an answer for long enough is up to the draw.
    results.remove("\"ApiUnhealthy\" \"reported\"");
    let expected = ["\"BadImage\" \"healed\"", "\"ObjectMissing\" \"healed\""];
    assert_eq!(results, expected.map(str::to_owned).into(), "{new:#?}");
    // The Service is another one.
    let (mut before, mut after) = (before, wanted(world));
    assert!(before.remove(&service).is_some() && after.remove(&service).is_some());
    assert_eq!(after, before);
    unchanged(world, &workloads);
}

/// Returns the path of the Service that is another one afterwards.
fn what_breaks_meanwhile_waits(
    world: &World,
    proxy: &Unreliable,
    (mark, agents): (&Mark, &str),
) -> String {
    let [of_service, of_controller] = parts(world);
    let service = path("v1", "Service", world.namespace(), of_service);
    let uid = world.uid(&service).unwrap();
    assert!(world.api.delete(&service));
    let controller = deployment(world.namespace(), of_controller);
    let spec = || chosen(&world.api.get(&controller).unwrap()["spec"]["template"]["spec"]);
    let good = spec();
    let image = "/spec/template/spec/containers/0/image";
    let wrong = json!([{ "op": "replace", "path": image, "value": "lab.invalid/none:0" }]);
    world.api.json_patch(&controller, &wrong);
    let met = proxy.errors();
    until("the agent has met as many again", seconds(120), || {
        proxy.errors() >= met + ERRORS
    });
    assert_eq!(mark.mended_by(agents), [""; 0], "it judged by errors");

    proxy.fail(false);
    let took = until("the Service is back", seconds(120), || {
        world.uid(&service).is_some_and(|new| new != uid)
    });
    let what = "Service deleted while half of the answers are errors: errors over → back";
    figure("W25", &world.said(what), "", shown(took));
    let took = until("the image is as before", seconds(120), || spec() == good);
    let what = "wrong image while half of the answers are errors: errors over → right again";
    figure("W25", &world.said(what), "", shown(took));
    service
}

/// F56: what is installed is kept although the API server says that it is older than the engine's version is made for, and a
/// version that needs a newer one is not begun.
fn a_kubernetes_that_is_too_old_is_reported(
    world: &World,
    proxy: &Unreliable,
    (kubeconfig, agents): (&Path, &str),
) {
    let (before, known) = (wanted(world), on_record(world));
    let mark = Mark::now(&world.audit);
    // Flux 2.9 needs 1.33.
    proxy.pretend(32);
    let agent = Agent::start(world, kubeconfig, None);
    let mut heal = Value::Null;
    let took = until("the class is at the hub", seconds(240), || {
        let new = since(world, &known);
        let found = new.into_iter().find(|h| h["class"] == OLD);
        found.is_some_and(|found| {
            heal = found;
            true
        })
    });
    let what =
        "Kubernetes older than the engine's version is made for → called KubernetesUnsupported";
    figure("F56", what, "", shown(took));
    assert_eq!(heal["result"], json!("reported"), "{heal}");
    let evidence = heal["evidence"].to_string();
    assert!(
        evidence.contains("1.32") && evidence.contains("1.33"),
        "{heal}"
    );
    variant(world, "2.90.0", |text| text);
    let set = ["engine", "set", CLUSTER, "flux", "2.90.0"];
    let refused = output(&mut world.hub.cli(&set));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("needs Kubernetes 1.33") && said.contains("has 1.32"),
        "{said}"
    );
    world.function(seconds(60));
    let mut written = mark.mended_by(agents);
    // Who leads, on a Pod that is not there: it runs outside.
    written.retain(|write| write != "patch pods/linesman-agent-test");
    assert_eq!(written, [""; 0], "it mended something");
    assert_eq!(wanted(world), before);
    // As after an upgrade of the cluster.
    drop(agent);
    proxy.pretend(0);
    let _agent = Agent::start(world, kubeconfig, None);
    until("the report is over", seconds(180), || {
        let mut new = since(world, &known).into_iter();
        new.all(|h| !h["restoredAt"].is_null())
    });
}
