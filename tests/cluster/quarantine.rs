//! Commits that break the engine itself (W17, W18): the object is held back, the rest of the commit is delivered, and
//! the next commit gives the object back; commits that only change it (W22) are left alone. A lab of its own, whose catalog holds the engine from the start.

use serde_json::{Value, json};

use crate::healing::{LIMIT, WRONG, fields_go_wrong, heals, on_record, since};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::place::output;
use crate::support::world::{CLUSTER, World, condition};
use crate::support::{figure, seconds, shown, until};

mod argocd;
mod catalog;
mod lifted;
mod readopted;
mod roots;
mod stored;
mod taken;
mod turns;
mod whole;

use catalog::Catalog;

const FLUX: &str = "flux-system";
const HELD: &str = "linesman.dev/held";
const CONTROLLERS: [&str; 2] = ["source-controller", "kustomize-controller"];

/// W8: what somebody breaks by kubectl is mended, and what came from Git beside it is still there.
fn wrong_fields_beside_patches(catalog: &Catalog) {
    assert!(catalog.has_patches());
    let world = &catalog.world;
    let known = on_record(world);
    // Where the agent owns the controller, it takes two attempts to put each of the last two back, of five in an hour.
    let which = [&WRONG[..], &["probe"]].concat();
    fields_go_wrong(world, "the engine in Git, with patches", &which);
    wrong_strategy(catalog);
    until("how they were mended is on record", seconds(LIMIT), || {
        let all = since(world, &known).into_iter();
        let all: Vec<Value> = all
            .map(|heal| crate::healing::whole(world, &heal))
            .collect();
        let mended = |name: &&str| all.iter().any(|heal| reinstated(heal, name));
        CONTROLLERS.iter().all(mended)
    });
    assert!(catalog.has_patches(), "a patch from Git was lost");
}

/// Whether a heal put back of that controller just what was displaced.
fn reinstated(heal: &Value, name: &str) -> bool {
    let steps = heal["steps"].as_array().cloned().unwrap_or_default();
    let done = |step: &Value| step["action"] == "reinstate" && step["outcome"] == "ok";
    let of = heal["object"].as_str().is_some_and(|o| o.ends_with(name));
    heal["class"] == "ObjectAltered" && heal["result"] == "healed" && of && steps.iter().any(done)
}

/// W8: a strategy whose parameters the API server takes with no other type. No Pod shows it: the engine's next commit would fail.
fn wrong_strategy(catalog: &Catalog) {
    let world = &catalog.world;
    let strategy = || catalog.controller("source-controller")["spec"]["strategy"].clone();
    let good = strategy();
    assert_eq!(good, json!({"type": "Recreate"}));
    let rolls = json!({"spec": {"strategy": {"type": "RollingUpdate"}}});
    let wrong = (world.api).patch(&deployment(FLUX, "source-controller"), &rolls);
    let kind = &wrong["spec"]["strategy"]["type"];
    assert_eq!(*kind, json!("RollingUpdate"), "{wrong:#}");
    let took = until("the strategy is as before", seconds(LIMIT), || {
        strategy() == good
    });
    figure(
        "W8",
        "wrong strategy by kubectl → right again (the engine in Git, with patches)",
        "≤ 90 s",
        shown(took),
    );
}

/// W8, W17, W18, W19, W20, W21, W22
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_breaks_the_engine_is_held_back_until_one_mends_it() {
    let catalog = Catalog::adopted();
    wrong_fields_beside_patches(&catalog);
    another_version_and_back(&catalog);
    let head = an_image_that_is_missing(&catalog, "missing-");
    the_hub_tells_who_broke_it(&catalog, &head);
    readopted::a_hold_over_a_readoption(&catalog);
    an_image_that_came_later(&catalog);
    a_controller_that_is_deaf(&catalog);
    a_good_commit(&catalog);
    an_engine_that_is_removed(&catalog, "");
    catalog.world.close();
}

/// W22: Flux rolls its own controllers, twice. The agent writes nothing, and what Git has no more is gone.
fn another_version_and_back(catalog: &Catalog) {
    let names = ["source-controller", "kustomize-controller"];
    let arg = "        - --events-addr=";
    let newer = format!("{arg}\n        - --concurrent=5");
    let newer = catalog.good.replace(arg, &newer);
    turns::another_version_and_back(&catalog.world, |marker, changed| {
        catalog.push(if changed { &newer } else { &catalog.good }, marker);
        until("Flux runs as Git says", seconds(300), || {
            let runs = |name: &&str| catalog.runs(name, "args", "concurrent=5") == changed;
            catalog.delivered() == marker
                && names.iter().all(runs)
                && names.iter().all(|name| rolled(&catalog.controller(name)))
        })
    });
    assert!(names.iter().all(|name| !catalog.is_held(name)));
}

/// Whether all of its Pods are of its newest version.
fn rolled(controller: &Value) -> bool {
    let (status, meta) = (&controller["status"], &controller["metadata"]);
    status["observedGeneration"] == meta["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|field| status[field] == json!(1))
}

/// `tag` begins that of the image that nobody has. Returns the commit's id.
fn an_image_that_is_missing(catalog: &Catalog, tag: &str) -> String {
    let world = &catalog.world;
    let image = "ghcr.io/fluxcd/source-controller:";
    let bad = catalog.good.replace(image, &format!("{image}{tag}"));
    assert_ne!(bad, catalog.good);
    let head = catalog.push(&bad, "second");
    until("Flux applies the bad commit", seconds(120), || {
        catalog.runs("source-controller", "image", tag)
    });
    let took = until("the engine works again", seconds(300), || {
        catalog.is_held("source-controller")
            && !catalog.runs("source-controller", "image", tag)
            && world.engine_available()
            && world.synced().is_ok()
    });
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W17",
        &world.case("commit with a missing image for source-controller → held, engine works"),
        "≤ 120 s",
        shown(took),
    );
    assert_eq!(catalog.delivered(), "second", "the rest of the commit");
    catalog.told("Quarantined", "True");
    head
}

/// Whether a heal is of that commit, by the agent's word, and by the hub's, which knows the commits, where it is there.
fn is_of_commit(world: &World, heal: &Value, head: &str) -> bool {
    let by_agent = heal["commit"].as_str().is_some_and(|c| c.ends_with(head));
    let id = heal["id"].as_str().unwrap();
    let by_hub = || world.hub.json(&["heal", "show", id])["author"]["id"] == json!(head);
    by_agent && (!world.hub.runs() || by_hub())
}

/// Whether a heal names that commit: as its own, or as one that came while the object was held for it, with its author.
fn names(world: &World, heal: &Value, head: &str) -> bool {
    let told = crate::healing::whole(world, heal);
    let steps = told["steps"].as_array().cloned().unwrap_or_default();
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let came = |step: &Value| step["action"] == "commit" && text(&step["outcome"]).contains(head);
    let story = told["story"].as_array().cloned().unwrap_or_default();
    let by = |line: &Value| {
        text(&line["text"]).contains(head) && text(&line["text"]).contains(" committed '")
    };
    let in_story = || steps.iter().any(came) && (!world.hub.runs() || story.iter().any(by));
    is_of_commit(world, heal, head) || in_story()
}

fn the_hub_tells_who_broke_it(catalog: &Catalog, head: &str) {
    let world = &catalog.world;
    let heals = world.hub.json(&["heal", "list", CLUSTER]);
    let mut all = heals.as_array().unwrap().iter();
    let heal = all.find(|h| h["class"] == "BadEngineCommit");
    let heal = heal.unwrap_or_else(|| panic!("{heals:#}"));
    let id = heal["id"].as_str().unwrap();
    let told = world.hub.json(&["heal", "show", id]);
    assert_eq!(told["author"]["id"], json!(head), "{told:#}");
    let author = told["author"]["author"].as_str().unwrap();
    let first = told["story"][0]["text"].as_str().unwrap();
    assert!(
        first.starts_with(&format!("{author} committed")),
        "{told:#}"
    );
}

/// The same commit is good from then on: a person says so, and nobody has to commit for it.
fn an_image_that_came_later(catalog: &Catalog) {
    let world = &catalog.world;
    let image = |controller: &Value| {
        let image = &controller["spec"]["template"]["spec"]["containers"][0]["image"];
        image.as_str().unwrap().to_owned()
    };
    let good = image(&catalog.controller("source-controller"));
    let later = good.replace("source-controller:", "source-controller:missing-");
    world.place.tag_image(&good, &later);
    let mark = Mark::now(&world.audit);
    let reason = "the image is there now";
    let lift = ["cluster", "lift", CLUSTER, "--reason", reason, "--wait"];
    world.hub.linesman(&lift);
    let took = until("the commit's version runs", seconds(120), || {
        let controller = catalog.controller("source-controller");
        image(&controller) == later && rolled(&controller)
    });
    figure(
        "W17",
        "its image arrived, cluster lift → the same commit's version runs",
        "",
        shown(took),
    );
    world.function(seconds(LIMIT));
    assert!(!catalog.is_held("source-controller"));
    let mended = mark.written_in(FLUX);
    assert_eq!(
        mended,
        ["patch deployments/source-controller"],
        "given back once"
    );
    let again = output(&mut world.hub.cli(&lift));
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        again.status.success() && said.contains("nothing was changed"),
        "{said}"
    );
}

/// The commit that brings it mends what the last one broke.
fn a_controller_that_is_deaf(catalog: &Catalog) {
    let world = &catalog.world;
    let deaf = "        - --events-addr=";
    let deafened = format!("{deaf}\n        - --watch-label-selector=nothing=such");
    let bad = catalog.good.replacen(deaf, &deafened, 1);
    catalog.push(&bad, "third");
    let took = until("the mended object is given back", seconds(300), || {
        !catalog.is_held("source-controller") && catalog.delivered() == "third"
    });
    figure(
        "W17",
        &world.case("commit that mends it pushed → given back to Git"),
        "≤ 300 s",
        shown(took),
    );
    until("Flux applies the next bad commit", seconds(120), || {
        catalog.runs("kustomize-controller", "args", "nothing=such")
            || catalog.is_held("kustomize-controller")
    });
    let took = until("the engine works again", seconds(300), || {
        catalog.is_held("kustomize-controller")
            && !catalog.runs("kustomize-controller", "args", "nothing=such")
            && world.engine_available()
    });
    // A deaf one is as available as any.
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W18",
        &world.case("commit that deafens kustomize-controller → held, engine works"),
        "≤ 120 s",
        shown(took),
    );
}

fn a_good_commit(catalog: &Catalog) {
    let world = &catalog.world;
    catalog.push(&catalog.good, "fourth");
    let took = until("all is as Git says", seconds(300), || {
        CONTROLLERS.iter().all(|name| !catalog.is_held(name))
            && catalog.delivered() == "fourth"
            && world.engine_available()
            && condition(&catalog.controller("kustomize-controller"), "Available")
    });
    figure(
        "W17",
        &world.case("good commit pushed → delivered, nothing held"),
        "≤ 300 s",
        shown(took),
    );
    catalog.told("Quarantined", "False");
}

/// W19: Flux prunes itself, as far as the guard lets it. `by` = what brings it, where that is not the root.
fn an_engine_that_is_removed(catalog: &Catalog, by: &str) {
    let world = &catalog.world;
    let marker = "/api/v1/namespaces/default/configmaps/marker";
    let workloads = [
        marker,
        "/apis/apps/v1/namespaces/hello/deployments/hello",
        "/api/v1/namespaces/flux-system",
    ];
    let uids = workloads.map(|path| world.uid(path));
    assert!(uids.iter().all(Option::is_some), "{uids:?}");
    let names = ["source-controller", "kustomize-controller"];
    let before = names.map(|name| world.uid(&deployment(FLUX, name)));
    catalog.push("", "fifth");
    until("Flux prunes a controller", seconds(120), || {
        names.map(|name| world.uid(&deployment(FLUX, name))) != before
    });
    let took = until("the engine works again and is held", seconds(300), || {
        names.iter().all(|name| catalog.is_held(name)) && world.engine_available()
    });
    let took = took + world.function(seconds(240));
    figure(
        "W19",
        &world.case(&format!(
            "commit that removes the engine{by}: first controller pruned → held, function"
        )),
        "≤ 180 s",
        shown(took),
    );
    assert_eq!(catalog.delivered(), "fifth");
    assert_eq!(workloads.map(|path| world.uid(path)), uids);
    until("it is on record", seconds(60), || {
        let mut all = heals(world).into_iter();
        all.any(|heal| heal["class"] == "EngineRemovedByCommit")
    });
    catalog.told("Quarantined", "True");
    catalog.push(&catalog.good, "sixth");
    let took = until("all is as Git says", seconds(300), || {
        names.iter().all(|name| !catalog.is_held(name)) && catalog.delivered() == "sixth"
    });
    figure(
        "W19",
        &world.case(&format!(
            "commit that brings the engine{by} back pushed → given back to Git"
        )),
        "≤ 300 s",
        shown(took),
    );
    assert_eq!(workloads.map(|path| world.uid(path)), uids);
}
