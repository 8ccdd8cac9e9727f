//! Pods of the engine: their controllers make new ones.

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};

use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::plan::history::Outcome;
use crate::agent::plan::{failed, superseded};
use crate::bundle::{Kind, ObjectId};

/// How long a StatefulSet's Pod has for its end, in seconds.
const STUCK_GRACE: u32 = 5;
/// Failed Pods that go in one step; the others go with the next.
const MAX_DROPPED: usize = 50;

impl Hands<'_> {
    /// Deletes the Pods of a controller that are older than `before`.
    pub(super) async fn restart(
        &self,
        id: &ObjectId,
        before: time::OffsetDateTime,
    ) -> Result<Outcome> {
        let old = self.observed.pods.iter().filter(|(_, pod)| {
            pod.app == id.name && !pod.deleting && pod.created.is_some_and(|at| at < before)
        });
        // A StatefulSet makes no new Pod before the old one is gone, and one that hangs does not go by itself.
        let grace = (id.kind == Kind::StatefulSet).then_some(STUCK_GRACE);
        for (name, pod) in old {
            self.delete_pod(name, &pod.uid, grace).await?;
        }
        Ok(Outcome::Done)
    }

    /// Deletes the Pods of a controller that have failed for good.
    pub(super) async fn drop_failed(&self, id: &ObjectId) -> Result<Outcome> {
        for (name, pod) in failed::of(self.observed, &id.name).take(MAX_DROPPED) {
            self.delete_pod(name, &pod.uid, None).await?;
        }
        Ok(Outcome::Done)
    }

    /// Deletes the Pods of a StatefulSet's former version that do not become ready. Its other shards go on.
    pub(super) async fn drop_superseded(&self, id: &ObjectId) -> Result<Outcome> {
        let Some(live) = self.observed.objects.get(id) else {
            return Ok(Outcome::Done);
        };
        for (name, pod) in superseded::of(self.observed, (id, live)) {
            self.delete_pod(name, &pod.uid, Some(STUCK_GRACE)).await?;
        }
        Ok(Outcome::Done)
    }

    /// Another Pod of the same name is left alone.
    async fn delete_pod(&self, name: &str, uid: &str, grace: Option<u32>) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.kube.clone(), &self.install.namespace);
        let mut params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        params.grace_period_seconds = grace;
        match pods.delete(name, &params).await_at_most(CALL).await {
            Ok(_) => Ok(()),
            Err(Refused::Status(status)) if status.code == 404 => Ok(()),
            Err(refused) => Err(anyhow!(refused).context(format!("delete Pod {name}"))),
        }
    }
}
