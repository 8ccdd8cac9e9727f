//! Who gets where, explained: what each grant says to a request that is only asked about.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use http::Method;
use serde::Deserialize;

use super::asked::act_as;
use super::{manages, view};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{self, Asker, Grant, Place, Subject};
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::api::{Caller, clusters};
use crate::hub::auth::{self, Role};
use crate::hub::store::{Cluster, UserRow};
use crate::kubeapi::acting::Acting;
use crate::kubeapi::path::{self, RequestInfo};
use crate::kubeapi::status::Hop;
use crate::wire::api::{GrantCheck, GrantOpinion};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    user: String,
    cluster: String,
    /// With `path`: whether this very request would pass.
    method: Option<String>,
    path: Option<String>,
    /// Whom the user asks to act as: `user:NAME`, then groups, as `user:bob,group:edit`.
    #[serde(rename = "actAs")]
    act_as: Option<String>,
}

pub(super) async fn check(
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
    let cluster = clusters::find(&hub, &question.cluster).await?;
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
    let found = found.map(|user| UserRow {
        groups: auth::groups(&user, hub.config.oidc.as_ref(), clock::now()).to_vec(),
        ..user
    });
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
