//! Users and their SSH keys; noted Idempotency-Keys.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Database, Write, corrupt, db, from_json, from_ms, hash32, to_json, to_ms};
use crate::hub::store::{Call, Called, Provided, Result, SshKey, StoreError, UserRow};
use crate::keys::Public;

/// How long calls are known by their Idempotency-Keys.
const KNOWN: time::Duration = time::Duration::hours(24);
/// Calls of one user that are known at once. Whoever sends more would have them noted without end, whatever else they may do.
const MOST_CALLS: i64 = 20_000;
/// What has no answer by then is taken for a call whose hub died in the middle, and may come again.
const RUNS: time::Duration = time::Duration::minutes(1);

#[derive(FromRow)]
pub(super) struct User {
    id: String,
    name: String,
    roles: String,
    groups: String,
    issuer: String,
    subject: Option<String>,
    vouched_at: Option<i64>,
    refused_at: Option<i64>,
    rev: i64,
    disabled_at: Option<i64>,
}

impl User {
    pub(super) fn user(self) -> Result<UserRow> {
        const DOING: &str = "read a user";
        Ok(UserRow {
            roles: from_json(DOING, &self.roles)?,
            groups: from_json(DOING, &self.groups)?,
            disabled: self.disabled_at.is_some(),
            provider: self.subject.map(|subject| Provided {
                issuer: self.issuer,
                subject,
                // One that a hub of before made counts as vouched for long ago: a login mends it.
                vouched_at: from_ms(self.vouched_at.unwrap_or_default()),
                refused: self.refused_at.is_some(),
            }),
            rev: self.rev,
            id: self.id,
            name: self.name,
        })
    }
}

#[derive(FromRow)]
struct Key {
    id: String,
    user_id: String,
    public: String,
    title: String,
    created_at: i64,
}

impl Key {
    fn key(self) -> Result<SshKey> {
        Ok(SshKey {
            public: Public::from_openssh(&self.public).map_err(corrupt("read an SSH key"))?,
            id: self.id,
            user_id: self.user_id,
            title: self.title,
            created_at: from_ms(self.created_at),
        })
    }
}

impl Database {
    pub async fn ensure_user(&self, user: UserRow) -> Result<UserRow> {
        const DOING: &str = "store a user";
        let mut write = self.begin(DOING).await?;
        sqlx::query(
            "INSERT INTO \"user\" (id, name, roles, groups, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (name) DO NOTHING",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(to_json(&user.roles))
        .bind(to_json(&user.groups))
        .bind(to_ms(crate::clock::now()))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let row: User = sqlx::query_as("SELECT * FROM \"user\" WHERE name = $1")
            .bind(&user.name)
            .fetch_one(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        row.user()
    }

    pub async fn users(&self) -> Result<Vec<UserRow>> {
        let rows: Vec<User> =
            sqlx::query_as("SELECT * FROM \"user\" WHERE disabled_at IS NULL ORDER BY name")
                .fetch_all(&self.readers)
                .await
                .map_err(db("list users"))?;
        rows.into_iter().map(User::user).collect()
    }

    pub async fn users_of(&self, ids: &[String]) -> Result<Vec<UserRow>> {
        let rows: Vec<User> = sqlx::query_as(concat!(
            "SELECT * FROM \"user\" WHERE id IN ",
            each!("$1"),
            " ORDER BY name"
        ))
        .bind(to_json(&ids))
        .fetch_all(&self.readers)
        .await
        .map_err(db("look up users"))?;
        rows.into_iter().map(User::user).collect()
    }

    pub async fn user(&self, name: &str) -> Result<Option<UserRow>> {
        let row: Option<User> =
            sqlx::query_as("SELECT * FROM \"user\" WHERE disabled_at IS NULL AND name = $1")
                .bind(name)
                .fetch_optional(&self.readers)
                .await
                .map_err(db("look up a user"))?;
        row.map(User::user).transpose()
    }

    pub async fn user_by_id(&self, id: &str) -> Result<Option<UserRow>> {
        let row: Option<User> = sqlx::query_as("SELECT * FROM \"user\" WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db("look up a user"))?;
        row.map(User::user).transpose()
    }

    pub async fn add_ssh_key(&self, key: SshKey) -> Result<Option<SshKey>> {
        const DOING: &str = "store an SSH key";
        let mut write = self.begin(DOING).await?;
        let fingerprint = key.public.fingerprint();
        let taken: Option<String> =
            sqlx::query_scalar("SELECT cluster_id FROM cluster_key WHERE fingerprint = $1")
                .bind(&fingerprint)
                .fetch_optional(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        if taken.is_some() {
            return Ok(None);
        }
        sqlx::query(
            "INSERT INTO ssh_key (id, user_id, public, fingerprint, title, created_at) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (fingerprint) DO NOTHING",
        )
        .bind(&key.id)
        .bind(&key.user_id)
        .bind(key.public.openssh("").map_err(corrupt(DOING))?)
        .bind(&fingerprint)
        .bind(&key.title)
        .bind(to_ms(key.created_at))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let stored: Key = sqlx::query_as("SELECT * FROM ssh_key WHERE fingerprint = $1")
            .bind(&fingerprint)
            .fetch_one(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        let stored = stored.key()?;
        Ok((stored.user_id == key.user_id).then_some(stored))
    }

    pub async fn idempotent(
        &self,
        user_id: &str,
        key: &str,
        digest: [u8; 32],
        now: OffsetDateTime,
    ) -> Result<Option<[u8; 32]>> {
        const DOING: &str = "note an Idempotency-Key";
        const FORGET: [&str; 2] = [
            "UPDATE api_token SET idempotency_key = NULL WHERE idempotency_key = $2
             AND created_by = (SELECT name FROM \"user\" WHERE id = $1)",
            "UPDATE access_grant SET idempotency_key = NULL WHERE idempotency_key = $2
             AND created_by = (SELECT name FROM \"user\" WHERE id = $1)",
        ];
        let mut write = self.begin(DOING).await?;
        sqlx::query("DELETE FROM idempotency WHERE created_at < $1")
            .bind(to_ms(now - KNOWN))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        let noted = sqlx::query(
            "INSERT INTO idempotency (user_id, key, digest, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        )
        .bind(user_id)
        .bind(key)
        .bind(digest.as_slice())
        .bind(to_ms(now))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if noted.rows_affected() > 0 {
            has_room(&mut write, user_id).await?;
            // What an older call made under the key is that call's; nothing of this one is stored yet.
            for forget in FORGET {
                sqlx::query(forget)
                    .bind(user_id)
                    .bind(key)
                    .execute(&mut *write.tx)
                    .await
                    .map_err(db(DOING))?;
            }
        }
        let known: Vec<u8> =
            sqlx::query_scalar("SELECT digest FROM idempotency WHERE user_id = $1 AND key = $2")
                .bind(user_id)
                .bind(key)
                .fetch_one(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        write.commit(DOING).await?;
        if noted.rows_affected() > 0 {
            return Ok(None);
        }
        hash32(DOING, &known).map(Some)
    }

    pub async fn begin_call(&self, call: &Call, now: OffsetDateTime) -> Result<Called> {
        const DOING: &str = "note a call's Idempotency-Key";
        let mut write = self.begin(DOING).await?;
        sqlx::query("DELETE FROM idempotency WHERE created_at < $1")
            .bind(to_ms(now - KNOWN))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        let noted = sqlx::query(
            "INSERT INTO idempotency (user_id, key, digest, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (user_id, key) DO UPDATE SET created_at = excluded.created_at
             WHERE idempotency.answer IS NULL AND idempotency.changed IS NULL AND idempotency.digest = excluded.digest
               AND (idempotency.created_at < $5 OR idempotency.created_at > $6)",
        )
        .bind(&call.user_id)
        .bind(&call.key)
        .bind(call.digest.as_slice())
        .bind(to_ms(now))
        .bind(to_ms(now - RUNS))
        .bind(to_ms(now + RUNS))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if noted.rows_affected() > 0 {
            has_room(&mut write, &call.user_id).await?;
        }
        let (digest, answer, changed, since): (Vec<u8>, Option<String>, Option<i64>, i64) = sqlx::query_as(
            "SELECT digest, answer, changed, created_at FROM idempotency WHERE user_id = $1 AND key = $2",
        )
        .bind(&call.user_id)
        .bind(&call.key)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(match answer {
            _ if noted.rows_affected() > 0 => Called::First,
            _ if digest != call.digest => Called::Other,
            Some(answer) => Called::Before(answer),
            None if changed.is_some() && is_over(since, now) => Called::Changed,
            None => Called::Running,
        })
    }

    pub async fn end_call(&self, call: &Call, answer: Option<String>) -> Result<()> {
        const DOING: &str = "keep a call's answer";
        let statement = match answer {
            Some(answer) => {
                sqlx::query("UPDATE idempotency SET answer = $3 WHERE user_id = $1 AND key = $2")
                    .bind(&call.user_id)
                    .bind(&call.key)
                    .bind(answer)
            }
            None => sqlx::query(
                "DELETE FROM idempotency WHERE user_id = $1 AND key = $2 AND answer IS NULL",
            )
            .bind(&call.user_id)
            .bind(&call.key),
        };
        self.change(DOING, statement).await.map(drop)
    }

    pub async fn lose_call(&self, call: &Call) -> Result<()> {
        const DOING: &str = "note that a call's end is not known";
        const ENDS: [&str; 2] = [
            "DELETE FROM idempotency WHERE user_id = $1 AND key = $2 AND answer IS NULL AND changed IS NULL AND $3 > 0",
            "UPDATE idempotency SET created_at = created_at - $3 WHERE user_id = $1 AND key = $2 AND answer IS NULL",
        ];
        let mut write = self.begin(DOING).await?;
        // It runs no more.
        let over = i64::try_from(RUNS.whole_milliseconds()).unwrap_or(i64::MAX) + 1;
        for end in ENDS {
            sqlx::query(end)
                .bind(&call.user_id)
                .bind(&call.key)
                .bind(over)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        write.commit(DOING).await
    }

    pub async fn ssh_keys(&self, user_id: Option<&str>) -> Result<Vec<(SshKey, String)>> {
        #[derive(FromRow)]
        struct Named {
            #[sqlx(flatten)]
            key: Key,
            name: String,
        }
        let rows: Vec<Named> = sqlx::query_as(
            "SELECT k.*, u.name FROM ssh_key k JOIN \"user\" u ON u.id = k.user_id
             WHERE ($1 IS NULL OR u.id = $1) ORDER BY u.name, k.id",
        )
        .bind(user_id)
        .fetch_all(&self.readers)
        .await
        .map_err(db("list SSH keys"))?;
        let named = |row: Named| Ok((row.key.key()?, row.name));
        rows.into_iter().map(named).collect()
    }

    pub async fn remove_ssh_key(&self, id: &str) -> Result<bool> {
        let statement = sqlx::query("DELETE FROM ssh_key WHERE id = $1").bind(id);
        Ok(self.change_row("remove an SSH key", statement).await? == 1)
    }

    pub async fn ssh_key_by_fingerprint(
        &self,
        fingerprint: &str,
    ) -> Result<Option<(SshKey, UserRow)>> {
        const DOING: &str = "look up an SSH key";
        let key: Option<Key> = sqlx::query_as("SELECT * FROM ssh_key WHERE fingerprint = $1")
            .bind(fingerprint)
            .fetch_optional(&self.readers)
            .await
            .map_err(db(DOING))?;
        let Some(key) = key else { return Ok(None) };
        let user = self.holder(DOING, &key.user_id).await?;
        Ok(Some((key.key()?, user)))
    }

    /// Whose a token, a session or a key is.
    pub(super) async fn holder(&self, doing: &'static str, id: &str) -> Result<UserRow> {
        let user: User = sqlx::query_as("SELECT * FROM \"user\" WHERE id = $1")
            .bind(id)
            .fetch_one(&self.readers)
            .await
            .map_err(db(doing))?;
        user.user()
    }
}

/// Whether what began then runs no more. What is dated further ahead is of a clock that was, and would run until that time has come.
fn is_over(since: i64, now: OffsetDateTime) -> bool {
    since < to_ms(now - RUNS) || since > to_ms(now + RUNS)
}

/// Refuses one call more of a user than are known at once. What is refused here is not committed, and never was.
async fn has_room(write: &mut Write, user_id: &str) -> Result<()> {
    let calls: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency WHERE user_id = $1")
        .bind(user_id)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db("count a user's calls"))?;
    if calls <= MOST_CALLS {
        return Ok(());
    }
    let hours = KNOWN.whole_hours();
    Err(StoreError::Full(format!(
        "{MOST_CALLS} calls with an Idempotency-Key came from the user within {hours} hours"
    )))
}
