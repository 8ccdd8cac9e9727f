//! Whether the engine works: it follows the catalog, and answers a request of now.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ARGOCD, FLUX, World};
use crate::support::api::{deployment, path};
use crate::support::{argocd, until};

impl World {
    /// The root Kustomization's revision, where that is the catalog's head and Ready.
    pub(crate) fn synced(&self) -> Result<String, String> {
        let head = self.head()?;
        if self.engine == ARGOCD {
            return argocd::synced(&self.api, &head);
        }
        let root = self
            .api
            .try_get(&kustomization(FLUX))?
            .ok_or("no root Kustomization")?;
        let applied = root["status"]["lastAppliedRevision"]
            .as_str()
            .unwrap_or_default();
        if applied.ends_with(&head) {
            Ok(applied.to_owned())
        } else {
            Err(format!("applied '{applied}', head {head}"))
        }
    }

    /// A new reconciliation asked for is answered by both controllers: the engine works.
    pub(crate) fn function(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        if self.engine == ARGOCD {
            argocd::function(&self.api, limit);
            return began.elapsed();
        }
        self.asked(limit, ready);
        began.elapsed()
    }

    fn asked(&self, limit: Duration, holds: impl Fn(&Value) -> bool) {
        let stamp = format!(
            "test-{:?}",
            std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()
        );
        for root in [git_repository(FLUX), kustomization(FLUX)] {
            let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": stamp } } });
            // Root objects may be away for a moment after a CRD or the namespace was deleted.
            until(&format!("{root} takes the request"), limit, || {
                let Ok(Some(object)) = self.api.try_get(&root) else {
                    return false;
                };
                if object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"]
                    != json!(stamp)
                {
                    self.api.patch(&root, &patch);
                    return false;
                }
                object["status"]["lastHandledReconcileAt"] == json!(stamp) && holds(&object)
            });
        }
    }

    /// Each controller answers a request of now, whatever it answers where there is no Git to be had.
    pub(crate) fn answers(&self, limit: Duration) {
        if self.has_git() {
            self.function(limit);
        } else if self.engine == ARGOCD {
            argocd::answers(&self.api, limit, |_| true);
        } else {
            self.asked(limit, |_| true);
        }
    }

    /// All Deployments of the engine are available.
    pub(crate) fn engine_available(&self) -> bool {
        if self.engine == ARGOCD {
            return argocd::available(&self.api);
        }
        ["source-controller", "kustomize-controller"]
            .iter()
            .all(|name| {
                let path = deployment(FLUX, name);
                self.api
                    .try_get(&path)
                    .ok()
                    .flatten()
                    .is_some_and(|d| condition(&d, "Available"))
            })
    }
}

pub(crate) fn kustomization(name: &str) -> String {
    path(
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        FLUX,
        name,
    )
}

pub(crate) fn git_repository(name: &str) -> String {
    path("source.toolkit.fluxcd.io/v1", "GitRepository", FLUX, name)
}

pub(crate) fn ready(object: &Value) -> bool {
    condition(object, "Ready")
}

pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == json!(kind) && c["status"] == json!("True"))
}
