//! Keeps the token of `linesman-line`: asked for an hour, bound to Secret `linesman-line-bind`, renewed
//! after 80 % of its life and once when the API server refuses it. The Secret is the owner's kill switch:
//! it is made once, and whoever deletes it ends access through the line until they make it again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::upstream::Credential;
use crate::backoff::Schedule;
use crate::clock;
use crate::secret::Secret;

/// The ServiceAccount whose rights are all that the line has.
pub const SERVICE_ACCOUNT: &str = "linesman-line";
/// The Secret that its tokens are bound to.
pub const BIND_SECRET: &str = "linesman-line-bind";
/// Remembers that the Secret was made, so that a deleted one stays deleted.
const MARK: &str = "linesman-line";
const LIFE: Duration = Duration::from_hours(1);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};

/// Runs until `stop`; every change is published.
pub async fn keep(
    kube: kube::Client,
    namespace: String,
    publish: watch::Sender<Credential>,
    mut renew: mpsc::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let (mut serial, mut attempt) = (0_u64, 0_u32);
    // Whether the token in force still works as far as we know.
    let mut works_until = tokio::time::Instant::now();
    loop {
        let wait = match stop.run_until_cancelled(request(&kube, &namespace)).await {
            None => return Ok(()),
            Some(Ok(bearer)) => {
                (serial, attempt) = (serial + 1, 0);
                works_until = tokio::time::Instant::now() + LIFE;
                info!(serial, "token of linesman-line renewed");
                publish.send_replace(Credential::Token { bearer, serial });
                LIFE * 4 / 5
            }
            Some(Err(error)) => {
                let why = format!("{error:#}");
                warn!(error = why, "no token for linesman-line");
                if tokio::time::Instant::now() >= works_until {
                    publish.send_replace(Credential::Missing { why });
                }
                attempt += 1;
                RETRY.full_jitter(attempt - 1, clock::unit())
            }
        };
        let refused = async {
            // Only a refusal of the token in force counts; older ones are answered by it.
            while let Some(refused) = renew.recv().await {
                if refused == serial {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
            () = refused, if attempt == 0 => works_until = tokio::time::Instant::now(),
        }
    }
}

async fn request(kube: &kube::Client, namespace: &str) -> Result<Secret<String>> {
    let bound = bind(kube, namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(kube.clone(), namespace);
    let asked = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(BIND_SECRET.to_owned()),
                uid: Some(bound),
            }),
            expiration_seconds: i64::try_from(LIFE.as_secs()).ok(),
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &asked)
        .await
        .context("request a token for ServiceAccount linesman-line")?;
    let status = answer.status.context("the API server gave no token")?;
    Ok(Secret::new(status.token))
}

/// The UID of the Secret, made where it never was.
async fn bind(kube: &kube::Client, namespace: &str) -> Result<String> {
    let secrets: Api<KubeSecret> = Api::namespaced(kube.clone(), namespace);
    let marks: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
    let found = secrets
        .get_opt(BIND_SECRET)
        .await
        .context("read Secret linesman-line-bind")?;
    let marked = marks
        .get_opt(MARK)
        .await
        .context("read ConfigMap linesman-line")?
        .is_some();
    let secret = match found {
        Some(secret) => secret,
        None if marked => anyhow::bail!(
            "Secret linesman-line-bind was deleted, which ends access through the line; \
             to allow it again: kubectl -n {namespace} create secret generic linesman-line-bind"
        ),
        None => {
            let secret = serde_json::from_value(json!({
                "metadata": {"name": BIND_SECRET, "labels": {"app.kubernetes.io/managed-by": "linesman"},
                    "annotations": {"linesman.dev/purpose": "deleting this Secret ends access through the line"}},
                "type": "Opaque",
            }))?;
            secrets
                .create(&PostParams::default(), &secret)
                .await
                .context("create Secret linesman-line-bind")?
        }
    };
    if !marked {
        let mark = serde_json::from_value(json!({
            "metadata": {"name": MARK, "labels": {"app.kubernetes.io/managed-by": "linesman"}},
            "data": {"bind": BIND_SECRET},
        }))?;
        match marks.create(&PostParams::default(), &mark).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other.context("create ConfigMap linesman-line")?),
        }
    }
    secret
        .metadata
        .uid
        .context("Secret linesman-line-bind has no uid")
}
