//! What a grant may be that people ask for: its bounds, and what to write instead. Pure.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use crate::hub::access::{
    self, Clusters, Grant, MAX_ACT_AS, MAX_CLUSTERS, MAX_GROUPS, MAX_NAMESPACES, Mode, Subject,
};
use crate::hub::api::problem::{Problem, Slug};
use crate::kubeapi::acting::actable;
use crate::wire::api::NewGrant;

const MAX_REASON: usize = 512;
/// The longest that a grant with an end can last.
const LONGEST: u64 = 366 * 24 * 3600;

/// The grant that is asked for, with this id.
pub(super) fn grant(
    new: &NewGrant,
    id: String,
    created_by: &str,
    now: OffsetDateTime,
) -> Result<Grant, Problem> {
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
        id,
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
        revoked_at: None,
        reason: new.reason.clone(),
        created_by: created_by.to_owned(),
        created_at: now,
        rev: 1,
    })
}

/// Whom a grant lets act as: names of the line, never one of Kubernetes' own.
pub(super) fn act_as(names: &BTreeSet<String>) -> Result<BTreeSet<Subject>, Problem> {
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
