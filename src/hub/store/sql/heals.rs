//! Heals: what agents tell of them, and what the hub itself does.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::reports::{put_condition, word};
use super::{Connection, Database, db, from_json, from_ms, to_json, to_ms};
use crate::clock::rfc3339;
use crate::heal;
use crate::hub::store::{Result, Stored};
use crate::wire::report::{Condition, ConditionType, HealRecord, HealResult, Status};

mod listed;

/// Open heals of one cluster. Its agent has 64 at most, and 200 that it has yet to tell.
const MAX_OPEN_OF_ONE: i64 = 1_024;
/// Those of one cluster that are over: beyond that the oldest go, so many with each report.
const MAX_OVER_OF_ONE: i64 = 2_000;
const GO: i64 = 1_000;

/// What a report says of heals, and which of them its agent will tell more of.
type Told = (Vec<HealRecord>, Option<Vec<String>>);

/// Takes in what a report says of heals.
pub(super) async fn take_in(
    connection: &mut Connection,
    cluster_id: &str,
    (heals, open): Told,
    now: OffsetDateTime,
) -> Result<Stored> {
    if heals.is_empty() && open.is_none() {
        return Ok(Stored::default());
    }
    // What is over makes room for what begins.
    let mut lost = Vec::new();
    if let Some(mut open) = open {
        open.extend(heals.iter().map(|heal| heal.id.clone()));
        lost = forgotten(&mut *connection, cluster_id, &open, now).await?;
    }
    let (heals, left_out) = room(&mut *connection, cluster_id, heals).await?;
    let any = !heals.is_empty();
    let mut ended = Vec::new();
    for heal in heals {
        if put_heal(&mut *connection, cluster_id, &heal, now).await? {
            ended.push(heal);
        }
    }
    ended.extend(lost);
    if any {
        forget_old(&mut *connection, cluster_id).await?;
    }
    note_room(connection, cluster_id, left_out.len(), now).await?;
    Ok(Stored { ended, left_out })
}

/// Those of these heals that can be stored, in their order, and the ids of those that open and find no room.
async fn room(
    connection: &mut Connection,
    cluster_id: &str,
    mut heals: Vec<HealRecord>,
) -> Result<(Vec<HealRecord>, Vec<String>)> {
    const DOING: &str = "look for room for heals";
    let goes_on = |heal: &&HealRecord| !heal::is_over(heal);
    let opening: Vec<&String> = heals.iter().filter(goes_on).map(|heal| &heal.id).collect();
    if opening.is_empty() {
        return Ok((heals, Vec::new()));
    }
    // One that is over, and is told of as one that is not, needs a place again.
    let known: Vec<String> = sqlx::query_scalar(concat!(
        "SELECT id FROM heal WHERE restored_at IS NULL AND result <> 'failed' AND id IN ",
        each!("$1")
    ))
    .bind(to_json(&opening))
    .fetch_all(&mut *connection)
    .await
    .map_err(db(DOING))?;
    let mut known: BTreeSet<String> = known.into_iter().collect();
    let mut left = MAX_OPEN_OF_ONE - open_of(connection, cluster_id).await?;
    let mut left_out = Vec::new();
    heals.retain(|heal| {
        if heal::is_over(heal) || known.contains(&heal.id) {
            return true;
        }
        if left <= 0 {
            left_out.push(heal.id.clone());
            return false;
        }
        left -= 1;
        known.insert(heal.id.clone());
        true
    });
    Ok((heals, left_out))
}

/// How many heals of the cluster are not over.
async fn open_of(connection: &mut Connection, cluster_id: &str) -> Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM heal WHERE cluster_id = $1 AND restored_at IS NULL AND result <> 'failed'",
    )
    .bind(cluster_id)
    .fetch_one(connection)
    .await
    .map_err(db("count a cluster's open heals"))
}

/// Of those of the cluster that are over the oldest go, where there are too many.
async fn forget_old(connection: &mut Connection, cluster_id: &str) -> Result<()> {
    const DOING: &str = "forget old heals";
    const FORGET: &str = "DELETE FROM heal WHERE id IN (SELECT id FROM heal
         WHERE cluster_id = $1 AND (restored_at IS NOT NULL OR result = 'failed') ORDER BY id LIMIT $2)";
    let all: i64 = sqlx::query_scalar("SELECT count(*) FROM heal WHERE cluster_id = $1")
        .bind(cluster_id)
        .fetch_one(&mut *connection)
        .await
        .map_err(db(DOING))?;
    // Most clusters have fewer.
    if all <= MAX_OVER_OF_ONE {
        return Ok(());
    }
    let beyond = all - open_of(&mut *connection, cluster_id).await? - MAX_OVER_OF_ONE;
    if beyond > 0 {
        sqlx::query(FORGET)
            .bind(cluster_id)
            .bind(beyond.min(GO))
            .execute(connection)
            .await
            .map_err(db(DOING))?;
    }
    Ok(())
}

/// Keeps for people that some of the cluster's heals found no room, until there is some again.
async fn note_room(
    connection: &mut Connection,
    cluster_id: &str,
    left_out: usize,
    now: OffsetDateTime,
) -> Result<()> {
    const OVER: &str = "DELETE FROM condition WHERE cluster_id = $1 AND type = $2 AND source = 'hub' AND
         (SELECT count(*) FROM heal WHERE cluster_id = $1 AND restored_at IS NULL AND result <> 'failed') < $3";
    let kind = ConditionType::HealsTaken;
    if left_out > 0 {
        let condition = Condition {
            kind,
            status: Status::False,
            reason: "TooMany".to_owned(),
            message: format!(
                "the hub keeps {MAX_OPEN_OF_ONE} open heals of a cluster; {left_out} more in the agent's last report are left out, which it offers again"
            ),
            since: rfc3339(now),
        };
        return put_condition(connection, cluster_id, condition, now).await;
    }
    sqlx::query(OVER)
        .bind(cluster_id)
        .bind(word(&kind))
        .bind(MAX_OPEN_OF_ONE)
        .execute(connection)
        .await
        .map_err(db("note that there is room for heals"))?;
    Ok(())
}

/// Stores a heal or what became of it. A heal that ended does not open again, whatever comes late, and one of another cluster stays
/// that one's. True = it ended now.
async fn put_heal(
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
    let done = sqlx::query(
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
    let stored = done.rows_affected() > 0;
    Ok(stored && heal::is_over(heal) && !before.is_some_and(|(over, ..)| over))
}

/// Ends what is open and no longer known in the cluster: nobody will tell the end of it.
async fn forgotten(
    connection: &mut Connection,
    cluster_id: &str,
    open: &[String],
    now: OffsetDateTime,
) -> Result<Vec<HealRecord>> {
    const DOING: &str = "end heals that no agent knows any more";
    let records: Vec<String> = sqlx::query_scalar(Database::HEALS_NOT_NAMED)
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

/// Ends what is open in a cluster that is removed: nothing tells of it any more.
pub(super) async fn end_removed(
    connection: &mut Connection,
    cluster_id: &str,
    now: OffsetDateTime,
) -> Result<()> {
    const DOING: &str = "end the heals of a removed cluster";
    let records: Vec<String> = sqlx::query_scalar(concat!(
        "SELECT record FROM heal WHERE cluster_id = $1 AND restored_at IS NULL AND result <> 'failed' ORDER BY id",
        locked!()
    ))
    .bind(cluster_id)
    .fetch_all(&mut *connection)
    .await
    .map_err(db(DOING))?;
    for record in records {
        let mut heal: HealRecord = from_json(DOING, &record)?;
        heal.result = HealResult::Failed;
        "nothing: the cluster was removed".clone_into(&mut heal.next);
        put_heal(&mut *connection, cluster_id, &heal, now).await?;
    }
    Ok(())
}

impl Database {
    pub(in crate::hub::store) const HEALS_NOT_NAMED: &'static str = concat!(
        "SELECT record FROM heal WHERE cluster_id = $1 AND restored_at IS NULL AND result <> 'failed' AND class NOT IN ($3, $4)
           AND id NOT IN ",
        each!("$2"),
        " ORDER BY id LIMIT 1000",
        locked!()
    );

    pub async fn note_heal(
        &self,
        cluster_id: &str,
        heal: HealRecord,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store a heal of the hub's";
        let mut write = self.begin(DOING).await?;
        put_heal(&mut write.tx, cluster_id, &heal, now).await?;
        forget_old(&mut write.tx, cluster_id).await?;
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
}
