//! Agents whose keys the hub does not know: the list of them, and how an operator lets one in.

use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};

use super::clusters::{check, choose, is_one_line};
use super::problem::{Problem, Slug};
use super::{Caller, UserBody};
use crate::clock;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::auth::Role;
use crate::hub::registration::AcceptRefusal;
use crate::hub::replica::lines::Elsewhere;
use crate::hub::store::{Accept, Accepted, NewClusterRow, UnknownAgent, patience};
use crate::hub::{Hub, catalog, git};
use crate::wire::api::{
    AcceptRequest, Acceptance, AdoptionOptions, EngineKind, GitRoute, NewCluster, Page,
    UnknownAgentView,
};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/unknown-agents", get(list))
        .route("/v1/unknown-agents/accept", post(accept))
}

/// A bounded list: one page.
async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<Json<Page<UnknownAgentView>>, Problem> {
    caller
        .require(&hub, Role::Viewer, "cluster.list-unknown")
        .await?;
    let agents = hub.store.unknown_agents().await?;
    let items = agents.into_iter().map(view).collect();
    Ok(Json(Page {
        items,
        cursor: None,
    }))
}

fn view(agent: UnknownAgent) -> UnknownAgentView {
    UnknownAgentView {
        fingerprint: agent.public.fingerprint(),
        cluster: agent.cluster,
        reason: agent.reason.as_str().to_owned(),
        address: agent.addr,
        incarnation: agent.incarnation,
        first_seen: clock::rfc3339(agent.first_seen),
        last_seen: clock::rfc3339(agent.last_seen),
    }
}

async fn accept(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(asked): UserBody<AcceptRequest>,
) -> Result<Json<Acceptance>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.accept")
        .await?;
    let reason = asked.reason.trim().to_owned();
    if !reason.is_empty() && !is_one_line(&reason) {
        return Err(Problem::new(
            Slug::BadRequest,
            "a reason is one line of at most 200 characters",
            "say in a few words why",
        ));
    }
    let fingerprint = asked.fingerprint.trim();
    let Some(agent) = hub.store.unknown_agent(fingerprint).await? else {
        return already(&hub, fingerprint).await.map(Json);
    };
    let new = record(&hub, &agent.cluster, &asked).await?;
    let accept = Accept {
        fingerprint: agent.public.fingerprint(),
        replace: asked.replace,
        live: is_live(&hub, &agent.cluster).await?,
        new,
    };
    // What was begun is finished, although the caller went away.
    let work = hub.clone();
    let done = hub.work.spawn(patience::carried(async move {
        bind(&work, &caller, (&agent, accept), reason).await
    }));
    done.await.context("accept an agent")?.map(Json)
}

/// Somebody has let it in already, or there is no such agent.
async fn already(hub: &Hub, fingerprint: &str) -> Result<Acceptance, Problem> {
    let key = hub.store.cluster_key_by_fingerprint(fingerprint).await?;
    let key = key.filter(|k| k.state.is_valid() && !k.removed);
    let Some(key) = key else {
        return Err(refused(AcceptRefusal::Unknown, fingerprint, None));
    };
    let cluster = hub.store.cluster(&key.cluster).await?;
    let path = cluster.map_or_else(String::new, |cluster| cluster.catalog_path);
    Ok(Acceptance {
        catalog: in_catalog(hub, &path).await?,
        cluster: key.cluster,
        created: false,
        already: true,
        ended: Vec::new(),
    })
}

/// What a cluster becomes that the hub has no record of; None = the hub has no bundle for it.
async fn record(
    hub: &Hub,
    name: &ClusterName,
    asked: &AcceptRequest,
) -> Result<Option<NewClusterRow>, Problem> {
    let new = NewCluster {
        name: name.clone(),
        engine: asked.engine.unwrap_or(EngineKind::Flux),
        bundle: asked.bundle.clone(),
        labels: asked.labels.clone(),
        git_route: GitRoute::Auto,
        agent_copy: false,
        adoption: AdoptionOptions::default(),
    };
    check(&new)?;
    let bundle = match choose(hub, &new).await {
        Ok(bundle) => bundle,
        Err(problem) if problem.slug == Slug::NoBundle => return Ok(None),
        Err(problem) => return Err(problem),
    };
    Ok(Some(NewClusterRow {
        catalog_path: followed(hub, name, new.engine).await?,
        name: new.name,
        labels: new.labels,
        engine: new.engine,
        engine_version: bundle.version,
        bundle: bundle.digest,
        git_route: new.git_route,
        adoption: new.adoption,
    }))
}

/// What such a cluster most likely follows: the hub has no record of that, either.
async fn followed(hub: &Hub, name: &ClusterName, engine: EngineKind) -> Result<String, Problem> {
    let [own, path, _] = catalog::places(name, engine);
    let (repo, branch) = (&hub.catalog.repo, &hub.catalog.branch);
    let there = git::below(repo, branch, vec![own.clone()]).await?;
    let suits = catalog::suits(&there, &own, engine).is_ok();
    Ok(if suits { own } else { path })
}

/// Whether the cluster has a line, here or at another replica.
async fn is_live(hub: &Hub, cluster: &ClusterName) -> Result<bool, Problem> {
    let elsewhere = Elsewhere::of(hub, cluster).await?;
    Ok(elsewhere
        .view(cluster, hub.tunnels.view(cluster))
        .up
        .is_some())
}

async fn bind(
    hub: &Hub,
    caller: &Caller,
    (agent, accept): (&UnknownAgent, Accept),
    reason: String,
) -> Result<Acceptance, Problem> {
    let (name, fingerprint) = (agent.cluster.as_str(), accept.fingerprint.clone());
    let because = (!reason.is_empty()).then_some(reason);
    let mut entry = caller.entry("cluster.accept", Some(name), &fingerprint);
    entry.reason.clone_from(&because);
    hub.audit.change(entry).await?;
    let accepted = match hub.store.accept_agent(accept, clock::now()).await? {
        Accepted::Bound {
            cluster,
            created,
            already,
            ended,
        } => Ok((cluster, created, already, ended)),
        Accepted::NoBundle => Err(no_bundle(name)),
        Accepted::Refused(refusal) => Err(refused(refusal, &fingerprint, Some(&agent.cluster))),
    };
    let (cluster, created, already, ended) = match accepted {
        Ok(bound) => bound,
        Err(problem) => {
            let denied = Entry {
                verdict: Verdict::Deny,
                reason: Some(problem.slug.as_str().to_owned()),
                ..caller.entry("cluster.accept", Some(name), &fingerprint)
            };
            hub.audit.event(denied).await?;
            return Err(problem);
        }
    };
    tracing::info!(
        cluster = name,
        fingerprint,
        created,
        by = caller.user.name,
        "agent accepted"
    );
    if !ended.is_empty() {
        hub.tunnels
            .close(&cluster.name, Code::Revoked, "another key was accepted");
    }
    for old in &ended {
        let mut entry = caller.entry(old.kind.dropped(), Some(name), &old.fingerprint);
        entry.reason = Some(format!("{fingerprint} was accepted"));
        hub.audit.event(entry).await?;
    }
    Ok(Acceptance {
        catalog: in_catalog(hub, &cluster.catalog_path).await?,
        cluster: cluster.name,
        created,
        already,
        ended: ended.into_iter().map(|k| k.fingerprint).collect(),
    })
}

/// Whether there is what the cluster is to follow. Nothing is written there: what was in a catalog of before may be more
/// than the hub would begin with, and an engine prunes what is not there.
async fn in_catalog(hub: &Hub, path: &str) -> Result<bool, Problem> {
    Ok(git::has_directory(&hub.catalog.repo, &hub.catalog.branch, path).await?)
}

fn no_bundle(name: &str) -> Problem {
    Problem::new(
        Slug::NoBundle,
        format!("the hub has no record of cluster {name}, and no bundle of its engine"),
        "run: linesman engine import flux VERSION, with the version that runs there",
    )
}

fn refused(refusal: AcceptRefusal, fingerprint: &str, cluster: Option<&ClusterName>) -> Problem {
    let name = cluster.map_or("NAME", ClusterName::as_str);
    match refusal {
        AcceptRefusal::Unknown => Problem::new(
            Slug::NotFound,
            format!(
                "no agent with the key {} is listed",
                crate::hub::cut(fingerprint, 100)
            ),
            "see: linesman cluster list --unknown; an agent is listed when it has come",
        ),
        AcceptRefusal::KeyKnown => Problem::new(
            Slug::KeyKnown,
            format!(
                "the key {fingerprint} is on record for another cluster than the one that claims {name} with it"
            ),
            "give that one keys of its own: delete the Secret linesman-keys there while its agent is scaled to zero, then apply the \
             YAML of: linesman cluster add, or linesman cluster readopt --new-cluster",
        ),
        AcceptRefusal::Revoked => Problem::new(
            Slug::KeyKnown,
            format!("cluster {name} or this key of it was revoked"),
            format!("the way back is new keys; run: linesman cluster readopt {name}"),
        ),
        AcceptRefusal::Live => Problem::new(
            Slug::LineLive,
            format!("cluster {name} is there with another key, and has a line"),
            format!(
                "if that one is not yours: linesman cluster revoke {name}, then linesman cluster readopt {name}"
            ),
        ),
        AcceptRefusal::NeedsReplace => Problem::new(
            Slug::Exists,
            format!("cluster {name} has another identity key in force"),
            format!(
                "if this agent is the right one: linesman cluster accept {fingerprint} --replace"
            ),
        ),
    }
}
