//! What a removed cluster's name let people do ends with it: another cluster may have the name next.

use std::collections::BTreeSet;

use sqlx::query::Query;
use time::OffsetDateTime;

use super::super::{Arguments, Db, Write, db, from_json, to_json, to_ms};
use crate::hub::store::{EndedAccess, Result};
use crate::wire::api::ClusterChoice;
use crate::wire::id::ClusterName;

const DOING: &str = "end the access to a removed cluster";

/// Grants and tokens in force that name this cluster name it no more, and are revoked where they name no other. Grants by labels and those for
/// all clusters are for the next one of that name as for any other.
pub(super) async fn end(
    write: &mut Write,
    cluster_id: &str,
    now: OffsetDateTime,
) -> Result<EndedAccess> {
    let name: String = sqlx::query_scalar("SELECT name FROM cluster WHERE id = $1")
        .bind(cluster_id)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    let mut ended = EndedAccess::default();
    for (id, clusters) in naming(write, GRANTS, &name).await? {
        let ClusterChoice::Names(names) = from_json(DOING, &clusters)? else {
            continue;
        };
        let Some(left) = without(names, &name) else {
            continue;
        };
        if left.is_empty() {
            let revoked = sqlx::query(END_GRANT).bind(to_ms(now)).bind(&id);
            run(write, revoked).await?;
            ended.revoked_grants.push(id);
        } else {
            let narrowed = sqlx::query(NARROW_GRANT)
                .bind(to_json(&ClusterChoice::Names(left)))
                .bind(&id)
                .bind(to_ms(now));
            run(write, narrowed).await?;
            ended.narrowed_grants.push(id);
        }
    }
    for (id, clusters) in naming(write, TOKENS, &name).await? {
        let Some(left) = without(from_json(DOING, &clusters)?, &name) else {
            continue;
        };
        if left.is_empty() {
            let revoked = sqlx::query(END_TOKEN).bind(to_ms(now)).bind(&id);
            run(write, revoked).await?;
            ended.revoked_tokens.push(id);
        } else {
            let narrowed = sqlx::query(NARROW_TOKEN).bind(to_json(&left)).bind(&id);
            run(write, narrowed).await?;
            ended.narrowed_tokens.push(id);
        }
    }
    Ok(ended)
}

// What the text holds is looked at again once it is read: labels may hold the name, too.
const GRANTS: &str = "SELECT id, clusters FROM access_grant WHERE revoked_at IS NULL AND clusters LIKE $1 ORDER BY id";
const TOKENS: &str =
    "SELECT id, clusters FROM api_token WHERE revoked_at IS NULL AND clusters LIKE $1 ORDER BY id";
const NARROW_GRANT: &str =
    "UPDATE access_grant SET clusters = $1, updated_at = $3, rev = rev + 1 WHERE id = $2";
const END_GRANT: &str =
    "UPDATE access_grant SET revoked_at = $1, updated_at = $1, rev = rev + 1 WHERE id = $2";
const NARROW_TOKEN: &str = "UPDATE api_token SET clusters = $1 WHERE id = $2";
const END_TOKEN: &str = "UPDATE api_token SET revoked_at = $1 WHERE id = $2";

async fn naming(write: &mut Write, sql: &'static str, name: &str) -> Result<Vec<(String, String)>> {
    // A name has letters, digits and hyphens: nothing that means something to LIKE.
    sqlx::query_as(sql)
        .bind(format!("%\"{name}\"%"))
        .fetch_all(&mut *write.tx)
        .await
        .map_err(db(DOING))
}

async fn run(write: &mut Write, statement: Query<'_, Db, Arguments>) -> Result<()> {
    statement.execute(&mut *write.tx).await.map_err(db(DOING))?;
    Ok(())
}

/// None = the name is not among them.
fn without(mut names: BTreeSet<ClusterName>, name: &str) -> Option<BTreeSet<ClusterName>> {
    let before = names.len();
    names.retain(|other| other.as_str() != name);
    (names.len() < before).then_some(names)
}
