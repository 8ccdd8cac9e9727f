//! What died with its CRD, until it is back or given up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::agent::engine::Install;
use crate::agent::plan::burst;
use crate::agent::plan::change::Change;
use crate::agent::plan::state::{History, Object, Observed, Saved};
use crate::agent::plan::window::LONGEST;
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// What went this short a time before its CRD went with it.
const TOGETHER: Duration = Duration::seconds(60);

/// What could not be brought back is tried again.
pub(in crate::agent::plan) const AGAIN: Duration = Duration::seconds(30);

/// What could not be brought back for so long is somebody's decision by now.
pub const STALE: Duration = Duration::hours(24);

/// What nobody tried to bring back for so long, although it could be there again, is somebody's decision, too: no window with an end
/// is longer, and then there is the same day.
const UNTRIED: Duration = LONGEST.saturating_add(STALE);

/// So long at least an agent tries what the one before it had tried.
const ANEW: Duration = Duration::hours(1);

/// What is not on record as tried is looked at again.
const UNRECORDED: Duration = Duration::seconds(2);

impl History {
    /// Keeps what died with its CRD although it had no finalizer that would have held it. Returns the CRDs that have
    /// more to bring back now.
    pub fn mourn(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) -> BTreeSet<ObjectId> {
        let mut more = BTreeSet::new();
        // There may be thousands: none is compared with each other one.
        let mut known: BTreeMap<ObjectId, BTreeSet<String>> = BTreeMap::new();
        // What a person has allowed to go is not guarded, and is not to come back either.
        let guarded = burst::found(now, install, observed, self);
        let is_guarded = |crd: &ObjectId| {
            let prunes = install.traits.pruning_crds.contains(&crd.name.as_str());
            guarded.iter().any(|f| !prunes || f.object == *crd)
        };
        for (id, (at, keepsake)) in observed.lost.iter() {
            let crd = ObjectId::crd_of(id.kind);
            let live = observed.objects.get(&crd);
            let dead = live.is_none_or(|crd| crd.deleting.is_some());
            // Of a clock that was set back, it may lie ahead.
            let ago = (now - *at).abs();
            let with_many = ago <= burst::TOGETHER && is_guarded(&crd);
            if !dead && !with_many || ago > TOGETHER || !install.wanted.contains_key(&crd) {
                continue;
            }
            let saved = self.saved.entry(crd.clone()).or_default();
            let known = known.entry(crd.clone());
            let known = known.or_insert_with(|| {
                let both = |one: &Saved| [one.object.to_string(), let_go(&one.object).to_string()];
                saved.iter().flat_map(both).collect()
            });
            if known.insert(keepsake.to_string()) {
                let object = keepsake.as_ref().clone();
                saved.push(Saved::new(object, now));
                more.insert(crd);
            }
        }
        more
    }

    /// Whether the next try is the first one for some of what died with `crd`. That is to be on record before it is made: an agent
    /// that cannot say later that they are back leaves a record that looks as if nobody had tried.
    pub fn is_first_try(&self, crd: &ObjectId) -> bool {
        let mut saved = self.saved.get(crd).into_iter().flatten();
        saved.any(|one| one.tried.is_none())
    }

    /// All that died with `crd` is tried to be brought back now.
    pub fn tries(&mut self, now: OffsetDateTime, crd: &ObjectId) {
        for one in self.saved.get_mut(crd).into_iter().flatten() {
            one.tried.get_or_insert(now);
        }
    }

    /// What died with `crd` is not brought back yet, for its record was not written. That is no try.
    pub fn put_off(&mut self, now: OffsetDateTime, crd: &ObjectId) {
        self.restore_after.insert(crd.clone(), now + UNRECORDED);
    }

    /// An attempt to bring back what died with `crd`; `left` is what did not come back.
    pub fn restored(&mut self, now: OffsetDateTime, crd: &ObjectId, mut left: Vec<Saved>) {
        self.restore_after.remove(crd);
        self.saved.remove(crd);
        if left.is_empty() {
            return;
        }
        for one in &mut left {
            one.tried.get_or_insert(now);
        }
        self.saved.insert(crd.clone(), left);
        self.restore_after.insert(crd.clone(), now + AGAIN);
    }

    /// More that died with `crd`; of two that died under one name the later one is brought back.
    pub fn died(&mut self, crd: &ObjectId, more: Vec<Saved>) {
        let saved = self.saved.entry(crd.clone()).or_default();
        let places: BTreeSet<String> = more.iter().map(Saved::place).collect();
        saved.retain(|former| !places.contains(&former.place()));
        saved.extend(more);
    }

    /// Goes on with what an agent before this one tried to bring back. In a time without an agent nobody tried it, so that it is not
    /// given up before this one has; what was tried two days ago is over, as what nobody tried.
    pub fn tries_on(&mut self, now: OffsetDateTime) {
        let saved = self.saved.values_mut().flatten();
        for tried in saved.filter_map(|one| one.tried.as_mut()) {
            if now - *tried < UNTRIED {
                *tried = (*tried).max(now - STALE + ANEW);
            }
        }
    }

    /// Forgets what no try brought back for too long: whoever has its name by now would get what somebody else had. So it is with what
    /// nobody tried while its CRD served, be it for a window, another manager or want of an agent: who had use for it made it anew.
    /// As long as the CRD is away nobody can, and it stays, however old it is. Returns it, by CRD.
    pub fn give_up(
        &mut self,
        now: OffsetDateTime,
        observed: &Observed,
    ) -> BTreeMap<ObjectId, Vec<Saved>> {
        let mut given_up = BTreeMap::new();
        for (crd, saved) in &mut self.saved {
            let live = observed.objects.get(crd);
            let Some(serves) = live.and_then(|live| serves_since(live)) else {
                continue;
            };
            let is_stale = |one: &mut Saved| match one.tried {
                Some(tried) => now - serves.max(tried) >= STALE,
                None => now - serves.max(one.since) >= UNTRIED,
            };
            let stale: Vec<Saved> = saved.extract_if(.., is_stale).collect();
            if !stale.is_empty() {
                given_up.insert(crd.clone(), stale);
            }
        }
        self.saved.retain(|_, saved| !saved.is_empty());
        let saved = &self.saved;
        self.restore_after.retain(|crd, _| saved.contains_key(crd));
        given_up
    }

    /// Forgets what is to be brought back with CRDs of the other engine, unless that may still come back: no agent will ever try,
    /// and should the engine return one day, nobody would expect them. Returns their CRDs.
    pub fn leave(&mut self, install: &Install) -> BTreeSet<ObjectId> {
        if install.change().is_some_and(Change::is_open) {
            return BTreeSet::new();
        }
        let other = install.traits.kind.other();
        let left = self.saved.keys();
        let left = left.filter(|crd| engine_of(crd) == Some(other));
        let left: BTreeSet<ObjectId> = left.cloned().collect();
        self.saved.retain(|crd, _| !left.contains(crd));
        self.restore_after.retain(|crd, _| !left.contains(crd));
        left
    }
}

/// The engine that a CRD is of; none = of neither.
fn engine_of(crd: &ObjectId) -> Option<EngineKind> {
    let of = |group: &str| crd.name.ends_with(group);
    if of(".toolkit.fluxcd.io") {
        Some(EngineKind::Flux)
    } else {
        of(".argoproj.io").then_some(EngineKind::Argocd)
    }
}

/// Since when a CRD has its objects; none = it does not.
fn serves_since(crd: &Object) -> Option<OffsetDateTime> {
    if crd.deleting.is_some() || !crd.is_true("Established") {
        return None;
    }
    let all = crd.fields.pointer("/status/conditions")?.as_array()?;
    let is_it = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("Established");
    let at = all.iter().find(is_it)?.get("lastTransitionTime");
    let at = at.and_then(Value::as_str).and_then(parse_rfc3339);
    at.max(crd.created)
}

/// A saved object as it is seen once the guard has taken the engine's finalizer from it, where somebody else's holds it on: the
/// lesser one of two, by which it would come back without its finalizer.
fn let_go(saved: &Value) -> Value {
    let mut object = saved.clone();
    for (place, field) in [("", "status"), ("/metadata", "finalizers")] {
        let fields = object.pointer_mut(place).and_then(Value::as_object_mut);
        fields.and_then(|fields| fields.remove(field));
    }
    object
}

#[cfg(test)]
mod tests;
