//! Logins that are under way, for whichever replica is asked next.

use std::time::Duration;

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Database, Write, db, from_ms, hash32, to_ms};
use crate::hub::login::pending::{self, Next, Wrong};
use crate::hub::store::{Asked, Decision, Result, Waiting, WaitingKind};

#[derive(FromRow)]
struct Row {
    key: Vec<u8>,
    address: String,
    remote: String,
    browser: Option<Vec<u8>>,
    user_code: Option<Vec<u8>>,
    sealed: Vec<u8>,
    ends_at: i64,
}

impl Row {
    fn waiting(self, kind: WaitingKind) -> Result<Waiting> {
        const DOING: &str = "read a login that is under way";
        let hash = |bytes: Option<Vec<u8>>| bytes.map(|b| hash32(DOING, &b)).transpose();
        Ok(Waiting {
            kind,
            key: hash32(DOING, &self.key)?,
            browser: hash(self.browser)?,
            user_code: hash(self.user_code)?,
            address: self.address,
            remote: self.remote,
            sealed: self.sealed,
            until: from_ms(self.ends_at),
        })
    }
}

#[derive(FromRow)]
struct Device {
    state: String,
    sealed: Vec<u8>,
    asked_at: Option<i64>,
    interval_s: i64,
    ends_at: i64,
}

impl Database {
    pub async fn add_waiting(
        &self,
        waiting: Waiting,
        bounds: pending::Bounds,
        now: OffsetDateTime,
    ) -> Result<()> {
        const DOING: &str = "store a login that is under way";
        let mut write = self.begin(DOING).await?;
        sqlx::query("DELETE FROM login_waiting WHERE ends_at <= $1")
            .bind(to_ms(now))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        make_room(&mut write, &waiting, bounds).await?;
        sqlx::query(
            "INSERT INTO login_waiting (kind, key, address, remote, browser, user_code, sealed, state, interval_s, begun_at, ends_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting', $8, $9, $10)",
        )
        .bind(waiting.kind.as_str())
        .bind(waiting.key.as_slice())
        .bind(&waiting.address)
        .bind(&waiting.remote)
        .bind(waiting.browser.map(|b| b.to_vec()))
        .bind(waiting.user_code.map(|c| c.to_vec()))
        .bind(&waiting.sealed)
        .bind(pending::INTERVAL)
        .bind(to_ms(now))
        .bind(to_ms(waiting.until))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await
    }

    pub async fn take_waiting(
        &self,
        kind: WaitingKind,
        key: [u8; 32],
        browser: Option<[u8; 32]>,
        now: OffsetDateTime,
    ) -> Result<Option<Waiting>> {
        const DOING: &str = "go on with a login";
        let mut write = self.begin_row(DOING).await?;
        let row: Option<Row> = sqlx::query_as(
            "DELETE FROM login_waiting WHERE kind = $1 AND key = $2 AND (browser IS NULL OR browser = $3)
             RETURNING key, address, remote, browser, user_code, sealed, ends_at",
        )
        .bind(kind.as_str())
        .bind(key.as_slice())
        .bind(browser.map(|b| b.to_vec()))
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        let found = row.map(|row| row.waiting(kind)).transpose()?;
        Ok(found.filter(|waiting| waiting.until > now))
    }

    pub async fn guess_device(
        &self,
        user_code: [u8; 32],
        address: &str,
        now: OffsetDateTime,
    ) -> Result<Result<Waiting, Wrong>> {
        const DOING: &str = "look for the device that waits with a code";
        let mut write = self.begin(DOING).await?;
        if is_over(&mut write, address, now).await? {
            return Ok(Err(Wrong::TooMany));
        }
        let row: Option<Row> = sqlx::query_as(
            "SELECT key, address, remote, browser, user_code, sealed, ends_at FROM login_waiting
             WHERE kind = 'device' AND user_code = $1 AND state = 'waiting' AND ends_at > $2",
        )
        .bind(user_code.as_slice())
        .bind(to_ms(now))
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if let Some(row) = row {
            return row.waiting(WaitingKind::Device).map(Ok);
        }
        sqlx::query(
            "INSERT INTO login_guess (address, since, n) VALUES ($1, $2, 1)
             ON CONFLICT (address) DO UPDATE SET n = login_guess.n + 1",
        )
        .bind(address)
        .bind(to_ms(now))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(Err(Wrong::Unknown))
    }

    pub async fn decide_device(
        &self,
        key: [u8; 32],
        decision: Decision,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "decide on a device";
        let (state, sealed) = match decision {
            Decision::Refused(sealed) => ("refused", sealed),
            Decision::Ready(sealed) => ("ready", sealed),
        };
        let statement = sqlx::query(
            "UPDATE login_waiting SET state = $1, sealed = $2
             WHERE kind = 'device' AND key = $3 AND state = 'waiting' AND ends_at > $4",
        )
        .bind(state)
        .bind(sealed)
        .bind(key.as_slice())
        .bind(to_ms(now));
        Ok(self.change_row(DOING, statement).await? == 1)
    }

    pub async fn ask_device(&self, key: [u8; 32], now: OffsetDateTime) -> Result<Asked> {
        const DOING: &str = "answer a device";
        const FIND: &str = concat!(
            "SELECT state, sealed, asked_at, interval_s, ends_at FROM login_waiting WHERE kind = 'device' AND key = $1",
            locked!()
        );
        let mut write = self.begin_row(DOING).await?;
        let found: Option<Device> = sqlx::query_as(FIND)
            .bind(key.as_slice())
            .fetch_optional(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        let Some(device) = found else {
            return Ok(Asked::Expired);
        };
        let asking = pending::Asking {
            decided: device.state != "waiting",
            asked: device.asked_at.map(from_ms),
            interval: device.interval_s,
            until: from_ms(device.ends_at),
        };
        let (told, interval) = match pending::next(&asking, now) {
            Next::Over => (Asked::Expired, None),
            Next::Tell if device.state == "ready" => {
                (Asked::Decided(Decision::Ready(device.sealed)), None)
            }
            Next::Tell => (Asked::Decided(Decision::Refused(device.sealed)), None),
            Next::Wait => (Asked::Pending, Some(device.interval_s)),
            Next::Slower(interval) => (Asked::SlowDown, Some(interval)),
        };
        let statement = match interval {
            None => sqlx::query("DELETE FROM login_waiting WHERE kind = 'device' AND key = $1")
                .bind(key.as_slice()),
            Some(interval) => sqlx::query(
                "UPDATE login_waiting SET asked_at = $2, interval_s = $3 WHERE kind = 'device' AND key = $1",
            )
            .bind(key.as_slice())
            .bind(to_ms(now))
            .bind(interval),
        };
        statement.execute(&mut *write.tx).await.map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(told)
    }

    pub async fn take_turn(&self, session: &str, by: &str, lasts: Duration) -> Result<bool> {
        const DOING: &str = "take a turn at a session";
        // By the database's clock: by their own, two replicas whose clocks are apart would both have it.
        const TAKE: &str = concat!(
            "UPDATE session SET turn_by = $1, turn_until = $2 + ",
            now!(),
            " WHERE id = $3 AND (turn_by IS NULL OR turn_until <= ",
            now!(),
            ")"
        );
        let statement = sqlx::query(TAKE)
            .bind(by)
            .bind(i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX))
            .bind(session);
        Ok(self.change_row(DOING, statement).await? == 1)
    }

    pub async fn end_turn(&self, session: &str, by: &str) -> Result<()> {
        const DOING: &str = "end a turn at a session";
        let statement = sqlx::query(
            "UPDATE session SET turn_by = NULL, turn_until = NULL WHERE id = $1 AND turn_by = $2",
        )
        .bind(session)
        .bind(by);
        self.change_row(DOING, statement).await.map(drop)
    }
}

/// The oldest of the address that has its share, or the most of all, goes.
async fn make_room(write: &mut Write, new: &Waiting, bounds: pending::Bounds) -> Result<()> {
    const DOING: &str = "make room for a login";
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT address, count(*) FROM login_waiting WHERE kind = $1 GROUP BY address",
    )
    .bind(new.kind.as_str())
    .fetch_all(&mut *write.tx)
    .await
    .map_err(db(DOING))?;
    let Some(crowded) = pending::crowded(&counts, &new.address, bounds) else {
        return Ok(());
    };
    sqlx::query(
        "DELETE FROM login_waiting WHERE kind = $1 AND key =
         (SELECT key FROM login_waiting WHERE kind = $1 AND address = $2 ORDER BY begun_at, key LIMIT 1)",
    )
    .bind(new.kind.as_str())
    .bind(crowded)
    .execute(&mut *write.tx)
    .await
    .map_err(db(DOING))?;
    Ok(())
}

/// Whether this address, or all of them, typed too many wrong codes within the last minute. What is dated further ahead than that is of
/// a clock that was, and would count until that time has come; another replica's may be a moment ahead.
async fn is_over(write: &mut Write, address: &str, now: OffsetDateTime) -> Result<bool> {
    const DOING: &str = "count wrong codes";
    sqlx::query("DELETE FROM login_guess WHERE since < $1 OR since > $2")
        .bind(to_ms(now - pending::GUESSING))
        .bind(to_ms(now + pending::GUESSING))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    let (own, all): (i64, i64) = sqlx::query_as(
        "SELECT CAST(coalesce(sum(CASE WHEN address = $1 THEN n ELSE 0 END), 0) AS BIGINT), CAST(coalesce(sum(n), 0) AS BIGINT)
         FROM login_guess",
    )
    .bind(address)
    .fetch_one(&mut *write.tx)
    .await
    .map_err(db(DOING))?;
    Ok(own >= pending::WRONG || all >= pending::WRONG_OF_ALL)
}
