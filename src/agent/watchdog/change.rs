//! Follows a change of the engine by the hub to its end: it works, or what was before has to come back.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Watchdog;
use crate::agent::calls::CALL;
use crate::agent::engine::{GUARD, Install, MANAGER, Site, is_engines, is_git_owned};
use crate::agent::fault::Stage;
use crate::agent::observe::api;
use crate::agent::plan::change::{self, Before, Change, Progress, Seen};
use crate::agent::plan::{Mode, Observed, Plan, ownership, replace, window};
use crate::agent::{Desired, Verdict, replace as other};
use crate::bundle::ObjectId;
use crate::clock;

/// Between two tries to remove what is left over.
const AGAIN: Duration = Duration::from_secs(10);

/// A change that is followed.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// Its number, and whether it is the way back.
    what: Option<(u64, bool)>,
    since: Option<OffsetDateTime>,
    /// When nothing could be done about it last.
    held: Option<OffsetDateTime>,
    /// When it waited last for the window on one object, with all else at work.
    waited: Option<OffsetDateTime>,
    /// Whether it did so when it was looked at last.
    waits: bool,
    /// Since when all controllers run as wanted.
    rolled: Option<OffsetDateTime>,
    trimmed: Option<OffsetDateTime>,
    /// Since when the Pods of the engine that was replaced are waited for.
    ending: Option<OffsetDateTime>,
    /// What keeps it from its end although all is as wanted, for people.
    lacks: Option<String>,
}

impl Changing {
    /// Begins anew with another change, and with the way back from one.
    fn follow(&mut self, what: (u64, bool), now: OffsetDateTime) {
        if self.what != Some(what) {
            *self = Self {
                what: Some(what),
                since: Some(now),
                ..Self::default()
            };
        }
    }

    /// Whether it has had its time: what is wrong now is a fault.
    pub(super) fn is_old(&self, now: OffsetDateTime, change: &Change) -> bool {
        // What it does is looked at after this is asked, and before that perhaps a minute ago.
        let waited = self.waits || self.waited.is_some_and(|at| now - at < change.limit());
        !waited && self.is_old_but_for_a_window(now, change)
    }

    /// The same of all that need not wait for the window on one object.
    pub(super) fn is_old_but_for_a_window(&self, now: OffsetDateTime, change: &Change) -> bool {
        let since = self.held.max(self.since);
        since.is_some_and(|since| now - since >= change.limit())
    }

    /// Whether what differs may be no more than what the change does, or its way back.
    pub(super) fn covers(&self, now: OffsetDateTime, change: &Change) -> bool {
        // Where its way back begins is looked at after this is asked, too.
        let begins = change.failed.is_some() && self.what == Some((change.number, false));
        let goes = change.is_open() || self.what == Some((change.number, true));
        begins || (goes && !self.is_old(now, change))
    }

    /// All of its times that have been.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        let Self {
            what: _,
            since,
            held,
            waited,
            waits: _,
            rolled,
            trimmed,
            ending,
            lacks: _,
        } = self;
        let all = [since, held, waited, rolled, trimmed, ending];
        all.into_iter().flatten()
    }

    pub(super) fn lacks(&self) -> Option<&str> {
        self.lacks.as_deref()
    }
}

impl Watchdog {
    /// The install of another desired state.
    pub(super) fn renew(&mut self, next: &Desired, before: &Desired) -> Install {
        if next.install.form != before.install.form {
            let former = self.install(before);
            self.history.changes_from(&former);
            self.history.changed();
        }
        let install = self.install(next);
        if !install.changing {
            self.history.before = Before::default();
        }
        install
    }

    /// Follows the change that is under way. True = all of it runs, from now on: plan anew.
    pub(super) async fn see_change(
        &mut self,
        install: &Install,
        observed: &Observed,
        plan: &Plan,
    ) -> bool {
        let Some(change) = install.change().filter(|c| c.is_open()) else {
            if !self.goes_back(install, observed, plan) {
                self.changing = Changing::default();
            }
            if plan.mode != Mode::Learning {
                self.history.saw_catalog(install, observed, &plan.findings);
            }
            return false;
        };
        let now = clock::now();
        let what = (change.number, change.failed.is_some());
        self.changing.follow(what, now);
        match plan.mode {
            Mode::Act => {}
            Mode::Learning => return false,
            Mode::ObserveOnly if change.replaces() && change.failed.is_none() => {
                let why = plan.findings.first().map_or("", |f| f.evidence.as_str());
                let why = format!("somebody else manages {}: {why}", install.traits.kind);
                self.tell_change(Verdict::Failed(change.number, why));
                return false;
            }
            Mode::Paused(_) | Mode::ObserveOnly => self.changing.held = Some(now),
        }
        let in_force = ownership::in_force(now, install, observed, &self.history);
        self.see_wait(now, &in_force, observed, plan);
        let ailing = self.history.ailing.clone();
        let seen = Seen {
            now,
            followed: self.changing.since.unwrap_or(now),
            held: self.changing.held.max(self.changing.waited),
            install: &in_force,
            observed,
            plan,
            ailing: &ailing,
            adopted: self.history.adopted || change.both,
        };
        match change::progress(change, &seen) {
            Progress::Going(_) => (self.changing.rolled, self.changing.lacks) = (None, None),
            Progress::Failed(why) => self.tell_change(Verdict::Failed(change.number, why)),
            Progress::Rolled => {
                let new = self.changing.rolled.is_none();
                let rolled = *self.changing.rolled.get_or_insert(now);
                // Pods of before may have answered what was asked meanwhile: the new ones are asked.
                self.history.last_write = self.history.last_write.max(Some(rolled));
                let works = change::works_since(&seen);
                let lacks = if works.is_some_and(|at| at >= rolled) {
                    replace::lacks(change, install, observed)
                } else {
                    let why = "its controllers run, and do not answer, or cannot read the catalog";
                    Some(why.to_owned())
                };
                match &lacks {
                    None => self.end_change(change, install).await,
                    // What was replaced may be half gone already: then it goes on as it is.
                    Some(_) if change.both && self.changing.trimmed.is_some() => {}
                    Some(why) if change::is_late(change, &seen) => {
                        self.tell_change(Verdict::Failed(change.number, why.clone()));
                    }
                    Some(_) => {}
                }
                if lacks.is_some() {
                    self.changing.lacks = lacks;
                }
                return new;
            }
        }
        false
    }

    /// Whether the way back from a change that brought no object of its own goes on: what differs is given back, and nothing is left to
    /// remove. An agent that was started since does not know of it.
    fn goes_back(&mut self, install: &Install, observed: &Observed, plan: &Plan) -> bool {
        let followed = self.changing.what.map(|(number, _)| number);
        let failed = install.change().filter(|c| c.failed.is_some());
        let Some(change) = failed.filter(|c| followed == Some(c.number)) else {
            return false;
        };
        let now = clock::now();
        self.changing.follow((change.number, true), now);
        let in_force = ownership::in_force(now, install, observed, &self.history);
        let seen = Seen {
            now,
            followed: now,
            held: None,
            install: &in_force,
            observed,
            plan,
            ailing: &self.history.ailing,
            adopted: self.history.adopted,
        };
        let done = matches!(change::progress(change, &seen), Progress::Rolled);
        plan.mode == Mode::Learning || !(done || self.changing.is_old(now, change))
    }

    /// Notes that the change waits now, if it does, and which roots are well meanwhile.
    fn see_wait(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
        plan: &Plan,
    ) {
        let (history, findings) = (&mut self.history, &plan.findings);
        history.saw_recovery(install, observed, findings);
        let waits = change::waits(now, install, observed, history, findings).is_some();
        // A cluster in which nothing happens is looked at once a minute: it went on waiting since, and has all of its time from now on.
        if waits || self.changing.waits {
            self.changing.waited = Some(now);
        }
        self.changing.waits = waits;
        // Then only what is missing is put back.
        if window::careful(now, &install.policy).is_some() {
            self.changing.held = Some(now);
        }
    }

    /// The engine works: what it has no use for goes, then the change is over.
    async fn end_change(&mut self, change: &Change, install: &Install) {
        let now = clock::now();
        if self.changing.trimmed.is_some_and(|at| now - at < AGAIN) {
            return;
        }
        self.changing.trimmed = Some(now);
        self.context.faults.change(Stage::Proven);
        self.changing.lacks = self.left_over(change, install).await;
        if let Some(left) = &self.changing.lacks {
            warn!(left, "the change is not over; trying again");
            return;
        }
        self.context.faults.change(Stage::Trimmed);
        self.tell_change(if change.failed.is_some() {
            Verdict::Trimmed(change.number)
        } else {
            Verdict::Works(change.number)
        });
    }

    /// Removes what the engine has no use for. What is still there and why, for people; none = nothing.
    async fn left_over(&mut self, change: &Change, install: &Install) -> Option<String> {
        match self.left_behind(change, install).await {
            Ok(None) => {}
            Ok(Some(left)) => return Some(format!("the previous engine: {left}")),
            Err(error) => return Some(format!("cannot remove the previous engine: {error:#}")),
        }
        for id in change::surplus(change, install) {
            if let Err(error) = trim(&self.context.kube, &id).await {
                return Some(format!("cannot remove {id}: {error:#}"));
            }
        }
        None
    }

    /// Removes what the catalog brought for the engine that was replaced, once it stands still. None = that is done.
    async fn left_behind(&mut self, change: &Change, install: &Install) -> Result<Option<String>> {
        if !change.both {
            return Ok(None);
        }
        let kind = install.traits.kind.other();
        let places = change.objects.iter().filter_map(change::Place::id);
        let site = Site::of(kind, &self.context.engines);
        let of_it = |id: &ObjectId| {
            id.namespace == site.namespace
                || id.namespace.is_empty() && !install.wanted.contains_key(id)
        };
        let objects: Vec<ObjectId> = places.filter(of_it).collect();
        // Somebody may have brought it to life meanwhile.
        let now = clock::now();
        let since = replace::ending(change, self.changing.ending);
        let late = replace::had_their_time(since, now);
        let next = other::still(&self.context.kube, &site, &objects, late).await?;
        self.changing.ending = match next {
            // Those Pods begin anew, whatever was waited for before.
            replace::Next::Do(_) => Some(now),
            _ => replace::waits(&next, (since, late), now),
        };
        if next != replace::Next::Still {
            return Ok(Some(replace::words(&next)));
        }
        let crds = replace::foreign_crds(change, install);
        other::remove_brought(&self.context.kube, &site, &crds).await?;
        Ok(None)
    }

    fn tell_change(&self, told: Verdict) {
        let told = Some(told);
        self.context.changed.send_if_modified(|before| {
            let new = *before != told;
            before.clone_from(&told);
            new
        });
    }
}

/// Deletes an object that a bundle brought, if it is still ours.
async fn trim(kube: &Client, id: &ObjectId) -> Result<()> {
    let api = api(kube, id.kind, &id.namespace);
    let live = timeout(CALL, api.get(&id.name)).await;
    let live = match live.context("no answer in time")? {
        Ok(live) => live,
        // Where its kind is not served, either: that answer has no reason, and `get_opt` wants one.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("read {id}")),
    };
    if !is_ours(&live) {
        info!(object = %id, "left over, and left to whoever else wrote it");
        return Ok(());
    }
    let version = freed(&api, id, &live).await?;
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: live.metadata.uid.clone(),
            resource_version: version,
        }),
        ..DeleteParams::background()
    };
    let deleted = timeout(CALL, api.delete(&id.name, &params)).await;
    match deleted.context("no answer in time")? {
        Ok(_) => info!(object = %id, "removed; the engine has no use for it any more"),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        // Roles for the whole cluster are not the agent's to remove.
        Err(kube::Error::Api(status)) if status.code == 403 && !id.kind.namespaced() => {
            warn!(object = %id, "left over; remove it by hand");
        }
        Err(error) => return Err(error).with_context(|| format!("delete {id}")),
    }
    Ok(())
}

/// Takes an engine's finalizers from an object that is about to go: who would take them may go before it, and its Namespace could
/// never end. Its version after that: one that a controller has pinned once more meanwhile is freed anew. None = nothing was done.
async fn freed(
    api: &Api<DynamicObject>,
    id: &ObjectId,
    live: &DynamicObject,
) -> Result<Option<String>> {
    let all = live.metadata.finalizers.as_deref().unwrap_or_default();
    let rest: Vec<&String> = all.iter().filter(|f| !is_engines(f)).collect();
    if rest.len() == all.len() {
        return Ok(None);
    }
    let patch = Patch::Merge(json!({"metadata": {
        "finalizers": rest, "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version,
    }}));
    let params = PatchParams {
        field_manager: Some(GUARD.to_owned()),
        ..PatchParams::default()
    };
    let call = api.patch(&id.name, &params, &patch);
    match timeout(CALL, call).await.context("no answer in time")? {
        Ok(live) => Ok(live.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("free {id}")),
    }
}

fn is_ours(live: &DynamicObject) -> bool {
    let managers = live.metadata.managed_fields.iter().flatten();
    let mut managers = managers.filter_map(|entry| entry.manager.as_deref());
    let labels = json!({"metadata": {
        "labels": live.metadata.labels, "annotations": live.metadata.annotations,
    }});
    managers.any(|manager| manager == MANAGER) && !is_git_owned(&labels)
}

#[cfg(test)]
mod tests;
