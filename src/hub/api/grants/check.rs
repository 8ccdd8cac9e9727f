//! Who gets where, explained: what each grant says to a request that is only asked about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use http::Method;
use serde::Deserialize;
use time::OffsetDateTime;

use super::asked::act_as;
use super::reach::Reach;
use super::{cluster, learns, manages, view};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{self, Allowed, Asker, Clusters, Denied, Grant, No, Place, Subject};
use crate::hub::api::Caller;
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::auth::{self, Lapsed, Role};
use crate::kubeapi::acting::Acting;
use crate::kubeapi::path::{self, RequestInfo};
use crate::kubeapi::scope;
use crate::kubeapi::status::Hop;
use crate::manifests::scope::most;
use crate::wire::api::{AccessLevel, GrantCheck, GrantOpinion};
use crate::wire::id::ClusterName;

/// How many that were revoked an answer has.
const REVOKED: u32 = 20;

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
    let who = who(&hub, &question.user).await?;
    let listed = learns(&caller);
    let (name, found) = cluster(&hub, &question.cluster, listed).await?;
    let site = Site {
        name: &name,
        labels: found.as_ref().map(|cluster| &cluster.labels),
        access: found.as_ref().map(|cluster| most(&cluster.adoption)),
        reached: caller.user.reaches(Some(&name)),
        listed,
    };
    let subjects = who.asker().subjects();
    let mut grants = hub.store.grants_of(&subjects).await?;
    // Whoever was let in until lately is told by what no more.
    grants.extend(hub.store.revoked_grants_of(&subjects, REVOKED).await?);
    let reach = Reach::of(&hub, &caller).await?;
    let now = clock::now();
    let all = grants.into_iter();
    let shown = all.filter_map(|grant| reach.shown(grant, now));
    let grants: Vec<Grant> = shown.filter(|_| site.reached).collect();
    let question = Question {
        info: info.as_ref(),
        acting: acting.as_ref(),
    };
    // Who gives access gives it to others; only admins give it to themselves.
    let gives = caller.user.is(Role::Access)
        && (who.name != caller.user.name || caller.user.is(Role::Admin));
    let oidc = hub.config.oidc.is_some();
    let told = Told { gives, oidc };
    Ok(Json(judged(&who, site, &grants, question, told)))
}

/// The cluster that is asked about, as far as the caller is to learn of it.
#[derive(Clone, Copy)]
struct Site<'a> {
    name: &'a ClusterName,
    /// None = there is no such cluster.
    labels: Option<&'a BTreeMap<String, String>>,
    /// The most of the groups that its YAML binds.
    access: Option<AccessLevel>,
    /// Whether the caller's token is for it.
    reached: bool,
    /// Whether the caller may know which clusters there are.
    listed: bool,
}

impl Site<'_> {
    /// The grants that reach it, in the words of the proxy.
    fn held<'g>(
        &self,
        grants: &'g [Grant],
        asker: &Asker<'_>,
        now: OffsetDateTime,
    ) -> Result<Vec<&'g Grant>, Denied> {
        let name = self.name;
        let held = match self.labels {
            _ if !self.reached => Err(access::not_for(name.as_str())),
            None => Err(access::no_grant(asker.name, name.as_str())),
            Some(labels) => access::reaching(grants, asker, &Place { name, labels }, now),
        };
        let ended = || access::ended(asker, name, grants, now).filter(|_| self.reached);
        held.map_err(|no| ended().unwrap_or(no))
    }

    /// What a grant says to it. Where none reaches it, those who may not know which clusters there are hear what they would hear if
    /// it were not there.
    fn said(
        &self,
        grant: &Grant,
        asker: &Asker<'_>,
        now: OffsetDateTime,
        reaches: bool,
    ) -> Result<(), No> {
        let name = self.name;
        if let Some(labels) = self.labels.filter(|_| reaches || self.listed) {
            return grant.reaches(asker, &Place { name, labels }, now);
        }
        // Of one that has ended its end is told, whichever clusters have the labels.
        let meant = match &grant.clusters {
            Clusters::All | Clusters::Labelled(_) => true,
            Clusters::Named(names) => names.contains(name),
        };
        let ended = grant.ended(now).filter(|_| meant);
        Err(ended.unwrap_or_else(|| No::OtherCluster(grant.clusters.clone())))
    }
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

/// Whom a check is about, as the proxy would see them.
struct Who {
    name: String,
    /// As far as they count.
    groups: Vec<String>,
    lapsed: Option<Lapsed>,
    known: bool,
}

impl Who {
    fn asker(&self) -> Asker<'_> {
        Asker {
            name: &self.name,
            groups: &self.groups,
        }
    }
}

/// One whom the hub does not have is in no group that it knows of.
async fn who(hub: &Hub, name: &str) -> Result<Who, Problem> {
    if !access::named(name) {
        let next = "names are 1 to 200 of A-Z a-z 0-9 . _ @ + : -";
        return Err(Problem::new(
            Slug::BadRequest,
            "that is no user's name",
            next,
        ));
    }
    let (now, oidc) = (clock::now(), hub.config.oidc.as_ref());
    let user = hub.store.user(name).await?;
    Ok(Who {
        name: name.to_owned(),
        known: user.is_some(),
        lapsed: user.as_ref().and_then(|u| auth::lapsed(u, oidc, now)),
        groups: user.map_or_else(Vec::new, |u| auth::groups(&u, oidc, now).to_vec()),
    })
}

/// Who reads the answer, and at which hub.
#[derive(Clone, Copy)]
struct Told {
    /// The caller may give the grant that is missing.
    gives: bool,
    /// There is an identity provider, whose users the hub has from their first login on.
    oidc: bool,
}

fn judged(
    who: &Who,
    site: Site<'_>,
    grants: &[Grant],
    question: Question<'_>,
    told: Told,
) -> GrantCheck {
    let Question { info, acting } = question;
    let now = clock::now();
    let asker = who.asker();
    // Without a request, what no grant refuses: the cluster's version.
    let version = RequestInfo {
        verb: "get".to_owned(),
        ..RequestInfo::default()
    };
    let held = site.held(grants, &asker, now);
    let reaches = held.is_ok();
    let decided =
        held.and_then(|held| access::decide(&asker, &held, info.unwrap_or(&version), acting));
    let opinion = |grant: &Grant| {
        let said = site
            .said(grant, &asker, now, reaches)
            .and_then(|()| acting.map_or(Ok(()), |acting| grant.lets_act_as(acting)))
            .and_then(|()| info.map_or(Ok(()), |info| grant.covers(info)));
        GrantOpinion {
            grant: view(grant, now),
            says: said.is_ok(),
            why: said.err().map(|no| no.to_string()).unwrap_or_default(),
        }
    };
    let opinions: Vec<GrantOpinion> = grants.iter().map(opinion).collect();
    // Where one says yes, another one would not help.
    let lacks = opinions.iter().all(|opinion| !opinion.says);
    let decided = match decided {
        decided if !who.known => Err(nobody(who, decided.ok(), told)),
        Ok(yes) => Ok(yes),
        Err(no) => Err(match who.lapsed {
            Some(why) => why.told(&no),
            None if lacks && told.gives => Denied {
                next: grant_for(who, site.name, question),
                ..no
            },
            None => no,
        }),
    };
    let (allowed, reason, next, subject) = match decided {
        Ok(yes) => {
            let by = format!("by grant {}", yes.by.join(", "));
            (true, by, String::new(), Some(yes.subject))
        }
        Err(no) => (false, no.reason, no.next, None),
    };
    let access = subject.as_ref().and(site.access);
    let (acts_as, acts_in) = subject.map(|s| (s.user, s.groups)).unzip();
    GrantCheck {
        user: who.name.clone(),
        known: who.known,
        user_groups: who.groups.clone(),
        groups_lapsed: who.lapsed.map(|why| why.to_string()),
        cluster: site.name.clone(),
        allowed,
        reason,
        next,
        acts_as,
        acts_in: acts_in.unwrap_or_default(),
        access: access.map(|most| most.as_str().to_owned()),
        opinions,
    }
}

/// A name that is misspelt, was removed, or is yet to come: no request comes from it.
fn nobody(who: &Who, would: Option<Allowed>, told: Told) -> Denied {
    let name = &who.name;
    let waits = would.map(|yes| format!("; grant {} waits for one", yes.by.join(", ")));
    Denied {
        rule: "NoUser",
        reason: format!("the hub has no user {name}{}", waits.unwrap_or_default()),
        next: if told.oidc {
            "check the name: linesman user list; whom the identity provider knows, the hub has after their first login: linesman login HUB"
                .to_owned()
        } else {
            format!("check the name: linesman user list; or add it: linesman user add {name}")
        },
    }
}

/// The command that gives what is missing, with the least of the groups that every cluster knows.
fn grant_for(who: &Who, cluster: &ClusterName, Question { info, acting }: Question<'_>) -> String {
    let asks = info.filter(|_| acting.is_none());
    let group = if asks.is_none_or(scope::reads) {
        "view"
    } else {
        "edit"
    };
    let mut command = format!(
        "run: linesman grant add user:{} --cluster {cluster} --group {group}",
        who.name
    );
    if let Some(acting) = acting {
        let groups = acting
            .groups
            .iter()
            .map(|name| format!(" --as-group {name}"));
        command.extend([" --as ", acting.user.as_str()]);
        command.extend(groups);
    }
    if let Some(info) = asks {
        let what = scope::describe(info);
        command.extend([
            " (or with another group, which RBAC lets '",
            what.as_str(),
            "')",
        ]);
    }
    command
}
