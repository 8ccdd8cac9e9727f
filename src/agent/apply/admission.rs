//! Asking whether the API server takes a controller's Pods, without making one.

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::Status;
use serde_json::{Value, json};
use tracing::debug;

use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::engine::{MANAGER, RETRIED_AT};
use crate::agent::plan::barred::Denial;
use crate::agent::plan::history::Outcome;
use crate::bundle::ObjectId;
use crate::clock;

/// More of an answer is not kept.
const MAX_SAID: usize = 1000;

impl Hands<'_> {
    /// Has a controller's Pods made at once, if the API server takes them by now. Unchanged where it does not.
    ///
    /// A Deployment hands its annotations on to its ReplicaSet, and a change is what makes Kubernetes look.
    pub(super) async fn retry(&self, id: &ObjectId) -> Result<Outcome> {
        let live = self.api(id).get(&id.name).await_at_most(CALL).await;
        let live = live.with_context(|| format!("read {id}"))?;
        let pod = pod_of(&live).with_context(|| format!("{id} has no template of a Pod"))?;
        let pods: Api<Pod> = Api::namespaced(self.kube.clone(), &self.install.namespace);
        let asks = PostParams {
            dry_run: true,
            field_manager: Some(MANAGER.to_owned()),
        };
        match pods.create(&asks, &pod).await_at_most(CALL).await {
            Ok(_) => {}
            Err(Refused::Status(status)) if cannot_say(&status) => {}
            Err(Refused::Status(status)) if refuses(&status) => {
                debug!(object = %id, why = %status.message, "its Pods are still refused");
                let denial = Denial::new(clock::now(), &id.name, &brief(&status.message));
                self.view.denied(id, Some(denial));
                return Ok(Outcome::Unchanged);
            }
            Err(refused) => {
                return Err(anyhow!(refused).context(format!("try a Pod of {id}")));
            }
        }
        self.view.denied(id, None);
        let now = clock::rfc3339(clock::now());
        let looks = json!({"metadata": {"annotations": {RETRIED_AT: now}}});
        self.merge(id, &looks, MANAGER).await
    }
}

fn brief(message: &str) -> String {
    message.chars().take(MAX_SAID).collect()
}

/// The Pod that the controller would make.
fn pod_of(live: &DynamicObject) -> Option<Pod> {
    let template = live.data.pointer("/spec/template")?;
    let name = live.metadata.name.as_deref()?;
    let mut pod = template.clone();
    let fields = pod.as_object_mut()?;
    let of_template = |part: &str| template.pointer(&format!("/metadata/{part}"));
    fields.insert(
        "metadata".to_owned(),
        json!({
            "generateName": format!("{name}-"),
            "labels": of_template("labels").unwrap_or(&Value::Null),
            "annotations": of_template("annotations").unwrap_or(&Value::Null),
        }),
    );
    serde_json::from_value(pod).ok()
}

/// Whether it is the Pod that is refused. For want of the agent's own right it is a 403, too: then there is nothing to learn,
/// and nothing wrong either. A webhook that does not answer is a 500.
fn refuses(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 422) || status.message.contains("webhook")
}

/// A webhook with side effects is not asked in a dry run, and all of it is refused: only a Pod can tell.
fn cannot_say(status: &Status) -> bool {
    status.code == 400 && status.message.contains("does not support dry run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_made_of_the_template() {
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "source-controller", "annotations": {"its": "own"}},
            "spec": {"replicas": 1, "template": {
                "metadata": {"labels": {"app": "source-controller"}, "annotations": {"a": "b"}},
                "spec": {"containers": [{"name": "manager", "image": "x:1"}]},
            }},
        });
        let live: DynamicObject = serde_json::from_value(live).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "source-controller-",
                "labels": {"app": "source-controller"}, "annotations": {"a": "b"},
            },
            "spec": {"containers": [{"name": "manager", "image": "x:1"}]},
        });
        let pod = pod_of(&live).unwrap();
        assert_eq!(serde_json::to_value(pod).unwrap(), expected);
    }

    #[test]
    fn an_answer_of_the_admission_is_known() {
        for (code, message, refused, unsaid) in [
            (403, "exceeded quota: none, requested: pods=1", true, false),
            (
                403,
                "violates PodSecurity \"restricted:latest\"",
                true,
                false,
            ),
            (
                403,
                "admission webhook \"x\" denied the request",
                true,
                false,
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"x\"",
                true,
                false,
            ),
            (
                400,
                "admission webhook \"x\" does not support dry run",
                true,
                true,
            ),
            (
                403,
                "pods is forbidden: User \"x\" cannot create resource",
                true,
                false,
            ),
            (500, "etcdserver: request timed out", false, false),
            (429, "too many requests", false, false),
        ] {
            let status = Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            };
            let seen = (refuses(&status), cannot_say(&status));
            assert_eq!(seen, (refused, unsaid), "{message}");
        }
    }
}
