//! Stored versions of a CRD: every object is written once, so that the API server stores it in the version that it
//! stores new ones in, and then the versions that nothing is stored in are forgotten (KEP-4192 describes the same).

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::engine::MANAGER;
use crate::agent::plan::history::Outcome;
use crate::bundle::ObjectId;

/// One attempt; the next one begins anew, and finds most objects written.
const ATTEMPT: Duration = Duration::from_mins(2);
const PAGE: u32 = 100;
/// So many writes are under way at once: one after the other, an API server that takes 50 ms for each gets through 2,400 in an
/// attempt, and no attempt would come to an end where there are more.
const AT_ONCE: usize = 8;

impl Hands<'_> {
    /// Writes all objects of a CRD in version `to`, then takes all other versions from its status.
    pub(super) async fn migrate(&self, crd: &ObjectId, to: &str) -> Result<Outcome> {
        timeout(ATTEMPT, self.rewrite(crd, to))
            .await
            .with_context(|| {
                format!("rewrite the objects of {crd} in {} s", ATTEMPT.as_secs())
            })??;
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let stored = Patch::Merge(json!({"status": {"storedVersions": [to]}}));
        let api = self.api(crd);
        let call = api.patch_status(&crd.name, &params, &stored);
        match call.await_at_most(CALL).await {
            Ok(live) => Ok(self.learn(crd, live)),
            Err(refused) => Err(anyhow!(refused).context(format!("patch the status of {crd}"))),
        }
    }

    async fn rewrite(&self, crd: &ObjectId, to: &str) -> Result<()> {
        let body = self.install.body(crd).unwrap_or_default();
        let kind = body.pointer("/spec/names/kind").and_then(Value::as_str);
        let served = served_as(&crd.name, to, kind.unwrap_or_default())
            .with_context(|| format!("{crd} names no group"))?;
        let all: Api<DynamicObject> = Api::all_with(self.kube.clone(), &served);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = all.list(&page).await_at_most(CALL).await;
            let list =
                list.map_err(|r| anyhow!(r).context(format!("list the objects of {crd}")))?;
            let write = |live| self.written_anew(live, &served).boxed();
            let written: Vec<_> = list.items.iter().map(write).collect();
            stream::iter(written)
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
            let next = list.metadata.continue_.unwrap_or_default();
            if next.is_empty() {
                return Ok(());
            }
            page = page.continue_token(&next);
        }
    }

    /// An empty patch is a write where the API server would store the object in another way than it has.
    async fn written_anew(
        &self,
        live: &DynamicObject,
        served: &kube::api::ApiResource,
    ) -> Result<()> {
        let name = live.metadata.name.as_deref().unwrap_or_default();
        let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.kube.clone(), served)
        } else {
            Api::namespaced_with(self.kube.clone(), namespace, served)
        };
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(renewed(live, &served.api_version));
        match api.patch(name, &params, &patch).await_at_most(CALL).await {
            Ok(_) => Ok(()),
            // Gone, or written by somebody else meanwhile.
            Err(Refused::Status(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(refused) => Err(anyhow!(refused).context(format!("write {namespace}/{name} anew"))),
        }
    }
}

/// How the objects of a CRD are asked for; its name is `PLURAL.GROUP`.
fn served_as(crd: &str, version: &str, kind: &str) -> Option<kube::api::ApiResource> {
    let (plural, group) = crd.split_once('.')?;
    Some(kube::api::ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    })
}

/// Server-side apply refuses an object whose field managers speak of a version that is gone (fluxcd/flux2#5598).
fn renewed(live: &DynamicObject, api_version: &str) -> Value {
    let mut entries = live.metadata.managed_fields.clone().unwrap_or_default();
    let old = |version: &Option<String>| version.as_deref() != Some(api_version);
    if !entries.iter().any(|entry| old(&entry.api_version)) {
        return json!({});
    }
    for entry in &mut entries {
        entry.api_version = Some(api_version.to_owned());
    }
    let version = &live.metadata.resource_version;
    json!({"metadata": {"managedFields": entries, "resourceVersion": version}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_managers_of_a_version_that_is_gone_are_renamed() {
        let live = |versions: &[&str]| -> DynamicObject {
            let entries: Vec<Value> = versions
                .iter()
                .map(|v| json!({"manager": "m", "apiVersion": v}))
                .collect();
            serde_json::from_value(json!({
                "apiVersion": "x/v1", "kind": "X",
                "metadata": {"name": "a", "resourceVersion": "7", "managedFields": entries},
            }))
            .unwrap()
        };
        assert_eq!(renewed(&live(&["x/v1", "x/v1"]), "x/v1"), json!({}));
        assert_eq!(
            renewed(&live(&["x/v1beta1", "x/v1"]), "x/v1"),
            json!({"metadata": {
                "managedFields": [{"manager": "m", "apiVersion": "x/v1"}, {"manager": "m", "apiVersion": "x/v1"}],
                "resourceVersion": "7",
            }})
        );
    }
}
