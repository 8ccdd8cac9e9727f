//! Who logs in with an identity provider, as the provider says who that is.

use time::OffsetDateTime;

use super::users::User;
use super::{Database, Write, db, to_json, to_ms};
use crate::hub::store::{Arrival, FIRST_ADMIN, Known, Provided, Result, UserRow};

/// How exactly it is kept when the provider vouched for someone: each change of a user is one of access for every replica.
const VOUCHED: time::Duration = time::Duration::hours(1);

impl Database {
    pub async fn would_arrive(&self, arrival: Arrival, now: OffsetDateTime) -> Result<Known> {
        const DOING: &str = "look up who logs in";
        let mut write = self.begin(DOING).await?;
        // Without a commit nothing of it stays.
        taken_in(&mut write, &arrival, now).await
    }

    pub async fn arrive(&self, arrival: Arrival, now: OffsetDateTime) -> Result<Known> {
        const DOING: &str = "store who logged in";
        let mut write = self.begin(DOING).await?;
        let known = taken_in(&mut write, &arrival, now).await?;
        match known {
            Known::User { .. } => write.commit(DOING).await?,
            Known::Removed { .. } | Known::Taken => {}
        }
        Ok(known)
    }
}

/// What becomes of them within this transaction.
async fn taken_in(write: &mut Write, arrival: &Arrival, now: OffsetDateTime) -> Result<Known> {
    const DOING: &str = "store who logged in";
    let before: Option<User> =
        sqlx::query_as("SELECT * FROM \"user\" WHERE issuer = $1 AND subject = $2")
            .bind(&arrival.issuer)
            .bind(&arrival.subject)
            .fetch_optional(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
    let before = before.map(User::user).transpose()?;
    if let Some(user) = before.as_ref().filter(|user| user.disabled) {
        let name = user.name.clone();
        return Ok(Known::Removed { name });
    }
    let other: Option<User> = sqlx::query_as("SELECT * FROM \"user\" WHERE name = $1")
        .bind(&arrival.name)
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    let other = other.map(User::user).transpose()?;
    let own = |user: &UserRow| before.as_ref().is_some_and(|before| before.id == user.id);
    let other = other.filter(|other| !own(other));
    if let Some(other) = &other {
        // Who was here before it was removed would be told of the grants that ended with it.
        if before.is_some() || !is_free(other) {
            return Ok(Known::Taken);
        }
        put_aside(write, other).await?;
    }
    match &before {
        None => insert(write, arrival, now).await?,
        Some(user) => update(write, user, arrival, now).await?,
    }
    let row: User = sqlx::query_as("SELECT * FROM \"user\" WHERE name = $1")
        .bind(&arrival.name)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    Ok(Known::User {
        user: Box::new(row.user()?),
        before: before.map(Box::new),
        freed: other.is_some(),
    })
}

/// Whether its name can be another's: a local user's who was removed, with whom all that let them in has ended. Whom a provider knows
/// is kept out by the record, and the hub makes its own admin anew under that name.
fn is_free(user: &UserRow) -> bool {
    user.disabled && user.provider.is_none() && user.name != FIRST_ADMIN
}

/// Gives the name of a user who was removed up, for one that nobody else can have.
async fn put_aside(write: &mut Write, user: &UserRow) -> Result<()> {
    sqlx::query("UPDATE \"user\" SET name = name || ' ' || id, rev = rev + 1 WHERE id = $1")
        .bind(&user.id)
        .execute(&mut *write.tx)
        .await
        .map_err(db("free the name of a user who was removed"))?;
    Ok(())
}

async fn insert(write: &mut Write, arrival: &Arrival, now: OffsetDateTime) -> Result<()> {
    sqlx::query(
        "INSERT INTO \"user\" (id, name, issuer, subject, roles, groups, created_at, updated_at, vouched_at)
         VALUES ($1, $2, $3, $4, '[]', $5, $6, $6, $6)",
    )
    .bind(&arrival.id)
    .bind(&arrival.name)
    .bind(&arrival.issuer)
    .bind(&arrival.subject)
    .bind(to_json(&arrival.groups))
    .bind(to_ms(now))
    .execute(&mut *write.tx)
    .await
    .map_err(db("store a user"))?;
    Ok(())
}

/// The person is who the provider's subject says, so grants follow a new name.
async fn update(
    write: &mut Write,
    user: &UserRow,
    arrival: &Arrival,
    now: OffsetDateTime,
) -> Result<()> {
    const DOING: &str = "store what changed of a user";
    let groups: Vec<String> = arrival.groups.iter().cloned().collect();
    let same = user.name == arrival.name && user.groups == groups;
    // A time that is yet to come is of a clock that was ahead, and would keep groups in force until it is there and longer.
    let lately = |p: &Provided| !p.refused && p.vouched_at <= now && now - p.vouched_at < VOUCHED;
    if same && user.provider.as_ref().is_some_and(lately) {
        return Ok(());
    }
    sqlx::query(
        "UPDATE \"user\" SET name = $1, groups = $2, updated_at = $3, rev = rev + $4, vouched_at = $3, refused_at = NULL
         WHERE id = $5",
    )
    .bind(&arrival.name)
    .bind(to_json(&groups))
    .bind(to_ms(now))
    .bind(i64::from(!same))
    .bind(&user.id)
    .execute(&mut *write.tx)
    .await
    .map_err(db(DOING))?;
    if user.name != arrival.name {
        // Those that were revoked, too: they are told to this person, and not to whoever has the name next.
        sqlx::query(
            "UPDATE access_grant SET subject = 'user:' || $1, updated_at = $2, rev = rev + 1
             WHERE subject = 'user:' || $3",
        )
        .bind(&arrival.name)
        .bind(to_ms(now))
        .bind(&user.name)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    }
    Ok(())
}
