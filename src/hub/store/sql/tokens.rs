//! Hub tokens, and users coming and going.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::users::User;
use super::{Database, Write, db, from_json, from_ms, hash32, to_json, to_ms};
use crate::hub::store::{ApiToken, Ended, Result, Revision, StoreError, UserRow};

/// Tokens in force at once: of one user, and of all. The list shows no more, either.
const MOST_OF_USER: i64 = 200;
const MOST: i64 = 10_000;
/// How long what is over can still be looked up, as many as may be in force.
const KEEP: time::Duration = time::Duration::days(30);
/// What is over goes so many at a time, with each token that is made: of each that goes the other replicas are told.
const GO: i64 = 500;

#[derive(FromRow)]
struct Token {
    id: String,
    user_id: String,
    hash: Vec<u8>,
    title: String,
    scopes: String,
    clusters: Option<String>,
    created_by: String,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl Token {
    fn token(self) -> Result<ApiToken> {
        const DOING: &str = "read a hub token";
        Ok(ApiToken {
            hash: hash32(DOING, &self.hash)?,
            scopes: from_json(DOING, &self.scopes)?,
            clusters: self
                .clusters
                .map(|text| from_json(DOING, &text))
                .transpose()?,
            created_at: from_ms(self.created_at),
            expires_at: self.expires_at.map(from_ms),
            revoked_at: self.revoked_at.map(from_ms),
            id: self.id,
            user_id: self.user_id,
            title: self.title,
            created_by: self.created_by,
        })
    }
}

/// Tokens in force that make their holder an admin.
const ADMINS: &str = concat!("SELECT t.id FROM api_token t JOIN \"user\" u ON u.id = t.user_id
  WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $1) AND u.disabled_at IS NULL
  AND (u.subject IS NULL OR $2 IS NULL OR u.vouched_at > $2) AND 'admin' IN ", each!("u.roles"), " AND (t.scopes = '[]' OR 'admin' IN ", each!("t.scopes"), ")");

/// By when tokens are judged.
#[derive(Clone, Copy)]
struct Moment {
    now: OffsetDateTime,
    /// An identity provider's user was vouched for since; None = whenever.
    vouched_after: Option<OffsetDateTime>,
}

impl Database {
    fn moment(&self, now: OffsetDateTime) -> Moment {
        let vouched_after = self.vouched_within.map(|within| now.saturating_sub(within));
        Moment { now, vouched_after }
    }

    pub async fn add_api_token(&self, token: ApiToken, key: Option<String>) -> Result<ApiToken> {
        const DOING: &str = "store a hub token";
        let mut write = self.begin(DOING).await?;
        forget(&mut write, &token).await?;
        let stored: Option<Token> = sqlx::query_as(
            "INSERT INTO api_token (id, user_id, hash, title, scopes, clusters, created_by, idempotency_key,
               expires_at, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (created_by, idempotency_key) DO UPDATE SET hash = excluded.hash WHERE api_token.revoked_at IS NULL
               AND api_token.user_id = excluded.user_id AND api_token.title = excluded.title
               AND api_token.scopes = excluded.scopes AND COALESCE(api_token.clusters, '') = COALESCE(excluded.clusters, '')
               AND COALESCE(api_token.expires_at - api_token.created_at, 0) = COALESCE(excluded.expires_at - excluded.created_at, 0)
             RETURNING *",
        )
        .bind(&token.id)
        .bind(&token.user_id)
        .bind(token.hash.as_slice())
        .bind(&token.title)
        .bind(to_json(&token.scopes))
        .bind(token.clusters.as_ref().map(to_json))
        .bind(&token.created_by)
        .bind(key)
        .bind(token.expires_at.map(to_ms))
        .bind(to_ms(token.created_at))
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        // A call that came before makes none.
        if stored.as_ref().is_some_and(|row| row.id == token.id) {
            make_room(&mut write, &token, self.moment(token.created_at)).await?;
        }
        write.commit(DOING).await?;
        stored
            .ok_or_else(|| {
                let other = "a token of this Idempotency-Key, revoked since or of another call,";
                StoreError::Exists(other.to_owned())
            })?
            .token()
    }

    pub async fn api_token(&self, id: &str) -> Result<Option<(ApiToken, UserRow)>> {
        const DOING: &str = "look up a hub token";
        let token: Option<Token> = sqlx::query_as("SELECT * FROM api_token WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db(DOING))?;
        let Some(token) = token else { return Ok(None) };
        let user = self.holder(DOING, &token.user_id).await?;
        Ok(Some((token.token()?, user)))
    }

    pub async fn api_tokens(
        &self,
        user_id: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<Vec<(ApiToken, String)>> {
        const DOING: &str = "list hub tokens";
        #[derive(FromRow)]
        struct Named {
            #[sqlx(flatten)]
            token: Token,
            name: String,
        }
        let rows: Vec<Named> = sqlx::query_as(
            "SELECT t.*, u.name FROM api_token t JOIN \"user\" u ON u.id = t.user_id
             WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $1)
             AND ($2 IS NULL OR u.id = $2) ORDER BY u.name, t.created_at LIMIT 10000",
        )
        .bind(to_ms(now))
        .bind(user_id)
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        let named = |row: Named| Ok((row.token.token()?, row.name));
        rows.into_iter().map(named).collect()
    }

    pub async fn live_admin_tokens(&self, now: OffsetDateTime) -> Result<u32> {
        let at = self.moment(now);
        let ids: Vec<String> = sqlx::query_scalar(ADMINS)
            .bind(to_ms(at.now))
            .bind(at.vouched_after.map(to_ms))
            .fetch_all(&self.readers)
            .await
            .map_err(db("count admins' tokens"))?;
        Ok(u32::try_from(ids.len()).unwrap_or(u32::MAX))
    }

    pub async fn revoke_api_token(&self, id: &str, now: OffsetDateTime) -> Result<Ended> {
        const DOING: &str = "revoke a hub token";
        let mut write = self.begin(DOING).await?;
        if last_admin(&mut write, &[id.to_owned()], self.moment(now)).await? {
            return Ok(Ended::LastAdmin);
        }
        let done = sqlx::query(
            "UPDATE api_token SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(if done.rows_affected() == 1 {
            Ended::Done
        } else {
            Ended::Unknown
        })
    }

    pub async fn add_user(&self, user: UserRow, now: OffsetDateTime) -> Result<UserRow> {
        const DOING: &str = "store a user";
        let mut write = self.begin(DOING).await?;
        // A name that was removed may come back: its tokens, keys and grants do not.
        let stored: Option<User> = sqlx::query_as(
            "INSERT INTO \"user\" (id, name, roles, groups, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, groups = excluded.groups,
               disabled_at = NULL, created_at = excluded.created_at, updated_at = excluded.updated_at,
               rev = \"user\".rev + 1
             WHERE \"user\".disabled_at IS NOT NULL RETURNING *",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(to_json(&user.roles))
        .bind(to_json(&user.groups))
        .bind(to_ms(now))
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        stored
            .ok_or_else(|| StoreError::Exists(format!("user {}", user.name)))?
            .user()
    }

    pub async fn set_user(&self, user: UserRow, now: OffsetDateTime) -> Result<Ended> {
        const DOING: &str = "change a user";
        let mut write = self.begin(DOING).await?;
        let at = self.moment(now);
        let before = admins(&mut write, at).await?;
        let done = sqlx::query(
            "UPDATE \"user\" SET roles = $1, groups = $2, updated_at = $3, rev = rev + 1
             WHERE id = $4 AND rev = $5 AND disabled_at IS NULL",
        )
        .bind(to_json(&user.roles))
        .bind(to_json(&user.groups))
        .bind(to_ms(now))
        .bind(&user.id)
        .bind(user.rev)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if done.rows_affected() == 0 {
            return Ok(Ended::Unknown);
        }
        // Not committed, it never was.
        if !before.is_empty() && admins(&mut write, at).await?.is_empty() {
            return Ok(Ended::LastAdmin);
        }
        write.commit(DOING).await?;
        Ok(Ended::Done)
    }

    pub async fn remove_user(&self, of: Revision<'_>, now: OffsetDateTime) -> Result<Ended> {
        const DOING: &str = "remove a user";
        let mut write = self.begin(DOING).await?;
        let tokens: Vec<String> = sqlx::query_scalar("SELECT id FROM api_token WHERE user_id = $1")
            .bind(of.id)
            .fetch_all(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        if last_admin(&mut write, &tokens, self.moment(now)).await? {
            return Ok(Ended::LastAdmin);
        }
        let done = sqlx::query(
            "UPDATE \"user\" SET disabled_at = $1, updated_at = $1, rev = rev + 1
             WHERE id = $2 AND rev = $3 AND disabled_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if done.rows_affected() == 0 {
            return Ok(Ended::Unknown);
        }
        for statement in [
            "UPDATE api_token SET revoked_at = $1 WHERE user_id = $2 AND revoked_at IS NULL",
            "UPDATE access_grant SET revoked_at = $1, updated_at = $1, rev = rev + 1 WHERE revoked_at IS NULL
             AND subject = (SELECT 'user:' || name FROM \"user\" WHERE id = $2)",
            "DELETE FROM ssh_key WHERE user_id = $2",
            "DELETE FROM login_waiting WHERE kind = 'invite' AND address = $2",
            "UPDATE session SET ended_at = $1, ended_why = 'the user was removed', sealed = NULL
             WHERE user_id = $2 AND ended_at IS NULL",
        ] {
            sqlx::query(statement)
                .bind(to_ms(now))
                .bind(of.id)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        write.commit(DOING).await?;
        Ok(Ended::Done)
    }
}

/// What ended long ago is not looked up any more.
async fn forget(write: &mut Write, added: &ApiToken) -> Result<()> {
    const FORGET: &str = "DELETE FROM api_token WHERE id IN (SELECT id FROM api_token
         WHERE revoked_at < $1 OR expires_at < $1 LIMIT $2)";
    sqlx::query(FORGET)
        .bind(to_ms(added.created_at - KEEP))
        .bind(GO)
        .execute(&mut *write.tx)
        .await
        .map_err(db("store a hub token"))?;
    Ok(())
}

/// Refuses one more than may be in force, but never the only one by which the hub can be administered. Of those that are over,
/// the oldest go where there are too many. What is refused here is not committed, and never was.
async fn make_room(write: &mut Write, added: &ApiToken, at: Moment) -> Result<()> {
    const DOING: &str = "store a hub token";
    const COUNT: &str = "SELECT count(*) FILTER (WHERE live AND user_id = $2), count(*) FILTER (WHERE live), count(*) FROM
         (SELECT user_id, revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) AS live FROM api_token) AS tokens";
    const DROP: &str = "DELETE FROM api_token WHERE id IN (SELECT id FROM api_token
         WHERE revoked_at IS NOT NULL OR expires_at <= $1 ORDER BY COALESCE(revoked_at, expires_at) LIMIT $2)";
    let now = at.now;
    let (own, live, all): (i64, i64, i64) = sqlx::query_as(COUNT)
        .bind(to_ms(now))
        .bind(&added.user_id)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    let full = if own > MOST_OF_USER {
        Some(format!("the user has {MOST_OF_USER} tokens in force"))
    } else {
        (live > MOST).then(|| format!("the hub has {MOST} tokens in force"))
    };
    if let Some(full) = full
        && admins(write, at).await? != [added.id.as_str()]
    {
        return Err(StoreError::Full(full));
    }
    let beyond = all - live - MOST;
    if beyond > 0 {
        sqlx::query(DROP)
            .bind(to_ms(now))
            .bind(beyond.min(GO))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
    }
    Ok(())
}

/// Whether without these tokens nobody could administer the hub any more.
async fn last_admin(write: &mut Write, without: &[String], at: Moment) -> Result<bool> {
    let admins = admins(write, at).await?;
    Ok(!admins.is_empty() && admins.iter().all(|id| without.contains(id)))
}

async fn admins(write: &mut Write, at: Moment) -> Result<Vec<String>> {
    sqlx::query_scalar(ADMINS)
        .bind(to_ms(at.now))
        .bind(at.vouched_after.map(to_ms))
        .fetch_all(&mut *write.tx)
        .await
        .map_err(db("count admins' tokens"))
}
