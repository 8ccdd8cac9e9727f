//! A user's tokens: made, listed, ended.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use super::{find, last_admin, narrow, unknown};
use crate::clock;
use crate::hub::api::precondition::{self, Part};
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::api::{Caller, UserBody};
use crate::hub::auth::{self, Role, Scope};
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::running::Gone;
use crate::hub::store::{ApiToken, Ended, StoreError, UserRow};
use crate::hub::{Hub, access};
use crate::keys;
use crate::wire::api::{ApiTokenAnswer, ApiTokenView, NewApiToken, Page};
use crate::wire::id::ClusterName;

const MAX_TITLE: usize = 100;
/// A token is never changed, so that it has one revision.
const TOKEN_REV: i64 = 1;
/// The longest life of a token.
const LONGEST: u64 = 366 * 24 * 3600;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// Whose; absent = the caller's own. Admins may ask for `*`.
    user: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<ApiTokenView>>, Problem> {
    let of = whose(&hub, &caller, wanted.user.as_deref(), "token.list").await?;
    let tokens = hub.store.api_tokens(of.as_deref(), clock::now()).await?;
    let own = caller.user.clusters.as_ref();
    let told = |(token, user)| Some((narrow::shown(token, own)?, user));
    let tokens: Vec<(ApiToken, String)> = tokens.into_iter().filter_map(told).collect();
    let part = Part {
        limit: wanted.limit,
        cursor: wanted.cursor,
    };
    let place = |(token, user): &(ApiToken, String)| {
        let since = token.created_at.unix_timestamp_nanos();
        format!("{user}\0{since:030}\0{}", token.id)
    };
    let tokens = precondition::page(tokens, &part, place)?;
    let holders: BTreeSet<&String> = tokens.items.iter().map(|(t, _)| &t.user_id).collect();
    let holders: Vec<String> = holders.into_iter().cloned().collect();
    let users = hub.store.users_of(&holders).await?;
    let users: HashMap<&str, &UserRow> = users.iter().map(|u| (u.id.as_str(), u)).collect();
    let items = tokens.items.into_iter().map(|(token, name)| {
        let user = users.get(token.user_id.as_str());
        let vouched = user.and_then(|user| vouched(&hub, &token, user));
        view(token, name, vouched)
    });
    Ok(Json(Page {
        items: items.collect(),
        cursor: tokens.cursor,
    }))
}

/// Of which user something is to be listed: the caller where nobody is named, and for admins whoever is, or all (`*`, None).
pub(in crate::hub::api) async fn whose(
    hub: &Hub,
    caller: &Caller,
    named: Option<&str>,
    action: &str,
) -> Result<Option<String>, Problem> {
    let Some(name) = named.filter(|name| *name != caller.user.name) else {
        return Ok(Some(caller.user.id.clone()));
    };
    caller.require(hub, Role::Admin, action).await?;
    match name {
        "*" => Ok(None),
        name => Ok(Some(find(hub, name).await?.id)),
    }
}

/// One in force, to its holder and to admins.
pub(super) async fn one(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(precondition::Tag, Json<ApiTokenView>), Problem> {
    let (token, user) = known(&hub, &id).await?;
    // Nobody learns by this whose tokens there are.
    if user.id != caller.user.id && !caller.user.is(Role::Admin) {
        return Err(unknown("token", &id));
    }
    let over = token.expires_at.is_some_and(|end| end <= clock::now());
    if over || token.revoked_at.is_some() {
        return Err(unknown("token", &id));
    }
    let token = narrow::shown(token, caller.user.clusters.as_ref());
    let token = token.ok_or_else(|| unknown("token", &id))?;
    let vouched = vouched(&hub, &token, &user);
    let shown = view(token, user.name, vouched);
    Ok((precondition::tag(TOKEN_REV), Json(shown)))
}

/// A token with its user, whatever their state.
async fn known(hub: &Hub, id: &str) -> Result<(ApiToken, UserRow), Problem> {
    let found = match keys::decode(id) {
        Some(_) => hub.store.api_token(id).await?,
        None => None,
    };
    found.ok_or_else(|| unknown("token", id))
}

/// Until when it holds, where the identity provider's word on its user ends before it.
fn vouched(hub: &Hub, token: &ApiToken, user: &UserRow) -> Option<OffsetDateTime> {
    auth::vouched_before(token.expires_at, user, hub.config.oidc.as_ref())
}

fn view(token: ApiToken, user: String, vouched: Option<OffsetDateTime>) -> ApiTokenView {
    ApiTokenView {
        id: token.id,
        user,
        title: token.title,
        scopes: token.scopes,
        clusters: token.clusters,
        created_by: token.created_by,
        created_at: clock::rfc3339(token.created_at),
        expires_at: token.expires_at.map(clock::rfc3339),
        vouched_until: vouched.map(clock::rfc3339),
    }
}

pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    headers: HeaderMap,
    UserBody(new): UserBody<NewApiToken>,
) -> Result<(StatusCode, Json<ApiTokenAnswer>), Problem> {
    let user = match &new.user {
        Some(name) if *name != caller.user.name => {
            caller.require(&hub, Role::Admin, "token.create").await?;
            find(&hub, name).await?
        }
        // A token with scopes would otherwise make one without.
        _ => {
            caller.unscoped(&hub, "token.create").await?;
            find(&hub, &caller.user.name).await?
        }
    };
    check(&new)?;
    precondition::repeated(&hub, &caller, &headers, "/v1/api-tokens", &new).await?;
    let now = clock::now();
    let fresh = TokenText::new(clock::random(), clock::random());
    let record = record(&new, &caller, &user, &fresh, now);
    let target = format!(
        "{} of {}: {} {:?}{} until {}",
        record.id,
        user.name,
        record.title,
        record.scopes,
        described(record.clusters.as_ref()),
        record.expires_at.map(clock::rfc3339).unwrap_or_default()
    );
    caller.record(&hub, "token.create", None, &target).await?;
    let key = precondition::key(&headers)?.map(str::to_owned);
    let stored = hub.store.add_api_token(record, key).await;
    let stored = caller.outcome(&hub, stored.map_err(not_made)).await?;
    if stored.id != fresh.id {
        let id = &stored.id;
        let what = format!("token {id}, which the same call made before, with another secret");
        caller.came_before(&hub, &what).await?;
    }
    // A repeated call finds its token and gives it this secret.
    let text = fresh.with_id(&stored.id).text(Prefix::Api);
    let vouched = vouched(&hub, &stored, &user);
    let answer = ApiTokenAnswer {
        token: text.into_inner(),
        view: view(stored, user.name, vouched),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

fn not_made(error: StoreError) -> Problem {
    match error {
        StoreError::Full(what) => Problem::new(
            Slug::Full,
            what,
            "end one that nobody needs: linesman token revoke ID; see: linesman token list, with --all those of everybody, for admins",
        ),
        other => precondition::taken(other),
    }
}

fn check(new: &NewApiToken) -> Result<(), Problem> {
    let bad = |what: &str, next: &str| Err(Problem::new(Slug::BadRequest, what, next));
    if !(1..=LONGEST).contains(&new.lasts) {
        return bad(
            "a token lasts 1 s to 366 d",
            "say another time, such as 90 days (--for 90d)",
        );
    }
    if new.title.is_empty()
        || new.title.len() > MAX_TITLE
        || new.title.chars().any(char::is_control)
    {
        return bad(
            "a token's title is 1 to 100 bytes without control characters",
            "say what it is for, such as 'laptop'",
        );
    }
    if !new.scopes.iter().all(|s| Scope::parse(s).is_some()) {
        return bad(
            "a scope is kube, kube-read or a role: viewer, operator, access, auditor, admin",
            "correct the scopes",
        );
    }
    let Some(clusters) = &new.clusters else {
        return Ok(());
    };
    if !(1..=access::MAX_CLUSTERS).contains(&clusters.len()) {
        return bad("a token is for 1 to 100 clusters", "leave them out for all");
    }
    // What the hub's own calls show and change is not told apart by cluster.
    let kube = |s: &String| matches!(Scope::parse(s), Some(Scope::Kube | Scope::KubeRead));
    if new.scopes.is_empty() || !new.scopes.iter().all(kube) {
        return bad(
            "a token for some clusters only has the scopes kube or kube-read and no others",
            "give it --scope kube or --scope kube-read, and another token for the hub's own calls",
        );
    }
    Ok(())
}

fn described(clusters: Option<&BTreeSet<ClusterName>>) -> String {
    clusters.map_or_else(String::new, |names| {
        let names: Vec<&str> = names.iter().map(ClusterName::as_str).collect();
        format!(" on {}", names.join(","))
    })
}

fn record(
    new: &NewApiToken,
    caller: &Caller,
    user: &UserRow,
    fresh: &TokenText,
    now: OffsetDateTime,
) -> ApiToken {
    let lasts = Duration::seconds(i64::try_from(new.lasts).unwrap_or(i64::MAX));
    ApiToken {
        id: fresh.id.clone(),
        user_id: user.id.clone(),
        hash: fresh.hash(),
        title: new.title.clone(),
        scopes: new.scopes.iter().cloned().collect(),
        clusters: new.clusters.clone(),
        created_by: caller.user.name.clone(),
        created_at: now,
        expires_at: Some(now + lasts),
        revoked_at: None,
    }
}

pub(super) async fn revoke(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let (token, user) = known(&hub, &id).await?;
    if user.id != caller.user.id || caller.user.scoped {
        // Nobody learns by this whose tokens there are.
        if !caller.user.is(Role::Admin) {
            return Err(unknown("token", &id));
        }
    }
    precondition::matches(&headers, TOKEN_REV, &format!("token {id}"))?;
    let target = format!("{} of {}: {}", token.id, user.name, token.title);
    caller.record(&hub, "token.revoke", None, &target).await?;
    let revoked = match hub.store.revoke_api_token(&id, clock::now()).await? {
        Ended::Done => Ok(()),
        Ended::Unknown => {
            caller.lost(&hub).await?;
            Err(unknown("token", &id))
        }
        Ended::LastAdmin => Err(last_admin()),
    };
    caller.outcome(&hub, revoked).await?;
    hub.requests.end(Gone::Token(&id));
    Ok(StatusCode::NO_CONTENT)
}
