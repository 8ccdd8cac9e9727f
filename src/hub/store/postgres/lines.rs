//! The audit's lines as the database writes them.

use super::Connection;

/// A column as JSON; nothing is `null`.
macro_rules! column {
    ($name:literal) => {
        concat!("coalesce(to_json(", $name, ")::text, 'null')")
    };
}

/// A column that only some records have, named as its member, behind another one.
macro_rules! some {
    ($name:literal) => {
        concat!(
            "CASE WHEN ",
            $name,
            " IS NULL THEN '' ELSE ',\"",
            $name,
            "\":' || to_json(",
            $name,
            ")::text END"
        )
    };
}

/// The database writes what was hashed, a stretch of the chain in one text, as with SQLite; the same test holds it to
/// `chain::canonical`.
const LINES: &str = concat!(
    "SELECT convert_to(string_agg(line, chr(10) ORDER BY seq), 'UTF8'), count(*), max(seq) FROM (
       SELECT seq, concat(seq, ' ', encode(prev, 'hex'), ' ', encode(hash, 'hex'), ' {',
         CASE WHEN acted_as IS NULL THEN '' ELSE '\"actedAs\":' || to_json(acted_as)::text || ',' END,
         '\"action\":', ", column!("action"), ", ',\"actor\":', ", column!("actor"), ", ',\"at\":', ", column!("at"),
    ", ',\"bytes\":', ", column!("bytes"), ", ',\"cluster\":', ", column!("cluster"), ", ',\"code\":', ", column!("code"),
    ", ", some!("command"), ", ", some!("container"), ", ", some!("exit"),
    ", ',\"millis\":', ", column!("millis"), ", ',\"opened\":', ", column!("opened"), ", ", some!("ports"),
    ", ',\"reason\":', ", column!("reason"), ", ',\"remote\":', ", column!("remote"),
    ", ',\"requestId\":', ", column!("request_id"), ", ',\"seq\":', ", column!("seq"),
    ", ',\"stage\":', ", column!("stage"), ", ',\"target\":', ", column!("target"),
    ", ',\"verdict\":', ", column!("verdict"), ", '}') AS line
       FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2) AS lines"
);

#[expect(
    clippy::unused_async,
    reason = "SQLite asks its copy which columns it has"
)]
pub(super) async fn statement(_: &mut Connection) -> Result<&'static str, sqlx::Error> {
    Ok(LINES)
}
