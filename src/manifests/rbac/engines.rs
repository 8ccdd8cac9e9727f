//! The names of what an engine's install contains, to which the rules are pinned.

use crate::bundle::check::ARGOCD_CLUSTER_ROLES;

/// What an engine's install contains beyond its own namespace.
pub(super) struct EngineNames {
    pub(super) crds: &'static [&'static str],
    pub(super) cluster_roles: &'static [&'static str],
    pub(super) cluster_role_bindings: &'static [&'static str],
    /// API group and plural names of the engine's own kinds.
    pub(super) kinds: &'static [(&'static str, &'static [&'static str])],
    /// Those of people, which the agent only sees and asks: a controller works that answers for one.
    pub(super) asked: &'static [(&'static str, &'static [&'static str])],
    /// Those that prune by a list of their own, wherever they are: left behind, they would prune by it years later.
    pub(super) inventories: &'static [(&'static str, &'static [&'static str])],
    /// Where that list is a part of the status.
    pub(super) prunes_by_status: &'static [(&'static str, &'static [&'static str])],
}

const FLUX: EngineNames = EngineNames {
    crds: &[
        "alerts.notification.toolkit.fluxcd.io",
        "artifactgenerators.source.extensions.fluxcd.io",
        "buckets.source.toolkit.fluxcd.io",
        "externalartifacts.source.toolkit.fluxcd.io",
        "gitrepositories.source.toolkit.fluxcd.io",
        "helmcharts.source.toolkit.fluxcd.io",
        "helmreleases.helm.toolkit.fluxcd.io",
        "helmrepositories.source.toolkit.fluxcd.io",
        "imagepolicies.image.toolkit.fluxcd.io",
        "imagerepositories.image.toolkit.fluxcd.io",
        "imageupdateautomations.image.toolkit.fluxcd.io",
        "kustomizations.kustomize.toolkit.fluxcd.io",
        "ocirepositories.source.toolkit.fluxcd.io",
        "providers.notification.toolkit.fluxcd.io",
        "receivers.notification.toolkit.fluxcd.io",
    ],
    cluster_roles: &[
        "crd-controller-flux-system",
        "flux-edit-flux-system",
        "flux-view-flux-system",
    ],
    cluster_role_bindings: &[
        "cluster-reconciler-flux-system",
        "crd-controller-flux-system",
    ],
    kinds: &[
        ("helm.toolkit.fluxcd.io", &["helmreleases"]),
        ("kustomize.toolkit.fluxcd.io", &["kustomizations"]),
        (
            "notification.toolkit.fluxcd.io",
            &["alerts", "providers", "receivers"],
        ),
        (
            "source.toolkit.fluxcd.io",
            &[
                "buckets",
                "externalartifacts",
                "gitrepositories",
                "helmcharts",
                "helmrepositories",
                "ocirepositories",
            ],
        ),
    ],
    asked: &[(
        "image.toolkit.fluxcd.io",
        &["imagerepositories", "imageupdateautomations"],
    )],
    inventories: &[
        ("helm.toolkit.fluxcd.io", &["helmreleases"]),
        ("kustomize.toolkit.fluxcd.io", &["kustomizations"]),
    ],
    prunes_by_status: &[("kustomize.toolkit.fluxcd.io", &["kustomizations/status"])],
};

const ARGOCD: EngineNames = EngineNames {
    crds: &[
        "applications.argoproj.io",
        "applicationsets.argoproj.io",
        "appprojects.argoproj.io",
    ],
    cluster_roles: &ARGOCD_CLUSTER_ROLES,
    cluster_role_bindings: &ARGOCD_CLUSTER_ROLES,
    kinds: &[(
        "argoproj.io",
        &["applications", "applicationsets", "appprojects"],
    )],
    asked: &[],
    // It works in its own namespace only, and prunes by marks on what it applied.
    inventories: &[],
    prunes_by_status: &[],
};

/// Either may take the other's place later, without a second YAML.
const ENGINES: [&EngineNames; 2] = [&FLUX, &ARGOCD];

pub(super) fn all<T: Copy + 'static>(part: impl Fn(&EngineNames) -> &'static [T]) -> Vec<T> {
    let parts = ENGINES.iter().map(|names| part(names));
    parts.flat_map(|part| part.iter().copied()).collect()
}
