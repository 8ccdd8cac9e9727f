//! Which image a Pod was made from.

use anyhow::Result;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;

use super::{image, is_refused, within};

/// The image that a Pod was made from, as its ReplicaSet has it: admission may have written another one into the Pod itself, which the
/// Deployment does not know. Where there is no ReplicaSet to be seen, the Pod's own; none = there is no Pod.
pub(super) async fn made_from(
    kube: &kube::Client,
    namespace: &str,
    pod: &str,
) -> Result<Option<String>> {
    let pods = Api::<Pod>::namespaced(kube.clone(), namespace);
    let Some(pod) = within(pods.get_opt(pod)).await? else {
        return Ok(None);
    };
    let own = pod.spec.and_then(|spec| image(spec.containers));
    let owners = pod.metadata.owner_references.unwrap_or_default();
    let is_set =
        |owner: &&OwnerReference| owner.kind == "ReplicaSet" && owner.controller == Some(true);
    let Some(owner) = owners.iter().find(is_set) else {
        return Ok(own);
    };
    let sets = Api::<ReplicaSet>::namespaced(kube.clone(), namespace);
    let set = match within(sets.get_opt(&owner.name)).await {
        Err(error) if is_refused(&error) => None,
        read => read?,
    };
    let template = set.and_then(|set| set.spec?.template?.spec);
    let made = template.and_then(|spec| image(spec.containers));
    Ok(made.or(own))
}
