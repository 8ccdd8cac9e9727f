//! What is called the cause of what the engine shows, and from when on that is not of before (W18).

use std::collections::BTreeSet;

use super::*;

const RIGHTS: [Kind; 4] = [
    Kind::ClusterRole,
    Kind::ClusterRoleBinding,
    Kind::Role,
    Kind::RoleBinding,
];
const ROOT: &str = "Application argocd/linesman";
const UNAVAILABLE: &str = "code = Unavailable: dial tcp";

/// All kinds of which that is so.
fn kinds(is_so: impl Fn(Kind) -> bool) -> BTreeSet<Kind> {
    Kind::ALL.into_iter().filter(|kind| is_so(*kind)).collect()
}

/// The same engine at a whole second, as the API server tells times.
fn at_a_second(engine: EngineKind) -> Cluster {
    let mut cluster = working(engine, true);
    cluster.now = cluster.now.replace_nanosecond(0).unwrap();
    cluster
}

fn why(cluster: &Cluster, id: &ObjectId, since: OffsetDateTime) -> Option<String> {
    let (now, observed) = (cluster.now, cluster.observed());
    let changed = (id, since);
    blamed(now, &cluster.install, &observed, &cluster.history, changed)
}

/// What a commit is said to have broken, and by what.
fn broken_by(cluster: &Cluster, id: &ObjectId) -> Option<(Class, String)> {
    let (now, observed) = (cluster.now, cluster.observed());
    let object = (id, &cluster.install.wanted[id], &cluster.objects[id]);
    let found = broken(now, &cluster.install, &observed, &cluster.history, object)?;
    Some((found.class, found.evidence))
}

#[test]
fn what_a_pod_starts_with_is_blamed_where_it_does_not_start() {
    let mut starts = RIGHTS.to_vec();
    starts.extend([Kind::ConfigMap, Kind::ServiceAccount]);
    for (class, expected) in [
        (Class::CrashLoop, starts),
        (Class::ConfigRefMissing, vec![Kind::ConfigMap]),
        (Class::QuotaBlocks, vec![Kind::ResourceQuota]),
        (Class::RegistryDown, vec![]),
        (Class::OomKilled, vec![]),
    ] {
        let expected: BTreeSet<Kind> = expected.into_iter().collect();
        assert_eq!(kinds(|kind| stops(kind, class)), expected, "{class}");
    }
}

#[test]
fn only_what_is_between_a_controller_and_others_is_blamed_for_its_silence() {
    let mut between: BTreeSet<Kind> = RIGHTS.into();
    between.extend([Kind::ConfigMap, Kind::NetworkPolicy, Kind::Service]);
    assert_eq!(kinds(deafens), between);
    let account = ObjectId::new(Kind::ServiceAccount, "flux-system", "kustomize-controller");
    for (id, seconds, shown) in [
        (binding(), 45, false),
        (binding(), 46, true),
        (account, 46, false),
    ] {
        let mut cluster = at_a_second(EngineKind::Flux);
        let changed = cluster.now;
        asked_in_vain(&mut cluster);
        cluster.now += Duration::seconds(1 + seconds);
        let text = "nobody answers for Kustomization flux-system/flux-system";
        let expected = shown.then(|| text.to_owned());
        assert_eq!(why(&cluster, &id, changed), expected, "{id} {seconds}");
    }
}

/// What a root of Flux says in the first seconds may be of before; Argo CD says when it looked.
#[test]
fn nothing_is_blamed_for_a_complaint_of_before_it_was_changed() {
    for (seconds, shown) in [(5, false), (6, true)] {
        let mut cluster = at_a_second(EngineKind::Flux);
        root_says(
            &mut cluster,
            &json!({"conditions": [{
                "type": "Ready", "status": "False", "reason": "ReconciliationFailed", "message": "x is forbidden",
            }]}),
        );
        let changed = cluster.now - Duration::seconds(seconds);
        let text = "Kustomization flux-system/flux-system: ReconciliationFailed: x is forbidden"
            .to_owned();
        let why = why(&cluster, &binding(), changed);
        assert_eq!(why, shown.then_some(text), "{seconds}");
    }
    for (seconds, shown) in [(-1, false), (0, true), (1, true)] {
        let mut cluster = at_a_second(EngineKind::Argocd);
        let changed = cluster.now;
        let looked = rfc3339(changed + Duration::seconds(seconds));
        complains(&mut cluster, &looked);
        cluster.now += Duration::MINUTE;
        let text = format!("{ROOT}: ComparisonError: {UNAVAILABLE}");
        let why = why(&cluster, &settings_map(PARAMS), changed);
        assert_eq!(why, shown.then_some(text), "{seconds}");
    }
}

/// The root of Argo CD has looked then, and does not get at its parts.
fn complains(cluster: &mut Cluster, looked: &str) {
    let complaint = json!({"type": "ComparisonError", "message": UNAVAILABLE});
    let status = json!({"conditions": [complaint], "reconciledAt": looked});
    root_says(cluster, &status);
}

/// F53, W18: with what Git has in the place of our settings the engine has worked; what else a commit does to their object counts.
#[test]
fn a_commit_is_not_blamed_for_settings_with_which_the_engine_has_worked() {
    let label = "/metadata/labels/app.kubernetes.io~1part-of";
    for relabelled in [false, true] {
        let mut cluster = at_a_second(EngineKind::Argocd);
        let id = settings_map(PARAMS);
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        expect["data"] = json!({"ours": "1"});
        wanted.expect = Arc::new(expect);
        let mut metadata = cluster.objects[&id].fields["metadata"].clone();
        if relabelled {
            metadata["labels"]["app.kubernetes.io/part-of"] = json!("other");
        }
        written(&mut cluster, &id, "argocd-controller", "metadata", metadata);
        let looked = rfc3339(cluster.now);
        complains(&mut cluster, &looked);
        let text = format!("{ROOT}: ComparisonError: {UNAVAILABLE}; commit 1 changed {label}");
        let expected = relabelled.then_some((Class::BadEngineCommit, text));
        assert_eq!(broken_by(&cluster, &id), expected, "{relabelled}");
    }
}

/// F6: a controller that crashes as it was before is not what a commit broke, although Git has just applied it.
#[test]
fn a_commit_that_changed_nothing_of_a_controller_is_not_blamed_for_it() {
    let changed = "CrashLoopBackOff: back-off; exit code 0 (), 0 restarts; commit main@sha1:1 changed \
                   /spec/template/spec/containers/manager/args/0";
    for (arg, why) in [("--a", None), ("--b", Some(changed))] {
        let mut cluster = at_a_second(EngineKind::Flux);
        let name = "kustomize-controller";
        let id = ObjectId::new(Kind::Deployment, "flux-system", name);
        let mut spec = cluster.objects[&id].fields["spec"].clone();
        spec["template"]["spec"]["containers"][0]["args"] = json!([arg]);
        written(&mut cluster, &id, name, "spec", spec);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"] = json!({"observedGeneration": 99});
        let pod = Pod {
            app: name.to_owned(),
            waiting: Some(("CrashLoopBackOff".to_owned(), "back-off".to_owned())),
            ..Pod::default()
        };
        cluster.pods.insert(name.to_owned(), pod);
        let expected = why.map(|text| (Class::BadEngineCommit, text.to_owned()));
        assert_eq!(broken_by(&cluster, &id), expected, "{arg}");
    }
}
