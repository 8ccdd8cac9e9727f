//! An API server behind the API server: the real metrics-server, and `kubectl top`.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{NAMESPACE, POD, ready, user};
use crate::support::api::deployment;
use crate::support::place::{kubectl, lab, output, run};
use crate::support::world::{self, World, condition};
use crate::support::{eventually, figure, seconds, shown, until};

const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";

/// What a command printed and how it ended.
fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let output = output(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// L1, issue 4 §2: metrics and discovery of an aggregated API are what they are without the hub; it is asked as the user, and its
/// absence is told in the API server's own words.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_aggregated_api_and_kubectl_top_work_through_the_line() {
    let world = world::adopted();
    ready(&world);
    let file = world.directory.join("metrics-server.yaml");
    fs::write(&file, run(lab().args(["bundle", "metrics-server"]))).unwrap();
    world.apply(&file);
    let ((), took) = eventually("metrics are there", seconds(180), || metrics(&world));
    figure(
        "L1",
        "metrics-server applied → kubectl top through the line",
        "",
        shown(took),
    );
    for args in [
        &["get", "--raw", "/apis/metrics.k8s.io/v1beta1"][..],
        &["get", "--raw", "/openapi/v3/apis/metrics.k8s.io/v1beta1"],
        &["api-resources", "--api-group", "metrics.k8s.io"],
        &["get", "apiservices", "v1beta1.metrics.k8s.io", "-o", "name"],
        &["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes/none"],
    ] {
        let direct = said(world.place.kubectl().args(args));
        assert_eq!(said(world.through_line().args(args)), direct, "{args:?}");
    }

    // Asked as the user, by the API server's word: one who may look, and one without a right in the cluster.
    let asks = |kubeconfig: &std::path::Path| {
        let mut command = kubectl();
        command.arg("--kubeconfig").arg(kubeconfig);
        world.hub.environment(&mut command);
        said(command.args(["top", "pods", "-n", NAMESPACE, "--no-headers"]))
    };
    let viewer = user(&world, "watcher", &["--group", "view"]);
    eventually("one who may look sees the Pod", seconds(30), || {
        let (_, lines, error) = asks(&viewer);
        if lines.contains(POD) {
            Ok(())
        } else {
            Err(error)
        }
    });
    let stranger = user(&world, "stranger", &["--group", "nobodys"]);
    let refusal =
        "User \"linesman:stranger\" cannot list resource \"pods\" in API group \"metrics.k8s.io\"";
    eventually("a stranger is refused by name", seconds(30), || {
        let (code, lines, error) = asks(&stranger);
        let refused = code == Some(1) && lines.is_empty() && error.contains(refusal);
        if refused { Ok(()) } else { Err(error) }
    });

    let none = json!({"spec": {"replicas": 0}});
    world
        .api
        .patch(&deployment("kube-system", "metrics-server"), &none);
    until("its API server is gone", seconds(60), || {
        let live = world.api.get(SERVICE).unwrap();
        !condition(&live, "Available")
    });
    let args = ["top", "nodes"];
    let direct = said(world.place.kubectl().args(args));
    assert_eq!(direct.0, Some(1), "{direct:?}");
    assert_eq!(said(world.through_line().args(args)), direct);
    // Discovery of the tests after this one would tell of it.
    run(world.place.kubectl().args(["delete", "-f"]).arg(&file));
}

/// Both ways show the same nodes and Pods with figures.
fn metrics(world: &World) -> Result<(), String> {
    let pods = ["top", "pods", "-n", NAMESPACE, "--no-headers"];
    for args in [&["top", "nodes", "--no-headers"][..], &pods] {
        let ways = [world.place.kubectl(), world.through_line()];
        let shown = ways.map(|mut command| said(command.args(args)));
        let names = shown.clone().map(|(_, lines, _)| {
            let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
            let mut names: Vec<String> = lines.lines().filter_map(first).collect();
            names.sort();
            names
        });
        if names[0].is_empty() || names[0] != names[1] {
            return Err(format!("{shown:?}"));
        }
    }
    Ok(())
}
