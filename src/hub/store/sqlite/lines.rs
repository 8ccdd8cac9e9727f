//! The audit's lines as the database writes them.

use sqlx::SqliteConnection;

/// The database writes what was hashed, a stretch of the chain in one text: taking each record's columns apart here
/// takes ten times as long as hashing them. What all records have is in three objects without their braces, the first two of which end in
/// a number or `null`; what only some have stands between them. A test holds this to `chain::canonical`. The aggregate takes the rows in
/// the inner query's order; in any other, the chain would not hold.
macro_rules! lines {
    ($before:expr, $between:expr, $behind:expr) => {
        concat!(
            "SELECT CAST(group_concat(line, char(10)) AS BLOB), count(*), max(seq) FROM (
               SELECT seq, format('%d %s %s {%s%s%s,%s%s,%s', seq, lower(hex(prev)), lower(hex(hash)), ",
            $before,
            ", substr(rtrim(json_object('action', action, 'actor', actor, 'at', at, 'bytes', bytes, 'cluster', cluster, 'code', code), '}'), 2), ",
            $between,
            ", substr(rtrim(json_object('millis', millis, 'opened', opened), '}'), 2), ",
            $behind,
            ", substr(json_object('reason', reason, 'remote', remote, 'requestId', request_id, 'seq', seq, 'stage', stage, 'target', target,
                 'verdict', verdict), 2)) AS line
               FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2)"
        )
    };
}

macro_rules! acted_as {
    () => {
        "CASE WHEN acted_as IS NULL THEN '' ELSE '\"actedAs\":' || json_quote(acted_as) || ',' END"
    };
}

/// A column that is named as its member, behind another one.
macro_rules! some {
    ($name:literal) => {
        concat!(
            "CASE WHEN ",
            $name,
            " IS NULL THEN '' ELSE ',\"",
            $name,
            "\":' || json_quote(",
            $name,
            ") END"
        )
    };
}

const LINES: &str = lines!(
    acted_as!(),
    concat!(
        some!("command"),
        " || ",
        some!("container"),
        " || ",
        some!("exit")
    ),
    some!("ports")
);
/// Of copies of a database from before those columns.
const LINES_BEFORE_COMMAND: &str = lines!(acted_as!(), some!("exit"), "''");
const LINES_BEFORE_EXIT: &str = lines!(acted_as!(), "''", "''");
const LINES_BEFORE_ACTED_AS: &str = lines!("''", "''", "''");

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
    // With it came `container` and `ports`.
    if !has(reader, "command").await? {
        return Ok(LINES_BEFORE_COMMAND);
    }
    Ok(LINES)
}
