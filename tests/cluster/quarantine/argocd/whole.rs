//! W18 with Argo CD: commits that stop it in other ways than by an image, and W8 after one that changes it, for `make chaos` only.

use serde_json::{Value, json};

use super::super::names;
use super::super::turns::{self, Turns};
use super::super::whole::with;
use super::catalog::{Catalog, Part};
use super::version::another_version_that_is_broken;
use super::{SERVER, WORKLOADS};
use crate::healing::{LIMIT, none_is_open, on_record, since};
use crate::support::api::{deployment, path};
use crate::support::argocd::CONTROLLER;
use crate::support::world::{ARGOCD, World};
use crate::support::{figure, seconds, shown, until};

mod away;
mod never;
mod reverted;

const RIGHTS: &str = "argocd-application-controller";
const CONFIG: &str = "argocd-cm";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// One way to break Argo CD by a commit: what the catalog has instead of the good install, and the object that this breaks.
struct Break {
    what: &'static str,
    object: String,
    commit: fn(&str) -> String,
}

/// Those that an object has two of come in this order: only what is removed from Git is given back at once a second time.
fn breaks() -> [Break; 6] {
    let of_rbac = |kind: &str| format!("{RBAC}/{kind}/{RIGHTS}");
    [
        Break {
            what: "replicas: 0 for the application-controller",
            object: CONTROLLER.to_owned(),
            commit: |good| {
                with(good, ["StatefulSet", RIGHTS], |part| {
                    part.replace("\n  replicas: 1\n", "\n  replicas: 0\n")
                })
            },
        },
        Break {
            what: "replicas: 0 for the repo-server",
            object: deployment(ARGOCD, SERVER),
            commit: |good| {
                with(good, ["Deployment", SERVER], |part| {
                    part.replace("\nspec:\n", "\nspec:\n  replicas: 0\n")
                })
            },
        },
        Break {
            what: "the binding's subject replaced",
            object: of_rbac("clusterrolebindings"),
            commit: |good| {
                with(good, ["ClusterRoleBinding", RIGHTS], |part| {
                    let subject = format!("\n- kind: ServiceAccount\n  name: {RIGHTS}\n");
                    part.replace(&subject, "\n- kind: ServiceAccount\n  name: nobody\n")
                })
            },
        },
        Break {
            what: "the role's rules removed",
            object: of_rbac("clusterroles"),
            commit: |good| {
                with(good, ["ClusterRole", RIGHTS], |part| {
                    let (before, _) = part.split_once("\nrules:\n").unwrap();
                    format!("{before}\nrules: []")
                })
            },
        },
        Break {
            what: "the binding removed",
            object: of_rbac("clusterrolebindings"),
            commit: |good| with(good, ["ClusterRoleBinding", RIGHTS], |_| String::new()),
        },
        Break {
            what: "settings in argocd-cm that cannot be read",
            object: path("v1", "ConfigMap", ARGOCD, CONFIG),
            commit: |good| {
                with(good, ["ConfigMap", CONFIG], |part| {
                    part.replace("\ndata:\n", "\ndata:\n  resource.inclusions: '['\n")
                })
            },
        },
    ]
}

/// What the commits change of an object.
fn changed(live: &Value) -> [Value; 4] {
    let of = |pointer: &str| live.pointer(pointer).cloned().unwrap_or_default();
    ["/spec/replicas", "/subjects", "/rules", "/data"].map(of)
}

/// The commit is pushed: it is held back and mended while the rest of it arrives, and the next commit gives the object back.
/// Returns its id.
fn held_and_given_back(catalog: &Catalog, n: usize, broken: &Break) -> String {
    let Break {
        what,
        object,
        commit,
    } = broken;
    let world = &*catalog.world;
    let (bad, good) = (format!("bad-{n}"), format!("good-{n}"));
    let before = changed(&catalog.live(object));
    let head = catalog.push(&commit(&catalog.good), &bad);
    let took = until(&format!("{what}: held, delivered"), seconds(300), || {
        catalog.is_held(object)
            && changed(&catalog.live(object)) == before
            && catalog.delivered() == json!(bad)
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
    catalog.told("True");
    catalog.push(&catalog.good, &good);
    let took = until(&format!("{what}: given back"), seconds(300), || {
        !catalog.is_held(object) && catalog.delivered() == json!(good)
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
    assert_eq!(changed(&catalog.live(object)), before, "{what}");
    until("no heal is open", seconds(LIMIT), || none_is_open(world));
    head
}

/// W20: commits that scale the repo-server to zero, each followed by one that mends it. Returns the ids of the bad ones.
fn commits_in_turn(catalog: &Catalog, number: &'static str, rounds: usize) -> Vec<String> {
    let world = &*catalog.world;
    let broken = &breaks()[1];
    let before = changed(&catalog.live(&broken.object));
    let turns = Turns {
        number,
        rounds,
        controller: "the repo-server",
    };
    turns::broken_and_mended(world, &turns, |n, breaks| {
        let (engine, marker) = if breaks {
            ((broken.commit)(&catalog.good), format!("turn-bad-{n}"))
        } else {
            (catalog.good.clone(), format!("turn-good-{n}"))
        };
        let head = catalog.push(&engine, &marker);
        let took = until("it is delivered, and Argo CD works", seconds(300), || {
            catalog.is_at(&head)
                && catalog.delivered() == json!(marker)
                && changed(&catalog.live(&broken.object)) == before
                && world.engine_available()
        });
        (head, took)
    })
}

/// What of the install the catalog has, for what is broken here.
fn parts() -> Vec<Part> {
    let rights = [("ClusterRole", None), ("ClusterRoleBinding", None)];
    let settings = [("ConfigMap", Some(CONFIG))];
    [&WORKLOADS[..], &rights, &settings].concat()
}

/// An Argo CD of a lab of its own that manages itself, for `test`.
fn managed(name: &str, test: impl FnOnce(&mut Catalog)) {
    let mut world = World::open_with(name, ARGOCD);
    world.adopt();
    let all = breaks();
    let last: Vec<&str> = all.iter().map(|b| b.object.as_str()).collect();
    test(&mut Catalog::managing(&mut world, &parts(), &last));
    world.close();
}

/// W18
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_stop_argo_cd_in_other_ways_are_held_back() {
    managed("argobreaks", |catalog| {
        for (n, broken) in breaks().iter().enumerate() {
            held_and_given_back(catalog, n, broken);
        }
    });
}

/// W8, W22
#[test]
#[ignore = "takes minutes: make chaos"]
fn another_version_by_git_is_what_comes_back_where_somebody_breaks_it() {
    managed("argonewer", |catalog| {
        another_version_that_is_broken(catalog);
    });
}

/// W18, W25: with the hub stopped and Git there, those that `away` leaves out. Each is on record once the hub is back.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_stop_argo_cd_are_held_back_without_the_hub_too() {
    managed("argoalone", |catalog| {
        let all = breaks().into_iter().enumerate().skip(1);
        told_afterwards(catalog, |catalog| {
            all.map(|(n, broken)| held_and_given_back(catalog, n, &broken))
                .collect()
        });
    });
}

/// W20, W25: ten commits with the hub stopped and Git there.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_argo_cd_and_mend_it_are_followed_without_the_hub_too() {
    managed("argoturns", |catalog| {
        told_afterwards(catalog, |catalog| commits_in_turn(catalog, "ten", 5));
    });
}

/// What `test` does is done while there is only Git; the commits that it returns are on the hub's record once that is back.
fn told_afterwards(catalog: &mut Catalog, test: impl FnOnce(&Catalog) -> Vec<String>) {
    let known = on_record(catalog.world);
    catalog.world.lose_hub();
    let bad = test(catalog);
    catalog.world.hub_back();
    let world = &*catalog.world;
    until("each is on record, by its commit", seconds(LIMIT), || {
        let told = since(world, &known);
        // What is removed has a class of its own.
        let of = |head: &String| told.iter().any(|heal| names(world, heal, head));
        bad.iter().all(of)
    });
}
