//! One proof of the Git path, and what follows from it: whether there is a route, and when it is looked at again.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Held, Preparing};
use crate::agent::enroll::{Progress, gitpath};
use crate::agent::identity::{self, Identity};
use crate::agent::link::LinkState;
use crate::agent::plan::state::{OwnLook, OwnRead};
use crate::clock;
use crate::keys;
use crate::ssh::{GitUrl, Head, ProbeError, Step};
use crate::wire::api::{Assignment, CatalogRef, Via};
use crate::wire::report::{ConditionType, NO_ROUTE, Status};

/// Between proofs of a Git path that was fine the last time, and of one that was not.
pub(super) const PROBE_AGAIN: Duration = Duration::from_mins(5);
/// While the engine says that it cannot: that tells what is at fault.
const PROBE_BESIDE: Duration = Duration::from_mins(1);
/// So many probes in a row without a route say that there is none: of a path that was never proven, and of one that
/// was and may be away for a moment.
const NO_ROUTE_YET: u32 = 2;
const NO_ROUTE_ANY_MORE: u32 = 6;
/// So many refusals in a row, a minute of them, count although nobody told of them: the watchdog may see nothing of the engine.
const UNTOLD: u32 = 12;

impl Preparing {
    /// The branch, read with the deploy key from a host that shows a known key.
    pub(super) async fn probe(
        &self,
        assignment: &Assignment,
        (path, identity): (&str, &Identity),
        step: &mut Progress,
        held: &mut Held,
    ) {
        step.running().await;
        let catalog = &assignment.catalog;
        let known = !catalog.known_hosts.trim().is_empty();
        let (status, reason) = if known {
            (Status::True, "Pinned")
        } else {
            (Status::False, "Missing")
        };
        self.context
            .condition(ConditionType::HostKeysKnown, status, reason, "")
            .await;
        held.looks_at(path);
        let before = self.epoch();
        let result = match catalog.source().parse() {
            Err(error) => Err((None, format!("{error}"))),
            Ok(_) if !known => {
                let text = "the hub has no host keys of the Git host yet; add them at the hub";
                Err((None, text.to_owned()))
            }
            Ok(url) => {
                let walked = self.walk(&url, catalog, identity).await;
                held.host_key.saw(&walked, &clock::rfc3339(clock::now()));
                let read = walked.map(|head| head.commit);
                read.map_err(|error| (Some(error.step()), error.to_string()))
            }
        };
        let failed = result.as_ref().err().and_then(|(step, _)| *step);
        let line = before.filter(|_| before == self.epoch() && catalog.via == Via::Direct);
        held.no_route = unroutable(held.no_route, line, failed);
        let came_to = result.as_ref().map(|_| ()).map_err(|_| failed);
        self.came_to(came_to, path, held);
        match result {
            Ok(commit) => {
                info!(commit, "catalog read");
                self.context.own_git(Status::True, "Read", "").await;
                self.proven.send_if_modified(|old| {
                    let changed = old != path;
                    path.clone_into(old);
                    changed
                });
                step.done().await;
                let beside = self.engine_git.borrow().unreachable;
                let again = if beside { PROBE_BESIDE } else { PROBE_AGAIN };
                held.failures = 0;
                held.probe_due = Instant::now() + again;
            }
            Err((_, text)) => {
                warn!(text, "catalog not read");
                step.waiting(&text).await;
                let enough = if *self.proven.borrow() == path {
                    NO_ROUTE_ANY_MORE
                } else {
                    NO_ROUTE_YET
                };
                let reason = match held.no_route {
                    Some((_, times)) if times >= enough => NO_ROUTE,
                    _ => "NotRead",
                };
                self.context.own_git(Status::False, reason, &text).await;
                held.came_to_nothing(clock::unit(), Instant::now());
            }
        }
    }

    /// Tells what a look came to, and how far refusals say something about the key.
    fn came_to(&self, result: Result<(), Option<Step>>, path: &str, held: &mut Held) {
        self.look
            .send_modify(|own| *own = looked(*own, result, clock::now()));
        held.was_refused(matches!(result, Err(Some(Step::Auth))));
        let told = *self.proven.borrow() != path || self.engine_git.borrow().revoked;
        // The engine may meet something else a moment later.
        held.told_refusal = held.refusals > 0 && (held.told_refusal || told);
        let doubted = doubted(held.refusals, held.told_refusal);
        self.denied.send_replace(doubted);
    }

    /// The epoch of a line that is up and stays for now.
    pub(super) fn epoch(&self) -> Option<u64> {
        match &*self.link.borrow() {
            LinkState::Up { line, .. } if line.takes_streams() => Some(line.facts().epoch),
            LinkState::Up { .. } | LinkState::Down { .. } => None,
        }
    }

    async fn walk(
        &self,
        url: &GitUrl,
        catalog: &CatalogRef,
        identity: &Identity,
    ) -> Result<Head, ProbeError> {
        let key = identity::private_file(&identity.deploy, &self.context.cluster);
        let key = key.map_err(|e| ProbeError::Auth {
            text: e.to_string(),
        })?;
        let _wait = self.heart.wait(gitpath::LONGEST);
        self.path.walk(url, catalog, &key).await
    }
}

/// What the looks came to, with this one. An error has the step at which it failed, where there is one.
fn looked(before: OwnLook, result: Result<(), Option<Step>>, now: OffsetDateTime) -> OwnLook {
    match (result, before) {
        (Ok(()), OwnLook::Read(read)) => OwnLook::Read(OwnRead { last: now, ..read }),
        (Ok(()), OwnLook::Failed | OwnLook::Refused(_)) => OwnLook::Read(OwnRead {
            since: now,
            last: now,
        }),
        (Err(Some(Step::Auth)), OwnLook::Refused(since)) => OwnLook::Refused(since),
        (Err(Some(Step::Auth)), OwnLook::Failed | OwnLook::Read(_)) => OwnLook::Refused(now),
        (Err(_), _) => OwnLook::Failed,
    }
}

/// How many refusals in a row say something about the key. As the hub is then asked to register it again, after which nothing
/// is to be seen of them, those of a path that was proven are told first.
fn doubted(refusals: u32, told: bool) -> u32 {
    if told || refusals >= UNTOLD {
        refusals
    } else {
        0
    }
}

/// Probes on the same line, one after the other, that found no host or got no connection.
fn unroutable(
    before: Option<(u64, u32)>,
    line: Option<u64>,
    failed: Option<Step>,
) -> Option<(u64, u32)> {
    // Without a line, or over a change of lines, it may be the hub's own host that is away.
    let line = line?;
    match failed {
        Some(Step::Dns | Step::Tcp) => {
            let times = before
                .filter(|(epoch, _)| *epoch == line)
                .map_or(0, |b| b.1);
            Some((line, times.saturating_add(1)))
        }
        Some(Step::HostKey | Step::Offer | Step::Auth | Step::Repo | Step::Branch) | None => None,
    }
}

/// What a proof holds for: another URL, branch, host key or deploy key needs another.
pub(super) fn fingerprint(catalog: &CatalogRef, identity: &Identity) -> String {
    let key = identity.deploy.public().fingerprint();
    let url = catalog.source();
    let CatalogRef {
        branch,
        known_hosts,
        ..
    } = catalog;
    keys::sha256_hex(format!("{url}\n{branch}\n{known_hosts}\n{key}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_lasts_until_a_look_comes_to_something_else() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let at = |seconds| now + time::Duration::seconds(seconds);
        let read = |since, last| {
            OwnLook::Read(OwnRead {
                since: at(since),
                last: at(last),
            })
        };
        let mut own = OwnLook::default();
        for (second, result, expected) in [
            (1, Ok(()), read(1, 1)),
            (2, Ok(()), read(1, 2)),
            (3, Err(Some(Step::Auth)), OwnLook::Refused(at(3))),
            (4, Err(Some(Step::Auth)), OwnLook::Refused(at(3))),
            (5, Err(Some(Step::Tcp)), OwnLook::Failed),
            (6, Err(Some(Step::Auth)), OwnLook::Refused(at(6))),
            (7, Ok(()), read(7, 7)),
            (8, Err(None), OwnLook::Failed),
            (9, Err(Some(Step::Auth)), OwnLook::Refused(at(9))),
            (10, Err(Some(Step::Offer)), OwnLook::Failed),
        ] {
            own = looked(own, result, at(second));
            assert_eq!(own, expected, "{second}");
        }
    }

    /// W13: the hub registers the key again within a second; what led to it has to be on record by then.
    #[test]
    fn refusals_count_once_they_were_told_or_for_a_minute_nobody_did() {
        for (refusals, told, expected) in [
            (0, true, 0),
            (2, true, 2),
            (2, false, 0),
            (11, false, 0),
            (12, false, 12),
        ] {
            assert_eq!(doubted(refusals, told), expected, "{refusals} {told}");
        }
    }

    #[test]
    fn there_is_no_route_when_probes_fail_in_a_row_on_one_line() {
        let tcp = Some(Step::Tcp);
        let one = unroutable(None, Some(7), Some(Step::Dns));
        assert_eq!(one, Some((7, 1)));
        assert_eq!(unroutable(one, Some(7), tcp), Some((7, 2)));
        // Another line: the hub, and its Git host with it, may have been away.
        assert_eq!(unroutable(one, Some(8), tcp), Some((8, 1)));
        assert_eq!(unroutable(one, None, tcp), None);
        for other in [None, Some(Step::Auth), Some(Step::HostKey)] {
            assert_eq!(unroutable(one, Some(7), other), None, "{other:?}");
        }
    }
}
