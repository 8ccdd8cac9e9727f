//! What operators ask of clusters: policy, engine, where images come from, the way to the Git host, the agent's image.

use std::collections::BTreeMap;

use sqlx::query::QueryScalar;
use time::OffsetDateTime;

use super::clusters::{engine_text, route_text};
use super::{Arguments, Database, Db, db, to_json, to_ms};
use crate::hub::store::Result;
use crate::wire::api::{BundleView, GitRoute, Policy};

impl Database {
    pub async fn set_policy(&self, id: &str, policy: Policy, now: OffsetDateTime) -> Result<()> {
        const DOING: &str = "set a cluster's policy";
        let statement = sqlx::query(
            "UPDATE cluster SET policy = $1, updated_at = $2, rev = rev + 1 WHERE id = $3",
        )
        .bind(to_json(&policy))
        .bind(to_ms(now))
        .bind(id);
        self.change(DOING, statement).await.map(drop)
    }

    pub async fn relabel(
        &self,
        id: &str,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "set a cluster's labels";
        let statement = sqlx::query(
            "UPDATE cluster SET labels = $1, updated_at = $2, rev = rev + 1
             WHERE id = $3 AND labels = $4 AND removed_at IS NULL",
        )
        .bind(to_json(after))
        .bind(to_ms(now))
        .bind(id)
        .bind(to_json(before));
        Ok(self.change(DOING, statement).await? == 1)
    }

    /// Writes what the engine is to be from now on; gives the number of this change.
    async fn change_engine(
        &self,
        doing: &'static str,
        update: QueryScalar<'_, Db, i64, Arguments>,
    ) -> Result<u64> {
        let mut write = self.begin(doing).await?;
        let change = update.fetch_one(&mut *write.tx).await;
        let change = change.map_err(db(doing))?;
        write.commit(doing).await?;
        Ok(change.unsigned_abs())
    }

    pub async fn set_engine(
        &self,
        id: &str,
        bundle: &BundleView,
        within: u32,
        now: OffsetDateTime,
    ) -> Result<u64> {
        const DOING: &str = "set a cluster's engine version";
        let update = sqlx::query_scalar(
            "UPDATE cluster SET engine_version = $1, bundle = $2, engine_within = $3, engine_change = engine_change + 1,
               updated_at = $4, rev = rev + 1 WHERE id = $5 AND engine = $6 RETURNING engine_change",
        )
        .bind(&bundle.version)
        .bind(bundle.digest.as_str())
        .bind(i64::from(within))
        .bind(to_ms(now))
        .bind(id)
        .bind(engine_text(bundle.engine));
        self.change_engine(DOING, update).await
    }

    /// Another engine takes the place of the one that the cluster has.
    pub async fn replace_engine(
        &self,
        id: &str,
        (bundle, path): (&BundleView, &str),
        within: u32,
        now: OffsetDateTime,
    ) -> Result<u64> {
        const DOING: &str = "replace a cluster's engine";
        let update = sqlx::query_scalar(
            "UPDATE cluster SET engine = $1, engine_version = $2, bundle = $3, catalog_path = $4, engine_within = $5,
               engine_change = engine_change + 1, updated_at = $6, rev = rev + 1 WHERE id = $7 RETURNING engine_change",
        )
        .bind(engine_text(bundle.engine))
        .bind(&bundle.version)
        .bind(bundle.digest.as_str())
        .bind(path)
        .bind(i64::from(within))
        .bind(to_ms(now))
        .bind(id);
        self.change_engine(DOING, update).await
    }

    pub async fn set_registry(
        &self,
        id: &str,
        registry: Option<String>,
        now: OffsetDateTime,
    ) -> Result<u64> {
        const DOING: &str = "set a cluster's image registry";
        let update = sqlx::query_scalar(
            "UPDATE cluster SET image_registry = $1, engine_change = engine_change + 1, updated_at = $2, rev = rev + 1
             WHERE id = $3 RETURNING engine_change",
        )
        .bind(registry)
        .bind(to_ms(now))
        .bind(id);
        self.change_engine(DOING, update).await
    }

    pub async fn default_registry(&self) -> Result<Option<String>> {
        sqlx::query_scalar("SELECT value FROM meta WHERE key = 'image_registry'")
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read the image registry"))
    }

    pub async fn set_default_registry(&self, registry: Option<String>) -> Result<()> {
        const DOING: &str = "set the image registry";
        let mut write = self.begin(DOING).await?;
        let query = match &registry {
            Some(registry) => sqlx::query(
                "INSERT INTO meta (key, value) VALUES ('image_registry', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .bind(registry),
            None => sqlx::query("DELETE FROM meta WHERE key = 'image_registry'"),
        };
        query.execute(&mut *write.tx).await.map_err(db(DOING))?;
        write.commit(DOING).await
    }

    pub async fn set_git_route(
        &self,
        id: &str,
        (chosen, no_route): (GitRoute, bool),
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "set a cluster's way to the Git host";
        let statement = sqlx::query(
            "UPDATE cluster SET git_route = $1, git_no_route = $2, updated_at = $3, rev = rev + 1 WHERE id = $4",
        )
        .bind(route_text(chosen))
        .bind(no_route)
        .bind(to_ms(now))
        .bind(id);
        self.change(DOING, statement).await.map(drop)
    }

    pub async fn set_agent_image(
        &self,
        id: &str,
        image: Option<String>,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "set a cluster's agent image";
        let statement = sqlx::query(
            "UPDATE cluster SET desired_image = $1, updated_at = $2, rev = rev + 1 WHERE id = $3",
        )
        .bind(image)
        .bind(to_ms(now))
        .bind(id);
        self.change(DOING, statement).await.map(drop)
    }
}
