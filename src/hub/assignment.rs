//! What a cluster is told: built from the records each time, numbered anew whenever its content changes.

use crate::clock;
use crate::hub::incident::Incident;
use crate::hub::signers::Signer;
use crate::hub::store::{Cluster, ClusterKey, Images, KeyKind, KeyState, StoreError};
use crate::hub::{Hub, rotation};
use crate::keys;
use crate::manifests::{GIT_SERVICE, NAMESPACE};
use crate::ssh::{GitUrl, known_hosts};
use crate::wire::api::{
    Assignment, CatalogRef, ClusterRef, DeployKeyState, DeployKeyStatus, EngineRef, GitRoute,
    Policy, SignerRef, Via,
};

/// The present assignment of a cluster.
pub async fn of(hub: &Hub, cluster: &Cluster) -> Result<Assignment, StoreError> {
    let keys = hub.store.cluster_keys(&cluster.id).await?;
    let bundle = hub.store.bundle(&cluster.bundle).await?;
    let direct = hub.git_keys.known_hosts();
    let (line_url, by_line) = by_line(&hub.catalog.url, &direct);
    let via = cluster.via();
    let said = hub.says();
    let images = images(hub, cluster).await?;
    let mut assignment = Assignment {
        cluster: ClusterRef {
            name: cluster.name.clone(),
            id: cluster.id.clone(),
        },
        hub: said.reference(&hub.id),
        trust: Some(said.trust.clone()),
        trust_chain: said.chain.clone(),
        catalog: CatalogRef {
            url: hub.catalog.url.clone(),
            line_url: Some(line_url),
            via,
            branch: hub.catalog.branch.clone(),
            path: cluster.catalog_path.clone(),
            known_hosts: match via {
                Via::Direct => direct,
                Via::Line => by_line,
            },
            deploy_key: deploy_key(&keys),
            signers: signers(hub).await?,
        },
        engine: EngineRef {
            kind: cluster.engine,
            version: cluster.engine_version.clone(),
            bundle: cluster.bundle.clone(),
            size: bundle.map_or(0, |b| b.size),
            registry: Some(images.registry).filter(|r| !r.is_empty()),
            pull_secret: images.pull_secret,
            within: cluster.engine_within,
            change: cluster.engine_change,
        },
        policy: policy(hub, cluster),
        rotate: rotation::wish(clock::now(), hub.config.keys, &keys),
        agent_image: cluster.desired_image.clone(),
        agent_image_wish: cluster.image_wish,
        revision: 0,
    };
    let content = serde_json::to_vec(&assignment).expect("an assignment has string keys");
    let hash = keys::sha256_hex(&content);
    assignment.revision = hub
        .store
        .assignment_revision(&cluster.id, &hash, clock::now())
        .await?;
    Ok(assignment)
}

/// The cluster's own, and what an incident in the fleet asks of all.
fn policy(hub: &Hub, cluster: &Cluster) -> Policy {
    let incident = hub.incident.borrow();
    Policy {
        safe_heals_until: incident.as_ref().map(|i| clock::rfc3339(i.until)),
        safe_heals_reason: incident.as_ref().map(Incident::reason),
        ..cluster.policy.clone()
    }
}

/// Whose signature each engine is to want. Older agents do not set up Argo CD's verification, and put no Argo CD in
/// Flux' place then; SSH keys they leave out.
async fn signers(hub: &Hub) -> Result<Vec<SignerRef>, StoreError> {
    let all = hub.store.signers().await?;
    let told = |s: Signer| SignerRef {
        fingerprint: s.key.fingerprint,
        public_key: s.text,
        subkeys: s.key.subkeys,
    };
    Ok(all.into_iter().map(told).collect())
}

/// Whence the engine's images come: as is said for the cluster, or for all.
pub async fn images(hub: &Hub, cluster: &Cluster) -> Result<Images, StoreError> {
    match cluster.images() {
        Some(own) => Ok(own),
        None => Ok(hub.store.default_registry().await?.unwrap_or_default()),
    }
}

/// The catalog's URL at the agent's Service, and the host's keys under both names.
fn by_line(url: &str, hosts: &str) -> (String, String) {
    const HOLDS: &str = "the catalog's URL and host keys were made or checked at the start";
    let real: GitUrl = url.parse().expect(HOLDS);
    let service = format!("{GIT_SERVICE}.{NAMESPACE}.svc");
    let both = known_hosts::under_both(hosts, (&real.host, real.port), (&service, 22));
    let line = GitUrl {
        host: service,
        port: 22,
        ..real
    };
    (line.to_string(), both.expect(HOLDS))
}

/// Where a new cluster will read the catalog, as far as that is decided: what the hub commits for it is turned when its way is another.
pub fn source(hub: &Hub, route: GitRoute) -> String {
    let via = match route {
        GitRoute::Line => Via::Line,
        GitRoute::Auto | GitRoute::Direct => Via::Direct,
    };
    url(hub, via)
}

/// The catalog's URL for who takes this way.
pub fn url(hub: &Hub, via: Via) -> String {
    match via {
        Via::Line => by_line(&hub.catalog.url, &hub.git_keys.known_hosts()).0,
        Via::Direct => hub.catalog.url.clone(),
    }
}

/// Where the cluster's own key stands at the Git host. The built-in host knows a key as soon as the store does.
fn deploy_key(keys: &[ClusterKey]) -> DeployKeyStatus {
    let deploy = || keys.iter().filter(|k| k.kind == KeyKind::Deploy);
    let newest = deploy().rfind(|k| k.state.is_valid());
    let newest = newest.or_else(|| deploy().next_back());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_its_own_url_and_the_host_keys_under_both_names() {
        const KEY: &str =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOXx2p1+uT5VKGLWmbdPBgIRqqEAwC4KEGvFUbzNHbyO";
        let (url, hosts) = by_line(
            "ssh://me@git.example.org:2222/team/catalog.git",
            &format!("[git.example.org]:2222 {KEY} host\nother.example.org {KEY}"),
        );
        assert_eq!(url, "ssh://me@linesman-git.linesman.svc/team/catalog.git");
        assert_eq!(
            hosts,
            format!(
                "[git.example.org]:2222 {KEY} host\nother.example.org {KEY}\nlinesman-git.linesman.svc {KEY}\n"
            )
        );
    }
}
