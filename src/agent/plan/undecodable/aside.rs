//! A sync object that its controller cannot read is taken out of the way, so that the controller reads the others again.
//!
//! It is not deleted, and what it brought stays: each field that cannot be read gets [`STAND_IN`], the object is suspended
//! so that nothing comes of that, and Git is kept from it as from all that is held ([`RECONCILE`]). [`HELD`] says what stood
//! there, so this outlives the agent. It ends when somebody writes the fields anew, by hand or by a commit, or resumes it.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::{DURATIONS, duration};
use crate::agent::engine::{GIT_OWNER, Install};
use crate::agent::plan::fault::Class;
use crate::agent::plan::health::pods_of;
use crate::agent::plan::quarantine::{HELD, Hold, MANAGER, RECONCILE};
use crate::agent::plan::state::{History, Observed};
use crate::agent::plan::steps::{Action, Step};
use crate::agent::plan::window::{MAINTENANCE, counts};
use crate::bundle::{Kind, ObjectId};
use crate::clock::{from_nanoseconds, parse_rfc3339, rfc3339};

/// Takes the place of what cannot be read. Nobody else writes it in this way, so that it tells who wrote the field last,
/// and it does no harm where somebody resumes the object without a look at it.
pub const STAND_IN: &str = "1h0m0s";
/// Of a value that cannot be read, so much is kept.
const MAX_VALUE: usize = 200;

/// A sync object that cannot be read, or was taken out of the way for that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspect {
    uid: String,
    version: String,
    /// JSON pointers of the fields that cannot be read, with what stands there.
    bad: BTreeMap<String, String>,
    /// Of the fields that were replaced, those that are as we left them.
    standing_in: Vec<String>,
    aside: Option<Aside>,
    /// Whether Flux is kept from applying and pruning it.
    disabled: bool,
    suspended: bool,
    /// Whether nobody but us says so.
    suspended_by_us: bool,
    /// The Kustomization that applies it from Git.
    owner: Option<ObjectId>,
    /// Who wrote what cannot be read, and when.
    writer: String,
    written: Option<OffsetDateTime>,
    maintenance: Option<OffsetDateTime>,
}

/// What an object says of itself that was taken out of the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aside {
    #[serde(flatten)]
    pub hold: Hold,
    /// JSON pointers of the fields that were replaced, with what stood there.
    former: BTreeMap<String, String>,
    /// Whether it was at work before.
    suspended: bool,
    /// Whether Git was kept from it by us.
    fenced: bool,
    writer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<String>,
}

/// One change of such an object, with the version that it was decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub what: What,
    /// JSON Merge Patch (RFC 7396), refused by the API server where the object is another by now.
    pub patch: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    SetAside,
    /// Git may apply it again.
    Lift,
    /// It is at work again.
    Settle,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetAside => "set-aside",
            Self::Lift => "lift",
            Self::Settle => "settle",
        }
    }
}

impl Suspect {
    /// None for an object that can be read and was never taken out of the way.
    pub fn of(live: &DynamicObject) -> Option<Self> {
        let meta = &live.metadata;
        let annotation = |name: &str| meta.annotations.as_ref()?.get(name).map(String::as_str);
        let spec = live.data.get("spec").unwrap_or(&Value::Null);
        let bad = bad_fields(spec);
        let aside = annotation(HELD).and_then(|said| serde_json::from_str::<Aside>(said).ok());
        if bad.is_empty() && aside.is_none() {
            return None;
        }
        let stands = |field: &&String| spec.pointer(field) == Some(&json!(STAND_IN));
        let former = aside.iter().flat_map(|aside| aside.former.keys());
        let (writer, written) = bad.keys().next().map_or_else(
            || (String::new(), None),
            |field| last_writer(live, field).unwrap_or_default(),
        );
        Some(Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            standing_in: former.filter(stands).cloned().collect(),
            bad,
            aside,
            disabled: annotation(RECONCILE) == Some("disabled"),
            suspended: spec.get("suspend") == Some(&Value::Bool(true)),
            suspended_by_us: writers(live, "/suspend").all(|(manager, _)| manager == MANAGER),
            owner: owner(live),
            writer,
            written,
            maintenance: annotation(MAINTENANCE).and_then(parse_rfc3339),
        })
    }

    /// Whether its controller cannot read it.
    pub fn is_unreadable(&self) -> bool {
        !self.bad.is_empty()
    }

    pub fn aside(&self) -> Option<&Aside> {
        self.aside.as_ref()
    }

    pub(super) fn writer(&self) -> (&str, Option<OffsetDateTime>) {
        (&self.writer, self.written)
    }

    /// A window of its own.
    pub fn is_paused(&self, now: OffsetDateTime) -> bool {
        self.maintenance.is_some_and(|until| counts(now, until))
    }

    /// Out of the way, whatever was done about it before.
    fn set_aside(&self, now: OffsetDateTime, revision: String) -> Value {
        let before = self.aside.as_ref();
        let mut former = BTreeMap::new();
        for field in &self.standing_in {
            let known = before.and_then(|aside| aside.former.get(field));
            former.extend(known.map(|value| (field.clone(), value.clone())));
        }
        former.extend(self.bad.clone());
        // What a commit broke that was given back waits for longer than the first time.
        let again = |aside: &Aside| {
            let given_back = u32::from(aside.hold.lifted.is_some());
            aside.hold.attempt.saturating_add(given_back)
        };
        let fenced_before = before.is_some_and(|aside| aside.fenced);
        let aside = Aside {
            hold: Hold {
                revision,
                since: rfc3339(now),
                reason: text(&self.bad),
                attempt: before.map_or(1, again),
                lifted: None,
                order: None,
                removal: false,
            },
            former,
            suspended: !self.suspended || before.is_some_and(|aside| aside.suspended),
            fenced: self.owner.is_some() && (!self.disabled || fenced_before),
            writer: self.writer.clone(),
            written: self.written.map(rfc3339),
        };
        let mut spec = json!({"suspend": true});
        for field in self.bad.keys() {
            put(&mut spec, field, STAND_IN);
        }
        let mut marks = Map::from_iter([(HELD.to_owned(), json!(aside.text()))]);
        if aside.fenced {
            marks.insert(RECONCILE.to_owned(), json!("disabled"));
        }
        self.patch(&marks, Some(spec))
    }

    /// What there is to do for one that can be read again; `tried` is the revision that its owner tried last.
    fn turn(&self, now: OffsetDateTime, tried: &str, may_fail: bool) -> Option<(What, Value)> {
        let aside = self.aside.as_ref().filter(|_| !self.is_unreadable())?;
        let resumed = aside.suspended && !self.suspended;
        let corrected = self.standing_in.is_empty();
        let lifted = aside.hold.lifted.is_some();
        let resume = (aside.suspended && self.suspended && self.suspended_by_us)
            .then(|| json!({"suspend": null}));
        if (lifted || !aside.fenced) && (resumed || corrected) {
            let mut marks = Map::from_iter([(HELD.to_owned(), Value::Null)]);
            if aside.fenced {
                marks.insert(RECONCILE.to_owned(), Value::Null);
            }
            return Some((What::Settle, self.patch(&marks, resume)));
        }
        // By hand, and Git still has the other value: that one waits for another commit.
        if !lifted && aside.suspended && (resumed || corrected) {
            let at_work = Aside {
                suspended: false,
                ..aside.clone()
            };
            let marks = Map::from_iter([(HELD.to_owned(), json!(at_work.text()))]);
            return Some((What::Settle, self.patch(&marks, resume)));
        }
        if !lifted && may_fail && aside.fenced && aside.hold.ends(now, tried) {
            let mut given_back = aside.clone();
            given_back.hold.lifted = Some(rfc3339(now));
            let mut marks = Map::from_iter([(HELD.to_owned(), json!(given_back.text()))]);
            marks.insert(RECONCILE.to_owned(), Value::Null);
            return Some((What::Lift, self.patch(&marks, None)));
        }
        // Just its word: it is out of the way already.
        let anew = aside.hold.begun_anew(now);
        let anew = anew.filter(|_| !lifted && aside.fenced)?;
        let anew = Aside {
            hold: anew,
            ..aside.clone()
        };
        let marks = Map::from_iter([(HELD.to_owned(), json!(anew.text()))]);
        Some((What::SetAside, self.patch(&marks, None)))
    }

    fn patch(&self, annotations: &Map<String, Value>, spec: Option<Value>) -> Value {
        let mut patch = json!({"metadata": {
            "uid": self.uid, "resourceVersion": self.version, "annotations": annotations,
        }});
        if let Some(spec) = spec {
            patch["spec"] = spec;
        }
        patch
    }
}

impl Aside {
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What people are told of it for as long as it lasts.
    pub fn told(&self, id: &ObjectId) -> String {
        let by = match (self.writer.as_str(), &self.written) {
            ("", _) => String::new(),
            (writer, Some(at)) => format!(", written by {writer} at {at}"),
            (writer, None) => format!(", written by {writer}"),
        };
        let now = if self.suspended {
            format!("it is suspended, with {STAND_IN} there")
        } else {
            "it is at work with another value".to_owned()
        };
        let next = match (&self.hold.lifted, self.fenced) {
            (Some(at), _) => {
                format!(
                    "Git may apply it since {at}: if no commit has it any more, delete or correct it"
                )
            }
            (None, true) => "correct it in the catalog: a commit gives it back to Git".to_owned(),
            (None, false) => "correct it".to_owned(),
        };
        let (since, reason) = (&self.hold.since, &self.hold.reason);
        format!("{id} since {since}: {reason}{by}; {now}: {next}")
    }
}

/// The step against one that cannot be read.
pub(in crate::agent::plan) fn against(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> Vec<(Action, ObjectId)> {
    let child = observed.children.get(id);
    let Some(suspect) = child.and_then(|child| child.suspect.as_ref()) else {
        return Vec::new();
    };
    if !suspect.is_unreadable() || suspect.is_paused(now) || !is_covered(install, observed, id) {
        return Vec::new();
    }
    let turn = Turn {
        what: What::SetAside,
        patch: suspect.set_aside(now, tried(install, observed, suspect)),
    };
    let mut actions = vec![(Action::Aside(turn), id.clone())];
    // It ended for want of an answer, and waits for up to five minutes before it asks again.
    let controller = match id.kind {
        source if source.is_source() => install.controller(&install.source),
        _ => install.controller(id),
    };
    let waits = |reason: &str| reason == "CrashLoopBackOff";
    let stopped = pods_of(observed, &controller.name)
        .any(|pod| pod.waiting.as_ref().is_some_and(|(why, _)| waits(why)));
    if stopped {
        actions.push((Action::RestartPods { before: now }, controller));
    }
    actions
}

/// What ends for those that are out of the way.
pub(in crate::agent::plan) fn turns(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, child) in observed.children.iter() {
        let Some(suspect) = child.suspect.as_ref() else {
            continue;
        };
        if suspect.is_paused(now) || !is_covered(install, observed, id) {
            continue;
        }
        // What may blind its controller once more is only tried where that could be mended at once.
        let past = history.faults.get(&(Class::UndecodableObject, id.clone()));
        let may_fail = past.is_none_or(|past| !past.spent);
        let tried = tried(install, observed, suspect);
        let Some((what, patch)) = suspect.turn(now, &tried, may_fail) else {
            continue;
        };
        let step = |action, target: &ObjectId| Step {
            action,
            target: target.clone(),
            cause: None,
        };
        steps.push(step(Action::Aside(Turn { what, patch }), id));
        if let Some(owner) = suspect.owner.as_ref().filter(|_| what == What::Lift) {
            steps.push(step(Action::Nudge, owner));
        }
    }
    steps
}

/// Those that are out of the way.
pub fn all(observed: &Observed) -> impl Iterator<Item = (&ObjectId, &Aside)> {
    observed.children.iter().filter_map(|(id, child)| {
        let aside = child.suspect.as_ref()?.aside()?;
        Some((id, aside))
    })
}

/// Whether the cluster's owner let the agent change what is there: on a cluster that is shared, only what is on his list.
pub(in crate::agent::plan) fn is_covered(
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> bool {
    id.namespace == install.namespace
        || observed
            .covered
            .as_ref()
            .is_none_or(|all| all.contains(&id.namespace))
}

/// The revision that brought an object from Git, or that would bring it.
pub(super) fn tried(install: &Install, observed: &Observed, suspect: &Suspect) -> String {
    let Some(owner) = suspect.owner.as_ref() else {
        return String::new();
    };
    if *owner == install.sync {
        let root = observed.objects.get(owner);
        let tried = root.map_or("", |root| root.text("/status/lastAttemptedRevision"));
        return tried.to_owned();
    }
    let child = observed.children.get(owner);
    child.map_or_else(String::new, |child| child.tried.clone())
}

/// All fields that Go cannot hold.
pub(super) fn bad_fields(spec: &Value) -> BTreeMap<String, String> {
    let bad = DURATIONS.iter().filter_map(|field| {
        let text = spec.pointer(field)?.as_str()?;
        let kept = text.chars().take(MAX_VALUE).collect();
        duration(text)
            .is_none()
            .then(|| ((*field).to_owned(), kept))
    });
    bad.collect()
}

/// The fields and their values, for people.
pub(super) fn text(bad: &BTreeMap<String, String>) -> String {
    let named = bad.iter().map(|(field, value)| {
        let name = field.replace('/', ".");
        let shown: String = value.chars().take(40).collect();
        format!("spec{name} '{shown}' is no duration that Go can hold")
    });
    named.collect::<Vec<_>>().join("; ")
}

/// By the labels that kustomize-controller puts on all that it applies.
fn owner(live: &DynamicObject) -> Option<ObjectId> {
    let labels = live.metadata.labels.as_ref()?;
    let name = labels.get(GIT_OWNER)?;
    let namespace = labels.get("kustomize.toolkit.fluxcd.io/namespace")?;
    Some(ObjectId::new(Kind::Kustomization, namespace, name))
}

/// Who owns a field below `spec`, and since when at the latest.
fn writers<'a>(
    live: &'a DynamicObject,
    field: &str,
) -> impl Iterator<Item = (&'a str, Option<OffsetDateTime>)> + use<'a> {
    let path = format!("/spec{field}").replace('/', "/f:");
    let entries = live.metadata.managed_fields.iter().flatten();
    entries.filter_map(move |entry| {
        entry.fields_v1.as_ref()?.0.pointer(&path)?;
        let at = entry.time.as_ref().map(|at| at.0.as_nanosecond());
        let at = at.and_then(from_nanoseconds);
        Some((entry.manager.as_deref().unwrap_or_default(), at))
    })
}

fn last_writer(live: &DynamicObject, field: &str) -> Option<(String, Option<OffsetDateTime>)> {
    let last = writers(live, field).max_by_key(|(_, at)| *at)?;
    Some((last.0.to_owned(), last.1))
}

/// Sets what `pointer` names below `into`, with all that is above it.
fn put(into: &mut Value, pointer: &str, value: &str) {
    let mut at = into;
    for name in pointer.split('/').skip(1) {
        at = &mut at[name];
    }
    *at = json!(value);
}

#[cfg(test)]
mod tests;
