//! Commits that the API server refuses to the engine for what we own of an object.

use super::*;

/// As kustomize-controller passes on what the API server says of a second volume type.
fn said(name: &str) -> String {
    format!(
        "Deployment/flux-system/{name} dry-run failed (Invalid): Deployment.apps \"{name}\" is invalid: \
         spec.template.spec.volumes[1].persistentVolumeClaim: Forbidden: may not specify more than 1 volume type"
    )
}

fn refused_by(cluster: &Cluster, message: &str) -> Plan {
    let mut observed = cluster.observed();
    let root = Arc::make_mut(observed.objects.get_mut(&cluster.install.sync).unwrap());
    root.fields["status"]["conditions"] = json!([
        {"type": "Ready", "status": "False", "reason": "ReconciliationFailed", "message": message}
    ]);
    plan(cluster.now, &cluster.install, &observed, &cluster.history)
}

/// F39: the commit that brings the engine is refused for what we own of it, whether Git has applied the object before or not.
#[test]
fn what_keeps_the_engine_from_a_commit_is_given_up_at_once_and_the_engine_asked_to_try_again() {
    for cluster in [Cluster::working(), taken()] {
        let plan = refused_by(&cluster, &said("source-controller"));
        let root = cluster.install.sync.clone();
        let key = (Class::ApplyFailed, root.clone());
        let step = |action, target| Step {
            action,
            target,
            cause: Some(key.clone()),
        };
        assert_eq!(
            plan.steps,
            [
                step(
                    Action::Relinquish {
                        commit: "main@sha1:1".to_owned()
                    },
                    controller()
                ),
                step(Action::Nudge, root),
            ]
        );
    }
}

/// Git has but a part of the object, which does without our fields even less.
#[test]
fn what_the_same_commit_is_refused_for_again_is_taken_back_once() {
    let mut cluster = Cluster::working();
    let commit = "main@sha1:1".to_owned();
    let step = Step {
        action: Action::Relinquish { commit },
        target: controller(),
        cause: None,
    };
    let observed = cluster.observed();
    let (now, done) = (cluster.now, crate::agent::plan::history::Outcome::Done);
    cluster.history.acted(now, &step, &done, &observed);
    let claims = |cluster: &mut Cluster, claim| {
        cluster.objects.get_mut(&controller()).unwrap().claim = claim;
        let plan = refused_by(cluster, &said("source-controller"));
        let steps = plan.steps.into_iter().filter(|s| s.target == controller());
        steps.map(|step| step.action).collect::<Vec<Action>>()
    };
    assert_eq!(claims(&mut cluster, Claim::None), [Action::Apply]);
    assert_eq!(claims(&mut cluster, Claim::Alone), []);
    // Of another commit it is not known.
    let given = cluster.history.given.get_mut(&controller()).unwrap();
    "main@sha1:0".clone_into(given);
    assert_eq!(claims(&mut cluster, Claim::None), []);
    assert_eq!(claims(&mut cluster, Claim::Alone).len(), 1);
}

/// The refusal that an object was given up for is there while the engine tries again, and is no second one.
#[test]
fn what_was_given_up_is_not_taken_back_while_the_engine_tries_again() {
    let mut cluster = Cluster::working();
    let commit = "main@sha1:1".to_owned();
    cluster.history.given.insert(controller(), commit);
    cluster.objects.get_mut(&controller()).unwrap().claim = Claim::None;
    let mut observed = cluster.observed();
    let mut says = |status: &str, reason: &str| {
        let root = Arc::make_mut(observed.objects.get_mut(&cluster.install.sync).unwrap());
        root.fields["status"]["conditions"] = json!([
            {"type": "Ready", "status": status, "reason": reason, "message": said("source-controller")}
        ]);
        let (now, install) = (cluster.now, &cluster.install);
        cluster.history.noted(now, install, &observed);
        plan(now, install, &observed, &cluster.history)
    };
    let named = |plan: &Plan| -> Vec<(Class, bool)> {
        let all = plan.findings.iter().map(|f| (f.class, f.recalled));
        all.collect()
    };
    let refused = says("False", "ReconciliationFailed");
    assert_eq!(named(&refused), [(Class::ApplyFailed, false)]);
    assert!(refused.steps.iter().any(|s| s.target == controller()));
    let tries = says("Unknown", "Progressing");
    assert_eq!(named(&tries), [(Class::ApplyFailed, true)]);
    assert!(
        tries.steps.iter().all(|s| s.target != controller()),
        "{tries:?}"
    );
}

#[test]
fn another_refusal_gives_up_nothing() {
    let refusal = said("source-controller");
    let until = rfc3339(start() + Duration::hours(12));
    let cases: [Case<'_>; 4] = [
        ("given up already", &|live| live.claim = Claim::None),
        ("Git's in part", &|live| live.claim = Claim::Partly),
        ("to be merged", &|live| {
            live.fields["metadata"]["annotations"][MERGED] = json!("Merge");
        }),
        ("somebody's at work", &|live| {
            live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
        }),
    ];
    for (case, change) in cases {
        let mut cluster = taken();
        change(cluster.objects.get_mut(&controller()).unwrap());
        assert_untouched(&refused_by(&cluster, &refusal), case);
    }
    let another = said("web");
    for message in [
        another.as_str(),
        "Deployment/flux-system/source-controller not ready",
        "Kustomization.kustomize.toolkit.fluxcd.io \"flux-system\" is invalid: spec.path: Invalid value",
        "CustomResourceDefinition.apiextensions.k8s.io \"gitrepositories.source.toolkit.fluxcd.io\" is invalid: spec: x",
    ] {
        assert_untouched(&refused_by(&taken(), message), message);
    }
}

/// Neither is anything given up, nor is the engine asked to try again, which would be refused once more.
fn assert_untouched(plan: &Plan, what: &str) {
    let against = plan.steps.iter().filter(|step| step.cause.is_some());
    let against: Vec<&Step> = against.collect();
    assert_eq!(against, [] as [&Step; 0], "{what}");
}

/// Argo CD patches by itself what it was not told to apply at the server: there our fields are in nobody's way.
#[test]
fn what_argo_cd_is_refused_is_given_up_only_where_it_applies_at_the_server() {
    let id = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    for (options, gives) in [
        (json!(null), false),
        (json!(["RespectIgnoreDifferences=true"]), false),
        (
            json!(["RespectIgnoreDifferences=true", "ServerSideApply=true"]),
            true,
        ),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["spec"]["syncPolicy"]["syncOptions"] = options.clone();
        let finding = Finding::new(Class::ApplyFailed, &root, invalid(&id));
        let (install, observed) = (&cluster.install, cluster.observed());
        let steps = refused(
            cluster.now,
            install,
            &observed,
            &cluster.history,
            &[finding],
        );
        let steps = steps.iter().map(|s| (s.action.as_str(), &s.target));
        let expected = [("relinquish", &id), ("nudge", &root)];
        let expected: &[_] = if gives { &expected } else { &[] };
        assert_eq!(steps.collect::<Vec<_>>(), expected, "{options}");
    }
}

/// W24: nothing is done about what is said by a root that somebody is at work on.
#[test]
fn what_is_refused_to_a_root_with_a_window_of_its_own_is_not_given_up() {
    let mut cluster = taken();
    let until = rfc3339(cluster.now + Duration::MINUTE);
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    let refusal = said("source-controller");
    assert_eq!(given(&refused_by(&cluster, &refusal)), NOTHING);
    cluster.now += Duration::MINUTE;
    assert_eq!(given(&refused_by(&cluster, &refusal)), [&controller()]);
}

/// A call that comes to nothing is not made again every time that anything happens.
#[test]
fn a_vain_attempt_is_spaced() {
    let mut cluster = taken();
    let key = (Class::ApplyFailed, cluster.install.sync.clone());
    let message = said("source-controller");
    for _ in 0..12 {
        let now = cluster.now;
        cluster
            .history
            .faults
            .entry(key.clone())
            .or_default()
            .attempts
            .push(now);
    }
    assert_eq!(given(&refused_by(&cluster, &message)), NOTHING);
    cluster.now += Duration::seconds(29);
    assert_eq!(given(&refused_by(&cluster, &message)), NOTHING);
    cluster.now += Duration::seconds(1);
    assert_eq!(given(&refused_by(&cluster, &message)), [&controller()]);
}
