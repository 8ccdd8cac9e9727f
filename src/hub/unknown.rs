//! Agents with good signatures by keys that the hub does not know: a hub that was restored from a backup older than they
//! are, or a cluster that was copied. They are listed for people, and nothing is concluded from what they claim.

use super::store::{UnknownAgent, UnknownReason};
use super::{Hub, chain_of, cut};
use crate::clock;
use crate::keys::Public;

/// How often a listed agent shall ask for its line, in milliseconds: once it is accepted it is in within 10 s.
const AGAIN: u32 = 5_000;
const MAX_ADDR: usize = 100;
/// As in a join.
const MAX_INCARNATION: usize = 100;

/// Lists an agent whose signature was good; gives when it shall ask again, 0 = as it likes.
pub async fn said(hub: &Hub, agent: UnknownAgent) -> u32 {
    let agent = UnknownAgent {
        addr: plain(&agent.addr, MAX_ADDR),
        incarnation: agent.incarnation.map(|text| plain(&text, MAX_INCARNATION)),
        ..agent
    };
    match hub.store.note_unknown(agent).await {
        Ok(true) => AGAIN,
        Ok(false) => 0,
        Err(error) => {
            tracing::error!(error = chain_of(&error), "list an unknown agent");
            0
        }
    }
}

/// The same from a call's body: a name that is none claims nothing.
pub async fn claimed(
    hub: &Hub,
    (public, cluster, incarnation): (Public, &str, Option<String>),
    reason: UnknownReason,
    addr: &str,
) {
    let Ok(cluster) = cluster.parse() else {
        return;
    };
    let now = clock::now();
    let agent = UnknownAgent {
        public,
        cluster,
        incarnation,
        reason,
        addr: addr.to_owned(),
        first_seen: now,
        last_seen: now,
    };
    said(hub, agent).await;
}

/// Fit for a terminal.
fn plain(text: &str, max: usize) -> String {
    let shown = cut(text, max).chars();
    shown
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_is_short_and_without_control_characters() {
        assert_eq!(plain("uid\u{1b}[31m\0", 100), "uid\u{fffd}[31m\u{fffd}");
        assert_eq!(plain("äöü", 3), "ä");
    }
}
