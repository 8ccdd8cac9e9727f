//! Holds at the API server: the annotations of an object, and the settings of the Application that brings it.

use anyhow::{Context as _, Result, anyhow};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::engine::MANAGER as OURS;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine::shield::{OPTIONS, Shield};
use crate::agent::plan::quarantine::{MANAGER, mark};
use crate::bundle::ObjectId;

/// Argo CD writes an Application's status all the time, and with it its version.
const TRIES: usize = 5;

impl Hands<'_> {
    /// Says on an object that it is held, or no longer; `note` says why and since when.
    pub(super) async fn mark(
        &self,
        id: &ObjectId,
        held: bool,
        note: Option<&str>,
    ) -> Result<Outcome> {
        let live = self.observed.objects.get(id);
        let said = live.and_then(|live| live.annotation(OPTIONS));
        let annotations = mark::annotations(self.install.traits.kind, said, held, note);
        let patch = json!({"metadata": {"annotations": annotations}});
        self.merge(id, &patch, MANAGER).await
    }

    /// What is sent to bring an object about: with the hold that it is to have, or that it has by now.
    pub(super) fn body(&self, id: &ObjectId, held: Option<&str>) -> Result<Value> {
        self.marked(id, self.install.body(id), held)
    }

    /// The same with what others had added to the object.
    pub(super) fn whole(&self, id: &ObjectId, held: Option<&str>) -> Result<Value> {
        self.marked(id, self.install.whole(id), held)
    }

    fn marked(&self, id: &ObjectId, body: Option<Value>, held: Option<&str>) -> Result<Value> {
        let body = body.with_context(|| format!("{id} is not part of the install"))?;
        let engine = self.install.traits.kind;
        let live = self.view.get(id);
        let live = live.as_deref();
        let note = held.or_else(|| live.and_then(|live| mark::note(engine, live)));
        Ok(match note {
            Some(note) => mark::on(engine, body, live, note),
            None => body,
        })
    }

    /// The data of a ConfigMap as it was when the engine last worked with it.
    pub(super) async fn reset(&self, id: &ObjectId) -> Result<Outcome> {
        let known = self.install.wanted.get(id).and_then(|w| w.known.as_ref());
        let known = known.with_context(|| format!("{id} was never seen at work"))?;
        let live = self.observed.objects.get(id);
        let there = live.and_then(|live| live.fields.get("data"));
        let mut data = known.as_ref().clone();
        for key in there.and_then(Value::as_object).into_iter().flatten() {
            if data.get(key.0).is_none() {
                data[key.0] = Value::Null;
            }
        }
        self.merge(id, &json!({"data": data}), OURS).await
    }

    /// Makes an Application hold back just what `shield` says.
    pub(super) async fn shield(&self, id: &ObjectId, shield: &Shield) -> Result<Outcome> {
        let ours = self.install.base(id);
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.api(id);
        let mut last = None;
        for _ in 0..TRIES {
            let live = api.get(&id.name).await_at_most(CALL).await;
            let live = live.map_err(|refused| anyhow!(refused).context(format!("read {id}")))?;
            let before = live.metadata.resource_version.clone();
            let live = serde_json::to_value(live).context("read the Application")?;
            let patch = shield.patch(&live, ours.and_then(|body| body.get("spec")));
            let patch = Patch::Merge(&patch);
            let call = api.patch(&id.name, &params, &patch);
            match call.await_at_most(CALL).await {
                Ok(live) if self.install.wanted.contains_key(id) => return Ok(self.learn(id, live)),
                Ok(live) if live.metadata.resource_version == before => {
                    return Ok(Outcome::Unchanged);
                }
                Ok(_) => return Ok(Outcome::Done),
                Err(Refused::Status(status)) if status.code == 409 => last = Some(status.message),
                Err(refused) => return Err(anyhow!(refused).context(format!("patch {id}"))),
            }
        }
        Err(anyhow!(
            "patch {id}: it changes all the time: {}",
            last.unwrap_or_default()
        ))
    }
}
