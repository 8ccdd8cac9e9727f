//! The audit's lines as the database writes them.

use sqlx::SqliteConnection;

/// The database writes what was hashed, a stretch of the chain in one text: taking each record's columns apart here
/// takes ten times as long as hashing them. A test holds this to `chain::canonical`. The aggregate takes the rows in the
/// inner query's order; in any other, the chain would not hold.
macro_rules! lines {
    ($acted_as:literal, $record:expr) => {
        concat!(
            "SELECT CAST(group_concat(line, char(10)) AS BLOB), count(*), max(seq) FROM (
               SELECT seq, format('%d %s %s {%s%s', seq, lower(hex(prev)), lower(hex(hash)), ",
            $acted_as,
            ", substr(",
            $record,
            ", 2)) AS line
               FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2)"
        )
    };
}

/// What all records have, and what only some do, in its place.
macro_rules! record {
    ($exit:literal) => {
        concat!(
            "json_object('action', action, 'actor', actor, 'at', at, 'bytes', bytes, 'cluster', cluster, 'code', code, ",
            $exit,
            "'millis', millis, 'opened', opened, 'reason', reason, 'remote', remote, 'requestId', request_id, 'seq', seq,
             'stage', stage, 'target', target, 'verdict', verdict)"
        )
    };
}

macro_rules! acted_as {
    ($record:expr) => {
        lines!(
            "CASE WHEN acted_as IS NULL THEN '' ELSE '\"actedAs\":' || json_quote(acted_as) || ',' END",
            $record
        )
    };
}

const LINES: &str = acted_as!(concat!(
    "CASE WHEN exit IS NULL THEN ",
    record!(""),
    " ELSE ",
    record!("'exit', exit, "),
    " END"
));
/// Of copies of a database from before those columns.
const LINES_BEFORE_EXIT: &str = acted_as!(record!(""));
const LINES_BEFORE_ACTED_AS: &str = lines!("''", record!(""));

async fn has(reader: &mut SqliteConnection, column: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pragma_table_info('audit') WHERE name = $1)")
        .bind(column)
        .fetch_one(reader)
        .await
}

pub(super) async fn statement(reader: &mut SqliteConnection) -> Result<&'static str, sqlx::Error> {
    // In the order in which they came.
    if !has(reader, "acted_as").await? {
        return Ok(LINES_BEFORE_ACTED_AS);
    }
    if !has(reader, "exit").await? {
        return Ok(LINES_BEFORE_EXIT);
    }
    Ok(LINES)
}
