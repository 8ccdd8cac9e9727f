//! Another adoption YAML for a cluster that is there.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, once, precondition};
use super::{adopt, check_options, find};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::store::{Call, Called};
use crate::wire::api::{AdoptionAnswer, NewJoinToken};

pub(super) async fn readopt(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(new): UserBody<NewJoinToken>,
) -> Result<(StatusCode, Json<AdoptionAnswer>), Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.readopt")
        .await?;
    let cluster = find(&hub, &name).await?;
    let path = format!("/v1/clusters/{name}/join-tokens");
    let call = precondition::call(&caller, &headers, &path, &new)?;
    let options = new.adoption.of(&cluster.adoption);
    if options.engine_namespace != cluster.adoption.engine_namespace {
        let asked = &options.engine_namespace;
        return Err(Problem::new(
            Slug::BadRequest,
            format!("the engine of cluster {name} cannot move to namespace {asked}"),
            "leave engineNamespace out, or add another cluster with it",
        ));
    }
    check_options(&options)?;
    if let Some(call) = &call {
        may_come_again(&hub, call).await?;
    }
    let issued = async {
        caller
            .record(&hub, "cluster.readopt", Some(&name), "")
            .await?;
        adopt(&hub, &caller, cluster, options, new.new_cluster).await
    };
    let issued = issued.await;
    if let Some(call) = &call {
        let id = issued.as_ref().ok().map(|(_, id)| id.clone());
        once::end(&hub, call, id).await;
    }
    issued.map(|(answer, _)| (StatusCode::CREATED, Json(answer)))
}

/// The call that comes again gets another token, and the one before ends; not if that one was redeemed, or is not the last.
async fn may_come_again(hub: &Hub, call: &Call) -> Result<(), Problem> {
    let begun = hub.store.begin_call(call, clock::now()).await;
    let id = match begun.map_err(precondition::not_noted)? {
        Called::First => return Ok(()),
        Called::Running => return Err(once::running()),
        Called::Changed => return Err(once::changed()),
        Called::Other => return Err(precondition::mismatch()),
        Called::Before(id) => id,
    };
    let token = hub.store.join_token(&id).await?;
    if token.is_some_and(|t| t.redeemed.is_none() && t.revoked_at.is_none()) {
        return Ok(());
    }
    Err(Problem::new(
        Slug::Exists,
        "the token of this Idempotency-Key was redeemed, or another one took its place",
        "send a new Idempotency-Key",
    ))
}
