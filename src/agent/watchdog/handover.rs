//! The agent's own change of what the engine reads the catalog with: a new deploy key, new host keys, other signers.
//!
//! With Argo CD its project is written, too, where that is to name other signers.
//!
//! That the cluster still holds what was right a moment ago is no fault: it is written at once, and no heal is told of.
//! In a maintenance window, or beside a foreign manager, nothing is written; the planner does it when that is over. So it is for one
//! object with a window of its own: until the engine has the new key and has answered with it, the former one stays in use. A Secret
//! of signers that is not wanted any more is no matter of the planner's: people are told to remove it.

use std::borrow::Cow;

use time::OffsetDateTime;
use tracing::{info, warn};

use super::Watchdog;
use super::attend::Guard;
use crate::agent::Desired;
use crate::agent::apply::Hands;
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{KEYRING, KNOWN_HOSTS};
use crate::agent::engine::compare::drift;
use crate::agent::engine::flux::SIGNERS;
use crate::agent::observe::View;
use crate::agent::plan::quarantine::shield;
use crate::agent::plan::{self, Action, History, Mode, Observed, Step, health, window};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::keys::Public;
use crate::ssh::GitUrl;
use crate::ssh::known_hosts::KnownHosts;

/// What is said of the signers' Secret: no later round looks at it.
const BEHIND: &str = "nothing is to be verified any more, and the Secret is left behind; remove it by hand once the source does not name it";

/// Since when the engine has what it is to read with now.
#[derive(Debug, Default)]
pub(super) struct Handover {
    since: Option<(String, OffsetDateTime)>,
}

impl Handover {
    /// All of its times that have been.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        self.since.iter_mut().map(|(_, at)| at)
    }
}

/// What becomes of the present rounds where something else is wanted.
pub(super) enum Redirect {
    /// Nothing will be wanted any more.
    Over,
    /// Other objects are to be watched.
    Anew,
    On(Box<(Install, Desired)>),
}

impl Watchdog {
    /// Takes up what is wanted now.
    pub(super) async fn redirected(
        &mut self,
        told: bool,
        (install, desired): (&Install, &Desired),
        view: &View,
    ) -> Redirect {
        let next = self.desired.borrow_and_update().clone();
        let Some(next) = next.filter(|_| told) else {
            return Redirect::Over;
        };
        let wanted = self.renew(&next, desired);
        let goes_on = !next.rests && next.kind() == desired.kind();
        if goes_on {
            // The last plan may be a minute old.
            let live = self.context.around(view.subscribe().borrow().clone());
            let plan = plan::plan(clock::now(), install, &live, &self.history);
            let guard = self.guard(install, view, &live);
            if plan.mode == Mode::Act {
                let work = Box::pin(self.hand_over(install, &wanted, view, &live));
                let ((), cut) = Guard::beside(guard.as_ref(), work).await;
                self.heed(cut, "another key");
            } else if let Some(id) =
                no_signers(install, &wanted).filter(|id| live.objects.contains_key(id))
            {
                warn!(object = %id, "{BEHIND}: nothing is written now");
            }
        }
        if !goes_on || !wanted.wanted.keys().eq(install.wanted.keys()) {
            self.desired.mark_changed();
            return Redirect::Anew;
        }
        Redirect::On(Box::new((wanted, next)))
    }

    /// Writes the Secret and the host keys that are to be others than before.
    pub(super) async fn hand_over(
        &mut self,
        before: &Install,
        now: &Install,
        view: &View,
        observed: &Observed,
    ) {
        let (kube, saves) = (self.context.kube.clone(), self.saves.clone());
        let hands = Hands {
            kube: &kube,
            install: now,
            view,
            observed,
            saves: &saves,
        };
        let (resting, due) = parted(clock::now(), changed(before, now, observed), observed);
        for target in resting {
            info!(object = %target, "somebody is at work on it: it is written when the maintenance window on it ends");
        }
        for target in due {
            if !self.context.term.holds() {
                return;
            }
            info!(object = %target, "the engine gets what it is to work with now");
            let action = if target == now.sync {
                Action::Apply
            } else {
                Action::WriteSecret
            };
            let step = Step {
                action,
                target,
                cause: None,
            };
            let kept = written_from(now, &step.target, observed, &self.history);
            let hands = Hands {
                install: &kept,
                ..hands
            };
            let done = hands.act(&step, &[]).await;
            self.note(&step, &done.outcome, observed);
        }
        let signers = no_signers(before, now).and_then(|id| Some((observed.objects.get(&id)?, id)));
        if let Some((live, id)) = signers {
            // As long as the source names it, nothing would be fetched without it.
            let of_it = vec![id.clone(), now.source.clone()];
            if !parted(clock::now(), of_it, observed).0.is_empty() {
                warn!(object = %id, "{BEHIND}: somebody is at work on it, or on the source that names it");
                return;
            }
            match hands.forget(&id, &live.uid).await {
                Ok(()) => info!(object = %id, "nothing is verified any more"),
                Err(error) => warn!(object = %id, error = format!("{error:#}"), "{BEHIND}"),
            }
        }
    }

    /// Tells when the engine has answered a probe that was sent after it got its present deploy key.
    pub(super) fn see_fetch(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        desired: &Desired,
        observed: &Observed,
    ) {
        let key = Public::from_openssh(&desired.deploy_key.public).map(Public::fingerprint);
        let holds = holds(install, observed, &install.secret);
        let Some(key) = key.ok().filter(|_| holds) else {
            self.handover.since = None;
            return;
        };
        let known = self.handover.since.as_ref().filter(|(had, _)| *had == key);
        let since = known.map_or(now, |(_, since)| *since);
        if known.is_none() {
            self.handover.since = Some((key.clone(), now));
            if desired.deploy_key.unsettled {
                // As after any write: the engine is asked at once.
                self.history.last_write = self.history.last_write.max(Some(now));
            }
        }
        // Another part that is down for days must not keep an old key at the Git host for as long.
        if health::answered_since(install, observed).is_some_and(|asked| asked >= since) {
            self.context.fetched.send_if_modified(|fetched| {
                let changed = *fetched != key;
                fetched.clone_from(&key);
                changed
            });
        }
    }
}

/// Whether an object is as we want it.
fn holds(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let wanted = install.wanted.get(id).map(|w| w.expect.as_ref());
    let live = observed.objects.get(id).map(|o| &o.fields);
    wanted
        .zip(live)
        .is_some_and(|(wanted, live)| drift(wanted, live).is_empty())
}

/// Fingerprints of the Git host's keys that the engine has; none while it lacks what they are in.
pub(super) fn trusted(install: &Install, observed: &Observed) -> Vec<String> {
    let mut carriers = install
        .wanted
        .keys()
        .filter(|id| **id == install.secret || id.name == KNOWN_HOSTS);
    if !carriers.all(|id| holds(install, observed, id)) {
        return Vec::new();
    }
    let catalog = install.catalog();
    let url: Option<GitUrl> = catalog.source().parse().ok();
    let known = KnownHosts::parse(&catalog.known_hosts).ok();
    let keys = url.zip(known).map(|(url, known)| {
        let keys = known.host_keys(&url.host, url.port);
        keys.into_iter().map(|k| k.fingerprint).collect()
    });
    keys.unwrap_or_default()
}

/// Secrets, keys and the source of ours that are not the same in both installs, in the order in which they are written: what the
/// source refers to comes before it. So it is with Argo CD's keys and the project that names them, and the other way round where
/// nobody signs any more: a head that nobody has signed is applied only when that is over.
fn changed(before: &Install, now: &Install, observed: &Observed) -> Vec<ObjectId> {
    // Its root, when an engine may prune again that has taken another one's place.
    let root = |id: &ObjectId| before.prunes() != now.prunes() && now.sync == *id;
    let reads = |id: &ObjectId| id.kind == Kind::Secret || id.name == KNOWN_HOSTS || root(id);
    let differs = |id: &ObjectId| {
        let [before, now] = [before, now].map(|i| i.wanted.get(id).map(|w| &w.expect));
        let made = [SIGNERS, KEYRING].contains(&id.name.as_str());
        before != now && (made || before.is_some() && observed.objects.contains_key(id))
    };
    let ring = |id: &ObjectId| id.kind == Kind::ConfigMap && id.name == KEYRING;
    let verifies = |id: &ObjectId| ring(id) || id.kind == Kind::AppProject;
    let signing = now.wanted.keys().filter(|id| verifies(id) && differs(id));
    // In the order of the kinds: keys first.
    let mut signing: Vec<&ObjectId> = signing.collect();
    if now.catalog().signers.is_empty() {
        signing.reverse();
    }
    let secrets = now.wanted.keys().filter(|id| reads(id) && differs(id));
    let source = Some(&now.source).filter(|id| id.kind == Kind::GitRepository && differs(id));
    secrets.chain(source).chain(signing).cloned().collect()
}

/// What one of them is written from: as in any step, the root leaves alone what is held, and stays stopped where a person stopped it.
fn written_from<'a>(
    now: &'a Install,
    id: &ObjectId,
    observed: &Observed,
    history: &History,
) -> Cow<'a, Install> {
    let shielded = shield::shielded(now, observed);
    plan::find::as_stopped(shielded, id, observed, history)
}

/// Those with a maintenance window of their own, and the others.
fn parted(
    at: OffsetDateTime,
    changed: Vec<ObjectId>,
    observed: &Observed,
) -> (Vec<ObjectId>, Vec<ObjectId>) {
    let rests = |id: &ObjectId| window::rests(at, observed, id);
    changed.into_iter().partition(rests)
}

/// The Secret of signers that is not wanted any more.
fn no_signers(before: &Install, now: &Install) -> Option<ObjectId> {
    let mut of_signers = before.wanted.keys().filter(|id| id.name == SIGNERS);
    of_signers.find(|id| !now.wanted.contains_key(*id)).cloned()
}

#[cfg(test)]
mod tests;
