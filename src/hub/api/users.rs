//! Users and their tokens: made, listed, changed, ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};

use super::precondition::Part;
use super::problem::{Problem, Slug};
use super::{Caller, UserBody, precondition};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access;
use crate::hub::auth::{self, Role};
use crate::hub::running::Gone;
use crate::hub::store::{Ended, UserRow};
use crate::wire::api::{NewUser, Page, RoleByGroup, UserView};

mod change;
mod code;
mod narrow;
mod sessions;
mod tokens;
pub(super) use tokens::whose;

const MAX_GROUPS: usize = 64;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/users", get(list).post(add))
        .route(
            "/v1/users/{name}",
            get(change::show).patch(change::set).delete(remove),
        )
        .route("/v1/users/{name}/login-codes", post(code::make))
        .route("/v1/users/{name}/sessions/end", post(sessions::end))
        .route("/v1/api-tokens", get(tokens::list).post(tokens::create))
        .route(
            "/v1/api-tokens/{id}",
            get(tokens::one).delete(tokens::revoke),
        )
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(part): Query<Part>,
) -> Result<Json<Page<UserView>>, Problem> {
    if !caller.user.is(Role::Auditor) {
        caller.require(&hub, Role::Access, "user.list").await?;
    }
    let tokens = hub.store.api_tokens(None, clock::now()).await?;
    let users = hub.store.users().await?;
    let view = |user: UserRow| {
        let count = tokens.iter().filter(|(_, name)| *name == user.name).count();
        shown(&hub, user, count)
    };
    let users = precondition::page(users, &part, |user| user.name.clone())?;
    Ok(Json(Page {
        items: users.items.into_iter().map(view).collect(),
        cursor: users.cursor,
    }))
}

async fn add(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(new): UserBody<NewUser>,
) -> Result<(StatusCode, Json<UserView>), Problem> {
    caller.require(&hub, Role::Admin, "user.add").await?;
    let bad = |what: &str, next: &str| Err(Problem::new(Slug::BadRequest, what, next));
    if !access::named(&new.name) {
        return bad(
            "a user's name is 1 to 200 of A-Z a-z 0-9 . _ @ + : -",
            "choose another name",
        );
    }
    if bad_groups(&new.groups) {
        return bad(
            "a user is in at most 64 groups of A-Z a-z 0-9 . _ @ + : -",
            "correct the groups",
        );
    }
    if bad_roles(&new.roles) {
        return bad(
            "a role is one of viewer, operator, access, auditor, admin",
            "correct the roles",
        );
    }
    let target = format!("{} roles {:?} groups {:?}", new.name, new.roles, new.groups);
    caller.record(&hub, "user.add", None, &target).await?;
    let user = UserRow {
        id: clock::id(),
        name: new.name,
        roles: new.roles.into_iter().collect(),
        groups: new.groups.into_iter().collect(),
        disabled: false,
        provider: None,
        rev: 1,
    };
    let added = hub.store.add_user(user, clock::now()).await;
    let user = caller.outcome(&hub, added.map_err(Problem::from)).await?;
    hub.access_changed.notify_one();
    Ok((StatusCode::CREATED, Json(shown(&hub, user, 0))))
}

fn shown(hub: &Hub, user: UserRow, tokens: usize) -> UserView {
    let oidc = hub.config.oidc.as_ref();
    let in_force = auth::lapsed(&user, oidc, clock::now()).is_none();
    let given = auth::roles_given(&user, oidc).map(|(role, group)| RoleByGroup {
        role: role.as_str().to_owned(),
        group: group.clone(),
        in_force,
    });
    UserView {
        roles_by_group: given.collect(),
        tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        vouched_at: user.provider.as_ref().map(|p| clock::rfc3339(p.vouched_at)),
        provider: user.provider.map(|p| p.issuer),
        name: user.name,
        roles: user.roles,
        groups: user.groups,
        rev: user.rev,
    }
}

fn bad_groups(groups: &BTreeSet<String>) -> bool {
    groups.len() > MAX_GROUPS || !groups.iter().all(|g| access::named(g))
}

fn bad_roles(roles: &BTreeSet<String>) -> bool {
    !roles.iter().all(|r| Role::parse(r).is_some())
}

async fn remove(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller.require(&hub, Role::Admin, "user.remove").await?;
    let what = format!("user {name}");
    let removed = precondition::written((&hub, &caller), &what, || async {
        let user = find(&hub, &name).await?;
        precondition::matches(&headers, user.rev, &what)?;
        caller.record(&hub, "user.remove", None, &name).await?;
        match hub.store.remove_user(user.revision(), clock::now()).await? {
            Ended::Done => Ok(Some(user)),
            Ended::Unknown => Ok(None),
            Ended::LastAdmin => Err(last_admin()),
        }
    });
    let user = removed.await?;
    hub.requests.end(Gone::User(&user.id));
    hub.access_changed.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

async fn find(hub: &Hub, name: &str) -> Result<UserRow, Problem> {
    let found = hub.store.user(name).await?;
    found.ok_or_else(|| unknown("user", name))
}

fn unknown(what: &str, name: &str) -> Problem {
    let name = crate::hub::cut(name, 60);
    let verb = if what == "user" { "user" } else { "token" };
    Problem::new(
        Slug::NotFound,
        format!("there is no {what} '{name}'"),
        format!("see: linesman {verb} list"),
    )
}

fn last_admin() -> Problem {
    Problem::new(
        Slug::LastAdmin,
        "nobody could administer the hub any more",
        "give another admin a token first: linesman user add NAME --role admin; linesman token create --user NAME --title TEXT",
    )
}
