//! Whether the engine works: it follows the catalog, and answers a request of now.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ARGOCD, FLUX, World};
use crate::support::api::{deployment, path};
use crate::support::{argocd, closely};

/// Annotations by which something is held back from the engine.
const HOLDS: [&str; 3] = [
    "linesman.dev/held",
    "kustomize.toolkit.fluxcd.io/reconcile",
    "argocd.argoproj.io/skip-reconcile",
];

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
            closely(&format!("{root} takes the request"), limit, || {
                let Ok(Some(object)) = self.api.try_get(&root) else {
                    return false;
                };
                if object["status"]["lastHandledReconcileAt"] == json!(stamp) && holds(&object) {
                    return true;
                }
                // A root that is in Git may be written over at each of its own reconciliations.
                if object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"]
                    != json!(stamp)
                {
                    self.api.patch(&root, &patch);
                }
                false
            });
        }
    }

    /// Each controller answers a request of now, whatever it answers where there is no Git to be had.
    pub(crate) fn answers(&self, limit: Duration) {
        if self.has_git() {
            self.function(limit);
        } else {
            self.looks(limit);
        }
    }

    /// Each controller has looked because it was asked to now, whatever came of it.
    pub(crate) fn looks(&self, limit: Duration) {
        if self.engine == ARGOCD {
            argocd::answers(&self.api, limit, |_| true);
        } else {
            self.asked(limit, |_| true);
        }
    }

    /// What is wanted of each object that the engine syncs by, by its UID, and what holds it; not that somebody asks it to look.
    pub(crate) fn synced_by(&self) -> BTreeMap<String, Value> {
        let kinds = if self.engine == ARGOCD {
            [
                "argoproj.io/v1alpha1/applications",
                "argoproj.io/v1alpha1/appprojects",
            ]
        } else {
            [
                "source.toolkit.fluxcd.io/v1/gitrepositories",
                "kustomize.toolkit.fluxcd.io/v1/kustomizations",
            ]
        };
        let of_kind = |kind: &str| {
            let all = self.api.get(&format!("/apis/{kind}")).unwrap();
            all["items"].as_array().cloned().unwrap_or_default()
        };
        let told = |object: Value| {
            let meta = &object["metadata"];
            // What is left of a hold that was lifted goes some time later.
            let holds = |word: &str| !word.contains("lifted");
            let held = HOLDS.map(|name| meta["annotations"][name].as_str().is_some_and(holds));
            let is = json!([meta["namespace"], meta["name"], object["spec"], held]);
            (meta["uid"].as_str().unwrap().to_owned(), is)
        };
        kinds.into_iter().flat_map(of_kind).map(told).collect()
    }

    /// Those of them that are still there and are wanted otherwise: as they were, and as they are.
    pub(crate) fn rewritten(&self, before: &BTreeMap<String, Value>) -> Vec<[Value; 2]> {
        let now = self.synced_by();
        let pairs = before.iter().filter_map(|(uid, was)| {
            let is = now.get(uid)?;
            (is != was).then(|| [was.clone(), is.clone()])
        });
        pairs.collect()
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
