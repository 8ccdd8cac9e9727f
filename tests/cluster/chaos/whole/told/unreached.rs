//! F32: what applies does not reach what fetches, and both are well.

use std::process::Command;

use linesman::clock;
use serde_json::{Value, json};

use super::{Told, evidence, with_and_without_the_hub};
use crate::blocked::{fetcher, pods_of, pods_of_engine};
use crate::support::argocd;
use crate::support::place::{lab, output, run};
use crate::support::world::{self, ARGOCD, FLUX, World, kustomization};

/// What is asked to apply the catalog, and the label of the Pods that do.
fn applier(world: &World) -> (String, (&'static str, &'static str)) {
    if world.engine == ARGOCD {
        let (label, _) = fetcher(world);
        (argocd::root(), (label, "argocd-application-controller"))
    } else {
        (kustomization(FLUX), ("app", "kustomize-controller"))
    }
}

/// The node lets nothing of one Pod through to another one, until the end, also of a test that fails.
struct Cut<'a> {
    world: &'a World,
    from: String,
    to: String,
}

impl<'a> Cut<'a> {
    fn of(world: &'a World) -> Self {
        let (_, applies) = applier(world);
        let address = |labelled: (&str, &str)| {
            let pods = pods_of(world, labelled);
            let address = pods[0]["status"]["podIP"].as_str().unwrap();
            address.to_owned()
        };
        let cut = Self {
            world,
            from: address(applies),
            to: address(fetcher(world)),
        };
        run(&mut cut.rule("-I"));
        cut
    }

    fn rule(&self, what: &str) -> Command {
        let mut command = lab();
        command.args(["exec", self.world.place.lab(), "iptables", "-w", what]);
        command.args(["FORWARD", "-s", &self.from, "-d", &self.to, "-p", "tcp"]);
        command.args(["-j", "REJECT", "--reject-with", "tcp-reset"]);
        command
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let _gone = output(&mut self.rule("-D"));
    }
}

/// F32: the root says so, the Pod that would answer is told to be ready, and nothing is restarted.
fn unreached(world: &World) {
    let (root, _) = applier(world);
    let (_, name) = fetcher(world);
    let object = if world.engine == ARGOCD {
        format!("Application {ARGOCD}/linesman")
    } else {
        format!("Kustomization {FLUX}/{FLUX}")
    };
    let told = Told::before(world, ["F32", "ArtifactUnreachable"], object);
    let pods = pods_of_engine(world);
    let cut = Cut::of(world);
    let asks = |annotations: Value| {
        let asked = json!({ "metadata": { "annotations": annotations } });
        world.api.patch(&root, &asked);
    };
    if world.engine != ARGOCD {
        let now = clock::rfc3339(clock::now());
        asks(json!({ "reconcile.fluxcd.io/requestedAt": now }));
    }
    // Which is tried for minutes. Argo CD takes a question away unseen that comes while it writes down what it saw before.
    let heal = told.is_named(&format!("{name} not reached over the network"), || {
        let live = world.api.get(&root).unwrap_or_default();
        let said = live["status"]["conditions"].to_string();
        if world.engine == ARGOCD && !said.contains("connection refused") {
            asks(json!({ argocd::REFRESH: "normal" }));
        }
    });
    let (said, namespace) = (evidence(&heal), world.namespace());
    let behind = format!("; behind Service {namespace}/{name}: Pod {name}-");
    assert!(
        said.contains("connection refused")
            && said.contains(&behind)
            && said.ends_with(" is ready"),
        "{heal:#}"
    );
    drop(cut);
    told.is_over();
    assert_eq!(pods_of_engine(world), pods, "something was restarted");
}

/// F32: it is called some 275 s after the cut. kustomize-controller tries ten times, 5 to 30 s apart, before it says that it could not
/// fetch, which makes 215 s; and what it says then has to last for a minute.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_source_controller_that_is_not_reached_is_named() {
    with_and_without_the_hub(&mut world::adopted(), unreached);
}

/// F32
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_repo_server_that_is_not_reached_is_named() {
    with_and_without_the_hub(&mut world::adopted_argocd(), unreached);
}
