//! A way in for a local user: a code that is good once, for ten minutes, in place of a password.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};

use super::super::problem::{Problem, Slug};
use super::super::{Caller, precondition};
use super::find;
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::{Hub, login};
use crate::wire::api::LoginCode;

pub(super) async fn make(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<LoginCode>), Problem> {
    caller.require(&hub, Role::Admin, "user.login-code").await?;
    let user = find(&hub, &name).await?;
    if let Some(provider) = &user.provider {
        return Err(Problem::new(
            Slug::BadRequest,
            format!(
                "{name} comes from the identity provider {}",
                provider.issuer
            ),
            "they log in with it: linesman login HUB",
        ));
    }
    // A call that comes again gets another code, and the one before ends: one is in force.
    let path = format!("/v1/users/{name}/login-codes");
    precondition::repeated(&hub, &caller, &headers, &path, &()).await?;
    caller.record(&hub, "user.login-code", None, &name).await?;
    let code = TokenText::new(clock::random(), clock::random()).text(Prefix::Login);
    let until = login::pending(&hub)
        .invite(&code, &user.id, clock::now())
        .await?;
    let answer = LoginCode {
        user: user.name,
        code: code.into_inner(),
        expires_at: clock::rfc3339(until),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}
