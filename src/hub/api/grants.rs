//! Grants: give, list, revoke, and explain who gets where.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use super::problem::{Problem, Slug};
use super::{Caller, UserBody, precondition};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{
    self, Asker, Clusters, Grant, MAX_ACT_AS, MAX_CLUSTERS, MAX_GROUPS, MAX_NAMESPACES, Mode,
    Place, Subject,
};
use crate::hub::auth::Role;
use crate::hub::running::Gone;
use crate::hub::store::{Cluster, UserRow};
use crate::keys;
use crate::kubeapi::acting::{Acting, actable};
use crate::kubeapi::path::{self, RequestInfo};
use crate::kubeapi::status::Hop;
use crate::wire::api::{ClusterChoice, GrantCheck, GrantOpinion, GrantView, NewGrant, Page};
use crate::wire::id::ClusterName;

const MAX_PAGE: u32 = 500;
const MAX_REASON: usize = 512;
/// The longest that a grant with an end can last.
const LONGEST: u64 = 366 * 24 * 3600;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/grants", get(list).post(add))
        .route("/v1/grants/check", get(check))
        .route("/v1/grants/{id}", get(show).delete(revoke))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    limit: Option<u32>,
    cursor: Option<String>,
}

/// All grants for those who manage them; everyone else sees their own.
async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<GrantView>>, Problem> {
    let now = clock::now();
    let view = |grants: Vec<Grant>| grants.iter().map(|g| view(g, now)).collect();
    if !manages(&caller) {
        let own = hub.store.grants_of(&caller.user.asker().subjects()).await?;
        return Ok(Json(Page {
            items: view(own),
            cursor: None,
        }));
    }
    let limit = wanted.limit.unwrap_or(100).clamp(1, MAX_PAGE);
    let after = wanted
        .cursor
        .as_deref()
        .map(precondition::cursor)
        .transpose()?;
    let grants = hub.store.grants(after.as_deref(), limit).await?;
    let last = grants.last().filter(|_| grants.len() == limit as usize);
    let cursor = last.map(|g| keys::encode(g.id.as_bytes()));
    Ok(Json(Page {
        items: view(grants),
        cursor,
    }))
}

fn manages(caller: &Caller) -> bool {
    caller.user.is(Role::Access) || caller.user.is(Role::Auditor)
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
    Ok((
        precondition::tag(grant.rev),
        Json(view(&grant, clock::now())),
    ))
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
    let grant = read(&new, &caller, now)?;
    to_others(&hub, &caller, &grant).await?;
    // A call that came before finds its grant by the key; another body under the key is refused here.
    precondition::repeated(&hub, &caller, &headers, "/v1/grants", &new).await?;
    let key = precondition::key(&headers)?.map(str::to_owned);
    let cluster = one_cluster(&grant.clusters);
    caller
        .record(&hub, "grant.add", cluster, &described(&grant))
        .await?;
    let grant = hub.store.add_grant(grant, key, now).await?;
    hub.access_changed.notify_one();
    Ok((
        StatusCode::CREATED,
        precondition::tag(grant.rev),
        Json(view(&grant, now)),
    ))
}

fn read(new: &NewGrant, caller: &Caller, now: OffsetDateTime) -> Result<Grant, Problem> {
    let bad = |what: String, next: &str| Problem::new(Slug::BadRequest, what, next);
    let subject: Subject = new
        .subject
        .parse()
        .map_err(|e: access::SubjectError| bad(e.to_string(), "write user:ada or group:sre"))?;
    let clusters = Clusters::try_from(new.clusters.clone())
        .map_err(|e| bad(e.to_string(), "write it as for kubectl -l"))?;
    let few = |n: usize, most: usize| (1..=most).contains(&n);
    if let Clusters::Named(names) = &clusters
        && !few(names.len(), MAX_CLUSTERS)
    {
        return Err(bad(
            format!("a grant names 1 to {MAX_CLUSTERS} clusters"),
            "use labels",
        ));
    }
    if !few(new.groups.len(), MAX_GROUPS) || !new.groups.iter().all(|g| access::named(g)) {
        return Err(bad(
            format!("a grant gives 1 to {MAX_GROUPS} groups of A-Z a-z 0-9 . _ @ + : -"),
            "give view, edit or admin, or groups that you bind in the cluster as linesman:<group>",
        ));
    }
    if let Some(names) = &new.namespaces
        && !(few(names.len(), MAX_NAMESPACES) && names.iter().all(|n| is_namespace(n)))
    {
        return Err(bad(
            format!("a grant names 1 to {MAX_NAMESPACES} namespaces"),
            "write names as Kubernetes takes them, or leave them out for all",
        ));
    }
    if new.lasts.is_some_and(|s| !(1..=LONGEST).contains(&s)) {
        return Err(bad(
            "a grant with an end lasts 1 s to 366 d".to_owned(),
            "leave the end out to give it until it is revoked",
        ));
    }
    if new.reason.len() > MAX_REASON || new.reason.chars().any(char::is_control) {
        return Err(bad(
            format!("the reason has control characters or more than {MAX_REASON} bytes"),
            "give a ticket's number",
        ));
    }
    let end = |s: u64| now + Duration::seconds(i64::try_from(s).unwrap_or(i64::MAX));
    Ok(Grant {
        id: uuid::Uuid::now_v7().to_string(),
        subject,
        clusters,
        groups: new.groups.clone(),
        act_as: act_as(&new.act_as)?,
        namespaces: new.namespaces.clone(),
        mode: if new.read_only {
            Mode::Read
        } else {
            Mode::Full
        },
        expires_at: new.lasts.map(end),
        reason: new.reason.clone(),
        created_by: caller.user.name.clone(),
        created_at: now,
        rev: 1,
    })
}

/// Whom a grant lets act as: names of the line, never one of Kubernetes' own.
fn act_as(names: &BTreeSet<String>) -> Result<BTreeSet<Subject>, Problem> {
    let read = |text: &String| -> Option<Subject> {
        let subject: Subject = text.parse().ok()?;
        let (Subject::User(name) | Subject::Group(name)) = &subject;
        actable(name).then_some(subject)
    };
    let subjects = names.iter().map(read).collect::<Option<BTreeSet<_>>>();
    let few = subjects.filter(|subjects| subjects.len() <= MAX_ACT_AS);
    few.ok_or_else(|| {
        Problem::new(
            Slug::BadRequest,
            format!("a grant lets act as at most {MAX_ACT_AS} of user:NAME and group:NAME, none of them system:"),
            "write the names as in linesman:NAME, without that prefix",
        )
    })
}

fn is_namespace(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Who manages access gives it to others; only admins give it to themselves.
async fn to_others(hub: &Hub, caller: &Caller, grant: &Grant) -> Result<(), Problem> {
    let own = caller.user.asker().subjects();
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
    let grant = find(&hub, &id).await?;
    precondition::matches(&headers, grant.rev, &format!("grant {id}"))?;
    let cluster = one_cluster(&grant.clusters);
    caller
        .record(&hub, "grant.revoke", cluster, &described(&grant))
        .await?;
    hub.store.revoke_grant(&id, clock::now()).await?;
    hub.requests.end(Gone::Grant(&id));
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
        over: grant.is_over(now),
        reason: grant.reason.clone(),
        created_by: grant.created_by.clone(),
        created_at: clock::rfc3339(grant.created_at),
        rev: grant.rev,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    user: String,
    cluster: String,
    /// With `path`: whether this very request would pass.
    method: Option<String>,
    path: Option<String>,
    /// Whom the user asks to act as: `user:NAME`, then groups, as `user:bob,group:edit`.
    #[serde(rename = "actAs")]
    act_as: Option<String>,
}

async fn check(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(question): Query<Asked>,
) -> Result<Json<GrantCheck>, Problem> {
    if question.user != caller.user.name && !manages(&caller) {
        caller.require(&hub, Role::Access, "grant.check").await?;
    }
    let info = request(&question)?;
    let acting = question.act_as.as_deref().map(acting).transpose()?;
    let user = known(&hub, &question.user).await?;
    let asker = Asker {
        name: &user.name,
        groups: &user.groups,
    };
    let cluster = super::clusters::find(&hub, &question.cluster).await?;
    let grants = hub.store.grants_of(&asker.subjects()).await?;
    let question = Question {
        info: info.as_ref(),
        acting: acting.as_ref(),
    };
    Ok(Json(judged(&user, &cluster, &grants, question)))
}

/// One user, and the groups that go with them.
fn acting(text: &str) -> Result<Acting, Problem> {
    let bad = || {
        let next = "write it as user:bob,group:edit";
        Problem::new(Slug::BadRequest, "that is nobody to act as", next)
    };
    let names = text.split(',').map(str::to_owned).collect();
    let (mut users, mut groups) = (Vec::new(), BTreeSet::new());
    for subject in act_as(&names)? {
        match subject {
            Subject::User(name) => users.push(name),
            Subject::Group(name) => drop(groups.insert(name)),
        }
    }
    match (users.pop(), users.is_empty()) {
        (Some(user), true) => Ok(Acting { user, groups }),
        _ => Err(bad()),
    }
}

/// What a check is about; None = whatever the grants let through.
#[derive(Clone, Copy)]
struct Question<'a> {
    info: Option<&'a RequestInfo>,
    acting: Option<&'a Acting>,
}

/// The request that is asked about, if one is.
fn request(asked: &Asked) -> Result<Option<RequestInfo>, Problem> {
    let Some(target) = &asked.path else {
        return Ok(None);
    };
    let bad = |what: String, next: String| Problem::new(Slug::BadRequest, what, next);
    let method: Method = asked
        .method
        .as_deref()
        .unwrap_or("GET")
        .parse()
        .map_err(|_| bad("that is not an HTTP method".into(), "use GET".into()))?;
    let (path, query) = target
        .split_once('?')
        .map_or((target.as_str(), None), |(p, q)| (p, Some(q)));
    let info = path::classify(&method, path, query).map_err(|e| {
        let refusal = e.refusal(Hop::Hub);
        bad(refusal.what, refusal.next)
    })?;
    Ok(Some(info))
}

/// A user on record; one who has never logged in is in no group that the hub knows of.
async fn known(hub: &Hub, name: &str) -> Result<UserRow, Problem> {
    if !access::named(name) {
        let next = "names are 1 to 200 of A-Z a-z 0-9 . _ @ + : -";
        return Err(Problem::new(
            Slug::BadRequest,
            "that is no user's name",
            next,
        ));
    }
    let found = hub.store.user(name).await?;
    Ok(found.unwrap_or_else(|| UserRow {
        id: String::new(),
        name: name.to_owned(),
        roles: Vec::new(),
        groups: Vec::new(),
        disabled: false,
        provider: None,
        rev: 1,
    }))
}

fn judged(
    user: &UserRow,
    cluster: &Cluster,
    grants: &[Grant],
    Question { info, acting }: Question<'_>,
) -> GrantCheck {
    let now = clock::now();
    let asker = Asker {
        name: &user.name,
        groups: &user.groups,
    };
    let place = Place {
        name: &cluster.name,
        labels: &cluster.labels,
    };
    // Without a request, what no grant refuses: the cluster's version.
    let version = RequestInfo {
        verb: "get".to_owned(),
        ..RequestInfo::default()
    };
    let decided = access::reaching(grants, &asker, &place, now)
        .and_then(|held| access::decide(&asker, &held, info.unwrap_or(&version), acting));
    let opinions = grants.iter().map(|grant| {
        let said = grant
            .reaches(&asker, &place, now)
            .and_then(|()| acting.map_or(Ok(()), |acting| grant.lets_act_as(acting)))
            .and_then(|()| info.map_or(Ok(()), |info| grant.covers(info)));
        GrantOpinion {
            grant: view(grant, now),
            says: said.is_ok(),
            why: said.err().map(|no| no.to_string()).unwrap_or_default(),
        }
    });
    let (allowed, reason, acts_as, acts_in) = match decided {
        Ok(yes) => {
            let by = format!("by grant {}", yes.by.join(", "));
            (true, by, Some(yes.subject.user), yes.subject.groups)
        }
        Err(no) => (false, no.reason, None, Vec::new()),
    };
    GrantCheck {
        user: user.name.clone(),
        user_groups: user.groups.clone(),
        cluster: cluster.name.clone(),
        allowed,
        reason,
        acts_as,
        acts_in,
        opinions: opinions.collect(),
    }
}
