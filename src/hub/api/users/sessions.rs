//! All sessions of a user at once: a machine that kept one is lost, or in somebody else's hands.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::StatusCode;

use super::super::Caller;
use super::super::problem::Problem;
use super::find;
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::running::Gone;

const ACTION: &str = "user.end-sessions";

/// One's own, but not by a token that is for something else, and anybody's by admins. Tokens and SSH keys go on.
pub(super) async fn end(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let own = name == caller.user.name && !caller.user.scoped;
    if !own {
        caller.require(&hub, Role::Admin, ACTION).await?;
    }
    let user = find(&hub, &name).await?;
    caller.record(&hub, ACTION, None, &name).await?;
    let why = format!("ended by {}", caller.user.name);
    let ended = hub.store.end_sessions(&user.id, &why, clock::now()).await;
    let ended = caller.outcome(&hub, ended.map_err(Problem::from)).await?;
    for id in &ended {
        hub.requests.end(Gone::Token(id));
    }
    Ok(StatusCode::NO_CONTENT)
}
