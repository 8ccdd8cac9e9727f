//! The way in: the first admin, whose token is in the data directory. It ends by itself, for a file that everyone forgets is not to
//! open the hub for ever; whoever can start the hub anew has another.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use time::{Duration, OffsetDateTime};
use tokio_util::sync::CancellationToken;

use super::open::keep_secret;
use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{Clusters, Grant, Mode, Subject};
use crate::hub::auth::Role;
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::store::{ApiToken, Ended, FIRST_ADMIN, Store, StoreError, UserRow};

const TITLE: &str = "first admin token";
const LASTS: Duration = Duration::days(30);
/// Its end is told from then on, and so often.
const SOON: Duration = Duration::days(7);
const AGAIN: std::time::Duration = std::time::Duration::from_hours(12);
/// What to do about it.
pub const NEXT: &str = "make another while it lasts: linesman token create --user admin --title NAME --for 90d; \
     once no admin has a token, a restart of the hub writes a new admin.token";

/// The user `admin` with a token in `admin.token`. The token is made again only while no admin has one in force: then
/// the file was never written, or all have ended, or are of people for whom their identity provider has not vouched for too long, and
/// the operator needs a way in, which is a restart of the hub.
pub(super) async fn ensure(store: &Store, data: &Path, now: OffsetDateTime) -> Result<()> {
    let user = store.ensure_user(first_admin()).await?;
    store
        .ensure_default_grant(default_grant(&user, now))
        .await?;
    if store.live_admin_tokens(now).await? > 0 {
        return Ok(());
    }
    let user = as_admin(store, user, now).await?;
    let token = TokenText::new(clock::random(), clock::random());
    // The file first: a token that nobody can read would lock the operator out.
    keep_secret(&data.join("admin.token"), token.text(Prefix::Api).expose())?;
    let record = ApiToken {
        id: token.id.clone(),
        user_id: user.id,
        hash: token.hash(),
        title: TITLE.to_owned(),
        scopes: Vec::new(),
        clusters: None,
        created_by: "hub".to_owned(),
        created_at: now,
        expires_at: Some(now + LASTS),
        revoked_at: None,
    };
    let ends = record.expires_at.map(clock::rfc3339);
    store.add_api_token(record, None).await?;
    tracing::info!(file = %data.join("admin.token").display(), ends, "a token for the user admin is written");
    Ok(())
}

fn first_admin() -> UserRow {
    UserRow {
        id: clock::id(),
        name: FIRST_ADMIN.to_owned(),
        roles: vec![Role::Admin.as_str().to_owned()],
        groups: vec!["admin".to_owned()],
        disabled: false,
        provider: None,
        rev: 1,
    }
}

/// The user whom the token lets in. One that was removed meanwhile comes back, and one without the role has it again: the token
/// would be refused.
async fn as_admin(store: &Store, user: UserRow, now: OffsetDateTime) -> Result<UserRow> {
    const WHY: &str = "no admin has a token in force";
    if user.disabled {
        let user = store.add_user(first_admin(), now).await?;
        tracing::warn!(why = WHY, "the user admin was removed, and is made again");
        return Ok(user);
    }
    let role = Role::Admin.as_str();
    if user.roles.iter().any(|held| held == role) {
        return Ok(user);
    }
    let mut user = user;
    user.roles.push(role.to_owned());
    match store.set_user(user.clone(), now).await? {
        Ended::Done => {}
        Ended::Unknown | Ended::LastAdmin => {
            bail!("give the user admin its role again: somebody else changed it meanwhile");
        }
    }
    tracing::warn!(
        why = WHY,
        "the user admin had lost the role, and has it again"
    );
    Ok(user)
}

/// The first admin reaches every cluster as `linesman:admin`, until someone revokes that.
fn default_grant(admin: &UserRow, now: OffsetDateTime) -> Grant {
    Grant {
        id: clock::id(),
        subject: Subject::User(admin.name.clone()),
        clusters: Clusters::All,
        groups: ["admin".to_owned()].into(),
        act_as: [].into(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: None,
        revoked_at: None,
        revoked_by: None,
        reason: "the hub's first admin".to_owned(),
        created_by: "hub".to_owned(),
        created_at: now,
        rev: 1,
    }
}

/// What is to be said of the admins' tokens; the error is a trouble that comes.
pub async fn outlook(
    store: &Store,
    now: OffsetDateTime,
) -> Result<Result<String, String>, StoreError> {
    let tokens = store.api_tokens(None, now).await?;
    let first = tokens.iter().find(|(token, _)| is_first(token));
    let first = match first {
        None => First::Gone,
        Some((token, _)) => token.expires_at.map_or(First::Endless, First::Until),
    };
    Ok(judged(store.live_admin_tokens(now).await?, first, now))
}

fn is_first(token: &ApiToken) -> bool {
    token.created_by == "hub" && token.title == TITLE
}

/// The token in `admin.token`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Gone,
    /// As hubs of before made it.
    Endless,
    Until(OffsetDateTime),
}

/// `live` tokens of admins are in force, the `first` one among them where it is there.
fn judged(live: u32, first: First, now: OffsetDateTime) -> Result<String, String> {
    match (live, first) {
        // Whoever reads this got in by another way, such as the identity provider.
        (0, _) => Ok("none in force; a restart of the hub writes a new admin.token".to_owned()),
        (1, First::Until(end)) if end - now < SOON => Err(format!(
            "the only token of an admin is that of admin.token, which ends at {}",
            clock::rfc3339(end)
        )),
        (_, First::Endless) => Ok(format!(
            "{live} of admins in force; that of admin.token never ends: revoke it once you have another"
        )),
        (_, First::Until(end)) => Ok(format!(
            "{live} of admins in force; that of admin.token ends at {}",
            clock::rfc3339(end)
        )),
        (_, First::Gone) => Ok(format!("{live} of admins in force")),
    }
}

/// Says in the log when the way in is about to close.
pub(super) async fn watch(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    loop {
        match outlook(&hub.store, clock::now()).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => tracing::warn!(why, next = NEXT, "the first admin token"),
            Err(error) => {
                tracing::error!(error = %crate::hub::chain_of(&error), "look at the admins' tokens");
            }
        }
        let wait = stop.run_until_cancelled(tokio::time::sleep(AGAIN));
        if wait.await.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::hub::store::Arrival;
    use crate::hub::store::sqlite::Sqlite;

    #[test]
    fn the_end_of_the_only_way_in_is_told_in_time() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let soon = First::Until(now + Duration::days(6));
        let later = First::Until(now + Duration::days(8));
        assert!(judged(1, soon, now).is_err());
        for (live, first) in [
            (0, First::Gone),
            (1, later),
            (2, soon),
            (1, First::Endless),
            (1, First::Gone),
        ] {
            assert!(judged(live, first, now).is_ok(), "{live} {first:?}");
        }
    }

    async fn opened(name: &str) -> (PathBuf, Store) {
        let name = format!("linesman-first-{name}-{}", std::process::id());
        let data = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
        (data, store)
    }

    /// A removed user, or one without the role, would have a token that nobody is let in by.
    #[tokio::test]
    async fn the_first_token_is_an_admins_whatever_became_of_the_user() {
        let start = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        let end = start + LASTS;
        for (name, removed) in [("removed", true), ("without-role", false)] {
            let (data, store) = opened(name).await;
            ensure(&store, &data, start).await.unwrap();
            let user = store.user("admin").await.unwrap().unwrap();
            // As long as the token is in force, it is the last admin's.
            let done = if removed {
                store.remove_user(user.revision(), end).await.unwrap()
            } else {
                let roles = vec![Role::Viewer.as_str().to_owned()];
                let user = UserRow { roles, ..user };
                store.set_user(user, end).await.unwrap()
            };
            assert_eq!(done, Ended::Done, "{name}");
            ensure(&store, &data, end).await.unwrap();
            assert_eq!(store.live_admin_tokens(end).await.unwrap(), 1, "{name}");
            let user = store.user("admin").await.unwrap().unwrap();
            let roles = if removed { "admin" } else { "viewer admin" };
            assert_eq!(
                (user.roles.join(" "), user.groups.join(" ")),
                (roles.to_owned(), "admin".to_owned())
            );
            drop(store);
            drop(std::fs::remove_dir_all(&data));
        }
    }

    /// An admin's token that is refused, because nobody has vouched for its user for too long, is no way in.
    #[tokio::test]
    async fn a_token_of_somebody_who_is_not_vouched_for_keeps_no_other_from_being_written() {
        let (data, store) = opened("unvouched").await;
        let within = Duration::days(60);
        let store = store.vouched_within(Some(within));
        let start = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        ensure(&store, &data, start).await.unwrap();
        let arrival = Arrival {
            id: "id-ada".to_owned(),
            issuer: "https://id.example".to_owned(),
            subject: "42".to_owned(),
            name: "ada".to_owned(),
            groups: [].into(),
        };
        store.arrive(arrival, start).await.unwrap();
        let ada = store.user("ada").await.unwrap().unwrap();
        let roles = vec![Role::Admin.as_str().to_owned()];
        let made = store.set_user(UserRow { roles, ..ada }, start).await;
        assert_eq!(made.unwrap(), Ended::Done);
        let token = ApiToken {
            id: "hers".to_owned(),
            user_id: "id-ada".to_owned(),
            hash: [1; 32],
            title: "laptop".to_owned(),
            scopes: Vec::new(),
            clusters: None,
            created_by: "ada".to_owned(),
            created_at: start,
            expires_at: None,
            revoked_at: None,
        };
        store.add_api_token(token, None).await.unwrap();
        let written = || std::fs::read_to_string(data.join("admin.token")).unwrap();
        let first = written();
        let told = async |now| outlook(&store, now).await.unwrap().unwrap();
        // The first one has ended, and hers is in force for another month.
        ensure(&store, &data, start + LASTS).await.unwrap();
        assert_eq!(written(), first);
        assert_eq!(told(start + LASTS).await, "1 of admins in force");
        let over = start + within;
        assert!(told(over).await.starts_with("none in force"));
        ensure(&store, &data, over).await.unwrap();
        assert_ne!(written(), first);
        drop(store);
        drop(std::fs::remove_dir_all(&data));
    }

    /// Who has no token any more starts the hub anew.
    #[tokio::test]
    async fn the_first_token_ends_and_a_later_start_writes_another() {
        let (data, store) = opened("ends").await;
        let written = || std::fs::read_to_string(data.join("admin.token")).unwrap();
        let start = OffsetDateTime::UNIX_EPOCH + Duration::days(20_000);
        ensure(&store, &data, start).await.unwrap();
        let first = written();
        let before = start + LASTS - Duration::seconds(1);
        ensure(&store, &data, before).await.unwrap();
        assert_eq!(written(), first);
        let tokens = store.api_tokens(None, before).await.unwrap();
        assert_eq!(tokens[0].0.expires_at, Some(start + LASTS));
        ensure(&store, &data, start + LASTS).await.unwrap();
        assert_ne!(written(), first);
        let tokens = store.api_tokens(None, start + LASTS).await.unwrap();
        assert_eq!(tokens.len(), 1);
        assert!(is_first(&tokens[0].0));
        drop(store);
        drop(std::fs::remove_dir_all(&data));
    }
}
