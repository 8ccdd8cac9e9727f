//! What a cluster is told: built from the records each time, numbered anew whenever its content changes.

use crate::hub::Hub;
use crate::hub::store::{Cluster, ClusterKey, KeyKind, KeyState, StoreError};
use crate::keys;
use crate::wire::api::{
    Assignment, CatalogRef, ClusterRef, DeployKeyState, DeployKeyStatus, EngineRef, Via,
};

/// The present assignment of a cluster.
pub async fn of(hub: &Hub, cluster: &Cluster) -> Result<Assignment, StoreError> {
    let keys = hub.store.cluster_keys(&cluster.id).await?;
    let bundle = hub.store.bundle(&cluster.bundle).await?;
    let mut assignment = Assignment {
        cluster: ClusterRef {
            name: cluster.name.clone(),
            id: cluster.id.clone(),
        },
        hub: hub.reference(),
        catalog: CatalogRef {
            url: hub.catalog.url.clone(),
            via: Via::Direct,
            branch: hub.catalog.branch.clone(),
            path: cluster.catalog_path.clone(),
            known_hosts: hub.catalog.known_hosts.clone(),
            deploy_key: deploy_key(&keys),
        },
        engine: EngineRef {
            kind: cluster.engine,
            version: cluster.engine_version.clone(),
            bundle: cluster.bundle.clone(),
            size: bundle.map_or(0, |b| b.size),
        },
        policy: cluster.policy.clone(),
        agent_image: cluster.desired_image.clone(),
        revision: 0,
    };
    let content = serde_json::to_vec(&assignment).expect("an assignment has string keys");
    let hash = keys::sha256_hex(&content);
    assignment.revision = hub.store.assignment_revision(&cluster.id, &hash).await?;
    Ok(assignment)
}

/// Where the cluster's own key stands at the Git host. The built-in host knows a key as soon as the store does.
fn deploy_key(keys: &[ClusterKey]) -> DeployKeyStatus {
    let newest = keys.iter().rfind(|k| k.kind == KeyKind::Deploy);
    let (state, reason) = match newest.map(|k| k.state) {
        Some(KeyState::Active | KeyState::Retiring) => (DeployKeyState::Registered, ""),
        Some(KeyState::Pending) => (DeployKeyState::Pending, "host"),
        // A join whose deploy key another cluster has leaves no row behind.
        Some(KeyState::Revoked) | None => (DeployKeyState::Refused, "in-use"),
    };
    DeployKeyStatus {
        state,
        reason: reason.to_owned(),
    }
}
