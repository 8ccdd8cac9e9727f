//! The same with Argo CD: the Application that brought others says which of them its commit has no more.

use serde_json::{Value, json};

use super::Place;
use crate::agent::engine::TRACKING;
use crate::agent::plan::steps::Action;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

const HOME: &str = "argocd";
const ROOT: &str = "linesman";
const NAMES: [&str; 3] = ["a", "b", "c"];
const PRUNES: &str = "resources-finalizer.argocd.argoproj.io";
/// The binding, the controller, and what goes of Applications and their sets.
const GUARDED: [&str; 4] = ["cut-rights", "scale-to-zero", "release", "release"];

fn application(space: &str, name: &str) -> ObjectId {
    ObjectId::new(Kind::Application, space, name)
}

/// An Application that another one brought.
fn live(name: &str, tracked: &str) -> Value {
    let tracked = format!("{tracked}:argoproj.io/Application:{HOME}/{name}");
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": name, "namespace": HOME, "finalizers": [PRUNES], "annotations": {TRACKING: tracked},
        },
        "spec": {},
        "status": {"sync": {"status": "Synced", "revision": "1"}},
    })
}

/// What an Application says of others that its commit has no more.
fn pruning(names: &[&str]) -> Value {
    let all = names.iter().map(|name| {
        json!({
            "group": "argoproj.io", "kind": "Application", "namespace": HOME, "name": name,
            "status": "OutOfSync", "requiresPruning": true,
        })
    });
    json!({"sync": {"status": "OutOfSync", "revision": "2"}, "resources": all.collect::<Vec<_>>()})
}

impl Place {
    fn application(&mut self, name: &str, live: Option<Value>) {
        self.hear_of(application(HOME, name), live);
    }

    fn root_says(&mut self, status: Value) {
        let root = application(HOME, ROOT);
        let root = self.cluster.objects.get_mut(&root).unwrap();
        root.fields["status"] = status;
        self.look();
    }

    /// All three are there, then are deleted.
    fn three_go(&mut self, object: impl Fn(&str) -> Value) -> Vec<&'static str> {
        for name in NAMES {
            self.application(name, Some(object(name)));
        }
        for name in NAMES {
            self.application(name, Some(super::dying(object(name))));
        }
        self.actions()
    }
}

#[test]
fn three_applications_that_git_brings_cost_the_engine_its_rights() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, bool); 7] = [
        ("as they are", |_| {}, true),
        (
            "that wait for the end of what they brought",
            |o| o["metadata"]["finalizers"] = json!([format!("{PRUNES}/foreground")]),
            true,
        ),
        (
            "brought by one in another namespace",
            |o| {
                let tracked = json!("team_apps:argoproj.io/Application:argocd/x");
                o["metadata"]["annotations"][TRACKING] = tracked;
            },
            true,
        ),
        (
            "made by hand",
            |o| o["metadata"]["annotations"] = json!({}),
            false,
        ),
        (
            "made by an ApplicationSet",
            |o| {
                o["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "s", "uid": "1",
                }]);
            },
            false,
        ),
        (
            "that leave all behind",
            |o| o["metadata"]["finalizers"] = json!([]),
            false,
        ),
        (
            "that only end with a hook",
            |o| o["metadata"]["finalizers"] = json!(["post-delete-finalizer.argocd.argoproj.io"]),
            false,
        ),
    ];
    for (what, change, guarded) in cases {
        let mut place = Place::of(EngineKind::Argocd);
        place.hear_of(application("team", "apps"), Some(live("apps", ROOT)));
        let actions = place.three_go(|name| {
            let mut object = live(name, ROOT);
            change(&mut object);
            object
        });
        let expected: &[&str] = if guarded { &GUARDED } else { &[] };
        assert_eq!(actions, expected, "{what}");
    }
}

/// A commit's own deletions are a wish, and what the Application says of one of them says nothing of the others.
#[test]
fn what_the_application_that_brought_them_gives_up_is_left_to_it() {
    let another = &["d"][..];
    for (given, guarded) in [
        (&NAMES[..], false),
        (&NAMES[..1], false),
        (another, true),
        (&[][..], true),
    ] {
        let mut place = Place::of(EngineKind::Argocd);
        place.root_says(pruning(given));
        let actions = place.three_go(|name| live(name, ROOT));
        let expected: &[&str] = if guarded { &GUARDED } else { &[] };
        assert_eq!(actions, expected, "by the root: {given:?}");

        let mut place = Place::of(EngineKind::Argocd);
        let mut parent = live("parent", ROOT);
        parent["status"] = pruning(given);
        place.application("parent", Some(parent));
        let actions = place.three_go(|name| live(name, "parent"));
        assert_eq!(actions, expected, "by another: {given:?}");
    }
    let mut place = Place::of(EngineKind::Argocd);
    place.application("parent", Some(live("parent", ROOT)));
    place.application("parent", Some(super::dying(live("parent", ROOT))));
    let actions = place.three_go(|name| live(name, "parent"));
    assert_eq!(actions, [""; 0], "one deletion, and what follows from it");
}

/// Which of more than are known brought them, and whether any would prune, nobody can tell then: the engine is kept from it.
#[test]
fn where_not_all_applications_are_known_none_counts_as_gone() {
    for (cut, expected) in [(false, &[][..]), (true, &GUARDED)] {
        let mut place = Place::of(EngineKind::Argocd);
        if cut {
            place.seen.cut.insert(Kind::Application);
        }
        let actions = place.three_go(|name| live(name, "unknown"));
        assert_eq!(actions, expected, "{cut}");
    }
}

/// W44: the rights do not come back while one of them still goes.
#[test]
fn the_guard_goes_on_until_the_last_application_is_let_go() {
    let mut place = Place::of(EngineKind::Argocd);
    assert_eq!(place.three_go(|name| live(name, ROOT)), GUARDED);
    for name in &NAMES[1..] {
        place.application(name, None);
    }
    assert_eq!(place.plan().steps[0].action.as_str(), "cut-rights");
    place.application(NAMES[0], None);
    let cuts = |action: &Action| matches!(action, Action::CutRights { .. } | Action::Release);
    assert!(!place.plan().steps.iter().any(|step| cuts(&step.action)));
}
