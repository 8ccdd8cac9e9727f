//! Commits that rewrite what Flux itself follows (F28, W18): the root is held back, the rest of the commit is delivered,
//! and the next commit arrives.

use serde_json::{Value, json};

use crate::support::world::{CLUSTER, World, git_repository, kustomization};
use crate::support::{eventually, figure, seconds, shown, until};

const FLUX: &str = "flux-system";
const OWNER: &str = "kustomize.toolkit.fluxcd.io/name";

/// A catalog that holds the engine's roots, as `flux bootstrap` leaves it, with an object beside them that tells which commit
/// was delivered.
struct Catalog {
    world: World,
    roots: [Value; 2],
}

/// What Git has of a live root.
fn manifest(live: &Value) -> Value {
    json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": {"name": FLUX, "namespace": FLUX},
        "spec": live["spec"],
    })
}

impl Catalog {
    fn adopted() -> Self {
        let world = World::open("roots");
        world.add();
        world.apply(&world.adopt);
        eventually("the first revision is applied", seconds(240), || {
            world.synced()
        });
        world
            .hub
            .linesman(&["cluster", "wait", CLUSTER, "--timeout", "3m"]);
        let read = |path: &str| world.api.try_get(path).ok().flatten().unwrap_or_default();
        let roots = Self::paths().map(|path| manifest(&read(&path)));
        let catalog = Self { world, roots };
        catalog.push(&catalog.roots, "first");
        until("Git has the roots", seconds(120), || {
            let labelled = |path: &String| {
                let labels = catalog.live(path)["metadata"]["labels"].clone();
                !labels[OWNER].is_null()
            };
            catalog.delivered() == "first" && Self::paths().iter().all(labelled)
        });
        catalog
    }

    fn paths() -> [String; 2] {
        [git_repository(FLUX), kustomization(FLUX)]
    }

    fn push(&self, roots: &[Value; 2], marker: &str) -> String {
        let [source, sync] = roots;
        let marked = format!(
            "{source}\n---\n{sync}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: marker, namespace: default}}\ndata: {{is: {marker}}}\n"
        );
        self.world
            .push(&format!("clusters/{CLUSTER}/roots.yaml"), &marked)
    }

    fn live(&self, path: &str) -> Value {
        let found = self.world.api.try_get(path);
        found.ok().flatten().unwrap_or_default()
    }

    fn is_held(&self, path: &str) -> bool {
        let annotations = self.live(path)["metadata"]["annotations"].clone();
        annotations["kustomize.toolkit.fluxcd.io/reconcile"] == "disabled"
            && annotations["linesman.dev/held"]
                .as_str()
                .is_some_and(|held| !held.contains("lifted"))
    }

    fn delivered(&self) -> String {
        let marker = self.live("/api/v1/namespaces/default/configmaps/marker");
        marker["data"]["is"].as_str().unwrap_or_default().to_owned()
    }

    /// Pushes a commit with another value in one field of a root, then one that mends it.
    fn rewritten(&self, which: usize, field: &str, value: &Value, [bad, good]: [&str; 2]) {
        let mut roots = self.roots.clone();
        let path = &Self::paths()[which];
        let root = &mut roots[which];
        let assigned = root["spec"][field].clone();
        root["spec"][field] = value.clone();
        let head = self.push(&roots, bad);
        let took = until(
            "the root is held back and as assigned",
            seconds(300),
            || {
                self.is_held(path)
                    && self.live(path)["spec"][field] == assigned
                    && self.delivered() == bad
            },
        );
        let took = took + self.world.function(seconds(240));
        figure(
            "W18",
            &format!("commit that rewrites a root's {field} → held, rest delivered, function"),
            "≤ 120 s",
            shown(took),
        );
        let hub = &self.world.hub;
        until("the hub names the commit", seconds(60), || {
            let heals = hub.json(&["heal", "list", CLUSTER]);
            let all = heals.as_array().cloned().unwrap_or_default();
            let altered = all.iter().filter(|h| h["class"] == "SourceAltered");
            let mut ids = altered.filter_map(|h| h["id"].as_str());
            ids.any(|id| {
                let told = hub.json(&["heal", "show", id]);
                told["author"]["id"] == json!(head) && told.to_string().contains(field)
            })
        });
        self.push(&self.roots, good);
        let took = until(
            "the next commit arrives, nothing is held",
            seconds(300),
            || self.delivered() == good && !self.is_held(path),
        );
        figure(
            "W18",
            &format!("commit that mends a root's {field} pushed → delivered, nothing held"),
            "≤ 300 s",
            shown(took),
        );
        self.world.function(seconds(120));
        assert!(!self.is_held(path));
        assert_eq!(self.live(path)["spec"][field], assigned);
    }
}

/// F28, W18
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_rewrites_a_root_is_held_back_and_the_next_one_arrives() {
    let catalog = Catalog::adopted();
    let url = catalog.roots[0]["spec"]["url"].as_str().unwrap().to_owned();
    let elsewhere = json!(format!("{url}-elsewhere"));
    catalog.rewritten(0, "url", &elsewhere, ["second", "third"]);
    let nowhere = json!("./no/such/path");
    catalog.rewritten(1, "path", &nowhere, ["fourth", "fifth"]);
    catalog.world.close();
}
