use super::super::tests::heal;
use super::*;
use crate::wire::api::CommitView;
use crate::wire::report::{ObjectCondition, ObjectEvent};

#[test]
fn what_a_cluster_says_does_not_write_over_the_rest() {
    let mut view = heal("0199-a-1111");
    view.heal.evidence = "a\u{1b}[2K\rb\n\tc\u{1b}]52;c;eA==\u{7}".to_owned();
    let text = describe(&view);
    assert!(
        !text.contains("\u{1b}[2K") && !text.contains('\r'),
        "{text:?}"
    );
    let evidence = "evidence\n  a\u{fffd}[2K\u{fffd}b\n  \tc\u{fffd}]52;c;eA==\u{fffd}\n";
    assert!(text.contains(evidence), "{text:?}");
}

#[test]
fn a_heal_is_told_with_its_times_since_the_fault() {
    let text = describe(&heal("0199-a-1111"));
    for part in [
        "F1 ObjectMissing: an object is gone",
        "detect 0.2s, act 0.1s, restore 8.7s",
        "none: it did not come from Git",
        "evidence\n  deleted\n",
        "2026-01-01T00:00:00.300Z  0.3s   create Deployment: ok",
        "2025-12-31T23:00:00.000Z  -      somebody committed it",
        "next           nothing",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn what_was_around_the_fault_is_told() {
    let mut view = heal("0199-a-1111");
    view.heal.scene = Scene {
        uid: "7c0e".to_owned(),
        conditions: vec![ObjectCondition {
            kind: "Available".to_owned(),
            status: "False".to_owned(),
            reason: "NoPods".to_owned(),
            message: "no minimum".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        }],
        events: vec![ObjectEvent {
            at: "2026-01-01T00:00:00.000Z".to_owned(),
            kind: "Warning".to_owned(),
            object: "Pod a-7f".to_owned(),
            reason: "BackOff".to_owned(),
            message: "restarting".to_owned(),
            count: 3,
        }],
        log: vec!["starting".to_owned(), "panic: no".to_owned()],
        revision_after: "main@sha1:2".to_owned(),
        remade: Remade {
            count: 3,
            objects: vec!["ConfigMap shop/a".to_owned(), "Secret shop/b".to_owned()],
        },
    };
    let text = describe(&view);
    for part in [
        "uid            7c0e\n",
        "catalog after  main@sha1:2\n",
        "made again     3 objects that were gone\n",
        "LOG BEFORE\nstarting\npanic: no\n",
        "MADE AGAIN\nConfigMap shop/a\nSecret shop/b\nand 1 more\n",
        "Available       False   2026-01-01T00:00:00Z  NoPods  no minimum\n",
        "2026-01-01T00:00:00.000Z  Warning  3 x    Pod a-7f  BackOff  restarting\n",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

/// Of a `kubectl scale` nothing is left in the object.
#[test]
fn who_wrote_to_the_object_through_the_hub_is_told_where_that_may_be_known() {
    let mut view = heal("0199-a-1111");
    assert!(!describe(&view).contains("through hub"), "{view:?}");
    view.through_hub = Some(Vec::new());
    let none = "through hub    no, or it is not on record\n";
    assert!(describe(&view).contains(none), "{}", describe(&view));
    let write = |actor: &str, request_id: &str| HubWrite {
        at: "2026-01-01T00:00:00.100Z".to_owned(),
        actor: actor.to_owned(),
        action: "kube.patch".to_owned(),
        target: "/apis/apps/v1/namespaces/a/deployments/b/scale".to_owned(),
        request_id: request_id.to_owned(),
    };
    view.through_hub = Some(vec![write("user:ada", "r1"), write("user:bob", "r2")]);
    let text = describe(&view);
    let row = |actor: &str, request: &str| {
        format!(
            "through hub    {actor} kube.patch /apis/apps/v1/namespaces/a/deployments/b/scale \
             at 2026-01-01T00:00:00.100Z (request {request})\n"
        )
    };
    let rows = row("user:ada", "r1") + &row("user:bob", "r2");
    assert!(text.contains(&rows), "{text}");
}

#[test]
fn who_committed_it_is_told() {
    let mut view = heal("0199-a-1111");
    view.heal.commit = "main@sha1:3f2a".to_owned();
    assert_eq!(commit(&view), "main@sha1:3f2a");
    view.author = Some(CommitView {
        id: "3f2a".to_owned(),
        author: "Ann <ann@example.com>".to_owned(),
        at: "2026-01-01T00:00:00.000Z".to_owned(),
        subject: "Faster".to_owned(),
    });
    assert_eq!(
        commit(&view),
        "3f2a by Ann <ann@example.com> at 2026-01-01T00:00:00.000Z: Faster"
    );
}
