//! What Argo CD shows of itself.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, path};
use super::until;

pub(crate) const REFRESH: &str = "argocd.argoproj.io/refresh";
pub(crate) const CONTROLLER: &str =
    "/apis/apps/v1/namespaces/argocd/statefulsets/argocd-application-controller";

pub(crate) fn application(name: &str) -> String {
    path("argoproj.io/v1alpha1", "Application", "argocd", name)
}

pub(crate) fn root() -> String {
    application("linesman")
}

/// The root's revision, where that is the catalog's head and applied.
pub(super) fn synced(api: &Api, head: &str) -> Result<String, String> {
    let root = api.try_get(&root())?.ok_or("no root Application")?;
    let sync = &root["status"]["sync"];
    if sync["status"] == json!("Synced") && sync["revision"] == json!(head) {
        return Ok(head.to_owned());
    }
    let (conditions, operation) = (
        &root["status"]["conditions"],
        &root["status"]["operationState"],
    );
    Err(format!(
        "{sync}, head {head}; {conditions}; {} {}",
        operation["phase"], operation["message"]
    ))
}

/// A refresh that is asked for is answered, and the root is as the catalog says: the engine works.
pub(super) fn function(api: &Api, limit: Duration) {
    answers(api, limit, |live| {
        live["status"]["sync"]["status"] == json!("Synced")
    });
}

/// A refresh that is asked for is answered, and `holds` of the root.
pub(crate) fn answers(api: &Api, limit: Duration, holds: impl Fn(&Value) -> bool) {
    let mut asked = None;
    until("the root answers a refresh as it should", limit, || {
        let Ok(Some(live)) = api.try_get(&root()) else {
            return false;
        };
        let Some(since) = &asked else {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
            let now = time::OffsetDateTime::from_unix_timestamp(now.try_into().unwrap()).unwrap();
            api.patch(
                &root(),
                &json!({ "metadata": { "annotations": { REFRESH: "normal" } } }),
            );
            asked = Some(now);
            return false;
        };
        let waits = live["metadata"]["annotations"][REFRESH].is_string();
        !waits && reconciled(&live).is_some_and(|at| at >= *since) && holds(&live)
    });
}

/// When its controller looked at it last.
pub(crate) fn reconciled(application: &Value) -> Option<time::OffsetDateTime> {
    let text = application["status"]["reconciledAt"].as_str()?;
    time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()
}

/// All that has to run does.
pub(super) fn available(api: &Api) -> bool {
    let deployments = [
        "argocd-redis",
        "argocd-repo-server",
        "argocd-applicationset-controller",
    ];
    let deployments = deployments.map(|name| super::api::deployment("argocd", name));
    let ready = |path: &str| {
        let live = api.try_get(path).ok().flatten().unwrap_or_default();
        let status = &live["status"];
        status["observedGeneration"] == live["metadata"]["generation"]
            && status["availableReplicas"].as_u64() >= Some(1)
            && status["updatedReplicas"].as_u64() >= Some(1)
    };
    deployments.iter().all(|d| ready(d)) && ready(CONTROLLER)
}
