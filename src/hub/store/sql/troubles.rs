//! Troubles that people were told of, and those of the copies of agents in the catalog.

use super::{Database, corrupt, db};
use crate::hub::store::{Result, TroubleKey};

impl Database {
    pub async fn copy_trouble(&self, cluster_id: &str) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT trouble FROM copy_trouble WHERE cluster_id = $1")
            .bind(cluster_id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read what a copy of an agent lacks"))
    }

    pub async fn copy_troubles(&self) -> Result<Vec<String>> {
        sqlx::query_scalar("SELECT cluster_id FROM copy_trouble ORDER BY cluster_id")
            .fetch_all(&self.readers)
            .await
            .map_err(db("read what copies of agents lack"))
    }

    pub async fn set_copy_trouble(&self, cluster_id: &str, trouble: Option<&str>) -> Result<()> {
        const DOING: &str = "note what a copy of an agent lacks";
        let mut write = self.begin(DOING).await?;
        let query = match trouble {
            Some(trouble) => sqlx::query(
                "INSERT INTO copy_trouble (cluster_id, trouble) VALUES ($1, $2)
                 ON CONFLICT (cluster_id) DO UPDATE SET trouble = excluded.trouble",
            )
            .bind(cluster_id)
            .bind(trouble),
            None => sqlx::query("DELETE FROM copy_trouble WHERE cluster_id = $1").bind(cluster_id),
        };
        query.execute(&mut *write.tx).await.map_err(db(DOING))?;
        write.commit(DOING).await
    }

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
