use super::*;
use crate::agent::engine::extras;
use crate::agent::engine::flux::{CANARY, HELM};
use crate::agent::engine::{Install, Site};
use crate::agent::plan::burst::Fate;
use crate::agent::plan::busy::Turn;
use crate::agent::plan::state::{Child, Lease};
use crate::manifests::EngineNamespaces;

const SECOND: Duration = Duration::SECOND;

fn canary() -> ObjectId {
    ObjectId::new(Kind::HelmRelease, "flux-system", CANARY)
}

/// Flux with helm-controller, too.
fn install() -> Install {
    install_with(flux_with_helm())
}

/// Working, and asked at this moment without an answer.
fn asked() -> Cluster {
    let mut cluster = Cluster::working_with(install());
    let live = cluster.objects.get_mut(&canary()).unwrap();
    live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(cluster.now));
    cluster
}

/// What is called a wedge, and what is done against it, `ago` after the question, with so many releases under way.
fn after(cluster: &Cluster, ago: Duration, releases: usize) -> Vec<(Class, String, String)> {
    let steps = planned(cluster, ago, releases).steps.into_iter();
    let steps = steps.filter_map(|step| {
        let (class, object) = step.cause?;
        let did = format!("{} {}", step.action.as_str(), step.target);
        Some((class, object.to_string(), did))
    });
    steps.collect()
}

fn planned(cluster: &Cluster, ago: Duration, releases: usize) -> Plan {
    let (now, observed) = seen(cluster, ago, releases, None);
    let mut history = cluster.history.clone();
    history.noted(now, &cluster.install, &observed);
    plan(now, &cluster.install, &observed, &history)
}

/// What there is to see then. `leader`: the Pod that holds helm-controller's Lease.
fn seen(
    cluster: &Cluster,
    ago: Duration,
    releases: usize,
    leader: Option<&str>,
) -> (OffsetDateTime, Observed) {
    let now = cluster.now + ago;
    let mut observed = cluster.observed();
    let began = cluster.now;
    let turn = Some(Turn {
        began,
        ends: began + Duration::minutes(15),
    });
    let child = Child {
        turn,
        ..Child::default()
    };
    let releases = (0..releases).map(|n| {
        let id = ObjectId::new(Kind::HelmRelease, "apps", &n.to_string());
        (id, child.clone())
    });
    observed.children = Arc::new(releases.collect());
    for scope in observed.scopes.values_mut() {
        scope.answered = Some(now);
    }
    observed.pods_at = Some(now);
    let lease = leader.map(|holder| Lease {
        uid: "lease".to_owned(),
        holder: holder.to_owned(),
        acquired: None,
        renewed: now,
        seen: now,
    });
    let controller = cluster.install.controller(&canary());
    let name = observed.lease_name(&controller);
    observed.leases.extend(lease.map(|lease| (name, lease)));
    (now, observed)
}

/// With a Pod of before that goes, and has to be gone so long after now.
fn with_former(mut cluster: Cluster, ends: Duration) -> Cluster {
    let began = Some(cluster.now - Duration::hours(1));
    let former = Pod {
        app: HELM.to_owned(),
        created: began,
        running: began,
        deleting: true,
        ends: Some(cluster.now + ends),
        ready: true,
        ..Pod::default()
    };
    cluster.pods.insert("former".to_owned(), former);
    cluster
}

/// Whether a fault of this class is found as `leader` holds the Lease.
fn is_found(cluster: &Cluster, class: Class, ago: Duration, leader: &str) -> bool {
    let (now, observed) = seen(cluster, ago, 0, Some(leader));
    let mut history = cluster.history.clone();
    history.noted(now, &cluster.install, &observed);
    let plan = plan(now, &cluster.install, &observed, &history);
    plan.findings.iter().any(|f| f.class == class)
}

/// A commit has changed helm-controller, whose Pod is another one since; it is asked now, and all others have answered.
fn deafened() -> Cluster {
    let mut cluster = Cluster::working_with(install());
    let id = ObjectId::new(Kind::Deployment, "flux-system", HELM);
    cluster.install.wanted.get_mut(&id).unwrap().git_owned = true;
    let written = cluster.now;
    let live = cluster.objects.get_mut(&id).unwrap();
    cluster.install.traits.applier.clone_into(&mut live.writer);
    live.written = Some(written);
    let args = "/spec/template/spec/containers/0/args";
    *live.fields.pointer_mut(args).unwrap() = json!(["--watch-label-selector=none"]);
    cluster.now += probes::ROLLED + SECOND;
    let now = rfc3339(cluster.now);
    let roots: Vec<ObjectId> = cluster.install.roots().cloned().collect();
    for id in roots.iter().chain([&canary()]) {
        let live = cluster.objects.get_mut(id).unwrap();
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(now);
        if *id != canary() {
            live.fields["status"]["lastHandledReconcileAt"] = json!(now);
        }
    }
    cluster
}

/// F10, W18: no root is asked of it, and its canary would have it restarted three times an hour.
#[test]
fn a_commit_that_deafens_helm_controller_is_held() {
    let mut cluster = deafened();
    let named = |cluster: &Cluster, ago: i32, releases: usize| {
        let found = planned(cluster, SECOND * ago, releases).findings;
        let found = found.into_iter();
        let found = found.filter(|f| f.class == Class::BadEngineCommit);
        found.map(|f| f.evidence).collect::<Vec<_>>()
    };
    let text = "runs, but does not answer for HelmRelease flux-system/linesman-probe; commit main@sha1:1 changed \
                /spec/template/spec/containers/manager/args/0";
    assert_eq!(named(&cluster, 30, 0), Vec::<String>::new());
    assert_eq!(named(&cluster, 31, 0), [text]);
    // It may have none to spare for an answer.
    assert_eq!(named(&cluster, 31, 4), Vec::<String>::new());
    assert_eq!(named(&cluster, 31, 3), [text]);
    let looks = cluster.plan().next_look - cluster.now;
    assert!(looks <= SECOND * 5, "silence is what shows it: {looks}");

    cluster.now += SECOND * 31;
    cluster.history.saw(cluster.now, &cluster.plan());
    cluster.now += SECOND * 11;
    let plan = cluster.plan();
    let steps = plan.steps.iter();
    let steps: Vec<(&str, &str)> = steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect();
    assert_eq!(steps, [("hold", HELM), ("apply", HELM)]);
}

/// F12, W12: no answer for 90 s although its Pod is ready, and nobody but it is restarted.
#[test]
fn a_helm_controller_that_does_not_answer_is_restarted() {
    let cluster = asked();
    assert_eq!(after(&cluster, SECOND * 90, 0), []);
    let restarted = (
        Class::QueueWedged,
        canary().to_string(),
        format!("restart Deployment flux-system/{HELM}"),
    );
    assert_eq!(after(&cluster, SECOND * 91, 0), [restarted]);
}

/// F12: its Deployment is not available, or the one that it is asked with goes: then no answer is missed.
#[test]
fn a_helm_controller_that_could_not_answer_is_not_called_wedged() {
    let wedged = |change: fn(&mut Cluster)| {
        let mut cluster = asked();
        change(&mut cluster);
        let found = planned(&cluster, SECOND * 91, 0).findings;
        found.iter().any(|f| f.class == Class::QueueWedged)
    };
    assert!(wedged(|_| {}));
    assert!(!wedged(|cluster| {
        let id = ObjectId::new(Kind::Deployment, "flux-system", HELM);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
    }));
    assert!(!wedged(|cluster| {
        let live = cluster.objects.get_mut(&canary()).unwrap();
        live.deleting = Some(cluster.now);
    }));
}

/// F10, F12: what it is at the former Pod ends first, for up to ten minutes (helm-controller's `terminationGracePeriodSeconds`), and it
/// leads until then. One that is not gone when it has to be is no excuse for the other.
#[test]
fn a_helm_controller_that_waits_for_the_one_before_is_not_missed() {
    let cases: [(&str, i32, bool); 4] = [
        ("former", -300, false),
        ("former", 35, false),
        ("former", 36, true),
        ("next", -300, true),
    ];
    for (leader, late, expected) in cases {
        let both: [(Cluster, Class, i32); 2] = [
            (deafened(), Class::BadEngineCommit, 31),
            (asked(), Class::QueueWedged, 91),
        ];
        for (cluster, class, ago) in both {
            let cluster = with_former(cluster, SECOND * (ago - late));
            let found = is_found(&cluster, class, SECOND * ago, leader);
            assert_eq!(found, expected, "{class}: {leader} leads, {late} s late");
        }
    }
}

/// F12: it has its whole time from when it leads.
#[test]
fn a_helm_controller_that_came_to_lead_is_waited_for_anew() {
    let mut cluster = with_former(asked(), SECOND * 600);
    let looks: [(i32, &str); 2] = [(0, "former"), (90, "next")];
    for (ago, leader) in looks {
        let (now, observed) = seen(&cluster, SECOND * ago, 0, Some(leader));
        cluster.history.noted(now, &cluster.install, &observed);
    }
    let wedged = |ago: i32| is_found(&cluster, Class::QueueWedged, SECOND * ago, "next");
    assert_eq!([91, 180, 181].map(wedged), [false, false, true]);
}

/// F12: an answer is missed when it is due, not at the next look of all.
#[test]
fn an_answer_that_is_late_is_looked_for_then() {
    let mut cluster = asked();
    cluster.now += SECOND * 80;
    assert_eq!(cluster.plan().next_look, cluster.now + SECOND * 11);
}

/// W12: cut in the middle, a release would be left half done. With one worker to spare it should have answered.
#[test]
fn a_helm_controller_with_a_release_for_each_worker_is_left_alone() {
    let cluster = asked();
    assert_eq!(after(&cluster, SECOND * 91, 4), []);
    assert_eq!(after(&cluster, SECOND * 91, 3).len(), 1);
    // Their time is over.
    assert_eq!(after(&cluster, Duration::minutes(15), 4).len(), 1);
}

/// F12: before one that hangs, what is deleted piles up, of which it says nothing; of what it has begun it has said so.
#[test]
fn releases_that_go_excuse_it_for_two_hours() {
    for (goes, expected) in [(true, [false, false, true]), (false, [false; 3])] {
        let mut cluster = asked();
        let found = [0, 7_199, 7_290].map(|ago: i32| {
            let (now, mut observed) = seen(&cluster, SECOND * ago, 0, None);
            let child = Child {
                turn: Some(Turn {
                    began: now,
                    ends: now + SECOND,
                }),
                fate: Fate {
                    dying: goes,
                    ..Fate::default()
                },
                ..Child::default()
            };
            let releases = (0..4).map(|n: usize| {
                let id = ObjectId::new(Kind::HelmRelease, "apps", &n.to_string());
                (id, child.clone())
            });
            observed.children = Arc::new(releases.collect());
            cluster.history.noted(now, &cluster.install, &observed);
            let plan = plan(now, &cluster.install, &observed, &cluster.history);
            plan.findings.iter().any(|f| f.class == Class::QueueWedged)
        });
        assert_eq!(found, expected, "{goes}");
    }
}

#[test]
fn it_is_asked_with_a_release_of_nothing_that_goes_with_flux() {
    let cluster = Cluster::working_with(install());
    let probe = cluster.objects[&canary()].probe().unwrap();
    assert!(probe.answered);
    let body = cluster.install.body(&canary()).unwrap();
    assert_eq!(body["spec"]["suspend"], json!(true));
    let site = Site::of(EngineKind::Flux, &EngineNamespaces::default());
    assert!(extras(&site).contains(&canary()));
    assert_eq!(
        super::install().canaries().next(),
        None,
        "without helm-controller"
    );
}

#[test]
fn it_is_asked_now_and_then_and_when_something_was_mended() {
    let every = install().policy.probe_every;
    let mut cluster = Cluster::working_with(install());
    let last = cluster.objects[&canary()].probe().unwrap().sent;
    let nudged = |cluster: &Cluster| {
        let steps = cluster.plan().steps;
        steps
            .iter()
            .any(|s| s.action == Action::Nudge && s.target == canary())
    };
    cluster.now = last + every - SECOND;
    assert!(!nudged(&cluster));
    cluster.now = last + every;
    assert!(nudged(&cluster));
    cluster.now = last + every - SECOND;
    cluster.history.last_write = Some(last + SECOND);
    assert!(nudged(&cluster));
}

/// Somebody tidied up.
#[test]
fn a_canary_that_is_gone_or_runs_is_as_before_again() {
    let mut cluster = Cluster::working_with(install());
    let known = cluster.objects[&canary()].fields["spec"].clone();
    cluster.objects.remove(&canary());
    let found = cluster.plan().findings;
    let classes: Vec<Class> = found.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::ObjectMissing]);
    cluster.settle(100);
    let live = cluster.objects.get_mut(&canary()).unwrap();
    live.fields["spec"]["suspend"] = json!(false);
    live.generation += 1;
    cluster.settle(100);
    assert_eq!(cluster.objects[&canary()].fields["spec"], known);
}
