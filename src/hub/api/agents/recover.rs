//! `POST /v1/recover`: a cluster that lost its identity key names a new one, on the word of its deploy key.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Json;
use axum::extract::{Request, State};
use time::{Duration, OffsetDateTime};

use super::super::problem::{Problem, Slug};
use super::super::{LOST, remote, request_id};
use super::{deploy_public, signed_body};
use crate::clock;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::registration::{self, Lost, Recovery};
use crate::hub::replica::lines::Elsewhere;
use crate::hub::store::{
    Cluster, ClusterKey, KeyKind, KeyState, StoreError, UnknownReason, patience,
};
use crate::hub::{Hub, assignment, auth, cut, unknown};
use crate::keys::{self, Public};
use crate::wire::api::{Assignment, RecoverRequest, recovery_input};
use crate::wire::report::{Condition, ConditionType, Status};

const READOPT: &str = "run: linesman cluster readopt NAME, and apply the new YAML in the cluster";

/// A claim that both its keys have signed.
struct Claim {
    cluster: String,
    incarnation: String,
    identity: Public,
    deploy: Public,
    request_id: String,
    remote: String,
}

/// Safe to replay: the same key again is the same answer.
pub(super) async fn recover(
    State(hub): State<Arc<Hub>>,
    request: Request,
) -> Result<Json<Assignment>, Problem> {
    let (parts, content) = request.into_parts();
    let (bytes, held) = signed_body(&hub, &parts, content).await?;
    let bad = |what: String| Problem::new(Slug::BadRequest, what, "see docs/protocol.md");
    let asked: RecoverRequest =
        serde_json::from_slice(&bytes).map_err(|e| bad(format!("the recovery: {e}")))?;
    let identity = Public::from_base64(&asked.new_identity_key)
        .map_err(|e| bad(format!("the new identity key: {e}")))?;
    auth::signed_by(&hub.id, &parts, &bytes, identity)?;
    let deploy = deploy_public(&asked.deploy_key)?;
    let name = asked.cluster.as_str();
    let input = recovery_input(&hub.id, name, &asked.incarnation, &identity.to_base64());
    let proof = keys::decode(&asked.sig).unwrap_or_default();
    if deploy == identity || !deploy.verify(input.as_bytes(), &proof) {
        let text = "the recovery is not signed by the deploy key that it names";
        return Err(Problem::new(Slug::BadSignature, text, "sign it again"));
    }
    let Ok(place) = hub.joins.clone().try_acquire_owned() else {
        let text = "too many clusters are joining at this moment";
        return Err(Problem::new(Slug::Busy, text, "try again").retry_after(2));
    };
    let claim = Claim {
        cluster: name.to_owned(),
        incarnation: asked.incarnation,
        identity,
        deploy,
        request_id: request_id(&parts),
        remote: remote(&parts),
    };
    drop((bytes, held));
    let work = hub.clone();
    // What was begun is finished, although the caller went away.
    patience::judged();
    let done = hub.work.spawn(patience::carried(async move {
        let _place = place;
        judge(&work, &claim).await
    }));
    done.await.context("recover a cluster")?.map(Json)
}

async fn judge(hub: &Hub, claim: &Claim) -> Result<Assignment, Problem> {
    let (store, now) = (&hub.store, clock::now());
    let cluster = match claim.cluster.parse() {
        Ok(name) => store.cluster(&name).await?,
        Err(_) => None,
    };
    let identity = claim.identity.fingerprint();
    let identity = store.cluster_key_by_fingerprint(&identity).await?;
    let deploy = claim.deploy.fingerprint();
    let deploy = store.cluster_key_by_fingerprint(&deploy).await?;
    let (wait, keys) = match &cluster {
        Some(cluster) => (
            wait(hub, cluster, now).await?,
            store.cluster_keys(&cluster.id).await?,
        ),
        None => (None, Vec::new()),
    };
    let verdict = registration::recover(Lost {
        cluster: cluster.as_ref(),
        incarnation: &claim.incarnation,
        identity: identity.as_ref(),
        deploy: deploy.as_ref(),
        revoked: registration::is_revoked(&keys),
        allowed: hub.config.keys.recovery,
        wait,
    });
    if let Recovery::Unknown { .. } = verdict
        && identity.is_none()
    {
        let claimed = (
            claim.identity,
            claim.cluster.as_str(),
            Some(claim.incarnation.clone()),
        );
        unknown::claimed(hub, claimed, UnknownReason::UnknownIdentity, &claim.remote).await;
    }
    // Also where its deploy key is not known: the agent gets another with that identity.
    if let (Recovery::Repeat, Some(cluster)) = (verdict, &cluster) {
        return Ok(assignment::of(hub, cluster).await?);
    }
    let (Some(cluster), Some(deploy)) = (&cluster, &deploy) else {
        // A cluster that is known, with a key that is not: both of its keys are lost.
        if let (Recovery::Unknown { genuine: true }, Some(cluster)) = (verdict, &cluster) {
            both_lost(hub, claim, cluster, now).await?;
        }
        return Err(refused(verdict));
    };
    match verdict {
        Recovery::Bind => bind(hub, claim, (cluster, deploy), (&keys, now)).await?,
        Recovery::Repeat => {}
        Recovery::Unknown { genuine: true } => {
            both_lost(hub, claim, cluster, now).await?;
            return Err(refused(verdict));
        }
        Recovery::Unknown { genuine: false }
        | Recovery::Removed
        | Recovery::Revoked
        | Recovery::IncarnationChanged
        | Recovery::KeyKnown
        | Recovery::Manual => {
            if verdict == Recovery::Manual {
                manual(hub, claim, cluster, now).await?;
            }
            let entry = claim.entry(cluster, "cluster.recover", Verdict::Deny);
            let reason = Some(refused(verdict).slug.as_str().to_owned());
            hub.audit.refused(Entry { reason, ..entry }).await?;
            return Err(refused(verdict));
        }
        Recovery::Live(_) => return Err(refused(verdict)),
    }
    Ok(assignment::of(hub, cluster).await?)
}

/// How long the cluster has to be silent yet. A hub that has just started cannot know who is there.
async fn wait(
    hub: &Hub,
    cluster: &Cluster,
    now: OffsetDateTime,
) -> Result<Option<Duration>, StoreError> {
    let quiet = hub.config.keys.quiet;
    let elsewhere = Elsewhere::of(hub, &cluster.name).await?;
    let here = hub.tunnels.view_of(&cluster.name, &cluster.id);
    let line = elsewhere.view(&cluster.name, here);
    if line.up.is_some() {
        return Ok(Some(quiet));
    }
    let (heard, https) = hub.presence.last(&cluster.id);
    let words = [heard, https, line.known_down, cluster.last_seen];
    let times = words.into_iter().flatten().chain([hub.started]);
    Ok(silence(now, quiet, times))
}

/// What is left of the silence that has to follow the last of these times. One that lies further ahead is of a clock that was, and
/// would keep the cluster out until that time has come.
fn silence(
    now: OffsetDateTime,
    quiet: Duration,
    times: impl Iterator<Item = OffsetDateTime>,
) -> Option<Duration> {
    let last = times.filter(|at| *at - now <= quiet).max()?;
    let left = last + quiet - now;
    left.is_positive().then_some(left)
}

async fn bind(
    hub: &Hub,
    claim: &Claim,
    (cluster, deploy): (&Cluster, &ClusterKey),
    (keys, now): (&[ClusterKey], OffsetDateTime),
) -> Result<(), Problem> {
    let record = Entry {
        reason: Some(act(deploy, keys)),
        ..claim.entry(cluster, "cluster.recover", Verdict::Allow)
    };
    // On record first, as one: where that fails, everything stays as it was, and the agent asks again.
    hub.audit.change(record.clone()).await?;
    let new = claim.identity;
    let Some(ended) = hub.store.recover_identity(deploy, new, now).await? else {
        let (verdict, reason) = (Verdict::Deny, Some(LOST.to_owned()));
        let lost = Entry {
            verdict,
            reason,
            ..record
        };
        hub.audit.event(lost).await?;
        let text = "the cluster's keys changed meanwhile";
        return Err(Problem::new(Slug::Unavailable, text, "try again").retry_after(2));
    };
    tracing::info!(cluster = %cluster.name, new = new.fingerprint(), by = deploy.fingerprint, "identity recovered");
    hub.presence.heard(&cluster.id, now, false);
    for old in &ended {
        hub.audit.event(claim.dropped(cluster, old)).await?;
    }
    Ok(())
}

/// What a recovery does to the keys that the cluster has, and on whose word, for its record.
fn act(deploy: &ClusterKey, keys: &[ClusterKey]) -> String {
    let ends =
        |key: &&ClusterKey| key.state != KeyState::Revoked && key.fingerprint != deploy.fingerprint;
    let ended = keys.iter().filter(ends).map(|key| match key.kind {
        KeyKind::Identity => format!("identity key {}", key.fingerprint),
        KeyKind::Deploy => format!("deploy key {}", key.fingerprint),
    });
    let ended: Vec<String> = ended.collect();
    let word = format!("on the word of deploy key {}", deploy.fingerprint);
    if ended.is_empty() {
        return word;
    }
    format!("{word}; ends {}", ended.join(", "))
}

async fn both_lost(
    hub: &Hub,
    claim: &Claim,
    cluster: &Cluster,
    now: OffsetDateTime,
) -> Result<(), Problem> {
    let text = format!(
        "the cluster at {} has lost both its keys and shows identity {} now; \
         if that is right, run: linesman cluster readopt {}, and apply the new YAML",
        claim.remote,
        claim.identity.fingerprint(),
        cluster.name
    );
    conflict(hub, cluster, ("KeysLost", &text), now).await?;
    let entry = claim.entry(cluster, "cluster.recover", Verdict::Deny);
    let reason = Some("both keys are lost".to_owned());
    Ok(hub.audit.refused(Entry { reason, ..entry }).await?)
}

/// The cluster would be let in, were it not that this hub wants a person to do it.
async fn manual(
    hub: &Hub,
    claim: &Claim,
    cluster: &Cluster,
    now: OffsetDateTime,
) -> Result<(), Problem> {
    let text = format!(
        "the cluster at {} has lost its identity and shows {} now, signed by its deploy key; this hub recovers none by \
         itself; if that is right, run: linesman cluster readopt {}, and apply the new YAML",
        claim.remote,
        claim.identity.fingerprint(),
        cluster.name
    );
    conflict(hub, cluster, ("RecoveryManual", &text), now).await
}

async fn conflict(
    hub: &Hub,
    cluster: &Cluster,
    (reason, text): (&str, &str),
    now: OffsetDateTime,
) -> Result<(), Problem> {
    let condition = Condition {
        kind: ConditionType::JoinConflict,
        status: Status::True,
        reason: reason.to_owned(),
        message: cut(text, 1024).to_owned(),
        since: clock::rfc3339(now),
    };
    Ok(hub.store.set_condition(&cluster.id, condition, now).await?)
}

impl Claim {
    fn entry(&self, cluster: &Cluster, action: &str, verdict: Verdict) -> Entry {
        Entry {
            actor: format!("agent:{}", cluster.name),
            action: action.to_owned(),
            cluster: Some(cluster.name.to_string()),
            target: self.identity.fingerprint(),
            request_id: self.request_id.clone(),
            verdict,
            remote: self.remote.clone(),
            ..Entry::default()
        }
    }

    fn dropped(&self, cluster: &Cluster, key: &ClusterKey) -> Entry {
        Entry {
            target: key.fingerprint.clone(),
            reason: Some("it was lost in the cluster".to_owned()),
            ..self.entry(cluster, key.kind.dropped(), Verdict::Allow)
        }
    }
}

fn refused(verdict: Recovery) -> Problem {
    let problem = |slug, text: &str| Problem::new(slug, text, READOPT);
    match verdict {
        Recovery::Removed => auth::AuthError::Removed.into(),
        Recovery::Revoked => auth::AuthError::Revoked.into(),
        Recovery::IncarnationChanged => Problem::new(
            Slug::IncarnationChanged,
            "this is another cluster than the one that joined under this name",
            "run: linesman cluster readopt NAME --new-cluster, and apply the new YAML",
        ),
        Recovery::KeyKnown => problem(
            Slug::KeyKnown,
            "this identity key belongs to another cluster or was revoked",
        ),
        Recovery::Manual => problem(
            Slug::RecoveryManual,
            "this hub lets no cluster recover a lost identity by itself",
        )
        .retry_after(60),
        Recovery::Live(wait) => Problem::new(
            Slug::LineLive,
            "the cluster was heard with its former identity a moment ago",
            "it can be recovered when that one is silent; nothing to do if it is yours",
        )
        .retry_after(seconds(wait)),
        Recovery::Unknown { .. } | Recovery::Bind | Recovery::Repeat => problem(
            Slug::UnknownIdentity,
            "neither key is known here for a cluster of this name",
        )
        .retry_after(60),
    }
}

/// Rounded up: who comes back then is not too early.
fn seconds(wait: Duration) -> u32 {
    let whole = u32::try_from(wait.whole_seconds()).unwrap_or_default();
    whole.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_recovered_after_its_silence_whatever_a_clock_that_was_ahead_has_dated() {
        let at = |seconds| OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds);
        let (now, quiet) = (at(1_000), Duration::minutes(1));
        for (times, left) in [
            (vec![100], None),
            (vec![100, 940], None),
            (vec![941, 100], Some(1)),
            (vec![100, 1_060], Some(120)),
            // The hub began to listen then, or heard the cluster.
            (vec![100, 8_200], None),
            (vec![8_200, 990], Some(50)),
            (vec![8_200], None),
        ] {
            let found = silence(now, quiet, times.iter().copied().map(at));
            assert_eq!(found, left.map(Duration::seconds), "{times:?}");
        }
    }
}
