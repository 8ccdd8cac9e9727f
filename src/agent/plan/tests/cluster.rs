//! The simulated cluster of the planner's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::damage::{BREAKS, Rival, is_foreign};
use super::{install_of, start};
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::engine::{GUARD, Install, MANAGER, REQUESTED_AT, comparable, is_workload};
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine::{self, mark, shield};
use crate::agent::plan::state::{Answer, Child, Scope};
use crate::agent::plan::undecodable::aside;
use crate::agent::plan::{
    Action, History, Object, Observed, Plan, Pod, Step, health, plan, project,
};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

/// A cluster that does what it is told at once, and whose controllers do their work.
pub(in crate::agent) struct Cluster {
    pub(in crate::agent::plan) install: Install,
    pub(in crate::agent::plan) history: History,
    pub(in crate::agent::plan) objects: BTreeMap<ObjectId, Object>,
    pub(in crate::agent::plan) pods: BTreeMap<String, Pod>,
    pub(in crate::agent::plan) now: OffsetDateTime,
    /// Applications below the root, as the API server has them.
    pub(in crate::agent::plan) applications: BTreeMap<ObjectId, Value>,
    /// The owner's list, where the cluster is shared.
    pub(in crate::agent::plan) covered: Option<BTreeSet<String>>,
    /// Whoever writes against us.
    pub(super) rival: Option<Rival>,
    pub(super) serial: u64,
    pub(in crate::agent::plan) steps: Vec<(OffsetDateTime, Step)>,
}

impl Cluster {
    pub(in crate::agent::plan) fn empty() -> Self {
        Self::empty_of(EngineKind::Flux)
    }

    pub(in crate::agent::plan) fn empty_of(engine: EngineKind) -> Self {
        Self::empty_with(install_of(engine))
    }

    pub(in crate::agent::plan) fn empty_with(install: Install) -> Self {
        Self {
            install,
            history: History::default(),
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            now: start(),
            applications: BTreeMap::new(),
            covered: None,
            rival: None,
            serial: 0,
            steps: Vec::new(),
        }
    }

    /// With a working, adopted install and a clean record.
    pub(in crate::agent) fn working() -> Self {
        Self::working_of(EngineKind::Flux)
    }

    pub(in crate::agent::plan) fn working_of(engine: EngineKind) -> Self {
        Self::working_with(install_of(engine))
    }

    pub(in crate::agent::plan) fn working_with(install: Install) -> Self {
        let mut cluster = Self::empty_with(install);
        cluster.settle(200);
        cluster.history = History {
            adopted: true,
            ..History::default()
        };
        cluster.steps.clear();
        cluster
    }

    pub(in crate::agent) fn observed(&self) -> Observed {
        let scope = Scope {
            answered: Some(self.now),
            answer: Answer::Whole,
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
            children: Arc::new(self.children()),
            covered: self.covered.clone(),
            ..Observed::default()
        }
    }

    fn children(&self) -> BTreeMap<ObjectId, Child> {
        let all = self.applications.iter().filter_map(|(id, live)| {
            let live = serde_json::from_value(live.clone()).unwrap();
            Some((id.clone(), project::child(id.kind, &live)?))
        });
        all.collect()
    }

    pub(in crate::agent::plan) fn plan(&self) -> Plan {
        plan(self.now, &self.install, &self.observed(), &self.history)
    }

    /// One round of the watchdog, then time passes.
    pub(in crate::agent::plan) fn round(&mut self) -> Plan {
        let observed = self.observed();
        self.history.noted(self.now, &self.install, &observed);
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
    pub(in crate::agent::plan) fn settle(&mut self, rounds: usize) {
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

    fn annotate(&mut self, id: &ObjectId, held: bool, note: Option<&str>) -> Outcome {
        let Some(object) = self.objects.get_mut(id) else {
            return Outcome::Failed("not found".to_owned());
        };
        quarantine::MANAGER.clone_into(&mut object.writer);
        object.written = Some(self.now);
        let said = object.annotation(shield::OPTIONS);
        let said = mark::annotations(self.install.traits.kind, said, held, note);
        merge(
            &mut object.fields["metadata"]["annotations"],
            &Value::Object(said),
        );
        Outcome::Done
    }

    fn shield(&mut self, id: &ObjectId, shield: &shield::Shield) -> Outcome {
        let ours = self.install.base(id).map(|body| &body["spec"]);
        if let Some(root) = self.objects.get_mut(id) {
            let patch = shield.patch(&root.fields, ours);
            merge(&mut root.fields, &patch);
            root.fields["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("resourceVersion");
        } else {
            let live = self.applications.get_mut(id).unwrap();
            let patch = shield.patch(live, None);
            merge(live, &patch);
        }
        Outcome::Done
    }

    fn turn(&mut self, id: &ObjectId, turn: &aside::Turn) -> Outcome {
        let Some(live) = self.applications.get_mut(id) else {
            return Outcome::Unserved("not found".to_owned());
        };
        let version = live["metadata"]["resourceVersion"].clone();
        let expects = &turn.patch["metadata"]["resourceVersion"];
        // As the API server has it, an empty one is none.
        if *expects != version && !(version.is_null() && *expects == json!("")) {
            return Outcome::Unserved("it was changed".to_owned());
        }
        self.serial += 1;
        let suspended = live["spec"]["suspend"].clone();
        merge(live, &turn.patch);
        live["metadata"]["resourceVersion"] = json!(self.serial.to_string());
        if live["spec"]["suspend"] != suspended && !live["spec"]["suspend"].is_null() {
            let fields = json!({"f:spec": {"f:suspend": {}}});
            live["metadata"]["managedFields"] = json!([
                {"manager": quarantine::MANAGER, "operation": "Update", "fieldsV1": fields},
            ]);
        }
        Outcome::Done
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each action")]
    pub(in crate::agent::plan) fn act(&mut self, step: &Step) -> Outcome {
        let id = &step.target;
        let namespace = ObjectId::new(Kind::Namespace, "", &self.install.namespace);
        let dying = |o: Option<&Object>| o.is_none_or(|o| o.deleting.is_some());
        match &step.action {
            Action::Create
            | Action::CreateHeld { .. }
            | Action::Apply
            | Action::Replace
            | Action::WriteSecret
            | Action::Recreate { .. } => {
                if id.kind.namespaced() && dying(self.objects.get(&namespace)) {
                    return Outcome::Failed("namespace".to_owned());
                }
                // To the root is applied what holds made of it, as at the API server.
                let root = (id.kind == Kind::Application).then(|| self.observed());
                let install = root.map(|seen| shield::shielded(&self.install, &seen).into_owned());
                let install = install.as_ref().unwrap_or(&self.install);
                let over = matches!(step.action, Action::Apply | Action::WriteSecret);
                let body = if over {
                    install.body(id)
                } else {
                    install.whole(id)
                };
                let mut body = body.unwrap();
                if let Action::CreateHeld { note } = &step.action {
                    body = mark::on(self.install.traits.kind, body, None, note);
                }
                self.put(id, body, step.action == Action::Replace)
            }
            Action::Reset => {
                let known = self.install.wanted[id].known.as_ref().unwrap();
                let known = known.as_ref().clone();
                let object = self.objects.get_mut(id).unwrap();
                object.fields["data"] = known;
                MANAGER.clone_into(&mut object.writer);
                Outcome::Done
            }
            Action::Migrate { to } => {
                let crd = self.objects.get_mut(id).unwrap();
                crd.fields["status"]["storedVersions"] = json!([to]);
                Outcome::Done
            }
            Action::Retry => Outcome::Unchanged,
            // One of the catalog's.
            Action::Nudge if !self.objects.contains_key(id) => Outcome::Done,
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
            Action::Start { replicas } => {
                let object = self.objects.get_mut(id).unwrap();
                object.fields["spec"]["replicas"] = json!(replicas);
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
            Action::Hold { note } => self.annotate(id, true, Some(note)),
            Action::Lift { note } => self.annotate(id, false, Some(note)),
            Action::Settle => self.annotate(id, false, None),
            Action::Shield(shield) => self.shield(id, shield),
            Action::Aside(turn) => self.turn(id, turn),
            Action::Unpin { keep } => {
                if let Some(object) = self.objects.get_mut(id) {
                    let others = object.finalizers.iter().filter(|f| is_foreign(f));
                    assert!(others.eq(keep), "only the engine's own are taken: {step:?}");
                    object.finalizers.clone_from(keep);
                }
                Outcome::Done
            }
            Action::Release => {
                let (ours, held) = (
                    self.install.traits,
                    id.kind == Kind::CustomResourceDefinition,
                );
                for (other, object) in &mut self.objects {
                    let (group, _, plural) = other.kind.resource();
                    if other == id || held && id.name == format!("{plural}.{group}") {
                        object.finalizers.retain(|f| !ours.is_finalizer(f));
                    }
                }
                Outcome::Done
            }
            Action::Restore | Action::FreeLease { .. } => Outcome::Done,
            Action::DropFailed => {
                self.pods
                    .retain(|_, pod| pod.app != id.name || pod.failed.is_none());
                Outcome::Done
            }
            Action::RestartPods { before } => {
                self.pods
                    .retain(|_, pod| pod.app != id.name || pod.created >= Some(*before));
                Outcome::Done
            }
        }
    }

    /// Server-side apply, which leaves what others added; or the whole spec in the place of the other.
    fn put(&mut self, id: &ObjectId, body: Value, whole: bool) -> Outcome {
        let mut wanted = comparable(id.kind, body);
        let live = self.objects.get(id);
        // As the agent sends it.
        let none = live.is_some_and(|live| live.number("/spec/replicas") == 0);
        if is_workload(id.kind) && none && wanted["spec"]["replicas"].is_null() {
            wanted["spec"]["replicas"] = json!(1);
        }
        let applied = live.map(|live| {
            let mut fields = live.fields.clone();
            if whole {
                fields["spec"] = wanted["spec"].clone();
            }
            over(&mut fields, &wanted, "");
            fields
        });
        if live.is_some_and(|live| applied.as_ref() == Some(&live.fields)) {
            return Outcome::Unchanged;
        }
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
            marked: false,
            controller: String::new(),
            fields: Value::Null,
        };
        let object = self.objects.entry(id.clone()).or_insert(fresh);
        let annotations = object.fields.pointer("/metadata/annotations").cloned();
        let status = object.fields.get("status").cloned();
        object.version = self.serial;
        object.generation += 1;
        MANAGER.clone_into(&mut object.writer);
        object.fields = applied.unwrap_or(wanted);
        if is_workload(id.kind) && object.fields["spec"]["replicas"].is_null() {
            object.fields["spec"]["replicas"] = json!(1);
        }
        let own = object.fields["metadata"]["annotations"].take();
        object.fields["metadata"]["annotations"] = annotations.unwrap_or(own);
        if object.fields["metadata"]["annotations"].is_null() {
            object.fields["metadata"]["annotations"] = json!({});
        }
        object.fields["status"] = status.unwrap_or_else(|| json!({}));
        Outcome::Done
    }

    /// What Kubernetes and Flux do meanwhile.
    pub(in crate::agent::plan) fn controllers(&mut self) {
        self.collect_the_dead();
        self.rival_writes();
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
                    let container = &object.fields["spec"]["template"]["spec"]["containers"][0];
                    let env = container["env"].as_array().into_iter().flatten();
                    let runs = object.fields["spec"]["replicas"] == json!(1)
                        && container["image"]
                            .as_str()
                            .is_some_and(|i| i.ends_with(":v1"))
                        && !env.into_iter().any(|e| e["name"] == json!(BREAKS))
                        && accounts.contains_key(&id.name);
                    let replicas = i32::from(runs);
                    object.fields["status"] = json!({"observedGeneration": object.generation, "replicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas});
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
        for id in self.install.roots().chain(self.install.canaries()) {
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
        let now = self.now;
        let over = |o: &Object| o.deleting.is_some_and(|at| now - at > Duration::seconds(3));
        if self.objects.get(&namespace).is_some_and(over) {
            self.objects
                .retain(|id, _| id.namespace.is_empty() && *id != namespace);
            self.pods.clear();
        }
        self.let_go();
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
}

/// Server-side apply of `wanted`: what only `live` has stays, also in lists whose items have names.
fn over(live: &mut Value, wanted: &Value, field: &str) {
    let keyed = ["containers", "initContainers", "env", "volumes"].contains(&field);
    match (live, wanted) {
        // Taken as one value.
        (live, wanted) if field == "selector" => *live = wanted.clone(),
        (Value::Object(live), Value::Object(wanted)) => {
            for (key, value) in wanted {
                over(live.entry(key).or_insert(Value::Null), value, key);
            }
        }
        (Value::Array(live), Value::Array(wanted)) if keyed => {
            for item in wanted {
                let same = live.iter_mut().find(|l| l["name"] == item["name"]);
                match same {
                    Some(live) => over(live, item, ""),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, wanted) => *live = wanted.clone(),
    }
}

/// JSON Merge Patch (RFC 7396).
fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        let map = into.as_object_mut().unwrap();
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn assert_harmless(step: &Step) {
    let kind = step.target.kind;
    match &step.action {
        Action::CutRights { .. } => assert_eq!(kind, Kind::ClusterRoleBinding),
        Action::ScaleToZero | Action::Start { .. } => assert!(is_workload(kind), "{step:?}"),
        Action::Terminate | Action::Shield(_) => assert_eq!(kind, Kind::Application),
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
        Action::DropFailed => assert!(is_workload(kind)),
        Action::Reset => assert_eq!(kind, Kind::ConfigMap),
        Action::Migrate { .. } => assert_eq!(kind, Kind::CustomResourceDefinition),
        Action::Aside(turn) => {
            let syncs = matches!(kind, Kind::Kustomization | Kind::HelmRelease);
            assert!(syncs || kind.is_source());
            let parts: Vec<&String> = turn.patch.as_object().unwrap().keys().collect();
            assert!(
                parts == ["metadata"] || parts == ["metadata", "spec"],
                "{turn:?}"
            );
            // What it brought is pruned by none of these.
            let spec = turn.patch.get("spec").and_then(Value::as_object);
            for name in [
                "prune",
                "path",
                "sourceRef",
                "targetNamespace",
                "deletionPolicy",
            ] {
                assert!(spec.is_none_or(|spec| !spec.contains_key(name)), "{turn:?}");
            }
        }
        Action::Create
        | Action::CreateHeld { .. }
        | Action::Apply
        | Action::Replace
        | Action::WriteSecret
        | Action::Nudge
        | Action::Retry
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
