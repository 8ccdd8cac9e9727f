//! Sync objects that died with their CRD are brought back.

use anyhow::{Result, anyhow, ensure};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::dying::{AT_ONCE, ATTEMPT};
use super::refused::is_silent;
use super::{AtMost as _, CALL, Hands, Refused, lacks_right};
use crate::agent::engine::GUARD;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::state::Saved;
use crate::bundle::ObjectId;

/// As whom they are applied.
const RESTORER: &str = "linesman-restore";

impl Hands<'_> {
    /// Brings back what [`Self::release`] kept. An object that cannot be brought back does not keep the others away: the next try
    /// begins with those that this one did not come to.
    pub(super) async fn restore(
        &self,
        crd: &ObjectId,
        saved: &[Saved],
        left: &mut Vec<Saved>,
    ) -> Result<Outcome> {
        let plural = crd.name.split('.').next().unwrap_or_default();
        let (begun, mut waiting) = (Instant::now(), saved);
        let (mut failed, mut first, mut silent) = (Vec::new(), None, false);
        while !waiting.is_empty() && !silent && begun.elapsed() < ATTEMPT {
            let (now, later) = waiting.split_at(waiting.len().min(AT_ONCE));
            waiting = later;
            let calls = now
                .iter()
                .map(|one| self.bring_back(plural, &one.object).boxed());
            let ends = join_all(calls.collect::<Vec<_>>()).await;
            for (one, end) in now.iter().zip(ends) {
                if let Err(error) = end {
                    silent |= is_silent(&error);
                    failed.push(one.clone());
                    first.get_or_insert_with(|| error.context(format!("restore {}", one.place())));
                }
            }
        }
        left.extend_from_slice(waiting);
        left.append(&mut failed);
        match (first, waiting.len()) {
            (Some(error), _) => Err(error),
            (None, 0) => Ok(Outcome::Done),
            (None, many) => Ok(Outcome::Failed(format!(
                "{many} objects of {crd} are brought back later: there are too many for one step"
            ))),
        }
    }

    /// Never by force: what somebody made under its name meanwhile is that one's.
    async fn bring_back(&self, plural: &str, object: &Value) -> Result<()> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (name, namespace, api_version) = (
            text("/metadata/name"),
            text("/metadata/namespace"),
            text("/apiVersion"),
        );
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: text("/kind").to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.kube.clone(), namespace, &served);
        let (body, status) = apart(object);
        let live = match api.get_opt(name).await_at_most(CALL).await? {
            Some(live) if live.metadata.deletion_timestamp.is_none() && !is_ours(&live) => {
                info!(
                    kind = served.kind,
                    namespace, name, "somebody has made it anew; it is left as it is"
                );
                return Ok(());
            }
            // Of a try before, that had not come to its inventory.
            Some(live) => live,
            None => {
                let (params, patch) = (PatchParams::apply(RESTORER), Patch::Apply(&body));
                let call = api.patch(name, &params, &patch);
                call.await_at_most(CALL).await?
            }
        };
        // What is applied to an object that still goes is lost with it.
        ensure!(
            live.metadata.deletion_timestamp.is_none(),
            "it is still being deleted"
        );
        with_inventory(&api, &live, status).await
    }
}

/// Whether it is one that was brought back.
fn is_ours(live: &DynamicObject) -> bool {
    let mut entries = live.metadata.managed_fields.iter().flatten();
    entries.any(|entry| entry.manager.as_deref() == Some(RESTORER))
}

/// What is applied of a saved object, and what of its status is brought back.
fn apart(object: &Value) -> (Value, Option<Value>) {
    let mut body = object.clone();
    let status = body.as_object_mut().and_then(|body| body.remove("status"));
    (body, status)
}

/// Gives a Kustomization the list of what it had brought, by which it prunes what leaves the catalog. One that has a list of its
/// own was never gone.
async fn with_inventory(
    api: &Api<DynamicObject>,
    live: &DynamicObject,
    status: Option<Value>,
) -> Result<()> {
    let Some(status) = status.filter(|_| live.data.pointer("/status/inventory").is_none()) else {
        return Ok(());
    };
    let name = live.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams {
        field_manager: Some(GUARD.to_owned()),
        ..PatchParams::default()
    };
    let call = api.patch_status(name, &params, &patch);
    match call.await_at_most(CALL).await {
        Ok(_) => Ok(()),
        // An adoption of before gives no right to it: the object is back all the same.
        Err(Refused::Status(status)) if lacks_right(&status) => {
            warn!(
                name,
                error = status.message,
                "back without its inventory: what left the catalog meanwhile is not pruned"
            );
            Ok(())
        }
        Err(refused) => Err(anyhow!(refused).context("bring the inventory back")),
    }
}

#[cfg(test)]
mod tests;
