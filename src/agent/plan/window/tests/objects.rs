//! The window of one object, and what it holds back.

use super::*;
use crate::agent::engine::REQUESTED_AT;

#[test]
fn a_window_on_one_object_holds_back_that_object_alone() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let end = cluster.now + Duration::hours(1);
    cluster.damage(&Damage::Image("source-controller"));
    cluster.damage(&Damage::Image("kustomize-controller"));
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let plan = cluster.plan();
    assert_eq!(plan.mode, Mode::Act);
    assert_eq!(actions(&plan), [("apply", "kustomize-controller")]);
    assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
    cluster.now = end;
    assert_eq!(
        actions(&cluster.plan()),
        [
            ("apply", "kustomize-controller"),
            ("apply", "source-controller")
        ]
    );
}

/// W24, F12: somebody has stopped a controller to look into it. What it does not answer has no window of its own.
#[test]
fn a_window_on_a_controller_holds_back_its_restart_for_what_it_does_not_answer() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let sync = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    let end = cluster.now + Duration::minutes(2);
    annotate(&mut cluster, &id, MAINTENANCE, end);
    cluster.now += Duration::seconds(100);
    let plan = cluster.plan();
    let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
    assert_eq!(found, [(Class::QueueWedged, &sync)]);
    assert_eq!((plan.mode, actions(&plan)), (Mode::Act, Vec::new()));
    cluster.history.saw(cluster.now, &plan);
    let late = |cluster: &Cluster| {
        let (install, observed) = (&cluster.install, cluster.observed());
        let history = &cluster.history;
        overdue(cluster.now, install, &observed, history, &cluster.plan())
    };
    assert_eq!(late(&cluster), []);
    cluster.now = end;
    let restart = ("restart", "kustomize-controller");
    assert_eq!(actions(&cluster.plan()), [restart]);
    assert_eq!(late(&cluster), [((Class::QueueWedged, sync), end)]);
}

/// W24, F2: the Pods with void tokens are those of a controller that somebody is at work on.
#[test]
fn a_window_on_a_controller_holds_back_its_restart_for_its_account() {
    let mut cluster = Cluster::working();
    let name = "source-controller";
    let account = ObjectId::new(Kind::ServiceAccount, "flux-system", name);
    cluster.objects.get_mut(&account).unwrap().created = Some(cluster.now);
    let pod = cluster.pods.get_mut(name).unwrap();
    pod.created = Some(cluster.now - Duration::HOUR);
    let end = cluster.now + Duration::MINUTE;
    let id = ObjectId::new(Kind::Deployment, "flux-system", name);
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let plan = cluster.plan();
    let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
    assert_eq!(found, [(Class::ServiceAccountMissing, &account)]);
    assert_eq!(actions(&plan), Vec::new());
    cluster.now = end;
    assert_eq!(actions(&cluster.plan()), [("restart", name)]);
}

/// What the guard does, what gives back what it took, and what asks is held back by no window of one object.
#[test]
fn a_window_of_an_object_holds_back_neither_the_guard_nor_its_end_nor_a_question() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let end = cluster.now + Duration::HOUR;
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let observed = cluster.observed();
    let before = cluster.now;
    let uid = String::new();
    let held = [Action::Apply, Action::RestartPods { before }];
    let kept = [
        Action::CutRights { uid },
        Action::ScaleToZero,
        Action::Release,
        Action::Start { replicas: 1 },
        Action::Restore,
        Action::Lock,
        Action::Nudge,
    ];
    let step = |action: &Action| Step {
        action: action.clone(),
        target: id.clone(),
        cause: None,
    };
    let mut steps: Vec<Step> = held.iter().chain(&kept).map(step).collect();
    hold_back(cluster.now, &observed, &mut steps);
    assert_eq!(steps, kept.iter().map(step).collect::<Vec<_>>());
    let mut later: Vec<Step> = held.iter().map(step).collect();
    hold_back(end, &observed, &mut later);
    assert_eq!(later.len(), 2);
}

/// W24: a restart takes the Pods of one controller, and what has no Pods, but a controller's name, takes none.
#[test]
fn a_window_of_a_controller_holds_back_its_own_restart_and_nothing_of_others() {
    let mut cluster = Cluster::working();
    let (now, name) = (cluster.now, "source-controller");
    let id = |kind, name: &str| ObjectId::new(kind, "flux-system", name);
    let end = now + Duration::HOUR;
    annotate(&mut cluster, &id(Kind::Deployment, name), MAINTENANCE, end);
    let observed = cluster.observed();
    let restart = || Action::RestartPods { before: now };
    for (action, target, is_held) in [
        (restart(), id(Kind::Deployment, name), true),
        (restart(), id(Kind::ServiceAccount, name), true),
        (
            restart(),
            id(Kind::Deployment, "kustomize-controller"),
            false,
        ),
        (
            restart(),
            ObjectId::new(Kind::ServiceAccount, "elsewhere", name),
            false,
        ),
        (Action::Apply, id(Kind::Service, name), false),
    ] {
        let step = Step {
            action,
            target,
            cause: None,
        };
        let mut steps = vec![step.clone()];
        hold_back(now, &observed, &mut steps);
        assert_eq!(steps.is_empty(), is_held, "{step:?}");
    }
}

/// A deletion is held back by nobody, and allowed only where each of them is.
#[test]
fn a_window_of_an_object_holds_its_faults_but_not_its_deletion() {
    let mut cluster = Cluster::working();
    let crds = ["gitrepositories.source", "kustomizations.kustomize"].map(|name| {
        let name = format!("{name}.toolkit.fluxcd.io");
        ObjectId::new(Kind::CustomResourceDefinition, "", &name)
    });
    let end = cluster.now + Duration::HOUR;
    annotate(&mut cluster, &crds[0], MAINTENANCE, end);
    annotate(&mut cluster, &crds[0], ALLOW_DELETE, end);
    let observed = cluster.observed();
    let of = |class, id: &ObjectId| Finding::new(class, id, "");
    let held = |class, id| held(cluster.now, &observed, &of(class, id));
    assert!(held(Class::ObjectAltered, &crds[0]));
    assert!(!held(Class::ObjectAltered, &crds[1]));
    assert!(!held(Class::CrdTerminating, &crds[0]));
    let allowed = |all: &[Finding]| allowed_to_die(cluster.now, &observed, all);
    let dying = crds.each_ref().map(|id| of(Class::CrdTerminating, id));
    assert!(allowed(&dying[..1]) && !allowed(&dying));
    // What does not die has nothing to be allowed.
    assert!(allowed(&[dying[0].clone(), of(Class::BadImage, &crds[1])]));
}
