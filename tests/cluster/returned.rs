//! W27, on labs of their own: the agent's namespace is deleted, and the catalog's copy of the agent brings it back. The hub
//! has shown the loss before, nobody applies YAML, and what was changed on purpose is not undone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{deployment, path};
use crate::support::argocd::{REFRESH, application};
use crate::support::world::{ARGOCD, CLUSTER, World, kustomization, ready};
use crate::support::{eventually, figure, seconds, shown, until};

const NAMESPACE: &str = "/api/v1/namespaces/linesman";
/// The same program under another name.
const NEXT: &str = "lab.invalid/linesman:next";

/// W27, H14, F50.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_agent_namespace_comes_back_by_the_catalog() {
    comes_back(World::open("returned"));
}

/// W27, W30, with Argo CD.
#[test]
#[ignore = "needs a real cluster: make test"]
fn with_argo_cd_too_a_deleted_agent_namespace_comes_back() {
    comes_back(World::open_with("returnargo", ARGOCD));
}

fn comes_back(mut world: World) {
    world.adopt_with(&["--agent-copy"]);
    let first = image(&world);
    followed(&world);
    upgraded_and_left_alone(&world);
    let before = view(&world);
    let uid = world.uid(NAMESPACE).unwrap();
    let began = Instant::now();
    assert!(world.api.delete(NAMESPACE));
    let told = |what: &str, bar: &str, took: Duration| {
        figure("W27", &world.said(what), bar, shown(took));
    };
    // Either may come first.
    let (mut offline, mut back) = (None, None);
    until("offline at the hub, and back", seconds(240), || {
        let now = began.elapsed();
        if offline.is_none() && world.phase() == "Offline" {
            offline = Some(now);
        }
        if back.is_none() && world.uid(NAMESPACE).is_some_and(|now| now != uid) {
            back = Some(now);
        }
        offline.is_some() && back.is_some()
    });
    let what = "agent's namespace deleted → offline at the hub";
    told(what, "≤ 45 s", offline.unwrap());
    let what = "agent's namespace deleted → back by the catalog's copy";
    told(what, "", back.unwrap());
    until("the agent's line is back", seconds(240), || {
        world.line_is_up()
    });
    let what = "agent's namespace deleted → the agent's line is back";
    told(what, "", began.elapsed());
    assert_eq!(image(&world), NEXT, "not {first}");
    as_before(&world, &before);
    until("the cluster is healthy", seconds(180), || {
        world.phase() == "Healthy"
    });
    a_heal_works(&world);
    ends_for_good(&mut world);
    world.close();
}

fn view(world: &World) -> Value {
    world.hub.json(&["cluster", "show", CLUSTER])
}

fn image(world: &World) -> String {
    let agent = world.api.get(&agent()).unwrap();
    let image = &agent["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

fn agent() -> String {
    deployment("linesman", "linesman-agent")
}

/// What the engine follows the copy by.
fn sync(world: &World) -> String {
    match world.engine {
        ARGOCD => application("linesman-agent"),
        _ => kustomization("linesman"),
    }
}

/// The engine follows the copy of the catalog's head, and finds nothing to do.
fn followed(world: &World) {
    eventually("the engine follows the copy", seconds(180), || {
        let live = world.api.try_get(&sync(world))?.ok_or("it is not there")?;
        let (status, head) = (&live["status"], world.head()?);
        let (in_order, revision) = match world.engine {
            ARGOCD => {
                let synced = status["sync"]["status"] == json!("Synced")
                    && status["operationState"]["phase"] == json!("Succeeded");
                (synced, &status["sync"]["revision"])
            }
            _ => (ready(&live), &status["lastAppliedRevision"]),
        };
        let revision = revision.as_str().unwrap_or_default();
        if in_order && revision.ends_with(&head) {
            Ok(())
        } else {
            Err(format!("head {head}: {status}"))
        }
    });
}

/// The engine compares the copy with what is there, once more.
fn compared(world: &World) {
    let sync = sync(world);
    if world.engine == ARGOCD {
        let patch = json!({ "metadata": { "annotations": { REFRESH: "hard" } } });
        world.api.patch(&sync, &patch);
        until("the copy is compared", seconds(60), || {
            let live = world.api.get(&sync).unwrap();
            live["metadata"]["annotations"][REFRESH].is_null()
        });
    } else {
        let stamp = format!("{:?}", std::time::UNIX_EPOCH.elapsed().unwrap());
        let patch =
            json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": stamp } } });
        world.api.patch(&sync, &patch);
        until("the copy is compared", seconds(60), || {
            let live = world.api.get(&sync).unwrap();
            live["status"]["lastHandledReconcileAt"] == json!(stamp)
        });
    }
    followed(world);
}

/// The hub's upgrade and the owner's edits stay, whatever the copy says; then it says the new image, too.
fn upgraded_and_left_alone(world: &World) {
    world.place.tag_image(&world.place.image, NEXT);
    let upgrade = [
        "cluster",
        "upgrade",
        CLUSTER,
        "--image",
        NEXT,
        "--allow-tag",
    ];
    world.hub.linesman(&[&upgrade[..], &["--wait=3m"]].concat());
    let hub = path("v1", "ConfigMap", "linesman", "linesman-hub");
    let edit = json!({ "data": { "no-proxy": "corp.example" } });
    world.api.patch(&hub, &edit);
    let label = json!({ "metadata": { "labels": { "owner.example.org/team": "sre" } } });
    world.api.patch(&agent(), &label);
    let generation = || world.api.get(&agent()).unwrap()["metadata"]["generation"].clone();
    let before = generation();
    compared(world);
    let live = world.api.get(&agent()).unwrap();
    assert_eq!((image(world).as_str(), generation()), (NEXT, before));
    assert_eq!(
        live["metadata"]["labels"]["owner.example.org/team"],
        json!("sre")
    );
    let edited = world.api.get(&hub).unwrap()["data"]["no-proxy"].clone();
    assert_eq!(edited, json!("corp.example"));

    world.hub.linesman(&["cluster", "agent-copy", CLUSTER]);
    eventually("the catalog's head is applied", seconds(120), || {
        world.synced()
    });
    compared(world);
    until("the cluster is healthy", seconds(180), || {
        world.phase() == "Healthy"
    });
}

/// The same cluster with the same deploy key; its identity is another one.
fn as_before(world: &World, before: &Value) {
    let now = view(world);
    for field in ["id", "createdAt", "catalogPath"] {
        assert_eq!(now[field], before[field], "{field}");
    }
    let valid = |view: &Value, kind: &str| -> Vec<Value> {
        let keys = view["keys"].as_array().unwrap().iter();
        let of_kind = keys.filter(|k| k["kind"] == json!(kind) && k["state"] != json!("revoked"));
        of_kind.map(|k| k["fingerprint"].clone()).collect()
    };
    assert_eq!(valid(&now, "deploy"), valid(before, "deploy"));
    assert_ne!(valid(&now, "identity"), valid(before, "identity"));
    let join = path("v1", "Secret", "linesman", "linesman-join");
    assert_eq!(world.api.get(&join), None, "no YAML was applied");
}

fn a_heal_works(world: &World) {
    let name = match world.engine {
        ARGOCD => "argocd-repo-server",
        _ => "source-controller",
    };
    let path = deployment(world.namespace(), name);
    let before = world.uid(&path);
    assert!(world.api.delete(&path));
    let took = until("the Deployment is back", seconds(60), || {
        let now = world.uid(&path);
        now.is_some() && now != before
    });
    let what = "after its return, what fetches deleted → object back";
    figure("W27", &world.said(what), "≤ 5 s", shown(took));
    world.function(seconds(120));
}

/// Removed, it does not come back: the catalog has no copy any more, and the engine follows none.
fn ends_for_good(world: &mut World) {
    world.hub.linesman(&["cluster", "remove", CLUSTER, "--yes"]);
    let took = until("the agent is gone", seconds(120), || {
        world.api.get(&agent()).is_none()
    });
    let what = "cluster removed → its agent is gone, the copy before it";
    figure("W27", &world.said(what), "", shown(took));
    assert_eq!(world.api.get(&sync(world)), None);
    // The engine goes on with what it fetched last, for its key opens the catalog no more.
    world.hub.stop();
    world.answers(seconds(120));
    assert_eq!(world.api.get(&sync(world)), None);
    assert_eq!(world.api.get(&agent()), None);
    assert!(world.uid(NAMESPACE).is_some(), "namespaces stay");
}
