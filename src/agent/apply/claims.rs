//! Giving the engine what the agent owns of an object.

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{AtMost as _, CALL, Hands};
use crate::agent::engine::MANAGER;
use crate::agent::plan::claims;
use crate::agent::plan::history::Outcome;
use crate::bundle::ObjectId;

impl Hands<'_> {
    /// What is observed keeps no managers of fields, so they are read here; a version that somebody has written since is refused
    /// (409), and looked at anew.
    pub(super) async fn relinquish(&self, id: &ObjectId) -> Result<Outcome> {
        let api = self.api(id);
        let call = api.get(&id.name).await_at_most(CALL).await;
        let live = call.with_context(|| format!("read {id}"))?;
        let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
        let engine = self.install.traits.applier;
        let Some(entries) = claims::given_up(entries, engine) else {
            return Ok(self.learn(id, live));
        };
        let patch = json!({"metadata": {
            "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version,
            "managedFields": entries,
        }});
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let call = api.patch(&id.name, &params, &patch).await_at_most(CALL);
        let live = call.await.with_context(|| format!("give up {id}"))?;
        Ok(self.learn(id, live))
    }
}
