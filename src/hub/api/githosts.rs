//! Git hosts and the keys that clusters know them by.

mod change;
mod rotate;

pub use rotate::watch_over;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};

use super::clusters::{each, git_route};
use super::problem::{Problem, Slug};
use super::{Caller, UserBody};
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::githost::hostkeys::{self, BUILTIN, Candidate, Refusal, TrustedKey};
use crate::hub::githost::rotation::Next;
use crate::hub::store::{Cluster, HostKeysOf, StoreError};
use crate::hub::{Hub, cut};
use crate::wire::api::{
    AcceptHostKey, DropHostKey, GitHostCluster, GitHostView, HostKeyView, OfferedKey, Page,
    RotateHostKey,
};
use crate::wire::id::ClusterName;

/// Clusters in one view; those that meet another key come first.
const SHOWN: usize = 500;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/githosts", get(list))
        .route("/v1/githosts/{name}", get(show))
        .route("/v1/githosts/{name}/host-keys", post(accept))
        .route("/v1/githosts/{name}/host-keys/drop", post(drop_key))
        .route("/v1/githosts/{name}/rotate-host-key", post(rotate_key))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<Json<Page<GitHostView>>, Problem> {
    caller.require(&hub, Role::Viewer, "githost.list").await?;
    let page = Page {
        items: vec![view(&hub).await?],
        cursor: None,
    };
    Ok(Json(page))
}

async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<GitHostView>, Problem> {
    caller.require(&hub, Role::Viewer, "githost.show").await?;
    known(&name)?;
    view(&hub).await.map(Json)
}

/// Trusts a key that was met, or those of a file, and lets every cluster fetch that now.
async fn accept(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<AcceptHostKey>,
) -> Result<Json<GitHostView>, Problem> {
    let action = "githost.accept-host-key";
    caller.require(&hub, Role::Operator, action).await?;
    known(&name)?;
    let _turn = change::turn(&hub).await?;
    let before = hub.store.host_keys(BUILTIN).await?;
    let new = candidates(&hub, &before, &asked).await?;
    let by = (caller.user.name.as_str(), clock::now());
    let served = hub.git_keys.served();
    let how = (asked.replace, &served);
    let after = hostkeys::accept(&before, &new, how, by)?;
    change(&hub, &caller, (action, before), after).await?;
    view(&hub).await.map(Json)
}

async fn drop_key(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<DropHostKey>,
) -> Result<Json<GitHostView>, Problem> {
    let action = "githost.drop-host-key";
    caller.require(&hub, Role::Operator, action).await?;
    known(&name)?;
    let _turn = change::turn(&hub).await?;
    let before = hub.store.host_keys(BUILTIN).await?;
    let served = hub.git_keys.served();
    let after = hostkeys::drop_key(&before, &asked.fingerprint, &served)?;
    change(&hub, &caller, (action, before), after).await?;
    view(&hub).await.map(Json)
}

/// Begins the rotation of the hub's own key, or goes on with it without waiting for clusters.
async fn rotate_key(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<RotateHostKey>,
) -> Result<Json<GitHostView>, Problem> {
    let action = "githost.rotate-host-key";
    caller.require(&hub, Role::Operator, action).await?;
    known(&name)?;
    let entry = caller.entry(action, None, "");
    if !asked.now {
        rotate::begin(&hub, &caller.user.name, entry).await?;
    } else if !rotate::serve_now(&hub, entry).await? {
        let text = "no rotation of the host key is under way";
        let next = "begin one: linesman githost rotate-host-key builtin";
        return Err(Problem::new(Slug::NotFound, text, next));
    }
    view(&hub).await.map(Json)
}

async fn candidates(
    hub: &Hub,
    trusted: &[TrustedKey],
    asked: &AcceptHostKey,
) -> Result<Vec<Candidate>, Problem> {
    match (&asked.fingerprint, &asked.known_hosts) {
        (Some(fingerprint), None) => {
            let reports = hub.store.host_key_reports().await?;
            let offered = hostkeys::offered(trusted, &hub.git_keys.served(), &reports);
            Ok(vec![hostkeys::choose(fingerprint, trusted, &offered)?])
        }
        (None, Some(text)) => {
            let (host, port) = hub.git_keys.address();
            let keys = hostkeys::of_file(text, host, port)?;
            let of_file = |key| Candidate {
                key,
                source: "file".to_owned(),
            };
            Ok(keys.into_iter().map(of_file).collect())
        }
        (Some(_), Some(_)) | (None, None) => Err(Problem::new(
            Slug::BadRequest,
            "the body names both a fingerprint and known_hosts, or neither",
            "give one of them",
        )),
    }
}

/// On record, then in the store, then on its way to every cluster that listens; the others fetch it when they are back.
async fn change(
    hub: &Arc<Hub>,
    caller: &Caller,
    (action, before): (&str, Vec<TrustedKey>),
    after: Vec<TrustedKey>,
) -> Result<(), Problem> {
    if before == after {
        return Ok(());
    }
    let words = format!("{BUILTIN}: {} -> {}", prints(&before), prints(&after));
    caller.record(hub, action, None, &words).await?;
    if !change::store(hub, before, after).await? {
        caller.lost(hub).await?;
        return Err(Problem::new(
            Slug::PreconditionFailed,
            "the host's keys changed meanwhile",
            "look at them and decide again: linesman githost show",
        ));
    }
    tracing::info!(
        by = caller.user.name,
        action,
        keys = words,
        "host keys changed"
    );
    Ok(())
}

fn prints(keys: &[TrustedKey]) -> String {
    let words = |t: &TrustedKey| format!("{} ({})", t.key.fingerprint, t.standing.as_str());
    keys.iter().map(words).collect::<Vec<_>>().join(", ")
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let slug = match &refusal {
            Refusal::NotOffered(_) | Refusal::Unknown(_) => Slug::NotFound,
            Refusal::File(_) | Refusal::Unverifiable(_) => Slug::BadRequest,
            Refusal::Full => Slug::Full,
            Refusal::Served(_) | Refusal::Last(_) => Slug::HostKeyNeeded,
        };
        Self::new(slug, refusal.to_string(), refusal.next())
    }
}

fn known(name: &str) -> Result<(), Problem> {
    if name == BUILTIN {
        return Ok(());
    }
    let name = cut(name, 60);
    Err(Problem::new(
        Slug::NotFound,
        format!("there is no Git host '{name}'"),
        "see: linesman githost list",
    ))
}

async fn view(hub: &Hub) -> Result<GitHostView, Problem> {
    let trusted = hub.git_keys.trusted();
    let reports = hub.store.host_key_reports().await?;
    let served = hub.git_keys.served();
    let offered = hostkeys::offered(&trusted, &served, &reports);
    let (clusters, total) = clusters(hub, &offered, &reports).await?;
    let waits_for = match rotate::look(hub, clock::now()).await? {
        Next::Wait(clusters) => clusters,
        Next::Nothing | Next::Serve(_) | Next::Drop(_) => Vec::new(),
    };
    Ok(GitHostView {
        name: BUILTIN.to_owned(),
        kind: BUILTIN.to_owned(),
        url: hub.catalog.url.clone(),
        known_hosts: hub.git_keys.known_hosts(),
        keys: trusted
            .iter()
            .map(|t| HostKeyView {
                kind: t.key.kind.clone(),
                fingerprint: t.key.fingerprint.clone(),
                key: t.key.text.clone(),
                state: t.standing.as_str().to_owned(),
                served: t.key == served,
                source: t.source.clone(),
                added_by: t.added_by.clone(),
                added_at: clock::rfc3339(t.added_at),
            })
            .collect(),
        offered,
        waits_for: waits_for.into_iter().take(SHOWN).collect(),
        clusters,
        clusters_total: total,
    })
}

/// The clusters that follow the hub's catalog, those that meet another key first, and how many there are.
async fn clusters(
    hub: &Hub,
    offered: &[OfferedKey],
    reports: &[HostKeysOf],
) -> Result<(Vec<GitHostCluster>, u64), Problem> {
    let of = |c: &Cluster| {
        let report = find(reports, &c.name);
        let shown = report.and_then(|r| r.shown.as_ref());
        GitHostCluster {
            name: c.name.clone(),
            git: git_route(c),
            trusted: report.map(|r| r.trusted.clone()).unwrap_or_default(),
            mismatch: shown.is_some_and(|s| offered.iter().any(|o| o.fingerprint == s.fingerprint)),
            shown: shown.map(|s| s.fingerprint.clone()),
            reported_at: report.map(|r| clock::rfc3339(r.at)),
        }
    };
    let mut all = joined(hub, of).await?;
    let total = all.len() as u64;
    all.sort_by_key(|c| !c.mismatch);
    all.truncate(SHOWN);
    Ok((all, total))
}

/// Something of each cluster that joined and is not removed, in the order of their names.
async fn joined<T>(hub: &Hub, of: impl Fn(&Cluster) -> T) -> Result<Vec<T>, StoreError> {
    each(hub, |c| c.joined_at.is_some().then(|| of(c))).await
}

fn find<'a>(reports: &'a [HostKeysOf], name: &ClusterName) -> Option<&'a HostKeysOf> {
    let at = reports.binary_search_by(|r| r.cluster.as_str().cmp(name.as_str()));
    at.ok().and_then(|at| reports.get(at))
}
