//! Public keys of clusters.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Connection, Database, corrupt, db, from_ms, to_ms};
use crate::clock;
use crate::hub::registration;
use crate::hub::store::{ClusterKey, KeyKind, KeyState, Result, StoreError};
use crate::keys::Public;

mod ended;

/// Keys of one kind that one cluster may have in force.
const MAX_VALID: usize = 8;
/// Revoked keys of one kind that are kept of one cluster, so that their holders hear why they are refused.
const MAX_REVOKED: i64 = 50;

#[derive(FromRow)]
struct Row {
    cluster_id: String,
    cluster: String,
    removed_at: Option<i64>,
    kind: String,
    public: String,
    fingerprint: String,
    state: String,
    created_at: i64,
    replace_asked_at: Option<i64>,
}

impl Row {
    fn key(self) -> Result<ClusterKey> {
        const DOING: &str = "read a cluster's key";
        Ok(ClusterKey {
            cluster_id: self.cluster_id,
            cluster: self.cluster.parse().map_err(corrupt(DOING))?,
            removed: self.removed_at.is_some(),
            // The table's CHECKs know these words only.
            kind: match self.kind.as_str() {
                "identity" => KeyKind::Identity,
                _ => KeyKind::Deploy,
            },
            public: Public::from_openssh(&self.public).map_err(corrupt(DOING))?,
            fingerprint: self.fingerprint,
            state: match self.state.as_str() {
                "active" => KeyState::Active,
                "pending" => KeyState::Pending,
                "retiring" => KeyState::Retiring,
                _ => KeyState::Revoked,
            },
            created_at: from_ms(self.created_at),
            replace: self.replace_asked_at.is_some(),
        })
    }
}

pub(super) async fn by_fingerprint(
    connection: &mut Connection,
    fingerprint: &str,
) -> Result<Option<ClusterKey>> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
         WHERE k.fingerprint = $1",
    )
    .bind(fingerprint)
    .fetch_optional(connection)
    .await
    .map_err(db("read a cluster's key"))?;
    row.map(Row::key).transpose()
}

pub(super) async fn of_cluster(
    connection: &mut Connection,
    cluster_id: &str,
    kind: KeyKind,
) -> Result<Vec<ClusterKey>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
         WHERE k.cluster_id = $1 AND k.kind = $2 ORDER BY k.id",
    )
    .bind(cluster_id)
    .bind(kind.as_str())
    .fetch_all(connection)
    .await
    .map_err(db("list a cluster's keys"))?;
    rows.into_iter().map(Row::key).collect()
}

/// Asked within the transaction: the caller may have been let in before it was revoked.
async fn is_revoked(connection: &mut Connection, cluster_id: &str) -> Result<bool> {
    let identities = of_cluster(connection, cluster_id, KeyKind::Identity).await?;
    Ok(registration::is_revoked(&identities))
}

/// Before one more key: the oldest of those that were revoked long since go.
pub(super) async fn make_room(
    connection: &mut Connection,
    cluster_id: &str,
    kind: KeyKind,
) -> Result<()> {
    let known = of_cluster(connection, cluster_id, kind).await?;
    if known
        .iter()
        .filter(|k| k.state != KeyState::Revoked)
        .count()
        >= MAX_VALID
    {
        return Err(StoreError::Full(format!(
            "the cluster has {MAX_VALID} {} keys in force",
            kind.as_str()
        )));
    }
    sqlx::query(
        "DELETE FROM cluster_key WHERE cluster_id = $1 AND kind = $2 AND state = 'revoked' AND id NOT IN
           (SELECT id FROM cluster_key WHERE cluster_id = $1 AND kind = $2 AND state = 'revoked'
            ORDER BY updated_at DESC, id DESC LIMIT $3)",
    )
    .bind(cluster_id)
    .bind(kind.as_str())
    .bind(MAX_REVOKED)
    .execute(connection)
    .await
    .map_err(db("forget keys that were revoked"))?;
    Ok(())
}

/// Others than the cluster's agent end its keys: what had moved on from one before them is no exception any more.
pub(super) async fn forget_moves(connection: &mut Connection, cluster_id: &str) -> Result<()> {
    sqlx::query(
        "UPDATE cluster_key SET moved_at = NULL WHERE cluster_id = $1 AND moved_at IS NOT NULL",
    )
    .bind(cluster_id)
    .execute(connection)
    .await
    .map_err(db("end what goes by a cluster's former keys"))?;
    Ok(())
}

/// Adds a key or makes a known one of the same cluster active again.
pub(super) async fn put(
    connection: &mut Connection,
    cluster_id: &str,
    kind: KeyKind,
    public: Public,
    now: OffsetDateTime,
) -> Result<()> {
    const DOING: &str = "store a cluster's key";
    let line = public.openssh("").map_err(corrupt(DOING))?;
    sqlx::query(
        "INSERT INTO cluster_key (id, cluster_id, kind, public, fingerprint, state, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'active', $6, $6)
         ON CONFLICT (fingerprint) DO UPDATE SET state = 'active', updated_at = $6
           WHERE cluster_key.cluster_id = $2 AND cluster_key.kind = $3",
    )
    .bind(clock::id())
    .bind(cluster_id)
    .bind(kind.as_str())
    .bind(line)
    .bind(public.fingerprint())
    .bind(to_ms(now))
    .execute(connection)
    .await
    .map_err(db(DOING))?;
    Ok(())
}

impl Database {
    pub async fn cluster_key_by_fingerprint(
        &self,
        fingerprint: &str,
    ) -> Result<Option<ClusterKey>> {
        let mut reader = self
            .readers
            .acquire()
            .await
            .map_err(db("read a cluster's key"))?;
        by_fingerprint(&mut reader, fingerprint).await
    }

    pub async fn cluster_keys(&self, cluster_id: &str) -> Result<Vec<ClusterKey>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
             WHERE k.cluster_id = $1 ORDER BY k.id",
        )
        .bind(cluster_id)
        .fetch_all(&self.readers)
        .await
        .map_err(db("list a cluster's keys"))?;
        rows.into_iter().map(Row::key).collect()
    }

    /// The keys of all these clusters, oldest first.
    pub(super) async fn keys_of(&self, ids: &str) -> Result<Vec<ClusterKey>> {
        let rows: Vec<Row> = sqlx::query_as(
            concat!("SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
             WHERE k.cluster_id IN ", each!("$1"), " ORDER BY k.id"),
        )
        .bind(ids)
        .fetch_all(&self.readers)
        .await
        .map_err(db("list clusters' keys"))?;
        rows.into_iter().map(Row::key).collect()
    }

    pub async fn add_deploy_key(
        &self,
        cluster_id: &str,
        public: Public,
        replaces: Option<Public>,
        now: OffsetDateTime,
    ) -> Result<Option<ClusterKey>> {
        const DOING: &str = "register a deploy key";
        let mut write = self.begin(DOING).await?;
        let fingerprint = public.fingerprint();
        let known = by_fingerprint(&mut write.tx, &fingerprint).await?;
        let foreign = known.as_ref().is_some_and(|k| {
            k.cluster_id != cluster_id || k.kind != KeyKind::Deploy || k.state == KeyState::Revoked
        });
        if foreign || is_revoked(&mut write.tx, cluster_id).await? {
            return Ok(None);
        }
        if known.is_none() {
            make_room(&mut write.tx, cluster_id, KeyKind::Deploy).await?;
        }
        put(&mut write.tx, cluster_id, KeyKind::Deploy, public, now).await?;
        if let Some(old) = replaces.filter(|old| *old != public) {
            sqlx::query(
                "UPDATE cluster_key SET state = 'retiring', updated_at = $1 WHERE cluster_id = $2 AND kind = 'deploy'
                 AND fingerprint = $3 AND state = 'active'",
            )
            .bind(to_ms(now))
            .bind(cluster_id)
            .bind(old.fingerprint())
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        let key = by_fingerprint(&mut write.tx, &fingerprint).await?;
        write.commit(DOING).await?;
        Ok(key)
    }

    pub async fn add_identity(
        &self,
        cluster_id: &str,
        public: Public,
        now: OffsetDateTime,
    ) -> Result<Option<ClusterKey>> {
        const DOING: &str = "replace an identity key";
        let mut write = self.begin(DOING).await?;
        let fingerprint = public.fingerprint();
        if let Some(known) = by_fingerprint(&mut write.tx, &fingerprint).await? {
            let own = known.cluster_id == cluster_id && known.kind == KeyKind::Identity;
            return Ok((own && known.state.is_valid()).then_some(known));
        }
        if is_revoked(&mut write.tx, cluster_id).await? {
            return Ok(None);
        }
        make_room(&mut write.tx, cluster_id, KeyKind::Identity).await?;
        sqlx::query(
            "UPDATE cluster_key SET state = 'retiring', updated_at = $1
             WHERE cluster_id = $2 AND kind = 'identity' AND state = 'active'",
        )
        .bind(to_ms(now))
        .bind(cluster_id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        put(&mut write.tx, cluster_id, KeyKind::Identity, public, now).await?;
        let key = by_fingerprint(&mut write.tx, &fingerprint).await?;
        write.commit(DOING).await?;
        Ok(key)
    }

    pub async fn ask_to_replace(
        &self,
        cluster_id: &str,
        kind: KeyKind,
        now: OffsetDateTime,
    ) -> Result<Option<ClusterKey>> {
        const DOING: &str = "ask for a key's replacement";
        let mut write = self.begin(DOING).await?;
        let keys = of_cluster(&mut write.tx, cluster_id, kind).await?;
        let Some(present) = keys.into_iter().rfind(|k| k.state == KeyState::Active) else {
            return Ok(None);
        };
        sqlx::query("UPDATE cluster_key SET replace_asked_at = $1 WHERE fingerprint = $2")
            .bind(to_ms(now))
            .bind(&present.fingerprint)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(Some(ClusterKey {
            replace: true,
            ..present
        }))
    }
}
