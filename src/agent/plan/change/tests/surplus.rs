//! What goes once a change is over, and in which order.

use super::*;
use crate::agent::engine::argocd::APPLICATIONSETS;
use crate::agent::engine::flux::HELM;
use crate::agent::plan::tests::{
    Cluster, argocd, desired_with, flux, install_for, install_of, install_with,
};

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

/// W10: what helm-controller is asked with is in no bundle, and pinned by it.
#[test]
fn what_helm_controller_is_asked_with_goes_before_it_where_the_install_has_it_no_more() {
    let without = Cluster::working().install;
    let mut objects = flux();
    objects.push((Kind::Deployment, HELM));
    let with = install_with(objects);
    let left = |from: &Install, to: &Install| {
        let mut gone = change(1, 2, false);
        gone.objects = all_places([&from.bundle, &to.bundle], &[], None);
        let left = surplus(&gone, to);
        left.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (probe, controller) = (
        "HelmRelease flux-system/linesman-probe",
        "Deployment flux-system/helm-controller",
    );
    assert_eq!(left(&with, &without), [probe, controller]);
    assert_eq!(left(&without, &with), [""; 0]);
    assert_eq!(left(&with, &with), [""; 0]);
    // Left there by an agent that did not take it away.
    assert_eq!(left(&without, &without), [probe]);
}

/// The same of what Argo CD's applicationset-controller is asked with.
#[test]
fn what_the_applicationset_controller_is_asked_with_goes_with_it() {
    let without = install_of(EngineKind::Argocd);
    let mut objects = argocd();
    objects.push((Kind::Deployment, APPLICATIONSETS));
    let with = install_for(&desired_with(EngineKind::Argocd, objects));
    let left = |from: &Install, to: &Install| {
        let mut gone = change(1, 2, false);
        gone.objects = all_places([&from.bundle, &to.bundle], &[], None);
        let left = surplus(&gone, to);
        left.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let probe = "ApplicationSet argocd/linesman-probe";
    let controller = "Deployment argocd/argocd-applicationset-controller";
    assert_eq!(left(&with, &without), [probe, controller]);
    assert_eq!(left(&with, &with), [""; 0]);
}

#[test]
fn the_agents_own_rights_go_last() {
    let mut gone = change(1, 2, false);
    let of = |kind, name: &str| ObjectId::new(kind, "argocd", name);
    let rights = of(Kind::RoleBinding, ENGINE_ROLE);
    let ids = [
        rights.clone(),
        of(Kind::RoleBinding, "another"),
        of(Kind::Service, ENGINE_ROLE),
        of(Kind::Deployment, "a"),
        of(Kind::Deployment, "b"),
        of(Kind::Deployment, "b"),
    ];
    gone.objects = ids.iter().map(Place::of).collect();
    let order = surplus(&gone, &Cluster::working().install);
    assert_eq!(order.len(), 5, "{order:?}");
    assert_eq!(
        order[..2],
        [of(Kind::Deployment, "b"), of(Kind::Deployment, "a")]
    );
    assert_eq!(order[4], rights);
}
