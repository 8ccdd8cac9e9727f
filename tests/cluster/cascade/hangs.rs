//! A write of the agent's that hangs while the guard is needed (W11).

use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::{KUSTOMIZATIONS, cut};
use crate::healing::{LIMIT, settle};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::world::{self, FLUX, World};
use crate::support::{eventually, figure, seconds, until};

/// W11: a write of the agent's that an admission webhook lets hang does not keep the guard waiting.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_step_that_hangs_does_not_keep_the_guard_waiting() {
    let world = world::adopted();
    settle(&world);
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    let brought = world.uid(hello).unwrap();
    let slow = Slow::for_new_deployments(&world);
    slow.lets_hang(&deployment(FLUX, "source-controller"));
    let mark = Mark::now(&world.audit);
    world.delete_guarded(KUSTOMIZATIONS);
    let (cut, _) = eventually("the audit log tells of the cut", seconds(60), || {
        cut(&mark, KUSTOMIZATIONS).ok_or("it does not")
    });
    figure(
        "W11",
        "CRD deleted while a write hangs at a webhook for 20 s → the engine has no rights to prune",
        "≤ 5 s",
        format!("{:.2} s", cut.as_secs_f64()),
    );
    drop(slow);
    assert!(cut < Duration::from_secs(10), "the guard waited: {cut:?}");
    settle(&world);
    assert_eq!(world.uid(hello), Some(brought), "it was pruned");
}

/// An admission webhook that is reached and never answers, so that each new Deployment of the engine's takes 20 s.
struct Slow<'a> {
    world: &'a World,
    listener: TcpListener,
    held: RefCell<Vec<TcpStream>>,
}

const SLOW: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/slow";

impl<'a> Slow<'a> {
    fn for_new_deployments(world: &'a World) -> Self {
        let listener = TcpListener::bind((world.place.host.as_str(), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let of_engine = json!({"matchLabels": {"kubernetes.io/metadata.name": FLUX}});
        let deployments = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
        });
        let webhook = json!({
            "name": "slow.nobody.test", "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 20,
            "admissionReviewVersions": ["v1"], "namespaceSelector": of_engine, "rules": [deployments],
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

    /// Deletes a Deployment until its creation waits here: the API server takes a moment to know the webhook.
    fn lets_hang(&self, object: &str) {
        until("the webhook is asked", seconds(LIMIT), || {
            let asked = self.listener.accept();
            if let Ok((connection, _)) = asked {
                self.held.borrow_mut().push(connection);
                return true;
            }
            self.world.api.delete(object);
            false
        });
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.world.api.delete(SLOW);
    }
}
