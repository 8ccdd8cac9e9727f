//! Engine bundles, by digest. One that was removed leaves its row without the content: clusters that were removed refer to it.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::clusters::{engine, engine_text};
use super::{Database, corrupt, db, from_json, from_ms, to_json, to_ms};
use crate::hub::store::{BundleUse, NewBundle, Result};
use crate::wire::api::{BundleOrigin, BundleView};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::BUNDLES_IN_FORCE;

/// What [`Row`] reads.
macro_rules! shown {
    ($rest:literal) => {
        concat!(
            "SELECT digest, engine, version, objects, images, CAST(length(data) AS BIGINT) AS size, created_at,
               source, verified_by FROM bundle ",
            $rest
        )
    };
}

#[derive(FromRow)]
struct Row {
    digest: String,
    engine: String,
    version: String,
    objects: i64,
    images: String,
    size: i64,
    created_at: i64,
    source: Option<String>,
    verified_by: Option<String>,
}

impl Row {
    fn view(self) -> Result<BundleView> {
        const DOING: &str = "read a bundle";
        let kind = engine(&self.engine);
        let origin = self.source.zip(self.verified_by);
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
            origin: origin.map(|(source, verified_by)| BundleOrigin {
                source,
                verified_by,
            }),
        })
    }
}

impl Database {
    /// One that is there already stays as it is; what nobody vouched for may be vouched for later.
    pub async fn add_bundle(&self, bundle: NewBundle, now: OffsetDateTime) -> Result<BundleView> {
        const DOING: &str = "store a bundle";
        let origin = bundle.origin.as_ref();
        let mut write = self.begin(DOING).await?;
        sqlx::query(
            "INSERT INTO bundle (digest, engine, version, objects, images, data, imported_by, created_at, source, verified_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (digest) DO UPDATE SET objects = $4, images = $5,
               data = $6, imported_by = $7, created_at = $8, source = $9, verified_by = $10, removed_at = NULL
             WHERE bundle.removed_at IS NOT NULL",
        )
        .bind(bundle.digest.as_str())
        .bind(engine_text(bundle.engine))
        .bind(&bundle.version)
        .bind(i64::from(bundle.objects))
        .bind(to_json(&bundle.images))
        .bind(&bundle.data)
        .bind(&bundle.imported_by)
        .bind(to_ms(now))
        .bind(origin.map(|origin| origin.source.as_str()))
        .bind(origin.map(|origin| origin.verified_by.as_str()))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if let Some(origin) = origin.filter(|origin| origin.is_verified()) {
            sqlx::query(
                "UPDATE bundle SET source = $2, verified_by = $3 WHERE digest = $1 AND COALESCE(verified_by, '') = ''",
            )
            .bind(bundle.digest.as_str())
            .bind(&origin.source)
            .bind(&origin.verified_by)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        let row: Row = sqlx::query_as(shown!("WHERE digest = $1"))
            .bind(bundle.digest.as_str())
            .fetch_one(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        row.view()
    }

    pub async fn bundles(&self) -> Result<Vec<BundleView>> {
        let rows: Vec<Row> = sqlx::query_as(shown!(
            "WHERE removed_at IS NULL ORDER BY created_at DESC, digest"
        ))
        .fetch_all(&self.readers)
        .await
        .map_err(db("list bundles"))?;
        rows.into_iter().map(Row::view).collect()
    }

    pub async fn bundle(&self, digest: &Digest) -> Result<Option<BundleView>> {
        let row: Option<Row> = sqlx::query_as(shown!("WHERE digest = $1 AND removed_at IS NULL"))
            .bind(digest.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a bundle"))?;
        row.map(Row::view).transpose()
    }

    pub async fn removed_bundle(&self, digest: &Digest) -> Result<Option<BundleView>> {
        let row: Option<Row> =
            sqlx::query_as(shown!("WHERE digest = $1 AND removed_at IS NOT NULL"))
                .bind(digest.as_str())
                .fetch_optional(&self.readers)
                .await
                .map_err(db("read a bundle that was removed"))?;
        row.map(Row::view).transpose()
    }

    pub async fn bundle_data(&self, digest: &Digest) -> Result<Option<Vec<u8>>> {
        sqlx::query_scalar("SELECT data FROM bundle WHERE digest = $1 AND removed_at IS NULL")
            .bind(digest.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a bundle"))
    }

    pub async fn bundle_use(&self, digest: &Digest) -> Result<BundleUse> {
        const DOING: &str = "read which clusters a bundle is kept for";
        // An agent of before has no such fact: it names the first digits in the words of that condition.
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SELECT c.name, c.bundle FROM cluster c LEFT JOIN fact f ON f.cluster_id = c.id AND f.key = $1
             WHERE c.removed_at IS NULL AND (c.bundle = $2 OR f.value LIKE $3 OR (f.value IS NULL AND EXISTS
               (SELECT 1 FROM condition k WHERE k.cluster_id = c.id AND k.type = 'EngineCurrent' AND k.message LIKE $4)))
             ORDER BY c.name",
        )
        .bind(BUNDLES_IN_FORCE)
        .bind(digest.as_str())
        .bind(format!("%{digest}%"))
        .bind(format!("%{}%", digest.short()))
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let mut of = BundleUse::default();
        for (name, bundle) in rows {
            let name: ClusterName = name.parse().map_err(corrupt(DOING))?;
            if bundle == digest.as_str() {
                of.wished.push(name);
            } else {
                of.kept.push(name);
            }
        }
        Ok(of)
    }

    pub async fn remove_bundle(&self, digest: &Digest, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "remove a bundle";
        let statement = sqlx::query(
            "UPDATE bundle SET data = $1, removed_at = $2 WHERE digest = $3 AND removed_at IS NULL AND NOT EXISTS
               (SELECT 1 FROM cluster c WHERE c.bundle = $3 AND c.removed_at IS NULL)",
        )
        .bind(Vec::<u8>::new())
        .bind(to_ms(now))
        .bind(digest.as_str());
        Ok(self.change(DOING, statement).await? == 1)
    }
}
