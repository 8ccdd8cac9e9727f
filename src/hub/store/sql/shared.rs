//! What replicas tell one another through the database.

use super::{Database, db};
use crate::hub::store::{Changes, Noted, Result};

impl Database {
    pub async fn changes(&self) -> Result<Changes> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT topic, n FROM change")
            .fetch_all(&self.readers)
            .await
            .map_err(db("look what changed"))?;
        let of = |topic: &str| rows.iter().find(|(t, _)| t == topic).map_or(0, |(_, n)| *n);
        Ok(Changes {
            access: of("access"),
            clusters: of("clusters"),
            common: of("common"),
            pushes: of("push"),
        })
    }

    pub async fn note(&self, what: Noted, text: Option<String>) -> Result<()> {
        const DOING: &str = "leave a note for the other replicas";
        let mut write = self.begin(DOING).await?;
        let query = match &text {
            Some(text) => sqlx::query(
                "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .bind(what.as_str())
            .bind(text),
            None => sqlx::query("DELETE FROM meta WHERE key = $1").bind(what.as_str()),
        };
        query.execute(&mut *write.tx).await.map_err(db(DOING))?;
        write.commit(DOING).await
    }

    pub async fn noted(&self, what: Noted) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT value FROM meta WHERE key = $1")
            .bind(what.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a note of another replica"))
    }

    pub async fn revisions(&self, clusters: Vec<String>) -> Result<Vec<(String, u64)>> {
        const LIVING: &str = concat!(
            "SELECT name, assignment_revision FROM cluster WHERE removed_at IS NULL AND name IN ",
            each!("$1")
        );
        let rows: Vec<(String, i64)> = sqlx::query_as(LIVING)
            .bind(super::to_json(&clusters))
            .fetch_all(&self.readers)
            .await
            .map_err(db("look at the clusters' assignments"))?;
        Ok(rows
            .into_iter()
            .map(|(name, revision)| (name, revision.unsigned_abs()))
            .collect())
    }
}
