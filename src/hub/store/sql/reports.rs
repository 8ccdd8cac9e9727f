//! What agents report: facts, steps and conditions, and their heals with them.

use std::collections::BTreeMap;

use sqlx::FromRow;
use time::OffsetDateTime;

use super::heals::take_in;
use super::{Connection, Database, corrupt, db, to_json, to_ms};
use crate::hub::store::{Details, Reported, Result, Stored};
use crate::wire::report::{Condition, Facts, LaterCondition, StepReport};

/// A closed enum's word, as JSON and the tables spell it.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    to_json(value).trim_matches('"').to_owned()
}

/// `None` for a word of a later build: the hub was put back to one before it.
fn known<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::from(word)).ok()
}

/// A cluster that was accepted by its key alone says its incarnation with its first report; what is known stays.
async fn note_incarnation(
    connection: &mut Connection,
    cluster_id: &str,
    facts: &Facts,
) -> Result<()> {
    let Some(incarnation) = facts.get("incarnation").filter(|i| !i.is_empty()) else {
        return Ok(());
    };
    sqlx::query("UPDATE cluster SET incarnation = $1 WHERE id = $2 AND incarnation IS NULL")
        .bind(incarnation)
        .bind(cluster_id)
        .execute(connection)
        .await
        .map_err(db("note a cluster's incarnation"))?;
    Ok(())
}

pub(super) async fn replace_facts(
    connection: &mut Connection,
    cluster_id: &str,
    facts: &Facts,
    now: OffsetDateTime,
) -> Result<()> {
    const DOING: &str = "store facts";
    sqlx::query("DELETE FROM fact WHERE cluster_id = $1")
        .bind(cluster_id)
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
    for (key, value) in facts {
        sqlx::query(
            "INSERT INTO fact (cluster_id, key, value, source, at) VALUES ($1, $2, $3, 'agent', $4)",
        )
        .bind(cluster_id)
        .bind(key)
        .bind(value)
        .bind(to_ms(now))
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
    }
    Ok(())
}

async fn replace_conditions(
    connection: &mut Connection,
    cluster_id: &str,
    (conditions, later): (&[Condition], &[LaterCondition]),
    now: OffsetDateTime,
) -> Result<()> {
    const DOING: &str = "store conditions";
    let known = conditions.iter().map(|c| LaterCondition {
        kind: word(&c.kind),
        status: word(&c.status),
        reason: c.reason.clone(),
        message: c.message.clone(),
        since: c.since.clone(),
    });
    sqlx::query("DELETE FROM condition WHERE cluster_id = $1 AND source = 'agent'")
        .bind(cluster_id)
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
    for condition in known.chain(later.iter().cloned()) {
        // What the hub itself sees is not for the agent to say.
        sqlx::query(
            "INSERT INTO condition (cluster_id, type, source, status, reason, message, since, observed_at)
             VALUES ($1, $2, 'agent', $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        )
        .bind(cluster_id)
        .bind(&condition.kind)
        .bind(&condition.status)
        .bind(&condition.reason)
        .bind(&condition.message)
        .bind(&condition.since)
        .bind(to_ms(now))
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
    }
    Ok(())
}

/// What the hub itself sees.
pub(super) async fn put_condition(
    connection: &mut Connection,
    cluster_id: &str,
    condition: Condition,
    now: OffsetDateTime,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO condition (cluster_id, type, source, status, reason, message, since, observed_at)
         VALUES ($1, $2, 'hub', $3, $4, $5, $6, $7)
         ON CONFLICT (cluster_id, type) DO UPDATE SET source = 'hub', reason = $4, message = $5, observed_at = $7,
           since = CASE WHEN condition.status = $3 THEN condition.since ELSE $6 END, status = $3",
    )
    .bind(cluster_id)
    .bind(word(&condition.kind))
    .bind(word(&condition.status))
    .bind(&condition.reason)
    .bind(&condition.message)
    .bind(&condition.since)
    .bind(to_ms(now))
    .execute(connection)
    .await
    .map_err(db("store a condition"))?;
    Ok(())
}

async fn put_step(connection: &mut Connection, cluster_id: &str, step: &StepReport) -> Result<()> {
    sqlx::query(
        "INSERT INTO step (cluster_id, step, state, reason, at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (cluster_id, step) DO UPDATE SET state = excluded.state, reason = excluded.reason, at = excluded.at",
    )
    .bind(cluster_id)
    .bind(step.step.as_str())
    .bind(word(&step.state))
    .bind(&step.reason)
    .bind(&step.at)
    .execute(connection)
    .await
    .map_err(db("store an adoption step"))?;
    Ok(())
}

#[derive(FromRow)]
struct ConditionRow {
    cluster_id: String,
    r#type: String,
    status: String,
    reason: String,
    message: String,
    since: String,
}

#[derive(FromRow)]
struct StepRow {
    cluster_id: String,
    step: String,
    state: String,
    reason: String,
    at: String,
}

/// Conditions and steps by their cluster.
fn reported(conditions: Vec<ConditionRow>, steps: Vec<StepRow>) -> BTreeMap<String, Details> {
    let mut found: BTreeMap<String, Details> = BTreeMap::new();
    for row in conditions {
        let details = found.entry(row.cluster_id).or_default();
        let (Some(kind), Some(status)) = (known(&row.r#type), known(&row.status)) else {
            details.later.push(LaterCondition {
                kind: row.r#type,
                status: row.status,
                reason: row.reason,
                message: row.message,
                since: row.since,
            });
            continue;
        };
        let condition = Condition {
            kind,
            status,
            reason: row.reason,
            message: row.message,
            since: row.since,
        };
        details.conditions.push(condition);
    }
    for row in steps {
        let (Some(step), Some(state)) = (known(&row.step), known(&row.state)) else {
            continue;
        };
        let step = StepReport {
            step,
            state,
            reason: row.reason,
            at: row.at,
        };
        found.entry(row.cluster_id).or_default().steps.push(step);
    }
    found
}

impl Database {
    pub async fn fact(&self, ids: &[String], key: &str) -> Result<Vec<Option<String>>> {
        let values: Vec<(String, String)> = sqlx::query_as(concat!(
            "SELECT cluster_id, value FROM fact WHERE key = $2 AND cluster_id IN ",
            each!("$1")
        ))
        .bind(to_json(&ids))
        .bind(key)
        .fetch_all(&self.readers)
        .await
        .map_err(db("read one fact of clusters"))?;
        let mut values: BTreeMap<String, String> = values.into_iter().collect();
        Ok(ids.iter().map(|id| values.remove(id)).collect())
    }

    pub async fn details(&self, ids: &[String]) -> Result<Vec<Details>> {
        const DOING: &str = "read what clusters report";
        let wanted = to_json(&ids);
        let facts: Vec<(String, String, String)> = sqlx::query_as(concat!(
            "SELECT cluster_id, key, value FROM fact WHERE cluster_id IN ",
            each!("$1")
        ))
        .bind(&wanted)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let conditions: Vec<ConditionRow> = sqlx::query_as(concat!(
            "SELECT * FROM condition WHERE cluster_id IN ",
            each!("$1"),
            " ORDER BY type"
        ))
        .bind(&wanted)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let steps: Vec<StepRow> = sqlx::query_as(concat!(
            "SELECT * FROM step WHERE cluster_id IN ",
            each!("$1")
        ))
        .bind(&wanted)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let open: Vec<(String, i64)> = sqlx::query_as(concat!(
            "SELECT cluster_id, count(*) FROM heal WHERE result = 'open'
             AND cluster_id IN ",
            each!("$1"),
            " GROUP BY cluster_id"
        ))
        .bind(&wanted)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let mut found = reported(conditions, steps);
        for (id, key, value) in facts {
            found.entry(id).or_default().facts.insert(key, value);
        }
        for key in self.keys_of(&wanted).await? {
            let details = found.entry(key.cluster_id.clone()).or_default();
            details.keys.push(key);
        }
        for (id, count) in open {
            found.entry(id).or_default().open_heals =
                u32::try_from(count).map_err(corrupt(DOING))?;
        }
        Ok(ids
            .iter()
            .map(|id| {
                let mut details = found.remove(id).unwrap_or_default();
                details.steps.sort_by_key(|s| s.step);
                details
            })
            .collect())
    }

    pub async fn report(
        &self,
        cluster_id: &str,
        reported: Reported,
        now: OffsetDateTime,
    ) -> Result<Stored> {
        const DOING: &str = "store a report";
        let mut write = self.begin_row(DOING).await?;
        sqlx::query(
            "UPDATE cluster SET agent_version = coalesce(nullif($1, ''), agent_version),
               agent_image = coalesce(nullif($2, ''), agent_image), agent_arch = coalesce(nullif($3, ''), agent_arch),
               synced_revision = coalesce($4, synced_revision), last_seen = $5, updated_at = $5 WHERE id = $6",
        )
        .bind(&reported.agent.version)
        .bind(&reported.agent.image)
        .bind(&reported.agent.arch)
        .bind(&reported.revision)
        .bind(to_ms(now))
        .bind(cluster_id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if let Some(facts) = &reported.facts {
            replace_facts(&mut write.tx, cluster_id, facts, now).await?;
            note_incarnation(&mut write.tx, cluster_id, facts).await?;
        }
        if let Some(conditions) = &reported.conditions {
            let said = (conditions.as_slice(), reported.later.as_slice());
            replace_conditions(&mut write.tx, cluster_id, said, now).await?;
        }
        if let Some(host_keys) = &reported.host_keys {
            super::hostkeys::report(&mut write.tx, cluster_id, host_keys, now).await?;
        }
        for step in &reported.steps {
            put_step(&mut write.tx, cluster_id, step).await?;
        }
        let told = (reported.heals, reported.open_heals);
        let stored = take_in(&mut write.tx, cluster_id, told, now).await?;
        write.commit(DOING).await?;
        Ok(stored)
    }

    pub async fn set_condition(
        &self,
        cluster_id: &str,
        condition: Condition,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store a condition";
        let mut write = self.begin_row(DOING).await?;
        put_condition(&mut write.tx, cluster_id, condition, now).await?;
        write.commit(DOING).await
    }
}
