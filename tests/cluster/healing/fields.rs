//! Fields of a controller that somebody sets wrong by kubectl.

use std::time::Instant;

use serde_json::{Value, json};

use super::{LIMIT, works};
use crate::support::api::deployment;
use crate::support::world::{FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// What of kustomize-controller people get wrong.
pub(crate) const WRONG: [&str; 4] = ["image", "arguments", "ServiceAccount", "volume"];

/// W8: those of kustomize-controller named by `which` are as before. Figures say the `case`.
pub(crate) fn fields_go_wrong(world: &World, case: &str, which: &[&str]) {
    let path = deployment(FLUX, "kustomize-controller");
    let spec = || world.api.get(&path).unwrap()["spec"]["template"]["spec"].clone();
    let good = spec();
    let container = "/spec/template/spec/containers/0";
    let patches = [
        (
            "image",
            json!([{ "op": "replace", "path": format!("{container}/image"), "value": "lab.invalid/none:0" }]),
        ),
        (
            "arguments",
            json!([{ "op": "replace", "path": format!("{container}/args"), "value": ["--no-such-flag"] }]),
        ),
        (
            "ServiceAccount",
            json!([{ "op": "replace", "path": "/spec/template/spec/serviceAccountName", "value": "nobody" }]),
        ),
        (
            "volume",
            json!([{ "op": "replace", "path": "/spec/template/spec/volumes/0", "value": {
                "name": "temp", "configMap": { "name": "nobody" },
            } }]),
        ),
        (
            "probe",
            json!([{ "op": "replace", "path": format!("{container}/livenessProbe"), "value": {
                "tcpSocket": { "port": "healthz" },
            } }]),
        ),
    ];
    for (what, patch) in patches.iter().filter(|(what, _)| which.contains(what)) {
        let began = Instant::now();
        let wrong = world.api.json_patch(&path, patch);
        assert_ne!(
            chosen(&wrong["spec"]["template"]["spec"]),
            chosen(&good),
            "the {what} was not changed"
        );
        until(
            &format!("the {what} of kustomize-controller is as before"),
            seconds(LIMIT),
            || chosen(&spec()) == chosen(&good),
        );
        let took = began.elapsed();
        figure(
            "W8",
            &format!("wrong {what} by kubectl → right again ({case})"),
            "≤ 90 s",
            shown(took),
        );
    }
    let what = format!("function after wrong fields ({case})");
    works(world, "W8", &what, "≤ 90 s");
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
