//! Engine bundles, by digest.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::clusters::{engine, engine_text};
use super::{Database, corrupt, db, from_json, from_ms, to_json, to_ms};
use crate::hub::store::{NewBundle, Result};
use crate::wire::api::BundleView;
use crate::wire::id::Digest;

#[derive(FromRow)]
struct Row {
    digest: String,
    engine: String,
    version: String,
    objects: i64,
    images: String,
    size: i64,
    created_at: i64,
}

impl Row {
    fn view(self) -> Result<BundleView> {
        const DOING: &str = "read a bundle";
        let kind = engine(&self.engine);
        let kubernetes = crate::bundle::release::kubernetes(kind, &self.version);
        Ok(BundleView {
            digest: self.digest.parse().map_err(corrupt(DOING))?,
            engine: kind,
            kubernetes: kubernetes.map(|minor| format!("1.{minor}")),
            version: self.version,
            objects: u32::try_from(self.objects).map_err(corrupt(DOING))?,
            images: from_json(DOING, &self.images)?,
            size: self.size.unsigned_abs(),
            imported_at: crate::clock::rfc3339(from_ms(self.created_at)),
        })
    }
}

impl Database {
    pub async fn add_bundle(&self, bundle: NewBundle, now: OffsetDateTime) -> Result<BundleView> {
        const DOING: &str = "store a bundle";
        let mut write = self.begin(DOING).await?;
        sqlx::query(
            "INSERT INTO bundle (digest, engine, version, objects, images, data, imported_by, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (digest) DO NOTHING",
        )
        .bind(bundle.digest.as_str())
        .bind(engine_text(bundle.engine))
        .bind(&bundle.version)
        .bind(i64::from(bundle.objects))
        .bind(to_json(&bundle.images))
        .bind(&bundle.data)
        .bind(&bundle.imported_by)
        .bind(to_ms(now))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let row: Row = sqlx::query_as(
            "SELECT digest, engine, version, objects, images, CAST(length(data) AS BIGINT) AS size, created_at FROM bundle WHERE digest = $1",
        )
        .bind(bundle.digest.as_str())
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        row.view()
    }

    pub async fn bundles(&self) -> Result<Vec<BundleView>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT digest, engine, version, objects, images, CAST(length(data) AS BIGINT) AS size, created_at FROM bundle
             ORDER BY created_at DESC, digest LIMIT 500",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db("list bundles"))?;
        rows.into_iter().map(Row::view).collect()
    }

    pub async fn bundle(&self, digest: &Digest) -> Result<Option<BundleView>> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT digest, engine, version, objects, images, CAST(length(data) AS BIGINT) AS size, created_at FROM bundle WHERE digest = $1",
        )
        .bind(digest.as_str())
        .fetch_optional(&self.readers)
        .await
        .map_err(db("read a bundle"))?;
        row.map(Row::view).transpose()
    }

    pub async fn bundle_data(&self, digest: &Digest) -> Result<Option<Vec<u8>>> {
        sqlx::query_scalar("SELECT data FROM bundle WHERE digest = $1")
            .bind(digest.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a bundle"))
    }
}
