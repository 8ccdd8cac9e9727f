//! What a step does to the simulated cluster, as the agent and the API server do it.

use serde_json::{Value, json};

use super::Cluster;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::engine::{GUARD, MANAGER, REQUESTED_AT, comparable, is_workload};
use crate::agent::plan::claims::Claim;
use crate::agent::plan::displaced::Item;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine::{self, mark, shield};
use crate::agent::plan::tests::damage::is_foreign;
use crate::agent::plan::undecodable::aside;
use crate::agent::plan::{Action, Object, Step, argocd, find, superseded};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;

mod patch;

use patch::{let_go, merge, over, pulled};

impl Cluster {
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
                // To the root is applied what holds, and who stopped it, made of it, as at the API server.
                let is_root = self.install.roots().any(|root| root == id);
                let root = is_root.then(|| self.observed());
                let install = root.map(|seen| {
                    let install = shield::shielded(&self.install, &seen);
                    find::as_stopped(install, id, &seen, &self.history).into_owned()
                });
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
            Action::Reinstate { items } => {
                let wanted = self.install.wanted[id].expect.as_ref().clone();
                let object = self.objects.get_mut(id).unwrap();
                object.fields["spec"]["template"] = wanted["spec"]["template"].clone();
                for item in items {
                    if let Item::Strategy(field) = item {
                        object.fields["spec"][*field] = wanted["spec"][*field].clone();
                    }
                }
                object.emptied.retain(|item| !items.contains(item));
                object.generation += 1;
                MANAGER.clone_into(&mut object.writer);
                Outcome::Done
            }
            Action::Reset => {
                let known = self.install.wanted[id].known.as_ref().unwrap();
                let known = known.as_ref().clone();
                let object = self.objects.get_mut(id).unwrap();
                object.fields["data"] = known;
                MANAGER.clone_into(&mut object.writer);
                Outcome::Done
            }
            Action::Migrate { to, .. } => {
                let crd = self.objects.get_mut(id).unwrap();
                crd.fields["status"]["storedVersions"] = json!([to]);
                Outcome::Done
            }
            Action::Retry if id.kind == Kind::Application => {
                let asked = rfc3339(self.now);
                let live = self.objects.get_mut(id).unwrap();
                merge(&mut live.fields["status"], &json!({"operationState": null}));
                let asks = argocd::question(Some(&*live), &asked);
                merge(&mut live.fields["metadata"]["annotations"], &asks);
                Outcome::Done
            }
            Action::Retry => Outcome::Unchanged,
            // One of the catalog's.
            Action::Nudge if !self.objects.contains_key(id) => Outcome::Done,
            Action::Nudge => {
                let asked = rfc3339(self.now);
                let live = self.objects.get_mut(id).unwrap();
                let asks = if id.kind == Kind::Application {
                    argocd::question(Some(&*live), &asked)
                } else {
                    json!({REQUESTED_AT: asked})
                };
                merge(&mut live.fields["metadata"]["annotations"], &asks);
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
            Action::Reclaim => {
                let patch = quarantine::unmarked(&self.install, &self.observed(), id);
                let object = self.objects.get_mut(id).unwrap();
                merge(&mut object.fields, &patch);
                object.marked = false;
                Outcome::Done
            }
            Action::Relinquish { .. } => {
                self.objects.get_mut(id).unwrap().claim = Claim::None;
                Outcome::Done
            }
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
            Action::DropSuperseded => {
                let gone: Vec<String> = self.objects.get(id).map_or_else(Vec::new, |live| {
                    let observed = self.observed();
                    let all = superseded::of(&observed, (id, live));
                    all.map(|(name, _)| name.to_owned()).collect()
                });
                self.pods.retain(|name, _| !gone.contains(name));
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
        let pulls = pulled(&wanted);
        let applied = live.map(|live| {
            let mut fields = live.fields.clone();
            if whole {
                fields["spec"] = wanted["spec"].clone();
            }
            let_go(&mut fields, &live.pulls, &pulls);
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
            claim: Claim::None,
            marked: false,
            stopped: None,
            applied: None,
            emptied: Vec::new(),
            pulls: Vec::new(),
            controller: String::new(),
            fields: Value::Null,
        };
        let object = self.objects.entry(id.clone()).or_insert(fresh);
        let annotations = object.fields.pointer("/metadata/annotations").cloned();
        let status = object.fields.get("status").cloned();
        object.version = self.serial;
        object.generation += 1;
        MANAGER.clone_into(&mut object.writer);
        object.claim = if object.marked {
            Claim::Beside
        } else {
            Claim::Alone
        };
        object.pulls = pulls;
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
}

pub(super) fn assert_harmless(step: &Step) {
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
        Action::DropSuperseded => assert_eq!(kind, Kind::StatefulSet),
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
        | Action::Reinstate { .. }
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
        | Action::Reclaim
        | Action::Relinquish { .. }
        | Action::Unpin { .. } => {}
    }
}
