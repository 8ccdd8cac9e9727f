use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::engine::is_workload;
use crate::agent::plan::find::find;
use crate::agent::plan::tests::{Bad, Cluster, deployment};
use crate::agent::plan::{Action, quarantine};

mod astray;

const SOURCE: &str = "source-controller";

/// With a source-controller that somebody changed two minutes ago, and Pods that run for long.
fn changed(engine: EngineKind) -> Cluster {
    let mut cluster = Cluster::working_of(engine);
    // As the API server tells times.
    cluster.now = cluster.now.replace_nanosecond(0).unwrap();
    for pod in cluster.pods.values_mut() {
        pod.running = Some(cluster.now - Duration::HOUR);
    }
    if let Some(live) = cluster.objects.get_mut(&deployment(SOURCE)) {
        live.written = Some(cluster.now);
    }
    cluster.now += Duration::minutes(2);
    cluster
}

fn ago(cluster: &Cluster, seconds: i64) -> OffsetDateTime {
    cluster.now - Duration::seconds(seconds)
}

/// What the root says: its conditions as type, status, reason, message and for how many seconds.
fn says(cluster: &mut Cluster, conditions: &[(&str, &str, &str, &str, i64)]) {
    let all = conditions
        .iter()
        .map(|(kind, status, reason, message, since)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": rfc3339(ago(cluster, *since)),
            })
        });
    let all: Vec<Value> = all.collect();
    let sync = cluster.install.sync.clone();
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!(all);
}

const TEXT: &str = "Fetching manifests for revision main@sha1:1 with a timeout of 5m0s";

fn fetches(cluster: &mut Cluster, since: i64) {
    says(
        cluster,
        &[
            ("Reconciling", "True", "Progressing", TEXT, since),
            ("Ready", "Unknown", "Progressing", "", since),
        ],
    );
}

fn shown(cluster: &Cluster, name: &str) -> Option<String> {
    let id = deployment(name);
    let live = cluster.objects.get(&id)?;
    let observed = cluster.observed();
    let (now, install) = (cluster.now, &cluster.install);
    unreached(now, install, &observed, &cluster.history, (&id, live))
}

/// F10, F32
#[test]
fn a_fetch_shows_it_that_failed_or_goes_on_for_longer_than_between_two_tries() {
    let failed = "failed to download archive: no such host";
    for (conditions, expected) in [
        (
            vec![
                ("Reconciling", "True", "Progressing", TEXT, 46),
                ("Ready", "Unknown", "Progressing", "", 46),
            ],
            true,
        ),
        (
            vec![
                ("Reconciling", "True", "Progressing", TEXT, 45),
                ("Ready", "Unknown", "Progressing", "", 46),
            ],
            false,
        ),
        // Of the change two minutes ago.
        (vec![("Ready", "False", "ArtifactFailed", failed, 74)], true),
        (
            vec![("Ready", "False", "ArtifactFailed", failed, 75)],
            false,
        ),
        // There was nothing yet that it could have fetched.
        (
            vec![(
                "Ready",
                "False",
                "ArtifactFailed",
                "Source artifact not found, retrying in 30s",
                0,
            )],
            false,
        ),
        (vec![("Ready", "False", "BuildFailed", failed, 0)], false),
        (
            vec![
                (
                    "Reconciling",
                    "True",
                    "Progressing",
                    "Building manifests for revision main@sha1:1",
                    90,
                ),
                ("Ready", "Unknown", "Progressing", "", 90),
            ],
            false,
        ),
        // It failed for another reason, and is not tried yet.
        (
            vec![
                ("Reconciling", "True", "ProgressingWithRetry", TEXT, 90),
                ("Ready", "Unknown", "Progressing", "", 90),
            ],
            false,
        ),
        (
            vec![
                ("Reconciling", "True", "Progressing", TEXT, 46),
                ("Ready", "True", "ReconciliationSucceeded", "", 46),
            ],
            true,
        ),
        (vec![("Ready", "Unknown", "Progressing", "", 90)], false),
        (vec![], false),
    ] {
        let mut cluster = changed(EngineKind::Flux);
        says(&mut cluster, &conditions);
        let said = shown(&cluster, SOURCE);
        assert_eq!(said.is_some(), expected, "{conditions:?} {said:?}");
        assert_eq!(shown(&cluster, "kustomize-controller"), None);
    }
}

/// F6: it ended in a fetch, and what it said of that stays until it is there again.
#[test]
fn a_fetch_of_one_that_is_not_up_shows_nothing() {
    let mut cluster = changed(EngineKind::Flux);
    fetches(&mut cluster, 100);
    assert!(shown(&cluster, SOURCE).is_some());
    let fetcher = deployment("kustomize-controller");
    let live = cluster.objects.get_mut(&fetcher).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    assert_eq!(shown(&cluster, SOURCE), None);
}

/// Sets a time of the cluster's to so many seconds ago.
type Set<'a> = &'a dyn Fn(&mut Cluster, i64);

/// W22: until a new version serves, and somebody is there to fetch, nobody could have fetched from it.
#[test]
fn it_counts_from_when_both_ends_are_there() {
    let running = |cluster: &mut Cluster, name: &str, seconds: i64| {
        let at = ago(cluster, seconds);
        cluster.pods.get_mut(name).unwrap().running = Some(at);
    };
    let of_source = |cluster: &mut Cluster, seconds: i64| running(cluster, SOURCE, seconds);
    let of_fetcher = |cluster: &mut Cluster, seconds: i64| {
        running(
            cluster,
            "kustomize-controller",
            seconds + HANDED.whole_seconds(),
        );
    };
    let available = |cluster: &mut Cluster, seconds: i64| {
        let at = rfc3339(ago(cluster, seconds));
        let live = cluster.objects.get_mut(&deployment(SOURCE)).unwrap();
        live.fields["status"]["conditions"] =
            json!([{"type": "Available", "status": "True", "lastTransitionTime": at}]);
    };
    let written = |cluster: &mut Cluster, seconds: i64| {
        let at = ago(cluster, seconds);
        cluster
            .objects
            .get_mut(&deployment(SOURCE))
            .unwrap()
            .written = Some(at);
    };
    let at_work = |cluster: &mut Cluster, seconds: i64| {
        cluster.history.at_work = Some(ago(cluster, seconds));
    };
    let since: [(&str, Set<'_>); 5] = [
        ("the Pod of source-controller", &of_source),
        ("the Pod of kustomize-controller", &of_fetcher),
        ("available", &available),
        ("written", &written),
        ("at work", &at_work),
    ];
    for (what, set) in since {
        for (seconds, expected) in [(45, false), (46, true)] {
            let mut cluster = changed(EngineKind::Flux);
            fetches(&mut cluster, 100);
            assert!(shown(&cluster, SOURCE).is_some());
            set(&mut cluster, seconds);
            let said = shown(&cluster, SOURCE);
            assert_eq!(said.is_some(), expected, "{what} {seconds}");
        }
    }
}

fn done(cluster: &Cluster) -> Vec<(&str, &str)> {
    let steps = cluster.steps.iter().map(|(_, step)| step);
    let steps = steps.filter(|step| step.action != Action::Nudge);
    steps
        .map(|step| (step.action.as_str(), step.target.name.as_str()))
        .collect()
}

/// W18, F43: source-controller is available and answers, and no further commit would reach the cluster.
#[test]
fn a_commit_of_an_address_at_which_nobody_is_found_is_held_and_undone() {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    let id = cluster.commit(SOURCE, Bad::Address);
    cluster.settle(200);
    let took = cluster.now - began;
    // Nothing here wakes the agent between two looks.
    assert!(took < Duration::minutes(4), "{took}");
    assert_eq!(done(&cluster), [("hold", SOURCE), ("apply", SOURCE)]);
    let hold = hold(&cluster.objects[&id]).unwrap();
    assert_eq!(
        hold.reason,
        "runs, but nobody fetches from it for Kustomization flux-system/flux-system: ArtifactFailed: failed to download archive: no such host; \
         commit main@sha1:1 changed /spec/template/spec/containers/manager/args/0"
    );
}

/// W18: nothing else tells of such a fetch, for kustomize-controller answers no question before it has given up.
#[test]
fn a_commit_is_called_by_a_fetch_that_leaves_the_root_ready() {
    let mut cluster = Cluster::working();
    let id = cluster.commit(SOURCE, Bad::Address);
    cluster.controllers();
    cluster.now += Duration::minutes(2);
    says(
        &mut cluster,
        &[
            ("Reconciling", "True", "Progressing", TEXT, 100),
            ("Ready", "True", "ReconciliationSucceeded", "", 101),
        ],
    );
    let (now, install) = (cluster.now, &cluster.install);
    let all = find(now, install, &cluster.observed(), &cluster.history);
    let called = all.iter().find(|f| f.class == Class::BadEngineCommit);
    let text = format!(
        "runs, but nobody fetches from it for Kustomization flux-system/flux-system: {TEXT}, since {}; \
         commit main@sha1:1 changed /spec/template/spec/containers/manager/args/0",
        rfc3339(ago(&cluster, 100))
    );
    let called = called.map(|f| (&f.object, f.evidence.as_str()));
    assert_eq!(called, Some((&id, text.as_str())), "{all:#?}");
}

/// F10: what Git owns Git puts back, unless that is what keeps Git from it.
#[test]
fn an_address_by_kubectl_is_put_right_where_git_owns_the_engine() {
    let right = [("apply", SOURCE)];
    for (arg, expected) in [
        ("--storage-adv-addr=nowhere", &right[..]),
        ("--log-level=debug", &[]),
    ] {
        let mut cluster = Cluster::working();
        for (id, wanted) in &mut cluster.install.wanted {
            wanted.git_owned = is_workload(id.kind);
        }
        let began = cluster.now;
        let args = "/spec/template/spec/containers/0/args";
        cluster.alter(SOURCE, args, json!([arg]));
        let live = cluster.objects.get_mut(&deployment(SOURCE)).unwrap();
        live.written = Some(began);
        // While it is rolled out it is put right for that alone.
        cluster.controllers();
        while cluster.now - began < Duration::minutes(3) {
            let plan = cluster.round();
            let why =
                "runs, but nobody fetches from it for Kustomization flux-system/flux-system: ";
            let mut found = plan.findings.iter();
            let useless = found.find(|f| f.class == Class::ReadyButUseless);
            assert!(
                useless.is_none_or(|f| f.evidence.starts_with(why)),
                "{useless:?}"
            );
        }
        assert_eq!(done(&cluster), expected, "{arg}");
    }
}

/// Its repo-server has complaints of its own.
#[test]
fn argo_cd_has_no_such_address() {
    let mut cluster = changed(EngineKind::Argocd);
    fetches(&mut cluster, 100);
    let observed = cluster.observed();
    for id in cluster.install.workloads() {
        let live = &cluster.objects[id];
        let said = unreached(
            cluster.now,
            &cluster.install,
            &observed,
            &cluster.history,
            (id, live),
        );
        assert_eq!(said, None, "{id}");
    }
}
