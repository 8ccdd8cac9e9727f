//! What is called the cause of what the engine shows, and from when on that is not of before (W18).

use std::collections::BTreeSet;

use super::*;
use crate::agent::plan::state::{OwnLook, OwnRead};

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
    complains_of(cluster, UNAVAILABLE, looked);
}

fn complains_of(cluster: &mut Cluster, message: &str, looked: &str) {
    let complaint = json!({"type": "ComparisonError", "message": message});
    let status = json!({"conditions": [complaint], "reconciledAt": looked});
    root_says(cluster, &status);
}

fn policy() -> ObjectId {
    ObjectId::new(Kind::NetworkPolicy, "flux-system", "allow-egress")
}

/// A commit changes the spec of an object that had another one, or does not. All the same it gives it a label of its own.
fn respecified(cluster: &mut Cluster, id: &ObjectId, before: &Value, now: &Value) {
    let wanted = cluster.install.wanted.get_mut(id).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    expect["spec"] = before.clone();
    wanted.expect = Arc::new(expect);
    let mut metadata = cluster.objects[id].fields["metadata"].clone();
    metadata["labels"]["app.kubernetes.io/version"] = json!("next");
    let by = cluster.install.traits.applier;
    written(cluster, id, by, "metadata", metadata);
    written(cluster, id, by, "spec", now.clone());
}

/// W14, W18, W22: that the host is not what is away shows where the agent reads the catalog, and did when the source was last seen not to.
#[test]
fn a_policy_is_blamed_for_the_git_host_only_where_the_agent_reaches_that() {
    let dial = "dial tcp 192.0.2.1:22: i/o timeout";
    for (asked, read, shown) in [
        (None, None, false),
        // It has not looked since.
        (None, Some((-60, 9)), false),
        (None, Some((-60, 10)), true),
        (None, Some((10, 15)), true),
        // The host was away, and the source has not tried again.
        (None, Some((11, 15)), false),
        (Some((12, false)), Some((11, 15)), false),
        (Some((12, true)), Some((11, 15)), true),
        (Some((16, true)), Some((-60, 15)), false),
    ] {
        let mut cluster = at_a_second(EngineKind::Flux);
        let changed = cluster.now;
        let at = |seconds: i64| changed + Duration::seconds(seconds);
        let [open, shut] = [json!({"egress": [{}]}), json!({"egress": []})];
        respecified(&mut cluster, &policy(), &open, &shut);
        let source = cluster.install.source.clone();
        let fields = &mut cluster.objects.get_mut(&source).unwrap().fields;
        fields["status"]["conditions"] = json!([{
            "type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": dial,
            "lastTransitionTime": rfc3339(at(10)),
        }]);
        if let Some((sent, answered)) = asked {
            let sent = json!(rfc3339(at(sent)));
            if answered {
                fields["status"]["lastHandledReconcileAt"] = sent.clone();
            }
            fields["metadata"]["annotations"][REQUESTED_AT] = sent;
        }
        let mut observed = cluster.observed();
        if let Some((since, last)) = read {
            let (since, last) = (at(since), at(last));
            observed.own_look = OwnLook::Read(OwnRead { since, last });
        }
        let (install, history) = (&cluster.install, &cluster.history);
        let object = (&policy(), changed);
        let why = blamed(at(20), install, &observed, history, object);
        let text = format!("{source}: GitOperationFailed: {dial}");
        assert_eq!(why, shown.then_some(text), "{asked:?} {read:?}");
    }
}

/// W14, W22: for as long as its host says nothing a repo-server of any version has no answer in time.
#[test]
fn what_a_commit_changed_of_argo_cd_is_not_blamed_for_the_git_host() {
    let late = "code = DeadlineExceeded desc = context deadline exceeded";
    let server = ObjectId::new(Kind::Deployment, "argocd", REPO_SERVER);
    for (message, reads, shown) in [
        (late, false, false),
        (late, true, true),
        (UNAVAILABLE, false, true),
    ] {
        let mut cluster = at_a_second(EngineKind::Argocd);
        let changed = cluster.now;
        cluster.objects.get_mut(&server).unwrap().written = Some(changed);
        cluster.now += Duration::MINUTE;
        let now = cluster.now;
        let said = rfc3339(now);
        let complaint =
            json!({"type": "ComparisonError", "message": message, "lastTransitionTime": said});
        let status = json!({"conditions": [complaint], "reconciledAt": said});
        root_says(&mut cluster, &status);
        let mut observed = cluster.observed();
        if reads {
            let (since, last) = (changed, now);
            observed.own_look = OwnLook::Read(OwnRead { since, last });
        }
        let (install, history) = (&cluster.install, &cluster.history);
        let settings = (&settings_map(PARAMS), changed);
        let of_settings = blamed(now, install, &observed, history, settings);
        let of_server = (&server, &*observed.objects[&server]);
        let of_server = harm(now, install, &observed, history, of_server);
        let found = [of_settings.is_some(), of_server.is_some()];
        assert_eq!(found, [shown; 2], "{message} {reads}");
    }
}

/// W14, W22: with the Git host away a look of Argo CD's takes longer than an answer is waited for.
#[test]
fn nothing_is_blamed_for_the_silence_of_an_argo_cd_that_waits_for_the_git_host() {
    let late = "code = DeadlineExceeded desc = context deadline exceeded";
    let policy = ObjectId::new(Kind::NetworkPolicy, "argocd", "argocd-redis-network-policy");
    for (message, reads, shown) in [
        (late, false, false),
        (late, true, true),
        (UNAVAILABLE, false, true),
    ] {
        let mut cluster = at_a_second(EngineKind::Argocd);
        let changed = cluster.now;
        complains_of(&mut cluster, message, &rfc3339(changed - Duration::MINUTE));
        cluster.objects.remove(&policy);
        asked_in_vain(&mut cluster);
        cluster.now += Duration::seconds(47);
        let now = cluster.now;
        let mut observed = cluster.observed();
        if reads {
            let (since, last) = (changed, now);
            observed.own_look = OwnLook::Read(OwnRead { since, last });
        }
        let (install, history) = (&cluster.install, &cluster.history);
        for id in [&policy, &settings_map(PARAMS)] {
            let why = blamed(now, install, &observed, history, (id, changed));
            let text = format!("nobody answers for {ROOT}");
            assert_eq!(why, shown.then_some(text), "{id} {message} {reads}");
        }
    }
}

/// W22: each version of the engine has labels of its own, which are no reason for anything.
#[test]
fn a_policy_and_a_service_are_blamed_only_where_they_let_through_something_else() {
    let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let open = json!({"egress": [{}]});
    let narrow = json!({"egress": [{"to": [{"podSelector": {}}]}]});
    let port = |port: u16| json!({"ports": [{"name": "http", "port": port}]});
    let mut completed = port(80);
    completed["clusterIP"] = json!("10.0.0.1");
    for (id, before, now, shown) in [
        (policy(), &open, Some(&open), false),
        (policy(), &open, Some(&narrow), true),
        (policy(), &narrow, Some(&open), true),
        (policy(), &open, None, true),
        // What the API server adds is in each of them.
        (service.clone(), &port(80), Some(&completed), false),
        (service.clone(), &port(81), Some(&completed), true),
        (service, &port(80), None, true),
    ] {
        let mut cluster = at_a_second(EngineKind::Flux);
        let changed = cluster.now;
        respecified(&mut cluster, &id, before, now.unwrap_or(before));
        if now.is_none() {
            cluster.objects.remove(&id);
        }
        let message = "dial tcp 10.96.0.9:80: connect: connection refused";
        let failed = json!([{
            "type": "Ready", "status": "False", "reason": "ArtifactFailed", "message": message,
        }]);
        root_says(&mut cluster, &json!({"conditions": failed}));
        cluster.now += Duration::seconds(10);
        let text = format!("Kustomization flux-system/flux-system: ArtifactFailed: {message}");
        let why = why(&cluster, &id, changed);
        assert_eq!(why, shown.then_some(text), "{id} {now:?}");
    }
}

/// F19, F35, F36: the API server calls forbidden what a quota or a policy refuses, too.
#[test]
fn a_role_is_blamed_only_for_what_is_refused_for_want_of_rights() {
    let account = "system:serviceaccount:flux-system:kustomize-controller";
    let rights = format!(
        r#"Deployment/apps/web dry-run failed (Forbidden): deployments.apps "web" is forbidden: User "{account}" cannot patch resource "deployments" in API group "apps" in the namespace "apps""#
    );
    let grants = format!(
        r#"roles "a" is forbidden: user "{account}" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held"#
    );
    let quota = r#"pods "web" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"#;
    let lacks = [
        rights.replace('"', r#"\""#),
        // An apply that was refused for both.
        format!("{quota}\n{rights}"),
        rights,
        grants,
        "x is forbidden: in words that nobody knows".to_owned(),
    ];
    let may = [
        quota,
        r#"pods "web" is forbidden: failed quota: few: must specify limits.cpu for: web"#,
        r#"pods "web" is forbidden: status unknown for quota: few, resources: pods"#,
        r#"configmaps "a" is forbidden: unable to create new content in namespace apps because it is being terminated"#,
        r#"pods "web" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#,
        r#"pods "web" is forbidden: minimum memory usage per Pod is 1Gi.  No request is specified"#,
        r#"pods "web" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"#,
        r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"#,
        r#"pods "web" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
        r#"admission webhook "a.test" denied the request: it is forbidden"#,
    ];
    let blamed = |kind: Kind, text: &str| {
        let id = ObjectId::new(kind, "", "x");
        [Class::ApplyFailed, Class::BuildFailed].map(|class| disturbs(&id, class, text))
    };
    for text in &lacks {
        assert_eq!(blamed(Kind::ClusterRole, text), [true; 2], "{text}");
    }
    for text in may {
        for kind in [Kind::ClusterRole, Kind::RoleBinding, Kind::ConfigMap] {
            assert_eq!(blamed(kind, text), [false; 2], "{kind} {text}");
        }
    }
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
