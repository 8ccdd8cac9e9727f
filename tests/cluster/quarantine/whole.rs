//! Commits that break the engine over and over, for `make chaos` only.

use std::time::Instant;

use serde_json::{Value, json};

use super::taken::{content_of, newest, taken_over};
use super::turns::{self, Turns};
use super::{Catalog, HELD};
use crate::chaos::whole::helm::{answered, canary};
use crate::healing::{LIMIT, none_is_open};
use crate::support::api::deployment;
use crate::support::world::FLUX;
use crate::support::{figure, seconds, shown, until};

mod away;
mod below;
mod checks;
mod reverted;
mod upgrade;

/// A snapshot follows ten minutes after the last change.
const SETTLED: u64 = 780;

/// W20: ten commits, each second one with an image of source-controller that does not exist. What was given back and broke
/// again stays held, so there are no more heals than bad commits and one; each names its commit.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_and_mend_in_turn_are_followed_with_few_heals() {
    let catalog = Catalog::adopted();
    let image = "ghcr.io/fluxcd/source-controller:";
    let turns = Turns {
        number: "ten",
        rounds: 5,
        controller: "source-controller",
    };
    let bad = catalog.good.replace(image, &format!("{image}missing-"));
    commits_in_turn(&catalog, &turns, &bad, |catalog| {
        catalog.runs("source-controller", "image", "missing-")
    });
    catalog.world.close();
}

/// W20. Returns the ids of the bad ones.
fn commits_in_turn(
    catalog: &Catalog,
    turns: &Turns,
    bad: &str,
    is_broken: fn(&Catalog) -> bool,
) -> Vec<String> {
    let world = &catalog.world;
    turns::broken_and_mended(world, turns, |n, breaks| {
        let (engine, marker) = if breaks {
            (bad, format!("bad-{n}"))
        } else {
            (catalog.good.as_str(), format!("good-{n}"))
        };
        let head = catalog.push(engine, &marker);
        let what = "it is delivered, and the engine works";
        let took = until(what, seconds(LIMIT), || {
            catalog.delivered() == marker && !is_broken(catalog) && world.engine_available()
        });
        (head, took)
    })
}

/// One way to break Flux by a commit: what the catalog has instead of the good install, and the object that this breaks.
struct Break {
    what: &'static str,
    object: String,
    commit: fn(&str) -> String,
}

/// The install with `change` made to the document of one object, or without it.
pub(super) fn with(good: &str, [kind, name]: [&str; 2], change: impl Fn(&str) -> String) -> String {
    let has = |part: &str, line: &str| part.lines().any(|l| l == line);
    let of =
        |part: &&str| has(part, &format!("kind: {kind}")) && has(part, &format!("  name: {name}"));
    let all: Vec<&str> = good.split("\n---\n").collect();
    assert_eq!(all.iter().filter(|part| of(part)).count(), 1, "{name}");
    let all = all.iter().map(|part| {
        if of(part) {
            change(part)
        } else {
            (*part).to_owned()
        }
    });
    let all: Vec<String> = all.filter(|part| !part.is_empty()).collect();
    let bad = all.join("\n---\n");
    assert_ne!(bad, good);
    bad
}

fn without_replicas(good: &str, name: &str) -> String {
    with(good, ["Deployment", name], |part| {
        part.replace("\n  replicas: 1\n", "\n  replicas: 0\n")
    })
}

fn breaks() -> [Break; 2] {
    [
        Break {
            what: "replicas: 0 for kustomize-controller",
            object: deployment(FLUX, "kustomize-controller"),
            commit: |good| without_replicas(good, "kustomize-controller"),
        },
        Break {
            what: "--watch-label-selector for source-controller",
            object: deployment(FLUX, "source-controller"),
            commit: |good| deafened(good, "source-controller"),
        },
    ]
}

fn deafened(good: &str, name: &str) -> String {
    with(good, ["Deployment", name], |part| {
        let arg = "        - --events-addr=";
        let deaf = format!("{arg}\n        - --watch-label-selector=nothing=such");
        part.replace(arg, &deaf)
    })
}

fn removed_bindings() -> [Break; 2] {
    let binding = |name: &str| {
        format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}-{FLUX}")
    };
    [
        Break {
            what: "binding cluster-reconciler removed",
            object: binding("cluster-reconciler"),
            commit: |good| {
                let name = "cluster-reconciler-flux-system";
                with(good, ["ClusterRoleBinding", name], |_| String::new())
            },
        },
        Break {
            what: "binding crd-controller removed",
            object: binding("crd-controller"),
            commit: |good| {
                let name = "crd-controller-flux-system";
                with(good, ["ClusterRoleBinding", name], |_| String::new())
            },
        },
    ]
}

/// Whether Flux is kept from an object, by its own word.
fn is_kept(live: &Value) -> bool {
    let annotations = &live["metadata"]["annotations"];
    annotations["kustomize.toolkit.fluxcd.io/reconcile"] == "disabled"
        && annotations[HELD]
            .as_str()
            .is_some_and(|held| !held.contains("lifted"))
}

/// W18: each of them is held back and mended while the rest of the commit arrives, and the next commit gives the object back.
/// Once for each object: what is held again within ten minutes is given back after so long only.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_stop_flux_in_other_ways_are_held_back() {
    let catalog = Catalog::adopted();
    let all = breaks().into_iter().chain(removed_bindings());
    for (n, broken) in all.enumerate() {
        held_and_given_back(&catalog, n, broken);
    }
    catalog.world.close();
}

fn held_and_given_back(catalog: &Catalog, n: usize, broken: Break) {
    let Break {
        what,
        object,
        commit,
    } = broken;
    let world = &catalog.world;
    let (bad, good) = (format!("broken-{n}"), format!("mended-{n}"));
    let spec = |live: &Value| {
        let container = &live["spec"]["template"]["spec"]["containers"][0];
        [
            live["spec"]["replicas"].clone(),
            live["roleRef"].clone(),
            container["args"].clone(),
        ]
    };
    let before = world.api.get(&object).unwrap();
    catalog.push(&commit(&catalog.good), &bad);
    let took = until(&format!("{what}: held, delivered"), seconds(300), || {
        let live = world.api.try_get(&object).ok().flatten();
        let live = live.unwrap_or_default();
        is_kept(&live)
            && spec(&live) == spec(&before)
            && catalog.delivered() == bad
            && world.engine_available()
    });
    let took = took + world.function(seconds(LIMIT));
    let what = format!("commit with {what}");
    figure(
        "W18",
        &world.case(&format!("{what} → held, rest delivered, function")),
        "≤ 120 s",
        shown(took),
    );
    catalog.told("Quarantined", "True");
    catalog.push(&catalog.good, &good);
    let took = until(&format!("{what}: given back"), seconds(300), || {
        let live = world.api.try_get(&object).ok().flatten();
        live.is_some_and(|live| !is_kept(&live)) && catalog.delivered() == good
    });
    figure(
        "W18",
        &world.case(&format!(
            "{what}, then one that mends it → delivered, nothing held"
        )),
        "≤ 300 s",
        shown(took),
    );
    world.function(seconds(LIMIT));
    until("no heal is open", seconds(LIMIT), || none_is_open(world));
}

/// Where nobody listens, in each Pod.
const NOWHERE: &str = "--storage-adv-addr=127.0.0.1:9";

/// The argument that says where source-controller serves what it fetched.
fn address(args: &Value) -> String {
    let args = args.as_array().into_iter().flatten();
    let mut args = args.filter_map(Value::as_str);
    let address = args.find(|arg| arg.starts_with("--storage-adv-addr="));
    address.unwrap().to_owned()
}

/// W8, W18, F10, F43: source-controller runs, answers, and is found by nobody. By kubectl it is put right, which Git cannot do; by
/// a commit it is held. In this order: what was held is given back later and later.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_source_controller_that_nobody_finds_is_mended() {
    let catalog = Catalog::adopted();
    let world = &catalog.world;
    let path = deployment(FLUX, "source-controller");
    let of = |live: &Value| live["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let args = || of(&catalog.controller("source-controller"));
    let good = args();
    let at = good.as_array().unwrap();
    let at = at.iter().position(|arg| *arg == address(&good)).unwrap();
    let field = format!("/spec/template/spec/containers/0/args/{at}");
    let patch = json!([{ "op": "replace", "path": field, "value": NOWHERE }]);
    let began = Instant::now();
    // It may be put right before anybody has looked.
    let bad = of(&world.api.json_patch(&path, &patch));
    assert_eq!(address(&bad), NOWHERE);
    until("the address is as before", seconds(LIMIT), || {
        args() == good
    });
    figure(
        "W8",
        &world.case(
            "wrong address of source-controller by kubectl → right again (the engine in Git)",
        ),
        "≤ 90 s",
        shown(began.elapsed()),
    );
    world.function(seconds(LIMIT));
    figure(
        "W8",
        &world.case("wrong address of source-controller by kubectl → function (the engine in Git)"),
        "",
        shown(began.elapsed()),
    );
    let broken = Break {
        what: "--storage-adv-addr for source-controller",
        object: path,
        commit: |good| {
            with(good, ["Deployment", "source-controller"], |part| {
                let mut lines = part.lines();
                let arg = lines.find(|line| line.contains("--storage-adv-addr="));
                part.replace(arg.unwrap(), &format!("        - {NOWHERE}"))
            })
        },
    };
    held_and_given_back(&catalog, 0, broken);
    catalog.world.close();
}

/// W18, F10: no root is asked of helm-controller.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_commit_that_deafens_helm_controller_is_held_back() {
    let catalog = Catalog::of("deafhelm", "flux-helm");
    answered(&catalog.world, &canary());
    let broken = Break {
        what: "--watch-label-selector for helm-controller",
        object: deployment(FLUX, "helm-controller"),
        commit: |good| deafened(good, "helm-controller"),
    };
    held_and_given_back(&catalog, 0, broken);
    answered(&catalog.world, &canary());
    catalog.world.close();
}

/// W22: what Git took over becomes last known good, and stays as Git has it.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_that_git_took_over_becomes_last_known_good() {
    taken_over(|world, before| {
        until("the next snapshot is kept", seconds(SETTLED), || {
            newest(world) > before
        });
        until("Git alone owns its controllers", seconds(LIMIT), || {
            ["source-controller", "kustomize-controller"]
                .iter()
                .all(|name| {
                    let live = world.api.get(&deployment(FLUX, name)).unwrap();
                    content_of(&live) == ["kustomize-controller"]
                })
        });
    });
}
