//! A grant: whom it is for, which clusters and requests it takes in, and why it says no. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use time::OffsetDateTime;

use super::Mode;
use crate::clock;
use crate::hub::selector::{Selector, SelectorError};
use crate::kubeapi::path::RequestInfo;
use crate::kubeapi::scope;
use crate::wire::api::ClusterChoice;
use crate::wire::id::ClusterName;

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
    /// When it was taken back.
    pub revoked_at: Option<OffsetDateTime>,
    /// The name of the user who did; None = nobody by name: it went with its user or its cluster.
    pub revoked_by: Option<String>,
    /// Why it was given, such as a ticket's number.
    pub reason: String,
    /// The name of the user who gave it; `hub` for the default grant.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub rev: i64,
}

/// What the hub's operator asks of each grant that people give; those that are there stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrantRules {
    /// The longest that one lasts; None = one may have no end.
    pub longest: Option<Duration>,
    /// Each says why it is given.
    pub reasoned: bool,
}

/// Whom a grant is for: `user:ada`, `group:sre`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    User(String),
    Group(String),
}

impl Subject {
    pub(super) fn fits(&self, asker: &Asker<'_>) -> bool {
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
    pub fn contain(&self, place: &Place<'_>) -> bool {
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

/// What one grant says to a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum No {
    #[error("it is for {0}")]
    OtherSubject(Subject),
    #[error("it is for {0}")]
    OtherCluster(Clusters),
    #[error("it ended at {0}")]
    Expired(String),
    /// When, and by whom where that is known.
    #[error("it was revoked {0}")]
    Revoked(String),
    #[error("it is read-only, and '{0}' is more than reading")]
    ReadOnly(String),
    #[error("it is for {0}, and the request lies elsewhere")]
    Namespace(String),
    #[error("it is for {0}, and '{1}' changes a namespace itself")]
    NamespaceItself(String, String),
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
        self.ended(now).map_or(Ok(()), Err)
    }

    /// How it ended, if it has.
    pub fn ended(&self, now: OffsetDateTime) -> Option<No> {
        if let Some(at) = self.revoked_at {
            let at = format!("at {}", clock::rfc3339(at));
            let by = self.revoked_by.as_ref();
            return Some(No::Revoked(match by {
                Some(by) => format!("by {by} {at}"),
                None => at,
            }));
        }
        let end = self.expires_at.filter(|end| *end <= now)?;
        Some(No::Expired(clock::rfc3339(end)))
    }

    pub fn is_over(&self, now: OffsetDateTime) -> bool {
        self.ended(now).is_some()
    }

    /// Whether it takes in this request.
    pub fn covers(&self, info: &RequestInfo) -> Result<(), No> {
        if self.mode == Mode::Read && !scope::reads(info) {
            return Err(No::ReadOnly(scope::describe(info)));
        }
        match &self.namespaces {
            Some(allowed) if !scope::within(info, allowed) => {
                Err(if scope::changes_namespace(info) {
                    No::NamespaceItself(within(allowed), scope::describe(info))
                } else {
                    No::Namespace(within(allowed))
                })
            }
            _ => Ok(()),
        }
    }
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
