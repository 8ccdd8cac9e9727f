//! What ends with a cluster, beside its own keys and its line.

use super::super::Caller;
use super::super::problem::Problem;
use crate::hub::Hub;
use crate::hub::running::Gone;
use crate::hub::store::EndedAccess;

/// Ids that one record has at most.
const RECORDED: usize = 100;

/// What was for this cluster by its name is over: what runs by it ends, and the record says what that was.
pub(super) async fn access_over(
    hub: &Hub,
    caller: &Caller,
    name: &str,
    ended: &EndedAccess,
) -> Result<(), Problem> {
    for id in &ended.revoked_grants {
        hub.requests.end(Gone::Grant(id));
    }
    for id in &ended.revoked_tokens {
        hub.requests.end(Gone::Token(id));
    }
    hub.access_changed.notify_one();
    for (action, how, ids) in [
        ("grant.revoke", "for it alone", &ended.revoked_grants),
        ("grant.narrow", "without it", &ended.narrowed_grants),
        ("token.revoke", "for it alone", &ended.revoked_tokens),
        ("token.narrow", "without it", &ended.narrowed_tokens),
    ] {
        // So many ids to a record, however many there are.
        for ids in ids.chunks(RECORDED) {
            let target = format!("{how}: {}", ids.join(" "));
            caller.record(hub, action, Some(name), &target).await?;
        }
    }
    Ok(())
}
