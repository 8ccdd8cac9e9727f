//! The audit's lines as the database writes them.

use sqlx::SqliteConnection;

/// The database writes what was hashed, a stretch of the chain in one text: taking each record's columns apart here
/// takes ten times as long as hashing them. A test holds this to `chain::canonical`. The aggregate takes the rows in the
/// inner query's order; in any other, the chain would not hold.
macro_rules! lines {
    ($acted_as:literal) => {
        concat!(
            "SELECT CAST(group_concat(line, char(10)) AS BLOB), count(*), max(seq) FROM (
               SELECT seq, format('%d %s %s {%s%s', seq, lower(hex(prev)), lower(hex(hash)), ",
            $acted_as,
            ", substr(json_object('action', action, 'actor', actor, 'at', at, 'bytes', bytes, 'cluster', cluster,
                 'code', code, 'millis', millis, 'opened', opened, 'reason', reason, 'remote', remote,
                 'requestId', request_id, 'seq', seq, 'stage', stage, 'target', target, 'verdict', verdict), 2)) AS line
               FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2)"
        )
    };
}
const LINES: &str = lines!(
    "CASE WHEN acted_as IS NULL THEN '' ELSE '\"actedAs\":' || json_quote(acted_as) || ',' END"
);
/// Of a copy of a database from before that column.
const LINES_BEFORE_ACTED_AS: &str = lines!("''");

async fn has_acted_as(reader: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info('audit') WHERE name = 'acted_as')",
    )
    .fetch_one(reader)
    .await
}

pub(super) async fn statement(reader: &mut SqliteConnection) -> Result<&'static str, sqlx::Error> {
    Ok(if has_acted_as(reader).await? {
        LINES
    } else {
        LINES_BEFORE_ACTED_AS
    })
}
