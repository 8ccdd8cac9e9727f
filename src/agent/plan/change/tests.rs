use super::*;
use crate::agent::plan::tests::{Cluster, Damage};
use crate::agent::plan::{Action, Class};
use crate::clock::rfc3339;

fn form(n: u8) -> Form {
    Form {
        kind: Some(EngineKind::Flux),
        version: format!("2.9.{n}"),
        bundle: Digest::from_bytes([n; 32]),
        registry: None,
        path: String::new(),
    }
}

fn wish(n: u8, change: u64) -> EngineRef {
    EngineRef {
        kind: EngineKind::Flux,
        version: form(n).version,
        bundle: form(n).bundle,
        size: 1,
        registry: None,
        within: 300,
        change,
    }
}

fn change(from: u8, to: u8, failed: bool) -> Change {
    Change {
        from: form(from),
        to: form(to),
        number: 7,
        since: "2026-01-02T03:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: failed.then(|| "x".to_owned()),
    }
}

#[test]
fn a_wish_begins_once_and_one_that_failed_only_when_it_is_wished_again() {
    let begin = |from: u8| Next::Begin { from: form(from) };
    let cases = [
        // Nothing new; something new.
        (wish(1, 0), 1, None, Next::Keep),
        (wish(2, 7), 1, None, begin(1)),
        // Under way, also for an agent that has just started.
        (wish(2, 7), 2, Some(change(1, 2, false)), Next::Keep),
        // It was killed before it kept the new bundle.
        (wish(2, 7), 1, Some(change(1, 2, false)), begin(1)),
        // Yet another wish, and the one back: what worked last is what is gone back to.
        (wish(3, 8), 2, Some(change(1, 2, false)), begin(1)),
        (wish(1, 8), 2, Some(change(1, 2, false)), begin(1)),
        // It failed: back, and not again.
        (wish(2, 7), 2, Some(change(1, 2, true)), Next::Back),
        (wish(2, 7), 1, Some(change(1, 2, true)), Next::Keep),
        (wish(2, 8), 1, Some(change(1, 2, true)), begin(1)),
        (wish(1, 8), 1, Some(change(1, 2, true)), Next::Keep),
        (wish(3, 8), 1, Some(change(1, 2, true)), begin(1)),
        // It failed, it was killed on the way back, and something else is wished.
        (wish(3, 8), 2, Some(change(1, 2, true)), begin(1)),
    ];
    for (wish, in_force, change, expected) in cases {
        let found = next(&wish, &form(in_force), change.as_ref());
        assert_eq!(found, expected, "{wish:?} {in_force} {change:?}");
    }
    let mirrored = EngineRef {
        registry: Some("mirror.lan".to_owned()),
        ..wish(1, 0)
    };
    assert_eq!(next(&mirrored, &form(1), None), begin(1));
}

/// Otherwise nothing would be known of what worked when it fails the second time.
#[test]
fn a_failed_change_that_is_wished_again_before_it_is_undone_keeps_its_way_back() {
    let failed = change(1, 2, true);
    let again = next(&wish(2, 8), &form(2), Some(&failed));
    assert_eq!(again, Next::Begin { from: form(1) });
    let anew = Change {
        number: 8,
        ..change(1, 2, false)
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&anew)), Next::Keep);
    let failed = Change {
        failed: Some("again".to_owned()),
        ..anew
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&failed)), Next::Back);
}

#[test]
fn a_version_that_never_worked_is_never_the_one_to_go_back_to() {
    let begin = Next::Begin { from: form(1) };
    for (in_force, what) in [
        (2, "it runs and was not seen to work yet"),
        (1, "it was not in force yet"),
        (
            3,
            "the next one was put in force, and its change was not kept",
        ),
    ] {
        for failed in [false, true] {
            let known = change(1, 2, failed);
            let found = next(&wish(3, 9), &form(in_force), Some(&known));
            assert_eq!(found, begin, "{what}, failed: {failed}");
        }
    }
}

#[test]
fn what_is_not_as_wanted_is_waited_for_and_then_given_up() {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    let mut running = change(1, 2, false);
    running.since = rfc3339(began);
    let judge = |cluster: &Cluster, running: &Change, adopted: bool| {
        let plan = cluster.plan();
        let observed = cluster.observed();
        let seen = Seen {
            now: cluster.now,
            followed: began,
            held: None,
            install: &cluster.install,
            observed: &observed,
            plan: &plan,
            adopted,
        };
        progress(running, &seen)
    };
    assert_eq!(judge(&cluster, &running, true), Progress::Rolled);
    cluster.damage(&Damage::Image("source-controller"));
    let Progress::Going(text) = judge(&cluster, &running, true) else {
        panic!("it has time");
    };
    assert!(text.contains("source-controller"), "{text}");
    cluster.now += running.limit();
    assert!(matches!(
        judge(&cluster, &running, true),
        Progress::Failed(_)
    ));
    // Nothing worked before; it is the way back itself.
    assert!(matches!(
        judge(&cluster, &running, false),
        Progress::Going(_)
    ));
    let back = Change {
        to: running.from.clone(),
        ..running
    };
    assert!(matches!(judge(&cluster, &back, true), Progress::Going(_)));
}

#[test]
fn what_no_bundle_that_stays_has_goes_in_reverse_but_no_crd_and_no_namespace() {
    let cluster = Cluster::working();
    let place = |kind: Kind, namespace: &str, name: &str| {
        Place(
            kind.as_str().to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        )
    };
    let ours = "flux-system";
    let mut gone = change(1, 2, false);
    gone.objects = places(&cluster.install.bundle).collect();
    gone.objects.extend([
        place(Kind::ServiceAccount, ours, "source-watcher"),
        place(Kind::Deployment, ours, "source-watcher"),
        place(Kind::Namespace, "", "old"),
        place(Kind::CustomResourceDefinition, "", "old.fluxcd.io"),
        Place("Unheard".to_owned(), String::new(), "x".to_owned()),
    ]);
    let names: Vec<String> = surplus(&gone, &cluster.install)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        names,
        [
            "Deployment flux-system/source-watcher",
            "ServiceAccount flux-system/source-watcher"
        ]
    );
}

#[test]
fn the_other_side_of_a_change_is_that_which_is_not_given() {
    let change = change(1, 2, false);
    assert_eq!(change.other(&form(1)), &form(2));
    assert_eq!(change.other(&form(2)), &form(1));
}

#[test]
fn a_change_goes_on_with_its_first_stage_and_what_is_no_part_of_the_manifest() {
    let id = |kind, name| ObjectId::new(kind, "flux-system", name);
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", "buckets");
    let (service, pods) = (
        id(Kind::Service, "source-controller"),
        id(Kind::Deployment, "source-controller"),
    );
    let root = id(Kind::Kustomization, "flux-system");
    let step = |target: &ObjectId| Step {
        action: Action::Apply,
        target: target.clone(),
        cause: None,
    };
    let all: Vec<Step> = [&crd, &service, &pods, &root].map(step).into();
    let left = |changing, found: &[(Class, &ObjectId)]| {
        let found = found.iter().map(|(class, id)| Finding::new(*class, id, ""));
        let (mut steps, found) = (all.clone(), found.collect::<Vec<_>>());
        stage(changing, &mut steps, &found);
        steps
    };
    let (drift, report) = (Class::ObjectAltered, Class::RegistryDown);
    let later = [
        (drift, &service),
        (drift, &pods),
        (report, &crd),
        (drift, &root),
    ];
    assert_eq!(left(true, &later), [&crd, &service, &root].map(step));
    assert_eq!(
        left(true, &[(drift, &crd), (drift, &pods)]),
        [&crd, &root].map(step)
    );
    assert_eq!(left(true, &[(report, &crd), (drift, &root)]), all);
    assert_eq!(left(false, &later), all);
}
