//! A write of the agent's that hangs while the guard is needed (W11).

use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::{KUSTOMIZATIONS, cut};
use crate::healing::{LIMIT, settle};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::world::{self, FLUX, World};
use crate::support::{eventually, figure, seconds, until};

/// The agent's namespace.
const AGENT: &str = "linesman";

/// W11: a write of the agent's that an admission webhook lets hang does not keep the guard waiting.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_step_that_hangs_does_not_keep_the_guard_waiting() {
    let world = world::adopted();
    settle(&world);
    let slow = Slow::at(&world, FLUX, "apps", &["CREATE"], "deployments");
    slow.lets_hang(|| world.api.delete(&deployment(FLUX, "source-controller")));
    is_cut_meanwhile(
        &world,
        "CRD deleted while a write hangs at a webhook for 20 s",
        slow,
    );
}

/// W11: neither does what the agent keeps for itself: its record of the heal, on the way when the CRD is deleted.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_record_that_hangs_does_not_keep_the_guard_waiting() {
    let world = world::adopted();
    settle(&world);
    let service = path("v1", "Service", FLUX, "source-controller");
    let slow = Slow::at(&world, AGENT, "", &["CREATE", "UPDATE"], "configmaps");
    slow.lets_hang(|| world.api.delete(&service));
    is_cut_meanwhile(
        &world,
        "CRD deleted while the record of a heal hangs at a webhook for 20 s",
        slow,
    );
}

/// The engine's rights go while the agent waits for `slow`, and what the cluster runs is not pruned.
fn is_cut_meanwhile(world: &World, what: &str, slow: Slow<'_>) {
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    let brought = world.uid(hello).unwrap();
    let mark = Mark::now(&world.audit);
    world.delete_guarded(KUSTOMIZATIONS);
    let (cut, _) = eventually("the audit log tells of the cut", seconds(60), || {
        cut(&mark, KUSTOMIZATIONS).ok_or("it does not")
    });
    figure(
        "W11",
        &format!("{what} → the engine has no rights to prune"),
        "≤ 5 s",
        format!("{:.2} s", cut.as_secs_f64()),
    );
    drop(slow);
    assert!(cut < Duration::from_secs(10), "the guard waited: {cut:?}");
    settle(world);
    assert_eq!(world.uid(hello), Some(brought), "it was pruned");
}

/// An admission webhook that is reached and never answers, so that each write of a kind in a namespace takes 20 s.
struct Slow<'a> {
    world: &'a World,
    listener: TcpListener,
    held: RefCell<Vec<TcpStream>>,
}

const SLOW: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/slow";

impl<'a> Slow<'a> {
    fn at(
        world: &'a World,
        namespace: &str,
        group: &str,
        operations: &[&str],
        resource: &str,
    ) -> Self {
        let listener = TcpListener::bind((world.place.host.as_str(), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let there = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let writes = json!({
            "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resource],
        });
        let webhook = json!({
            "name": "slow.nobody.test", "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 20,
            "admissionReviewVersions": ["v1"], "namespaceSelector": there, "rules": [writes],
            "clientConfig": {"url": url},
        });
        let all = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "slow"}, "webhooks": [webhook],
        });
        let (webhooks, _) = SLOW.rsplit_once('/').unwrap();
        let slow = Self {
            world,
            listener,
            held: RefCell::default(),
        };
        world.api.create(webhooks, &all);
        slow
    }

    /// Deletes what the agent makes again until that write waits here: the API server takes a moment to know the webhook. What is
    /// not there is on its way back.
    fn lets_hang(&self, delete: impl Fn() -> bool) {
        let mut deleted = false;
        until("the webhook is asked", seconds(LIMIT), || {
            let asked = self.listener.accept();
            if let Ok((connection, _)) = asked {
                self.held.borrow_mut().push(connection);
                return true;
            }
            deleted |= delete();
            false
        });
        assert!(deleted, "there was nothing to delete");
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.world.api.delete(SLOW);
    }
}
