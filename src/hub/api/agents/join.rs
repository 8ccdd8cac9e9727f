//! `POST /v1/join`: a token against keys. A join that began is finished, even when its caller goes away.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Json;
use axum::extract::{Request, State};

use super::super::problem::{Problem, Slug};
use super::super::{remote, request_id};
use super::bounds::{bounded_build, bounded_facts};
use super::{deploy_public, paced, proves, signed_body, unproven};
use crate::clock;
use crate::hub::adoption::copy;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::pace::Act;
use crate::hub::registration::{Claim, Deploy, Prefix, Redeemed, Refusal, TokenText};
use crate::hub::store::records::Redemption;
use crate::hub::store::{Cluster, ClusterKey, UnknownReason, patience};
use crate::hub::{Hub, assignment, auth, cut, directory, unknown};
use crate::keys::Public;
use crate::wire::PROTOCOL;
use crate::wire::api::{Assignment, JoinRequest};
use crate::wire::report::{Condition, ConditionType, Status};

pub(super) async fn join(
    State(hub): State<Arc<Hub>>,
    request: Request,
) -> Result<Json<Assignment>, Problem> {
    let (parts, content) = request.into_parts();
    let (bytes, held) = signed_body(&hub, &parts, content).await?;
    let join: JoinRequest = serde_json::from_slice(&bytes).map_err(|error| {
        let next = "see docs/protocol.md for the join's body";
        Problem::new(Slug::BadRequest, format!("the join: {error}"), next)
    })?;
    if join.protocol.max < PROTOCOL.min || join.protocol.min > PROTOCOL.max {
        return Err(too_far_apart());
    }
    let claim = claim(&hub, &parts, &bytes, join)?;
    drop((bytes, held));
    let Ok(place) = hub.joins.clone().try_acquire_owned() else {
        let text = "too many clusters are joining at this moment";
        return Err(Problem::new(Slug::Busy, text, "try again").retry_after(2));
    };
    let id = request_id(&parts);
    let work = hub.clone();
    // Both keys have signed.
    patience::judged();
    let joined = hub.work.spawn(patience::carried(async move {
        let _place = place;
        known_again(&work, claim.identity).await?;
        let joined = redeem(&work, claim, id).await?;
        let (renewing, cluster) = (work.clone(), joined.cluster.id.clone());
        // What the owner applied is in force now. The agent does not wait for the commit.
        work.work
            .spawn(async move { copy::renew_joined(&renewing, &cluster).await });
        Ok(joined)
    }));
    joined.await.context("join a cluster")?.map(Json)
}

fn too_far_apart() -> Problem {
    Problem::new(
        Slug::ProtocolUnsupported,
        format!(
            "this hub speaks protocol {} to {}",
            PROTOCOL.min, PROTOCOL.max
        ),
        "apply the adoption YAML of this hub: linesman cluster readopt NAME",
    )
    .with("min", &PROTOCOL.min)
    .with("max", &PROTOCOL.max)
}

/// A claim both of whose keys have signed.
fn claim(
    hub: &Hub,
    parts: &http::request::Parts,
    bytes: &[u8],
    join: JoinRequest,
) -> Result<Claim, Problem> {
    let bad = |what: &str| Problem::new(Slug::BadRequest, what, "see docs/protocol.md");
    let identity = Public::from_base64(&join.identity_key)
        .map_err(|e| bad(&format!("the identity key: {e}")))?;
    auth::signed_by(&hub.id, parts, bytes, identity)?;
    let deploy = deploy_public(&join.deploy_key)?;
    let name = join.cluster.as_str();
    if deploy == identity || !proves(&hub.id, name, identity, deploy, &join.deploy_proof) {
        return Err(unproven());
    }
    if join.incarnation.is_empty() || join.incarnation.len() > 100 {
        return Err(bad("the incarnation is not the UID of a namespace"));
    }
    let token = TokenText::parse(Prefix::Join, &join.token).ok_or_else(invalid)?;
    let addr = remote(parts);
    Ok(Claim {
        token,
        cluster: name.to_owned(),
        incarnation: join.incarnation,
        identity,
        deploy,
        agent: bounded_build(join.agent),
        facts: bounded_facts(join.facts),
        addr,
    })
}

/// A key that is in force joins again at the pace of new keys: each time is on record, and may bring a deploy key.
async fn known_again(hub: &Hub, identity: Public) -> Result<(), Problem> {
    let print = identity.fingerprint();
    let known = hub.store.cluster_key_by_fingerprint(&print).await?;
    match known.filter(|key| key.state.is_valid()) {
        Some(key) => paced(hub, &key.cluster_id, Act::Key),
        None => Ok(()),
    }
}

async fn redeem(hub: &Hub, claim: Claim, request_id: String) -> Result<Assignment, Problem> {
    let fingerprint = claim.identity.fingerprint();
    let addr = claim.addr.clone();
    let now = clock::now();
    let said = claim.clone();
    let entry = |cluster: &Cluster, verdict, reason| Entry {
        actor: format!("agent:{}", cluster.name),
        action: "cluster.join".to_owned(),
        cluster: Some(cluster.name.to_string()),
        target: fingerprint.clone(),
        request_id,
        verdict,
        reason,
        remote: addr.clone(),
        ..Entry::default()
    };
    match hub.store.redeem(claim, now).await? {
        Redeemed::Bound {
            cluster,
            repeated,
            deploy,
        } => {
            hub.metrics.joined(if repeated { "repeat" } else { "ok" });
            tracing::info!(cluster = %cluster.name, fingerprint, repeated, ?deploy, "cluster joined");
            let reason = (deploy == Deploy::InUse).then(|| "deploy key in use".to_owned());
            hub.audit
                .event(entry(&cluster, Verdict::Allow, reason))
                .await?;
            hub.presence.heard(&cluster.id, now, false);
            // What the former identity has open here; where the join is said again, the first answer may have been lost before that
            // was done. Other replicas hear of it by themselves. A line by the key that joins goes on: its agent may have had it before.
            directory::end_former(hub, Some(&cluster.name)).await?;
            Ok(assignment::of(hub, &cluster).await?)
        }
        Redeemed::Refused {
            refusal,
            cluster,
            winner,
        } => {
            let problem = refused(refusal);
            hub.metrics.joined(problem.slug.as_str());
            let Some(cluster) = cluster else {
                tracing::info!(addr, "a join token that is not valid");
                return Err(problem);
            };
            if let Some(reason) = listed(refusal) {
                let claimed = (said.identity, said.cluster.as_str(), Some(said.incarnation));
                unknown::claimed(hub, claimed, reason, &addr).await;
            }
            let reason = Some(problem.slug.as_str().to_owned());
            hub.audit
                .refused(entry(&cluster, Verdict::Deny, reason))
                .await?;
            // With a revoked key the agent comes again at once, with another.
            if !matches!(refusal, Refusal::Removed | Refusal::KeyRevoked) {
                let known = hub.store.cluster_key_by_fingerprint(&fingerprint).await?;
                let claimant = (fingerprint.as_str(), addr.as_str(), known.as_ref());
                let text = conflict(&cluster, refusal, claimant, winner.as_ref());
                let condition = Condition {
                    kind: ConditionType::JoinConflict,
                    status: Status::True,
                    reason: format!("{refusal:?}"),
                    message: cut(&text, 1024).to_owned(),
                    since: clock::rfc3339(now),
                };
                hub.store.set_condition(&cluster.id, condition, now).await?;
            }
            Err(problem)
        }
    }
}

/// A token that is good does not bind what is refused so: an operator may, knowing both.
fn listed(refusal: Refusal) -> Option<UnknownReason> {
    match refusal {
        Refusal::KeyKnown => Some(UnknownReason::KeyKnown),
        Refusal::IncarnationChanged => Some(UnknownReason::IncarnationChanged),
        Refusal::TokenInvalid | Refusal::TokenRedeemed | Refusal::KeyRevoked | Refusal::Removed => {
            None
        }
    }
}

/// What is shown of a join that was refused: of which key, from where, and what is known of the key.
fn conflict(
    cluster: &Cluster,
    refusal: Refusal,
    (fingerprint, addr, known): (&str, &str, Option<&ClusterKey>),
    winner: Option<&Redemption>,
) -> String {
    let name = &cluster.name;
    let readopt = format!("run: linesman cluster readopt {name}");
    match (refusal, winner) {
        (Refusal::TokenRedeemed, Some(first)) => format!(
            "key {} from {} redeemed the join token at {}; key {fingerprint} from {addr} tried it again; \
             if the second is the right cluster, {readopt}",
            first.fingerprint,
            first.addr,
            clock::rfc3339(first.at)
        ),
        (Refusal::IncarnationChanged, _) => format!(
            "key {fingerprint} from {addr} came from another kube-system than the one on record; \
             if the cluster was made anew, {readopt} --new-cluster"
        ),
        _ => match known.filter(|key| key.cluster_id != cluster.id) {
            Some(key) if key.state.is_valid() && !key.removed => format!(
                "the YAML of {name} was applied in the cluster that is {other} (key {fingerprint}, from {addr}); was it a mistake: \
                 linesman cluster readopt {other}, and apply what it prints there; is it to become {name}: \
                 linesman cluster remove {other}; is it a copy of {other}: kubectl delete namespace linesman there; \
                 then apply the YAML of {name} again",
                other = key.cluster
            ),
            Some(key) => format!(
                "the YAML of {name} was applied where {other} was, whose key {fingerprint} (from {addr}) is in force no more; \
                 is it to be {name}: kubectl delete namespace linesman there, and apply that YAML again",
                other = key.cluster
            ),
            None => format!(
                "key {fingerprint} from {addr} was revoked since it redeemed the join token; \
                 if that is the right cluster, {readopt}, and apply what it prints there"
            ),
        },
    }
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::TokenInvalid => invalid(),
        Refusal::TokenRedeemed => Problem::new(
            Slug::TokenRedeemed,
            "another key has redeemed this join token",
            "run: linesman cluster readopt NAME, and apply the new YAML in the right cluster",
        ),
        Refusal::KeyKnown => Problem::new(
            Slug::KeyKnown,
            "this identity key belongs to another cluster or was revoked",
            "run, for the cluster that this is: linesman cluster readopt NAME, and apply its YAML",
        ),
        Refusal::KeyRevoked => Problem::new(
            Slug::Revoked,
            "this identity key was revoked; the token is good for a new one",
            "agents of this version make new keys by themselves; for an older one, scale it to zero, delete the Secret linesman-keys, \
             and scale it up",
        ),
        Refusal::IncarnationChanged => Problem::new(
            Slug::IncarnationChanged,
            "this is another cluster than the one that joined under this name",
            "run: linesman cluster readopt NAME --new-cluster, and apply the new YAML",
        ),
        Refusal::Removed => auth::AuthError::Removed.into(),
    }
}

/// One answer for unknown, wrong, expired, revoked.
pub(in crate::hub::api) fn invalid() -> Problem {
    Problem::new(
        Slug::TokenInvalid,
        "the join token is unknown, expired, revoked or used",
        "run: linesman cluster readopt NAME, and apply the new YAML",
    )
}
