//! Controllers that are altered, hang or cannot lead.

use super::*;

/// F3
#[test]
fn scaling_to_zero_is_undone_after_half_a_minute() {
    let mut cluster = Cluster::working();
    let fault = cluster.now;
    cluster.damage(&Damage::Scale("kustomize-controller"));
    cluster.settle(100);
    let (at, step) = cluster
        .steps
        .iter()
        .find(|(_, s)| s.action == Action::Apply)
        .unwrap();
    assert_eq!(step.cause.as_ref().unwrap().0, Class::ScaledToZero);
    assert!(
        (30..=35).contains(&(*at - fault).whole_seconds()),
        "{}",
        *at - fault
    );
}

#[test]
fn a_fault_that_returns_for_ever_is_not_hammered() {
    let mut cluster = Cluster::working();
    let end = cluster.now + Duration::hours(3);
    while cluster.now < end {
        cluster.damage(&Damage::Image("source-controller"));
        cluster.round();
    }
    let applied: Vec<OffsetDateTime> = cluster
        .steps
        .iter()
        .filter(|(_, s)| s.action == Action::Apply)
        .map(|(at, _)| *at)
        .collect();
    for at in &applied {
        let within = applied
            .iter()
            .filter(|b| *at - **b < Duration::hours(1) && **b <= *at)
            .count();
        assert!(within <= 5, "{within} within an hour");
    }
    assert!(applied.len() >= 6, "trials go on: {}", applied.len());
    assert!(applied.len() <= 8, "once an hour: {}", applied.len());
    assert_eq!(cluster.plan().exhausted.len(), 1);
}

/// F12, F29: while a person holds the delivery a controller may hang as well. It alone is restarted, and the delivery stays held.
#[test]
fn a_controller_that_hangs_under_a_suspended_root_is_restarted() {
    for (kind, app) in [
        (Kind::GitRepository, "source-controller"),
        (Kind::Kustomization, "kustomize-controller"),
    ] {
        let mut cluster = Cluster::working();
        let root = cluster.install.roots().find(|id| id.kind == kind).unwrap();
        let root = root.clone();
        let asked = rfc3339(cluster.now);
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["spec"]["suspend"] = json!(true);
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
        cluster.now += Duration::seconds(91);
        let plan = cluster.plan();
        let found = plan.findings.iter().map(|f| (f.class, f.object.clone()));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                (Class::SuspendedByHuman, root.clone()),
                (Class::QueueWedged, root.clone()),
            ]
        );
        let acts = plan.steps.iter().filter(|s| s.action != Action::Nudge);
        let acts = acts.map(|s| (s.action.as_str(), s.target.clone()));
        let controller = ObjectId::new(Kind::Deployment, "flux-system", app);
        assert_eq!(acts.collect::<Vec<_>>(), [("restart", controller)]);
        for _ in 0..40 {
            cluster.round();
            cluster.now += Duration::seconds(30);
        }
        assert_eq!(
            cluster.objects[&root].fields["spec"]["suspend"],
            json!(true)
        );
    }
}

#[test]
fn a_wedged_controller_is_restarted_and_a_busy_one_is_not() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let object = cluster.objects.get_mut(&sync).unwrap();
    object.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    object.fields["status"]["conditions"] = json!([{"type": "Reconciling", "status": "True"}]);
    cluster.now += Duration::seconds(120);
    assert_eq!(cluster.plan().steps, Vec::new());
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!([]);
    let steps = cluster.plan().steps;
    assert_eq!(
        steps
            .iter()
            .map(|s| (s.action.as_str(), s.target.name.as_str()))
            .collect::<Vec<_>>(),
        [("restart", "kustomize-controller")]
    );
}

/// F11: with an address of nobody, each event stalls a reconciliation.
#[test]
fn events_for_nobody_are_switched_off() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let args = "/spec/template/spec/containers/0/args";
    let mut wanted = cluster.install.wanted[&id].clone();
    let mut expect = wanted.expect.as_ref().clone();
    *expect.pointer_mut(args).unwrap() = json!(["--events-addr="]);
    wanted.expect = Arc::new(expect);
    cluster.install.wanted.insert(id, wanted);
    cluster.alter(
        "source-controller",
        args,
        json!(["--events-addr=http://notification-controller"]),
    );
    let plan = cluster.plan();
    let steps: Vec<(&str, Class)> = plan
        .steps
        .iter()
        .map(|s| (s.action.as_str(), s.cause.as_ref().unwrap().0))
        .collect();
    assert_eq!(steps, [("apply", Class::EventSinkMissing)]);
}

/// F13: the Lease of a Pod that is gone is deleted, at most three times an hour.
#[test]
fn a_stuck_leader_loses_its_lease() {
    let name = "source-controller-leader-election";
    let free = Action::FreeLease {
        name: name.to_owned(),
        uid: "lease".to_owned(),
    };
    assert_eq!(freed(None, name), [free]);
}

/// F13: a controller that shares its objects with shards has a Lease of another name, and one of before says nothing.
#[test]
fn a_stuck_leader_beside_shards_loses_its_own_lease() {
    let selector = "--watch-label-selector=!sharding.fluxcd.io/key";
    let plain = "source-controller-leader-election";
    let hashed = format!("{plain}-42da7484");
    let free = Action::FreeLease {
        name: hashed.clone(),
        uid: "lease".to_owned(),
    };
    assert_eq!(freed(Some(selector), &hashed), [free]);
    assert_eq!(freed(Some(selector), plain), []);
    assert_eq!(freed(Some(selector), &format!("{plain}-73fdc1be")), []);
}

/// What is done where a Lease of this name is held by a Pod that is gone, and source-controller has this argument.
fn freed(arg: Option<&str>, name: &str) -> Vec<Action> {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    if let Some(arg) = arg {
        // As the catalog has it.
        let mut wanted = cluster.install.wanted[&id].clone();
        let mut expect = wanted.expect.as_ref().clone();
        let live = cluster.objects.get_mut(&id).unwrap();
        for fields in [&mut expect, &mut live.fields] {
            fields["spec"]["template"]["spec"]["containers"][0]["args"] = json!([arg]);
        }
        wanted.expect = Arc::new(expect);
        cluster.install.wanted.insert(id, wanted);
    }
    let mut observed = cluster.observed();
    let lease = state::Lease {
        uid: "lease".to_owned(),
        holder: "gone".to_owned(),
        acquired: None,
        renewed: cluster.now - Duration::minutes(5),
        seen: cluster.now,
    };
    observed.leases.insert(name.to_owned(), lease);
    let later = cluster.now + Duration::seconds(80);
    let plan = plan(later, &cluster.install, &observed, &cluster.history);
    plan.steps.into_iter().map(|step| step.action).collect()
}

/// What somebody added is another manager's field, which no apply takes away.
#[test]
fn a_variable_that_stops_a_controller_is_removed() {
    for (engine, name) in [
        (EngineKind::Flux, "source-controller"),
        (EngineKind::Argocd, "argocd-application-controller"),
    ] {
        let mut cluster = Cluster::working_of(engine);
        let fault = cluster.now;
        cluster.damage(&Damage::Env(name));
        cluster.settle(100);
        let (at, step) = cluster
            .steps
            .iter()
            .find(|(_, s)| s.cause.is_some())
            .unwrap();
        let (class, id) = step.cause.as_ref().unwrap();
        assert_eq!((*class, id.name.as_str()), (Class::ReadyButUseless, name));
        assert_eq!(step.action, Action::Replace);
        let waited = (*at - fault).whole_seconds();
        assert!((30..=35).contains(&waited), "{waited}");
    }
}
