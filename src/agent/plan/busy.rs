//! A controller all of whose workers are with objects that take their time: what it is asked waits until one of them is
//! free, and started again it would only begin anew.

use kube::core::DynamicObject;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::health::works;
use super::latent::is_network;
use super::state::{History, Observed};
use super::undecodable::{self, duration};
use super::{ownership, project, shard};
use crate::agent::engine::{Install, flux};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// Objects that kustomize-controller, and helm-controller, work on at a time, unless an argument says otherwise (their `main.go`).
const WORKERS: usize = 4;
/// How long one action of Helm's may take, unless the `HelmRelease` says otherwise (its CRD).
const ACTION: Duration = Duration::minutes(5);
/// As many repositories does source-controller fetch at a time (its `main.go`).
const FETCHERS: usize = 2;
const WORKERS_FLAG: &str = "--concurrent";
/// The least timeout of a Kustomization, and what its interval leaves for one that names none (its `GetTimeout`).
const LEAST: Duration = Duration::seconds(30);
/// How helm-controller says that an action of Helm's is under way (its `atomic_release.go`).
const RUNNING: &str = "Running '";
/// The longest turn that is waited for.
const LONGEST: Duration = Duration::hours(2);
/// How long a fetch may take, unless the `GitRepository` says otherwise (its CRD).
const FETCH: Duration = Duration::seconds(60);
/// The longest queue that is waited for.
const LONGEST_QUEUE: Duration = Duration::minutes(15);

/// How long a worker may be with an object: from when it said so, or the object began to go, to when its timeouts are over. Argo CD
/// says only when it was done with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub began: OffsetDateTime,
    pub ends: OffsetDateTime,
}

impl Turn {
    /// The turn that a Kustomization or a `HelmRelease` has, or that an Application had last; none where it waits, or is none.
    pub fn of(kind: Kind, live: &DynamicObject) -> Option<Self> {
        match kind {
            Kind::Kustomization => {
                let long = longest_try(&live.data)?;
                let policy = live.data.pointer("/spec/deletionPolicy");
                let waits = policy.and_then(Value::as_str) == Some("WaitForTermination");
                let end = Self::of_end(live, long).filter(|_| waits);
                end.or_else(|| Self::of_try(live, long))
            }
            Kind::HelmRelease => {
                let long = whole(of_release(&live.data));
                // What does not come to its end is tried again.
                let end = Self::of_end(live, LONGEST);
                let action = end.or_else(|| Self::of_action(live, long));
                action.or_else(|| Self::of_try(live, long))
            }
            Kind::Application => {
                let looked = live.data.pointer("/status/reconciledAt")?.as_str()?;
                let at = parse_rfc3339(looked)?;
                Some(Self {
                    began: at,
                    ends: at,
                })
            }
            _ => None,
        }
    }

    /// Of one that goes, while its controller takes away what it brought: of that it may say nothing before it is done.
    fn of_end(live: &DynamicObject, long: Duration) -> Option<Self> {
        let meta = &live.metadata;
        let began = project::at(meta.deletion_timestamp.as_ref()?)?;
        let mut finalizers = meta.finalizers.iter().flatten();
        let pinned = finalizers.any(|f| flux::TRAITS.is_finalizer(f));
        let suspended = live.data.pointer("/spec/suspend") == Some(&Value::Bool(true));
        Self::lasting(began, long).filter(|_| pinned && !suspended)
    }

    /// Of an action of Helm's. While a release is tested or undone it stays as ready as it was.
    fn of_action(live: &DynamicObject, long: Duration) -> Option<Self> {
        let began = since(live, "Reconciling", |status, message| {
            status == "True" && message.starts_with(RUNNING)
        });
        Self::lasting(began?, long)
    }

    /// From when it said that it is neither ready nor not. Between two tries it says that it is not ready.
    fn of_try(live: &DynamicObject, long: Duration) -> Option<Self> {
        let began = since(live, "Ready", |status, _| status == "Unknown");
        Self::lasting(began?, long)
    }

    fn lasting(began: OffsetDateTime, long: Duration) -> Option<Self> {
        let ends = began.checked_add(long)?;
        Some(Self { began, ends })
    }
}

/// Since when a condition is as it is, where its status and its message are such.
fn since(
    live: &DynamicObject,
    kind: &str,
    are: impl Fn(&str, &str) -> bool,
) -> Option<OffsetDateTime> {
    let conditions = live.data.pointer("/status/conditions")?.as_array()?;
    let is_it = |c: &&Value| c.get("type").and_then(Value::as_str) == Some(kind);
    let said = conditions.iter().find(is_it)?;
    let text = |name: &str| said.get(name).and_then(Value::as_str);
    let such = are(text("status")?, text("message").unwrap_or_default());
    parse_rfc3339(text("lastTransitionTime").filter(|_| such)?)
}

/// Timeouts, and what it takes to begin and to end.
fn whole(timeouts: Duration) -> Duration {
    (timeouts + LEAST).min(LONGEST)
}

/// How long one try of a Kustomization may take; none where that cannot be read.
pub(super) fn longest_try(data: &Value) -> Option<Duration> {
    timeout(data).map(|one| whole(one * 2))
}

/// The same of a part of it that has the whole timeout: to apply what it brings, or to wait for that.
pub(super) fn longest_stage(data: &Value) -> Option<Duration> {
    timeout(data).map(whole)
}

/// An upgrade, its test and what undoes it, one after the other, each with a time of its own (`HelmRelease` v2, `timeout`).
fn of_release(data: &Value) -> Duration {
    let at = |pointer: &str| duration(data.pointer(pointer)?.as_str()?);
    let whole = at("/spec/timeout").unwrap_or(ACTION);
    let longest = |names: &[&str]| {
        let own = names
            .iter()
            .filter_map(|name| at(&format!("/spec/{name}/timeout")));
        own.max().unwrap_or(whole).clamp(LEAST, LONGEST)
    };
    longest(&["install", "upgrade"]) + longest(&["test"]) + longest(&["rollback", "uninstall"])
}

/// The time that a Kustomization has to be applied; after that, what it waits for has it again.
fn timeout(data: &Value) -> Option<Duration> {
    let at = |pointer: &str| duration(data.pointer(pointer)?.as_str()?);
    let timeout = at("/spec/timeout").or_else(|| Some(at("/spec/interval")? - LEAST))?;
    Some(timeout.clamp(LEAST, LONGEST))
}

/// Whether each worker of the controller of `asked` is with an object of that kind below the root. `late`: what is being deleted
/// counts no more, for of that the controller may have said nothing. Nor does what is of a shard with a controller of its own.
fn all_at_work(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (asked, late): (&ObjectId, bool),
) -> bool {
    if install.traits.kind != EngineKind::Flux {
        return false;
    }
    let selector = shard::selector_of(observed, &install.controller(asked));
    let below = observed.children.iter();
    let below = below.filter(|(id, child)| id.kind == asked.kind && !(late && child.fate.dying));
    let under_way = below.filter(|(_, child)| {
        let is_under_way = |turn: Turn| turn.began <= now && now < turn.ends;
        child.turn.is_some_and(is_under_way) && child.shard.is_seen_with(selector)
    });
    let count = under_way.count();
    count > 0 && count >= concurrent(install, observed, asked).unwrap_or(WORKERS)
}

/// When an Argo CD was last done with an Application below the root: while it goes from one to the next, the root waits for
/// its turn.
fn done_with_one(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
) -> Option<OffsetDateTime> {
    if install.traits.kind != EngineKind::Argocd {
        return None;
    }
    let turns = observed.children.values().filter_map(|c| c.turn);
    turns.map(|turn| turn.ends).filter(|at| *at <= now).max()
}

/// How long a fetch of a `GitRepository` takes that may well not end before its time is over: the first one, and one from
/// a host that does not answer. None where it is done at once.
pub fn fetch(kind: Kind, live: &DynamicObject) -> Option<Duration> {
    let suspended = live.data.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if kind != Kind::GitRepository || suspended || live.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let conditions = live.data.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let text = |c: &Value, name: &str| c.get(name).and_then(Value::as_str).map(str::to_owned);
    let ready = conditions.find(|c| text(c, "type").as_deref() == Some("Ready"));
    let said = ready.and_then(|c| Some((text(c, "status")?, text(c, "message")?)));
    let slow = said.is_none_or(|(status, message)| match status.as_str() {
        "True" => false,
        "False" => is_network(&message),
        _ => true,
    });
    let timeout = live.data.pointer("/spec/timeout").and_then(Value::as_str);
    slow.then(|| timeout.and_then(duration).unwrap_or(FETCH).min(LONGEST))
}

/// How long the root may wait until other repositories have had their time; they are fetched in turn.
pub fn queue(install: &Install, observed: &Observed) -> Duration {
    let selector = shard::selector_of(observed, &install.controller(&install.source));
    let slow = observed.children.values().filter(|c| c.fetch.is_some());
    let own = slow.filter(|c| c.shard.is_seen_with(selector));
    let ahead = own.filter_map(|c| c.fetch);
    let ahead = ahead.fold(Duration::ZERO, |all, one| {
        all.saturating_add(one).min(LONGEST)
    });
    if ahead.is_zero() {
        return ahead;
    }
    let fetchers = concurrent(install, observed, &install.source).unwrap_or(FETCHERS);
    (ahead / i32::try_from(fetchers.max(1)).unwrap_or(i32::MAX)).min(LONGEST_QUEUE)
}

/// What the controller of an object was told of its workers.
fn concurrent(install: &Install, observed: &Observed, asked: &ObjectId) -> Option<usize> {
    let controller = install.controller(asked);
    let live = observed.objects.get(&controller)?;
    shard::argument(&live.fields, WORKERS_FLAG)?.parse().ok()
}

impl History {
    /// Until when the controller of an object of this `kind` had no worker left for an answer that it owes since then.
    pub(super) fn working_until(
        &self,
        now: OffsetDateTime,
        kind: Kind,
        owed: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        match kind {
            Kind::Kustomization => self.at_work,
            // One worker of Argo CD's may hang while the others go on.
            Kind::Application => self.at_work.filter(|_| now - owed < LONGEST_QUEUE),
            Kind::HelmRelease => self.releasing,
            _ => None,
        }
    }

    /// Notes when the controller had no worker left, for until then it could not answer, what only controllers of shards cannot
    /// read, since when each workload does not work, how often its Pods failed, what the root applied, since when each answer is owed, and when an order was heard of.
    pub fn noted(&mut self, now: OffsetDateTime, install: &Install, observed: &Observed) {
        let is_told = |id: &&ObjectId| {
            let past = self.faults.get(&(Class::UndecodableObject, (*id).clone()));
            past.is_some_and(|past| past.since.is_some())
        };
        self.apart = undecodable::apart(observed, self.apart.iter().filter(is_told));
        let live = |id: &ObjectId| observed.objects.get(id);
        let down = install
            .workloads()
            .filter(|id| live(id).is_some_and(|live| !works(live)));
        let since = |id: &ObjectId| self.down.get(id).copied().unwrap_or(now);
        self.down = down.map(|id| (id.clone(), since(id))).collect();
        // Before one that hangs, what is deleted piles up, and would be an excuse without an end.
        let late = |id: &ObjectId| {
            let silent = self.silent.get(id);
            silent.is_some_and(|silence| now - silence.since >= LONGEST)
        };
        let is_busy = |id: &ObjectId| all_at_work(now, install, observed, (id, late(id)));
        let (applying, releasing) = (is_busy(&install.sync), install.canaries().any(is_busy));
        if applying {
            self.at_work = Some(now);
        }
        if releasing {
            self.releasing = Some(now);
        }
        self.at_work = self.at_work.max(done_with_one(now, install, observed));
        self.heard_order(now, install);
        self.saw_operation(now, install, observed);
        self.saw_revision(now, install, observed);
        self.saw_automated(install, observed);
        self.saw_stops(install, observed);
        self.saw_versions(now, install, observed);
        self.saw_rights(install, observed);
        self.saw_complaints(now, install, observed);
        self.saw_unready(now, observed);
        self.saw_exits(now, install, observed);
        self.saw_silence(now, install, observed);
        self.saw_dropped(now, &ownership::taken(install, observed), observed);
    }
}

#[cfg(test)]
mod tests;
