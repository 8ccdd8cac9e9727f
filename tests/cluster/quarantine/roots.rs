//! Commits that rewrite what the engine itself follows (F28, W18): the root is held back, the rest of the commit is
//! delivered, and the next commit arrives.

use serde_json::{Value, json};

use crate::healing::{none_is_open, on_record, since};
use crate::support::api::path;
use crate::support::argocd::root;
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World, git_repository, kustomization};
use crate::support::{eventually, figure, seconds, shown, until};

const OWNER: &str = "kustomize.toolkit.fluxcd.io/name";
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
const HOST_KEYS: &str = "argocd-ssh-known-hosts-cm";

/// A catalog that holds the engine's roots, as `flux bootstrap` leaves it and an app of apps has it, with an object beside
/// them that tells which commit was delivered.
struct Catalog {
    world: World,
    roots: Vec<Value>,
}

/// What Git has of a live root.
fn manifest(live: &Value) -> Value {
    let meta = &live["metadata"];
    json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "spec": live["spec"],
    })
}

/// Whether the engine applied it from Git.
fn is_from_git(live: &Value) -> bool {
    let meta = &live["metadata"];
    !meta["labels"][OWNER].is_null() || !meta["annotations"][TRACKING].is_null()
}

/// Whether the root Application leaves itself alone.
fn ignores_itself(live: &Value) -> bool {
    let all = live["spec"]["ignoreDifferences"].as_array();
    let mut all = all.into_iter().flatten();
    all.any(|entry| entry["name"] == "linesman" && entry["jsonPointers"] == json!(["/spec"]))
}

impl Catalog {
    fn adopted(world: World) -> Self {
        world.add();
        world.apply(&world.adopt);
        eventually("the first revision is applied", seconds(240), || {
            world.synced()
        });
        world
            .hub
            .linesman(&["cluster", "wait", CLUSTER, "--timeout", "3m"]);
        let mut catalog = Self {
            world,
            roots: Vec::new(),
        };
        let lives = catalog.paths().into_iter().map(|path| catalog.live(&path));
        catalog.roots = lives.map(|live| manifest(&live)).collect();
        catalog.push(&catalog.roots, "first");
        until("Git has the roots", seconds(120), || {
            let mut paths = catalog.paths().into_iter();
            catalog.delivered() == "first" && paths.all(|path| is_from_git(&catalog.live(&path)))
        });
        catalog.world.function(seconds(120));
        catalog
    }

    fn paths(&self) -> Vec<String> {
        if self.world.engine == ARGOCD {
            vec![root()]
        } else {
            vec![git_repository(FLUX), kustomization(FLUX)]
        }
    }

    fn push(&self, roots: &[Value], marker: &str) -> String {
        let roots = roots.iter().map(|root| format!("{root}\n---\n"));
        let roots: String = roots.collect();
        let marked = format!(
            "{roots}apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: marker, namespace: default}}\ndata: {{is: {marker}}}\n"
        );
        self.world
            .push(&format!("clusters/{CLUSTER}/roots.yaml"), &marked)
    }

    fn live(&self, path: &str) -> Value {
        let found = self.world.api.try_get(path);
        found.ok().flatten().unwrap_or_default()
    }

    fn is_held(&self, path: &str) -> bool {
        let live = self.live(path);
        let annotations = &live["metadata"]["annotations"];
        let kept = if self.world.engine == ARGOCD {
            annotations["argocd.argoproj.io/sync-options"] == "Prune=false" && ignores_itself(&live)
        } else {
            annotations["kustomize.toolkit.fluxcd.io/reconcile"] == "disabled"
        };
        kept && annotations["linesman.dev/held"]
            .as_str()
            .is_some_and(|held| !held.contains("lifted"))
    }

    fn delivered(&self) -> String {
        let marker = self.live("/api/v1/namespaces/default/configmaps/marker");
        marker["data"]["is"].as_str().unwrap_or_default().to_owned()
    }

    /// Pushes a commit with another value in one field of a root, or without the field, then one that mends it. Once for each root: what is held
    /// again within ten minutes is given back after so long only.
    fn rewritten(&self, which: usize, field: &str, value: &Value, [bad, good]: [&str; 2]) {
        let (path, pointer) = (&self.paths()[which], format!("/spec/{field}"));
        self.held(which, field, value, bad);
        self.push(&self.roots, good);
        let took = until(
            "the next commit arrives, nothing is held",
            seconds(300),
            || self.delivered() == good && !self.is_held(path),
        );
        figure(
            "W18",
            &self.world.said(&format!(
                "commit that mends a root's {field} pushed → delivered, nothing held"
            )),
            "≤ 300 s",
            shown(took),
        );
        self.world.function(seconds(120));
        assert!(!self.is_held(path));
        let live = self.live(path);
        assert_eq!(
            live.pointer(&pointer),
            self.roots[which].pointer(&pointer),
            "{live}"
        );
        // Else what comes next is told of as the same.
        until("the heal is over", seconds(120), || {
            none_is_open(&self.world)
        });
    }

    /// The first half of it.
    fn held(&self, which: usize, field: &str, value: &Value, bad: &str) {
        let mut roots = self.roots.clone();
        let path = &self.paths()[which];
        let pointer = format!("/spec/{field}");
        let assigned = roots[which].pointer(&pointer).cloned();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let spec = roots[which].pointer_mut(parent).unwrap();
        let fields = spec.as_object_mut().unwrap();
        if value.is_null() {
            fields.remove(name).unwrap();
        } else {
            fields.insert(name.to_owned(), value.clone());
        }
        let is_as_assigned = || self.live(path).pointer(&pointer) == assigned.as_ref();
        let head = self.push(&roots, bad);
        let took = until(
            "the root is held back and as assigned",
            seconds(300),
            || self.is_held(path) && is_as_assigned() && self.delivered() == bad,
        );
        let took = took + self.world.function(seconds(240));
        figure(
            "W18",
            &self.world.said(&format!(
                "commit that rewrites a root's {field} → held, rest delivered, function"
            )),
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
    }

    /// A commit brings other host keys than the hub's, and the next one these.
    fn distrusted(&self, [bad, good]: [&str; 2]) {
        let path = path("v1", "ConfigMap", ARGOCD, HOST_KEYS);
        let assigned = self.live(&path)["data"].clone();
        let with = |data: &Value| {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": HOST_KEYS, "namespace": ARGOCD,
                    "labels": {"app.kubernetes.io/part-of": "argocd"},
                },
                "data": data,
            });
            [self.roots.clone(), vec![map]].concat()
        };
        let is_held = || {
            let live = self.live(&path);
            let annotations = &live["metadata"]["annotations"];
            let held = annotations["linesman.dev/held"].as_str();
            let held = held.is_some_and(|held| !held.contains("lifted"));
            held && annotations["argocd.argoproj.io/sync-options"] == "Prune=false"
        };
        let other = "elsewhere.test ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n";
        self.push(&with(&json!({"ssh_known_hosts": other})), bad);
        let took = until("the host keys are held back and ours", seconds(300), || {
            is_held() && self.live(&path)["data"] == assigned && self.delivered() == bad
        });
        let took = took + self.world.function(seconds(240));
        figure(
            "W18",
            &self
                .world
                .said("commit with other host keys → held, rest delivered, function"),
            "≤ 120 s",
            shown(took),
        );
        self.push(&with(&assigned), good);
        until(
            "the next commit arrives, nothing is held",
            seconds(300),
            || self.delivered() == good && !is_held(),
        );
        self.world.function(seconds(120));
        assert!(!is_held());
        assert_eq!(self.live(&path)["data"], assigned);
    }
}

/// F28, F29, W18
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_rewrites_a_root_is_held_back_and_the_next_one_arrives() {
    let catalog = Catalog::adopted(World::open("roots"));
    suspended_by_kubectl(&catalog);
    let url = catalog.roots[0]["spec"]["url"].as_str().unwrap().to_owned();
    let elsewhere = json!(format!("{url}-elsewhere"));
    catalog.rewritten(0, "url", &elsewhere, ["second", "third"]);
    let nowhere = json!("./no/such/path");
    catalog.rewritten(1, "path", &nowhere, ["fourth", "fifth"]);
    let mut pinned = catalog.roots[0]["spec"]["ref"].clone();
    pinned["commit"] = json!(catalog.world.head().unwrap());
    catalog.held(0, "ref", &pinned, "sixth");
    // F29: what a person suspends stays so; a commit that does it would be the last that arrives.
    catalog.held(1, "suspend", &json!(true), "seventh");
    catalog.push(&catalog.roots, "eighth");
    until("the next commit arrives", seconds(300), || {
        catalog.delivered() == "eighth"
    });
    catalog.world.close();
}

/// F29: a source that is in Git, suspended with kubectl. Flux takes the field over as its own, and away; the agent calls it a person's
/// doing all the while, and holds nothing.
fn suspended_by_kubectl(catalog: &Catalog) {
    let (world, source) = (&catalog.world, git_repository(FLUX));
    let known = on_record(world);
    let stop = json!({ "spec": { "suspend": true } });
    world.api.patch(&source, &stop);
    until("the hub shows that it was suspended", seconds(120), || {
        let mut all = since(world, &known).into_iter();
        all.any(|heal| heal["class"] == "SuspendedByHuman")
    });
    let now = json!({ "reconcile.fluxcd.io/requestedAt": "now" });
    let asks = json!({ "metadata": { "annotations": now } });
    world.api.patch(&kustomization(FLUX), &asks);
    until("Flux resumes it", seconds(120), || {
        catalog.live(&source)["spec"]["suspend"].is_null()
    });
    world.function(seconds(120));
    let altered = |heal: &Value| heal["class"] == "SourceAltered";
    assert!(
        !since(world, &known).iter().any(altered),
        "a commit's doing"
    );
    assert!(!catalog.is_held(&source));
}

/// F28, W18
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_rewrites_the_root_application_is_held_back_and_the_next_one_arrives() {
    let catalog = Catalog::adopted(World::open_with("argoroots", ARGOCD));
    let source = catalog.roots[0]["spec"]["source"].clone();
    let url = source["repoURL"].as_str().unwrap();
    let pinned = catalog.world.head().unwrap();
    let elsewhere = json!(format!("{url}-elsewhere"));
    catalog.rewritten(0, "source/repoURL", &elsewhere, ["second", "third"]);
    until("the root is as before", seconds(60), || {
        catalog.live(&root())["spec"] == catalog.roots[0]["spec"]
    });
    catalog.held(0, "source/targetRevision", &json!(pinned), "fourth");
    catalog.world.close();
}

/// F24, F29, W18: a commit that has the root not sync any more would be the last that arrives, and so would one with other host keys
/// than the hub's; what a person stops stays so.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_stops_the_root_application_or_has_other_host_keys_is_held_back() {
    let catalog = Catalog::adopted(World::open_with("argostopped", ARGOCD));
    catalog.rewritten(0, "syncPolicy/automated", &Value::Null, ["second", "third"]);
    stopped_by_kubectl(&catalog);
    catalog.distrusted(["fourth", "fifth"]);
    catalog.world.close();
}

/// F29: what a person stops is shown, and not mended.
fn stopped_by_kubectl(catalog: &Catalog) {
    let world = &catalog.world;
    let known = on_record(world);
    let stop = json!({ "spec": { "syncPolicy": { "automated": null } } });
    world.api.patch(&root(), &stop);
    until("the hub shows that it was stopped", seconds(120), || {
        let mut all = since(world, &known).into_iter();
        all.any(|heal| heal["class"] == "SuspendedByHuman")
    });
    let automated = |live: &Value| live["spec"]["syncPolicy"]["automated"].clone();
    assert!(automated(&catalog.live(&root())).is_null());
    assert!(!catalog.is_held(&root()));
    let on = automated(&catalog.roots[0]);
    let on = json!({ "spec": { "syncPolicy": { "automated": on } } });
    world.api.patch(&root(), &on);
    world.function(seconds(120));
    let altered = |heal: &Value| heal["class"] == "SourceAltered";
    assert!(!since(world, &known).iter().any(altered), "it was mended");
}
