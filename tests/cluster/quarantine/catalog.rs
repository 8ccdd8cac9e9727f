//! A catalog that holds Flux itself, with what is seen of it in the cluster and at the hub.

use serde_json::Value;

use super::whole::with;
use super::{FLUX, HELD};
use crate::support::api::deployment;
use crate::support::place::Place;
use crate::support::world::{CLUSTER, World};
use crate::support::{eventually, seconds, until};

/// The engine in the catalog, with an object beside it that tells which commit was delivered.
pub(super) struct Catalog {
    pub(super) world: World,
    pub(super) good: String,
    /// Where the engine is in the catalog.
    file: String,
}

impl Catalog {
    pub(super) fn adopted() -> Self {
        Self::of("quarantine", "flux")
    }

    /// With the engine of that bundle, in a lab of that name.
    pub(super) fn of(name: &str, bundle: &str) -> Self {
        let install = Place::bundle(bundle);
        let world = World::open_from(name, "flux", &install);
        world.add();
        let catalog = Self::new(world, patched(&install));
        catalog.push(&catalog.good, "first");
        catalog.owned();
        catalog
    }

    /// The same, with the engine below a directory that a Kustomization of the root applies; `below` is that, as file and content.
    pub(super) fn below(name: &str, (file, below): (&str, &str)) -> Self {
        let install = Place::bundle("flux");
        let world = World::open_from(name, "flux", &install);
        world.add();
        let file = (file.to_owned(), below.to_owned());
        let catalog = Self {
            file: "engine/install.yaml".to_owned(),
            ..Self::new(world, patched(&install))
        };
        let engine = (catalog.file.clone(), marked(&catalog.good, "first"));
        catalog.world.push_all(&[file, engine]);
        catalog.owned();
        catalog
    }

    /// With the engine as a file of the root's own.
    pub(super) fn new(world: World, good: String) -> Self {
        let file = format!("clusters/{CLUSTER}/engine.yaml");
        Self { world, good, file }
    }

    /// The cluster is adopted, and what the catalog has of the engine is Git's.
    fn owned(&self) {
        let world = &self.world;
        world.apply(&world.adopt);
        eventually("the first revision is applied", seconds(240), || {
            world.synced()
        });
        world
            .hub
            .linesman(&["cluster", "wait", CLUSTER, "--timeout", "3m"]);
        until(
            "Git owns the engine and a snapshot is kept",
            seconds(120),
            || {
                let labels = self.controller("source-controller")["metadata"]["labels"].clone();
                !labels["kustomize.toolkit.fluxcd.io/name"].is_null()
                    && self.has_patches()
                    && self.condition("SnapshotFresh") == "True"
            },
        );
    }

    /// Whether the patches of the catalog are live.
    pub(super) fn has_patches(&self) -> bool {
        let name = "kustomize-controller";
        self.runs(name, "args", "--requeue-dependency=7s") && self.runs(name, "resources", "911Mi")
    }

    /// Returns the commit's id.
    pub(super) fn push(&self, engine: &str, marker: &str) -> String {
        self.world.push(&self.file, &marked(engine, marker))
    }

    /// The same with another file in that commit.
    pub(super) fn push_with(&self, engine: &str, marker: &str, other: (String, String)) -> String {
        let engine = (self.file.clone(), marked(engine, marker));
        self.world.push_all(&[engine, other])
    }

    pub(super) fn controller(&self, name: &str) -> Value {
        let found = self.world.api.try_get(&deployment(FLUX, name));
        found.ok().flatten().unwrap_or_default()
    }

    pub(super) fn is_held(&self, name: &str) -> bool {
        let annotations = self.controller(name)["metadata"]["annotations"].clone();
        annotations["kustomize.toolkit.fluxcd.io/reconcile"] == "disabled"
            && annotations[HELD]
                .as_str()
                .is_some_and(|held| !held.contains("lifted"))
    }

    pub(super) fn delivered(&self) -> String {
        let marker = self
            .world
            .api
            .try_get("/api/v1/namespaces/default/configmaps/marker");
        let marker = marker.ok().flatten().unwrap_or_default();
        marker["data"]["is"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether a controller's container has this in a field.
    pub(super) fn runs(&self, name: &str, field: &str, part: &str) -> bool {
        let controller = self.controller(name);
        let container = &controller["spec"]["template"]["spec"]["containers"][0];
        container[field].to_string().contains(part)
    }

    /// The hub shows a condition with that status; it does so later where it is away.
    pub(super) fn told(&self, kind: &str, status: &str) {
        if self.world.hub.runs() {
            until("the hub says so", seconds(60), || {
                self.condition(kind) == status
            });
        }
    }

    /// The status of a condition, as the hub shows it.
    pub(super) fn condition(&self, kind: &str) -> String {
        let cluster = self.world.hub.json(&["cluster", "show", CLUSTER]);
        let conditions = cluster["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == kind);
        found.map_or_else(String::new, |c| {
            c["status"].as_str().unwrap_or_default().to_owned()
        })
    }
}

fn marked(engine: &str, marker: &str) -> String {
    format!(
        "{engine}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: marker, namespace: default}}\ndata: {{is: {marker}}}\n"
    )
}

/// The install as a platform team has it in its catalog: with an argument and a limit of their own.
fn patched(install: &str) -> String {
    with(install, ["Deployment", "kustomize-controller"], |part| {
        let arg = "        - --log-level=info";
        part.replace(arg, &format!("{arg}\n        - --requeue-dependency=7s"))
            .replace("memory: 1Gi", "memory: 911Mi")
    })
}
