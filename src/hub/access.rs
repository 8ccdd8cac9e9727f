//! Grants: subject × clusters × Kubernetes groups, narrowed by namespaces, read-only and an end. Pure: which
//! grant says yes to a request, as whom it then goes, and why none does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use time::OffsetDateTime;

use crate::hub::selector::{Selector, SelectorError};
use crate::kubeapi::acting::Acting;
use crate::kubeapi::path::RequestInfo;
use crate::kubeapi::scope;
use crate::wire::api::ClusterChoice;
use crate::wire::id::ClusterName;

pub use crate::assertion::Mode;

mod acting;

/// The most groups that one request carries; the agent's gate holds the same limit.
pub const MAX_GROUPS: usize = 32;
/// Names and namespaces in one grant.
pub const MAX_CLUSTERS: usize = 100;
pub const MAX_NAMESPACES: usize = 50;
/// Users and groups that one grant lets act as.
pub const MAX_ACT_AS: usize = 50;

/// Who may reach which clusters' API as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub id: String,
    pub subject: Subject,
    pub clusters: Clusters,
    /// Kubernetes groups without the prefix `linesman:`, at least one.
    pub groups: BTreeSet<String>,
    /// Whom `kubectl --as` and `--as-group` may name; as them, nobody has the grant's own groups.
    pub act_as: BTreeSet<Subject>,
    /// None = all, and what lies in none.
    pub namespaces: Option<BTreeSet<String>>,
    pub mode: Mode,
    /// None = until it is revoked.
    pub expires_at: Option<OffsetDateTime>,
    /// Why it was given, such as a ticket's number.
    pub reason: String,
    /// The name of the user who gave it; `hub` for the default grant.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub rev: i64,
}

/// Whom a grant is for: `user:ada`, `group:sre`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    User(String),
    Group(String),
}

impl Subject {
    fn fits(&self, asker: &Asker<'_>) -> bool {
        match self {
            Self::User(name) => name == asker.name,
            Self::Group(name) => asker.groups.contains(name),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not user:NAME or group:NAME with 1 to 200 of A-Z a-z 0-9 . _ @ + : -")]
pub struct SubjectError(String);

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let error = || SubjectError(text.chars().take(60).collect());
        let (kind, name) = text.split_once(':').ok_or_else(error)?;
        match kind {
            "user" if named(name) => Ok(Self::User(name.to_owned())),
            "group" if named(name) => Ok(Self::Group(name.to_owned())),
            _ => Err(error()),
        }
    }
}

/// Which clusters a grant is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clusters {
    All,
    Named(BTreeSet<ClusterName>),
    Labelled(Selector),
}

impl Clusters {
    fn contain(&self, place: &Place<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(place.name),
            Self::Labelled(selector) => selector.matches(place.labels),
        }
    }
}

impl TryFrom<ClusterChoice> for Clusters {
    type Error = SelectorError;

    fn try_from(choice: ClusterChoice) -> Result<Self, SelectorError> {
        Ok(match choice {
            ClusterChoice::All => Self::All,
            ClusterChoice::Names(names) => Self::Named(names),
            ClusterChoice::Labels(text) => Self::Labelled(text.parse()?),
        })
    }
}

impl From<&Clusters> for ClusterChoice {
    fn from(clusters: &Clusters) -> Self {
        match clusters {
            Clusters::All => Self::All,
            Clusters::Named(names) => Self::Names(names.clone()),
            Clusters::Labelled(selector) => Self::Labels(selector.to_string()),
        }
    }
}

impl fmt::Display for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all clusters"),
            Self::Named(names) => f.write_str(&joined(names)),
            Self::Labelled(selector) => write!(f, "clusters with {selector}"),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    pub name: &'a str,
    /// Groups that the user is in, locally or by the identity provider's word.
    pub groups: &'a [String],
}

impl Asker<'_> {
    /// The subjects whose grants are theirs.
    pub fn subjects(&self) -> Vec<String> {
        let user = Subject::User(self.name.to_owned()).to_string();
        let groups = self.groups.iter().cloned().map(Subject::Group);
        std::iter::once(user)
            .chain(groups.map(|g| g.to_string()))
            .collect()
    }
}

/// The cluster that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub name: &'a ClusterName,
    pub labels: &'a BTreeMap<String, String>,
}

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

/// What one grant says to a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum No {
    #[error("it is for {0}")]
    OtherSubject(Subject),
    #[error("it is for {0}")]
    OtherCluster(Clusters),
    #[error("it ended")]
    Expired,
    #[error("it is read-only, and '{0}' is more than reading")]
    ReadOnly(String),
    #[error("it is for {0}, and the request lies elsewhere")]
    Namespace(String),
    #[error("it does not let act as {0}")]
    ActAs(String),
}

impl Grant {
    /// Whether it holds for this user on this cluster, whatever the request.
    pub fn reaches(
        &self,
        asker: &Asker<'_>,
        place: &Place<'_>,
        now: OffsetDateTime,
    ) -> Result<(), No> {
        if !self.subject.fits(asker) {
            return Err(No::OtherSubject(self.subject.clone()));
        }
        if !self.clusters.contain(place) {
            return Err(No::OtherCluster(self.clusters.clone()));
        }
        if self.is_over(now) {
            return Err(No::Expired);
        }
        Ok(())
    }

    pub fn is_over(&self, now: OffsetDateTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Whether it takes in this request.
    pub fn covers(&self, info: &RequestInfo) -> Result<(), No> {
        if self.mode == Mode::Read && !scope::reads(info) {
            return Err(No::ReadOnly(scope::describe(info)));
        }
        match &self.namespaces {
            Some(allowed) if !scope::within(info, allowed) => Err(No::Namespace(within(allowed))),
            _ => Ok(()),
        }
    }
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

const NO_GRANT: &str = "NoGrant";

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
pub fn subjects<'a>(
    grants: &[Grant],
    users: impl Iterator<Item = Asker<'a>>,
    place: &Place<'_>,
    now: OffsetDateTime,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let here: Vec<&Grant> = grants
        .iter()
        .filter(|g| g.clusters.contain(place) && !g.is_over(now))
        .collect();
    let mut users: BTreeSet<String> = users
        .filter(|user| here.iter().any(|g| g.subject.fits(user)))
        .map(|user| user.name.to_owned())
        .collect();
    let mut groups: BTreeSet<String> = here.iter().flat_map(|g| g.groups.clone()).collect();
    for target in here.iter().flat_map(|g| &g.act_as) {
        match target {
            Subject::User(name) => users.insert(name.clone()),
            Subject::Group(name) => groups.insert(name.clone()),
        };
    }
    (users, groups)
}

/// What names in assertions and RBAC consist of.
pub fn named(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._@+:-".contains(&b))
}

fn within(namespaces: &BTreeSet<String>) -> String {
    let word = if namespaces.len() == 1 {
        "namespace"
    } else {
        "the namespaces"
    };
    format!("{word} {}", joined(namespaces))
}

fn joined<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

#[cfg(test)]
mod tests;
