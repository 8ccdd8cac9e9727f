//! Processes of one hub: who they are, which lines they have, and what they tell each other by the store.

use time::OffsetDateTime;

/// A process of the hub that others can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// UUID, new with each start.
    pub id: String,
    /// `host:port`
    pub peer: String,
    /// Of the certificate that it shows and asks with.
    pub cert_sha256: [u8; 32],
}

/// How one that lives is reached, as its flags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    pub id: String,
    /// `host:port`, by the other replicas.
    pub peer: String,
    /// `--url` and `--git-url`, by clusters and people; empty = it does not say.
    pub urls: String,
}

/// A cluster's line at a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    pub cluster_id: String,
    pub replica: String,
    pub epoch: u64,
    pub session: String,
    pub instance: String,
    pub remote: String,
    pub since: OffsetDateTime,
    /// What the clock of the line, the hub's own, shows now.
    pub hub_clock: OffsetDateTime,
}

/// A line and how its replica is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub line: LineRow,
    pub peer: Replica,
}

/// How often each kind of record has changed, ever; zero where no replica needs to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Users, tokens, sessions and grants.
    pub access: i64,
    /// What a cluster is told, and its removal.
    pub clusters: i64,
    /// What all clusters are told.
    pub common: i64,
    pub pushes: i64,
}

/// What one replica leaves for the others to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The incident that stands.
    Incident,
    /// The last push to the catalog.
    Push,
    /// When people were told last of tokens that are about to end.
    TokensTold,
    /// A commit that the catalog has.
    CatalogHead,
    /// By which key and CAs the hub was known when that was put on record last.
    Known,
}

impl Noted {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incident => "incident",
            Self::Push => "push",
            Self::TokensTold => "tokens_told",
            Self::CatalogHead => "catalog_head",
            Self::Known => "known_by",
        }
    }
}
