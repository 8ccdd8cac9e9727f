//! A cluster's labels, by which grants and rollouts choose it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::find;
use crate::clock;
use crate::hub::access::Place;
use crate::hub::auth::Role;
use crate::hub::store::{Cluster, patience};
use crate::hub::{Hub, grants};
use crate::wire::api::{LabelsRequest, LabelsView};

type Labels = BTreeMap<String, String>;

pub(super) async fn change(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<LabelsRequest>,
) -> Result<Json<LabelsView>, Problem> {
    caller.require(&hub, Role::Access, "cluster.label").await?;
    // What was begun is finished, although the caller went away: requests that run end with the label that let them.
    let work = hub.clone();
    let done = hub.work.spawn(patience::carried(async move {
        let what = format!("cluster {name}");
        let labels = precondition::written((&work, &caller), &what, || async {
            let cluster = find(&work, &name).await?;
            precondition::matches(&headers, cluster.rev, &what)?;
            put(&work, &caller, &cluster, &asked).await
        });
        Ok(Json(LabelsView {
            labels: labels.await?,
        }))
    }));
    done.await.context("label a cluster")?
}

/// None = others were quicker.
async fn put(
    hub: &Hub,
    caller: &Caller,
    cluster: &Cluster,
    asked: &LabelsRequest,
) -> Result<Option<Labels>, Problem> {
    let before = &cluster.labels;
    let after = changed(before, asked)?;
    if after == *before {
        return Ok(Some(after));
    }
    let name = cluster.name.as_str();
    let [was, will] = [before, &after].map(|labels| Place {
        name: &cluster.name,
        labels,
    });
    if grants::gains(hub, &caller.user.asker_on_record(), &was, &will).await? {
        caller.require(hub, Role::Admin, "cluster.label").await?;
    }
    caller
        .record(hub, "cluster.label", Some(name), &told(before, &after))
        .await?;
    let now = clock::now();
    if !hub.store.relabel(cluster.revision(), &after, now).await? {
        return Ok(None);
    }
    grants::relabelled(hub, &cluster.id, &was, &will).await?;
    hub.access_changed.notify_one();
    tracing::info!(
        cluster = name,
        by = caller.user.name,
        labels = told(before, &after),
        "cluster labelled"
    );
    Ok(Some(after))
}

/// The labels that come of a change.
fn changed(before: &Labels, asked: &LabelsRequest) -> Result<Labels, Problem> {
    let bad = |what: String, next: &str| Problem::new(Slug::BadRequest, what, next);
    if asked.set.is_empty() && asked.remove.is_empty() {
        return Err(bad(
            "nothing is to change".to_owned(),
            "name labels to set or keys to remove",
        ));
    }
    if let Some(key) = asked.set.keys().find(|key| asked.remove.contains(*key)) {
        return Err(bad(
            format!("label '{key}' is to be set and removed"),
            "choose one",
        ));
    }
    check(&asked.set)?;
    let other = |(key, value): &(&String, &String)| before.get(*key).is_some_and(|v| v != *value);
    if let Some((key, _)) = asked.set.iter().find(other).filter(|_| !asked.overwrite) {
        let old = &before[key];
        return Err(Problem::new(
            Slug::Exists,
            format!("the cluster has the label {key}={old}"),
            "say that it may be overwritten: --overwrite, or \"overwrite\": true",
        ));
    }
    let mut after = before.clone();
    after.retain(|key, _| !asked.remove.contains(key));
    after.extend(asked.set.clone());
    check(&after)?;
    Ok(after)
}

/// What became other, for the record: `env=prod (was env=dev), frozen-`.
fn told(before: &Labels, after: &Labels) -> String {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let words = keys
        .into_iter()
        .filter_map(|key| match (before.get(key), after.get(key)) {
            (Some(old), Some(new)) if old != new => Some(format!("{key}={new} (was {key}={old})")),
            (Some(_), None) => Some(format!("{key}-")),
            (None, Some(new)) => Some(format!("{key}={new}")),
            _ => None,
        });
    words.collect::<Vec<_>>().join(", ")
}

/// Whether Kubernetes would take them, and none is the hub's own.
pub(super) fn check(labels: &Labels) -> Result<(), Problem> {
    let word = |text: &str, max: usize| {
        text.len() <= max
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    };
    let fits = |(key, value): (&String, &String)| {
        !key.is_empty() && word(key, 253) && word(value, 63) && !value.contains('/')
    };
    if labels.len() > 64 || !labels.iter().all(fits) {
        return Err(Problem::new(
            Slug::BadRequest,
            "a label is not one that Kubernetes takes, or there are more than 64",
            "use letters, digits, '-', '_' and '.'",
        ));
    }
    if labels.keys().any(|k| k.starts_with("linesman.")) {
        return Err(Problem::new(
            Slug::BadRequest,
            "labels that begin with 'linesman.' are the hub's own",
            "choose another key",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
