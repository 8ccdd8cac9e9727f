//! The sync objects that are lost in `cascade`, and the workload objects that they bring.

use serde_json::{Value, json};

use super::{LABEL, OBJECTS};
use crate::support::argocd::application;
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World, kustomization};

/// The sync objects that the catalog brings for this.
pub(super) struct Sync {
    pub(super) count: usize,
}

impl Sync {
    pub(super) fn name(number: usize) -> String {
        format!("cascade-{number:02}")
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(Self::name)
    }

    pub(super) fn path(world: &World, name: &str) -> String {
        if world.engine == ARGOCD {
            application(name)
        } else {
            kustomization(name)
        }
    }

    pub(super) fn object(world: &World, name: &str) -> Value {
        if world.engine == ARGOCD {
            // As the catalog's own: where it comes from, and whom it follows.
            let mut spec = world.api.get(&application("base")).unwrap()["spec"].clone();
            spec["source"]["path"] = json!(format!("cascade/{name}"));
            spec["destination"]["namespace"] = json!("default");
            return json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {
                    "name": name, "namespace": ARGOCD,
                    "finalizers": ["resources-finalizer.argocd.argoproj.io"],
                },
                "spec": spec,
            });
        }
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": FLUX},
            "spec": {
                "interval": "10m", "retryInterval": "10s", "path": format!("./cascade/{name}"), "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": FLUX},
            },
        })
    }

    /// One commit brings them all, and what they bring.
    pub(super) fn push(&self, world: &World) {
        let each = OBJECTS / self.count;
        let mut files = Vec::new();
        let mut syncs = Vec::new();
        for name in self.names() {
            let maps = (0..each).map(|n| {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("{name}-{n}"), "namespace": "default", "labels": {LABEL: "true"}},
                })
            });
            let maps: Vec<String> = maps.map(|map| map.to_string()).collect();
            files.push((format!("cascade/{name}/maps.yaml"), maps.join("\n---\n")));
            syncs.push(Self::object(world, &name).to_string());
        }
        files.push((self.file(), syncs.join("\n---\n")));
        world.push_all(&files);
    }

    #[expect(clippy::unused_self, reason = "where these lie")]
    pub(super) fn file(&self) -> String {
        format!("clusters/{CLUSTER}/cascade.yaml")
    }

    /// What they brought is on their record: without it, one that goes leaves it behind.
    pub(super) fn all_know(&self, world: &World) -> bool {
        self.names().all(|name| {
            let live = world.api.try_get(&Self::path(world, &name)).ok().flatten();
            let brought = if world.engine == ARGOCD {
                "/status/resources"
            } else {
                "/status/inventory/entries"
            };
            let brought = live.as_ref().and_then(|live| live.pointer(brought));
            let known = brought.and_then(Value::as_array).map_or(0, Vec::len);
            known == OBJECTS / self.count
        })
    }

    pub(super) fn all_there(&self, world: &World) -> bool {
        self.names()
            .all(|name| world.uid(&Self::path(world, &name)).is_some())
    }
}
