//! What is deleted: for good, or to be made anew where the API server lets nobody change a field.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Preconditions, PropagationPolicy};
use tokio::time::{sleep, timeout};

use super::forms::replaceable;
use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::plan::history::Outcome;
use crate::bundle::ObjectId;

/// For what is deleted to be made anew.
const GOING: Duration = Duration::from_secs(30);

impl Hands<'_> {
    /// Deletes an object of ours that is not wanted any more.
    pub async fn forget(&self, id: &ObjectId, uid: &str) -> Result<()> {
        let how = PropagationPolicy::Background;
        self.delete(id, uid, how).await.map(drop)
    }

    pub(super) async fn delete(
        &self,
        id: &ObjectId,
        uid: &str,
        how: PropagationPolicy,
    ) -> Result<Outcome> {
        let params = DeleteParams {
            propagation_policy: Some(how),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self
            .api(id)
            .delete(&id.name, &params)
            .await_at_most(CALL)
            .await
        {
            Ok(_) => {}
            Err(Refused::Status(status)) if status.code == 404 => {}
            Err(refused) => return Err(anyhow!(refused).context(format!("delete {id}"))),
        }
        self.view.put(id, None);
        Ok(Outcome::Done)
    }

    /// A controller's Pods then choose a leader anew.
    pub(super) async fn free_lease(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Outcome> {
        let leases: Api<Lease> = Api::namespaced(self.kube.clone(), namespace);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        match leases.delete(name, &params).await_at_most(CALL).await {
            Ok(_) => {}
            Err(Refused::Status(status)) if matches!(status.code, 404 | 409) => {}
            Err(refused) => return Err(anyhow!(refused).context(format!("delete Lease {name}"))),
        }
        self.view.forget_lease(name);
        Ok(Outcome::Done)
    }

    /// For fields that the API server does not let anybody change.
    pub(super) async fn recreate(&self, id: &ObjectId, uid: &str) -> Result<Outcome> {
        anyhow::ensure!(replaceable(id.kind), "{id} is never deleted");
        let body = self.whole(id, None)?;
        // The new one must not meet what the old one leaves behind, as a Deployment its Pods.
        self.delete(id, uid, PropagationPolicy::Foreground).await?;
        let mut unseen = None;
        let free = timeout(GOING, self.is_free(id, uid, &mut unseen)).await;
        match free {
            Ok(true) => {
                let sent = self.send(id, &body).await;
                sent.with_context(|| format!("apply {id}"))?;
                self.keep(id).await;
                Ok(Outcome::Done)
            }
            // Who makes it again as it was is not fought without an end.
            Ok(false) => Err(anyhow!("somebody else has made {id} anew meanwhile")),
            Err(_) => Err(match unseen {
                Some(refused) => anyhow!(refused).context(format!("look whether {id} is gone")),
                None => anyhow!("{id} is still being deleted after {} s", GOING.as_secs()),
            }),
        }
    }

    /// Waits until the object of this UID is gone: true = nobody has its name, false = another one has. A look that fails is made again,
    /// for what was deleted is to come back; why the last one did is in `unseen`.
    async fn is_free(&self, id: &ObjectId, uid: &str, unseen: &mut Option<Refused>) -> bool {
        loop {
            let look = self.api(id).get_opt(&id.name).await_at_most(CALL).await;
            *unseen = match look {
                Ok(None) => return true,
                Ok(Some(live)) if live.metadata.uid.as_deref() != Some(uid) => {
                    self.learn(id, live);
                    return false;
                }
                Ok(Some(_)) => None,
                Err(refused) => Some(refused),
            };
            sleep(Duration::from_millis(500)).await;
        }
    }
}
