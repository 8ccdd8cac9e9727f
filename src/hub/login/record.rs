//! Logins and refused ones, on record.

use super::{Arriving, From, LoginError};
use crate::hub::audit::{Entry, Verdict};
use crate::hub::oidc::claims::Identity;
use crate::hub::store::UserRow;
use crate::hub::{Hub, chain_of};

pub(super) async fn on_record(
    hub: &Hub,
    arriving: &Arriving,
    identity: &Identity,
    how: &str,
    from: &From,
) -> Result<(), LoginError> {
    let user = arriving.user();
    // What is on record of the name before that is another's.
    let name = if arriving.has_freed_name() {
        ", under the name of a local user who was removed"
    } else {
        ""
    };
    let mut target = format!("by {how}{name}, groups {:?}", user.groups);
    if identity.left_out > 0 {
        let more = format!(
            ", {} of the provider's groups do not fit",
            identity.left_out
        );
        target.push_str(&more);
    }
    logged_in(hub, user, &target, from).await
}

/// Puts another name on record: what was granted to the one before is granted to it from then on.
pub(super) async fn renamed(hub: &Hub, arriving: &Arriving, from: &From) -> Result<(), LoginError> {
    let Some(before) = arriving.name_before() else {
        return Ok(());
    };
    let name = &arriving.user().name;
    let entry = Entry {
        actor: format!("user:{before}"),
        action: "user.rename".to_owned(),
        target: format!("{before} became {name}, with the grants for user:{before}"),
        request_id: from.request_id.clone(),
        remote: from.remote.clone(),
        ..Entry::default()
    };
    Ok(hub.audit.change(entry).await?)
}

/// Puts a login on record before there is a session.
pub(super) async fn logged_in(
    hub: &Hub,
    user: &UserRow,
    target: &str,
    from: &From,
) -> Result<(), LoginError> {
    let entry = Entry {
        actor: format!("user:{}", user.name),
        action: "login".to_owned(),
        target: crate::hub::cut(target, 1_000).to_owned(),
        request_id: from.request_id.clone(),
        remote: from.remote.clone(),
        ..Entry::default()
    };
    Ok(hub.audit.event(entry).await?)
}

pub(super) async fn refused_on_record(hub: &Hub, error: &LoginError, how: &str, from: &From) {
    let (why, _) = error.words();
    tracing::warn!(request = from.request_id, why, "login refused");
    let entry = Entry {
        actor: "anyone".to_owned(),
        action: "login".to_owned(),
        target: format!("by {how}"),
        request_id: from.request_id.clone(),
        verdict: Verdict::Deny,
        reason: Some(why),
        remote: from.remote.clone(),
        ..Entry::default()
    };
    if let Err(error) = hub.audit.refused(entry).await {
        tracing::error!(
            error = chain_of(&error),
            "a refused login could not be put on record"
        );
    }
}
