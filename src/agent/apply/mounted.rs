//! Host keys and signers' keys that Pods mount reach them at once.
//!
//! A kubelet knows of a changed ConfigMap within moments, but writes it into its volumes only when it syncs the Pod: every
//! minute or so, or when one of the Pod's own annotations changes (<https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/>,
//! "Mounted ConfigMaps are updated automatically"). Measured with a kubelet 1.35 as it comes: 60 to 73 s by itself, about 1 s so.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;
use tracing::debug;

use super::{AtMost as _, CALL, Hands};
use crate::agent::engine::MANAGER;
use crate::agent::engine::argocd::REPO_SERVER;
use crate::clock;

/// When the Pod's host keys, or its ring of signers' keys, were written last.
const WRITTEN_AT: &str = "linesman.dev/host-keys-at";
/// The kubelet hears of the ConfigMap and of the Pod in two watches; the ConfigMap has to be first.
const HEARD: Duration = Duration::from_millis(500);

impl Hands<'_> {
    /// Makes the kubelet write what the repo-server mounts. Where that fails, it does so by itself a little later.
    pub(super) async fn remount(&self) {
        let readers = self.observed.pods.iter();
        let readers = readers.filter(|(_, pod)| pod.app == REPO_SERVER && !pod.deleting);
        let readers: Vec<&String> = readers.map(|(name, _)| name).collect();
        if readers.is_empty() {
            return;
        }
        sleep(HEARD).await;
        let pods: Api<Pod> = Api::namespaced(self.kube.clone(), &self.install.namespace);
        let now = clock::rfc3339(clock::now());
        let patch = json!({"metadata": {"annotations": {WRITTEN_AT: now}}});
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        for name in readers {
            let patch = Patch::Merge(&patch);
            let call = pods.patch(name, &params, &patch);
            if let Err(error) = call.await_at_most(CALL).await {
                debug!(pod = name, %error, "its keys follow with the kubelet's next sync");
            }
        }
    }
}
