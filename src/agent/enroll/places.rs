//! Where the engines live.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use tracing::warn;

use super::bundle::NAMESPACE;
use super::stored::within;
use crate::bundle::check;
use crate::manifests::{BUNDLE_MAP, EngineNamespaces, engine_namespace};
use crate::wire::api::EngineKind;

/// As the adoption YAML in force says, but for an Argo CD that was installed elsewhere: it cannot move, and a second one
/// beside it would fight it for the same objects.
///
/// # Errors
/// The API server does not say what was installed.
pub async fn settled(
    said: &EngineNamespaces,
    kube: &kube::Client,
    ours: &str,
) -> Result<EngineNamespaces> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), ours);
    let map = within(maps.get_opt(BUNDLE_MAP)).await;
    let map = map.context("read ConfigMap linesman-bundle")?;
    let mut data = map.and_then(|map| map.data).unwrap_or_default();
    let (installed, said_now) = (data.remove(NAMESPACE), said.of(EngineKind::Argocd));
    let settled = stays(installed.as_deref(), said_now);
    if settled != said_now {
        warn!(
            installed = settled,
            said = said_now,
            "the adoption YAML in force is for another namespace of Argo CD; make it anew with 'linesman cluster readopt'"
        );
    }
    Ok(EngineNamespaces::new(settled.to_owned()))
}

/// What is kept is Flux' namespace while that is the engine; a word that is no name of a namespace is nobody's.
fn stays<'a>(installed: Option<&'a str>, said: &'a str) -> &'a str {
    let flux = check::namespace(EngineKind::Flux);
    let argocd = |at: &&str| *at != flux && engine_namespace(at).is_ok();
    installed.filter(argocd).unwrap_or(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_argo_cd_stays_where_it_is() {
        for (installed, said, settled) in [
            (None, "argocd", "argocd"),
            (None, "gitops", "gitops"),
            (Some("gitops"), "gitops", "gitops"),
            (Some("gitops"), "argocd", "gitops"),
            (Some("argocd"), "gitops", "argocd"),
            (Some("flux-system"), "gitops", "gitops"),
            (Some("kube-system"), "gitops", "gitops"),
            (Some(""), "argocd", "argocd"),
        ] {
            assert_eq!(stays(installed, said), settled, "{installed:?} {said}");
        }
    }
}
