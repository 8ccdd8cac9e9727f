//! `POST /v1/clusters/{name}/deploy-keys`: a cluster's key for the catalog, registered and, in the end, alone.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::{Extension, Json};

use super::super::clusters::announce;
use super::super::problem::Problem;
use super::super::{LOST, request_id};
use super::{Came, deploy_public, own, paced, parsed, proves, unproven};
use crate::clock;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::auth::AgentPrincipal;
use crate::hub::pace::Act;
use crate::hub::store::{Cluster, ClusterKey, KeyKind, KeyState, StoreError, patience};
use crate::hub::{Hub, rotation};
use crate::keys::Public;
use crate::wire::api::{DeployKeyRequest, DeployKeyState, DeployKeyStatus};

/// Idempotent on the key, and on `inUse`: an agent that was killed asks again.
pub(super) async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<DeployKeyStatus>, Problem> {
    let (parts, body) = request.into_parts();
    let request_id = request_id(&parts);
    let cluster = own(&hub, &agent, &name, came).await?;
    let wanted: DeployKeyRequest = parsed(Request::from_parts(parts, body)).await?;
    let public = deploy_public(&wanted.public_key)?;
    let replaces = wanted.replaces.as_deref().map(deploy_public).transpose()?;
    let known = hub.store.cluster_keys(&cluster.id).await?;
    let proven = known
        .iter()
        .filter(|k| k.kind == KeyKind::Identity && k.state.is_valid())
        .any(|k| proves(&hub.id, &name, k.public, public, &wanted.proof));
    if !proven {
        return Err(unproven());
    }
    let work = Work {
        hub: hub.clone(),
        cluster,
        known,
        request_id,
    };
    // Keys and their record belong together: what was begun is finished, although the caller went away.
    let done = hub.work.spawn(patience::carried(async move {
        work.register(public, replaces, wanted.in_use).await
    }));
    let done = done.await.map_err(anyhow::Error::from)?;
    done.map(Json)
}

struct Work {
    hub: Arc<Hub>,
    cluster: Cluster,
    known: Vec<ClusterKey>,
    request_id: String,
}

impl Work {
    async fn register(
        &self,
        public: Public,
        replaces: Option<Public>,
        in_use: bool,
    ) -> Result<DeployKeyStatus, Problem> {
        let (hub, now) = (&self.hub, clock::now());
        let print = public.fingerprint();
        let is = |k: &&ClusterKey| k.fingerprint == print && k.state == KeyState::Active;
        let was_active = self.known.iter().any(|k| is(&k));
        if !was_active {
            // Each of them is on record, refused or not.
            paced(hub, &self.cluster.id, Act::Key)?;
            if self.is_taken(&print).await? {
                return self.refused(&print).await;
            }
            let reason = replaces.map_or_else(String::new, |old| {
                format!("to take the place of {}", old.fingerprint())
            });
            // On record first: where that fails, the cluster's keys stay as they were, and the agent asks again.
            self.record_first("deploy-key.add", &print, &reason).await?;
        }
        let key = hub
            .store
            .add_deploy_key(&self.cluster.id, public, replaces, now)
            .await;
        if let Err(StoreError::Full(full)) = &key {
            self.record("deploy-key.add", &print, Verdict::Deny, full)
                .await?;
        }
        let Some(key) = key? else {
            return self.refused(&print).await;
        };
        let ended = if in_use {
            self.settle(&key).await?
        } else {
            Vec::new()
        };
        if !was_active || !ended.is_empty() {
            announce(hub, &self.cluster).await?;
        }
        Ok(DeployKeyStatus {
            state: DeployKeyState::Registered,
            reason: String::new(),
        })
    }

    /// Whether another cluster has it, or it was revoked.
    async fn is_taken(&self, print: &str) -> Result<bool, Problem> {
        let known = self.hub.store.cluster_key_by_fingerprint(print).await?;
        let (id, kind) = (&self.cluster.id, KeyKind::Deploy);
        Ok(known
            .is_some_and(|k| k.cluster_id != *id || k.kind != kind || k.state == KeyState::Revoked))
    }

    async fn refused(&self, print: &str) -> Result<DeployKeyStatus, Problem> {
        self.record("deploy-key.add", print, Verdict::Deny, "in use or revoked")
            .await?;
        Ok(DeployKeyStatus {
            state: DeployKeyState::Refused,
            reason: "in-use".to_owned(),
        })
    }

    /// Ends the keys before this one; gives those.
    async fn settle(&self, key: &ClusterKey) -> Result<Vec<ClusterKey>, Problem> {
        let store = &self.hub.store;
        let all = store.cluster_keys(&self.cluster.id).await?;
        let others = rotation::before(key, &all);
        let dropped = async |old: &ClusterKey, verdict, reason: &str| {
            self.record("deploy-key.drop", &old.fingerprint, verdict, reason)
                .await
        };
        let reason = format!("{} is in use", key.fingerprint);
        for old in &others {
            self.record_first("deploy-key.drop", &old.fingerprint, &reason)
                .await?;
        }
        let ended = store.settle_key(key, clock::now()).await?;
        let (still, more) = rotation::differing(&others, &ended);
        for old in still {
            dropped(old, Verdict::Deny, LOST).await?;
        }
        for old in more {
            dropped(old, Verdict::Allow, &reason).await?;
        }
        Ok(ended)
    }

    /// Puts on record what is about to be done.
    async fn record_first(
        &self,
        what: &str,
        fingerprint: &str,
        reason: &str,
    ) -> Result<(), Problem> {
        let entry = self.entry(what, fingerprint, Verdict::Allow, reason);
        Ok(self.hub.audit.change(entry).await?)
    }

    /// The same of what was done, or was not.
    async fn record(
        &self,
        what: &str,
        fingerprint: &str,
        verdict: Verdict,
        reason: &str,
    ) -> Result<(), Problem> {
        let entry = self.entry(what, fingerprint, verdict, reason);
        Ok(self.hub.audit.event(entry).await?)
    }

    fn entry(&self, what: &str, fingerprint: &str, verdict: Verdict, reason: &str) -> Entry {
        let name = &self.cluster.name;
        tracing::info!(cluster = %name, fingerprint, what, reason, "deploy key");
        Entry {
            actor: format!("agent:{name}"),
            action: format!("cluster.{what}"),
            cluster: Some(name.to_string()),
            target: fingerprint.to_owned(),
            request_id: self.request_id.clone(),
            verdict,
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            ..Entry::default()
        }
    }
}
