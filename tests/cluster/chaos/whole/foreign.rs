//! W24, F45: engines that an operator or Project Syn's agent manages.

use std::fs;

use serde_json::{Value, json};

use crate::foreign::{objects, observed_only, says_why};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::place::{Place, run};
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const STEWARD: &str = "steward.syn.tools/bootstrap";

/// Who makes an engine by an object of a kind of its own.
struct Operator {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const FLUX_OPERATOR: Operator = Operator {
    name: "flux-operator",
    group: "fluxcd.controlplane.io",
    version: "v1",
    kind: "FluxInstance",
    plural: "fluxinstances",
};
const ARGOCD_OPERATOR: Operator = Operator {
    name: "argocd-operator",
    group: "argoproj.io",
    version: "v1beta1",
    kind: "ArgoCD",
    plural: "argocds",
};

impl Operator {
    /// Its kind, an object of that, and the engine that it would have made of it.
    fn installs(&self, world: &World) -> Value {
        let crd = format!("{}.{}", self.plural, self.group);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": crd},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"kind": self.kind, "plural": self.plural, "singular": self.kind.to_lowercase()},
                "versions": [{
                    "name": self.version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        world.api.create(CRDS, &definition);
        let namespace = world.namespace();
        if world.engine == ARGOCD {
            run(world
                .place
                .kubectl()
                .args(["create", "namespace", namespace]));
        }
        let file = world.directory.join("theirs.yaml");
        fs::write(&file, Place::bundle(world.engine)).unwrap();
        let manager = format!("--field-manager={}", self.name);
        let args = ["apply", "--server-side", &manager, "-n", namespace, "-f"];
        run(world.place.kubectl().args(args).arg(&file));
        let all = format!(
            "/apis/{}/{}/namespaces/{namespace}/{}",
            self.group, self.version, self.plural
        );
        until("its kind is served", seconds(60), || {
            world.api.try_get(&all).is_ok_and(|list| list.is_some())
        });
        let object = json!({
            "apiVersion": format!("{}/{}", self.group, self.version), "kind": self.kind,
            "metadata": {"name": "engine", "namespace": namespace}, "spec": {},
        });
        world.api.create(&all, &object);
        world.api.get(&format!("{all}/engine")).unwrap()
    }
}

/// Sets labels on the engine's Deployments, or takes them away.
fn label(world: &World, words: &[&str]) {
    let args = [
        "-n",
        world.namespace(),
        "label",
        "--overwrite",
        "deployments",
        "--all",
    ];
    run(world.place.kubectl().args(args).args(words));
}

/// The adoption stops before it has written anything, and says whose the engine is.
fn adopted_beside(world: &World, whose: &str) -> Mark {
    until("its Deployments are looked at", seconds(240), || {
        let all = format!("/apis/apps/v1/namespaces/{}/deployments", world.namespace());
        let all = world.api.get(&all).unwrap();
        let mut all = all["items"].as_array().unwrap().iter();
        all.all(|d| d["status"]["observedGeneration"] == d["metadata"]["generation"])
    });
    let before = objects(world);
    let mark = Mark::now(&world.audit);
    world.add();
    world.apply(&world.adopt);
    let what = format!("YAML applied beside an engine of {whose}");
    let took = is_told(world, whose);
    figure("W24", &format!("{what} → observed only"), "", shown(took));
    until("the adoption says why it stands still", seconds(60), || {
        observed_only(world).is_some_and(|(_, message)| says_why(world, &message))
    });
    assert_eq!(
        mark.written_in(world.namespace()),
        [""; 0],
        "the agent wrote"
    );
    assert_eq!(objects(world), before);
    mark
}

fn is_told(world: &World, whose: &str) -> std::time::Duration {
    let said = format!("carries the mark of another manager: {whose}");
    let look = || match observed_only(world) {
        Some((reason, message)) if reason == "ForeignManager" && message.ends_with(&said) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    let ((), took) = eventually("the hub says whose it is", seconds(180), look);
    took
}

/// What is gone of it is not put back.
fn stays_gone(world: &World, path: &str, mark: &Mark) {
    assert!(world.api.delete(path));
    until("the doctor misses it", seconds(120), || {
        let asked = ["doctor", "--cluster", CLUSTER, "-o", "json"];
        let output = world.hub.cli(&asked).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("missing")
    });
    assert_eq!(
        mark.written_in(world.namespace()),
        [""; 0],
        "the agent wrote"
    );
    assert_eq!(world.api.try_get(path), Ok(None));
}

/// W24: the Flux operator's label, then Project Syn's mark in its place.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_flux_of_its_operator_or_of_project_syn_is_only_observed() {
    let world = World::open("operated");
    FLUX_OPERATOR.installs(&world);
    label(&world, &[&format!("{MANAGED_BY}=flux-operator")]);
    let mark = adopted_beside(&world, "flux-operator");
    label(&world, &[&format!("{STEWARD}=true")]);
    label(&world, &[&format!("{MANAGED_BY}-")]);
    let took = is_told(&world, STEWARD);
    let what = "flux-operator's mark replaced by Project Syn's → named";
    figure("W24", what, "", shown(took));
    stays_gone(&world, &deployment(FLUX, "kustomize-controller"), &mark);
    world.close();
}

/// W24: what the Argo CD operator makes it owns.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_argo_cd_of_its_operator_is_only_observed() {
    let world = World::open_with("argoop", ARGOCD);
    let owner = ARGOCD_OPERATOR.installs(&world);
    let owns = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "engine",
        "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    let deployments = [
        "argocd-repo-server",
        "argocd-redis",
        "argocd-applicationset-controller",
    ];
    for path in deployments.map(|name| deployment(ARGOCD, name)) {
        let owned = json!({ "metadata": { "ownerReferences": owns } });
        world.api.patch(&path, &owned);
    }
    let mark = adopted_beside(&world, "ArgoCD engine");
    stays_gone(&world, &deployment(ARGOCD, "argocd-repo-server"), &mark);
    world.close();
}
