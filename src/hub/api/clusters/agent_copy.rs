//! Whether the catalog keeps a copy of the cluster's agent.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::find;
use crate::clock;
use crate::hub::adoption::copy::{self, CopyError, Done, Standing};
use crate::hub::auth::Role;
use crate::hub::store::Cluster;
use crate::hub::{Hub, chain_of};
use crate::manifests::copy::HasPassword;
use crate::wire::api::{AgentCopyRequest, AgentCopyStanding, AgentCopyView};

/// Writes the copy as it has to be now, or takes it out.
pub(super) async fn choose(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<AgentCopyRequest>,
) -> Result<Json<AgentCopyView>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.agent-copy")
        .await?;
    let what = format!("cluster {name}");
    let word = if asked.kept { "kept" } else { "taken out" };
    let claimed = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        caller
            .record(&hub, "cluster.agent-copy", Some(&name), word)
            .await?;
        claim(&hub, cluster).await
    });
    let cluster = claimed.await?;
    let done = if asked.kept {
        let written = copy::write(&hub, &cluster).await.map_err(refused);
        caller.outcome(&hub, written).await?
    } else {
        copy::take_out(&hub, &cluster).await?
    };
    Ok(Json(AgentCopyView {
        kept: asked.kept,
        proposed: proposed(done),
    }))
}

/// Makes a revision the caller's whose change is one of the catalog, so that nobody else makes one of the same; None = somebody
/// else was quicker.
pub(super) async fn claim(hub: &Hub, cluster: Cluster) -> Result<Option<Cluster>, Problem> {
    let claimed = hub.store.claim_cluster(cluster.revision(), clock::now());
    Ok(claimed.await?.then_some(cluster))
}

/// How the copy stands; that it cannot be told keeps nobody from the rest of what is known of a cluster.
pub(super) async fn standing(hub: &Hub, cluster: &Cluster) -> AgentCopyStanding {
    let applied = copy::is_applied(hub, cluster).await;
    let applied = applied.inspect_err(|error| {
        let error = format!("{error:#}");
        tracing::error!(cluster = %cluster.name, error, "look at what the engine applied of the agent's copy");
    });
    AgentCopyStanding {
        applied: applied.ok(),
        ..in_catalog(hub, cluster).await
    }
}

async fn in_catalog(hub: &Hub, cluster: &Cluster) -> AgentCopyStanding {
    let kept = |current, proposed, trouble| AgentCopyStanding {
        kept: true,
        current,
        proposed,
        trouble,
        applied: None,
    };
    match copy::standing(hub, cluster).await {
        Ok(Standing::None) => AgentCopyStanding::default(),
        Ok(Standing::Current) => kept(true, None, None),
        Ok(Standing::Proposed(branch)) => kept(false, Some(branch), None),
        Ok(Standing::Old) => kept(false, None, trouble(hub, cluster).await),
        Err(CopyError::HasPassword(refusal)) => kept(false, None, Some(refusal.to_string())),
        Err(CopyError::Catalog(error)) => {
            let error = format!("{error:#}");
            tracing::error!(cluster = %cluster.name, error, "look at the agent's copy in the catalog");
            let trouble = Some("the hub cannot read the catalog; see its log".to_owned());
            AgentCopyStanding {
                trouble,
                ..AgentCopyStanding::default()
            }
        }
    }
}

/// Why it is not renewed, by whichever replica met that.
async fn trouble(hub: &Hub, cluster: &Cluster) -> Option<String> {
    let noted = hub.store.copy_trouble(&cluster.id).await;
    noted.unwrap_or_else(|error| {
        tracing::error!(cluster = %cluster.name, error = chain_of(&error), "read what the agent's copy lacks");
        Some("the hub cannot read why; see its log".to_owned())
    })
}

/// The branch on which a change waits for a signature.
pub(super) fn proposed(done: Done) -> Option<String> {
    match done {
        Done::InForce(_) => None,
        Done::Proposed(branch) => Some(branch),
    }
}

pub(super) fn refused(error: CopyError) -> Problem {
    match error {
        CopyError::HasPassword(refusal) => password(&refusal),
        CopyError::Catalog(error) => error.into(),
    }
}

pub(super) fn password(refusal: &HasPassword) -> Problem {
    Problem::new(
        Slug::BadRequest,
        format!("no copy of this agent is kept in the catalog: {refusal}"),
        "use a proxy without a password, or keep no copy",
    )
}

/// A cluster whose copy stays would get its agent back after its removal.
pub(super) fn stays(name: &str, branch: &str) -> Problem {
    Problem::new(
        Slug::HeadUnsigned,
        format!(
            "the catalog keeps a copy of the agent of cluster {name}, by which its engine would bring a removed agent back; the \
             head has to be signed, so taking it out waits on branch {branch}"
        ),
        format!("merge {branch} with a signature, then run this again"),
    )
}
