//! What belongs to an install of Argo CD: in which order it comes, what of it is ours, and where it is.

use super::*;
use crate::agent::gate::policy::Mending;

#[test]
fn what_pods_read_is_there_before_them_and_the_project_before_the_root() {
    let mut cluster = Cluster::empty_of(EngineKind::Argocd);
    cluster.settle(100);
    let order: Vec<&ObjectId> = cluster
        .steps
        .iter()
        .filter(|(_, s)| matches!(s.action, Action::Create | Action::WriteSecret))
        .map(|(_, s)| &s.target)
        .collect();
    let first = |kind| order.iter().position(|o| o.kind == kind).unwrap();
    let last = |kind| order.iter().rposition(|o| o.kind == kind).unwrap();
    assert_eq!(first(Kind::Namespace), 0);
    let pods = first(Kind::Deployment).min(first(Kind::StatefulSet));
    for kind in [
        Kind::Role,
        Kind::RoleBinding,
        Kind::ConfigMap,
        Kind::Secret,
        Kind::ClusterRoleBinding,
    ] {
        assert!(last(kind) < pods, "{kind}: {order:?}");
    }
    assert!(
        last(Kind::AppProject) < first(Kind::Application),
        "{order:?}"
    );
    let took = cluster.steps.last().unwrap().0 - start();
    assert!(took < Duration::seconds(30), "{took}");
}

/// What people set beside our keys is theirs; a heal of ours leaves it alone.
#[test]
fn settings_that_people_add_are_no_drift() {
    let mut cluster = working();
    let config = id(Kind::ConfigMap, "argocd-cm");
    let data = &mut cluster.objects.get_mut(&config).unwrap().fields["data"];
    data["url"] = json!("https://argocd.example.org");
    assert_eq!(cluster.plan().findings, Vec::new());
    let keys = cluster.install.keys_of(&config).unwrap();
    let ours: Vec<&String> = keys["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        ours,
        [
            "resource.customizations.health.argoproj.io_Application",
            "timeout.reconciliation"
        ]
    );
}

/// F45: unlike Flux', its install says nothing of whose it is.
#[test]
fn an_argo_cd_that_was_there_before_is_only_observed() {
    let mut cluster = working();
    cluster.history.adopted = false;
    let server = id(Kind::Deployment, "argocd-repo-server");
    let live = cluster.objects.get_mut(&server).unwrap();
    live.ours = false;
    "kubectl".clone_into(&mut live.writer);
    let plan = cluster.plan();
    assert_eq!((plan.mode, plan.steps), (Mode::ObserveOnly, Vec::new()));
    cluster.history.adopted = true;
    assert_eq!(cluster.plan().mode, Mode::Act);
}

/// F24: a catalog that brings Argo CD's manifest brings the manifest's host keys, and a snapshot has what was live then.
#[test]
fn a_snapshot_makes_nobody_elses_host_keys_known_good() {
    let known = id(Kind::ConfigMap, "argocd-ssh-known-hosts-cm");
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": known.name, "namespace": "argocd",
            "annotations": {"argocd.argoproj.io/tracking-id": "engine:/ConfigMap:argocd/argocd-ssh-known-hosts-cm"},
        },
        "data": {"ssh_known_hosts": "elsewhere.test ssh-ed25519 AAAA"},
    });
    let snapshot = BTreeMap::from([(known.clone(), theirs)]);
    let install = Install::new(
        &desired_of(EngineKind::Argocd),
        &snapshot,
        Some(Mending::default()),
    );
    let usual = install_of(EngineKind::Argocd);
    assert!(!install.wanted[&known].git_owned);
    assert_eq!(install.body(&known), usual.body(&known));
    assert_eq!(install.wanted[&known].expect, usual.wanted[&known].expect);
}

/// W32: all of an install that is elsewhere is elsewhere, and finds itself there.
#[test]
fn an_install_in_another_namespace_has_nothing_in_the_usual_one() {
    let mut desired = desired_of(EngineKind::Argocd);
    let bundle = desired.install.bundle.as_ref().clone();
    desired.install.bundle = Arc::new(bundle.within("gitops"));
    let install = install_for(&desired);
    let usual = install_of(EngineKind::Argocd);
    let there = |id: &ObjectId| {
        let of_cluster = id.namespace.is_empty();
        let own = id.kind == Kind::Namespace;
        let namespace = if of_cluster { "" } else { "gitops" };
        ObjectId::new(id.kind, namespace, if own { "gitops" } else { &id.name })
    };
    let moved: Vec<ObjectId> = usual.wanted.keys().map(there).collect();
    let all: Vec<ObjectId> = install.wanted.keys().cloned().collect();
    let sorted = |mut ids: Vec<ObjectId>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(all), sorted(moved));
    for id in install.wanted.keys() {
        let body = install.body(id).unwrap();
        let text = body.to_string();
        assert!(!text.contains(r#""namespace":"argocd""#), "{id}: {text}");
        assert_eq!(crate::agent::engine::place(&body).as_ref(), Some(id));
    }
    let roots = [&install.source, &install.sync, &install.secret];
    assert!(roots.iter().all(|id| id.namespace == "gitops"));
    assert_eq!(install.namespace, "gitops");
}
