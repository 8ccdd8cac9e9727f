use super::*;
use crate::wire::report::Scene;

fn heal(object: &str, uid: &str) -> HealRecord {
    HealRecord {
        id: "1".to_owned(),
        class: "BadImage".to_owned(),
        number: 4,
        meaning: String::new(),
        object: object.to_owned(),
        evidence: String::new(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: None,
        detected_at: String::new(),
        acted_at: None,
        restored_at: None,
        result: HealResult::Open,
        next: String::new(),
        scene: Scene {
            uid: uid.to_owned(),
            ..Scene::default()
        },
    }
}

/// An Event has to be in the namespace of what it is about.
#[test]
fn an_event_is_about_what_is_wrong_where_that_is_in_the_engines_namespace() {
    let about = |version: &str, kind: &str, name: &str, uid: Option<&str>| ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: Some("flux-system".to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    for (object, uid, expected) in [
        (
            "Deployment flux-system/source-controller",
            "7",
            Some(about(
                "apps/v1",
                "Deployment",
                "source-controller",
                Some("7"),
            )),
        ),
        (
            "Secret flux-system/flux-system",
            "",
            Some(about("v1", "Secret", "flux-system", None)),
        ),
        ("Kustomization apps/web", "7", None),
        ("Namespace flux-system", "7", None),
        ("ClusterRole flux-system/x", "7", None),
        ("Whatever flux-system/x", "7", None),
        ("", "7", None),
    ] {
        assert_eq!(
            regarding(&heal(object, uid), "flux-system"),
            expected,
            "{object}"
        );
    }
    let source = heal("Deployment flux-system/source-controller", "7");
    assert_eq!(regarding(&source, ""), None);
}
