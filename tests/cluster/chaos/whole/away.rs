//! L14 in full: a hub that is away for as long as it takes to build another one.

use std::time::Instant;

use serde_json::{Value, json};

use crate::healing::{LIMIT, install, on_record, settle, since, without_hub};
use crate::support::api::path_of;
use crate::support::place::output;
use crate::support::world::{self, World};
use crate::support::{closely, figure, seconds, shown, until};

/// Minutes without a hub. In each but the first, something of the engine is deleted.
const MINUTES: usize = 10;

/// Whether the agent's Pod answers so what the kubelet asks it; not by a client that tries again where it is told to come later.
fn says(world: &World, pod: &str, probe: &str) -> bool {
    let path = format!("/api/v1/namespaces/linesman/pods/{pod}:8080/proxy/{probe}");
    let answer = output(world.place.kubectl().args(["get", "--raw", &path]));
    let error = String::from_utf8_lossy(&answer.stderr);
    assert!(
        answer.status.success() || error.contains("(ServiceUnavailable)"),
        "{probe}: {error}"
    );
    answer.status.success()
}

fn agent(world: &World) -> Value {
    let path =
        "/api/v1/namespaces/linesman/pods?labelSelector=app.kubernetes.io/name%3Dlinesman-agent";
    let list = world.api.get(path).unwrap();
    let pods = list["items"].as_array().unwrap();
    assert_eq!(pods.len(), 1, "{list}");
    let pod = &pods[0];
    json!({
        "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
        "restarts": pod["status"]["containerStatuses"][0]["restartCount"],
    })
}

/// Objects of the install that are deleted one by one: `Service flux-system/source-controller` and so on, with their paths.
fn parts(world: &World) -> Vec<(String, String)> {
    let all = install(world).into_iter();
    let small = all.filter(|o| {
        let kind = o["kind"].as_str().unwrap();
        matches!(
            kind,
            "Service" | "Deployment" | "NetworkPolicy" | "ClusterRole"
        )
    });
    let named = small.map(|o| {
        let text = |pointer: &str| {
            o.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let place = match text("/metadata/namespace") {
            "" => text("/metadata/name").to_owned(),
            namespace => format!("{namespace}/{}", text("/metadata/name")),
        };
        (format!("{} {place}", text("/kind")), path_of(&o))
    });
    named.take(MINUTES - 1).collect()
}

/// L14, H49: live, not ready, never restarted; what breaks is mended; and once the hub is back it has a record of each, once and in
/// the order in which they were.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_hub_that_is_away_for_ten_minutes_finds_all_that_was_mended_on_record() {
    let mut world = world::adopted();
    settle(&world);
    let (before, pod) = (on_record(&world), agent(&world));
    let name = pod["name"].as_str().unwrap().to_owned();
    assert!(says(&world, &name, "livez") && says(&world, &name, "readyz"));
    let parts = parts(&world);
    assert_eq!(parts.len(), MINUTES - 1, "{parts:?}");
    without_hub(&mut world, |world, _| {
        let began = Instant::now();
        let took = until("the agent is not ready", seconds(120), || {
            !says(world, &name, "readyz")
        });
        figure("L14", "hub stopped → readyz 503", "", shown(took));
        for minute in 1..=MINUTES {
            let end = seconds(60) * u32::try_from(minute).unwrap();
            closely("the minute is over", seconds(70), || {
                assert!(says(world, &name, "livez"));
                began.elapsed() >= end
            });
            assert!(!says(world, &name, "readyz"));
            let Some((id, path)) = parts.get(minute - 1) else {
                continue;
            };
            let uid = world.uid(path).unwrap();
            world.delete_guarded(path);
            let took = until(&format!("{id} is back"), seconds(LIMIT), || {
                world.uid(path).is_some_and(|new| new != uid)
            });
            figure(
                "L14",
                "hub away: object deleted → back",
                "≤ 5 s",
                shown(took),
            );
        }
    });
    let took = until("each is on record and over", seconds(LIMIT), || {
        let told = since(&world, &before);
        told.len() >= parts.len() && told.iter().all(|h| h["result"] != json!("open"))
    });
    figure("L14", "hub back → all on record", "", shown(took));
    // The newest stands first.
    let mut told = since(&world, &before);
    told.reverse();
    let said = |h: &Value| (h["class"].clone(), h["object"].as_str().unwrap().to_owned());
    let expected = parts
        .iter()
        .map(|(id, _)| (json!("ObjectMissing"), id.clone()));
    let mended = told
        .iter()
        .filter(|h| h["class"] == json!("ObjectMissing"))
        .map(said);
    assert_eq!(mended.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(agent(&world), pod, "the agent was restarted");
    let took = until("the agent is ready", seconds(60), || {
        says(&world, &name, "readyz")
    });
    figure("L14", "all on record → readyz 200", "", shown(took));
    figure(
        "L14",
        &format!(
            "hub away for {MINUTES} min: looks at which the agent was not live; its restarts; heals not on record, twice, or in another order"
        ),
        "0; 0; 0",
        format!("0; 0; 0 of {}", parts.len()),
    );
}
