//! W24: in a maintenance window, and where the cluster's owner has switched healing off, the agent only looks.

use linesman::clock;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use crate::blocked::fetcher;
use crate::healing::{controllers, on_record, settle, since, whole, with_and_without_hub};
use crate::support::api::{Api, deployment, path};
use crate::support::place::run;
use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{closely, eventually, figure, seconds, shown, stays, until};

#[test]
#[ignore = "needs a real cluster: make test"]
fn a_paused_cluster_is_left_alone_until_it_is_resumed() {
    paused_and_resumed(&world::adopted());
}

/// W24: paused at the hub: a fault is shown and left; resumed: it is mended.
pub(crate) fn paused_and_resumed(world: &World) {
    settle(world);
    world.hub.linesman(&[
        "cluster", "pause", CLUSTER, "--for", "1h", "--reason", "a test",
    ]);
    let took = until("the agent says that it is paused", seconds(60), || {
        paused(world).contains("a test")
    });
    let what = world.said("paused at the hub → agent says so");
    figure("W24", &what, "", shown(took));
    let [_, path] = controllers(world);
    let (_, name) = path.rsplit_once('/').unwrap();
    let object = format!("Deployment {}/{name}", world.namespace());
    assert!(world.api.delete(&path));
    let shown_at_hub = || {
        let heals = world.hub.json(&["heal", "list", CLUSTER]);
        let all = heals.as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|h| h["object"] == json!(object) && h["result"] == json!("open"))
    };
    until("the hub shows the fault", seconds(60), shown_at_hub);
    // Longer than any heal of this fault takes.
    stays("it is left alone in a window", seconds(10), || {
        world.api.get(&path).is_none()
    });
    world.hub.linesman(&["cluster", "resume", CLUSTER]);
    let took = until("it is back", seconds(60), || world.uid(&path).is_some());
    let what = world.said("resumed at the hub → deleted Deployment back");
    figure("W24", &what, "", shown(took));
    until("the engine is available", seconds(240), || {
        world.engine_available()
    });
    world.function(seconds(240));
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn a_fault_that_outlasts_its_window_raises_an_alarm_and_is_mended() {
    outlasts_its_window(&world::adopted());
}

/// W24: a window that ends by itself: nothing is mended before, and what outlasted it raises an alarm and is mended.
pub(crate) fn outlasts_its_window(world: &World) {
    settle(world);
    let before = on_record(world);
    let end = clock::now() + time::Duration::seconds(30);
    let end = end.replace_nanosecond(0).unwrap();
    let until_then = end.format(&Rfc3339).unwrap();
    window(world, &json!(until_then));
    until("the agent says that it is paused", seconds(25), || {
        !paused(world).is_empty()
    });
    let service = path("v1", "Service", world.namespace(), fetcher(world).1);
    assert!(world.api.delete(&service));
    assert!(clock::now() < end, "the fault came after the window");
    closely("it is back", seconds(120), || world.uid(&service).is_some());
    let late = clock::now() - end;
    assert!(
        late >= time::Duration::ZERO,
        "it was mended {late} before the window's end"
    );
    figure(
        "W24",
        &world.case("window over by itself → deleted Service back"),
        "",
        shown(late.unsigned_abs()),
    );
    window(world, &Value::Null);
    let (heal, _) = eventually("the heal is over", seconds(60), || {
        let mut heals = since(world, &before).into_iter();
        let of_it = |h: &Value| h["class"] == "ObjectMissing" && h["result"] == "healed";
        heals.find(of_it).ok_or("no heal on record")
    });
    let heal = whole(world, &heal);
    let alarm = heal["steps"].as_array().unwrap()[0].clone();
    let ended = until_then.replace('Z', ".000Z");
    let said = format!("the maintenance window ended at {ended} with this fault there");
    assert_eq!(
        (&alarm["action"], &alarm["outcome"]),
        (&json!("alarm"), &json!(said)),
        "{heal:#}"
    );
}

/// W24: the owner's word in the cluster is obeyed with the hub away too, and switching healing on again mends at once.
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_the_owner_switches_off_is_left_alone_with_and_without_the_hub() {
    let mut world = world::adopted();
    let _policy = Policy::new(&world);
    let path = deployment(FLUX, "source-controller");
    with_and_without_hub(&mut world, |world, hub| {
        policy(world, &json!({"heal": "off"}));
        let text = "key heal of ConfigMap linesman-policy is off";
        until(
            "the agent says that it is switched off",
            seconds(60),
            || paused(world).contains(text),
        );
        assert!(world.api.delete(&path));
        // Longer than any heal of this fault takes.
        stays(&format!("it is left alone ({hub})"), seconds(15), || {
            world.api.get(&path).is_none()
        });
        policy(world, &json!({"heal": "on"}));
        let took = until("it is back", seconds(60), || world.uid(&path).is_some());
        let what = format!("the owner's heal: off, then on → deleted Deployment back ({hub})");
        figure("W24", &what, "", shown(took));
        until("the engine is available", seconds(240), || {
            world.engine_available()
        });
        world.answers(seconds(240));
    });
    until("nothing is paused any more", seconds(60), || {
        paused(&world).is_empty()
    });
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn the_owners_window_holds_until_its_end_whatever_else_he_writes() {
    owners_window_holds(&world::adopted());
}

/// W24: the owner's window is one like the hub's; a word that cannot be read changes nothing, and says so.
pub(crate) fn owners_window_holds(world: &World) {
    settle(world);
    let _policy = Policy::new(world);
    let end = clock::now() + time::Duration::seconds(45);
    let end = end.replace_nanosecond(0).unwrap();
    let until_then = end.format(&Rfc3339).unwrap();
    policy(world, &json!({"pausedUntil": until_then}));
    until("the agent says that it is paused", seconds(20), || {
        paused(world).contains("key pausedUntil of ConfigMap linesman-policy")
    });
    policy(world, &json!({"pausedUntil": null, "heal": "never"}));
    until("the agent refuses the word", seconds(20), || {
        refused(world).contains("'heal: never' cannot be read; write on, safe or off")
    });
    let service = path("v1", "Service", world.namespace(), fetcher(world).1);
    assert!(world.api.delete(&service));
    assert!(clock::now() < end, "the fault came after the window");
    closely("it is back", seconds(120), || world.uid(&service).is_some());
    let late = clock::now() - end;
    assert!(
        late >= time::Duration::ZERO,
        "it was mended {late} before the window's end"
    );
    figure(
        "W24",
        &world.case("the owner's window over by itself → deleted Service back"),
        "",
        shown(late.unsigned_abs()),
    );
    assert!(world.api.delete(&policy_path()));
    until("the agent accepts that", seconds(20), || {
        refused(world).is_empty()
    });
}

/// The owner's policy, which is gone with this whatever comes of the test.
struct Policy(Api);

impl Policy {
    fn new(world: &World) -> Self {
        let maps = "/api/v1/namespaces/linesman/configmaps";
        let empty = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "linesman-policy"}, "data": {},
        });
        world.api.create(maps, &empty);
        Self(Api::of(&world.place.kubeconfig))
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        drop(self.0.try_delete(&policy_path()));
    }
}

fn policy_path() -> String {
    path("v1", "ConfigMap", "linesman", "linesman-policy")
}

/// What the owner writes.
fn policy(world: &World, data: &Value) {
    world.api.patch(&policy_path(), &json!({ "data": data }));
}

/// Why the owner's policy is not accepted, as the hub or, where that is away, the agent's log says; nothing where it is.
fn refused(world: &World) -> String {
    if !world.hub.runs() {
        return logged(world, &["owner's policy"], "owner's policy in force");
    }
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let mut all = view["conditions"].as_array().unwrap().iter();
    let told = all.find(|c| c["type"] == "PolicyAccepted" && c["status"] == "False");
    told.map_or_else(String::new, |c| c["message"].as_str().unwrap().to_owned())
}

/// What is said of the window, there as well; nothing where there is none.
fn paused(world: &World) -> String {
    if !world.hub.runs() {
        return logged(world, &["condition=Paused", "status="], "status=False");
    }
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let mut all = view["conditions"].as_array().unwrap().iter();
    let told = all.find(|c| c["type"] == "Paused" && c["status"] == "True");
    told.map_or_else(String::new, |c| c["message"].as_str().unwrap().to_owned())
}

/// The last line of the agent's log with all of `words`; nothing where that has `over`, too.
fn logged(world: &World, words: &[&str], over: &str) -> String {
    let mut kubectl = world.place.kubectl();
    let log = run(kubectl.args(["-n", "linesman", "logs", "deployment/linesman-agent"]));
    let mut lines = log.lines().rev();
    let last = lines.find(|line| words.iter().all(|word| line.contains(word)));
    last.filter(|line| !line.contains(over))
        .map_or_else(String::new, str::to_owned)
}

/// Sets the maintenance window of the engine's Namespace.
fn window(world: &World, until: &Value) {
    let patch = json!({"metadata": {"annotations": {"linesman.dev/maintenance-until": until}}});
    let namespace = path("v1", "Namespace", "", world.namespace());
    world.api.patch(&namespace, &patch);
}
