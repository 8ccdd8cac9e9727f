//! Repositories whose host is silent: they take their time, and the root waits until a worker is free.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::git::{asks, pods_of};
use crate::healing::{LIMIT, on_record, settle, since};
use crate::support::audit::Mark;
use crate::support::world::{self, FLUX, World};
use crate::support::{closely, figure, seconds, shown, until};

/// More than source-controller has workers for one kind.
const SLOW: usize = 4;
/// Longer than a probe of the root waits for when nothing is in its way, in seconds.
const TIMEOUT: u64 = 150;
const REPOSITORIES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories";

/// Repositories at a host that takes connections and says nothing.
struct Silence<'a> {
    world: &'a World,
    _host: TcpListener,
}

impl<'a> Silence<'a> {
    fn of(world: &'a World) -> Self {
        let host = TcpListener::bind((world.place.host.as_str(), 0)).unwrap();
        let port = host.local_addr().unwrap().port();
        for n in 0..SLOW {
            let repository = json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": format!("slow-{n}")},
                "spec": {
                    "interval": "10m", "timeout": format!("{TIMEOUT}s"),
                    "url": format!("http://{}:{port}/slow-{n}.git", world.place.host),
                },
            });
            world.api.create(REPOSITORIES, &repository);
        }
        // Before that each has been touched only to give it its finalizer.
        until("both workers are at it", seconds(LIMIT), || {
            let all = world.api.get(REPOSITORIES).unwrap_or_default();
            let all = all["items"].as_array().cloned().unwrap_or_default();
            let begun = all
                .iter()
                .filter(|one| one["status"]["conditions"].is_array());
            begun.count() >= 2
        });
        Self { world, _host: host }
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        for n in 0..SLOW {
            self.world.api.delete(&format!("{REPOSITORIES}/slow-{n}"));
        }
    }
}

/// W12: source-controller is busy, not wedged: it is not restarted, and nothing is called a fault of it.
pub(crate) fn behind_slow_repositories(world: &World) {
    settle(world);
    let (before, pods) = (on_record(world), pods_of(world));
    let mark = Mark::now(&world.audit);
    let silence = Silence::of(world);
    let root = world::git_repository(FLUX);
    asks(world);
    let took = closely("the root has had its turn", seconds(4 * LIMIT), || {
        let live = world.api.get(&root).unwrap();
        let asked = &live["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
        *asked == live["status"]["lastHandledReconcileAt"]
    });
    figure(
        "W12",
        &format!(
            "{SLOW} repositories whose host says nothing for {TIMEOUT} s → the root has its turn"
        ),
        "",
        shown(took),
    );
    let written = mark.first_mending_write();
    drop(silence);
    assert!(took > seconds(100), "nothing was in the root's way");
    assert_eq!(written, None, "the agent wrote");
    assert_eq!(pods_of(world), pods);
    settle(world);
    let new = since(world, &before);
    let classes: Vec<&Value> = new.iter().map(|h| &h["class"]).collect();
    assert!(!classes.contains(&&json!("QueueWedged")), "{new:#?}");
}
