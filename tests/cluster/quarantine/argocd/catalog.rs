//! A catalog that holds Argo CD itself, and how it is told what becomes of a commit to it.

use serde_json::{Value, json};

use super::{ENGINE, HELD, SERVER, TRACKING, hold_of, image_of};
use crate::healing::LIMIT;
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, REFRESH, application, root};
use crate::support::place::Place;
use crate::support::world::{ARGOCD, CLUSTER, World};
use crate::support::{figure, seconds, shown, until};

/// What of the install the catalog brings: a kind, and a name where it is not all of that kind.
pub(super) type Part = (&'static str, Option<&'static str>);

pub(super) struct Catalog<'a> {
    pub(super) world: &'a mut World,
    /// Those parts of the install, as the catalog has them.
    pub(super) good: String,
}

impl<'a> Catalog<'a> {
    /// The catalog brings parts of Argo CD, and the agent knows them by heart. `last` are the paths of those that are waited for.
    pub(super) fn managing(world: &'a mut World, parts: &[Part], last: &[&str]) -> Self {
        let bundle = Place::bundle("argocd");
        let has = |text: &str, line: &str| text.lines().any(|l| l == line);
        let is_brought = |text: &&str| {
            parts.iter().any(|(kind, name)| {
                let named = name.is_none_or(|name| has(text, &format!("  name: {name}")));
                named && has(text, &format!("kind: {kind}"))
            })
        };
        let brought: Vec<&str> = bundle.split("\n---\n").filter(is_brought).collect();
        let catalog = Self {
            world,
            good: brought.join("\n---\n"),
        };
        let world = &*catalog.world;
        let source = world.api.get(&application("app-hello")).unwrap()["spec"]["source"].clone();
        let app = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": { "name": ENGINE, "namespace": ARGOCD },
            "spec": {
                "project": "default",
                "source": { "repoURL": source["repoURL"], "targetRevision": source["targetRevision"], "path": "engine" },
                "destination": { "server": "https://kubernetes.default.svc", "namespace": ARGOCD },
                "syncPolicy": { "automated": { "prune": true, "selfHeal": true } },
            },
        });
        catalog.push(&catalog.good, "first");
        world.push(&format!("clusters/{CLUSTER}/engine.yaml"), &app.to_string());
        until("Argo CD owns itself", seconds(LIMIT), || {
            last.iter()
                .all(|path| !catalog.annotation(path, TRACKING).is_null())
        });
        catalog.agent_without_snapshots();
        catalog
    }

    /// What is in the agent's namespace.
    fn list(&self, kind: &str) -> Vec<Value> {
        let all = self.live(&format!("/api/v1/namespaces/linesman/{kind}"));
        all["items"].as_array().cloned().unwrap_or_default()
    }

    /// The paths of its Pods.
    pub(super) fn agents(&self) -> Vec<String> {
        let all = self.list("pods");
        let names = all.iter().map(|pod| &pod["metadata"]["name"]);
        let names = names.map(|name| name.as_str().unwrap());
        names
            .map(|name| path("v1", "Pod", "linesman", name))
            .collect()
    }

    /// An agent that begins anew takes a snapshot ten minutes after the last change, or at once where it knows of none.
    pub(super) fn agent_without_snapshots(&self) {
        let snapshots = || {
            let all = self.list("configmaps");
            let of_it = all.into_iter().filter(|m| m["data"]["taken"].is_string());
            of_it.collect::<Vec<Value>>()
        };
        for map in snapshots() {
            let name = map["metadata"]["name"].as_str().unwrap();
            let map = path("v1", "ConfigMap", "linesman", name);
            assert!(self.world.api.delete(&map));
        }
        for pod in self.agents() {
            assert!(self.world.api.delete(&pod));
        }
        until("a snapshot is kept", seconds(LIMIT), || {
            !snapshots().is_empty()
        });
    }

    /// Returns the commit's id.
    pub(super) fn push(&self, engine: &str, marker: &str) -> String {
        let head = self.commit(engine, marker);
        // By itself an Application below the root looks minutes later.
        let asked = json!({ "metadata": { "annotations": { REFRESH: "normal" } } });
        if self.world.uid(&application(ENGINE)).is_some() {
            self.world.api.patch(&application(ENGINE), &asked);
        }
        head
    }

    /// The same, and nobody but the agent asks Argo CD to look.
    pub(super) fn commit(&self, engine: &str, marker: &str) -> String {
        let marked = format!(
            "{engine}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: engine-marker, namespace: default}}\ndata: {{is: {marker}}}\n"
        );
        self.world.push("engine/engine.yaml", &marked)
    }

    /// The hub shows whether something is held; it does so later where it is away.
    pub(super) fn told(&self, status: &str) {
        if self.world.hub.runs() {
            until("the hub says so", seconds(60), || {
                let view = self.world.hub.json(&["cluster", "show", CLUSTER]);
                let mut all = view["conditions"].as_array().into_iter().flatten();
                all.any(|c| c["type"] == "Quarantined" && c["status"] == status)
            });
        }
    }

    pub(super) fn live(&self, path: &str) -> Value {
        let found = self.world.api.try_get(path).ok().flatten();
        found.unwrap_or_default()
    }

    fn annotation(&self, path: &str, name: &str) -> Value {
        self.live(path)["metadata"]["annotations"][name].clone()
    }

    /// All that keeps Argo CD from an object, and tells it whose it is.
    pub(super) fn hold(&self, path: &str) -> [Value; 3] {
        hold_of(&self.live(path))
    }

    pub(super) fn is_held(&self, path: &str) -> bool {
        let held = self.annotation(path, HELD);
        held.as_str().is_some_and(|held| !held.contains("lifted"))
    }

    pub(super) fn image(&self, path: &str) -> String {
        image_of(&self.live(path))
    }

    /// Whether all of a commit was applied, as far as nothing of it is held back, and nothing more is under way.
    pub(super) fn is_at(&self, head: &str) -> bool {
        let app = self.live(&application(ENGINE));
        let (sync, operation) = (&app["status"]["sync"], &app["status"]["operationState"]);
        let runs = !app["operation"].is_null() || operation["phase"] == "Running";
        sync["status"] == "Synced" && sync["revision"] == head && !runs
    }

    /// Whether the Applications are as they were before anything was held.
    pub(super) fn is_unshielded(&self) -> bool {
        let app = self.live(&application(ENGINE));
        let differences = self.live(&root())["spec"]["ignoreDifferences"].take();
        app["spec"]["syncPolicy"]["syncOptions"].is_null()
            && app["spec"]["ignoreDifferences"].is_null()
            && differences.as_array().is_some_and(|all| all.len() == 1)
    }

    pub(super) fn delivered(&self) -> Value {
        let marker = path("v1", "ConfigMap", "default", "engine-marker");
        self.live(&marker)["data"]["is"].clone()
    }

    /// The whole install with another image for one of its workloads.
    pub(super) fn with_image(&self, name: &str) -> String {
        let head = format!("\n  name: {name}\n");
        let parts = self.good.split("\n---\n").map(|part| {
            if part.contains(&head) {
                part.replace(
                    "image: quay.io/argoproj/argocd:",
                    "image: quay.io/argoproj/argocd:missing-",
                )
            } else {
                part.to_owned()
            }
        });
        let all: Vec<String> = parts.collect();
        let all = all.join("\n---\n");
        assert_ne!(all, self.good);
        all
    }

    /// Pushes a version whose image is missing, and waits until it is held back and all works. Returns the commit's id.
    pub(super) fn broken_and_held(&self, path: &str, marker: &str) -> String {
        let name = path.rsplit('/').next().unwrap();
        let head = self.push(&self.with_image(name), marker);
        until("Argo CD applies the bad commit", seconds(LIMIT), || {
            self.image(path).contains("missing-")
        });
        let took = until("it is held and mended", seconds(LIMIT), || {
            self.is_held(path)
                && !self.image(path).contains("missing-")
                && self.world.engine_available()
        });
        figure(
            "W17",
            &self.world.case(&format!(
                "commit with a missing image for {name} applied → held, all available"
            )),
            "≤ 120 s",
            shown(took),
        );
        until(
            "the rest of the commit is delivered",
            seconds(LIMIT),
            || self.delivered() == json!(marker),
        );
        self.world.function(seconds(LIMIT));
        // What a sync writes that began before the hold is taken back each time, also the last one.
        until(
            "the sync that was under way is over",
            seconds(LIMIT),
            || {
                let app = self.live(&application(ENGINE));
                let runs = app["status"]["operationState"]["phase"] == "Running";
                let over = app["operation"].is_null() && !runs;
                over && !self.image(path).contains("missing-")
            },
        );
        self.world.function(seconds(LIMIT));
        assert!(
            !self.image(path).contains("missing-"),
            "Git had its way again"
        );
        head
    }

    /// What was given back is on probation for ten minutes, and held for as long where it breaks in them. A test has no time for
    /// that: the mark that says so goes.
    pub(super) fn probation_is_over(&self, paths: &[&str]) {
        let none = json!({ "metadata": { "annotations": { HELD: null } } });
        for path in paths {
            assert!(!self.is_held(path), "{path}");
            self.world.api.patch(path, &none);
        }
    }

    /// Back to how the lab's other tests know it.
    pub(super) fn give_up(&self) {
        let gone = json!({ "metadata": { "annotations": { TRACKING: null } } });
        self.world
            .push(&format!("clusters/{CLUSTER}/engine.yaml"), "# nothing\n");
        until("the Application is gone", seconds(LIMIT), || {
            self.world.uid(&application(ENGINE)).is_none()
        });
        let names = [SERVER, "argocd-redis", "argocd-applicationset-controller"];
        let names = names.map(|name| deployment(ARGOCD, name));
        for path in names.iter().map(String::as_str).chain([CONTROLLER]) {
            self.world.api.patch(path, &gone);
        }
    }
}
