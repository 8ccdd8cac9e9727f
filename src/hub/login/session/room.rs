//! How many sessions a user may have: a login beyond that ends the one that was used least lately.

use time::OffsetDateTime;

use super::end;
use crate::clock;
use crate::hub::Hub;
use crate::hub::login::{From, LoginError};
use crate::hub::store::Session;

/// Those of one user that hold at once, as many as tokens.
const MOST: usize = 200;
const WHY: &str = "the user has 200 other sessions that were used since";

/// Makes room for one session more.
pub(super) async fn make_room(hub: &Hub, user_id: &str, from: &From) -> Result<(), LoginError> {
    let sessions = hub.store.sessions_of(user_id).await?;
    let surplus = surplus(sessions, clock::now());
    if surplus.is_empty() {
        return Ok(());
    }
    let Some(user) = hub.store.user_by_id(user_id).await? else {
        return Ok(());
    };
    for session in surplus {
        end(hub, &session.id, &user, WHY, from).await?;
    }
    Ok(())
}

/// Of a user's sessions those that go.
fn surplus(mut sessions: Vec<Session>, now: OffsetDateTime) -> Vec<Session> {
    sessions.retain(|s| !s.ended && now < s.idle_until && now < s.expires_at);
    // With each use it lies idle from later on.
    sessions.sort_by(|a, b| (b.idle_until, &b.id).cmp(&(a.idle_until, &a.id)));
    sessions.split_off(sessions.len().min(MOST - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds)
    }

    fn session(n: usize, idle_until: i64) -> Session {
        Session {
            id: format!("{n:04}"),
            user_id: "u".to_owned(),
            sealed: None,
            asked_at: at(0),
            idle_until: at(idle_until),
            expires_at: at(1_000),
            ended: false,
        }
    }

    #[test]
    fn one_login_more_ends_the_session_that_was_used_least_lately() {
        let all = |most: usize| -> Vec<Session> {
            let held = (0..most).map(|n| session(n, if n == 7 { 300 } else { 500 }));
            // What holds no more takes no place.
            let over = (most..2 * most).map(|n| session(n, 200));
            held.chain(over).collect()
        };
        let ids = |most: usize| -> Vec<String> {
            let gone = surplus(all(most), at(200)).into_iter();
            gone.map(|session| session.id).collect()
        };
        assert_eq!(ids(0), Vec::<String>::new());
        assert_eq!(ids(MOST - 1), Vec::<String>::new());
        assert_eq!(ids(MOST), ["0007"]);
        assert_eq!(ids(MOST + 1), ["0000", "0007"]);
    }
}
