//! How people had stopped the roots: one that goes while no agent runs is made again as it was, by the agent after this one. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::engine::argocd::SKIP;
use crate::agent::plan::quarantine::root::SUSPEND;
use crate::agent::plan::state::Object;
use crate::agent::plan::{History, project};
use crate::bundle::{Kind, ObjectId};

/// There are as many as an install has roots.
const MOST: usize = 8;
const AUTOMATED: &str = "/spec/syncPolicy/automated";
const REVISION: &str = "/spec/source/targetRevision";
/// Characters of the commit that an Application may be pinned to; nothing else that it follows stops it.
const COMMIT: usize = 40;

/// One root, and all that can stop one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stop {
    kind: String,
    namespace: String,
    name: String,
    /// `spec.suspend` of a root of Flux.
    #[serde(default)]
    suspended: bool,
    /// Argo CD's annotation by which it looks at nothing.
    #[serde(default)]
    skipped: bool,
    /// Absent = it is not an Application, or has no source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application: Option<Stopped>,
}

/// An Application, as far as its spec stops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stopped {
    /// Empty = it is pinned to none.
    #[serde(default)]
    commit: String,
    automated: Automated,
}

/// What it says of whether it syncs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Automated {
    On,
    Disabled,
    Absent,
}

impl Stop {
    fn of(id: &ObjectId, live: &Object) -> Self {
        let has_source = live.fields.pointer("/spec/source").is_some();
        Self {
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            suspended: live.fields.pointer(SUSPEND) == Some(&Value::Bool(true)),
            skipped: live.annotation(SKIP) == Some("true"),
            application: (id.kind == Kind::Application && has_source).then(|| Stopped::of(live)),
        }
    }

    /// A root that is stopped likewise, and has nothing else; none = its kind is not known.
    fn root(&self) -> Option<(ObjectId, Object)> {
        let kind = Kind::ALL.iter().find(|k| k.as_str() == self.kind)?;
        let mut root = json!({
            "apiVersion": "", "kind": self.kind, "metadata": {"namespace": self.namespace, "name": self.name}, "spec": {},
        });
        if self.suspended {
            root["spec"]["suspend"] = json!(true);
        }
        if self.skipped {
            root["metadata"]["annotations"] = json!({SKIP: "true"});
        }
        if let Some(stopped) = &self.application {
            root["spec"]["source"] = json!({"targetRevision": stopped.commit});
            root["spec"]["syncPolicy"] = match stopped.automated {
                Automated::On => json!({"automated": {}}),
                Automated::Disabled => json!({"automated": {"enabled": false}}),
                Automated::Absent => json!({}),
            };
        }
        let root = serde_json::from_value(root).ok()?;
        let id = ObjectId::new(*kind, &self.namespace, &self.name);
        Some((id, project::object(*kind, root)))
    }
}

impl Stopped {
    fn of(live: &Object) -> Self {
        let automated = live.fields.pointer(AUTOMATED);
        let automated = match automated.filter(|value| !value.is_null()) {
            None => Automated::Absent,
            Some(value) if value.get("enabled") == Some(&Value::Bool(false)) => Automated::Disabled,
            Some(_) => Automated::On,
        };
        let revision = live.text(REVISION);
        let commit = Some(revision).filter(|revision| revision.len() == COMMIT);
        Self {
            commit: commit.unwrap_or_default().to_owned(),
            automated,
        }
    }
}

/// What is to be kept.
pub(super) fn kept(history: &History) -> Vec<Stop> {
    let stops = history.stopped.iter().map(|(id, live)| Stop::of(id, live));
    stops.take(MOST).collect()
}

/// Goes on with it; what this version does not know says nothing. A root that is at work is found so.
pub(super) fn resume(history: &mut History, all: &[Stop]) {
    for stop in all.iter().take(MOST) {
        if let Some((id, root)) = stop.root() {
            history.stopped.insert(id, root.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::agent::engine::Install;
    use crate::agent::plan::Observed;
    use crate::agent::plan::find::as_stopped;
    use crate::agent::plan::tests::install_of;
    use crate::wire::api::EngineKind;

    fn stopped_as(id: &ObjectId, root: Value) -> History {
        let root = serde_json::from_value(root).unwrap();
        let root = project::object(id.kind, root);
        History {
            stopped: [(id.clone(), root.into())].into(),
            ..History::default()
        }
    }

    /// What the root is made again as.
    fn made(install: &Install, id: &ObjectId, history: &History) -> Option<Value> {
        as_stopped(Cow::Borrowed(install), id, &Observed::default(), history).body(id)
    }

    /// F29: with an agent goes what it knew of a root that is not there any more.
    #[test]
    fn a_stopped_root_is_made_again_so_by_the_agent_after_this_one() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let automated = json!({"prune": true});
        for (engine, annotations, spec, stands) in [
            (EngineKind::Flux, json!({}), json!({"suspend": true}), true),
            (
                EngineKind::Argocd,
                json!({SKIP: "true"}),
                json!({"source": {"targetRevision": "main"}, "syncPolicy": {"automated": automated}}),
                true,
            ),
            (
                EngineKind::Argocd,
                json!({}),
                json!({"source": {"targetRevision": commit}, "syncPolicy": {"automated": automated}}),
                true,
            ),
            (
                EngineKind::Argocd,
                json!({}),
                json!({"source": {"targetRevision": "main"}, "syncPolicy": {"automated": {"enabled": false}}}),
                true,
            ),
            (
                EngineKind::Argocd,
                json!({}),
                json!({"source": {"targetRevision": "main"}, "syncPolicy": {"retry": {}}}),
                true,
            ),
            // Emptied, which stops nothing.
            (EngineKind::Argocd, json!({}), json!({}), false),
        ] {
            let install = install_of(engine);
            let id = install.sync.clone();
            let root = json!({
                "apiVersion": "", "kind": id.kind.as_str(), "spec": spec,
                "metadata": {"namespace": id.namespace, "name": id.name, "annotations": annotations},
            });
            let before = stopped_as(&id, root);
            let text = serde_json::to_string(&kept(&before)).unwrap();
            let mut after = History::default();
            let all: Vec<Stop> = serde_json::from_str(&text).unwrap();
            resume(&mut after, &all);
            let again = made(&install, &id, &after);
            assert_eq!(again, made(&install, &id, &before), "{text}");
            assert_eq!(again != install.body(&id), stands, "{text}");
            assert_eq!(kept(&after), all);
        }
    }

    #[test]
    fn no_more_is_kept_than_an_install_has_and_what_is_not_known_says_nothing() {
        let id = install_of(EngineKind::Flux).sync;
        let root = json!({"apiVersion": "", "kind": "", "metadata": {}, "spec": {"suspend": true}});
        let mut history = stopped_as(&id, root);
        let one = history.stopped[&id].clone();
        for n in 0..100 {
            let id = ObjectId::new(id.kind, &id.namespace, &n.to_string());
            history.stopped.insert(id, one.clone());
        }
        let mut all = kept(&history);
        assert_eq!(all.len(), MOST);
        all.truncate(2);
        "Kite".clone_into(&mut all[0].kind);
        let mut after = History::default();
        resume(&mut after, &all);
        assert_eq!(kept(&after), all[1..]);
    }
}
