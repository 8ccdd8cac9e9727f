//! Fields of a controller that somebody sets wrong by kubectl.

use std::time::Instant;

use serde_json::{Value, json};

use super::{LIMIT, all_that_runs, works};
use crate::support::api::deployment;
use crate::support::world::{FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// What of a controller people get wrong.
pub(crate) const WRONG: [&str; 4] = ["image", "arguments", "ServiceAccount", "volume"];

/// W8: those of kustomize-controller named by `which`, one after the other. Figures say the `case`.
pub(crate) fn fields_go_wrong(world: &World, case: &str, which: &[&str]) {
    let path = deployment(FLUX, "kustomize-controller");
    for field in which {
        wrong_at_once(world, case, &[(&path, field)]);
    }
    let what = format!("function after wrong fields ({case})");
    works(world, "W8", &what, "≤ 90 s");
}

/// W8: each of them of each controller of the engine. All controllers have one wrong at once, each another, in as many rounds as
/// there are fields.
pub(crate) fn all_go_wrong(world: &World, case: &str) {
    let all = all_that_runs(world);
    for round in 0..WRONG.len() {
        let field = |n: usize| WRONG[(n + round) % WRONG.len()];
        let pairs = all
            .iter()
            .enumerate()
            .map(|(n, path)| (path.as_str(), field(n)));
        // Redis has no volumes.
        let there = |(path, field): &(&str, &str)| {
            *field != "volume" || spec(world, path)["volumes"].is_array()
        };
        wrong_at_once(world, case, &pairs.filter(there).collect::<Vec<_>>());
    }
    let what = format!("function after wrong fields of all controllers ({case})");
    works(world, "W8", &world.said(&what), "≤ 90 s");
}

/// These fields of controllers, each with its path, set wrong at once: all are as before.
pub(crate) fn wrong_at_once(world: &World, case: &str, all: &[(&str, &str)]) {
    let good: Vec<_> = all
        .iter()
        .map(|(path, _)| chosen(&spec(world, path)))
        .collect();
    let began = Instant::now();
    for ((path, field), good) in all.iter().zip(&good) {
        let wrong = world.api.json_patch(path, &patch(world, path, field));
        let now = chosen(&wrong["spec"]["template"]["spec"]);
        assert_ne!(now, *good, "the {field} of {path} was not changed");
    }
    let names = all.iter().map(|(path, field)| {
        let name = path.rsplit('/').next().unwrap();
        format!("{field} of {name}")
    });
    let names = names.collect::<Vec<_>>().join(", ");
    until(&format!("as before: {names}"), seconds(LIMIT), || {
        let mut pairs = all.iter().zip(&good);
        pairs.all(|((path, _), good)| chosen(&spec(world, path)) == *good)
    });
    let what = format!("wrong {names} by kubectl → right again ({case})");
    let took = began.elapsed();
    figure("W8", &world.said(&what), "≤ 90 s", shown(took));
}

fn spec(world: &World, path: &str) -> Value {
    world.api.get(path).unwrap()["spec"]["template"]["spec"].clone()
}

/// What makes this field wrong.
fn patch(world: &World, path: &str, field: &str) -> Value {
    let pod = "/spec/template/spec";
    let container = format!("{pod}/containers/0");
    let (place, value) = match field {
        "image" => (format!("{container}/image"), json!("lab.invalid/none:0")),
        "arguments" => (format!("{container}/args"), json!(["--no-such-flag"])),
        "ServiceAccount" => (format!("{pod}/serviceAccountName"), json!("nobody")),
        "volume" => {
            // By the name that something mounts.
            let name = &spec(world, path)["volumes"][0]["name"];
            let other = json!({ "name": name, "configMap": { "name": "nobody" } });
            (format!("{pod}/volumes/0"), other)
        }
        "probe" => (
            format!("{container}/livenessProbe"),
            json!({ "tcpSocket": { "port": "healthz" } }),
        ),
        other => panic!("nobody gets {other} wrong"),
    };
    json!([{ "op": "replace", "path": place, "value": value }])
}

/// What the test breaks of a Pod's spec.
pub(crate) fn chosen(spec: &Value) -> [Value; 5] {
    let container = &spec["containers"][0];
    [
        container["image"].clone(),
        container["args"].clone(),
        spec["serviceAccountName"].clone(),
        spec["volumes"].clone(),
        container["livenessProbe"].clone(),
    ]
}
