//! Grants: give, list, revoke, and explain who gets where.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use time::OffsetDateTime;

use super::problem::{Problem, Slug};
use super::{Caller, UserBody, clusters, precondition};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{Clusters, Grant, Mode};
use crate::hub::auth::Role;
use crate::hub::running::Gone;
use crate::hub::store::{Cluster, Revision};
use crate::wire::api::{ClusterChoice, GrantView, NewGrant};
use crate::wire::id::ClusterName;

mod asked;
mod check;
mod list;
mod reach;

pub(super) use asked::is_namespace;
use reach::Reach;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/grants", get(list::list).post(add))
        .route("/v1/grants/check", get(check::check))
        .route("/v1/grants/{id}", get(show).delete(revoke))
}

fn manages(caller: &Caller) -> bool {
    caller.user.is(Role::Access) || caller.user.is(Role::Auditor)
}

/// Whether the caller may know which clusters there are.
fn learns(caller: &Caller) -> bool {
    manages(caller) || caller.user.is(Role::Viewer)
}

async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(precondition::Tag, Json<GrantView>), Problem> {
    let grant = find(&hub, &id).await?;
    let own = caller
        .user
        .asker()
        .subjects()
        .contains(&grant.subject.to_string());
    if !own && !manages(&caller) {
        return Err(unknown(&id));
    }
    let reach = Reach::of(&hub, &caller).await?;
    let now = clock::now();
    let grant = reach.shown(grant, now).ok_or_else(|| unknown(&id))?;
    Ok((precondition::tag(grant.rev), Json(view(&grant, now))))
}

/// The cluster that is asked about, with its record; without that it is not there, and the caller is not to learn it. Who may is
/// told: the name is misspelt.
async fn cluster(
    hub: &Hub,
    name: &str,
    learns: bool,
) -> Result<(ClusterName, Option<Cluster>), Problem> {
    match clusters::find(hub, name).await {
        Ok(cluster) => Ok((cluster.name.clone(), Some(cluster))),
        Err(unknown) if learns || unknown.slug != Slug::NotFound => Err(unknown),
        Err(unknown) => match name.parse() {
            Ok(name) => Ok((name, None)),
            Err(_) => Err(unknown),
        },
    }
}

async fn find(hub: &Hub, id: &str) -> Result<Grant, Problem> {
    hub.store.grant(id).await?.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Problem {
    let id = crate::hub::cut(id, 60);
    Problem::new(
        Slug::NotFound,
        format!("there is no grant '{id}'"),
        "see: linesman grant list",
    )
}

async fn add(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    headers: HeaderMap,
    UserBody(new): UserBody<NewGrant>,
) -> Result<(StatusCode, precondition::Tag, Json<GrantView>), Problem> {
    caller.require(&hub, Role::Access, "grant.add").await?;
    let now = clock::now();
    let id = clock::id();
    let grant = asked::grant(&new, id, &caller.user.name, now)?;
    asked::within(&new, hub.config.grants)?;
    to_others(&hub, &caller, &grant).await?;
    // A call that came before finds its grant by the key; another body under the key is refused here.
    precondition::repeated(&hub, &caller, &headers, "/v1/grants", &new).await?;
    let key = precondition::key(&headers)?.map(str::to_owned);
    let cluster = one_cluster(&grant.clusters);
    caller
        .record(&hub, "grant.add", cluster, &described(&grant))
        .await?;
    let new_id = grant.id.clone();
    let grant = hub.store.add_grant(grant, key, now).await;
    let grant = grant.map_err(precondition::taken);
    let grant = caller.outcome(&hub, grant).await?;
    if grant.id != new_id {
        let what = format!("grant {}, which the same call made before", grant.id);
        caller.came_before(&hub, &what).await?;
    }
    hub.access_changed.notify_one();
    Ok((
        StatusCode::CREATED,
        precondition::tag(grant.rev),
        Json(view(&grant, now)),
    ))
}

/// Who manages access gives it to others; only admins give it to themselves, be it by a group that counts again after their next login.
async fn to_others(hub: &Hub, caller: &Caller, grant: &Grant) -> Result<(), Problem> {
    let own = caller.user.asker_on_record().subjects();
    if own.contains(&grant.subject.to_string()) {
        return caller.require(hub, Role::Admin, "grant.add").await;
    }
    Ok(())
}

async fn revoke(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller.require(&hub, Role::Access, "grant.revoke").await?;
    let what = format!("grant {id}");
    let revoked = precondition::written((&hub, &caller), &what, || async {
        let grant = find(&hub, &id).await?;
        precondition::matches(&headers, grant.rev, &what)?;
        let cluster = one_cluster(&grant.clusters);
        caller
            .record(&hub, "grant.revoke", cluster, &described(&grant))
            .await?;
        let seen = Revision {
            id: &id,
            rev: grant.rev,
        };
        let by = &caller.user.name;
        let revoked = hub.store.revoke_grant(seen, by, clock::now());
        Ok(revoked.await?.then_some(()))
    });
    revoked.await?;
    hub.requests.end(Gone::Grant {
        id: &id,
        by: Some(&caller.user.name),
    });
    hub.access_changed.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// For the audit's column, where a grant is for one cluster.
fn one_cluster(clusters: &Clusters) -> Option<&str> {
    match clusters {
        Clusters::Named(names) if names.len() == 1 => names.first().map(ClusterName::as_str),
        Clusters::Named(_) | Clusters::All | Clusters::Labelled(_) => None,
    }
}

/// A grant in one line, for the record.
fn described(grant: &Grant) -> String {
    let list = |items: &BTreeSet<String>| items.iter().cloned().collect::<Vec<_>>().join(",");
    let mut words = vec![format!(
        "{} {} on {} as {}",
        grant.id,
        grant.subject,
        grant.clusters,
        list(&grant.groups)
    )];
    if !grant.act_as.is_empty() {
        let names: Vec<String> = grant.act_as.iter().map(ToString::to_string).collect();
        words.push(format!("who may act as {}", names.join(",")));
    }
    words.extend(grant.namespaces.as_ref().map(|n| format!("in {}", list(n))));
    words.extend((grant.mode == Mode::Read).then(|| "read-only".to_owned()));
    let end = grant.expires_at.map(clock::rfc3339);
    words.extend(end.map(|end| format!("until {end}")));
    let text = words.join(" ");
    if grant.reason.is_empty() {
        text
    } else {
        format!("{text}: {}", grant.reason)
    }
}

fn view(grant: &Grant, now: OffsetDateTime) -> GrantView {
    GrantView {
        id: grant.id.clone(),
        subject: grant.subject.to_string(),
        clusters: ClusterChoice::from(&grant.clusters),
        groups: grant.groups.clone(),
        act_as: grant.act_as.iter().map(ToString::to_string).collect(),
        namespaces: grant.namespaces.clone(),
        read_only: grant.mode == Mode::Read,
        expires_at: grant.expires_at.map(clock::rfc3339),
        revoked_at: grant.revoked_at.map(clock::rfc3339),
        revoked_by: grant.revoked_by.clone(),
        over: grant.is_over(now),
        reason: grant.reason.clone(),
        created_by: grant.created_by.clone(),
        created_at: clock::rfc3339(grant.created_at),
        rev: grant.rev,
    }
}
