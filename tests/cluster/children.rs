//! What the catalog brought and what does not work: shown, left to the catalog, and no word against the engine.

use std::process::Output;

use serde_json::{Value, json};

use crate::healing;
use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{figure, seconds, shown, until};

const FILE: &str = "clusters/demo/broken.yaml";

/// F42: a sync object of the catalog that is not Ready shows at the hub with its own words; the root stays Synced.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_broken_sync_object_shows_at_the_hub_and_the_root_stays_synced() {
    let world = world::adopted();
    let child = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "broken", "namespace": FLUX},
        "spec": {
            "interval": "10m", "retryInterval": "5s", "path": "./no/such/path", "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": FLUX},
        },
    });
    until("all sync objects are Ready", seconds(180), || {
        holds(&world, "ChildrenReady", "True")
    });
    // The test before may have stopped the hub: its line is on the way, and Git was away until just now.
    until("the doctor finds nothing wrong", seconds(180), || {
        doctor(&world).status.success()
    });
    let rows = diagnosed(&world, true);
    for name in [
        "watchdog",
        "CRDs",
        "guard policy",
        "API server",
        "Git path",
        "clock",
        "snapshot",
    ] {
        assert!(
            rows.iter().any(|r| r["name"] == name),
            "{name} in {rows:#?}"
        );
    }
    an_own_object_is_altered(&world);
    world.push(FILE, &child.to_string());
    let took = until("the hub shows it", seconds(180), || {
        holds(&world, "ChildrenReady", "False")
    });
    figure(
        "children",
        "broken sync object pushed → shown at the hub (after its debounce of 60 s)",
        "",
        shown(took),
    );
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let told = condition(&view, "ChildrenReady");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("Kustomization flux-system/broken")
            && message.contains("no/such/path")
            && message.contains("commit the directory"),
        "{message}"
    );
    assert_eq!(told["reason"], json!("PathMissing"));
    assert_eq!(view["phase"], json!("Degraded"));
    for well in ["EngineHealthy", "Synced", "GitReachable"] {
        assert_eq!(condition(&view, well)["status"], json!("True"), "{view}");
    }
    let rows = diagnosed(&world, false);
    let wrong: Vec<&Value> = rows.iter().filter(|r| r["ok"] == false).collect();
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    assert_eq!(wrong[0]["name"], "what the catalog brought");
    let fix = wrong[0]["fix"].as_str().unwrap();
    assert!(fix.contains("commit the directory"), "{wrong:#?}");
    the_own_object_is_mended(&world);
    // Valid and empty: what it brought is pruned.
    world.push(FILE, "# nothing\n");
    until("the hub shows that it is over", seconds(180), || {
        holds(&world, "ChildrenReady", "True")
    });
    a_right_is_taken_from_the_agent(&world);
    a_list_is_refused(&world);
}

/// F19: a write is refused; the hub shows which right is missing until it is back, and then the write is made.
fn a_right_is_taken_from_the_agent(world: &World) {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (own, view) = (
        format!("{ROLES}/linesman-agent"),
        format!("{ROLES}/flux-view-flux-system"),
    );
    let rules = world.api.get(&own).unwrap()["rules"].clone();
    let mut fewer = rules.as_array().unwrap().clone();
    let of_roles = |rule: &Value| {
        let writes = json!(["create", "patch", "delete"]);
        rule["resources"] == json!(["clusterroles"]) && rule["verbs"] == writes
    };
    fewer.retain(|rule| !of_roles(rule));
    assert_eq!(fewer.len() + 1, rules.as_array().unwrap().len());
    let set = |rules: &Value| {
        let patch = json!([{"op": "replace", "path": "/rules", "value": rules}]);
        world.api.json_patch(&own, &patch);
    };
    set(&json!(fewer));
    assert!(world.api.delete(&view));
    let took = until(
        "the hub shows the right that is missing",
        seconds(90),
        || {
            let shown = world.hub.try_json(&["cluster", "show", CLUSTER]);
            let said = shown.map(|view| condition(&view, "RightsLost")["message"].clone());
            let said = said.ok().and_then(|said| said.as_str().map(str::to_owned));
            said.is_some_and(|said| {
            let right = "the agent may not create, delete, patch clusterroles.rbac.authorization.k8s.io (";
            let whose = " in the whole cluster; apply the adoption YAML again: 'linesman cluster readopt'";
            said.starts_with(right) && said.ends_with(whose)
        })
        },
    );
    figure(
        "F19",
        "right taken from the agent, its write refused → the hub names the right",
        "",
        shown(took),
    );
    until(
        "the open heal says what to do about it",
        seconds(30),
        || {
            let heals = world.hub.json(&["heal", "list", CLUSTER]);
            let heals = heals.as_array().cloned().unwrap_or_default();
            heals.iter().any(|heal| {
                let text = |field: &str| heal[field].as_str().unwrap_or_default();
                let missing = text("object").ends_with("flux-view-flux-system");
                missing && text("result") == "open" && text("next").contains("RightsLost")
            })
        },
    );
    set(&rules);
    let took = until("all is well again", seconds(90), || {
        world.uid(&view).is_some() && holds(world, "RightsLost", "False")
    });
    figure(
        "F19",
        "right given back → the write made, the hub says so",
        "",
        shown(took),
    );
}

/// The agent may no longer list the engine's Services: the hub names that right, and no Service counts as missing.
fn a_list_is_refused(world: &World) {
    const READ: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/linesman-read";
    let rules = world.api.get(READ).unwrap()["rules"].clone();
    let mut core = rules.as_array().unwrap().iter();
    let core = core.position(|rule| {
        rule["resources"]
            .as_array()
            .unwrap()
            .contains(&json!("services"))
    });
    let mut fewer = rules.clone();
    let resources = fewer[core.unwrap()]["resources"].as_array_mut().unwrap();
    resources.retain(|resource| resource != "services");
    let set = |rules: &Value| {
        let patch = json!([{"op": "replace", "path": "/rules", "value": rules}]);
        world.api.json_patch(READ, &patch);
    };
    let before = healing::on_record(world);
    set(&fewer);
    until("the hub shows that a list is refused", seconds(120), || {
        let shown = world.hub.try_json(&["cluster", "show", CLUSTER]);
        let said = shown.map(|view| condition(&view, "RightsLost")["message"].clone());
        let said = said.ok().and_then(|said| said.as_str().map(str::to_owned));
        said.is_some_and(|said| said.starts_with("the agent may not get, list, watch services in "))
    });
    set(&rules);
    until("nothing is missing any more", seconds(90), || {
        holds(world, "RightsLost", "False")
    });
    let heals = healing::since(world, &before);
    assert!(
        heals.iter().all(|heal| heal["class"] != "ObjectMissing"),
        "{heals:#?}"
    );
}

const POLICY: &str =
    "/apis/networking.k8s.io/v1/namespaces/linesman/networkpolicies/linesman-agent";

/// F49, as somebody does who wants a way to the agent's ports.
fn an_own_object_is_altered(world: &World) {
    let open = json!([{"op": "replace", "path": "/spec/ingress", "value": [{}]}]);
    world.api.json_patch(POLICY, &open);
}

fn the_own_object_is_mended(world: &World) {
    until("the agent's own policy is mended", seconds(80), || {
        let live = world.api.try_get(POLICY).ok().flatten().unwrap_or_default();
        live["spec"]["ingress"]
            .as_array()
            .is_some_and(|rules| rules.len() == 2)
    });
    until("the heal is on record", seconds(20), || {
        let heals = world.hub.json(&["heal", "list", CLUSTER]);
        let all = heals.as_array().cloned().unwrap_or_default();
        let drift = all.iter().find(|h| h["class"] == json!("AgentDrift"));
        drift
            .is_some_and(|h| h["result"] == json!("healed") && h["writer"] == json!("kubectl-edit"))
    });
}

fn doctor(world: &World) -> Output {
    let asked = ["doctor", "--cluster", CLUSTER, "-o", "json"];
    world.hub.cli(&asked).output().unwrap()
}

/// `linesman doctor --cluster`: the components, as the agent sees them now; its exit code says whether all is well.
fn diagnosed(world: &World, well: bool) -> Vec<Value> {
    let output = doctor(world);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.success(), well, "{said}");
    let rows: Vec<Value> = serde_json::from_str(&said).unwrap();
    rows.into_iter()
        .filter(|r| r["end"] == "component")
        .collect()
}

pub(crate) fn condition(view: &Value, kind: &str) -> Value {
    let all = view["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|c| c["type"] == json!(kind));
    found.unwrap_or_default()
}

pub(crate) fn holds(world: &World, kind: &str, status: &str) -> bool {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]);
    view.is_ok_and(|v| condition(&v, kind)["status"] == json!(status))
}
