//! Public keys of clusters.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Connection, Database, corrupt, db, from_ms, reports, to_json, to_ms};
use crate::hub::registration;
use crate::hub::store::{ClusterKey, KeyKind, KeyState, Result, StoreError};
use crate::keys::Public;
use crate::wire::id::ClusterName;
use crate::wire::report::Condition;

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
    .bind(uuid::Uuid::now_v7().to_string())
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

    pub async fn recover_identity(
        &self,
        deploy: &ClusterKey,
        identity: Public,
        now: OffsetDateTime,
    ) -> Result<Option<Vec<ClusterKey>>> {
        const DOING: &str = "recover an identity";
        let id = &deploy.cluster_id;
        let mut write = self.begin(DOING).await?;
        let signed = by_fingerprint(&mut write.tx, &deploy.fingerprint).await?;
        let signed = signed.is_some_and(|k| k.cluster_id == *id && k.state.is_valid());
        let known = by_fingerprint(&mut write.tx, &identity.fingerprint()).await?;
        if !signed || known.is_some() {
            return Ok(None);
        }
        let mut ended = of_cluster(&mut write.tx, id, KeyKind::Identity).await?;
        ended.extend(of_cluster(&mut write.tx, id, KeyKind::Deploy).await?);
        ended.retain(|k| k.state != KeyState::Revoked && k.fingerprint != deploy.fingerprint);
        for key in &ended {
            sqlx::query(
                "UPDATE cluster_key SET state = 'revoked', updated_at = $1 WHERE fingerprint = $2",
            )
            .bind(to_ms(now))
            .bind(&key.fingerprint)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        make_room(&mut write.tx, id, KeyKind::Identity).await?;
        put(&mut write.tx, id, KeyKind::Identity, identity, now).await?;
        put(&mut write.tx, id, KeyKind::Deploy, deploy.public, now).await?;
        sqlx::query("DELETE FROM condition WHERE cluster_id = $1 AND type = 'JoinConflict'")
            .bind(id)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(Some(ended))
    }

    pub async fn revoke_cluster(
        &self,
        id: &str,
        condition: Condition,
        now: OffsetDateTime,
    ) -> Result<Vec<ClusterKey>> {
        const DOING: &str = "revoke a cluster's keys";
        let mut write = self.begin(DOING).await?;
        let mut ended = of_cluster(&mut write.tx, id, KeyKind::Identity).await?;
        ended.extend(of_cluster(&mut write.tx, id, KeyKind::Deploy).await?);
        ended.retain(|k| k.state != KeyState::Revoked);
        if ended.is_empty() {
            return Ok(ended);
        }
        for sql in [
            "UPDATE cluster_key SET state = 'revoked', updated_at = $1 WHERE cluster_id = $2 AND state <> 'revoked'",
            "UPDATE join_token SET revoked_at = $1 WHERE cluster_id = $2 AND revoked_at IS NULL",
        ] {
            sqlx::query(sql)
                .bind(to_ms(now))
                .bind(id)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        // No replica leads a request to its line any more, be it up for another moment.
        sqlx::query("DELETE FROM line WHERE cluster_id = $1")
            .bind(id)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        reports::put_condition(&mut write.tx, id, condition, now).await?;
        write.commit(DOING).await?;
        Ok(ended)
    }

    pub async fn revoked(&self, clusters: Vec<String>) -> Result<Vec<ClusterName>> {
        const DOING: &str = "look which clusters were revoked";
        let names: Vec<String> = sqlx::query_scalar(concat!(
            "SELECT name FROM cluster c WHERE removed_at IS NULL AND name IN ",
            each!("$1"),
            " AND EXISTS (SELECT 1 FROM cluster_key k WHERE k.cluster_id = c.id AND k.kind = 'identity')
              AND NOT EXISTS (SELECT 1 FROM cluster_key k WHERE k.cluster_id = c.id AND k.kind = 'identity'
                AND k.state IN ('active', 'retiring'))"
        ))
        .bind(to_json(&clusters))
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let names = names.iter().map(|name| name.parse());
        names.collect::<Result<_, _>>().map_err(corrupt(DOING))
    }

    pub async fn end_retired(
        &self,
        limit: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Vec<ClusterKey>> {
        const DOING: &str = "end identity keys that retired";
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
             WHERE k.kind = 'identity' AND k.state = 'retiring' AND k.updated_at < $1 LIMIT 500",
        )
        .bind(to_ms(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let keys = rows.into_iter().map(Row::key);
        let keys: Vec<ClusterKey> = keys.collect::<Result<_>>()?;
        if keys.is_empty() {
            return Ok(keys);
        }
        let mut write = self.begin(DOING).await?;
        for key in &keys {
            sqlx::query(
                "UPDATE cluster_key SET state = 'revoked', updated_at = $1
                 WHERE fingerprint = $2 AND state = 'retiring'",
            )
            .bind(to_ms(now))
            .bind(&key.fingerprint)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        write.commit(DOING).await?;
        Ok(keys)
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

    pub async fn settle_key(
        &self,
        key: &ClusterKey,
        now: OffsetDateTime,
    ) -> Result<Vec<ClusterKey>> {
        const DOING: &str = "end the keys before the present one";
        let mut write = self.begin(DOING).await?;
        let keys = of_cluster(&mut write.tx, &key.cluster_id, key.kind).await?;
        // As it is now: the caller may have read it before it was replaced itself.
        let present = keys
            .iter()
            .any(|k| k.fingerprint == key.fingerprint && k.state == KeyState::Active);
        let others = keys
            .into_iter()
            .filter(|k| k.fingerprint != key.fingerprint && k.state != KeyState::Revoked);
        let others: Vec<ClusterKey> = others.filter(|_| present).collect();
        for other in &others {
            sqlx::query(
                "UPDATE cluster_key SET state = 'revoked', updated_at = $1 WHERE fingerprint = $2",
            )
            .bind(to_ms(now))
            .bind(&other.fingerprint)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        write.commit(DOING).await?;
        Ok(others)
    }
}
