//! What is asked beside the roots: the canary, and Applications below the root that hold something back.

use super::*;
use crate::agent::engine::TRACKING;
use crate::agent::engine::flux::{CANARY, HELM};
use crate::agent::plan::quarantine::HELD;
use crate::agent::plan::tests::{flux_with_helm, install_with};

/// A working Flux with helm-controller, which was asked so long ago and has answered.
fn with_canary(ago: Duration) -> Cluster {
    let mut cluster = Cluster::working_with(install_with(flux_with_helm()));
    let sent = rfc3339(cluster.now - ago);
    let live = cluster.objects.get_mut(&canary()).unwrap();
    live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(sent);
    live.fields["status"]["lastHandledReconcileAt"] = json!(sent);
    cluster
}

fn canary() -> ObjectId {
    ObjectId::new(Kind::HelmRelease, "flux-system", CANARY)
}

/// F10: what holds for the roots holds for it.
#[test]
fn a_canary_is_asked_where_it_was_not_a_moment_ago_and_its_controller_can_answer() {
    let every = Cluster::working().install.policy.probe_every;
    for (sent, nudged, replicas, due) in [
        (every, None, 1, true),
        (every, Some(SPACING), 1, true),
        (every, Some(SPACING - SECOND), 1, false),
        (every, None, 0, false),
        (every - SECOND, None, 1, false),
    ] {
        let mut cluster = with_canary(sent);
        let controller = ObjectId::new(Kind::Deployment, "flux-system", HELM);
        let live = cluster.objects.get_mut(&controller).unwrap();
        live.fields["status"]["availableReplicas"] = json!(replicas);
        if let Some(ago) = nudged {
            let at = cluster.now - ago;
            cluster.history.nudged.insert(canary(), at);
        }
        let (asked, _) = next(&cluster);
        assert_eq!(
            asked.contains(&canary()),
            due,
            "{sent} {nudged:?} {replicas}"
        );
    }
}

/// W18: a new commit may mend what it broke, and by itself the Application that brings it would look minutes later.
#[test]
fn applications_that_hold_something_back_are_asked_once_of_each_new_head() {
    let root = Cluster::working_of(EngineKind::Argocd).install.sync;
    let below = ObjectId::new(Kind::Application, "argocd", "engine");
    let both = || vec![root.clone(), below.clone()];
    for (head, nudged, expected) in [
        ("2", None, both()),
        ("2", Some(-1), both()),
        ("2", Some(0), vec![root.clone()]),
        ("2", Some(1), vec![root.clone()]),
        ("1", None, vec![]),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        for (name, by) in [
            ("argocd-repo-server", "engine"),
            ("argocd-redis", "linesman"),
        ] {
            let id = ObjectId::new(Kind::Deployment, "argocd", name);
            let since = rfc3339(cluster.now);
            let hold = json!({"revision": "1", "since": since, "reason": "x", "attempt": 1});
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["metadata"]["annotations"] = json!({
                HELD: hold.to_string(), TRACKING: format!("{by}:apps/Deployment:argocd/{name}"),
            });
        }
        let said = cluster.now - SECOND * 30;
        cluster.history.head = Some((head.to_owned(), said));
        if let Some(later) = nudged {
            cluster
                .history
                .nudged
                .insert(below.clone(), said + SECOND * later);
        }
        assert_eq!(next(&cluster).0, expected, "{head} {nudged:?}");
    }
}
