//! What several replicas of a hub have beside their records: one that leads, and bells. A hub on SQLite is alone.

use super::{Bell, Result, Store, postgres};

impl Store {
    /// Whether this process does what only one replica does; to be asked again every few seconds. A hub that is alone always
    /// does.
    pub async fn leads(&self) -> Result<bool> {
        match self {
            Self::Sqlite(_) => Ok(true),
            Self::Postgres(store) => store.leads().await,
        }
    }

    /// Lets another replica lead.
    pub async fn cede(&self) {
        if let Self::Postgres(store) = self {
            store.cede().await;
        }
    }

    /// Wakes the other replicas, as far as they can be reached.
    pub async fn ring(&self, bells: &[Bell]) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(store) => store.ring(bells).await,
        }
    }

    /// What the replicas ring; None = this database has none.
    pub async fn bells(&self) -> Result<Option<postgres::Bells>> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(store) => store.bells().await.map(Some),
        }
    }
}
