//! Troubles that people were told of.

use super::{Database, corrupt, db};
use crate::hub::store::{Result, TroubleKey};
use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

/// Open heals in one look; a fleet with more is in flames anyhow.
const MAX_OPEN: i64 = 20_000;

impl Database {
    pub async fn troubles(&self) -> Result<Vec<(TroubleKey, String)>> {
        const DOING: &str = "read troubles";
        let rows: Vec<(String, String, String)> =
            sqlx::query_as("SELECT cluster, class, record FROM trouble")
                .fetch_all(&self.readers)
                .await
                .map_err(db(DOING))?;
        rows.into_iter()
            .map(|(cluster, class, record)| {
                let cluster = cluster.parse().map_err(corrupt(DOING))?;
                Ok(((cluster, class), record))
            })
            .collect()
    }

    pub async fn change_troubles(
        &self,
        put: Vec<(TroubleKey, String)>,
        gone: Vec<TroubleKey>,
    ) -> Result<()> {
        const DOING: &str = "store troubles";
        let mut write = self.begin(DOING).await?;
        for ((cluster, class), record) in put {
            sqlx::query(
                "INSERT INTO trouble (cluster, class, record) VALUES ($1, $2, $3)
                 ON CONFLICT (cluster, class) DO UPDATE SET record = $3",
            )
            .bind(cluster.as_str())
            .bind(class)
            .bind(record)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        for (cluster, class) in gone {
            sqlx::query("DELETE FROM trouble WHERE cluster = $1 AND class = $2")
                .bind(cluster.as_str())
                .bind(class)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        write.commit(DOING).await
    }

    pub async fn open_heals(&self) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list open heals";
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT c.name, h.record FROM heal h JOIN cluster c ON c.id = h.cluster_id
             WHERE h.restored_at IS NULL AND h.result <> 'failed' AND c.removed_at IS NULL ORDER BY h.id LIMIT $1",
        )
        .bind(MAX_OPEN)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        rows.into_iter()
            .map(|row| super::reports::heal_row(DOING, &row))
            .collect()
    }

    pub async fn open_heals_of(&self, class: &str) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list open heals of one class";
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT c.name, h.record FROM heal h JOIN cluster c ON c.id = h.cluster_id
             WHERE h.class = $1 AND h.restored_at IS NULL AND h.result <> 'failed' AND c.removed_at IS NULL ORDER BY h.id",
        )
        .bind(class)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        rows.into_iter()
            .map(|row| super::reports::heal_row(DOING, &row))
            .collect()
    }
}
