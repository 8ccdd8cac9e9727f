//! One step becomes a server-side apply, a delete or a restart.

use anyhow::{Context as _, Result, anyhow};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use super::calls::{AtMost, CALL, Refused, lacks_right};
use super::engine::alone;
use super::engine::argocd::{KEYRING, KNOWN_HOSTS, PROBED_AT, REFRESH, REFRESH_SET, signers};
use super::engine::guard::ALLOW_DELETE;
use super::engine::{GUARD, Install, MANAGER, REQUESTED_AT, is_workload};
use super::observe::{View, api, resource};
use super::plan::displaced::{self, Item};
use super::plan::history::Outcome;
use super::plan::quarantine::root::astray;
use super::plan::quarantine::unmarked;
use super::plan::state::Saved;
use super::plan::{Action, Observed, Step, argocd, project};
use super::saves::Saves;
use crate::bundle::{Kind, ObjectId};
use crate::clock;

mod admission;
mod aside;
mod claims;
mod dying;
mod forms;
mod kept;
mod migrate;
mod mounted;
mod pods;
mod recreate;
mod refused;
mod restore;
mod shield;

use forms::{immutable, is_fixed, of_seen, replacement};
use refused::failed;

/// What steps act on.
#[derive(Clone, Copy)]
pub struct Hands<'a> {
    pub kube: &'a Client,
    pub install: &'a Install,
    pub view: &'a View,
    /// What an object looked like when the step was planned.
    pub observed: &'a Observed,
    pub saves: &'a Saves,
}

/// What a step came to, and the objects that are to be brought back now: saved from a deletion, or still not back.
pub struct Done {
    pub outcome: Outcome,
    pub saved: Vec<Saved>,
    pub told: Told,
}

/// What people have to know beside the outcome.
#[derive(Debug, Default)]
pub struct Told {
    /// Why what is to be brought back is not on record.
    pub unrecorded: Option<String>,
    /// What is to be brought back without its inventory.
    pub bare: Option<String>,
}

impl Hands<'_> {
    /// Does one step. `saved` are the objects to bring back, for [`Action::Restore`] and [`Action::Release`].
    pub async fn act(&self, step: &Step, saved: &[Saved]) -> Done {
        let id = &step.target;
        let (mut kept, mut told) = (Vec::new(), Told::default());
        let result = match &step.action {
            Action::Create | Action::Apply | Action::WriteSecret => self.apply(id, None).await,
            Action::CreateHeld { note } => self.apply(id, Some(note)).await,
            Action::Replace => self.replace(id).await,
            Action::Reinstate { items } => self.reinstate(id, items).await,
            Action::Reset => self.reset(id).await,
            Action::Recreate { uid } => self.recreate(id, uid).await,
            Action::RestartPods { before } => self.restart(id, *before).await,
            Action::DropFailed => self.drop_failed(id).await,
            Action::DropSuperseded => self.drop_superseded(id).await,
            Action::Nudge => self.nudge(id).await,
            Action::Retry if id.kind == Kind::Application => self.begin_anew(id).await,
            Action::Retry => self.retry(id).await,
            Action::CutRights { uid } => self.delete(id, uid, PropagationPolicy::Background).await,
            Action::ScaleToZero => {
                let none = json!({"spec": {"replicas": 0}});
                self.merge(id, &none, GUARD).await
            }
            Action::Release => self.release(id, saved, &mut kept, &mut told).await,
            Action::Restore => self.restore(id, saved, &mut kept).await,
            Action::FreeLease { name, uid } => self.free_lease(&id.namespace, name, uid).await,
            Action::Lock => {
                let none = json!({"metadata": {"annotations": {ALLOW_DELETE: null}}});
                self.merge(id, &none, GUARD).await
            }
            Action::Hold { note } => self.mark(id, true, Some(note)).await,
            Action::Lift { note } => self.mark(id, false, Some(note)).await,
            Action::Settle => self.mark(id, false, None).await,
            Action::Reclaim => {
                let patch = unmarked(self.install, self.observed, id);
                self.merge_seen(id, patch).await
            }
            Action::Relinquish { .. } => self.relinquish(id).await,
            Action::Migrate { to, named } => self.migrate(id, to, named).await,
            Action::Shield(shield) => self.shield(id, shield).await,
            Action::Aside(turn) => self.aside(id, turn).await,
            Action::Terminate => {
                let end = json!({"status": {"operationState": {"phase": "Terminating"}}});
                self.merge(id, &end, MANAGER).await
            }
            Action::Unpin { keep } => {
                let patch = json!({"metadata": {"finalizers": keep}});
                self.merge_seen(id, patch).await
            }
            Action::Start { replicas } => {
                let patch = json!({"spec": {"replicas": replicas}});
                self.merge_seen(id, patch).await
            }
        };
        let outcome = result.unwrap_or_else(|error| failed(&error));
        if outcome == Outcome::Done && [KNOWN_HOSTS, KEYRING].contains(&id.name.as_str()) {
            self.remount().await;
        }
        Done {
            outcome,
            saved: kept,
            told,
        }
    }

    async fn apply(&self, id: &ObjectId, held: Option<&str>) -> Result<Outcome> {
        if let Some(keys) = self.install.keys_of(id)
            && let Some(live) = self.observed.objects.get(id)
        {
            let patch = signers::patch(id, keys, &live.fields);
            return self.merge(id, &patch, MANAGER).await;
        }
        let seen = self.observed.objects.get(id);
        let both = self.install.wanted.get(id).zip(seen);
        if let Some((wanted, live)) = both
            && let Some(patch) = alone::without(id, &wanted.expect, &live.fields)
        {
            let stripped = self.merge(id, &patch, MANAGER).await;
            return match stripped {
                Err(error) if is_fixed(id.kind, &error) => self.recreate(id, &live.uid).await,
                stripped => stripped,
            };
        }
        if let Some((wanted, live)) = both
            && let Some(patch) = signers::withdrawn(id, &wanted.expect, &live.fields)
        {
            self.merge(id, &patch, MANAGER).await?;
        }
        let new = seen.is_none();
        let body = if new {
            self.whole(id, held)?
        } else {
            self.body(id, held)?
        };
        let body = self.with_a_replica(id, body);
        match self.send(id, &body).await {
            Err(Refused::Status(status)) if immutable(id.kind, &status) => {
                let uid = self.observed.objects.get(id).map(|o| o.uid.clone());
                let uid = uid.ok_or_else(|| anyhow!("apply {id}: {}", status.message))?;
                self.recreate(id, &uid).await
            }
            Err(Refused::Status(status)) if migrate::is_outdated(&status) => {
                self.renew(id).await?;
                let sent = self.send(id, &body).await;
                sent.with_context(|| format!("apply {id}"))
            }
            Err(refused) => Err(anyhow!(refused).context(format!("apply {id}"))),
            Ok(outcome) => {
                if new {
                    self.keep(id).await;
                }
                Ok(outcome)
            }
        }
    }

    /// Where the manifest leaves the number of Pods to others and they chose none, as many as were last known good, or one: each of
    /// several has its share of the clusters.
    fn with_a_replica(&self, id: &ObjectId, mut body: Value) -> Value {
        let live = self.observed.objects.get(id);
        let none = live.is_some_and(|live| live.number("/spec/replicas") == 0);
        if is_workload(id.kind) && none && body.pointer("/spec/replicas").is_none() {
            let whole = self.install.whole(id).unwrap_or_default();
            let known = whole.pointer("/spec/replicas").and_then(Value::as_i64);
            body["spec"]["replicas"] = json!(known.filter(|n| *n > 0).unwrap_or(1));
        }
        body
    }

    async fn send(&self, id: &ObjectId, body: &Value) -> Result<Outcome, Refused> {
        let params = PatchParams::apply(MANAGER).force();
        let call = self
            .api(id)
            .patch(&id.name, &params, &Patch::Apply(body))
            .await_at_most(CALL)
            .await?;
        Ok(self.learn(id, call))
    }

    /// Puts the answer into view, so that the next plan knows of it. Nothing changed where the version is the same.
    fn learn(&self, id: &ObjectId, live: DynamicObject) -> Outcome {
        let live = project::object(id.kind, live);
        let before = self.observed.objects.get(id).map(|o| o.version);
        let same = before == Some(live.version);
        self.view.put(id, Some(live));
        if same {
            Outcome::Unchanged
        } else {
            Outcome::Done
        }
    }

    async fn merge(&self, id: &ObjectId, patch: &Value, manager: &str) -> Result<Outcome> {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let call = self
            .api(id)
            .patch(&id.name, &params, &Patch::Merge(patch))
            .await_at_most(CALL)
            .await;
        match call {
            Ok(live) => Ok(self.learn(id, live)),
            Err(refused) => Err(anyhow!(refused).context(format!("patch {id}"))),
        }
    }

    async fn nudge(&self, id: &ObjectId) -> Result<Outcome> {
        let now = clock::rfc3339(clock::now());
        let seen = self.observed.objects.get(id).map(AsRef::as_ref);
        let asks = match id.kind {
            Kind::Application => argocd::question(seen, &now),
            Kind::ApplicationSet => json!({REFRESH_SET: "true", PROBED_AT: now}),
            Kind::Namespace
            | Kind::CustomResourceDefinition
            | Kind::ClusterRole
            | Kind::ServiceAccount
            | Kind::ClusterRoleBinding
            | Kind::Role
            | Kind::RoleBinding
            | Kind::ResourceQuota
            | Kind::ConfigMap
            | Kind::Service
            | Kind::NetworkPolicy
            | Kind::Secret
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::GitRepository
            | Kind::HelmRepository
            | Kind::OciRepository
            | Kind::Bucket
            | Kind::HelmChart
            | Kind::Kustomization
            | Kind::HelmRelease
            | Kind::AppProject
            | Kind::Receiver
            | Kind::ImageRepository
            | Kind::ImageUpdateAutomation
            | Kind::ValidatingAdmissionPolicy
            | Kind::ValidatingAdmissionPolicyBinding => json!({REQUESTED_AT: now}),
        };
        let patch = json!({"metadata": {"annotations": asks}});
        if self.install.wanted.contains_key(id) {
            return self.merge(id, &patch, MANAGER).await;
        }
        // One of the catalog's is not part of what is observed of the install; an Application carries no time of ours.
        let patch = if id.kind == Kind::Application {
            let child = self.observed.children.get(id);
            let how = argocd::look(child.is_some_and(argocd::is_unsigned));
            json!({"metadata": {"annotations": {REFRESH: how}}})
        } else {
            patch
        };
        let call = self
            .api(id)
            .patch(&id.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await_at_most(CALL)
            .await;
        call.with_context(|| format!("refresh {id}"))?;
        Ok(Outcome::Done)
    }

    /// Has Argo CD look as if there had been no operation: it then begins one as it does by itself, with what the Application says now,
    /// and not where it would take all away. It forgets the one before in the same way (`util/argo`, `SetAppOperation`). One that
    /// somebody has begun meanwhile is left alone.
    async fn begin_anew(&self, id: &ObjectId) -> Result<Outcome> {
        let none = json!({"status": {"operationState": null}});
        let forgotten = self.merge_seen(id, none).await?;
        if forgotten.is_vain() {
            return Ok(forgotten);
        }
        self.nudge(id).await
    }

    /// The whole spec as wanted: apply cannot remove what other managers added.
    async fn replace(&self, id: &ObjectId) -> Result<Outcome> {
        if id.kind == Kind::ServiceAccount {
            let none = json!({"automountServiceAccountToken": null});
            return self.merge(id, &none, MANAGER).await;
        }
        let body = self
            .install
            .whole(id)
            .with_context(|| format!("{id} is not part of the install"))?;
        let spec = body
            .get("spec")
            .with_context(|| format!("{id} has no spec"))?;
        let live = self.view.get(id);
        let astray = live.map_or_else(Vec::new, |live| astray(id, &live));
        let patch = replacement(id.kind, spec, &astray);
        let (_, _, plural) = id.kind.resource();
        let group = resource(id.kind);
        let place = match id.namespace.as_str() {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let target = format!(
            "/apis/{}/{place}{plural}/{}?fieldManager={MANAGER}",
            group.api_version, id.name
        );
        let request = http::Request::patch(target)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .context("make the patch")?;
        let call = self.kube.request(request).await_at_most(CALL);
        let live: DynamicObject = call
            .await
            .with_context(|| format!("replace the spec of {id}"))?;
        Ok(self.learn(id, live))
    }

    /// Just these with the content that they had, of the object that was seen.
    async fn reinstate(&self, id: &ObjectId, items: &[Item]) -> Result<Outcome> {
        let wanted = self.install.wanted.get(id);
        let wanted = wanted.with_context(|| format!("{id} is not part of the install"))?;
        let seen = self.observed.objects.get(id);
        let seen = seen.with_context(|| format!("{id} was not seen"))?;
        let mut patch = displaced::patch(wanted, items);
        patch["metadata"]["uid"] = json!(seen.uid);
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.api(id), Patch::Strategic(&patch));
        let call = api.patch(&id.name, &params, &patch).await_at_most(CALL);
        let live = call.await.with_context(|| format!("patch {id}"))?;
        Ok(self.learn(id, live))
    }

    /// A patch of just the object that was seen, as it was seen: one that somebody made in its place, or has changed since,
    /// is looked at anew.
    async fn merge_seen(&self, id: &ObjectId, patch: Value) -> Result<Outcome> {
        let seen = self.observed.objects.get(id);
        let seen = seen.with_context(|| format!("{id} was not seen"))?;
        let sent = self.merge(id, &of_seen(seen, patch), GUARD).await;
        sent.or_else(|error| match error.downcast_ref::<Refused>() {
            Some(Refused::Status(status)) if matches!(status.code, 404 | 409) => {
                let said = status.message.chars().take(500).collect();
                Ok(Outcome::Unserved(said))
            }
            _ => Err(error),
        })
    }

    fn api(&self, id: &ObjectId) -> Api<DynamicObject> {
        api(self.kube, id.kind, &id.namespace)
    }
}

#[cfg(test)]
mod tests;
