//! The same in a cluster of which its owner adopted some namespaces, for `make chaos` only: what agent, line and people may do is as
//! bounded as before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{living, prepared, to_argocd, to_flux};
use crate::healing::settle;
use crate::scope::{bound, reads, uncovered};
use crate::support::api::path;
use crate::support::world::{ARGOCD, FLUX, World};
use crate::support::{eventually, seconds, until};

const CASE: &str = " (some namespaces)";
/// Where the catalog's workload is.
const COVERED: &str = "hello";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// That of the line is left out: it follows the grants.
const ROLES: [&str; 4] = [
    "linesman-agent",
    "linesman-engine",
    "linesman-read",
    "linesman-scope",
];

type Rights = BTreeMap<String, Value>;

/// What binds agent, line and people, by place and name, with role and subjects; and what the agent's roles allow.
fn rights(world: &World) -> Rights {
    let list = |plural: &str| {
        let all = world.api.get(&format!("/apis/{RBAC}/{plural}")).unwrap();
        all["items"].as_array().unwrap().clone()
    };
    let all = ["clusterrolebindings", "rolebindings"].into_iter();
    let bindings = all.flat_map(list).filter(is_ours).map(|binding| {
        let text = |key: &str| binding["metadata"][key].as_str().unwrap_or_default();
        let at = in_place(text("namespace"), text("name"));
        (at, json!([binding["roleRef"], binding["subjects"]]))
    });
    let roles = ROLES.into_iter().map(|name| {
        let role = world.api.get(&path(RBAC, "ClusterRole", "", name));
        (name.to_owned(), role.unwrap()["rules"].clone())
    });
    bindings.chain(roles).collect()
}

/// Whether agent or line is bound by it, or somebody who comes through the line.
fn is_ours(binding: &Value) -> bool {
    let mut subjects = binding["subjects"].as_array().into_iter().flatten();
    subjects.any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        subject["namespace"] == "linesman" || name.starts_with("linesman:")
    })
}

fn in_place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Those are all rights, and neither a right nor a namespace is missed.
fn bounded(world: &World, wanted: &Rights) {
    eventually("the rights are those of the list", seconds(60), || {
        let now = rights(world);
        if now == *wanted {
            Ok(())
        } else {
            Err(format!("{now:#?}, not {wanted:#?}"))
        }
    });
    eventually("no namespace is missed", seconds(30), || {
        uncovered(world, "False", &format!("namespace {COVERED}"))
    });
    until("no right is missed", seconds(120), || {
        world.phase() == "Healthy"
    });
}

/// H35, issue 5 §2: the agent's own rights in an engine's namespace go with that engine, and it reads in both, for both Namespaces stay.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_takes_the_others_place_in_a_cluster_of_some_namespaces() {
    let mut world = World::open("bounded");
    world.adopt_with(&["--namespaces", COVERED, "--access", "edit"]);
    let version = prepared(&world);
    until("the namespace is covered", seconds(60), || {
        let all = ["linesman-edit", "linesman-read", "linesman-view"];
        all.iter().all(|name| bound(&world, COVERED, name))
    });
    let (before, given) = (living(&world), rights(&world));
    let of_engine = |namespace| in_place(namespace, "linesman-engine");
    let reading = |namespace| in_place(namespace, "linesman-read");
    let mut back = given.clone();
    back.insert(reading(ARGOCD), given[&reading(FLUX)].clone());
    let mut over = back.clone();
    let engine = over.remove(&of_engine(FLUX)).unwrap();
    over.insert(of_engine(ARGOCD), engine);

    to_argocd(&world, CASE);
    world.engine = ARGOCD;
    assert_eq!(living(&world), before, "a workload was touched");
    bounded(&world, &over);

    to_flux(&world, CASE, &version);
    world.engine = "flux";
    assert_eq!(living(&world), before, "a workload was touched");
    bounded(&world, &back);
    settle(&world);
    assert_eq!(living(&world), before, "a workload was touched");
    reads(&world, &[COVERED, FLUX, ARGOCD]);
    world.close();
}
