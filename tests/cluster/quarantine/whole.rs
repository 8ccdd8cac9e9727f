//! Commits that break the engine over and over, for `make chaos` only.

use serde_json::{Value, json};

use super::taken::{newest, taken_over};
use super::{Catalog, HELD};
use crate::healing::LIMIT;
use crate::support::api::deployment;
use crate::support::world::{CLUSTER, FLUX};
use crate::support::{figure, seconds, shown, until};

const COMMITS: usize = 5;
/// A snapshot follows ten minutes after the last change.
const SETTLED: u64 = 780;

/// W20: ten commits, each second one with an image of source-controller that does not exist. What was given back and broke
/// again stays held, so there are no more heals than bad commits and one; each names its commit.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_and_mend_in_turn_are_followed_with_few_heals() {
    let catalog = Catalog::adopted();
    let world = &catalog.world;
    let image = "ghcr.io/fluxcd/source-controller:";
    let bad = catalog.good.replace(image, &format!("{image}missing-"));
    let mut heads = Vec::new();
    let mut slowest = seconds(0);
    for n in 0..COMMITS {
        for (engine, marker) in [
            (&bad, format!("bad-{n}")),
            (&catalog.good, format!("good-{n}")),
        ] {
            heads.push(catalog.push(engine, &marker));
            let took = until(
                "it is delivered, and the engine works",
                seconds(LIMIT),
                || {
                    catalog.delivered() == marker
                        && !catalog.runs("source-controller", "image", "missing-")
                        && world.engine_available()
                },
            );
            let took = took + world.function(seconds(LIMIT));
            slowest = slowest.max(took);
        }
    }
    figure(
        "W20",
        "ten commits that break source-controller and mend it in turn: slowest from push to delivered and function",
        "≤ 120 s",
        shown(slowest),
    );
    let heals = world.hub.json(&["heal", "list", CLUSTER]);
    let all = heals.as_array().unwrap().iter();
    let broken = all.filter(|heal| heal["class"] == "BadEngineCommit");
    let ids: Vec<&str> = broken.filter_map(|heal| heal["id"].as_str()).collect();
    figure("W20", "… heals", "≤ 6", ids.len());
    assert!((1..=COMMITS + 1).contains(&ids.len()), "{heals:#}");
    let bad: Vec<Value> = heads.iter().step_by(2).map(|head| json!(head)).collect();
    for id in ids {
        let told = world.hub.json(&["heal", "show", id]);
        assert!(bad.contains(&told["author"]["id"]), "{told:#}");
    }
    catalog.world.close();
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

fn breaks() -> [Break; 4] {
    let binding = |name: &str| {
        format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}-{FLUX}")
    };
    [
        Break {
            what: "replicas: 0 for kustomize-controller",
            object: deployment(FLUX, "kustomize-controller"),
            commit: |good| without_replicas(good, "kustomize-controller"),
        },
        Break {
            what: "--watch-label-selector for source-controller",
            object: deployment(FLUX, "source-controller"),
            commit: |good| {
                with(good, ["Deployment", "source-controller"], |part| {
                    let deaf = "        - --events-addr=";
                    let deafened = format!("{deaf}\n        - --watch-label-selector=nothing=such");
                    part.replace(deaf, &deafened)
                })
            },
        },
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
    let world = &catalog.world;
    for (
        n,
        Break {
            what,
            object,
            commit,
        },
    ) in breaks().into_iter().enumerate()
    {
        let (bad, good) = (format!("bad-{n}"), format!("good-{n}"));
        let spec = |live: &Value| [live["spec"]["replicas"].clone(), live["roleRef"].clone()];
        let before = world.api.get(&object).unwrap();
        catalog.push(&commit(&catalog.good), &bad);
        let took = until(&format!("{what}: held, delivered"), seconds(300), || {
            let live = world.api.try_get(&object).ok().flatten();
            let live = live.unwrap_or_default();
            is_kept(&live)
                && spec(&live) == spec(&before)
                && catalog.delivered() == bad
                && !catalog.runs("source-controller", "args", "nothing=such")
                && world.engine_available()
        });
        let took = took + world.function(seconds(LIMIT));
        let what = format!("commit with {what}");
        figure(
            "W18",
            &format!("{what} → held, rest delivered, function"),
            "≤ 120 s",
            shown(took),
        );
        until("the hub says so", seconds(60), || {
            catalog.condition("Quarantined") == "True"
        });
        catalog.push(&catalog.good, &good);
        let took = until(&format!("{what}: given back"), seconds(300), || {
            let live = world.api.try_get(&object).ok().flatten();
            live.is_some_and(|live| !is_kept(&live)) && catalog.delivered() == good
        });
        figure(
            "W18",
            &format!("{what}, then one that mends it → delivered, nothing held"),
            "≤ 300 s",
            shown(took),
        );
        world.function(seconds(LIMIT));
        until("no heal is open", seconds(LIMIT), || {
            let heals = world.hub.json(&["heal", "list", CLUSTER]);
            let all = heals.as_array().cloned().unwrap_or_default();
            all.iter().all(|heal| heal["result"] != "open")
        });
    }
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
    });
}
