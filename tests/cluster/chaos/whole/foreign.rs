//! W24, F45: engines that an operator or Project Syn's agent manages, and one that somebody applied.

use std::fs;

use serde_json::{Value, json};

use crate::foreign::{objects, observed_only, says_why};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::place::{Place, run};
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, stays, until};

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
        applied(world, &Place::bundle(world.engine), self.name);
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

/// An engine as somebody else's program installs it, who is `manager` of its fields.
fn applied(world: &World, manifest: &str, manager: &str) {
    let namespace = world.namespace();
    if world.engine == ARGOCD {
        run(world
            .place
            .kubectl()
            .args(["create", "namespace", namespace]));
    }
    let file = world.directory.join("theirs.yaml");
    fs::write(&file, manifest).unwrap();
    let manager = format!("--field-manager={manager}");
    let args = ["apply", "--server-side", &manager, "-n", namespace, "-f"];
    run(world.place.kubectl().args(args).arg(&file));
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

/// The adoption stops before it has written anything, and says whose the engine is, which its message ends with.
fn adopted_beside(world: &World, whose: &str, said: &str) -> Mark {
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
    let took = is_told(world, said);
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

fn marked(whose: &str) -> String {
    format!("carries the mark of another manager: {whose}")
}

fn is_told(world: &World, said: &str) -> std::time::Duration {
    let look = || match observed_only(world) {
        Some((reason, message)) if reason == "ForeignManager" && message.ends_with(said) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    let ((), took) = eventually("the hub says whose it is", seconds(180), look);
    took
}

/// What is gone of it is not put back.
fn stays_gone(world: &World, path: &str, missed: &str, mark: &Mark) {
    assert!(world.api.delete(path));
    until("the doctor misses it", seconds(120), || {
        let asked = ["doctor", "--cluster", CLUSTER, "-o", "json"];
        let output = world.hub.cli(&asked).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(missed)
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
    let mark = adopted_beside(&world, "flux-operator", &marked("flux-operator"));
    label(&world, &[&format!("{STEWARD}=true")]);
    label(&world, &[&format!("{MANAGED_BY}-")]);
    let took = is_told(&world, &marked(STEWARD));
    let what = "flux-operator's mark replaced by Project Syn's → named";
    figure("W24", what, "", shown(took));
    let controller = deployment(FLUX, "kustomize-controller");
    stays_gone(&world, &controller, "missing", &mark);
    world.close();
}

/// W24: what the Argo CD operator makes it owns.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_argo_cd_of_its_operator_is_only_observed() {
    let world = World::open_with("argoop", ARGOCD);
    let made = ARGOCD_OPERATOR.installs(&world);
    let owns = json!([{
        "apiVersion": made["apiVersion"], "kind": made["kind"], "name": "engine",
        "uid": made["metadata"]["uid"], "controller": true,
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
    let owner = "ArgoCD engine";
    let mark = adopted_beside(&world, owner, &marked(owner));
    let repo_server = deployment(ARGOCD, "argocd-repo-server");
    stays_gone(&world, &repo_server, "missing", &mark);
    world.close();
}

/// W24: the stock install, six Deployments and a StatefulSet, that somebody applied. Nothing on it says whose it is; that it was
/// there before is enough. None of its rights in the whole cluster is written to either, also where one is gone.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_stock_argo_cd_that_somebody_applied_is_only_observed() {
    let world = World::open_with("argostock", ARGOCD);
    applied(&world, &Place::bundle("argocd-full"), "somebody");
    let count = |kind: &str| {
        let all = format!("/apis/apps/v1/namespaces/{ARGOCD}/{kind}");
        let all = world.api.get(&all).unwrap();
        all["items"].as_array().unwrap().len()
    };
    assert_eq!([count("deployments"), count("statefulsets")], [6, 1]);
    let before = rights(&world);
    let said = "before this cluster was adopted";
    let mark = adopted_beside(&world, "somebody, stock", said);
    assert_eq!(rights(&world), before);
    let repo_server = deployment(ARGOCD, "argocd-repo-server");
    stays_gone(&world, &repo_server, "missing", &mark);
    let role = path(RBAC, "ClusterRole", "", "argocd-application-controller");
    let missed = "missing: ClusterRole argocd-application-controller";
    stays_gone(&world, &role, missed, &mark);
    figure(
        "W24",
        "stock Argo CD of somebody, 6 Deployments and a StatefulSet, a Deployment and a ClusterRole deleted: writes of the agent",
        "0",
        mark.written_in(ARGOCD).len(),
    );
    world.close();
}

/// W24: the same with the hub stopped. The agent sees what is gone, and writes nothing.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_stock_argo_cd_that_somebody_applied_is_only_observed_without_the_hub() {
    let mut world = World::open_with("argoapart", ARGOCD);
    applied(&world, &Place::bundle("argocd-full"), "somebody");
    let said = "before this cluster was adopted";
    let mark = adopted_beside(&world, "somebody, stock", said);
    world.hub.stop();
    let repo_server = deployment(ARGOCD, "argocd-repo-server");
    let role = path(RBAC, "ClusterRole", "", "argocd-application-controller");
    let parts = [repo_server, role];
    for part in &parts {
        let before = installed(&world);
        assert!(world.api.delete(part));
        until("the agent misses it", seconds(240), || {
            installed(&world) < before
        });
        // Longer than any heal of this fault takes.
        stays("it is left alone", seconds(20), || {
            world.api.get(part).is_none()
        });
    }
    world.hub.up();
    is_told(&world, said);
    let written = mark.written_in(ARGOCD);
    figure(
        "W24",
        "stock Argo CD of somebody, hub stopped, a Deployment and a ClusterRole deleted: writes of the agent",
        "0",
        written.len(),
    );
    assert_eq!(written, [""; 0], "the agent wrote");
    let there = parts.map(|part| world.api.get(&part));
    assert_eq!(there, [None, None]);
    world.close();
}

/// How many of the engine's objects are there, as the agent said last in its log, which names no number where all are.
fn installed(world: &World) -> u64 {
    let mut kubectl = world.place.kubectl();
    let log = run(kubectl.args(["-n", "linesman", "logs", "deployment/linesman-agent"]));
    let mut said = log.lines();
    let last = said.rfind(|line| line.contains("condition=EngineInstalled"));
    let number = last.and_then(|line| {
        let (there, _) = line.split_once(" objects")?.0.rsplit_once(" of ")?;
        let digits = there.rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    });
    number.unwrap_or(u64::MAX)
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What Argo CD may do in the whole cluster: what is there, and the version in which it was written last.
fn rights(world: &World) -> Vec<String> {
    let of_kind = |kind: &str| {
        let all = world.api.get(&format!("/apis/{RBAC}/{kind}")).unwrap();
        all["items"].as_array().unwrap().clone()
    };
    let kinds = ["clusterroles", "clusterrolebindings"].into_iter();
    let told = kinds.flat_map(of_kind).map(|right| {
        let meta = &right["metadata"];
        json!([meta["name"], meta["uid"], meta["resourceVersion"]]).to_string()
    });
    told.filter(|right| right.contains("argocd-")).collect()
}
