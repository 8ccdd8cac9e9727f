//! Clusters: added, listed, removed; when each was seen, and the counts that never repeat.

use sqlx::FromRow;
use time::{Duration, OffsetDateTime};

use super::{Connection, Database, corrupt, db, from_json, from_ms, heals, to_json, to_ms};
use crate::clock;
use crate::hub::store::records::adoption::adoption;
use crate::hub::store::{Cluster, EndedAccess, Joined, NewClusterRow, Result, StoreError};
use crate::wire::api::{EngineKind, GitRoute, Policy};
use crate::wire::id::ClusterName;

mod namesakes;

/// A cluster that was seen later than so long from now was dated by a clock that was ahead; what replicas note at the same time is
/// not so far apart.
const AHEAD: Duration = Duration::minutes(1);

#[derive(FromRow)]
pub(super) struct Row {
    id: String,
    name: String,
    labels: String,
    engine: String,
    engine_version: String,
    bundle: String,
    engine_change: i64,
    engine_within: i64,
    image_registry: Option<String>,
    image_pull_secret: Option<String>,
    catalog_path: String,
    git_route: String,
    git_no_route: bool,
    adoption: String,
    policy: String,
    desired_image: Option<String>,
    image_wish: i64,
    incarnation: Option<String>,
    epoch: i64,
    agent_version: Option<String>,
    synced_revision: Option<String>,
    assignment_revision: i64,
    joined_at: Option<i64>,
    last_seen: Option<i64>,
    removed_at: Option<i64>,
    created_at: i64,
    rev: i64,
}

impl Row {
    pub(super) fn cluster(self) -> Result<Cluster> {
        const DOING: &str = "read a cluster";
        Ok(Cluster {
            name: self.name.parse().map_err(corrupt(DOING))?,
            labels: from_json(DOING, &self.labels)?,
            engine: engine(&self.engine),
            engine_version: self.engine_version,
            bundle: self.bundle.parse().map_err(corrupt(DOING))?,
            engine_change: self.engine_change.unsigned_abs(),
            engine_within: u32::try_from(self.engine_within).map_err(corrupt(DOING))?,
            image_registry: self.image_registry,
            image_pull_secret: self.image_pull_secret,
            catalog_path: self.catalog_path,
            git_route: route(&self.git_route),
            git_no_route: self.git_no_route,
            adoption: adoption(&self.adoption).map_err(corrupt(DOING))?,
            policy: from_json(DOING, &self.policy)?,
            desired_image: self.desired_image,
            image_wish: self.image_wish.unsigned_abs(),
            incarnation: self.incarnation,
            epoch: self.epoch.unsigned_abs(),
            agent_version: self.agent_version,
            synced_revision: self.synced_revision,
            assignment_revision: self.assignment_revision.unsigned_abs(),
            joined_at: self.joined_at.map(from_ms),
            last_seen: self.last_seen.map(from_ms),
            removed_at: self.removed_at.map(from_ms),
            created_at: from_ms(self.created_at),
            rev: self.rev,
            id: self.id,
        })
    }
}

pub(super) fn engine(text: &str) -> EngineKind {
    // The table's CHECK knows these two only.
    match text {
        "argocd" => EngineKind::Argocd,
        _ => EngineKind::Flux,
    }
}

pub(super) fn engine_text(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Flux => "flux",
        EngineKind::Argocd => "argocd",
    }
}

fn route(text: &str) -> GitRoute {
    match text {
        "direct" => GitRoute::Direct,
        "line" => GitRoute::Line,
        _ => GitRoute::Auto,
    }
}

pub(super) fn route_text(route: GitRoute) -> &'static str {
    match route {
        GitRoute::Auto => "auto",
        GitRoute::Direct => "direct",
        GitRoute::Line => "line",
    }
}

/// Clusters as [`joined`] reads them.
macro_rules! joined {
    () => {
        "SELECT id, name, epoch, last_seen FROM cluster WHERE removed_at IS NULL AND joined_at IS NOT NULL
         AND EXISTS (SELECT 1 FROM cluster_key k WHERE k.cluster_id = cluster.id AND k.kind = 'identity'
             AND k.state IN ('active', 'retiring'))"
    };
}

type JoinedRow = (String, String, i64, Option<i64>);

fn joined((id, name, epoch, last_seen): JoinedRow) -> Result<Joined> {
    Ok(Joined {
        name: name.parse().map_err(corrupt("read a cluster"))?,
        epoch: epoch.unsigned_abs(),
        last_seen: last_seen.map(from_ms),
        id,
    })
}

pub(super) async fn insert(
    connection: &mut Connection,
    new: &NewClusterRow,
    now: OffsetDateTime,
) -> Result<Cluster> {
    const DOING: &str = "create a cluster";
    let held: Option<i64> = sqlx::query_scalar(
        "SELECT created_at FROM bundle WHERE digest = $1 AND removed_at IS NULL",
    )
    .bind(new.bundle.as_str())
    .fetch_optional(&mut *connection)
    .await
    .map_err(db(DOING))?;
    if held.is_none() {
        return Err(StoreError::NoBundle(new.bundle.to_string()));
    }
    let insert = sqlx::query_as(
        "INSERT INTO cluster (id, name, labels, engine, engine_version, bundle, catalog_path, git_route, adoption, policy, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING *",
    )
    .bind(clock::id())
    .bind(new.name.as_str())
    .bind(to_json(&new.labels))
    .bind(engine_text(new.engine))
    .bind(&new.engine_version)
    .bind(new.bundle.as_str())
    .bind(&new.catalog_path)
    .bind(route_text(new.git_route))
    .bind(to_json(&new.adoption))
    .bind(to_json(&Policy::default()))
    .bind(to_ms(now))
    .bind(to_ms(now))
    .fetch_one(connection)
    .await;
    let row: Row = insert.map_err(|e| match &e {
        sqlx::Error::Database(d) if d.is_unique_violation() => {
            StoreError::Exists(format!("cluster {}", new.name))
        }
        _ => db(DOING)(e),
    })?;
    row.cluster()
}

impl Database {
    pub async fn create_cluster(&self, new: NewClusterRow, now: OffsetDateTime) -> Result<Cluster> {
        const DOING: &str = "create a cluster";
        let mut write = self.begin(DOING).await?;
        let cluster = insert(&mut write.tx, &new, now).await?;
        write.commit(DOING).await?;
        Ok(cluster)
    }

    pub async fn cluster(&self, name: &ClusterName) -> Result<Option<Cluster>> {
        let row: Option<Row> =
            sqlx::query_as("SELECT * FROM cluster WHERE name = $1 AND removed_at IS NULL")
                .bind(name.as_str())
                .fetch_optional(&self.readers)
                .await
                .map_err(db("read a cluster"))?;
        row.map(Row::cluster).transpose()
    }

    pub async fn cluster_by_id(&self, id: &str) -> Result<Option<Cluster>> {
        let row: Option<Row> = sqlx::query_as("SELECT * FROM cluster WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a cluster"))?;
        row.map(Row::cluster).transpose()
    }

    pub async fn clusters(&self, after: Option<&str>, limit: u32) -> Result<Vec<Cluster>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM cluster WHERE removed_at IS NULL AND name > $1 ORDER BY name LIMIT $2",
        )
        .bind(after.unwrap_or_default())
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db("list clusters"))?;
        rows.into_iter().map(Row::cluster).collect()
    }

    pub async fn joined(&self) -> Result<Vec<Joined>> {
        let rows: Vec<JoinedRow> = sqlx::query_as(concat!(joined!(), " ORDER BY name"))
            .fetch_all(&self.readers)
            .await
            .map_err(db("list clusters that joined"))?;
        rows.into_iter().map(joined).collect()
    }

    pub async fn joined_of(&self, ids: &[String]) -> Result<Vec<Joined>> {
        let rows: Vec<JoinedRow> = sqlx::query_as(concat!(
            joined!(),
            " AND id IN ",
            each!("$1"),
            " ORDER BY name"
        ))
        .bind(to_json(&ids))
        .fetch_all(&self.readers)
        .await
        .map_err(db("read when clusters were seen"))?;
        rows.into_iter().map(joined).collect()
    }

    pub async fn remove_cluster(
        &self,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Option<EndedAccess>> {
        const DOING: &str = "remove a cluster";
        let mut write = self.begin(DOING).await?;
        let done = sqlx::query(
            "UPDATE cluster SET removed_at = $1, updated_at = $1, rev = rev + 1 WHERE id = $2 AND removed_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        for sql in [
            "UPDATE cluster_key SET state = 'revoked', updated_at = $1 WHERE cluster_id = $2",
            "UPDATE join_token SET revoked_at = $1 WHERE cluster_id = $2 AND revoked_at IS NULL",
        ] {
            sqlx::query(sql)
                .bind(to_ms(now))
                .bind(id)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        heals::end_removed(&mut write.tx, id, now).await?;
        // What reports said goes; heals and the audit stay as history.
        for sql in [
            "DELETE FROM fact WHERE cluster_id = $1",
            "DELETE FROM condition WHERE cluster_id = $1",
            "DELETE FROM step WHERE cluster_id = $1",
            "DELETE FROM outbox WHERE cluster_id = $1",
            "DELETE FROM line WHERE cluster_id = $1",
        ] {
            sqlx::query(sql)
                .bind(id)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        // A second call ends nothing: by now the name may be another cluster's.
        let ended = if done.rows_affected() == 1 {
            Some(namesakes::end(&mut write, id, now).await?)
        } else {
            None
        };
        write.commit(DOING).await?;
        Ok(ended)
    }

    pub async fn next_epoch(&self, cluster_id: &str) -> Result<u64> {
        const DOING: &str = "count up a line's epoch";
        let mut write = self.begin_row(DOING).await?;
        let epoch: i64 = sqlx::query_scalar(
            "UPDATE cluster SET epoch = epoch + 1 WHERE id = $1 RETURNING epoch",
        )
        .bind(cluster_id)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(epoch.unsigned_abs())
    }

    pub async fn seen(
        &self,
        mut seen: Vec<(String, OffsetDateTime)>,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "note when clusters were seen";
        // In one order everywhere: nobody waits in a circle for another's rows.
        seen.sort();
        let mut write = self.begin_row(DOING).await?;
        for (id, at) in seen {
            sqlx::query(
                "UPDATE cluster SET last_seen = $1
                 WHERE id = $2 AND (last_seen IS NULL OR last_seen < $1 OR last_seen > $3)",
            )
            .bind(to_ms(at))
            .bind(id)
            .bind(to_ms(now.saturating_add(AHEAD)))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        write.commit(DOING).await
    }

    pub async fn assignment_revision(
        &self,
        cluster_id: &str,
        hash: &str,
        now: OffsetDateTime,
    ) -> Result<u64> {
        const DOING: &str = "count up an assignment's revision";
        let known: Option<(i64, String)> = sqlx::query_as(
            "SELECT assignment_revision, assignment_hash FROM cluster WHERE id = $1",
        )
        .bind(cluster_id)
        .fetch_optional(&self.readers)
        .await
        .map_err(db(DOING))?;
        if let Some((revision, known)) = known
            && known == hash
        {
            return Ok(revision.unsigned_abs());
        }
        let mut write = self.begin_row(DOING).await?;
        sqlx::query(
            "UPDATE cluster SET assignment_hash = $1, assignment_revision =
               CASE WHEN assignment_revision < $3 THEN $3 ELSE assignment_revision + 1 END
             WHERE id = $2 AND assignment_hash <> $1",
        )
        .bind(hash)
        .bind(cluster_id)
        .bind(to_ms(now))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let revision: i64 =
            sqlx::query_scalar("SELECT assignment_revision FROM cluster WHERE id = $1")
                .bind(cluster_id)
                .fetch_one(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(revision.unsigned_abs())
    }
}
