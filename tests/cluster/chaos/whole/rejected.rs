//! W16, F36: Pods of the engine that its namespace's Pod Security does not take.

use serde_json::{Value, json};

use crate::blocked::{end_pods, fetcher, stateful_named_and_left};
use crate::healing::{LIMIT, heals, settle};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Taken away at the end, also of a test that fails: others share the cluster.
struct Restricted<'a>(&'a World);

impl<'a> Restricted<'a> {
    fn new(world: &'a World) -> Self {
        let restricted = Self(world);
        restricted.enforce(&json!("restricted"));
        restricted
    }

    fn enforce(&self, level: &Value) {
        let namespace = format!("/api/v1/namespaces/{}", self.0.namespace());
        let labels = json!({ "metadata": { "labels": { ENFORCE: level } } });
        self.0.api.patch(&namespace, &labels);
    }
}

impl Drop for Restricted<'_> {
    fn drop(&mut self) {
        self.enforce(&Value::Null);
    }
}

/// W16: somebody gives what fetches a right of the node's in a namespace that takes no such Pods. The class is known ≤ 30 s;
/// what was added is taken away again, and the engine works.
pub(super) fn named_and_mended(world: &World) {
    settle(world);
    let restricted = Restricted::new(world);
    let (_, name) = fetcher(world);
    let path = deployment(world.namespace(), name);
    let mark = Mark::now(&world.audit);
    let host = json!({ "spec": { "template": { "spec": { "hostPID": true } } } });
    world.api.patch(&path, &host);
    let seen = until("it is called PodSecurityBlocks", seconds(LIMIT), || {
        end_pods(world);
        let all = heals(world);
        let mut stand = all.iter().filter(|h| h["restoredAt"].is_null());
        stand.any(|h| h["class"] == "PodSecurityBlocks")
    });
    let what = format!("{name} given hostPID under enforce: restricted");
    figure(
        "W16",
        &world.case(&format!("{what} → called PodSecurityBlocks")),
        "≤ 30 s",
        shown(seen),
    );
    let back = until("it is as before, and available", seconds(LIMIT), || {
        let live = world.api.get(&path).unwrap_or_default();
        live["spec"]["template"]["spec"]["hostPID"].is_null() && world.engine_available()
    });
    figure(
        "W16",
        &world.case(&format!("{what} → as before")),
        "",
        shown(seen + back),
    );
    let written = mark.written_in(world.namespace());
    let of_it = |write: &String| write.ends_with(&format!(" deployments/{name}"));
    assert!(
        written.len() <= 5 && written.iter().all(of_it),
        "{written:?}"
    );
    drop(restricted);
    settle(world);
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn pods_that_pod_security_rejects_are_named_and_mended() {
    named_and_mended(&world::adopted());
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn pods_of_argo_cd_that_pod_security_rejects_are_named_and_mended() {
    named_and_mended(&world::adopted_argocd());
}

/// W16: quota, cordoned nodes and a webhook keep the Pod of the application-controller away, a StatefulSet's.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_keeps_the_pod_of_a_stateful_set_away_is_named_and_left() {
    stateful_named_and_left(&world::adopted_argocd());
}
