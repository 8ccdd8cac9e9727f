//! What the provider says of a session's person from one time to the next, on record before it counts: where that fails, it is asked
//! again.

use super::{Told, told};
use crate::clock;
use crate::hub::login::{Arriving, From, LoginError};
use crate::hub::running::Gone;
use crate::hub::store::{Session, UserRow};
use crate::hub::{Hub, grants};

/// Puts other groups on record.
pub(super) async fn groups_told(
    hub: &Hub,
    arriving: &Arriving,
    from: &From,
) -> Result<(), LoginError> {
    let (user, before) = (arriving.user(), arriving.groups_before());
    let Some(before) = before else {
        return Ok(());
    };
    let what = format!("groups {before:?} became {:?}", user.groups);
    let told_of = Told {
        action: "session.groups",
        user,
        target: &what,
        denied: None,
    };
    told(hub, told_of, from).await
}

/// The provider said no: what it said of the user before is over, unless another session is left to ask it by. On record first,
/// where something of the user's outlives the session; what runs by it or by their groups ends in any case.
pub(super) async fn unvouched(
    hub: &Hub,
    session: &Session,
    user: &UserRow,
    from: &From,
) -> Result<(), LoginError> {
    let now = clock::now();
    if !hub.store.is_last_to_ask_by(&session.id, now).await? {
        return Ok(());
    }
    let tokens = hub.store.api_tokens(Some(&user.id), now).await?;
    let outlived = !tokens.is_empty() || !hub.store.ssh_keys(Some(&user.id)).await?.is_empty();
    let refused = async {
        // Else the end of the session says it all.
        if outlived {
            let what = format!("groups {:?} do not count until the next login", user.groups);
            let told_of = Told {
                action: "session.groups",
                user,
                target: &what,
                denied: None,
            };
            told(hub, told_of, from).await?;
        }
        hub.store.refuse_user(&session.id, now).await?;
        Ok(())
    };
    let refused: Result<(), LoginError> = refused.await;
    if refused.is_err() {
        hub.requests.end(Gone::Token(&session.id));
    }
    grants::groups_lost(hub, &user.id, &user.groups, &[]).await?;
    refused
}
