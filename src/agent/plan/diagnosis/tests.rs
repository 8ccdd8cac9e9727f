use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::gate::policy::{Heal, Mending};
use crate::agent::plan::MAINTENANCE;
use crate::agent::plan::project::lease_of;
use crate::agent::plan::state::{Child, Lease};
use crate::agent::plan::tests::{Cluster, Damage};
use crate::wire::api::EngineKind;

mod freshness;

fn diagnosed(cluster: &mut Cluster) -> Vec<Component> {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    let observed = cluster.observed();
    components(&Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &observed,
        history: &cluster.history,
        plan: &plan,
        snapshot: Some(cluster.now),
    })
}

fn wrong(rows: &[Component]) -> Vec<(&str, Verdict, Verdict)> {
    let wrong = rows.iter().filter(|row| !row.ok());
    wrong
        .map(|r| (r.name.as_str(), r.exists, r.works))
        .collect()
}

#[test]
fn a_cluster_that_works_has_nothing_wrong() {
    let rows = diagnosed(&mut Cluster::working());
    assert_eq!(wrong(&rows), [], "{rows:#?}");
    let told: Vec<String> = rows
        .iter()
        .map(|r| format!("{}: {}", r.name, r.found))
        .collect();
    let asked = ["2027-01-15T08:00:02.000Z", "2027-01-15T08:00:02.500Z"];
    let root = |n: usize| format!("at main@sha1:1; answered the question of {}", asked[n]);
    // Each object of the install is in one row.
    assert_eq!(
        told,
        [
            "watchdog: mends what it can",
            "Namespace: Namespace flux-system",
            "CRDs: 2 objects",
            "guard policy: 2 objects",
            "accounts and rights: 6 objects",
            "Services, policies and settings: 2 objects",
            "catalog key and host keys: Secret flux-system/flux-system",
            "Deployment flux-system/kustomize-controller: available",
            "Deployment flux-system/source-controller: available",
            &format!("GitRepository flux-system/flux-system: {}", root(0)),
            &format!("Kustomization flux-system/flux-system: {}", root(1)),
            "what the catalog brought: 0 sync objects below the root",
            "snapshot: last known good of 2027-01-15T08:01:03.000Z",
        ]
    );
    assert!(rows.iter().all(|r| r.fix.is_empty()), "{rows:#?}");
}

#[test]
fn what_is_gone_and_what_does_not_work_are_told_apart_with_the_next_action() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("kustomize-controller"));
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    cluster.objects.remove(&id);
    let rows = diagnosed(&mut cluster);
    assert_eq!(
        wrong(&rows),
        [
            (
                "Deployment flux-system/kustomize-controller",
                Verdict::Yes,
                Verdict::No
            ),
            (
                "Deployment flux-system/source-controller",
                Verdict::No,
                Verdict::Unknown
            ),
        ]
    );
    for row in rows.iter().filter(|r| !r.ok()) {
        assert!(row.fix.contains("linesman heal list"), "{row:?}");
    }
    let bad = rows
        .iter()
        .find(|r| r.name.ends_with("kustomize-controller"));
    assert!(bad.unwrap().found.starts_with("F4 BadImage: "), "{bad:?}");
}

#[test]
fn a_window_is_shown_with_the_way_out() {
    let mut cluster = Cluster::working();
    cluster.install.policy.paused_until = Some(cluster.now + Duration::hours(1));
    let until = rfc3339(cluster.now + Duration::hours(1));
    let rows = diagnosed(&mut cluster);
    assert_eq!(wrong(&rows), [("watchdog", Verdict::None, Verdict::No)]);
    let said = |rows: &[Component]| (rows[0].found.clone(), rows[0].fix.clone());
    assert_eq!(
        said(&rows),
        (
            format!("only looks until {until}, by the hub"),
            "end it: linesman cluster resume eu1".to_owned()
        )
    );
    cluster.install.policy.owner = Some(Mending {
        heal: Heal::Off,
        paused_until: None,
    });
    let rows = diagnosed(&mut cluster);
    assert_eq!(
        said(&rows),
        (
            "only looks without an end, by key heal of ConfigMap linesman-policy".to_owned(),
            "ask the cluster's owner to set it to on".to_owned()
        )
    );
}

/// A colleague who looks in the night finds that nothing is being mended, and who ends that.
#[test]
fn in_a_window_nothing_is_said_to_be_mended() {
    let mut cluster = Cluster::working();
    cluster.install.policy.paused_until = Some(cluster.now + Duration::hours(1));
    let until = rfc3339(cluster.now + Duration::hours(1));
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    cluster.objects.remove(&id);
    cluster.damage(&Damage::Image("kustomize-controller"));
    let rows = diagnosed(&mut cluster);
    let kept =
        format!("nothing is mended until {until}, by the hub; end it: linesman cluster resume eu1");
    for name in ["source-controller", "kustomize-controller"] {
        assert_eq!(the(&rows, name).fix, kept, "{name}");
    }
}

/// Nor of what has a window of its own, be it that the fault is too young to count or shown by another one.
#[test]
fn in_a_window_on_one_object_that_one_alone_is_not_said_to_be_mended() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let end = rfc3339(cluster.now + Duration::hours(1));
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["annotations"][MAINTENANCE] = serde_json::json!(end);
    cluster.damage(&Damage::Scale("source-controller"));
    cluster.damage(&Damage::Image("kustomize-controller"));
    let kept = format!(
        "it is not mended until {end}, by annotation {MAINTENANCE} on {id}; end it: take that annotation off"
    );
    let mended = "it is being mended; see: linesman heal list eu1";
    let rows = diagnosed(&mut cluster);
    let fixes = ["source-controller", "kustomize-controller"].map(|name| &the(&rows, name).fix);
    assert_eq!(fixes, [kept.as_str(), mended]);
    cluster.now += Class::ScaledToZero.debounce();
    let rows = diagnosed(&mut cluster);
    assert_eq!(the(&rows, "source-controller").fix, kept);

    let (plan, observed) = (cluster.plan(), cluster.observed());
    let moment = Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &observed,
        history: &cluster.history,
        plan: &plan,
        snapshot: None,
    };
    let roots = [&cluster.install.source, &cluster.install.sync];
    let fixes = roots.map(|root| answered(&moment, root));
    assert_eq!(fixes, [kept.as_str(), mended]);
}

/// F3: for half a minute there is no heal to be seen.
#[test]
fn what_does_not_count_yet_is_said_to_be_waited_for() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Scale("kustomize-controller"));
    let at = cluster.now + Class::ScaledToZero.debounce();
    let rows = diagnosed(&mut cluster);
    let fix = |rows: &[Component]| the(rows, "kustomize-controller").fix.clone();
    assert_eq!(fix(&rows), format!("mended if it is so at {}", rfc3339(at)));
    cluster.now = at;
    let mended = "it is being mended; see: linesman heal list eu1";
    assert_eq!(fix(&diagnosed(&mut cluster)), mended);
}

#[test]
fn many_that_are_missing_are_counted() {
    let ids: Vec<ObjectId> = (0..5)
        .map(|n| ObjectId::new(Kind::Service, "flux-system", &n.to_string()))
        .collect();
    let all: Vec<&ObjectId> = ids.iter().collect();
    let text = absent(&all, 7);
    assert!(
        text.starts_with("5 of 7 missing: Service flux-system/0, "),
        "{text}"
    );
    assert!(text.ends_with(" and 2 more"), "{text}");
}

/// One row of what is diagnosed.
fn the<'a>(rows: &'a [Component], name: &str) -> &'a Component {
    rows.iter().find(|row| row.name.ends_with(name)).unwrap()
}

fn acts(mode: Mode, findings: Vec<Finding>) -> (Verdict, String, String) {
    let cluster = Cluster::working();
    let plan = Plan {
        findings,
        mode,
        ..cluster.plan()
    };
    let row = acting(&Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &cluster.observed(),
        history: &cluster.history,
        plan: &plan,
        snapshot: None,
    });
    (row.works, row.found, row.fix)
}

#[test]
fn why_nothing_is_mended_is_told_with_what_to_do() {
    let id = ObjectId::new(Kind::Namespace, "", "flux-system");
    let other = || Finding::new(Class::BadImage, &id, "another");
    let silent = || Finding::new(Class::ApiUnhealthy, &id, "is silent");
    let foreign = || Finding::new(Class::ForeignManager, &id, "is Helm's");
    let (works, found, fix) = acts(Mode::Learning, vec![other(), silent()]);
    assert_eq!(
        (works, fix.as_str()),
        (Verdict::No, Class::ApiUnhealthy.advice())
    );
    assert_eq!(found, told(&silent()));
    assert_eq!(
        acts(Mode::Learning, vec![other()]),
        (
            Verdict::Unknown,
            "looks at the cluster for the first time".to_owned(),
            String::new()
        )
    );
    let (works, found, fix) = acts(Mode::ObserveOnly, vec![other(), foreign()]);
    assert_eq!(
        (works, fix.as_str()),
        (Verdict::No, Class::ForeignManager.advice())
    );
    assert_eq!(found, told(&foreign()));
}

#[test]
fn what_is_not_known_is_not_called_missing() {
    let mut cluster = Cluster::working();
    cluster.objects.retain(|id, _| id.kind != Kind::Service);
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    let row = |known: bool| {
        let mut observed = cluster.observed();
        if !known {
            observed.scopes.remove(&Kind::Service);
        }
        let rows = components(&Moment {
            now: cluster.now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        });
        the(&rows, "Services, policies and settings").clone()
    };
    let found = "1 of 2 missing: Service flux-system/source-controller";
    let expected = |exists, fix: &str| Component {
        exists,
        works: Verdict::Unknown,
        found: found.to_owned(),
        fix: fix.to_owned(),
        ..super::row("Services, policies and settings")
    };
    let mended = "it is being mended; see: linesman heal list eu1";
    assert_eq!(row(true), expected(Verdict::No, mended));
    assert_eq!(row(false), expected(Verdict::Unknown, ""));
}

#[test]
fn a_crd_that_does_not_serve_is_named() {
    let mut cluster = Cluster::working();
    let name = "gitrepositories.source.toolkit.fluxcd.io";
    let id = ObjectId::new(Kind::CustomResourceDefinition, "", name);
    cluster.objects.get_mut(&id).unwrap().fields["status"] = serde_json::json!({});
    let rows = diagnosed(&mut cluster);
    let expected = Component {
        exists: Verdict::Yes,
        works: Verdict::No,
        found: format!("{id} is not ready to serve"),
        fix: "it is being mended; see: linesman heal list eu1".to_owned(),
        ..row("CRDs")
    };
    assert_eq!(*the(&rows, "CRDs"), expected);
}

/// A finding counts when it is as old as what is done about it waits for.
#[test]
fn faults_of_what_has_no_row_are_told_when_they_are_old_enough() {
    let cluster = Cluster::working();
    let named = |name: &str| ObjectId::new(Kind::Deployment, "elsewhere", name);
    let findings = vec![
        Finding::new(Class::ScaledToZero, &named("ripe"), "is at zero"),
        Finding::new(Class::ScaledToZero, &named("young"), "is at zero"),
        Finding::new(Class::ForeignManager, &named("foreign"), "is Helm's"),
        Finding::new(Class::BadImage, &cluster.install.secret, "has a row"),
        Finding::new(Class::BuildFailed, &named("child"), "is the catalog's"),
    ];
    let mut history = cluster.history.clone();
    for (n, finding) in findings.iter().enumerate() {
        let young = Duration::seconds(i64::from(n == 1));
        let age = finding.class.debounce() - young;
        let past = history
            .faults
            .entry((finding.class, finding.object.clone()));
        past.or_default().since = Some(cluster.now - age);
    }
    let plan = Plan {
        findings,
        ..cluster.plan()
    };
    let mut observed = cluster.observed();
    observed.children = std::sync::Arc::new([(named("child"), Child::default())].into());
    let moment = Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &observed,
        history: &history,
        plan: &plan,
        snapshot: None,
    };
    let rows: Vec<Component> = others(&moment).collect();
    let expected = Component {
        works: Verdict::No,
        found: told(&plan.findings[0]),
        fix: fix(&moment, Some(&plan.findings[0]), true),
        ..row("Deployment elsewhere/ripe")
    };
    assert_eq!(rows, [expected]);
    let child = below(&moment);
    let text = format!("0 of 1 not Ready: {}", told(&plan.findings[4]));
    let advice = Class::BuildFailed.advice().to_owned();
    assert_eq!(
        (child.works, child.found, child.fix),
        (Verdict::No, text, advice)
    );
}

#[test]
fn a_root_of_argo_cd_tells_what_it_is_at() {
    let rows = diagnosed(&mut Cluster::working_of(EngineKind::Argocd));
    let root = the(&rows, "Application argocd/linesman");
    let text = "at 1; answered the question of ";
    assert!(root.found.starts_with(text), "{root:?}");
}

#[test]
fn a_number_is_told_only_where_a_fault_has_one() {
    let id = ObjectId::new(Kind::Namespace, "", "a");
    let told = |class| told(&Finding::new(class, &id, "why"));
    assert_eq!(told(Class::BadImage), "F4 BadImage: why");
    assert_eq!(told(Class::PodSuperseded), "PodSuperseded: why");
}
