//! Changing what a user may: roles at once, groups for what they run as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::{bad_groups, bad_roles, find, last_admin, shown};
use crate::clock;
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::api::{Caller, UserBody, precondition};
use crate::hub::auth::Role;
use crate::hub::store::{Ended, UserRow};
use crate::hub::{Hub, grants};
use crate::wire::api::{UserChange, UserView};

pub(super) async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<(precondition::Tag, Json<UserView>), Problem> {
    if !caller.user.is(Role::Auditor) {
        caller.require(&hub, Role::Access, "user.show").await?;
    }
    let user = find(&hub, &name).await?;
    answer(&hub, user).await
}

/// Each list that is there replaces the one on record.
pub(super) async fn set(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(change): UserBody<UserChange>,
) -> Result<(precondition::Tag, Json<UserView>), Problem> {
    caller.require(&hub, Role::Admin, "user.set").await?;
    let what = format!("user {name}");
    let set = precondition::written((&hub, &caller), &what, || async {
        let before = find(&hub, &name).await?;
        precondition::matches(&headers, before.rev, &what)?;
        put(&hub, &caller, before, &change).await
    });
    let (before, after) = set.await?;
    grants::groups_lost(&hub, &after.id, &before.groups, &after.groups).await?;
    hub.access_changed.notify_one();
    let user = find(&hub, &name).await?;
    answer(&hub, user).await
}

/// The user as it was, and as it is now; None = somebody else was quicker.
async fn put(
    hub: &Hub,
    caller: &Caller,
    before: UserRow,
    change: &UserChange,
) -> Result<Option<(UserRow, UserRow)>, Problem> {
    let name = &before.name;
    if change.roles.as_ref().is_some_and(bad_roles) {
        return Err(Problem::new(
            Slug::BadRequest,
            "a role is one of viewer, operator, access, auditor, admin",
            "correct the roles",
        ));
    }
    if change.groups.as_ref().is_some_and(bad_groups) {
        return Err(Problem::new(
            Slug::BadRequest,
            "a user is in at most 64 groups of A-Z a-z 0-9 . _ @ + : -",
            "correct the groups",
        ));
    }
    if change.groups.is_some() && before.provider.is_some() {
        return Err(Problem::new(
            Slug::BadRequest,
            format!("the groups of {name} are the identity provider's word"),
            "change them there; they arrive within 16 minutes",
        ));
    }
    let list = |new: &Option<BTreeSet<String>>, old: &[String]| {
        let new = new.as_ref();
        new.map_or_else(|| old.to_vec(), |set| set.iter().cloned().collect())
    };
    let roles = list(&change.roles, &before.roles);
    let groups = list(&change.groups, &before.groups);
    let target = format!(
        "{name} roles {:?} became {roles:?}, groups {:?} became {groups:?}",
        before.roles, before.groups
    );
    caller.record(hub, "user.set", None, &target).await?;
    let after = UserRow {
        roles,
        groups,
        ..before.clone()
    };
    match hub.store.set_user(after.clone(), clock::now()).await? {
        Ended::Done => Ok(Some((before, after))),
        Ended::Unknown => Ok(None),
        Ended::LastAdmin => Err(last_admin()),
    }
}

async fn answer(hub: &Hub, user: UserRow) -> Result<(precondition::Tag, Json<UserView>), Problem> {
    let tokens = hub.store.api_tokens(Some(&user.id), clock::now()).await?;
    Ok((
        precondition::tag(user.rev),
        Json(shown(hub, user, tokens.len())),
    ))
}
