//! W39: an Argo CD that looks at nothing by itself, as its catalog wants it. One that nobody asks is as silent as one that
//! hangs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CONFIG, Catalog, Part, WORKLOADS, with};
use crate::argocd::stop_controller;
use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, on_record, settle, since};
use crate::support::api::path;
use crate::support::argocd::{CONTROLLER, root};
use crate::support::audit::Mark;
use crate::support::world::{ARGOCD, World};
use crate::support::{figure, seconds, shown, until};

/// How often the agent asks while nothing else happens.
const ASKED: usize = 3;

fn config() -> String {
    path("v1", "ConfigMap", ARGOCD, CONFIG)
}

fn timeout(catalog: &Catalog) -> Value {
    catalog.live(&config())["data"]["timeout.reconciliation"].clone()
}

/// Pods read the setting when they start.
fn started_anew(world: &World) {
    let pods = format!("/api/v1/namespaces/{ARGOCD}/pods");
    let all = world.api.get(&pods).unwrap()["items"].clone();
    for pod in all.as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert!(world.api.delete(&format!("{pods}/{name}")));
    }
    settle(world);
}

/// Nobody but the agent asks, and nothing is done but that.
fn is_idle(world: &World) {
    let (known, pods) = (on_record(world), pods_of_engine(world));
    let mark = Mark::now(&world.audit);
    let (mut asked, mut looked) = (BTreeSet::new(), BTreeSet::new());
    let took = until("the agent has asked again and again", seconds(1500), || {
        let live = world.api.get(&root()).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        asked.insert(text(
            &live["metadata"]["annotations"]["linesman.dev/probed-at"],
        ));
        looked.insert(text(&live["status"]["reconciledAt"]));
        asked.len() > ASKED
    });
    figure(
        "W39",
        &format!(
            "Argo CD: timeout.reconciliation 0 → asked {ASKED} times, looked {} times, nothing restarted",
            looked.len() - 1
        ),
        "",
        shown(took),
    );
    assert_eq!(mark.first_mending_write(), None, "the agent wrote");
    assert_eq!(pods_of_engine(world), pods);
    assert_eq!(since(world, &known), Vec::<Value>::new());
}

/// Its controller hangs, and no commit makes anybody ask.
fn is_restarted_where_it_hangs(world: &World) {
    let known = on_record(world);
    let pod = path("v1", "Pod", ARGOCD, "argocd-application-controller-0");
    let uid = world.uid(&pod).unwrap();
    stop_controller(world);
    let took = until("its Pod is another one", seconds(4 * LIMIT), || {
        world.uid(&pod).is_some_and(|new| new != uid)
    });
    figure(
        "W39",
        "Argo CD: timeout.reconciliation 0, application-controller stopped (SIGSTOP), no commit → restarted",
        "≤ 390 s",
        shown(took),
    );
    let took = world.function(seconds(LIMIT));
    figure("W39", "Argo CD: … → function", "≤ 60 s", shown(took));
    settle(world);
    let new = since(world, &known);
    // While its Pod is made anew it is not available, which may be told, too.
    let healed = new.iter().filter(|heal| heal["result"] == "healed");
    let healed: Vec<&Value> = healed.map(|heal| &heal["class"]).collect();
    assert_eq!(healed, ["QueueWedged"], "{new:#?}");
}

/// W39
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_argo_cd_that_never_looks_by_itself_is_restarted_only_where_it_hangs() {
    let mut world = World::open_with("argonever", ARGOCD);
    world.adopt();
    let settings: [Part; 1] = [("ConfigMap", Some(CONFIG))];
    let parts = [&WORKLOADS[..], &settings].concat();
    let catalog = Catalog::managing(&mut world, &parts, &[CONTROLLER, &config()]);
    let never = with(&catalog.good, ["ConfigMap", CONFIG], |part| {
        part.replace("\ndata:\n", "\ndata:\n  timeout.reconciliation: '0'\n")
    });
    catalog.push(&never, "never");
    until("Argo CD has the setting", seconds(LIMIT), || {
        catalog.delivered() == json!("never") && timeout(&catalog) == json!("0")
    });
    started_anew(catalog.world);
    is_idle(catalog.world);
    is_restarted_where_it_hangs(catalog.world);
    let now = (timeout(&catalog), catalog.is_held(&config()));
    assert_eq!(now, (json!("0"), false), "the setting is the catalog's");
    world.close();
}
