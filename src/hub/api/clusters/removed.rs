//! What ends with a cluster, beside its own keys and its line.

use std::sync::Arc;

use super::super::Caller;
use crate::hub::audit::Entry;
use crate::hub::running::Gone;
use crate::hub::store::EndedAccess;
use crate::hub::{Hub, chain_of};

/// Ids that one record has at most.
const RECORDED: usize = 100;

/// What was for this cluster by its name is over: what runs by it ends, and the record says what that was. It is told also where whoever
/// removed the cluster has left: nothing else knows of it by then.
pub(super) async fn access_over(hub: &Arc<Hub>, caller: &Caller, name: &str, ended: &EndedAccess) {
    for id in &ended.revoked_grants {
        hub.requests.end(Gone::Grant { id, by: None });
    }
    for id in &ended.revoked_tokens {
        hub.requests.end(Gone::Token(id));
    }
    hub.access_changed.notify_one();
    let entries = entries(caller, name, ended);
    let own = hub.clone();
    let told = hub.work.spawn(async move {
        for entry in entries {
            let (action, target) = (entry.action.clone(), entry.target.clone());
            if let Err(error) = own.audit.event(entry).await {
                tracing::error!(
                    action,
                    target,
                    error = chain_of(&error),
                    "what ended with a cluster could not be put on record"
                );
            }
        }
    });
    // It says what went wrong itself.
    drop(told.await);
}

fn entries(caller: &Caller, name: &str, ended: &EndedAccess) -> Vec<Entry> {
    let kinds = [
        ("grant.revoke", "for it alone", &ended.revoked_grants),
        ("grant.narrow", "without it", &ended.narrowed_grants),
        ("token.revoke", "for it alone", &ended.revoked_tokens),
        ("token.narrow", "without it", &ended.narrowed_tokens),
    ];
    let each = kinds.into_iter().flat_map(|(action, how, ids)| {
        // So many ids to a record, however many there are.
        ids.chunks(RECORDED).map(move |ids| {
            let target = format!("{how}: {}", ids.join(" "));
            caller.entry(action, Some(name), &target)
        })
    });
    each.collect()
}
