//! What a version of the engine in Git cannot do without: what the controllers that it has run by, are reached by and refer to.

use std::collections::BTreeSet;

use super::dropped::entry;
use super::*;
use crate::agent::engine::GIT_OWNER_NAMESPACE;
use crate::agent::engine::flux::{CANARY, HELM};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::History;
use crate::agent::plan::tests::{desired_with, flux};

const SOURCE: &str = "source-controller";
const NOTIFIES: &str = "notification-controller";
const CRDS: &str = "crd-controller-flux-system";

/// What an install may have beside what every Flux has.
const MORE: &[(Kind, &str)] = &[
    (
        Kind::CustomResourceDefinition,
        "helmreleases.helm.toolkit.fluxcd.io",
    ),
    (Kind::ServiceAccount, HELM),
    (Kind::ServiceAccount, NOTIFIES),
    (Kind::Role, HELM),
    (Kind::Role, "others"),
    (Kind::RoleBinding, HELM),
    (Kind::RoleBinding, "others"),
    (Kind::ConfigMap, "mounted"),
    (Kind::ConfigMap, "optional"),
    (Kind::ConfigMap, "unread"),
    (Kind::Service, "webhook-receiver"),
    (Kind::Deployment, HELM),
    (Kind::Deployment, NOTIFIES),
];

fn of(kind: Kind, name: &str) -> ObjectId {
    ObjectId::new(kind, "flux-system", name)
}

/// As Git has an object: whom a binding is for, and what helm-controller mounts.
fn committed(id: &ObjectId, mut body: Value) -> Value {
    body["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    body["metadata"]["labels"][GIT_OWNER_NAMESPACE] = json!("flux-system");
    match (id.kind, id.name.as_str()) {
        (Kind::ClusterRoleBinding, CRDS) => body["roleRef"]["name"] = json!(CRDS),
        (Kind::RoleBinding, name) => {
            let whom = if name == HELM { HELM } else { "somebody" };
            body["roleRef"] = json!({"kind": "Role", "name": name});
            body["subjects"] = json!([{"kind": "ServiceAccount", "name": whom}]);
        }
        (Kind::Deployment, HELM) => {
            body["spec"]["template"]["spec"]["volumes"] = json!([
                {"name": "a", "configMap": {"name": "mounted"}},
                {"name": "b", "configMap": {"name": "optional", "optional": true}},
            ]);
        }
        _ => {}
    }
    body
}

/// A working cluster with all of that, which the root brought.
fn whole() -> Cluster {
    let mut objects = flux();
    objects.extend_from_slice(MORE);
    let desired = desired_with(EngineKind::Flux, objects);
    let install = |snapshot: &BTreeMap<ObjectId, Value>| {
        Install::new(&desired, snapshot, Some(Mending::default()))
    };
    let plain = install(&BTreeMap::new());
    let gits = plain.wanted.keys().filter(|id| plain.may_be_gits(id));
    let snapshot = gits.map(|id| (id.clone(), committed(id, plain.body(id).unwrap())));
    Cluster::working_with(install(&snapshot.collect()))
}

/// Flux is done with a commit that has all of Git's but these, which are gone.
fn done_without(cluster: &Cluster, dropped: &[ObjectId]) -> Observed {
    let mut seen = cluster.observed();
    seen.objects.retain(|id, _| !dropped.contains(id));
    let of_git = cluster.install.wanted.iter().filter(|(_, w)| w.git_owned);
    let listed = of_git.filter(|(id, _)| !dropped.contains(id));
    let entries: Vec<Value> = listed.map(|(id, _)| json!({"id": entry(id)})).collect();
    let status = &mut live(&mut seen, &cluster.install.sync).fields["status"];
    status["inventory"] = json!({"entries": entries});
    seen
}

fn live<'a>(seen: &'a mut Observed, id: &ObjectId) -> &'a mut Object {
    Arc::make_mut(seen.objects.get_mut(id).unwrap())
}

/// What is no longer looked for, now and by the next snapshot.
fn gone(cluster: &Cluster, seen: &Observed, history: &History) -> [BTreeSet<ObjectId>; 2] {
    let LetGo { all, dropped } = let_go(cluster.now, &cluster.install, seen, history);
    [all, dropped]
}

/// The same where nothing is known of before, and it is the same for both.
fn dropped(cluster: &Cluster, seen: &Observed) -> BTreeSet<ObjectId> {
    let [all, dropped] = gone(cluster, seen, &History::default());
    assert_eq!(all, dropped);
    dropped
}

/// W18, W19, W22: a controller that stays would not run without this, or nobody would reach it; with one that goes, all that is its may go.
#[test]
fn what_no_controller_of_a_version_stands_on_is_let_go() {
    let cluster = whole();
    let one = |kind, name: &str| vec![of(kind, name)];
    let helms = [
        (Kind::Deployment, HELM),
        (Kind::ServiceAccount, HELM),
        (Kind::RoleBinding, HELM),
        (Kind::Role, HELM),
        (Kind::ConfigMap, "mounted"),
    ];
    let others = [Kind::RoleBinding, Kind::Role].map(|kind| of(kind, "others"));
    for (without, goes) in [
        (one(Kind::ServiceAccount, HELM), false),
        (one(Kind::RoleBinding, HELM), false),
        (one(Kind::Role, HELM), false),
        (one(Kind::ConfigMap, "mounted"), false),
        (helms.map(|(kind, name)| of(kind, name)).to_vec(), true),
        (one(Kind::ConfigMap, "optional"), true),
        (one(Kind::ConfigMap, "unread"), true),
        (others.to_vec(), true),
        (one(Kind::ClusterRole, CRDS), false),
        (one(Kind::Service, SOURCE), false),
        (one(Kind::Service, "webhook-receiver"), true),
    ] {
        let seen = done_without(&cluster, &without);
        let expected = without.iter().filter(|_| goes).cloned();
        let expected: BTreeSet<ObjectId> = expected.collect();
        assert_eq!(dropped(&cluster, &seen), expected, "{without:?}");
    }
}

/// W22: each event is posted inside a reconciliation, which waits for that.
#[test]
fn the_controller_of_events_may_go_where_those_of_the_roots_post_none() {
    let cluster = whole();
    let without = [Kind::Deployment, Kind::ServiceAccount].map(|kind| of(kind, NOTIFIES));
    for (address, goes) in [
        ("--a", true),
        ("--events-addr=", true),
        (
            "--events-addr=http://notification-controller.flux-system.svc/",
            false,
        ),
    ] {
        let mut seen = done_without(&cluster, &without);
        let controller = live(&mut seen, &deployment("kustomize-controller"));
        *controller.fields.pointer_mut(ARGS).unwrap() = json!(["--b", address]);
        let expected = without.iter().filter(|_| goes).cloned();
        let expected: BTreeSet<ObjectId> = expected.collect();
        assert_eq!(dropped(&cluster, &seen), expected, "{address}");
    }
}

/// W22: what a version before did without is no controller that Git still has.
#[test]
fn what_was_of_a_controller_that_went_before_is_let_go() {
    let mut cluster = whole();
    let (controller, account) = (deployment(HELM), of(Kind::ServiceAccount, HELM));
    let wanted = cluster.install.wanted.get_mut(&controller).unwrap();
    wanted.git_owned = false;
    cluster.install.dropped = [controller.clone()].into();
    let both = [controller, account];
    let seen = done_without(&cluster, &both);
    assert_eq!(dropped(&cluster, &seen), BTreeSet::from(both));
}

/// W19: the guard keeps the Namespace; all else of such a commit is the end of the engine, too.
#[test]
fn nothing_of_a_commit_that_has_no_namespace_any_more_is_let_go() {
    let cluster = whole();
    let policy = of(Kind::NetworkPolicy, "allow-egress");
    let mut seen = done_without(&cluster, std::slice::from_ref(&policy));
    assert_eq!(dropped(&cluster, &seen), BTreeSet::from([policy]));
    let space = live(&mut seen, &of(Kind::Namespace, "flux-system"));
    space.fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    assert_eq!(dropped(&cluster, &seen), BTreeSet::new());
}

/// W5, W22: Flux prunes nothing that it did not bring, and what is there it has not pruned.
#[test]
fn while_flux_is_at_a_commit_all_but_what_it_may_have_pruned_is_looked_for() {
    let cluster = whole();
    let policy = of(Kind::NetworkPolicy, "allow-egress");
    for (away, expected) in [
        (None, None),
        (Some(of(Kind::HelmRelease, CANARY)), None),
        (Some(policy.clone()), Some(policy)),
    ] {
        let mut seen = done_without(&cluster, &[]);
        seen.objects.retain(|id, _| Some(id) != away.as_ref());
        let status = &mut live(&mut seen, &cluster.install.sync).fields["status"];
        status["lastAttemptedRevision"] = json!("main@sha1:2");
        status["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        let all: BTreeSet<ObjectId> = expected.into_iter().collect();
        let found = gone(&cluster, &seen, &History::default());
        assert_eq!(found, [all, BTreeSet::new()], "{away:?}");
    }
}

/// F6, W18: nothing refers to it, and a controller ends without it all the same.
#[test]
fn what_a_controller_crashes_without_is_not_let_go() {
    let cluster = whole();
    let id = of(Kind::ConfigMap, "unread");
    let mut seen = done_without(&cluster, std::slice::from_ref(&id));
    live(&mut seen, &deployment(SOURCE)).fields["status"] = json!({"observedGeneration": 99});
    let pod = Pod {
        app: SOURCE.to_owned(),
        waiting: Some(("CrashLoopBackOff".to_owned(), String::new())),
        ..Pod::default()
    };
    seen.pods.insert(SOURCE.to_owned(), Arc::new(pod));
    let history = History {
        without: [(id.clone(), cluster.now)].into(),
        ..History::default()
    };
    let nothing = [BTreeSet::new(), BTreeSet::new()];
    assert_eq!(gone(&cluster, &seen, &history), nothing);
    // Before it is known that it went, that is not told from what was there already.
    assert_eq!(dropped(&cluster, &seen), BTreeSet::from([id]));
}
