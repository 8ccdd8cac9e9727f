//! Heals: what agents tell of them, what the hub itself does, and how they are listed.

use time::OffsetDateTime;

use super::reports::word;
use super::{Connection, Database, corrupt, db, from_json, from_ms, to_json, to_ms};
use crate::heal;
use crate::hub::incident::{Acted, Seen};
use crate::hub::store::Result;
use crate::hub::twin::fault::Unrestored;
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult, Scene};

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

/// Stores a heal or what became of it. A heal that ended does not open again, whatever comes late. True = it ended now.
pub(super) async fn put_heal(
    connection: &mut Connection,
    cluster_id: &str,
    heal: &HealRecord,
    now: OffsetDateTime,
) -> Result<bool> {
    const DOING: &str = "store a heal";
    let before: Option<(bool, Option<i64>, String)> = sqlx::query_as(concat!(
        "SELECT restored_at IS NOT NULL OR result = 'failed', last_act, record FROM heal WHERE id = $1",
        locked!()
    ))
    .bind(&heal.id)
    .fetch_optional(&mut *connection)
    .await
    .map_err(db(DOING))?;
    let known = before.as_ref().and_then(|(_, at, record)| {
        let at = from_ms((*at)?);
        let record: HealRecord = from_json(DOING, record).ok()?;
        Some((record, at))
    });
    let known = known.as_ref().map(|(record, at)| (record, *at));
    sqlx::query(
        "INSERT INTO heal (id, cluster_id, class, result, detected_at, restored_at, record, created_at, updated_at, last_act)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)
         ON CONFLICT (id) DO UPDATE SET result = $4, restored_at = $6, record = $7, updated_at = $8, last_act = $9
           WHERE heal.cluster_id = $2 AND (heal.result = 'open' OR $4 <> 'open')",
    )
    .bind(&heal.id)
    .bind(cluster_id)
    .bind(&heal.class)
    .bind(word(&heal.result))
    .bind(&heal.detected_at)
    .bind(&heal.restored_at)
    .bind(to_json(heal))
    .bind(to_ms(now))
    .bind(heal::last_act(heal, known, now).map(to_ms))
    .execute(connection)
    .await
    .map_err(db(DOING))?;
    Ok(heal::is_over(heal) && !before.is_some_and(|(over, ..)| over))
}

/// Ends what is open and no longer known in the cluster: nobody will tell the end of it.
pub(super) async fn forgotten(
    connection: &mut Connection,
    cluster_id: &str,
    open: &[String],
    now: OffsetDateTime,
) -> Result<Vec<HealRecord>> {
    const DOING: &str = "end heals that no agent knows any more";
    let records: Vec<String> = sqlx::query_scalar(concat!(
        "SELECT record FROM heal WHERE cluster_id = $1 AND restored_at IS NULL AND result <> 'failed' AND class NOT IN ($3, $4)
           AND id NOT IN ",
        each!("$2"),
        " ORDER BY id LIMIT 1000",
        locked!()
    ))
    .bind(cluster_id)
    .bind(to_json(&open))
    // Those the hub ends itself.
    .bind(heal::AGENT_LOST)
    .bind(heal::DUPLICATE_AGENT)
    .fetch_all(&mut *connection)
    .await
    .map_err(db(DOING))?;
    let mut ended = Vec::new();
    for record in records {
        let mut heal: HealRecord = from_json(DOING, &record)?;
        heal.result = HealResult::Failed;
        "the agent that saw this ended before it was over, and its end was not seen: look whether it is"
            .clone_into(&mut heal.next);
        put_heal(&mut *connection, cluster_id, &heal, now).await?;
        ended.push(heal);
    }
    Ok(ended)
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

    pub async fn note_heal(
        &self,
        cluster_id: &str,
        heal: HealRecord,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store a heal of the hub's";
        let mut write = self.begin(DOING).await?;
        put_heal(&mut write.tx, cluster_id, &heal, now).await?;
        write.commit(DOING).await
    }

    pub async fn close_heal(&self, heal: HealRecord, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "close a heal";
        let statement = sqlx::query(
            "UPDATE heal SET result = $1, record = $2, updated_at = $3
             WHERE id = $4 AND restored_at IS NULL AND result NOT IN ('failed', 'healed')",
        )
        .bind(word(&heal.result))
        .bind(to_json(&heal))
        .bind(to_ms(now))
        .bind(&heal.id);
        Ok(self.change(DOING, statement).await? > 0)
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
                break;
            }
        }
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
