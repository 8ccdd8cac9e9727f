//! Where the record begins, in the words of now: hubs of before signed that retention removed all before a record in the same words as
//! that there was one, so that who could write the database could turn the one into the other.

use time::Duration;

use crate::hub::HubKeys;
use crate::hub::audit::chain::{self, Head, anchor_input};
use crate::hub::store::{Anchor, AuditRow, Store, StoreError};
use crate::keys::Public;

/// A hub signs the chain's end every hour. Records that go on for longer than this behind its last signature say that some are gone.
const SIGNED_WITHIN: Duration = Duration::days(1);

/// Signs a beginning of before anew, at the first start of a hub of now and at no other.
pub(super) async fn vouch(
    store: &Store,
    hub_id: &str,
    keys: &HubKeys,
    (anchors, last): (&[Anchor], Option<&AuditRow>),
) -> Result<(), StoreError> {
    let all = keys.all();
    let known = all.iter().filter_map(|key| Public::from_base64(key).ok());
    let known: Vec<Public> = known.collect();
    let Some(start) = chain::unproven_start(hub_id, anchors, &known) else {
        return Ok(());
    };
    let behind = last
        .zip(anchors.last())
        .map(|(row, anchor)| row.at - anchor.at);
    if behind.is_some_and(|ms| Duration::milliseconds(ms) > SIGNED_WITHIN) {
        tracing::error!(
            seq = start.seq,
            "the audit goes on without the hub's signatures; where it begins is not signed anew, and 'audit verify' will say so"
        );
        return Ok(());
    }
    let head = Head {
        seq: start.seq,
        hash: start.hash,
    };
    let input = anchor_input(hub_id, head, start.at, true);
    let anew = Anchor {
        sig: keys.sign(input.as_bytes()).to_vec(),
        ..start.clone()
    };
    tracing::info!(seq = start.seq, "the audit's beginning is signed anew");
    store.sign_audit_start(&anew).await
}

#[cfg(test)]
mod tests;
