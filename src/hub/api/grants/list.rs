//! Which grants there are: all, or those that let somebody in, that take in a cluster, or that are in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use time::OffsetDateTime;

use super::reach::Reach;
use super::{cluster, learns, manages, view};
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{Asker, Clusters, Grant, Place};
use crate::hub::api::problem::Problem;
use crate::hub::api::{Caller, precondition};
use crate::hub::auth::{self, Role};
use crate::keys;
use crate::wire::api::{GrantView, Page};
use crate::wire::id::ClusterName;

const MAX_PAGE: u32 = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// Those of this user, and of the groups that they are in.
    user: Option<String>,
    /// Those that take in this cluster.
    cluster: Option<String>,
    /// `false` leaves out those whose end has passed, `true` all others; it alone gives those that were revoked, too.
    over: Option<bool>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// All grants for those who manage them; everyone else sees their own.
pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<GrantView>>, Problem> {
    let now = clock::now();
    let narrowed = Narrowed::by(&hub, &caller, &wanted, now).await?;
    let reach = Reach::of(&hub, &caller).await?;
    let views = |grants: Vec<Grant>| {
        let all = grants.into_iter();
        let shown = all.filter_map(|grant| reach.shown(grant, now));
        let fitting = shown.filter(|grant| narrowed.fits(grant, now));
        fitting.map(|grant| view(&grant, now)).collect()
    };
    let ended = wanted.over == Some(true);
    if !manages(&caller) {
        let subjects = caller.user.asker().subjects();
        let mut own = hub.store.grants_of(&subjects).await?;
        if ended {
            own.extend(hub.store.revoked_grants_of(&subjects, MAX_PAGE).await?);
        }
        return Ok(Json(Page {
            items: views(own),
            cursor: None,
        }));
    }
    let limit = wanted.limit.unwrap_or(100).clamp(1, MAX_PAGE);
    let after = wanted
        .cursor
        .as_deref()
        .map(precondition::cursor)
        .transpose()?;
    let grants = if ended {
        hub.store.ended_grants(after.as_deref(), limit, now).await?
    } else {
        hub.store.grants(after.as_deref(), limit).await?
    };
    // It says how far the hub looked: fewer than asked for may fit among those, or none.
    let last = grants.last().filter(|_| grants.len() == limit as usize);
    let cursor = last.map(|g| keys::encode(g.id.as_bytes()));
    Ok(Json(Page {
        items: views(grants),
        cursor,
    }))
}

/// Which of them are asked for.
struct Narrowed {
    /// `user:ada`, `group:sre` …
    subjects: Option<Vec<String>>,
    /// With its labels, where there is such a cluster.
    cluster: Option<(ClusterName, Option<BTreeMap<String, String>>)>,
    over: Option<bool>,
    /// Whether the caller may know which clusters there are.
    learns: bool,
}

impl Narrowed {
    async fn by(
        hub: &Hub,
        caller: &Caller,
        wanted: &Wanted,
        now: OffsetDateTime,
    ) -> Result<Self, Problem> {
        let subjects = match &wanted.user {
            Some(name) => {
                if *name != caller.user.name && !manages(caller) {
                    caller.require(hub, Role::Access, "grant.list").await?;
                }
                Some(subjects(hub, name, now).await?)
            }
            None => None,
        };
        let cluster = match &wanted.cluster {
            Some(name) => {
                let (name, found) = cluster(hub, name, learns(caller)).await?;
                // By its labels a token for others would learn that it is there.
                let labels = found.map(|cluster| cluster.labels);
                let labels = labels.filter(|_| caller.user.reaches(Some(&name)));
                Some((name, labels))
            }
            None => None,
        };
        Ok(Self {
            subjects,
            cluster,
            over: wanted.over,
            learns: learns(caller),
        })
    }

    fn fits(&self, grant: &Grant, now: OffsetDateTime) -> bool {
        let of_user = self
            .subjects
            .as_ref()
            .is_none_or(|all| all.contains(&grant.subject.to_string()));
        let of_cluster = self.cluster.as_ref().is_none_or(|(name, labels)| {
            let none = BTreeMap::new();
            let place = Place {
                name,
                labels: labels.as_ref().unwrap_or(&none),
            };
            let told = match grant.clusters {
                Clusters::All | Clusters::Named(_) => true,
                // What a cluster's labels are that is not there, nobody knows; what they are of one that is, a grant that has
                // ended tells nobody any more.
                Clusters::Labelled(_) => labels.is_some() && (self.learns || !grant.is_over(now)),
            };
            told && grant.clusters.contain(&place)
        });
        let of_time = self.over.is_none_or(|over| over == grant.is_over(now));
        of_user && of_cluster && of_time
    }
}

/// Whom a grant has to name to be theirs, as far as their groups count.
async fn subjects(hub: &Hub, name: &str, now: OffsetDateTime) -> Result<Vec<String>, Problem> {
    let user = hub.store.user(name).await?;
    let groups = user.map_or_else(Vec::new, |user| {
        auth::groups(&user, hub.config.oidc.as_ref(), now).to_vec()
    });
    let asker = Asker {
        name,
        groups: &groups,
    };
    Ok(asker.subjects())
}
