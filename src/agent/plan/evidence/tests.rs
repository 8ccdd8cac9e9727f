use std::sync::Arc;

use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::plan::project::lease_of;
use crate::agent::plan::tests::{Cluster, start};

const APP: &str = "source-controller";

fn at(seconds: i64) -> OffsetDateTime {
    start() + Duration::seconds(seconds)
}

/// Working, with these Pods of source-controller and no others.
fn with(pods: &[(&str, Pod)]) -> (Cluster, Observed) {
    let cluster = Cluster::working();
    let mut observed = cluster.observed();
    observed.pods = pods
        .iter()
        .map(|(name, pod)| {
            let app = APP.to_owned();
            ((*name).to_owned(), Arc::new(Pod { app, ..pod.clone() }))
        })
        .collect();
    (cluster, observed)
}

/// What is told of a fault of `class`.
fn told(cluster: &Cluster, observed: &Observed, class: Class, id: &ObjectId) -> String {
    let mut found = [Finding::new(class, id, "shown")];
    complete(&cluster.install, observed, &mut found);
    found[0].evidence.clone()
}

fn pod(ready: bool) -> Pod {
    Pod {
        created: Some(at(-60)),
        running: Some(at(-50)),
        ready,
        ..Pod::default()
    }
}

/// F12: what of the queue there is to see without a scrape, for which the agent has no right.
#[test]
fn of_a_controller_that_does_not_answer_pods_and_lease_are_told() {
    let lease = |renewed: i64| Lease {
        uid: "lease".to_owned(),
        holder: "a".to_owned(),
        acquired: None,
        renewed: at(-renewed),
        seen: at(0),
    };
    let run = "shown; Pod a runs since 2027-01-15T07:59:10.000Z";
    for (renewed, expected) in [
        (None, run.to_owned()),
        (Some(35), format!("{run}, Pod a renews the Lease")),
        (
            Some(36),
            format!("{run}, Pod a holds the Lease, renewed last at 2027-01-15T07:59:24.000Z"),
        ),
    ] {
        let (cluster, mut observed) = with(&[("a", pod(true))]);
        observed.leases = renewed
            .map(|renewed| (lease_of(APP, None), lease(renewed)))
            .into_iter()
            .collect();
        let source = cluster.install.source.clone();
        let told = told(&cluster, &observed, Class::QueueWedged, &source);
        assert_eq!(told, expected, "{renewed:?}");
    }
    let (cluster, mut observed) = with(&[("a", pod(true))]);
    let free = Lease {
        holder: String::new(),
        ..lease(3)
    };
    observed.leases = [(lease_of(APP, None), free)].into();
    let source = cluster.install.source.clone();
    let told = told(&cluster, &observed, Class::QueueWedged, &source);
    let expected = format!("{run}, the Lease was given back at 2027-01-15T07:59:57.000Z");
    assert_eq!(told, expected);
}

/// Neither those of another controller, nor what goes or has failed for good.
#[test]
fn only_pods_that_are_there_for_the_controller_are_named() {
    let going = Pod {
        deleting: true,
        ..pod(true)
    };
    let failed = Pod {
        failed: Some("Evicted: x".to_owned()),
        ..pod(true)
    };
    let (cluster, mut observed) = with(&[("a", pod(true)), ("b", going), ("c", failed)]);
    let other = Pod {
        app: "kustomize-controller".to_owned(),
        ..pod(true)
    };
    observed.pods.insert("d".to_owned(), Arc::new(other));
    let source = cluster.install.source.clone();
    let told = told(&cluster, &observed, Class::QueueWedged, &source);
    assert_eq!(told, "shown; Pod a runs since 2027-01-15T07:59:10.000Z");
}

/// F25, W2: both sides, the one that is known from the beginning first.
#[test]
fn of_another_host_key_both_fingerprints_are_told() {
    let met = |print: &str, known| {
        let fingerprint = format!("SHA256:{print}");
        Some(MetKey { fingerprint, known })
    };
    for (known, met, expected) in [
        (&[][..], None, "shown"),
        (
            &["a", "b"],
            None,
            "shown; known of the host: SHA256:a, SHA256:b",
        ),
        (
            &["a", "b"],
            met("c", false),
            "shown; known of the host: SHA256:a, SHA256:b; it shows the agent SHA256:c",
        ),
        (
            &["a"],
            met("a", true),
            "shown; known of the host: SHA256:a; it shows the agent SHA256:a, which is known",
        ),
        (&[], met("c", false), "shown; it shows the agent SHA256:c"),
    ] {
        let (cluster, mut observed) = with(&[]);
        observed.host_keys = HostKeys {
            known: known
                .iter()
                .map(|print| format!("SHA256:{print}"))
                .collect(),
            met,
        };
        let source = cluster.install.source.clone();
        let told = told(&cluster, &observed, Class::HostKeyMismatch, &source);
        assert_eq!(told, expected);
    }
}

/// F11
#[test]
fn of_events_for_nobody_it_is_told_how_long_the_root_took() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", APP);
    let sync = cluster.install.sync.clone();
    for (history, expected) in [
        (json!([]), "shown"),
        (
            json!([{"lastReconciled": "2027-01-15T08:00:00Z", "lastReconciledDuration": "31.2s"}]),
            "shown; Kustomization flux-system/flux-system took 31.2s when it was reconciled last, at 2027-01-15T08:00:00Z",
        ),
    ] {
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["history"] = history;
        let observed = cluster.observed();
        assert_eq!(
            told(&cluster, &observed, Class::EventSinkMissing, &id),
            expected
        );
    }
}

#[test]
fn of_a_history_the_last_time_is_kept() {
    let one = |at: &str, took: &str| json!({"digest": "sha256:1", "lastReconciled": at, "lastReconciledDuration": took});
    let kept = |at: &str, took: &str| json!({"lastReconciled": at, "lastReconciledDuration": took});
    let (old, new) = ("2027-01-15T08:00:00Z", "2027-01-15T08:10:00Z");
    let all = [one(old, "1s"), one(new, "2s"), one("yesterday", "3s")];
    for (history, expected) in [
        (json!(all), json!([kept(new, "2s")])),
        (json!([one(old, "1s")]), json!([kept(old, "1s")])),
        (json!([]), json!([])),
        (json!("x"), json!([])),
    ] {
        assert_eq!(latest(&history), expected, "{history}");
    }
}

/// F32
#[test]
fn of_a_service_that_does_not_answer_the_pods_behind_it_are_told() {
    let service = "Service flux-system/source-controller";
    for (pods, there, expected) in [
        (vec![], false, format!("shown; {service} is missing")),
        (
            vec![],
            true,
            format!("shown; {service} has no Pod behind it"),
        ),
        (
            vec![("a", pod(true)), ("b", pod(false))],
            true,
            format!("shown; behind {service}: Pod a is ready, Pod b is not ready"),
        ),
    ] {
        let (cluster, mut observed) = with(&pods);
        if !there {
            observed.objects.retain(|id, _| id.kind != Kind::Service);
        }
        let sync = cluster.install.sync.clone();
        let told = told(&cluster, &observed, Class::ArtifactUnreachable, &sync);
        assert_eq!(told, expected);
    }
}

/// F33
#[test]
fn of_an_engine_that_is_kept_from_git_others_policies_are_named() {
    let (cluster, mut observed) = with(&[]);
    let source = cluster.install.source.clone();
    for (names, expected) in [
        (
            vec![],
            "shown; namespace flux-system has no NetworkPolicy of others",
        ),
        (
            vec!["deny-all", "audit"],
            "shown; NetworkPolicies of others in flux-system: audit, deny-all",
        ),
        (
            vec!["1", "2", "3", "4", "5", "6", "7"],
            "shown; NetworkPolicies of others in flux-system: 1, 2, 3, 4, 5 and 2 more",
        ),
    ] {
        observed.policies = names.into_iter().map(str::to_owned).collect();
        assert_eq!(
            told(&cluster, &observed, Class::PolicyBlocks, &source),
            expected
        );
    }
}

/// F22
#[test]
fn of_an_object_that_does_not_go_it_is_told_who_should_let_it_go() {
    let since = "since 2027-01-15T07:58:20.000Z";
    let controller = "Deployment flux-system/kustomize-controller";
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let sync = cluster.install.sync.clone();
    cluster.objects.get_mut(&sync).unwrap().deleting = Some(at(-100));
    cluster.objects.get_mut(&id).unwrap().deleting = Some(at(-100));
    let of = |observed: &Observed, id: &ObjectId| {
        told(&cluster, observed, Class::LeftoverFinalizers, id)
    };
    let observed = cluster.observed();
    assert_eq!(of(&observed, &id), format!("shown; {since}"));
    let says = format!("shown; {since}, {controller} runs, and does not let it go");
    assert_eq!(of(&observed, &sync), says);
    let mut down = observed.clone();
    let mut live = down.objects[&id].as_ref().clone();
    live.fields["status"]["availableReplicas"] = json!(0);
    down.objects.insert(id.clone(), Arc::new(live));
    let says = format!("shown; {since}, {controller}, which lets it go, is not available");
    assert_eq!(of(&down, &sync), says);
    down.objects.remove(&id);
    let says = format!("shown; {since}, {controller}, which lets it go, is missing");
    assert_eq!(of(&down, &sync), says);
}

/// F2
#[test]
fn of_void_tokens_both_ages_are_told() {
    // One that was made in the same second has its tokens of this account.
    let young = Pod {
        created: Some(at(-10)),
        ..pod(true)
    };
    let (mut cluster, observed) = with(&[("a", pod(true)), ("b", young)]);
    let id = ObjectId::new(Kind::ServiceAccount, "flux-system", APP);
    cluster.objects.get_mut(&id).unwrap().created = Some(at(-10));
    let observed = Observed {
        pods: observed.pods,
        ..cluster.observed()
    };
    assert_eq!(
        told(&cluster, &observed, Class::ServiceAccountMissing, &id),
        "shown; that one is of 2027-01-15T07:59:50.000Z, Pod a is of 2027-01-15T07:59:00.000Z"
    );
    let gone = Observed::default();
    assert_eq!(
        told(&cluster, &gone, Class::ServiceAccountMissing, &id),
        "shown"
    );
}

/// F27: which branch, and where; and what a person does about it is another thing than for a host that does not answer.
#[test]
fn of_a_branch_that_is_missing_its_name_and_repository_are_told() {
    for (engine, words) in [
        (
            EngineKind::Flux,
            "unable to clone: couldn't find remote ref \"refs/heads/main\"",
        ),
        (EngineKind::Flux, "unable to clone: reference not found"),
        (
            EngineKind::Argocd,
            "unable to resolve 'main' to a commit SHA",
        ),
    ] {
        let cluster = Cluster::working_of(engine);
        let url = {
            let source = cluster.install.base(&cluster.install.source).unwrap();
            let of = ["/spec/url", "/spec/source/repoURL"];
            let url = of.iter().find_map(|at| source.pointer(at)).unwrap();
            url.as_str().unwrap().to_owned()
        };
        let missing = |id: &ObjectId, words: &str| {
            let mut found = [Finding::new(Class::GitUnreachable, id, words)];
            complete(&cluster.install, &cluster.observed(), &mut found);
            let [found] = found;
            found
        };
        let told = missing(&cluster.install.source, words);
        let said = format!("{words}; repository {url} has no branch 'main'");
        assert_eq!(told.evidence, said);
        assert!(told.advice().starts_with("push the branch"));
        // What the catalog brings follows what it says itself.
        let child = ObjectId::new(Kind::GitRepository, "apps", "apps");
        assert_eq!(missing(&child, words).evidence, words);
        let away = missing(&cluster.install.source, "i/o timeout");
        assert_eq!(
            (away.evidence.as_str(), away.advice()),
            ("i/o timeout", Class::GitUnreachable.advice())
        );
    }
}

#[test]
fn of_all_else_nothing_is_added() {
    let (cluster, observed) = with(&[]);
    let sync = cluster.install.sync.clone();
    assert_eq!(
        told(&cluster, &observed, Class::GitUnreachable, &sync),
        "shown"
    );
}
