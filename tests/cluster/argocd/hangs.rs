//! W12 with Argo CD: what hangs is restarted, by the agent or by the kubelet.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::json;

use super::commits::{follows, is_there, push_map};
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads, works};
use crate::support::api::path;
use crate::support::place::{lab, run};
use crate::support::world::{self, ARGOCD, World};
use crate::support::{figure, seconds, shown, until};

/// W12, W39: a controller that hangs is found by a probe without an answer, and restarted.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_controller_that_hangs_is_restarted() {
    let world = world::adopted_argocd();
    settle(&world);
    controller_hangs(&world, "hangs");
    settle(&world);
}

/// `name` is that of what the commit brings.
pub(super) fn controller_hangs(world: &World, name: &str) {
    let pod = path("v1", "Pod", ARGOCD, "argocd-application-controller-0");
    let uid = world.uid(&pod).unwrap();
    stop_controller(world);
    // A push makes the agent ask at once. With the hub away it asks when the controller should have looked by itself; and in the
    // two minutes after host keys were written again and again, and what is asked anew has its whole time.
    let began = Instant::now();
    push_map(world, name);
    until(
        "the controller's Pod is another one",
        seconds(2 * LIMIT),
        || world.uid(&pod).is_some_and(|new| new != uid),
    );
    figure(
        "W39",
        &world.case("application-controller stopped (SIGSTOP), commit pushed → restarted"),
        "≤ probe + 90 s",
        shown(began.elapsed()),
    );
    until("the commit is applied", seconds(LIMIT), || {
        is_there(world, name)
    });
    works(world, "W39", &world.case("function after that"), "≤ 60 s");
}

/// The application-controller's process stands still, and the kubelet, which does not ask it, sees nothing of that.
pub(crate) fn stop_controller(world: &World) {
    let script = "kill -STOP $(pgrep -f '^/usr/local/bin/argocd-application-controlle[r]')";
    run(lab().args(["exec", world.place.lab(), "sh", "-c", script]));
}

/// A repo-server that hangs is ended by the kubelet, which asks it; a commit that came meanwhile is applied, and nobody is told
/// that the network is at fault.
pub(super) fn repo_server_hangs(world: &World, name: &str) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let script = "kill -STOP $(pgrep -f '^/usr/local/bin/argocd-repo-serve[r]')";
    run(lab().args(["exec", world.place.lab(), "sh", "-c", script]));
    let took = follows(world, name);
    figure(
        "W12",
        &world.case("repo-server stopped (SIGSTOP), commit pushed → applied"),
        "≤ probe + 150 s",
        shown(took),
    );
    works(world, "W12", &world.case("function after that"), "≤ 60 s");
    unchanged(world, &workloads);
    settle(world);
    let told = since(world, &known);
    let classes: BTreeSet<&str> = told.iter().filter_map(|h| h["class"].as_str()).collect();
    println!("called: {classes:?}");
    assert!(!classes.contains("PolicyBlocks"), "{told:#?}");
}

/// What the agent asks the applicationset-controller with.
const SET: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets/linesman-probe";
const REFRESH_SET: &str = "argocd.argoproj.io/application-set-refresh";

/// The agent asked, and the controller has taken the question away.
fn set_answered(world: &World) {
    until("the ApplicationSet is answered for", seconds(LIMIT), || {
        let live = world.api.try_get(SET).ok().flatten().unwrap_or_default();
        let annotations = &live["metadata"]["annotations"];
        annotations["linesman.dev/probed-at"].is_string() && annotations[REFRESH_SET].is_null()
    });
}

/// Its process stands still, and the kubelet, which does not ask it, sees nothing of that. It is `asked` by a person, too, or
/// by the agent alone, every five minutes.
pub(super) fn set_controller_hangs(world: &World, asked: bool) {
    const PODS: &str = "/api/v1/namespaces/argocd/pods?labelSelector=\
                        app.kubernetes.io%2Fname%3Dargocd-applicationset-controller";
    let uid = || -> Option<String> {
        let list = world.api.get(PODS)?;
        let mut all = list["items"].as_array()?.iter();
        let stays = all.find(|pod| pod["metadata"]["deletionTimestamp"].is_null())?;
        stays["metadata"]["uid"].as_str().map(str::to_owned)
    };
    settle(world);
    set_answered(world);
    let before = uid().unwrap();
    let script = "kill -STOP $(pgrep -f '^/usr/local/bin/argocd-applicationset-controlle[r]')";
    run(lab().args(["exec", world.place.lab(), "sh", "-c", script]));
    let by = if asked {
        let question = json!({ "metadata": { "annotations": { REFRESH_SET: "true" } } });
        world.api.patch(SET, &question);
        ", asked"
    } else {
        ""
    };
    let began = Instant::now();
    until("its Pod is another one", seconds(4 * LIMIT), || {
        uid().is_some_and(|new| new != before)
    });
    let what = format!("applicationset-controller stopped (SIGSTOP){by} → restarted");
    let took = shown(began.elapsed());
    figure("W12", &world.case(&what), "≤ probe + 90 s", took);
    let began = Instant::now();
    set_answered(world);
    let what = world.case("… applicationset-controller → function");
    figure("W12", &what, "≤ 60 s", shown(began.elapsed()));
}
