use serde_json::json;

use super::*;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, REQUESTED_AT};
use crate::agent::plan::Class;
use crate::agent::plan::tests::{Cluster, deployment};
use crate::clock::rfc3339;

/// F18: sources are read by whoever applies what they fetched, too; those that can be read are not even kept.
#[test]
fn a_source_that_cannot_be_read_is_taken_out_of_the_way() {
    for kind in [
        Kind::GitRepository,
        Kind::HelmRepository,
        Kind::OciRepository,
        Kind::Bucket,
        Kind::HelmChart,
    ] {
        let mut cluster = Cluster::working();
        let id = ObjectId::new(kind, "apps", "a");
        let source = |interval: &str| {
            json!({
                "apiVersion": kind.api_version(), "kind": kind.as_str(),
                "metadata": {"name": "a", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
                "spec": {"interval": interval, "url": "https://git.test/a"},
            })
        };
        cluster.applications.insert(id.clone(), source("10m"));
        let plan = cluster.plan();
        assert_eq!(
            (plan.findings, plan.steps),
            (Vec::new(), Vec::new()),
            "{kind}"
        );

        cluster.applications.insert(id.clone(), source("2562048h"));
        let plan = cluster.plan();
        let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
        assert_eq!(found, [(Class::UndecodableObject, &id)], "{kind}");
        // Of these alone the simulated cluster has the definition.
        if kind != Kind::GitRepository {
            continue;
        }
        cluster.settle(60);
        let spec = &cluster.applications[&id]["spec"];
        let expected =
            json!({"interval": aside::STAND_IN, "suspend": true, "url": "https://git.test/a"});
        assert_eq!(*spec, expected, "{kind}");
    }
}

/// F18: of a source that is whoever fetches, not whoever applies.
#[test]
fn the_controller_of_a_source_that_gave_up_is_started_again() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::GitRepository, "apps", "a");
    let source = json!({
        "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
        "metadata": {"name": "a", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
        "spec": {"interval": "2562048h", "url": "https://git.test/a"},
    });
    cluster.applications.insert(id.clone(), source);
    cluster.round();
    cluster.now += Duration::seconds(3);
    let pod = cluster.pods.get_mut("source-controller").unwrap();
    pod.waiting = Some(("CrashLoopBackOff".to_owned(), String::new()));
    let plan = cluster.plan();
    let cause = Some((Class::UndecodableObject, id));
    let steps = plan.steps.iter().filter(|s| s.cause == cause);
    let steps: Vec<_> = steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect();
    assert_eq!(
        steps,
        [("set-aside", "a"), ("restart", "source-controller")]
    );
}

/// F18: restarted, the controller would not come up.
#[test]
fn the_silent_controller_of_what_may_not_be_mended_is_left() {
    let mut cluster = Cluster::working();
    cluster.covered = Some([].into());
    let id = cluster.unreadable("a");
    let sync = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    cluster.now += Duration::seconds(120);
    let plan = cluster.plan();
    let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
    assert_eq!(found, [(Class::UndecodableObject, &id)]);
    assert_eq!(plan.steps, Vec::new());
    // When it is gone, the controller has not been asked for long: it could not answer before.
    cluster.history.saw(cluster.now, &plan);
    cluster.applications.remove(&id);
    for _ in 0..2 {
        cluster.now += Duration::seconds(45);
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        assert_eq!(plan.findings, []);
    }
    cluster.now += Duration::seconds(60);
    let classes: Vec<_> = cluster.plan().findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::QueueWedged]);
}

/// F18: what a shard's controllers cannot read keeps nothing from the install's, which do not select it. Whoever applies reads the
/// sources of each shard.
#[test]
fn what_a_shard_cannot_read_is_no_excuse_for_the_installs_controllers() {
    let ours = Some("--watch-label-selector=!sharding.fluxcd.io/key");
    let (theirs, applied) = (Some("shard1"), Kind::Kustomization);
    for (kind, shard, flag, blind) in [
        (applied, None, ours, [false, true]),
        (applied, theirs, None, [false, true]),
        (applied, theirs, ours, [false, false]),
        (Kind::Bucket, theirs, None, [true, true]),
        (Kind::Bucket, theirs, ours, [false, true]),
    ] {
        let mut cluster = Cluster::working();
        let labels = shard.map(|name| json!({"sharding.fluxcd.io/key": name}));
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "a", "namespace": "apps", "uid": "u", "resourceVersion": "7", "labels": labels},
            "spec": {"interval": "2562048h"},
        });
        cluster
            .applications
            .insert(ObjectId::new(kind, "apps", "a"), object);
        for name in ["source-controller", "kustomize-controller"] {
            let live = cluster.objects.get_mut(&deployment(name)).unwrap();
            let container = &mut live.fields["spec"]["template"]["spec"]["containers"][0];
            container["args"] = flag.iter().copied().collect();
        }
        let (now, observed) = (cluster.now, cluster.observed());
        let blinded = [Kind::GitRepository, applied].map(|kind| blinds(&observed, kind));
        assert_eq!(blinded, blind, "{kind} {shard:?} {flag:?}");
        // The same a little later, when it is still there.
        cluster.history.noted(now, &cluster.install, &observed);
        let plan = cluster.plan();
        cluster.history.saw(now, &plan);
        let later = now + Duration::seconds(45);
        let excused = blind.contains(&true).then_some(later);
        let until = cluster.history.blind_until(later);
        assert_eq!(until, excused, "{kind} {shard:?} {flag:?}");
        // Nor is its end one.
        cluster.now = later;
        cluster.applications.clear();
        let observed = cluster.observed();
        cluster.history.noted(later, &cluster.install, &observed);
        let plan = cluster.plan();
        cluster.history.saw(later, &plan);
        let until = cluster.history.blind_until(later + Duration::seconds(45));
        assert_eq!(until, excused, "{kind} {shard:?} {flag:?}");
    }
}

/// F18: a commit is told only where the engine wrote what cannot be read: what a person wrote is in none.
#[test]
fn what_cannot_be_read_is_a_commits_where_the_engine_wrote_it() {
    for (writer, commit) in [
        ("kustomize-controller", "main@sha1:1"),
        ("kubectl-edit", ""),
    ] {
        let mut cluster = Cluster::working();
        let id = cluster.unreadable("a");
        let meta = &mut cluster.applications.get_mut(&id).unwrap()["metadata"];
        meta["labels"] = json!({GIT_OWNER: "flux-system", GIT_OWNER_NAMESPACE: "flux-system"});
        meta["managedFields"][0]["manager"] = json!(writer);
        let found = cluster.plan().findings;
        let said: Vec<_> = found
            .iter()
            .map(|f| (f.class, f.writer.as_str(), f.commit.as_str()))
            .collect();
        assert_eq!(said, [(Class::UndecodableObject, writer, commit)]);
    }
}

#[test]
fn durations_are_read_as_go_reads_them() {
    for text in [
        "10m",
        "1h30m",
        "1.5h",
        ".5s",
        "0",
        "0s",
        "+1m",
        "-1m",
        "100us",
        "1µs",
        "2562047h",
        "9223372036s",
        "000000000000000000000001s",
    ] {
        assert!(duration(text).is_some(), "{text}");
    }
    for text in [
        "",
        "-",
        "10",
        "m",
        "1d",
        "1..5h",
        ".s",
        "1h ",
        "2562048h",
        "9223372037s",
        "99999999999999h",
        "99999999999999999999ms",
    ] {
        assert_eq!(duration(text), None, "{text}");
    }
}

#[test]
fn durations_are_as_long_as_in_go() {
    for (text, milliseconds) in [
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("-2.25s", -2_250),
        ("+.5s", 500),
        ("1500us", 1),
        ("0", 0),
    ] {
        let read = duration(text).map(Duration::whole_milliseconds);
        assert_eq!(read, Some(milliseconds), "{text}");
    }
}

#[test]
fn the_field_is_named_wherever_it_is() {
    assert_eq!(why(&json!({"interval": "10m", "timeout": "5m"})), None);
    let far = json!({"interval": "10m", "install": {"timeout": "99999999999h"}});
    let text = "spec.install.timeout '99999999999h' is no duration that Go can hold";
    assert_eq!(why(&far), Some(text.to_owned()));
}
