//! Grants: subject × clusters × Kubernetes groups, narrowed by namespaces, read-only and an end. Pure: which
//! grant says yes to a request, as whom it then goes, and why none does.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use crate::kubeapi::acting::Acting;
use crate::kubeapi::path::RequestInfo;
use crate::kubeapi::scope;

pub use crate::assertion::Mode;

mod acting;
mod ended;
mod grant;

pub use ended::ended;
pub use grant::{Asker, Clusters, Grant, GrantRules, No, Place, Subject, SubjectError, named};

/// The most groups that one request carries; the agent's gate holds the same limit.
pub const MAX_GROUPS: usize = 32;
/// Names and namespaces in one grant.
pub const MAX_CLUSTERS: usize = 100;
pub const MAX_NAMESPACES: usize = 50;
/// Users and groups that one grant lets act as.
pub const MAX_ACT_AS: usize = 50;

/// Who the API server sees, and the limits that the agent holds the request to once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    /// `linesman:<name>`
    pub user: String,
    /// `linesman:<group>` each.
    pub groups: Vec<String>,
    /// `linesman:<name>` of who asked, where the request goes as someone else.
    pub actor: Option<String>,
    pub mode: Mode,
    /// None = no limit.
    pub namespaces: Option<BTreeSet<String>>,
}

/// A yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    pub subject: Impersonation,
    /// The ids of the grants that say so.
    pub by: Vec<String>,
    /// When the first of them ends.
    pub until: Option<OffsetDateTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Denied {
    /// Which rule says so, for the answer and the count.
    pub rule: &'static str,
    pub reason: String,
    pub next: String,
}

/// The grants that reach a cluster; none is a denial that does not tell whether the cluster exists.
pub fn reaching<'a>(
    grants: &'a [Grant],
    asker: &Asker<'_>,
    place: &Place<'_>,
    now: OffsetDateTime,
) -> Result<Vec<&'a Grant>, Denied> {
    let held: Vec<&Grant> = grants
        .iter()
        .filter(|g| g.reaches(asker, place, now).is_ok())
        .collect();
    if held.is_empty() {
        return Err(no_grant(asker.name, place.name.as_str()));
    }
    Ok(held)
}

/// The rule of a denial for want of a grant.
pub const NO_GRANT: &str = "NoGrant";

pub fn no_grant(user: &str, cluster: &str) -> Denied {
    Denied {
        rule: NO_GRANT,
        reason: format!("{user} has no grant on cluster {cluster}"),
        next: "check the name with 'linesman cluster list', or ask a hub admin for a grant"
            .to_owned(),
    }
}

/// A token that is for other clusters.
pub fn not_for(cluster: &str) -> Denied {
    Denied {
        rule: NO_GRANT,
        reason: format!("the token is not for cluster {cluster}"),
        next: "use a token for it; see: linesman token list".to_owned(),
    }
}

/// Which of the grants that reach the cluster cover the request, and as whom it goes: with the groups of all of
/// them, within the limits of each. RBAC adds up; a request that every grant covers is within all their limits.
/// Who asks to act as someone goes as exactly them, by the grants that let it.
pub fn decide(
    asker: &Asker<'_>,
    reaching: &[&Grant],
    info: &RequestInfo,
    acting: Option<&Acting>,
) -> Result<Allowed, Denied> {
    let reaching = acting::letting(asker, reaching, acting)?;
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for grant in reaching {
        match grant.covers(info) {
            Ok(()) => yes.push(grant),
            Err(why) => no.push(format!("grant {}: {why}", grant.id)),
        }
    }
    if yes.is_empty() {
        no.truncate(3);
        return Err(Denied {
            rule: NO_GRANT,
            reason: format!(
                "no grant of {} covers '{}': {}",
                asker.name,
                scope::describe(info),
                no.join("; ")
            ),
            next: "ask a hub admin for a wider grant".to_owned(),
        });
    }
    let (name, groups): (_, BTreeSet<&String>) = match acting {
        Some(acting) => (acting.user.as_str(), acting.groups.iter().collect()),
        None => (asker.name, yes.iter().flat_map(|g| &g.groups).collect()),
    };
    sendable(name, &groups)?;
    let read = yes.iter().any(|g| g.mode == Mode::Read);
    Ok(Allowed {
        subject: Impersonation {
            user: format!("linesman:{name}"),
            groups: groups.iter().map(|g| format!("linesman:{g}")).collect(),
            actor: acting.map(|_| format!("linesman:{}", asker.name)),
            mode: if read { Mode::Read } else { Mode::Full },
            namespaces: yes
                .iter()
                .filter_map(|g| g.namespaces.clone())
                .reduce(|a, b| a.intersection(&b).cloned().collect()),
        },
        until: yes.iter().filter_map(|g| g.expires_at).min(),
        by: yes.iter().map(|g| g.id.clone()).collect(),
    })
}

/// What is left of a yes where the token reads only, or does not reach clusters at all.
pub fn narrow(
    allowed: Allowed,
    token: Option<Mode>,
    info: &RequestInfo,
) -> Result<Allowed, Denied> {
    let mode = match token {
        Some(Mode::Full) => return Ok(allowed),
        Some(Mode::Read) if scope::reads(info) => Mode::Read,
        Some(Mode::Read) => {
            return Err(Denied {
                rule: NO_GRANT,
                reason: format!(
                    "the token has the scope kube-read, and '{}' is more than reading",
                    scope::describe(info)
                ),
                next: "use a token with the scope kube".to_owned(),
            });
        }
        None => {
            return Err(Denied {
                rule: NO_GRANT,
                reason: "the token's scopes do not reach into clusters".to_owned(),
                next: "use a token with the scope kube or kube-read".to_owned(),
            });
        }
    };
    Ok(Allowed {
        subject: Impersonation {
            mode,
            ..allowed.subject
        },
        ..allowed
    })
}

/// What the agent would refuse is refused here, with a next action.
fn sendable(user: &str, groups: &BTreeSet<&String>) -> Result<(), Denied> {
    if named(user) && groups.len() <= MAX_GROUPS && groups.iter().all(|g| named(g)) {
        return Ok(());
    }
    Err(Denied {
        rule: NO_GRANT,
        reason: format!(
            "the grants of {user} cannot be sent to a cluster: names are 1 to 200 of A-Z a-z 0-9 . _ @ + : - and groups at most {MAX_GROUPS}"
        ),
        next: "ask a hub admin to rename the user or to give fewer groups".to_owned(),
    })
}

/// The users and groups that an agent has to be able to act as: known users whom a grant reaches, all groups
/// that grants give on the cluster, and all whom they let act as. A user who comes later is learned at the first request.
/// The users are in the order in which an agent that has not room for all takes them: who is acted as, who is named, the others.
pub fn subjects<'a>(
    grants: &[Grant],
    users: impl Iterator<Item = Asker<'a>>,
    place: &Place<'_>,
    now: OffsetDateTime,
) -> (Vec<String>, BTreeSet<String>) {
    let here: Vec<&Grant> = grants
        .iter()
        .filter(|g| g.clusters.contain(place) && !g.is_over(now))
        .collect();
    let mut groups: BTreeSet<String> = here.iter().flat_map(|g| g.groups.clone()).collect();
    let (mut acted_as, mut named, mut others) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for target in here.iter().flat_map(|g| &g.act_as) {
        match target {
            Subject::User(name) => acted_as.insert(name.clone()),
            Subject::Group(name) => groups.insert(name.clone()),
        };
    }
    for user in users.filter(|user| here.iter().any(|g| g.subject.fits(user))) {
        let own = Subject::User(user.name.to_owned());
        let set = if here.iter().any(|g| g.subject == own) {
            &mut named
        } else {
            &mut others
        };
        set.insert(user.name.to_owned());
    }
    named.retain(|name| !acted_as.contains(name));
    others.retain(|name| !acted_as.contains(name));
    let users = acted_as.into_iter().chain(named).chain(others).collect();
    (users, groups)
}

#[cfg(test)]
mod tests;
