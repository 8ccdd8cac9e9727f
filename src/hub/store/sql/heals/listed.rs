//! Heals as they are listed and counted: all of them, those that are not over, and those whose end was not seen.

use time::OffsetDateTime;

use super::super::{Database, corrupt, db, from_json, from_ms, to_ms};
use crate::hub::incident::{Acted, Seen};
use crate::hub::store::Result;
use crate::hub::twin::fault::Unrestored;
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, Scene};

/// Open heals in one look; a fleet with more is in flames anyhow.
const MAX_OPEN: usize = 20_000;
/// Of them, whose whole records are in memory at a time. One that is passed over, since another ended between two pieces, is
/// there at the next look.
const PIECE: usize = 1_000;

/// Heals `h` of clusters `c`, as [`told`] reads them.
macro_rules! heals {
    ($which:literal) => {
        concat!(
            "SELECT c.name, h.record FROM heal h JOIN cluster c ON c.id = h.cluster_id ",
            $which
        )
    };
}

/// The cluster's name, and the record.
type Row = (String, String);

fn told(doing: &'static str, (name, record): Row) -> Result<(ClusterName, HealRecord)> {
    let name = name.parse().map_err(corrupt(doing))?;
    Ok((name, from_json(doing, &record)?))
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

impl Database {
    pub(in crate::hub::store) const HEALS_NOT_OVER: &'static str = heals!(
        "WHERE h.restored_at IS NULL AND h.result <> 'failed' AND c.removed_at IS NULL
           AND ($1 IS NULL OR h.cluster_id = $1) AND ($2 IS NULL OR h.id < $2) ORDER BY h.id DESC LIMIT $3"
    );

    pub async fn faults(&self) -> Result<Vec<(String, i64)>> {
        sqlx::query_as(
            "SELECT h.class, count(*) FROM heal h JOIN cluster c ON c.id = h.cluster_id
             WHERE h.restored_at IS NULL AND h.result <> 'failed' AND c.removed_at IS NULL GROUP BY h.class",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db("count faults"))
    }

    pub async fn acted(&self, since: OffsetDateTime) -> Result<Seen> {
        const DOING: &str = "look for what many clusters have in common";
        let fleet: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM cluster WHERE removed_at IS NULL AND last_seen IS NOT NULL",
        )
        .fetch_one(&self.readers)
        .await
        .map_err(db(DOING))?;
        let acted: Vec<(String, String)> = sqlx::query_as(
            "SELECT DISTINCT h.cluster_id, h.class FROM heal h JOIN cluster c ON c.id = h.cluster_id
             WHERE h.last_act >= $1 AND c.removed_at IS NULL",
        )
        .bind(to_ms(since))
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let one = |(cluster_id, class)| Acted { cluster_id, class };
        Ok(Seen {
            fleet: usize::try_from(fleet).unwrap_or_default(),
            acted: acted.into_iter().map(one).collect(),
        })
    }

    pub async fn heals(
        &self,
        cluster_id: Option<&str>,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list heals";
        let rows: Vec<Row> = sqlx::query_as(heals!(
            "WHERE ($1 IS NULL OR h.cluster_id = $1) AND ($2 IS NULL OR h.id < $2) ORDER BY h.id DESC LIMIT $3"
        ))
        .bind(cluster_id)
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        rows.into_iter().map(|row| told(DOING, row)).collect()
    }

    pub async fn heals_not_over(
        &self,
        cluster_id: Option<&str>,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list heals that are not over";
        let rows: Vec<Row> = sqlx::query_as(Self::HEALS_NOT_OVER)
            .bind(cluster_id)
            .bind(before)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(db(DOING))?;
        rows.into_iter().map(|row| told(DOING, row)).collect()
    }

    pub async fn heal(&self, id: &str) -> Result<Option<(ClusterName, HealRecord)>> {
        const DOING: &str = "read a heal";
        let row: Option<Row> = sqlx::query_as(heals!("WHERE h.id = $1"))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db(DOING))?;
        row.map(|row| told(DOING, row)).transpose()
    }

    pub async fn open_heals(&self) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list open heals";
        let mut open: Vec<(ClusterName, HealRecord)> = Vec::new();
        while open.len() < MAX_OPEN {
            let rows: Vec<Row> = sqlx::query_as(heals!(
                "WHERE h.restored_at IS NULL AND h.result <> 'failed' AND c.removed_at IS NULL ORDER BY h.id LIMIT $1 OFFSET $2"
            ))
            .bind(count(PIECE))
            .bind(count(open.len()))
            .fetch_all(&self.readers)
            .await
            .map_err(db(DOING))?;
            let last = rows.len() < PIECE;
            for row in rows {
                let (cluster, mut heal) = told(DOING, row)?;
                // Most of a record, for which nobody who looks at all of them asks.
                heal.steps = Vec::new();
                heal.scene = Scene::default();
                open.push((cluster, heal));
            }
            if last {
                return Ok(open);
            }
        }
        tracing::warn!(
            heals = open.len(),
            "more heals are open than are looked at: of the newest nobody is told"
        );
        Ok(open)
    }

    pub async fn last_unrestored(&self, class: &str) -> Result<Vec<(ClusterName, HealRecord)>> {
        const DOING: &str = "list heals whose end was not seen";
        let rows: Vec<Row> = sqlx::query_as(heals!(
            "WHERE c.removed_at IS NULL AND h.id IN (
               SELECT max(id) FROM heal WHERE class = $1 AND restored_at IS NULL GROUP BY cluster_id) ORDER BY c.name"
        ))
        .bind(class)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        rows.into_iter().map(|row| told(DOING, row)).collect()
    }

    pub async fn unrestored(&self, class: &str) -> Result<Vec<Unrestored>> {
        const DOING: &str = "list faults whose end was not seen";
        let rows: Vec<(String, String, String, i64)> = sqlx::query_as(
            "SELECT c.name, c.id, h.record, h.updated_at FROM heal h JOIN cluster c ON c.id = h.cluster_id
             WHERE h.class = $1 AND h.restored_at IS NULL AND c.removed_at IS NULL AND (h.result <> 'failed' OR h.id IN (
               SELECT max(id) FROM heal WHERE class = $1 AND restored_at IS NULL GROUP BY cluster_id))
             ORDER BY c.name, h.id",
        )
        .bind(class)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let one = |(name, cluster_id, record, written)| {
            let (cluster, record) = told(DOING, (name, record))?;
            Ok(Unrestored {
                cluster,
                cluster_id,
                record,
                written: from_ms(written),
            })
        };
        rows.into_iter().map(one).collect()
    }
}
