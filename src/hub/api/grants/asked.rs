//! What a grant may be that people ask for: its bounds, and what to write instead. Pure.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use crate::hub::access::{
    self, Clusters, Grant, GrantRules, MAX_ACT_AS, MAX_CLUSTERS, MAX_GROUPS, MAX_NAMESPACES, Mode,
    Subject,
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
        revoked_by: None,
        reason: new.reason.clone(),
        created_by: created_by.to_owned(),
        created_at: now,
        rev: 1,
    })
}

/// Whether the hub's operator lets such a grant be given.
pub(super) fn within(new: &NewGrant, rules: GrantRules) -> Result<(), Problem> {
    let longest = rules.longest.map(|longest| longest.as_secs());
    if let Some(longest) = longest
        && new.lasts.is_none_or(|lasts| lasts > longest)
    {
        let most = length(longest.min(LONGEST));
        return Err(Problem::new(
            Slug::BadRequest,
            format!("a grant of this hub has an end, in {most} at the latest (--grant-max)"),
            format!("give it for a time: --for {most}, or less"),
        ));
    }
    if rules.reasoned && new.reason.trim().is_empty() {
        return Err(Problem::new(
            Slug::BadRequest,
            "a grant of this hub says why it is given (--grant-reason)",
            "give the reason, such as a ticket's number: --reason TICKET-1",
        ));
    }
    Ok(())
}

/// Seconds as flags take them.
fn length(seconds: u64) -> String {
    match seconds {
        s if s % 86_400 == 0 => format!("{}d", s / 86_400),
        s if s % 3_600 == 0 => format!("{}h", s / 3_600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
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

pub(in crate::hub::api) fn is_namespace(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::time::Duration as Length;

    use super::*;
    use crate::wire::api::ClusterChoice;

    /// What is refused, and what to do about it.
    fn refused(lasts: Option<u64>, reason: &str, rules: GrantRules) -> Option<(String, String)> {
        let new = NewGrant {
            subject: "user:ada".to_owned(),
            clusters: ClusterChoice::All,
            groups: ["view".to_owned()].into(),
            act_as: BTreeSet::new(),
            namespaces: None,
            read_only: false,
            lasts,
            reason: reason.to_owned(),
        };
        let problem = within(&new, rules).err()?;
        Some((problem.detail, problem.next))
    }

    #[test]
    fn a_grant_is_as_long_as_the_hub_lets_it_be() {
        let hours = |n: u64| GrantRules {
            longest: Some(Length::from_hours(n)),
            ..GrantRules::default()
        };
        let too_long = |most: &str| {
            Some((
                format!("a grant of this hub has an end, in {most} at the latest (--grant-max)"),
                format!("give it for a time: --for {most}, or less"),
            ))
        };
        for (lasts, rules, expected) in [
            (None, GrantRules::default(), None),
            (Some(LONGEST), GrantRules::default(), None),
            (Some(8 * 3_600), hours(8), None),
            (Some(8 * 3_600 + 1), hours(8), too_long("8h")),
            (None, hours(48), too_long("2d")),
            // No grant with an end lasts longer than a year, whatever the hub would let it.
            (None, hours(9_600), too_long("366d")),
        ] {
            assert_eq!(refused(lasts, "", rules), expected, "{lasts:?} {rules:?}");
        }
    }

    #[test]
    fn a_grant_says_why_where_the_hub_asks_for_it() {
        let rules = GrantRules {
            reasoned: true,
            ..GrantRules::default()
        };
        let without = Some((
            "a grant of this hub says why it is given (--grant-reason)".to_owned(),
            "give the reason, such as a ticket's number: --reason TICKET-1".to_owned(),
        ));
        for (reason, expected) in [("", without.clone()), ("  ", without), ("TICKET-1", None)] {
            assert_eq!(refused(None, reason, rules), expected, "{reason:?}");
        }
    }
}
