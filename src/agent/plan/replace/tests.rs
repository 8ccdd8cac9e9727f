//! What is judged at each step of a replacement.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::agent::engine::Site;
use crate::agent::plan::change::{self, Form, Place};
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::{Cluster, desired_of, install_of, start};
use crate::clock::rfc3339;
use crate::manifests::EngineNamespaces;
use crate::wire::api::{EngineKind, SignerRef};
use crate::wire::id::Digest;

mod course;
mod world;

fn site(kind: EngineKind) -> Site {
    Site::of(kind, &EngineNamespaces::default())
}

const BOTH: [EngineKind; 2] = [EngineKind::Flux, EngineKind::Argocd];

#[test]
fn rights_go_before_pods_are_waited_for_and_finalizers_last() {
    let binding = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let cut = Act::CutRights {
        binding: binding.clone(),
        uid: "u1".to_owned(),
    };
    let all = Remains {
        rights: vec![(binding, "u1".to_owned())],
        running: vec![controller.clone()],
        pods: vec!["kustomize-controller-1".to_owned()],
        pinned: 7,
    };
    let without = |change: fn(&mut Remains)| {
        let mut remains = all.clone();
        remains.rights.clear();
        change(&mut remains);
        remains
    };
    let cases = [
        (
            all.clone(),
            Next::Do(vec![cut, Act::ScaleToZero(controller.clone())]),
        ),
        (
            without(|_| ()),
            Next::Do(vec![Act::ScaleToZero(controller)]),
        ),
        (
            without(|r| r.running.clear()),
            Next::Ends("1 of its Pods still end, kustomize-controller-1 first".to_owned()),
        ),
        (
            without(|r| {
                r.running.clear();
                r.pods.clear();
            }),
            Next::Unpin,
        ),
        (Remains::default(), Next::Still),
    ];
    for (remains, expected) in cases {
        assert_eq!(next(&remains, false), expected, "{remains:?}");
        // Pods that had their time hold up nothing, rights and controllers do.
        let late = match expected {
            Next::Ends(_) => Next::Unpin,
            other => other,
        };
        assert_eq!(next(&remains, true), late, "{remains:?}");
    }
}

/// A Pod that never ends was waited for 75 s, and as long once more after the sync objects were freed.
#[test]
fn what_comes_behind_the_wait_for_pods_does_not_begin_it_anew() {
    let ends = Next::Ends(String::new());
    for (step, since, late, expected) in [
        (&ends, None, false, Some(9)),
        (&ends, Some(1), false, Some(1)),
        (&Next::Unpin, Some(1), true, Some(1)),
        (&Next::Pinned(String::new()), Some(1), true, Some(1)),
        (&Next::Still, Some(1), true, Some(1)),
        // They ended in time, or there were none.
        (&Next::Unpin, Some(1), false, None),
        (&Next::Unpin, None, false, None),
        (&Next::Do(Vec::new()), Some(1), true, None),
    ] {
        let waits = waits(step, (since, late), 9);
        assert_eq!(waits, expected, "{step:?} {since:?} {late}");
    }
}

/// What the catalog brought of these kinds nobody reconciles then.
#[test]
fn the_crds_of_the_engine_that_goes_are_told_and_not_those_of_the_one_that_comes() {
    let argocd = ["applications", "applicationsets", "appprojects"];
    let argocd = argocd.map(|plural| format!("{plural}.argoproj.io"));
    let flux = [
        "gitrepositories.source.toolkit.fluxcd.io",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    ];
    for (comes, expected) in [
        (EngineKind::Flux, argocd.to_vec()),
        (EngineKind::Argocd, flux.map(str::to_owned).to_vec()),
    ] {
        let change = began(comes.other(), comes, 1, start());
        let crds = foreign_crds(&change, &install_of(comes)).into_iter();
        let expected: Vec<ObjectId> = expected
            .iter()
            .map(|name| ObjectId::new(Kind::CustomResourceDefinition, "", name))
            .collect();
        assert_eq!(crds.collect::<Vec<_>>(), expected, "{comes}");
    }
}

/// Those that are not known may fail, and then the other engine would have taken the place all the same. Those that fail are known
/// beyond the bound, so that a catalog of more is no reason to go back as long as there is room for them.
#[test]
fn an_engine_takes_no_place_where_sync_objects_may_fail_that_are_not_known() {
    let known = |observed: &mut Observed, count: usize| {
        let id = |n: usize| ObjectId::new(Kind::Application, "apps", &format!("app-{n}"));
        let all = (0..count).map(|n| (id(n), Child::default()));
        observed.children = Arc::new(all.collect());
    };
    for kind in BOTH {
        let cluster = Cluster::working_of(kind);
        let change = began(kind.other(), kind, 1, start());
        let mut observed = cluster.observed();
        let said = |observed: &Observed| lacks(&change, &cluster.install, observed);
        assert_eq!(said(&observed), None);
        observed.awaited.insert(Kind::GitRepository);
        assert_eq!(said(&observed), None);
        observed.awaited.insert(Kind::Application);
        let awaits = "it is not known yet which applications there are, and whether they work";
        assert_eq!(said(&observed).as_deref(), Some(awaits));
        observed.awaited.clear();
        observed.cut.insert(Kind::GitRepository);
        known(&mut observed, MAX_LOUD);
        assert_eq!(said(&observed), None);
        observed.cut.insert(Kind::Application);
        let many = said(&observed).unwrap_or_default();
        assert!(
            many.starts_with("there are more applications than"),
            "{many}"
        );
        known(&mut observed, MAX_LOUD - 1);
        assert_eq!(said(&observed), None);
    }
}

/// W25: an admission policy may refuse what frees a sync object for as long as it is there.
#[test]
fn a_refusal_is_waited_out_from_the_first_one_on_and_ends_with_the_next_success() {
    let pinned = Next::Pinned(String::new());
    let slow = Next::Wait(String::new());
    for (step, since, expected) in [
        (&pinned, None, Some(9)),
        (&pinned, Some(1), Some(1)),
        // The API server is slow in between.
        (&slow, Some(1), Some(1)),
        (&slow, None, None),
        (&Next::Unpin, Some(1), None),
        (&Next::Still, Some(1), None),
        // Somebody brought the engine back to life.
        (&Next::Do(Vec::new()), Some(1), None),
        (&Next::Ends(String::new()), Some(1), None),
    ] {
        assert_eq!(refused(step, since, 9), expected, "{step:?} {since:?}");
    }
    assert_eq!(words(&Next::Pinned("why".to_owned())), "why");
}

/// A Pod that never ends was waited for before what was in force came back, and as long once more before the rest of it went.
#[test]
fn pods_that_outlived_their_time_before_the_way_back_are_not_given_it_once_more() {
    let now = start();
    let mut change = began(EngineKind::Argocd, EngineKind::Flux, 1, now);
    let late = |change: &Change, found| had_their_time(ending(change, found), now);
    change.failed = Some("it did not work".to_owned());
    assert!(!late(&change, None));
    change.ending = Some(rfc3339(now - ENDS));
    assert!(late(&change, None));
    // Somebody brought them to life meanwhile.
    assert!(!late(&change, Some(now - Duration::seconds(1))));
    // On the way there nothing was waited for yet.
    change.failed = None;
    assert!(!late(&change, None));
}

#[test]
fn what_the_agent_makes_for_an_engine_goes_with_it_and_nothing_that_holds_other_things() {
    for kind in BOTH {
        let install = install_of(kind);
        let other = install_of(kind.other());
        let mut inventory: BTreeSet<ObjectId> = crate::agent::engine::extras(&site(kind))
            .into_iter()
            .collect();
        inventory.extend(change::places(&install.bundle).filter_map(|p| p.id()));
        let guards = |id: &&ObjectId| !id.kind.optional() && id.kind != Kind::Namespace;
        for id in install.wanted.keys().filter(guards) {
            assert!(inventory.contains(id), "{id} would stay");
        }
        let change = began(kind.other(), kind, 1, start());
        let gone = change::surplus(&change, &other);
        let stays = |id: &ObjectId| {
            matches!(
                id.kind,
                Kind::CustomResourceDefinition | Kind::Namespace | Kind::Secret
            )
        };
        assert!(!gone.iter().any(|id| stays(id) && id.kind != Kind::Secret));
        assert_eq!(gone.last().unwrap().name, "linesman-engine", "{gone:?}");
        assert!(
            gone.iter().all(|id| !other.wanted.contains_key(id)),
            "{gone:?}"
        );
    }
}

#[test]
fn no_engine_that_does_not_verify_takes_the_place_of_one_that_does() {
    let crd = |field: &str| {
        let fields = json!({ field: {"type": "array"} });
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}});
        let bundle = desired_of(EngineKind::Argocd).install.bundle;
        let objects = bundle.objects.iter().map(|o| {
            let mut object = o.whole().into_owned();
            if object["metadata"]["name"] == "appprojects.argoproj.io" {
                object["spec"] = json!({"versions": [{"name": "v1alpha1", "schema": schema}]});
            }
            object
        });
        Bundle::from_objects(objects.collect()).unwrap()
    };
    let (verifies, does_not) = (crd("signatureKeys"), crd("sourceRepos"));
    let flux = desired_of(EngineKind::Flux).install.bundle;
    for (kind, bundle, signed, refused) in [
        (EngineKind::Argocd, &does_not, true, true),
        (EngineKind::Argocd, &does_not, false, false),
        (EngineKind::Argocd, &verifies, true, false),
        (EngineKind::Flux, flux.as_ref(), true, false),
    ] {
        let mut wished = desired_of(kind).assignment;
        wished.catalog.signers.clear();
        wished.catalog.signers.extend(signed.then(|| SignerRef {
            fingerprint: "A8".repeat(20),
            public_key: String::new(),
            subkeys: Vec::new(),
        }));
        assert_eq!(is_unverified(&wished, bundle), refused, "{kind} {signed}");
    }
}

fn form(kind: EngineKind) -> Form {
    Form {
        kind: Some(kind),
        version: "1".to_owned(),
        bundle: Digest::from_bytes([kind as u8 + 1; 32]),
        registry: None,
        pull_secret: None,
        path: "p".to_owned(),
    }
}

fn began(from: EngineKind, to: EngineKind, number: u64, now: OffsetDateTime) -> Change {
    let mut objects: Vec<Place> = Vec::new();
    for kind in BOTH {
        objects.extend(change::places(&install_of(kind).bundle));
        objects.extend(
            crate::agent::engine::extras(&site(kind))
                .iter()
                .map(Place::of),
        );
    }
    Change {
        from: form(from),
        to: form(to),
        number,
        since: rfc3339(now),
        within: 300,
        both: from != to,
        objects,
        failed: None,
        ending: None,
    }
}
