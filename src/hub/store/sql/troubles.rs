//! Troubles that people were told of.

use super::{Database, corrupt, db};
use crate::hub::store::{Result, TroubleKey};

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
}
