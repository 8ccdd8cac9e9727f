//! What operators ask of clusters: policy, engine, where images come from, the way to the Git host, the agent's image.

use std::collections::BTreeMap;

use sqlx::query::QueryScalar;
use time::OffsetDateTime;

use super::clusters::{engine_text, route_text};
use super::{Arguments, Database, Db, db, to_json, to_ms};
use crate::hub::store::{Images, Result, Revision, WITHIN};
use crate::wire::api::{BundleView, GitRoute, Policy};

/// What is said for all clusters, in `meta`: the registry, and the Secret that goes with it.
const IMAGE_KEYS: [&str; 2] = ["image_registry", "image_pull_secret"];
const DEFAULT_IMAGES: &str =
    "SELECT key, value FROM meta WHERE key IN ('image_registry', 'image_pull_secret')";

impl Database {
    pub async fn claim_cluster(&self, of: Revision<'_>, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "claim a cluster's revision";
        let statement = sqlx::query(
            "UPDATE cluster SET updated_at = $1, rev = rev + 1 WHERE id = $2 AND rev = $3 AND removed_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn set_policy(
        &self,
        of: Revision<'_>,
        policy: Policy,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "set a cluster's policy";
        let statement = sqlx::query(
            "UPDATE cluster SET policy = $1, updated_at = $2, rev = rev + 1
             WHERE id = $3 AND rev = $4 AND removed_at IS NULL",
        )
        .bind(to_json(&policy))
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn relabel(
        &self,
        of: Revision<'_>,
        labels: &BTreeMap<String, String>,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "set a cluster's labels";
        let statement = sqlx::query(
            "UPDATE cluster SET labels = $1, updated_at = $2, rev = rev + 1
             WHERE id = $3 AND rev = $4 AND removed_at IS NULL",
        )
        .bind(to_json(labels))
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        Ok(self.change(DOING, statement).await? == 1)
    }

    /// Writes what is wished from now on; gives the number of this wish.
    async fn wish(
        &self,
        doing: &'static str,
        update: QueryScalar<'_, Db, i64, Arguments>,
    ) -> Result<Option<u64>> {
        let mut write = self.begin(doing).await?;
        let change = update.fetch_optional(&mut *write.tx).await;
        let change = change.map_err(db(doing))?;
        write.commit(doing).await?;
        Ok(change.map(i64::unsigned_abs))
    }

    pub async fn set_engine(
        &self,
        of: Revision<'_>,
        bundle: &BundleView,
        within: u32,
        now: OffsetDateTime,
    ) -> Result<Option<u64>> {
        const DOING: &str = "set a cluster's engine version";
        let update = sqlx::query_scalar(
            "UPDATE cluster SET engine_version = $1, bundle = $2, engine_within = $3, engine_change = engine_change + 1,
               updated_at = $4, rev = rev + 1
             WHERE id = $5 AND rev = $6 AND engine = $7 AND removed_at IS NULL
               AND EXISTS (SELECT 1 FROM bundle b WHERE b.digest = $2 AND b.removed_at IS NULL) RETURNING engine_change",
        )
        .bind(&bundle.version)
        .bind(bundle.digest.as_str())
        .bind(i64::from(within))
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev)
        .bind(engine_text(bundle.engine));
        self.wish(DOING, update).await
    }

    /// Another engine takes the place of the one that the cluster has.
    pub async fn replace_engine(
        &self,
        of: Revision<'_>,
        (bundle, path): (&BundleView, &str),
        within: u32,
        now: OffsetDateTime,
    ) -> Result<Option<u64>> {
        const DOING: &str = "replace a cluster's engine";
        let update = sqlx::query_scalar(
            "UPDATE cluster SET engine = $1, engine_version = $2, bundle = $3, catalog_path = $4, engine_within = $5,
               engine_change = engine_change + 1, updated_at = $6, rev = rev + 1
             WHERE id = $7 AND rev = $8 AND removed_at IS NULL
               AND EXISTS (SELECT 1 FROM bundle b WHERE b.digest = $3 AND b.removed_at IS NULL) RETURNING engine_change",
        )
        .bind(engine_text(bundle.engine))
        .bind(&bundle.version)
        .bind(bundle.digest.as_str())
        .bind(path)
        .bind(i64::from(within))
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        self.wish(DOING, update).await
    }

    pub async fn set_registry(
        &self,
        of: Revision<'_>,
        images: Option<Images>,
        now: OffsetDateTime,
    ) -> Result<Option<u64>> {
        const DOING: &str = "set a cluster's image registry";
        let [registry, secret] = columns(images);
        let update = sqlx::query_scalar(
            "UPDATE cluster SET image_registry = $1, image_pull_secret = $2, engine_within = $3,
               engine_change = engine_change + 1, updated_at = $4, rev = rev + 1
             WHERE id = $5 AND rev = $6 AND removed_at IS NULL RETURNING engine_change",
        )
        .bind(registry)
        .bind(secret)
        .bind(i64::from(WITHIN))
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        self.wish(DOING, update).await
    }

    pub async fn default_registry(&self) -> Result<Option<Images>> {
        let rows: Vec<(String, String)> = sqlx::query_as(DEFAULT_IMAGES)
            .fetch_all(&self.readers)
            .await
            .map_err(db("read the image registry"))?;
        Ok(images(rows))
    }

    pub async fn set_default_registry(
        &self,
        before: Option<Images>,
        after: Option<Images>,
    ) -> Result<bool> {
        const DOING: &str = "set the image registry";
        let mut write = self.begin(DOING).await?;
        let rows: Vec<(String, String)> = sqlx::query_as(DEFAULT_IMAGES)
            .fetch_all(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        if images(rows) != before {
            return Ok(false);
        }
        for (key, value) in IMAGE_KEYS.into_iter().zip(columns(after)) {
            let query = match value {
                Some(value) => sqlx::query(
                    "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                )
                .bind(key)
                .bind(value),
                None => sqlx::query("DELETE FROM meta WHERE key = $1").bind(key),
            };
            query.execute(&mut *write.tx).await.map_err(db(DOING))?;
        }
        // The time that another change was given is not this one's.
        sqlx::query("UPDATE cluster SET engine_within = $1 WHERE image_registry IS NULL AND removed_at IS NULL")
            .bind(i64::from(WITHIN))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(true)
    }

    pub async fn set_git_route(
        &self,
        of: Revision<'_>,
        (chosen, no_route): (GitRoute, bool),
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "set a cluster's way to the Git host";
        let statement = sqlx::query(
            "UPDATE cluster SET git_route = $1, git_no_route = $2, updated_at = $3, rev = rev + 1
             WHERE id = $4 AND rev = $5 AND removed_at IS NULL",
        )
        .bind(route_text(chosen))
        .bind(no_route)
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn set_agent_image(
        &self,
        of: Revision<'_>,
        image: Option<String>,
        now: OffsetDateTime,
    ) -> Result<Option<u64>> {
        const DOING: &str = "set a cluster's agent image";
        // The same image again is the same wish.
        let update = sqlx::query_scalar(
            "UPDATE cluster SET desired_image = $1, updated_at = $2, rev = rev + 1,
               image_wish = image_wish + CASE WHEN coalesce(desired_image, '') = coalesce($1, '') THEN 0 ELSE 1 END
             WHERE id = $3 AND rev = $4 AND removed_at IS NULL RETURNING image_wish",
        )
        .bind(image)
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev);
        self.wish(DOING, update).await
    }
}

/// In the order of [`IMAGE_KEYS`].
fn columns(images: Option<Images>) -> [Option<String>; 2] {
    images.map_or([None, None], |images| {
        [Some(images.registry), images.pull_secret]
    })
}

/// None = nothing was said.
fn images(rows: Vec<(String, String)>) -> Option<Images> {
    let mut said: BTreeMap<String, String> = rows.into_iter().collect();
    let [registry, secret] = IMAGE_KEYS.map(|key| said.remove(key));
    Some(Images {
        registry: registry?,
        pull_secret: secret,
    })
}
