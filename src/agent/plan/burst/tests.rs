//! Who deletes sync objects, and what is done about it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, GUARD};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Plan, plan, project};
use crate::wire::api::EngineKind;

mod argocd;
mod heard;
mod left;
mod wishes;

const ROOT: &str = "flux-system";

/// A cluster with a working engine, and what is heard of the sync objects in it.
struct Place {
    cluster: Cluster,
    seen: Observed,
}

impl Place {
    fn new() -> Self {
        Self::of(EngineKind::Flux)
    }

    fn of(engine: EngineKind) -> Self {
        let cluster = Cluster::working_of(engine);
        let seen = cluster.observed();
        Self { cluster, seen }
    }

    fn hear(&mut self, name: &str, live: Option<Value>) {
        self.hear_of(app(name), live);
    }

    fn hear_of(&mut self, id: ObjectId, live: Option<Value>) {
        let live = live.map(|live| serde_json::from_value(live).unwrap());
        let home = self.cluster.install.namespace.clone();
        let child = live.map(|live| Child {
            fate: Fate::of(&home, id.kind, &live),
            ..project::child(&home, id.kind, &live).unwrap_or_default()
        });
        let fate = child.as_ref().map(|child| &child.fate);
        note(&mut self.seen, &id, fate, self.cluster.now);
        let children = Arc::make_mut(&mut self.seen.children);
        match child {
            Some(child) => drop(children.insert(id, child)),
            None => drop(children.remove(&id)),
        }
    }

    fn delete(&mut self, name: &str, owner: &str) {
        self.hear(name, Some(dying(live(name, owner))));
    }

    fn root(&mut self, status: &Value) {
        let root = self.cluster.objects.get_mut(&self.cluster.install.sync);
        root.unwrap().fields["status"] = status.clone();
        self.look();
    }

    /// The objects of the install are looked at again.
    fn look(&mut self) {
        let known = std::mem::take(&mut self.seen);
        self.seen = Observed {
            children: known.children,
            deletions: known.deletions,
            moved: known.moved,
            ..self.cluster.observed()
        };
    }

    fn plan(&self) -> Plan {
        let cluster = &self.cluster;
        plan(cluster.now, &cluster.install, &self.seen, &cluster.history)
    }

    fn actions(&self) -> Vec<&'static str> {
        let plan = self.plan();
        let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
        steps.map(|s| s.action.as_str()).collect()
    }

    fn is_on(&self) -> bool {
        let (now, install) = (self.cluster.now, &self.cluster.install);
        is_on(now, install, &self.seen, &self.cluster.history)
    }
}

fn app(name: &str) -> ObjectId {
    let space = if name == ROOT { ROOT } else { "apps" };
    ObjectId::new(Kind::Kustomization, space, name)
}

fn live(name: &str, owner: &str) -> Value {
    let space = app(owner).namespace;
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": name, "namespace": "apps", "finalizers": ["finalizers.fluxcd.io"], "generation": 1,
            "labels": {GIT_OWNER: owner, GIT_OWNER_NAMESPACE: space},
        },
        "spec": {"prune": true},
        "status": {
            "observedGeneration": 1, "lastAttemptedRevision": "1", "lastAppliedRevision": "1",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn dying(mut live: Value) -> Value {
    live["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    live
}

/// What a Kustomization says while it applies another commit.
fn applying() -> Value {
    json!({
        "observedGeneration": 1, "lastAttemptedRevision": "2", "lastAppliedRevision": "1",
        "conditions": [{"type": "Reconciling", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
    })
}

const GUARDED: [&str; 4] = ["cut-rights", "cut-rights", "scale-to-zero", "release"];

#[test]
fn three_that_git_brings_within_ten_seconds_cost_the_engine_its_rights() {
    type Change = fn(&mut Value);
    let as_is: Change = |_| {};
    let cases: [(&str, [i64; 4], Change, bool); 9] = [
        ("at once", [0, 0, 0, 0], as_is, true),
        ("in ten seconds", [0, 20, 25, 30], as_is, true),
        ("one by one", [0, 6, 12, 18], as_is, false),
        (
            "made by hand",
            [0; 4],
            |o| o["metadata"]["labels"] = json!({}),
            false,
        ),
        (
            "that prune nothing",
            [0; 4],
            |o| o["spec"]["prune"] = json!(false),
            false,
        ),
        (
            "that leave all behind",
            [0; 4],
            |o| o["spec"]["deletionPolicy"] = json!("Orphan"),
            false,
        ),
        (
            "suspended",
            [0; 4],
            |o| o["spec"]["suspend"] = json!(true),
            false,
        ),
        (
            "that prune at their end all the same",
            [0; 4],
            |o| o["spec"] = json!({"prune": false, "deletionPolicy": "Delete"}),
            true,
        ),
        (
            "with nothing of the engine's on them",
            [0; 4],
            |o| o["metadata"]["finalizers"] = json!(["a/b"]),
            false,
        ),
    ];
    for (what, times, change, guarded) in cases {
        let mut place = Place::new();
        let names = ["a", "b", "c", "d"];
        let object = |name: &str| {
            let mut object = live(name, ROOT);
            change(&mut object);
            object
        };
        for name in names {
            place.hear(name, Some(object(name)));
        }
        let began = place.cluster.now;
        for (name, at) in names.into_iter().zip(times) {
            place.cluster.now = began + Duration::seconds(at);
            place.look();
            place.hear(name, Some(dying(object(name))));
        }
        let expected: &[&str] = if guarded { &GUARDED } else { &[] };
        assert_eq!(place.actions(), expected, "{what}");
    }
}

/// W44: what is left of a burst does not get the engine back before it is let go.
#[test]
fn the_guard_goes_on_until_the_last_one_is_let_go() {
    let mut place = Place::new();
    // Another one is there all the time, and a third goes that nothing holds.
    place.hear("b", Some(live("b", ROOT)));
    let mut loose = dying(live("c", ROOT));
    loose["metadata"]["finalizers"] = json!([]);
    place.hear("c", Some(loose));
    place.hear("a", Some(live("a", ROOT)));
    place.delete("a", ROOT);
    assert_eq!((place.actions(), place.is_on()), (vec![], false));
    let id = ObjectId::new(Kind::Deployment, ROOT, "kustomize-controller");
    let controller = place.cluster.objects.get_mut(&id).unwrap();
    controller.fields["spec"]["replicas"] = json!(0);
    GUARD.clone_into(&mut controller.writer);
    place.look();
    let cut = vec!["cut-rights", "cut-rights", "release"];
    assert_eq!((place.actions(), place.is_on()), (cut, true));
    place.hear("a", None);
    assert_eq!((place.actions(), place.is_on()), (vec!["apply"], false));
}

#[test]
fn five_are_named_and_the_others_counted() {
    for (count, end) in [
        (5, "apps/e"),
        (6, "apps/e and 1 more"),
        (7, "apps/e and 2 more"),
    ] {
        let mut place = Place::new();
        let names = &["a", "b", "c", "d", "e", "f", "g"][..count];
        for name in names {
            place.hear(name, Some(live(name, ROOT)));
        }
        for name in names {
            place.delete(name, ROOT);
        }
        let found = place.plan().findings.into_iter();
        let mut told = found.filter(|f| f.class == Class::SyncObjectsDeleted);
        let told = told.next().unwrap().evidence;
        assert!(told.ends_with(end), "{told}");
    }
}

#[test]
fn a_root_that_would_prune_is_let_go_at_once() {
    for (spec, guarded) in [
        (json!({"prune": true}), true),
        (json!({"prune": true, "deletionPolicy": "Orphan"}), false),
        (json!({"prune": false}), false),
    ] {
        let mut place = Place::new();
        let sync = place.cluster.install.sync.clone();
        let now = place.cluster.now;
        let root = place.cluster.objects.get_mut(&sync).unwrap();
        root.deleting = Some(now);
        root.finalizers = vec!["finalizers.fluxcd.io".to_owned()];
        root.fields["spec"] = spec.clone();
        place.look();
        let expected: &[&str] = if guarded { &GUARDED } else { &[] };
        assert_eq!(place.actions(), expected, "{spec}");

        // Nothing holds it, so nothing is pruned.
        let root = place.cluster.objects.get_mut(&sync).unwrap();
        root.finalizers = Vec::new();
        place.look();
        assert!(!place.is_on(), "{spec}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However they are deleted, the engine prunes nothing from the third within ten seconds on.
    #[test]
    fn nothing_is_pruned_after_the_third(gaps in prop::collection::vec(0_i64..8, 3..20), slow in 0_usize..4) {
        let mut place = Place::new();
        let names: Vec<String> = (0..gaps.len()).map(|n| format!("app-{n:02}")).collect();
        for name in &names {
            place.hear(name, Some(live(name, ROOT)));
        }
        let mut times: Vec<OffsetDateTime> = Vec::new();
        let mut waiting: Vec<&String> = Vec::new();
        let mut cut = false;
        for (name, gap) in names.iter().zip(gaps) {
            place.cluster.now += Duration::seconds(gap);
            place.look();
            times.push(place.cluster.now);
            place.delete(name, ROOT);
            waiting.push(name);
            cut |= place.actions().first() == Some(&"cut-rights");
            let third = times.windows(MANY).any(|t| t[MANY - 1] - t[0] <= TOGETHER);
            prop_assert_eq!(cut, third);
            if cut {
                break;
            }
            // The engine is behind by some, or not.
            while waiting.len() > slow {
                let done = waiting.remove(0);
                place.hear(done, None);
            }
        }
    }
}
