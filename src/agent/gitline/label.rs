//! The label of the Pod that leads: Service `linesman-git` sends the engine's connections to whoever has it.
//!
//! A request that was given up may be served all the same, after those that were sent later. So a label that was written or taken
//! away is looked for again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::agent::enroll::stored::within;
use crate::manifests::{AGENT, LEADS};

/// For so long an API server may go on with a request whose sender has gone (its `--request-timeout`).
pub(super) const LATE: Duration = Duration::from_mins(1);
/// Between two looks at the label.
pub(super) const LOOK: Duration = Duration::from_secs(10);

/// A Pod that stands by, and when it was last seen to be without the label; none = not since it does.
#[derive(Debug, Default)]
pub struct Unmarked(Option<Instant>);

impl Unmarked {
    /// Takes the label away until that went well, then looks for it now and then.
    pub async fn keep(
        &mut self,
        kube: &kube::Client,
        (namespace, pod): (&str, &str),
        stop: &CancellationToken,
    ) {
        if self.0.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        let known = self.0.is_some();
        if known {
            let look = stop.run_until_cancelled(is_marked(kube, namespace, pod));
            match look.await {
                Some(Ok(true)) => info!(pod, "has the label of the Pod that leads again"),
                Some(Ok(false)) => {
                    self.0 = Some(Instant::now());
                    return;
                }
                Some(Err(error)) => {
                    debug!(error = format!("{error:#}"), "label of the leading Pod");
                    return;
                }
                None => return,
            }
        }
        if unmark(kube, namespace, pod, stop).await {
            self.0 = Some(Instant::now());
        }
    }
}

async fn is_marked(kube: &kube::Client, namespace: &str, pod: &str) -> Result<bool> {
    let pods = Api::<Pod>::namespaced(kube.clone(), namespace);
    let found = within(pods.get_metadata_opt(pod))
        .await
        .with_context(|| format!("read Pod {pod}"))?;
    let labels = found.and_then(|pod| pod.metadata.labels);
    Ok(labels.is_some_and(|labels| labels.contains_key(LEADS)))
}

/// Takes away the label of the Pod that leads; `false` = it may have it still.
pub async fn unmark(
    kube: &kube::Client,
    namespace: &str,
    pod: &str,
    stop: &CancellationToken,
) -> bool {
    let unmarked = stop.run_until_cancelled(mark(kube, namespace, pod, None));
    match unmarked.await {
        None => false,
        Some(Ok(())) => true,
        Some(Err(error)) => {
            let cause = error.downcast_ref::<kube::Error>();
            let no_pod = matches!(cause, Some(kube::Error::Api(status)) if status.code == 404);
            debug!(error = format!("{error:#}"), "label of the leading Pod");
            no_pod
        }
    }
}

pub(super) async fn mark(
    kube: &kube::Client,
    namespace: &str,
    pod: &str,
    value: Option<&str>,
) -> Result<()> {
    let pods = Api::<Pod>::namespaced(kube.clone(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"labels": {(LEADS): value}}}));
    within(pods.patch_metadata(pod, &PatchParams::default(), &patch))
        .await
        .with_context(|| format!("label Pod {pod}"))?;
    Ok(())
}

/// Takes the label away from each other Pod. The Service asks nobody whether a Pod is ready, so one whose node is gone, or that ends,
/// would go on to get half of the connections.
pub(super) async fn unmark_others(kube: &kube::Client, namespace: &str, pod: &str) -> Result<()> {
    let pods = Api::<Pod>::namespaced(kube.clone(), namespace);
    let selector = format!("app.kubernetes.io/name={AGENT},{LEADS}=true");
    let marked = within(pods.list_metadata(&ListParams::default().labels(&selector)))
        .await
        .context("list the Pods with the label of the one that leads")?;
    let names = marked.into_iter().filter_map(|pod| pod.metadata.name);
    let never = CancellationToken::new();
    for other in names.filter(|name| name != pod) {
        info!(pod = other, "has the label of the Pod that leads still");
        let unmarked = unmark(kube, namespace, &other, &never).await;
        ensure!(unmarked, "take that label away from Pod {other}");
    }
    Ok(())
}
