//! The same with Argo CD, which manages itself: by an Application of its own below the root.

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, on_record, settle, since, unchanged, workloads};
use crate::keys::{start_agent, stop_agent};
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, application, root};
use crate::support::world::{self, ARGOCD, CLUSTER};
use crate::support::{at_first_sight, figure, seconds, shown, until};

mod catalog;
mod version;
mod whole;

use catalog::{Catalog, Part};
use version::another_version_and_back;

const ENGINE: &str = "engine";
const SERVER: &str = "argocd-repo-server";
const HELD: &str = "linesman.dev/held";
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
const OPTIONS: &str = "argocd.argoproj.io/sync-options";
const WORKLOADS: [Part; 2] = [("Deployment", None), ("StatefulSet", None)];
const RESPECT: &str = "RespectIgnoreDifferences=true";

/// W17, W18, W19, W20, W21, W22, W25, W38
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_breaks_an_argo_cd_that_manages_itself_is_held_back() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let server = deployment(ARGOCD, SERVER);
    let catalog = Catalog::managing(&mut world, &WORKLOADS, &[CONTROLLER, &server]);
    another_version_and_back(&catalog);
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

fn hold_of(live: &Value) -> [Value; 3] {
    [HELD, OPTIONS, TRACKING].map(|name| live["metadata"]["annotations"][name].clone())
}

fn image_of(live: &Value) -> String {
    let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

/// Returns the commit's id.
fn a_server_whose_image_is_missing(catalog: &Catalog) -> String {
    let server = deployment(ARGOCD, SERVER);
    let head = catalog.broken_and_held(&server, "second");
    let app = catalog.live(&application(ENGINE));
    let options = &app["spec"]["syncPolicy"]["syncOptions"];
    assert_eq!(*options, json!([RESPECT]), "{app}");
    if catalog.world.hub.runs() {
        until("the hub says so", seconds(60), || {
            let view = catalog.world.hub.json(&["cluster", "show", CLUSTER]);
            let view = view.to_string();
            view.contains("\"Quarantined\"") && view.contains(SERVER)
        });
    }
    let heals = heals(catalog.world);
    assert!(
        heals.iter().any(|h| h["class"] == json!("BadEngineCommit")),
        "{heals:?}"
    );
    head
}

/// W21: the cluster is adopted anew, and what is held goes while there is no agent. The one that comes hears of that
/// before it hears of the Applications, which know that it is held.
fn a_hold_over_a_readoption(catalog: &Catalog) {
    let (world, server) = (&*catalog.world, deployment(ARGOCD, SERVER));
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
    let (live, took) = at_first_sight("it is back, first of all", seconds(LIMIT), || {
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
        new.then_some(live).ok_or("it is not")
    };
    let (live, took) = at_first_sight("it is back", seconds(LIMIT), back);
    assert_eq!(hold_of(&live), *held);
    // As it was made, so that Git's bad version never was there.
    assert!(!image_of(&live).contains("missing-"), "{live}");
    figure(
        "W38",
        &catalog.world.case(&format!(
            "held object deleted, {whose} → back as last known good, and held"
        )),
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
        &catalog
            .world
            .case("commit that mends it pushed → given back to Git"),
        "≤ 300 s",
        shown(took),
    );
    catalog.broken_and_held(CONTROLLER, "fifth");
}

/// W19: Argo CD is told to prune itself. What the catalog brought beside it stays, and people are told of the hold.
fn an_engine_that_is_removed(catalog: &Catalog) {
    let world = &*catalog.world;
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
        &world.case("commit that removes the engine pushed → held, function"),
        "≤ 180 s",
        shown(took),
    );
    unchanged(world, &before.1);
    let now = all.map(|path| world.uid(&path));
    println!("controller, repo-server the same: {}", now == before.0);
    until("it is on record", seconds(60), || {
        let new = since(world, &before.2);
        new.iter().any(|h| h["class"] == "EngineRemovedByCommit")
    });
    catalog.told("True");
    until(
        "the rest of the commit is delivered",
        seconds(LIMIT),
        || catalog.delivered() == json!("seventh"),
    );
}

fn a_good_commit(catalog: &Catalog, marker: &str) {
    catalog.push(&catalog.good, marker);
    let took = until(
        "all is as Git says, nothing is held",
        seconds(LIMIT),
        || {
            !catalog.is_held(CONTROLLER)
                && catalog.is_unshielded()
                && catalog.delivered() == json!(marker)
        },
    );
    figure(
        "W17",
        &catalog
            .world
            .case("good commit pushed → delivered, nothing held, Applications as before"),
        "≤ 300 s",
        shown(took),
    );
    // No Application of ours holds anything.
    catalog.told("False");
}
