//! `POST /v1/clusters/{name}/identity`: a new identity key beside the old one, signed by both; and the end of the old.

use std::sync::Arc;

use anyhow::Result;
use axum::Extension;
use axum::extract::{Path, Request, State};
use http::StatusCode;
use time::{Duration, OffsetDateTime};
use tokio_util::sync::CancellationToken;

use super::super::clusters::announce;
use super::super::problem::{Problem, Slug};
use super::super::{LOST, request_id};
use super::{Came, own, paced, parsed};
use crate::clock;
use crate::hub::audit::{AuditError, Entry, Verdict};
use crate::hub::auth::AgentPrincipal;
use crate::hub::pace::Act;
use crate::hub::store::{Cluster, ClusterKey, KeyKind, KeyState, StoreError, patience};
use crate::hub::{Hub, chain_of, directory, rotation};
use crate::keys::{self, Public};
use crate::wire::api::{IdentityRequest, identity_change_input};
use crate::wire::id::ClusterName;

/// How long an old key lives when the new one is not used.
const OVERLAP: Duration = Duration::minutes(10);
const LOOK: std::time::Duration = std::time::Duration::from_secs(30);

/// Idempotent: an agent that was killed says it again. The old key ends with the first line of the new one.
pub(super) async fn change(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (parts, body) = request.into_parts();
    let request_id = request_id(&parts);
    let cluster = own(&hub, &agent, &name, came).await?;
    let wanted: IdentityRequest = parsed(Request::from_parts(parts, body)).await?;
    let new = Public::from_base64(&wanted.new_key).map_err(|error| {
        let text = format!("the new identity key: {error}");
        Problem::new(Slug::BadRequest, text, "see docs/protocol.md")
    })?;
    let known = hub.store.cluster_keys(&cluster.id).await?;
    let valid = |k: &&ClusterKey| k.kind == KeyKind::Identity && k.state.is_valid();
    let mut valid = known.iter().filter(valid);
    let old = valid.find(|k| signed(&hub.id, &name, (k.public, new), &wanted));
    let Some(old) = old.cloned() else {
        let text = "the change of the identity key is not signed by the old and the new one";
        return Err(Problem::new(Slug::BadSignature, text, "sign it again"));
    };
    let work = hub.clone();
    // Keys and their record belong together: what was begun is finished, although the caller went away.
    let done = hub.work.spawn(patience::carried(async move {
        register(&work, &cluster, (&old, new), request_id).await
    }));
    done.await.map_err(anyhow::Error::from)??;
    Ok(StatusCode::NO_CONTENT)
}

fn signed(hub_id: &str, cluster: &str, keys: (Public, Public), by: &IdentityRequest) -> bool {
    let (old, new) = keys;
    let input = identity_change_input(hub_id, cluster, &old.to_base64(), &new.to_base64());
    let good = |key: Public, sig: &str| {
        keys::decode(sig).is_some_and(|sig| key.verify(input.as_bytes(), &sig))
    };
    old != new && good(old, &by.sig_old) && good(new, &by.sig_new)
}

async fn register(
    hub: &Hub,
    cluster: &Cluster,
    (old, new): (&ClusterKey, Public),
    request_id: String,
) -> Result<(), Problem> {
    let entry = Entry {
        request_id,
        target: new.fingerprint(),
        ..entry(&cluster.name, "cluster.identity.add")
    };
    let known = hub
        .store
        .cluster_key_by_fingerprint(&new.fingerprint())
        .await?;
    let own = |k: &ClusterKey| {
        k.cluster_id == cluster.id && k.kind == KeyKind::Identity && k.state.is_valid()
    };
    if known.as_ref().is_some_and(own) {
        return Ok(());
    }
    // Each of them is on record, refused or not.
    paced(hub, &cluster.id, Act::Key)?;
    if known.is_some() {
        return Err(denied(hub, entry).await?);
    }
    let reason = Some(format!("to take the place of {}", old.fingerprint));
    let added = Entry {
        reason,
        ..entry.clone()
    };
    // On record first: where that fails, the cluster has the key that it had, and the agent asks again.
    hub.audit.change(added).await?;
    let added = hub.store.add_identity(&cluster.id, new, clock::now()).await;
    if let Err(StoreError::Full(full)) = &added {
        let denied = Entry {
            verdict: Verdict::Deny,
            reason: Some(full.clone()),
            ..entry.clone()
        };
        hub.audit.event(denied).await?;
    }
    if added?.is_none() {
        return Err(denied(hub, entry).await?);
    }
    tracing::info!(cluster = %cluster.name, old = old.fingerprint, new = new.fingerprint(), "identity key replaced");
    announce(hub, cluster).await
}

async fn denied(hub: &Hub, entry: Entry) -> Result<Problem, AuditError> {
    let denied = Entry {
        verdict: Verdict::Deny,
        reason: Some("known for another cluster, or revoked".to_owned()),
        ..entry
    };
    hub.audit.event(denied).await?;
    let text = "this identity key belongs to another cluster or was revoked";
    Ok(Problem::new(Slug::KeyKnown, text, "make a new key"))
}

fn entry(cluster: &ClusterName, action: &str) -> Entry {
    Entry {
        actor: format!("agent:{cluster}"),
        action: action.to_owned(),
        cluster: Some(cluster.to_string()),
        verdict: Verdict::Allow,
        ..Entry::default()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error("end the identity keys before the present one")]
    Store(#[from] StoreError),
    #[error("put the end of an identity key on record")]
    Audit(#[from] AuditError),
}

/// A line of `key` is up: the identity keys before it end.
pub async fn in_use(hub: &Hub, key: &ClusterKey) {
    let ended = async {
        if key.state != KeyState::Active {
            return Ok(());
        }
        let all = hub.store.cluster_keys(&key.cluster_id).await?;
        let retiring =
            |k: &ClusterKey| k.kind == KeyKind::Identity && k.state == KeyState::Retiring;
        if !all.iter().any(retiring) {
            return Ok(());
        }
        let why = format!("{} is in use", key.fingerprint);
        let others = rotation::before(key, &all);
        // On record first: where that fails, they go on until the next line, or their time.
        for old in &others {
            tell(hub, old, &why).await?;
        }
        let ended = hub.store.settle_key(key, clock::now()).await?;
        let (still, more) = rotation::differing(&others, &ended);
        for old in still {
            denied_end(hub, old).await?;
        }
        for old in more {
            // It came after the keys were read.
            hub.audit.event(dropped(old, &why)).await?;
        }
        Ok(())
    };
    if let Err(error) = ended.await {
        let error: EndError = error;
        // The look at keys that retired long ago ends them as well.
        tracing::error!(cluster = %key.cluster, error = chain_of(&error), "identity key");
    }
}

/// Puts on record, before it is done, that a key ends.
async fn tell(hub: &Hub, old: &ClusterKey, why: &str) -> Result<(), EndError> {
    Ok(hub.audit.change(dropped(old, why)).await?)
}

fn dropped(old: &ClusterKey, why: &str) -> Entry {
    tracing::info!(cluster = %old.cluster, key = old.fingerprint, why, "identity key ends");
    Entry {
        target: old.fingerprint.clone(),
        reason: Some(why.to_owned()),
        ..entry(&old.cluster, "cluster.identity.drop")
    }
}

/// The same, that it did not.
async fn denied_end(hub: &Hub, old: &ClusterKey) -> Result<(), EndError> {
    let entry = Entry {
        target: old.fingerprint.clone(),
        verdict: Verdict::Deny,
        reason: Some(LOST.to_owned()),
        ..entry(&old.cluster, "cluster.identity.drop")
    };
    Ok(hub.audit.event(entry).await?)
}

/// Ends old keys whose successors no line was seen of: of agents that speak by HTTPS alone.
pub async fn end_retired(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let look = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while look().await.is_some() {
        if let Err(error) = end_before(&hub, clock::now()).await
            && !hub.store.is_away()
        {
            tracing::error!(error = chain_of(&error), "identity keys that retired");
        }
    }
    Ok(())
}

/// Ends those whose successor is [`OVERLAP`] old at `now`, and the lines here of all that have ended.
///
/// # Errors
/// The records do not take it. Keys that were not come to yet go on, until the next look.
pub async fn end_before(hub: &Hub, now: OffsetDateTime) -> Result<(), EndError> {
    for old in hub.store.retired(now - OVERLAP).await? {
        tell(hub, &old, "its successor is 10 minutes old").await?;
        if !hub.store.end_retired(&old.fingerprint, now).await? {
            denied_end(hub, &old).await?;
        }
    }
    Ok(directory::end_former(hub, None).await?)
}
