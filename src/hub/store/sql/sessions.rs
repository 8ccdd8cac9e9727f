//! Sessions of people who logged in with an identity provider, and their tokens.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Database, Write, db, from_ms, hash32, to_ms};
use crate::hub::store::{Pair, Result, Session, SessionToken, StoreError, UserRow};

/// How long an ended session can still be looked up.
const KEEP: time::Duration = time::Duration::days(30);
/// Those of one user that hold no more and can be looked up: beyond that the oldest go.
const OVER_OF_USER: i64 = 200;
/// Pairs of one session; more is a client gone mad, and the session ends.
const PAIRS: i64 = 5_000;

/// When the provider was asked by a session, now being $1. What a clock that was ahead has dated counts as the oldest: nobody
/// knows when that was.
macro_rules! asked {
    ($session:literal) => {
        concat!(
            "(CASE WHEN ",
            $session,
            ".asked_at > $1 THEN 0 ELSE ",
            $session,
            ".asked_at END)"
        )
    };
}

#[derive(FromRow)]
struct SessionRecord {
    id: String,
    user_id: String,
    sealed: Option<Vec<u8>>,
    asked_at: i64,
    idle_until: i64,
    expires_at: i64,
    ended_at: Option<i64>,
}

impl SessionRecord {
    fn session(self) -> Session {
        Session {
            asked_at: from_ms(self.asked_at),
            idle_until: from_ms(self.idle_until),
            expires_at: from_ms(self.expires_at),
            ended: self.ended_at.is_some(),
            id: self.id,
            user_id: self.user_id,
            sealed: self.sealed,
        }
    }
}

#[derive(FromRow)]
struct TokenRecord {
    id: String,
    session_id: String,
    access_hash: Vec<u8>,
    refresh_hash: Vec<u8>,
    access_until: i64,
    used_at: Option<i64>,
}

impl TokenRecord {
    fn token(self) -> Result<SessionToken> {
        const DOING: &str = "read a session's token";
        Ok(SessionToken {
            access_hash: hash32(DOING, &self.access_hash)?,
            refresh_hash: hash32(DOING, &self.refresh_hash)?,
            access_until: from_ms(self.access_until),
            used_at: self.used_at.map(from_ms),
            id: self.id,
            session_id: self.session_id,
        })
    }
}

impl Database {
    pub async fn add_session(
        &self,
        session: Session,
        remote: &str,
        pair: Pair,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store a session";
        let mut write = self.begin(DOING).await?;
        sqlx::query("DELETE FROM session WHERE ended_at < $1 OR expires_at < $1")
            .bind(to_ms(now - KEEP))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        forget(&mut write, &session.user_id, now).await?;
        sqlx::query(
            "INSERT INTO session (id, user_id, sealed, remote, asked_at, idle_until, expires_at, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(&session.id)
        .bind(&session.user_id)
        .bind(&session.sealed)
        .bind(remote)
        .bind(to_ms(session.asked_at))
        .bind(to_ms(session.idle_until))
        .bind(to_ms(session.expires_at))
        .bind(to_ms(now))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        add_pair(&mut write, &session.id, &pair, now).await?;
        write.commit(DOING).await
    }

    pub async fn session_token(
        &self,
        id: &str,
    ) -> Result<Option<(SessionToken, Session, UserRow)>> {
        const DOING: &str = "look up a session's token";
        let token: Option<TokenRecord> =
            sqlx::query_as("SELECT * FROM session_token WHERE id = $1")
                .bind(id)
                .fetch_optional(&self.readers)
                .await
                .map_err(db(DOING))?;
        let Some(token) = token else { return Ok(None) };
        let found = self.session(&token.session_id).await?;
        let Some((session, user)) = found else {
            return Ok(None);
        };
        Ok(Some((token.token()?, session, user)))
    }

    pub async fn session(&self, id: &str) -> Result<Option<(Session, UserRow)>> {
        const DOING: &str = "look up a session";
        let session: Option<SessionRecord> = sqlx::query_as("SELECT * FROM session WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(db(DOING))?;
        let Some(session) = session else {
            return Ok(None);
        };
        let user = self.holder(DOING, &session.user_id).await?;
        Ok(Some((session.session(), user)))
    }

    pub async fn sessions_of(&self, user_id: &str) -> Result<Vec<Session>> {
        let rows: Vec<SessionRecord> =
            sqlx::query_as("SELECT * FROM session WHERE user_id = $1 AND ended_at IS NULL")
                .bind(user_id)
                .fetch_all(&self.readers)
                .await
                .map_err(db("list sessions"))?;
        Ok(rows.into_iter().map(SessionRecord::session).collect())
    }

    pub async fn sessions_due(
        &self,
        issuer: &str,
        asked_before: OffsetDateTime,
        now: OffsetDateTime,
        limit: u32,
    ) -> Result<Vec<String>> {
        const DUE: &str = concat!(
            "SELECT s.id FROM session s JOIN \"user\" u ON u.id = s.user_id
             WHERE s.ended_at IS NULL AND s.sealed IS NOT NULL AND s.expires_at > $1 AND ", asked!("s"), " <= $2
             AND u.issuer = $3 AND u.subject IS NOT NULL AND u.disabled_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM session o WHERE o.user_id = s.user_id AND o.ended_at IS NULL
                 AND o.sealed IS NOT NULL AND o.expires_at > $1
                 AND (", asked!("o"), " > ", asked!("s"), " OR (", asked!("o"), " = ", asked!("s"), " AND o.id > s.id)))
             AND (EXISTS (SELECT 1 FROM api_token t WHERE t.user_id = s.user_id AND t.revoked_at IS NULL
                     AND (t.expires_at IS NULL OR t.expires_at > $1))
                 OR EXISTS (SELECT 1 FROM ssh_key k WHERE k.user_id = s.user_id))
             ORDER BY ", asked!("s"), ", s.id LIMIT $4"
        );
        sqlx::query_scalar(DUE)
            .bind(to_ms(now))
            .bind(to_ms(asked_before))
            .bind(issuer)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(db("look for sessions to ask the provider about"))
    }

    pub async fn is_last_to_ask_by(&self, session: &str, now: OffsetDateTime) -> Result<bool> {
        const LAST: &str = "SELECT count(*) FROM session s JOIN \"user\" u ON u.id = s.user_id
             WHERE s.id = $1 AND u.subject IS NOT NULL AND u.refused_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM session o WHERE o.user_id = s.user_id AND o.id <> s.id AND o.ended_at IS NULL
                 AND o.sealed IS NOT NULL AND o.expires_at > $2)";
        let found: i64 = sqlx::query_scalar(LAST)
            .bind(session)
            .bind(to_ms(now))
            .fetch_one(&self.readers)
            .await
            .map_err(db("look for another session to ask the provider by"))?;
        Ok(found == 1)
    }

    pub async fn refuse_user(&self, session: &str, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "note that the provider refuses a user";
        let statement = sqlx::query(
            "UPDATE \"user\" SET refused_at = $1, updated_at = $1 WHERE subject IS NOT NULL AND refused_at IS NULL
             AND id = (SELECT user_id FROM session WHERE id = $2)
             AND NOT EXISTS (SELECT 1 FROM session WHERE user_id = \"user\".id AND id <> $2 AND ended_at IS NULL
                 AND sealed IS NOT NULL AND expires_at > $1)",
        )
        .bind(to_ms(now))
        .bind(session);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn asked_provider(
        &self,
        id: &str,
        sealed: Option<Vec<u8>>,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store the provider's answer";
        // What has ended keeps nothing to ask by.
        let statement = sqlx::query(
            "UPDATE session SET sealed = $1, asked_at = $2 WHERE id = $3 AND ended_at IS NULL",
        )
        .bind(sealed)
        .bind(to_ms(now))
        .bind(id);
        self.change_row(DOING, statement).await.map(drop)
    }

    pub async fn rotate(
        &self,
        used: &str,
        pair: Pair,
        idle_until: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "store a session's next tokens";
        let mut write = self.begin_row(DOING).await?;
        // The session's row first: who rotates at the same time waits here, and sees below what this one added.
        let session: Option<String> = sqlx::query_scalar(
            "UPDATE session SET idle_until = CASE WHEN $1 < expires_at THEN $1 ELSE expires_at END
             WHERE ended_at IS NULL AND id = (SELECT session_id FROM session_token WHERE id = $2) RETURNING id",
        )
        .bind(to_ms(idle_until))
        .bind(used)
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let Some(session) = session else {
            return Ok(false);
        };
        let pairs: i64 =
            sqlx::query_scalar("SELECT count(*) FROM session_token WHERE session_id = $1")
                .bind(&session)
                .fetch_one(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        if pairs >= PAIRS {
            return Err(StoreError::Full(format!(
                "the session has had {PAIRS} tokens"
            )));
        }
        // The first use counts, so that a second one within the grace does not lengthen it. That one also uses up what the first one
        // brought: of two lines that went on, neither would ever be shown twice.
        sqlx::query(
            "UPDATE session_token SET used_at = $1 WHERE session_id = $2 AND used_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(&session)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        add_pair(&mut write, &session, &pair, now).await?;
        write.commit(DOING).await?;
        Ok(true)
    }

    pub async fn end_session(&self, id: &str, why: &str, now: OffsetDateTime) -> Result<bool> {
        const DOING: &str = "end a session";
        let statement = sqlx::query(
            "UPDATE session SET ended_at = $1, ended_why = $2, sealed = NULL WHERE id = $3 AND ended_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(why)
        .bind(id);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn end_sessions(
        &self,
        user_id: &str,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<Vec<String>> {
        const DOING: &str = "end a user's sessions";
        let mut write = self.begin(DOING).await?;
        let ended: Vec<String> = sqlx::query_scalar(
            "UPDATE session SET ended_at = $1, ended_why = $2, sealed = NULL WHERE user_id = $3 AND ended_at IS NULL RETURNING id",
        )
        .bind(to_ms(now))
        .bind(why)
        .bind(user_id)
        .fetch_all(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(ended)
    }
}

/// Whoever logs in again and again leaves so many sessions that hold no more, and not all of them.
async fn forget(write: &mut Write, user_id: &str, now: OffsetDateTime) -> Result<()> {
    const FORGET: &str = "DELETE FROM session WHERE user_id = $1
         AND (ended_at IS NOT NULL OR idle_until <= $2 OR expires_at <= $2) AND id NOT IN
           (SELECT id FROM session WHERE user_id = $1 AND (ended_at IS NOT NULL OR idle_until <= $2 OR expires_at <= $2)
            ORDER BY created_at DESC, id DESC LIMIT $3)";
    sqlx::query(FORGET)
        .bind(user_id)
        .bind(to_ms(now))
        .bind(OVER_OF_USER)
        .execute(&mut *write.tx)
        .await
        .map_err(db("forget a user's old sessions"))?;
    Ok(())
}

async fn add_pair(
    write: &mut Write,
    session: &str,
    pair: &Pair,
    now: OffsetDateTime,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO session_token (id, session_id, access_hash, refresh_hash, access_until, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&pair.id)
    .bind(session)
    .bind(pair.access_hash.as_slice())
    .bind(pair.refresh_hash.as_slice())
    .bind(to_ms(pair.access_until))
    .bind(to_ms(now))
    .execute(&mut *write.tx)
    .await
    .map_err(db("store a session's tokens"))?;
    Ok(())
}
