use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::history::Outcome;
use super::state::Scope;
use super::*;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::engine::is_workload;
use crate::agent::engine::{GUARD, MANAGER, REQUESTED_AT, comparable};
use crate::agent::{DeployKey, Desired, Engine, EngineKeys};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock::rfc3339;
use crate::secret::Secret;
use crate::wire::api::EngineKind;

mod argocd;

const START: i64 = 1_800_000_000;

pub(super) fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(START).unwrap()
}

fn flux() -> Vec<(Kind, &'static str)> {
    vec![
        (Kind::Namespace, "flux-system"),
        (
            Kind::CustomResourceDefinition,
            "gitrepositories.source.toolkit.fluxcd.io",
        ),
        (
            Kind::CustomResourceDefinition,
            "kustomizations.kustomize.toolkit.fluxcd.io",
        ),
        (Kind::ClusterRole, "crd-controller-flux-system"),
        (Kind::ClusterRoleBinding, "cluster-reconciler-flux-system"),
        (Kind::ClusterRoleBinding, "crd-controller-flux-system"),
        (Kind::ServiceAccount, "source-controller"),
        (Kind::ServiceAccount, "kustomize-controller"),
        (Kind::Service, "source-controller"),
        (Kind::NetworkPolicy, "allow-egress"),
        (Kind::Deployment, "source-controller"),
        (Kind::Deployment, "kustomize-controller"),
    ]
}

fn argocd() -> Vec<(Kind, &'static str)> {
    vec![
        (Kind::CustomResourceDefinition, "applications.argoproj.io"),
        (
            Kind::CustomResourceDefinition,
            "applicationsets.argoproj.io",
        ),
        (Kind::CustomResourceDefinition, "appprojects.argoproj.io"),
        (Kind::ClusterRole, "argocd-application-controller"),
        (Kind::ClusterRoleBinding, "argocd-application-controller"),
        (Kind::ServiceAccount, "argocd-application-controller"),
        (Kind::ServiceAccount, "argocd-redis"),
        (Kind::ServiceAccount, "argocd-repo-server"),
        (Kind::Role, "argocd-redis"),
        (Kind::RoleBinding, "argocd-redis"),
        (Kind::ConfigMap, "argocd-cm"),
        (Kind::ConfigMap, "argocd-cmd-params-cm"),
        (Kind::Service, "argocd-redis"),
        (Kind::Service, "argocd-repo-server"),
        (Kind::Secret, "argocd-secret"),
        (Kind::NetworkPolicy, "argocd-redis-network-policy"),
        (Kind::Deployment, "argocd-redis"),
        (Kind::Deployment, "argocd-repo-server"),
        (Kind::StatefulSet, "argocd-application-controller"),
    ]
}

fn bundle(engine: EngineKind) -> Bundle {
    let (install, registry, part_of) = match engine {
        EngineKind::Flux => (flux(), "ghcr.io/fluxcd", "flux"),
        EngineKind::Argocd => (argocd(), "quay.io/argoproj/argocd", "argocd"),
    };
    let objects = install.into_iter().map(|(kind, name)| {
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": part_of}},
            "spec": {"some": "field"},
        });
        if is_workload(kind) {
            let image = match engine {
                EngineKind::Flux => format!("{registry}/{name}:v1"),
                EngineKind::Argocd => format!("{registry}:v1"),
            };
            let containers = json!([{"name": "manager", "image": image, "args": ["--a"]}]);
            object["spec"] =
                json!({"replicas": 1, "template": {"spec": {"containers": containers}}});
            if engine == EngineKind::Argocd {
                object["spec"].as_object_mut().unwrap().remove("replicas");
            }
        }
        if kind == Kind::ClusterRoleBinding {
            object["roleRef"] = json!({"kind": "ClusterRole", "name": "cluster-admin"});
        }
        object
    });
    Bundle::from_objects(objects.collect()).unwrap()
}

pub(in crate::agent) fn install() -> Install {
    install_of(EngineKind::Flux)
}

pub(in crate::agent) fn install_of(kind: EngineKind) -> Install {
    let bundle = bundle(kind);
    let engine = match kind {
        EngineKind::Flux => Engine::Flux,
        EngineKind::Argocd => Engine::Argocd(EngineKeys {
            session: Secret::new("session".to_owned()),
            redis: Secret::new("redis".to_owned()),
        }),
    };
    let assignment = json!({
        "cluster": {"name": "eu1", "id": "1"},
        "hub": {"id": "h", "urls": [], "ca": "", "keyset": []},
        "catalog": {
            "url": "ssh://git@git/catalog.git", "via": "direct", "branch": "main", "path": "clusters/eu1",
            "knownHosts": "git ssh-ed25519 AAAA", "deployKey": {"state": "registered"},
        },
        "engine": {"kind": kind, "version": "1", "bundle": bundle.digest, "size": 1},
        "revision": 1,
    });
    let desired = Desired {
        assignment: serde_json::from_value(assignment).unwrap(),
        bundle: Arc::new(bundle),
        deploy_key: DeployKey {
            unsettled: false,
            private: Secret::new("private".to_owned()),
            public: "public".to_owned(),
        },
        engine,
    };
    Install::new(&desired, &BTreeMap::new(), None)
}

/// A cluster that does what it is told at once, and whose controllers do their work.
pub(super) struct Cluster {
    pub(super) install: Install,
    pub(super) history: History,
    pub(super) objects: BTreeMap<ObjectId, Object>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) now: OffsetDateTime,
    serial: u64,
    steps: Vec<(OffsetDateTime, Step)>,
}

impl Cluster {
    fn empty() -> Self {
        Self::empty_of(EngineKind::Flux)
    }

    fn empty_of(engine: EngineKind) -> Self {
        Self {
            install: install_of(engine),
            history: History::default(),
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            now: start(),
            serial: 0,
            steps: Vec::new(),
        }
    }

    /// With a working, adopted install and a clean record.
    pub(super) fn working() -> Self {
        Self::working_of(EngineKind::Flux)
    }

    pub(super) fn working_of(engine: EngineKind) -> Self {
        let mut cluster = Self::empty_of(engine);
        cluster.settle(200);
        cluster.history = History {
            adopted: true,
            ..History::default()
        };
        cluster.steps.clear();
        cluster
    }

    pub(super) fn observed(&self) -> Observed {
        let scope = Scope {
            answered: Some(self.now),
            served: true,
        };
        Observed {
            objects: self
                .objects
                .iter()
                .map(|(id, o)| (id.clone(), Arc::new(o.clone())))
                .collect(),
            scopes: self
                .install
                .wanted
                .keys()
                .map(|id| (id.kind, scope))
                .collect(),
            pods: self
                .pods
                .iter()
                .map(|(n, p)| (n.clone(), Arc::new(p.clone())))
                .collect(),
            pods_at: Some(self.now),
            ..Observed::default()
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan(self.now, &self.install, &self.observed(), &self.history)
    }

    /// One round of the watchdog, then time passes.
    fn round(&mut self) -> Plan {
        let observed = self.observed();
        let plan = plan(self.now, &self.install, &observed, &self.history);
        assert_eq!(plan, self.plan(), "the same input gives the same plan");
        assert!(plan.next_look > self.now, "{plan:?}");
        assert!(plan.next_look <= self.now + Duration::minutes(1));
        self.history.saw(self.now, &plan);
        for step in &plan.steps {
            assert_harmless(step);
            let outcome = self.act(step);
            self.history.acted(self.now, step, &outcome, &observed);
            if step.action == Action::Restore {
                self.history.saved.remove(&step.target);
            }
            self.steps.push((self.now, step.clone()));
        }
        self.controllers();
        self.now = if plan.steps.is_empty() {
            plan.next_look
        } else {
            self.now + Duration::milliseconds(500)
        };
        plan
    }

    /// Rounds until nothing is wrong and function is proven.
    fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let plan = self.round();
            let proven = health::proven_since(&self.install, &self.observed());
            let current = proven.is_some_and(|p| self.history.last_write.is_none_or(|at| p >= at));
            if plan.findings.is_empty() && plan.steps.is_empty() && current {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.plan());
    }

    fn annotate(&mut self, id: &ObjectId, reconcile: Option<&str>, held: Option<&str>) -> Outcome {
        let object = self.objects.get_mut(id).unwrap();
        quarantine::MANAGER.clone_into(&mut object.writer);
        object.written = Some(self.now);
        let annotations = object.fields["metadata"]["annotations"].as_object_mut();
        let annotations = annotations.unwrap();
        for (name, value) in [(quarantine::RECONCILE, reconcile), (quarantine::HELD, held)] {
            match value {
                Some(value) => drop(annotations.insert(name.to_owned(), json!(value))),
                None => drop(annotations.remove(name)),
            }
        }
        Outcome::Done
    }

    pub(super) fn act(&mut self, step: &Step) -> Outcome {
        let id = &step.target;
        let namespace = ObjectId::new(Kind::Namespace, "", &self.install.namespace);
        let dying = |o: Option<&Object>| o.is_none_or(|o| o.deleting.is_some());
        match &step.action {
            Action::Create
            | Action::Apply
            | Action::Replace
            | Action::WriteSecret
            | Action::Recreate { .. } => {
                if id.kind.namespaced() && dying(self.objects.get(&namespace)) {
                    return Outcome::Failed("namespace".to_owned());
                }
                let body = self.install.body(id).unwrap();
                self.put(id, body, MANAGER);
                Outcome::Done
            }
            Action::Nudge => {
                let asked = rfc3339(self.now);
                let annotations =
                    &mut self.objects.get_mut(id).unwrap().fields["metadata"]["annotations"];
                if id.kind == Kind::Application {
                    annotations[PROBED_AT] = json!(asked);
                    annotations[REFRESH] = json!("normal");
                } else {
                    annotations[REQUESTED_AT] = json!(asked);
                }
                Outcome::Done
            }
            Action::CutRights { .. } => {
                self.objects.remove(id);
                Outcome::Done
            }
            Action::ScaleToZero => {
                let object = self.objects.get_mut(id).unwrap();
                object.fields["spec"]["replicas"] = json!(0);
                object.generation += 1;
                object.writer = GUARD.to_owned();
                Outcome::Done
            }
            Action::Lock => {
                let object = self.objects.get_mut(id).unwrap();
                let annotations = object.fields["metadata"]["annotations"].as_object_mut();
                annotations.unwrap().remove(ALLOW_DELETE);
                Outcome::Done
            }
            Action::Terminate => {
                self.objects.get_mut(id).unwrap().fields["status"] = json!({});
                Outcome::Done
            }
            Action::Hold { note } => self.annotate(id, Some("disabled"), Some(note)),
            Action::Lift { note } => self.annotate(id, None, Some(note)),
            Action::Settle => self.annotate(id, None, None),
            Action::Release | Action::Unpin { .. } | Action::Restore | Action::FreeLease { .. } => {
                Outcome::Done
            }
            Action::RestartPods { before } => {
                self.pods
                    .retain(|_, pod| pod.app != id.name || pod.created >= Some(*before));
                Outcome::Done
            }
        }
    }

    fn put(&mut self, id: &ObjectId, body: Value, writer: &str) {
        self.serial += 1;
        let fresh = Object {
            uid: format!("uid-{}", self.serial),
            version: self.serial,
            generation: 0,
            created: Some(self.now),
            deleting: None,
            finalizers: Vec::new(),
            writer: String::new(),
            written: None,
            ours: true,
            fields: Value::Null,
        };
        let object = self.objects.entry(id.clone()).or_insert(fresh);
        let annotations = object.fields.pointer("/metadata/annotations").cloned();
        let status = object.fields.get("status").cloned();
        object.version = self.serial;
        object.generation += 1;
        writer.clone_into(&mut object.writer);
        object.fields = comparable(id.kind, body);
        if is_workload(id.kind) && object.fields["spec"]["replicas"].is_null() {
            object.fields["spec"]["replicas"] = json!(1);
        }
        object.fields["metadata"]["annotations"] = annotations.unwrap_or_else(|| json!({}));
        object.fields["status"] = status.unwrap_or_else(|| json!({}));
    }

    /// What Kubernetes and Flux do meanwhile.
    fn controllers(&mut self) {
        self.collect_the_dead();
        let accounts: BTreeMap<String, OffsetDateTime> = self
            .objects
            .iter()
            .filter(|(id, _)| id.kind == Kind::ServiceAccount)
            .filter_map(|(id, o)| Some((id.name.clone(), o.created?)))
            .collect();
        let mut up = BTreeMap::new();
        for (id, object) in &mut self.objects {
            match id.kind {
                Kind::CustomResourceDefinition => {
                    object.fields["status"] =
                        json!({"conditions": [{"type": "Established", "status": "True"}]});
                }
                Kind::Deployment | Kind::StatefulSet => {
                    let runs = object.fields["spec"]["replicas"] == json!(1)
                        && object.fields["spec"]["template"]["spec"]["containers"][0]["image"]
                            .as_str()
                            .is_some_and(|i| i.ends_with(":v1"))
                        && accounts.contains_key(&id.name);
                    let replicas = i32::from(runs);
                    object.fields["status"] = json!({"observedGeneration": object.generation, "availableReplicas": replicas, "updatedReplicas": replicas});
                    if runs {
                        let pod = self.pods.entry(id.name.clone()).or_default();
                        pod.app.clone_from(&id.name);
                        pod.created.get_or_insert(self.now);
                        pod.running = pod.created;
                    }
                    let valid = self
                        .pods
                        .get(&id.name)
                        .is_some_and(|p| p.created >= accounts.get(&id.name).copied());
                    up.insert(id.name.clone(), runs && valid);
                }
                _ => {}
            }
        }
        self.pods.retain(|_, pod| up.contains_key(&pod.app));
        let rights = self.install.traits.rights.iter();
        let rights = rights.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
        let rights = rights.into_iter().all(|id| self.objects.contains_key(&id));
        let now = rfc3339(self.now);
        for id in self.install.roots() {
            let controller = self.install.controller(id).name;
            let works = rights && up.get(&controller).copied().unwrap_or_default();
            if let Some(root) = self.objects.get_mut(id).filter(|_| works) {
                if id.kind == Kind::Application {
                    let annotations = root.fields["metadata"]["annotations"].as_object_mut();
                    annotations.unwrap().remove(REFRESH);
                    root.fields["status"] = json!({
                        "reconciledAt": now, "sync": {"status": "Synced", "revision": "1"},
                        "operationState": {"phase": "Succeeded", "syncResult": {"revision": "1"}},
                    });
                    continue;
                }
                let asked = root.annotation(REQUESTED_AT).unwrap_or_default().to_owned();
                root.fields["status"] = json!({
                    "lastHandledReconcileAt": asked, "artifact": {"revision": "main@sha1:1"},
                    "lastAppliedRevision": "main@sha1:1", "lastAttemptedRevision": "main@sha1:1",
                    "conditions": [{"type": "Ready", "status": "True"}],
                });
            }
        }
    }

    fn collect_the_dead(&mut self) {
        let namespace = ObjectId::new(Kind::Namespace, "", &self.install.namespace);
        let over = |o: &Object| {
            o.deleting
                .is_some_and(|at| self.now - at > Duration::seconds(3))
        };
        if self.objects.get(&namespace).is_some_and(over) {
            self.objects
                .retain(|id, _| id.namespace.is_empty() && *id != namespace);
            self.pods.clear();
        }
        let crds: Vec<ObjectId> = self
            .objects
            .iter()
            .filter(|(id, o)| id.kind == Kind::CustomResourceDefinition && over(o))
            .map(|(id, _)| id.clone())
            .collect();
        for crd in crds {
            self.objects.remove(&crd);
            self.objects.retain(|id, _| {
                let (group, _, plural) = id.kind.resource();
                crd.name != format!("{plural}.{group}")
            });
        }
    }

    pub(super) fn damage(&mut self, what: &Damage) {
        let ids: Vec<ObjectId> = self.objects.keys().cloned().collect();
        let pick = |n: usize| ids[n % ids.len()].clone();
        match *what {
            Damage::Delete(n) => {
                let id = pick(n);
                match id.kind {
                    Kind::Namespace | Kind::CustomResourceDefinition => {
                        self.objects.get_mut(&id).unwrap().deleting = Some(self.now);
                    }
                    _ => drop(self.objects.remove(&id)),
                }
            }
            Damage::Field(n) => {
                let object = self.objects.get_mut(&pick(n)).unwrap();
                object.fields["spec"] = json!({});
                object.generation += 1;
                self.serial += 1;
                object.version = self.serial;
                "kubectl".clone_into(&mut object.writer);
            }
            Damage::Scale(name) => self.alter(name, "/spec/replicas", json!(0)),
            Damage::Image(name) => self.alter(
                name,
                "/spec/template/spec/containers/0/image",
                json!("bad:0"),
            ),
        }
    }

    fn alter(&mut self, workload: &str, pointer: &str, value: Value) {
        let mut objects = self.objects.iter_mut();
        let found = objects.find(|(id, _)| is_workload(id.kind) && id.name == workload);
        if let Some((_, object)) = found
            && let Some(field) = object.fields.pointer_mut(pointer)
        {
            *field = value;
            object.generation += 1;
            "kubectl".clone_into(&mut object.writer);
        }
    }
}

fn assert_harmless(step: &Step) {
    let kind = step.target.kind;
    match &step.action {
        Action::CutRights { .. } => assert_eq!(kind, Kind::ClusterRoleBinding),
        Action::ScaleToZero => assert!(is_workload(kind), "{step:?}"),
        Action::Terminate => assert_eq!(kind, Kind::Application),
        Action::Recreate { .. } => assert!(
            !matches!(
                kind,
                Kind::Namespace
                    | Kind::CustomResourceDefinition
                    | Kind::GitRepository
                    | Kind::Kustomization
                    | Kind::AppProject
                    | Kind::Application
            ),
            "{step:?}"
        ),
        Action::RestartPods { .. } => {
            assert!(is_workload(kind) || kind == Kind::ServiceAccount);
        }
        Action::Create
        | Action::Apply
        | Action::Replace
        | Action::WriteSecret
        | Action::Nudge
        | Action::Release
        | Action::Restore
        | Action::Lock
        | Action::FreeLease { .. }
        | Action::Hold { .. }
        | Action::Lift { .. }
        | Action::Settle
        | Action::Unpin { .. } => {}
    }
}

#[derive(Debug, Clone)]
pub(super) enum Damage {
    Delete(usize),
    Field(usize),
    Scale(&'static str),
    Image(&'static str),
}

fn damages() -> impl Strategy<Value = (EngineKind, Vec<Damage>)> {
    let flux = damages_of(&["source-controller", "kustomize-controller"]);
    let argocd = damages_of(&[
        "argocd-application-controller",
        "argocd-repo-server",
        "argocd-redis",
    ]);
    prop_oneof![
        flux.prop_map(|all| (EngineKind::Flux, all)),
        argocd.prop_map(|all| (EngineKind::Argocd, all)),
    ]
}

fn damages_of(names: &'static [&'static str]) -> impl Strategy<Value = Vec<Damage>> {
    let name = prop::sample::select(names);
    let one = prop_oneof![
        4 => any::<usize>().prop_map(Damage::Delete),
        2 => any::<usize>().prop_map(Damage::Field),
        1 => name.clone().prop_map(Damage::Scale),
        1 => name.prop_map(Damage::Image),
    ];
    prop::collection::vec(one, 1..12)
}

#[test]
fn an_empty_cluster_is_installed_in_stages() {
    let mut cluster = Cluster::empty();
    cluster.settle(100);
    let order: Vec<Kind> = cluster
        .steps
        .iter()
        .filter(|(_, s)| s.action == Action::Create)
        .map(|(_, s)| s.target.kind)
        .collect();
    let first = |kind| order.iter().position(|k| *k == kind).unwrap();
    assert_eq!(first(Kind::Namespace), 0);
    assert!(first(Kind::RoleBinding) < first(Kind::ServiceAccount));
    assert!(first(Kind::ServiceAccount) < first(Kind::Deployment));
    assert!(first(Kind::CustomResourceDefinition) < first(Kind::GitRepository));
    let last = cluster.steps.last().unwrap().0;
    assert!(last - start() < Duration::seconds(30), "{}", last - start());
}

#[test]
fn a_healthy_install_is_only_probed() {
    let mut cluster = Cluster::working();
    let end = cluster.now + Duration::hours(1);
    while cluster.now < end {
        cluster.round();
    }
    assert!(cluster.steps.iter().all(|(_, s)| s.action == Action::Nudge));
    // A probe of each root every five minutes.
    assert!(
        (20..=28).contains(&cluster.steps.len()),
        "{}",
        cluster.steps.len()
    );
}

#[test]
fn nothing_is_judged_before_all_kinds_are_known() {
    let cluster = Cluster::empty();
    let plan = plan(
        cluster.now,
        &cluster.install,
        &Observed::default(),
        &cluster.history,
    );
    assert_eq!((plan.mode, plan.steps), (Mode::Learning, Vec::new()));
}

#[test]
fn a_dying_crd_costs_the_engine_its_rights_first() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    );
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let plan = cluster.round();
    let actions: Vec<&str> = plan.steps.iter().map(|s| s.action.as_str()).collect();
    assert_eq!(
        actions,
        ["cut-rights", "cut-rights", "scale-to-zero", "release"]
    );
    cluster.settle(100);
    let back = |kind| {
        cluster
            .steps
            .iter()
            .position(|(_, s)| s.action == Action::Create && s.target.kind == kind)
            .unwrap()
    };
    assert!(back(Kind::CustomResourceDefinition) < back(Kind::ClusterRoleBinding));
}

#[test]
fn a_dying_source_crd_leaves_the_rights_alone() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "gitrepositories.source.toolkit.fluxcd.io",
    );
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let actions: Vec<&str> = cluster
        .round()
        .steps
        .iter()
        .map(|s| s.action.as_str())
        .collect();
    assert_eq!(actions, ["release"]);
    // It may take long; what else breaks is mended meanwhile.
    cluster.damage(&Damage::Image("kustomize-controller"));
    assert!(
        cluster
            .round()
            .steps
            .iter()
            .any(|s| s.action == Action::Apply)
    );
    cluster.settle(100);
}

#[test]
fn scaling_to_zero_is_undone_after_half_a_minute() {
    let mut cluster = Cluster::working();
    let fault = cluster.now;
    cluster.damage(&Damage::Scale("kustomize-controller"));
    cluster.settle(100);
    let (at, step) = cluster
        .steps
        .iter()
        .find(|(_, s)| s.action == Action::Apply)
        .unwrap();
    assert_eq!(step.cause.as_ref().unwrap().0, Class::ScaledToZero);
    assert!(
        (30..=35).contains(&(*at - fault).whole_seconds()),
        "{}",
        *at - fault
    );
}

#[test]
fn a_fault_that_returns_for_ever_is_not_hammered() {
    let mut cluster = Cluster::working();
    let end = cluster.now + Duration::hours(3);
    while cluster.now < end {
        cluster.damage(&Damage::Image("source-controller"));
        cluster.round();
    }
    let applied: Vec<OffsetDateTime> = cluster
        .steps
        .iter()
        .filter(|(_, s)| s.action == Action::Apply)
        .map(|(at, _)| *at)
        .collect();
    for at in &applied {
        let within = applied
            .iter()
            .filter(|b| *at - **b < Duration::hours(1) && **b <= *at)
            .count();
        assert!(within <= 5, "{within} within an hour");
    }
    assert!(applied.len() >= 6, "trials go on: {}", applied.len());
    assert!(applied.len() <= 8, "once an hour: {}", applied.len());
    assert_eq!(cluster.plan().exhausted.len(), 1);
}

#[test]
fn what_an_apply_finds_equal_is_left_alone() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Field(0));
    let observed = cluster.observed();
    let plan = cluster.plan();
    let step = plan.steps.first().unwrap();
    cluster
        .history
        .acted(cluster.now, step, &Outcome::Unchanged, &observed);
    assert_eq!(cluster.plan().findings, Vec::new());
}

#[test]
fn a_window_and_a_foreign_manager_stop_all_writes() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let until = cluster.now + Duration::hours(1);
    cluster.objects.get_mut(&namespace).unwrap().fields["metadata"]["annotations"][MAINTENANCE] =
        json!(rfc3339(until));
    cluster.damage(&Damage::Image("source-controller"));
    let paused = cluster.plan();
    assert_eq!(
        (paused.mode, paused.steps),
        (Mode::Paused(until), Vec::new())
    );
    cluster.now = until + Duration::seconds(1);
    assert_eq!(cluster.plan().mode, Mode::Act);
    cluster.objects.get_mut(&namespace).unwrap().fields["metadata"]["labels"]["app.kubernetes.io/managed-by"] =
        json!("flux-operator");
    let foreign = cluster.plan();
    assert_eq!(
        (foreign.mode, foreign.steps),
        (Mode::ObserveOnly, Vec::new())
    );
}

#[test]
fn a_suspended_root_is_reported_and_left_suspended() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    cluster.objects.get_mut(&sync).unwrap().fields["spec"]["suspend"] = json!(true);
    let plan = cluster.plan();
    assert_eq!(
        plan.findings.iter().map(|f| f.class).collect::<Vec<_>>(),
        [Class::SuspendedByHuman]
    );
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
}

#[test]
fn a_wedged_controller_is_restarted_and_a_busy_one_is_not() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let object = cluster.objects.get_mut(&sync).unwrap();
    object.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    object.fields["status"]["conditions"] = json!([{"type": "Reconciling", "status": "True"}]);
    cluster.now += Duration::seconds(120);
    assert_eq!(cluster.plan().steps, Vec::new());
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!([]);
    let steps = cluster.plan().steps;
    assert_eq!(
        steps
            .iter()
            .map(|s| (s.action.as_str(), s.target.name.as_str()))
            .collect::<Vec<_>>(),
        [("restart", "kustomize-controller")]
    );
}

#[test]
fn the_hubs_word_of_a_new_head_asks_the_source_once() {
    let mut cluster = Cluster::working();
    cluster.history.head = Some(("2".to_owned(), cluster.now));
    let steps = cluster.round().steps;
    assert_eq!(
        steps.iter().map(|s| &s.target).collect::<Vec<_>>(),
        [&cluster.install.source]
    );
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_permission_to_delete_ends_with_its_time() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let now = cluster.now;
    for (word, kept) in [
        (rfc3339(now + Duration::hours(1)), true),
        (rfc3339(now - Duration::seconds(1)), false),
        (rfc3339(now + Duration::hours(25)), false),
        ("forever".to_owned(), false),
    ] {
        let object = cluster.objects.get_mut(&namespace).unwrap();
        object.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(word);
        let plan = cluster.plan();
        let locked = plan.steps.iter().any(|s| s.action == Action::Lock);
        assert_eq!(locked, !kept, "{word}");
        assert_eq!(plan.findings, Vec::new());
    }
    cluster.settle(10);
    assert_eq!(cluster.objects[&namespace].annotation(ALLOW_DELETE), None);
}

/// F17: applying it would be refused; what to do is told instead.
#[test]
fn a_crd_that_stores_a_lost_version_is_reported_and_not_applied() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "gitrepositories.source.toolkit.fluxcd.io",
    );
    let mut wanted = cluster.install.wanted[&crd].clone();
    let versions = json!({"spec": {"versions": [{"name": "v1"}]}});
    wanted.expect = Arc::new(versions);
    cluster.install.wanted.insert(crd.clone(), wanted);
    let live = cluster.objects.get_mut(&crd).unwrap();
    live.fields["spec"] = json!({"versions": [{"name": "v1"}, {"name": "v1beta2"}]});
    live.fields["status"]["storedVersions"] = json!(["v1beta2", "v1"]);
    let plan = cluster.plan();
    let found: Vec<(Class, &str)> = plan
        .findings
        .iter()
        .map(|f| (f.class, f.evidence.as_str()))
        .collect();
    assert_eq!(
        found,
        [(
            Class::CrdStoredVersion,
            "stores objects in v1beta2, which the bundle does not have"
        )]
    );
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
}

/// F11: with an address of nobody, each event stalls a reconciliation.
#[test]
fn events_for_nobody_are_switched_off() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let args = "/spec/template/spec/containers/0/args";
    let mut wanted = cluster.install.wanted[&id].clone();
    let mut expect = wanted.expect.as_ref().clone();
    *expect.pointer_mut(args).unwrap() = json!(["--events-addr="]);
    wanted.expect = Arc::new(expect);
    cluster.install.wanted.insert(id, wanted);
    cluster.alter(
        "source-controller",
        args,
        json!(["--events-addr=http://notification-controller"]),
    );
    let plan = cluster.plan();
    let steps: Vec<(&str, Class)> = plan
        .steps
        .iter()
        .map(|s| (s.action.as_str(), s.cause.as_ref().unwrap().0))
        .collect();
    assert_eq!(steps, [("apply", Class::EventSinkMissing)]);
}

/// F13: the Lease of a Pod that is gone is deleted, at most three times an hour.
#[test]
fn a_stuck_leader_loses_its_lease() {
    let cluster = Cluster::working();
    let mut observed = cluster.observed();
    let lease = state::Lease {
        uid: "lease".to_owned(),
        holder: "gone".to_owned(),
        renewed: cluster.now - Duration::minutes(5),
        seen: cluster.now,
    };
    observed
        .leases
        .insert("source-controller".to_owned(), lease);
    let later = cluster.now + Duration::seconds(80);
    let plan = plan(later, &cluster.install, &observed, &cluster.history);
    let freed = Action::FreeLease {
        uid: "lease".to_owned(),
    };
    let actions: Vec<&Action> = plan.steps.iter().map(|s| &s.action).collect();
    assert_eq!(actions, [&freed]);
}

#[test]
fn an_api_server_without_admission_policies_is_done_without() {
    let mut cluster = Cluster::working();
    cluster.objects.retain(|id, _| !id.kind.optional());
    let missing = cluster.plan().findings;
    assert_eq!(missing.len(), 2, "{missing:?}");
    let mut observed = cluster.observed();
    for (kind, scope) in &mut observed.scopes {
        scope.served = !kind.optional();
    }
    let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    assert_eq!((plan.mode, plan.findings), (Mode::Act, Vec::new()));
}

#[test]
fn host_key_and_key_trouble_are_told_apart() {
    let cases = [
        (
            "failed to checkout: knownhosts: key mismatch",
            Class::HostKeyMismatch,
        ),
        (
            "ssh: handshake failed: ssh: unable to authenticate",
            Class::KeyRevoked,
        ),
        ("dial tcp: lookup git: no such host", Class::GitUnreachable),
    ];
    for (message, class) in cases {
        let mut cluster = Cluster::working();
        let source = cluster.install.source.clone();
        cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message}]);
        let plan = cluster.plan();
        assert_eq!(
            plan.findings.iter().map(|f| f.class).collect::<Vec<_>>(),
            [class]
        );
        assert_eq!(plan.steps, Vec::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_repaired((engine, damage) in damages()) {
        let mut cluster = Cluster::working_of(engine);
        let began = cluster.now;
        for one in &damage {
            cluster.damage(one);
        }
        cluster.settle(400);
        prop_assert!(cluster.now - began < Duration::minutes(10), "{}", cluster.now - began);
    }

    #[test]
    fn budgets_hold_whatever_keeps_breaking((engine, damage) in damages(), again in 1_usize..5) {
        let mut cluster = Cluster::working_of(engine);
        for round in 0..200 {
            if round % again == 0 && !cluster.objects.is_empty() {
                cluster.damage(&damage[round % damage.len()]);
            }
            cluster.round();
        }
        for (at, step) in &cluster.steps {
            let Some((class, object)) = &step.cause else { continue };
            if let fault::Budget::PerHour(limit) = class.budget() {
                let times: std::collections::BTreeSet<OffsetDateTime> = cluster.steps.iter()
                    .filter(|(t, s)| s.cause.as_ref() == Some(&(*class, object.clone())) && *at - *t < Duration::hours(1) && t <= at)
                    .map(|(t, _)| *t)
                    .collect();
                prop_assert!(times.len() <= limit, "{class} {object}: {}", times.len());
            }
        }
    }
}
