//! The same with Argo CD, which manages itself: by an Application of its own below the root.

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, on_record, settle, since, unchanged, workloads};
use crate::keys::{start_agent, stop_agent};
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, REFRESH, application, root};
use crate::support::place::Place;
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

const ENGINE: &str = "engine";
const SERVER: &str = "argocd-repo-server";
const HELD: &str = "linesman.dev/held";
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
const OPTIONS: &str = "argocd.argoproj.io/sync-options";
const RESPECT: &str = "RespectIgnoreDifferences=true";

/// W17, W18, W19, W21, W38
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_breaks_an_argo_cd_that_manages_itself_is_held_back() {
    let world = world::adopted_argocd();
    settle(&world);
    let catalog = Catalog::managing_itself(&world);
    a_server_whose_image_is_missing(&catalog);
    a_hold_over_a_readoption(&catalog);
    a_held_object_deleted_and_removed_from_git(&catalog);
    a_controller_whose_image_is_missing(&catalog);
    a_good_commit(&catalog, "sixth");
    an_engine_that_is_removed(&catalog);
    a_good_commit(&catalog, "eighth");
    catalog.give_up();
    settle(&world);
}

struct Catalog<'a> {
    world: &'a World,
    /// The workloads of the install, as the catalog has them.
    good: String,
}

impl<'a> Catalog<'a> {
    /// The catalog brings Argo CD's workloads, and the agent knows them by heart.
    fn managing_itself(world: &'a World) -> Self {
        let bundle = Place::bundle("argocd");
        let is_workload = |text: &&str| {
            let kind = |kind: &str| text.lines().any(|l| l == format!("kind: {kind}"));
            kind("Deployment") || kind("StatefulSet")
        };
        let parts: Vec<&str> = bundle.split("\n---\n").filter(is_workload).collect();
        assert_eq!(parts.len(), 4);
        let catalog = Self {
            world,
            good: parts.join("\n---\n"),
        };
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
            [CONTROLLER.to_owned(), deployment(ARGOCD, SERVER)]
                .iter()
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
    fn agents(&self) -> Vec<String> {
        let all = self.list("pods");
        let names = all.iter().map(|pod| &pod["metadata"]["name"]);
        let names = names.map(|name| name.as_str().unwrap());
        names
            .map(|name| path("v1", "Pod", "linesman", name))
            .collect()
    }

    /// An agent that begins anew takes a snapshot ten minutes after the last change, or at once where it knows of none.
    fn agent_without_snapshots(&self) {
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

    fn push(&self, engine: &str, marker: &str) {
        let marked = format!(
            "{engine}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: engine-marker, namespace: default}}\ndata: {{is: {marker}}}\n"
        );
        self.world.push("engine/engine.yaml", &marked);
        // By itself an Application below the root looks minutes later.
        let asked = json!({ "metadata": { "annotations": { REFRESH: "normal" } } });
        if self.world.uid(&application(ENGINE)).is_some() {
            self.world.api.patch(&application(ENGINE), &asked);
        }
    }

    fn live(&self, path: &str) -> Value {
        let found = self.world.api.try_get(path).ok().flatten();
        found.unwrap_or_default()
    }

    fn annotation(&self, path: &str, name: &str) -> Value {
        self.live(path)["metadata"]["annotations"][name].clone()
    }

    /// All that keeps Argo CD from an object, and tells it whose it is.
    fn hold(&self, path: &str) -> [Value; 3] {
        hold_of(&self.live(path))
    }

    fn is_held(&self, path: &str) -> bool {
        let held = self.annotation(path, HELD);
        held.as_str().is_some_and(|held| !held.contains("lifted"))
    }

    fn image(&self, path: &str) -> String {
        image_of(&self.live(path))
    }

    fn delivered(&self) -> Value {
        let marker = path("v1", "ConfigMap", "default", "engine-marker");
        self.live(&marker)["data"]["is"].clone()
    }

    /// The whole install with another image for one of its workloads.
    fn with_image(&self, name: &str) -> String {
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

    /// Pushes a version whose image is missing, and waits until it is held back and all works.
    fn broken_and_held(&self, path: &str, marker: &str) {
        let name = path.rsplit('/').next().unwrap();
        self.push(&self.with_image(name), marker);
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
            &format!(
                "Argo CD: commit with a missing image for {name} applied → held, all available"
            ),
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
    }

    /// Back to how the lab's other tests know it.
    fn give_up(&self) {
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

fn hold_of(live: &Value) -> [Value; 3] {
    [HELD, OPTIONS, TRACKING].map(|name| live["metadata"]["annotations"][name].clone())
}

fn image_of(live: &Value) -> String {
    let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

fn a_server_whose_image_is_missing(catalog: &Catalog) {
    let server = deployment(ARGOCD, SERVER);
    catalog.broken_and_held(&server, "second");
    let app = catalog.live(&application(ENGINE));
    let options = &app["spec"]["syncPolicy"]["syncOptions"];
    assert_eq!(*options, json!([RESPECT]), "{app}");
    until("the hub says so", seconds(60), || {
        let view = catalog
            .world
            .hub
            .json(&["cluster", "show", CLUSTER])
            .to_string();
        view.contains("\"Quarantined\"") && view.contains(SERVER)
    });
    let heals = heals(catalog.world);
    assert!(
        heals.iter().any(|h| h["class"] == json!("BadEngineCommit")),
        "{heals:?}"
    );
}

/// W21: the cluster is adopted anew, and what is held goes while there is no agent. The one that comes hears of that
/// before it hears of the Applications, which know that it is held.
fn a_hold_over_a_readoption(catalog: &Catalog) {
    let (world, server) = (catalog.world, deployment(ARGOCD, SERVER));
    let state = || {
        let app = catalog.live(&application(ENGINE))["spec"].clone();
        let root = catalog.live(&root())["spec"]["ignoreDifferences"].clone();
        (catalog.hold(&server), app, root)
    };
    let before = state();
    let yaml = world.directory.join("readopt.yaml");
    let file = yaml.to_str().unwrap();
    let args = ["cluster", "readopt", CLUSTER, "--file", file];
    world.hub.linesman(&args);
    stop_agent(world);
    let uid = world.uid(&server).unwrap();
    assert!(world.api.delete(&server));
    world.apply(&yaml);
    start_agent(world);
    let (live, took) = eventually("it is back, first of all", seconds(LIMIT), || {
        let live = catalog.live(&server);
        let new = live["metadata"]["uid"].as_str().is_some_and(|u| u != uid);
        // While the Pods of the old one end, Argo CD may still compare, and make the commit's.
        let fields = live["metadata"]["managedFields"].as_array();
        let agents = fields.is_some_and(|all| all.iter().any(|e| e["manager"] == "linesman"));
        (new && agents).then_some(live).ok_or("it is not")
    });
    assert_eq!(
        hold_of(&live),
        before.0,
        "held from the agent's first write on"
    );
    assert!(!image_of(&live).contains("missing-"));
    let join = path("v1", "Secret", "linesman", "linesman-join");
    until("the agent joined by the new token", seconds(LIMIT), || {
        let token = catalog.live(&join)["data"]["token"].clone();
        token.as_str().is_none_or(str::is_empty) && world.line_is_up()
    });
    world.function(seconds(LIMIT));
    figure(
        "W21",
        "Argo CD: held object deleted without an agent, readopted → back as last known good, and held",
        "",
        shown(took),
    );
    assert_eq!(state(), before);
    assert!(!catalog.image(&server).contains("missing-"));
}

/// Nobody but the agent knows what it was; without the repo-server Argo CD cannot compare anything meanwhile. What is
/// held is not pruned then, though Git has it no more.
fn a_held_object_deleted_and_removed_from_git(catalog: &Catalog) {
    let server = deployment(ARGOCD, SERVER);
    let held = catalog.hold(&server);
    deleted_and_back(catalog, &held, "in Git");
    let uid = catalog.world.uid(&server).unwrap();
    let others = catalog
        .good
        .split("\n---\n")
        .filter(|part| !part.contains(&format!("\n  name: {SERVER}\n")));
    let others: Vec<&str> = others.collect();
    catalog.push(&others.join("\n---\n"), "third");
    until(
        "the rest of the commit is delivered",
        seconds(LIMIT),
        || catalog.delivered() == json!("third"),
    );
    catalog.world.function(seconds(LIMIT));
    let now = (catalog.world.uid(&server), catalog.hold(&server));
    assert_eq!(
        now,
        (Some(uid), held.clone()),
        "it was pruned or given back"
    );
    deleted_and_back(catalog, &held, "no longer in Git");
}

/// It is held from its first moment on: the next commit may be on its way.
fn deleted_and_back(catalog: &Catalog, held: &[Value; 3], whose: &str) {
    let server = deployment(ARGOCD, SERVER);
    let uid = catalog.world.uid(&server).unwrap();
    assert!(catalog.world.api.delete(&server));
    let back = || {
        let live = catalog.live(&server);
        let new = live["metadata"]["uid"]
            .as_str()
            .is_some_and(|new| new != uid);
        let good = new && !image_of(&live).contains("missing-");
        good.then_some(live).ok_or("it is not")
    };
    let (live, took) = eventually("it is back as last known good", seconds(LIMIT), back);
    assert_eq!(hold_of(&live), *held);
    figure(
        "W38",
        &format!("Argo CD: held object deleted, {whose} → back as last known good, and held"),
        "≤ 5 s",
        shown(took),
    );
}

fn a_controller_whose_image_is_missing(catalog: &Catalog) {
    let server = deployment(ARGOCD, SERVER);
    catalog.push(&catalog.good, "fourth");
    let took = until("the mended object is given back", seconds(LIMIT), || {
        !catalog.is_held(&server) && catalog.delivered() == json!("fourth")
    });
    figure(
        "W17",
        "Argo CD: commit that mends it pushed → given back to Git",
        "≤ 300 s",
        shown(took),
    );
    catalog.broken_and_held(CONTROLLER, "fifth");
}

/// W19: Argo CD is told to prune itself. What the catalog brought beside it stays, and people are told of the hold.
fn an_engine_that_is_removed(catalog: &Catalog) {
    let world = catalog.world;
    let all = [CONTROLLER.to_owned(), deployment(ARGOCD, SERVER)];
    let before = (
        all.clone().map(|path| world.uid(&path)),
        workloads(world),
        on_record(world),
    );
    catalog.push("", "seventh");
    let took = until("all of it is held", seconds(LIMIT), || {
        all.iter().all(|path| catalog.is_held(path)) && world.engine_available()
    });
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W19",
        "Argo CD: commit that removes the engine pushed → held, function",
        "≤ 180 s",
        shown(took),
    );
    assert!(took <= seconds(180), "{took:?}");
    unchanged(world, &before.1);
    let now = all.map(|path| world.uid(&path));
    println!("controller, repo-server the same: {}", now == before.0);
    until("the hub says so", seconds(60), || {
        let new = since(world, &before.2);
        let told = new.iter().any(|h| h["class"] == "EngineRemovedByCommit");
        told && quarantined(world) == json!("True")
    });
    until(
        "the rest of the commit is delivered",
        seconds(LIMIT),
        || catalog.delivered() == json!("seventh"),
    );
}

/// The status of the condition that tells of holds.
fn quarantined(world: &World) -> Value {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let all = view["conditions"].as_array().cloned().unwrap_or_default();
    let held = all.into_iter().find(|c| c["type"] == json!("Quarantined"));
    held.map_or(Value::Null, |c| c["status"].clone())
}

fn a_good_commit(catalog: &Catalog, marker: &str) {
    catalog.push(&catalog.good, marker);
    let took = until(
        "all is as Git says, nothing is held",
        seconds(LIMIT),
        || {
            let app = catalog.live(&application(ENGINE));
            let differences = catalog.live(&root())["spec"]["ignoreDifferences"].clone();
            !catalog.is_held(CONTROLLER)
                && app["spec"]["syncPolicy"]["syncOptions"].is_null()
                && app["spec"]["ignoreDifferences"].is_null()
                && differences.as_array().is_some_and(|all| all.len() == 1)
                && catalog.delivered() == json!(marker)
        },
    );
    figure(
        "W17",
        "Argo CD: good commit pushed → delivered, nothing held, Applications as before",
        "≤ 300 s",
        shown(took),
    );
    until("no Application of ours holds anything", seconds(60), || {
        quarantined(catalog.world) == json!("False")
    });
}
