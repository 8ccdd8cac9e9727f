//! What a cluster's agent holds back from Git is given back by a person's word, whatever its commit.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::find;
use super::pause::{is_one_line, tell};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::wire::api::{LiftRequest, Policy};

pub(super) async fn lift(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<LiftRequest>,
) -> Result<Json<Policy>, Problem> {
    caller.require(&hub, Role::Operator, "cluster.lift").await?;
    let reason = asked.reason.trim();
    if !is_one_line(reason) {
        return Err(Problem::new(
            Slug::BadRequest,
            "to give back what is held needs a reason of one line, at most 200 characters"
                .to_owned(),
            "say in a few words why its commit does no harm now",
        ));
    }
    let what = format!("cluster {name}");
    let lifted = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        let policy = Policy {
            lift_before: Some(clock::rfc3339(clock::now())),
            ..cluster.policy.clone()
        };
        caller
            .record(&hub, "cluster.lift", Some(&name), reason)
            .await?;
        tell(&hub, cluster, policy).await
    });
    lifted.await.map(Json)
}
