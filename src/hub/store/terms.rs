//! What holds of a store beside its records: what its audit rows outlive, whether its server is away, and who is told of changes.

use super::{AccessChanges, Store};
use crate::hub::audit::Durability;

impl Store {
    /// Audit rows outlive from now on what this says, once their call returned.
    #[must_use]
    pub fn audit_survives(self, what: Durability) -> Self {
        match (what, self) {
            (Durability::Crash, store) => store,
            (Durability::Fsync, Self::Sqlite(store)) => Self::Sqlite(store.syncing_audit()),
            (Durability::Fsync, Self::Postgres(store)) => Self::Postgres(store.syncing_audit()),
        }
    }

    /// Whether audit rows that are stored may be gone while this process runs: a server crashes by itself, and a standby may have less.
    pub fn may_lose_audit(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// What to look at, beside the log, where records cannot be stored.
    pub fn place(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "disk",
            Self::Postgres(_) => "database",
        }
    }

    /// Since when the database's server is away, where that is known and said.
    pub fn away(&self) -> Option<String> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(store) => store.away.since(),
        }
    }

    /// Whether whoever fails by the database has nothing to say that is not said.
    pub fn is_away(&self) -> bool {
        self.away().is_some()
    }

    /// Tokens of an identity provider's users make admins for so long after it vouched for them last; None = to their own end.
    #[must_use]
    pub fn vouched_within(self, within: Option<time::Duration>) -> Self {
        match self {
            Self::Sqlite(store) => Self::Sqlite(store.vouched_within(within)),
            Self::Postgres(store) => Self::Postgres(store.vouched_within(within)),
        }
    }

    /// What may have changed of users, tokens, sessions, grants and the clusters that there are.
    pub fn access(&self) -> &AccessChanges {
        match self {
            Self::Sqlite(store) => &store.access,
            Self::Postgres(store) => &store.access,
        }
    }
}
