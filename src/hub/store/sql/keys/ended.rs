//! Keys that end: revoked by an operator, replaced, or retired for long enough.

use time::OffsetDateTime;

use super::super::{Database, corrupt, db, reports, to_json, to_ms};
use super::{Row, by_fingerprint, forget_moves, make_room, of_cluster, put};
use crate::hub::store::{ClusterKey, KeyKind, KeyState, Result};
use crate::keys::Public;
use crate::wire::id::ClusterName;
use crate::wire::report::Condition;

impl Database {
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
        forget_moves(&mut write.tx, id).await?;
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

    pub async fn ended_keys(&self, fingerprints: Vec<String>) -> Result<Vec<(String, bool)>> {
        const ENDED: &str = concat!(
            "SELECT k.fingerprint, k.moved_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
             WHERE c.removed_at IS NULL AND k.state = 'revoked' AND k.fingerprint IN ",
            each!("$1")
        );
        let rows: Vec<(String, Option<i64>)> = sqlx::query_as(ENDED)
            .bind(to_json(&fingerprints))
            .fetch_all(&self.readers)
            .await
            .map_err(db("look which keys have ended"))?;
        let ended = rows.into_iter();
        Ok(ended.map(|(key, at)| (key, at.is_some())).collect())
    }

    pub async fn retired(&self, limit: OffsetDateTime) -> Result<Vec<ClusterKey>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT k.*, c.name AS cluster, c.removed_at FROM cluster_key k JOIN cluster c ON c.id = k.cluster_id
             WHERE k.kind = 'identity' AND k.state = 'retiring' AND k.updated_at < $1 LIMIT 500",
        )
        .bind(to_ms(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db("look for identity keys that retired"))?;
        rows.into_iter().map(Row::key).collect()
    }

    pub async fn end_retired(&self, fingerprint: &str, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "end an identity key that retired";
        let statement = sqlx::query(
            "UPDATE cluster_key SET state = 'revoked', updated_at = $1
             WHERE fingerprint = $2 AND kind = 'identity' AND state = 'retiring'",
        )
        .bind(to_ms(now))
        .bind(fingerprint);
        Ok(self.change(DOING, statement).await? == 1)
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
            // The holder of one that retires has signed its successor.
            sqlx::query(
                "UPDATE cluster_key SET state = 'revoked', updated_at = $1,
                   moved_at = CASE WHEN state = 'retiring' THEN $1 ELSE NULL END WHERE fingerprint = $2",
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
