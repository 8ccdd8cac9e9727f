//! Keeps the token of `linesman-line`: asked for an hour, bound to Secret `linesman-line-bind`, renewed
//! after 80 % of its life and once when the API server refuses it. The Secret is the owner's kill switch:
//! it is made once, and whoever deletes it ends access through the line until they make it again. It is
//! watched, so that both take effect at once and not when a token is next looked at.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::{Stream, StreamExt as _, stream};
use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret as KubeSecret, ServiceAccount};
use kube::api::{Api, ObjectMeta, PartialObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::call;
use super::upstream::{Credential, authorization};
use crate::backoff::Schedule;
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::secret::Secret;

/// The ServiceAccount whose rights are all that the line has.
pub const SERVICE_ACCOUNT: &str = "linesman-line";
/// The Secret that its tokens are bound to.
pub const BIND_SECRET: &str = "linesman-line-bind";
/// Remembers that the Secret was made, so that a deleted one stays deleted.
const MARK: &str = "linesman-line";
const LIFE: Duration = Duration::from_hours(1);
/// A watch has this long for its first word, which comes after a list; its own pause after a failure is not longer.
const FIRST: Duration = Duration::from_secs(45);
/// Over a connection that is dead nothing comes either: what was quiet for so long is begun anew.
const QUIET: Duration = Duration::from_mins(1);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};

/// What asking for a token came to.
enum Asked {
    Token {
        bearer: Secret<HeaderValue>,
        /// The UID of the Secret that it is bound to.
        bound: String,
    },
    /// The Secret was deleted.
    Withdrawn,
}

/// What the keeper works with.
pub struct Keeper {
    pub kube: kube::Client,
    /// The agent's.
    pub namespace: String,
    pub publish: watch::Sender<Credential>,
    /// Beats after each call, which has a deadline.
    pub heart: Heart,
}

/// Runs until `stop`; every change is published.
pub async fn keep(
    keeper: Keeper,
    mut renew: mpsc::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let (mut serial, mut attempt) = (0_u64, 0_u32);
    let mut bound = None;
    // Whether the token in force still works as far as we know.
    let mut works_until = tokio::time::Instant::now();
    let mut secret = uids(&keeper.kube, &keeper.namespace).boxed();
    let publish = &keeper.publish;
    loop {
        let wait = match stop.run_until_cancelled(keeper.request()).await {
            None => return Ok(()),
            Some(Ok(Asked::Token { bearer, bound: uid })) => {
                (serial, attempt, bound) = (serial + 1, 0, Some(uid.clone()));
                works_until = tokio::time::Instant::now() + LIFE;
                info!(serial, "token of linesman-line renewed");
                publish.send_replace(Credential::Token {
                    bearer,
                    serial,
                    bound: uid,
                });
                LIFE * 4 / 5
            }
            Some(Ok(Asked::Withdrawn)) => {
                (attempt, bound) = (0, None);
                works_until = tokio::time::Instant::now();
                withdraw(publish, &keeper.namespace);
                RETRY.cap
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
        let next = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = refused(&mut renew, serial) => works_until = tokio::time::Instant::now(),
                () = changed(&mut secret, bound.as_deref()) => attempt = 0,
            }
        };
        keeper.heart.through(next).await;
    }
}

fn withdraw(publish: &watch::Sender<Credential>, namespace: &str) {
    let namespace = namespace.to_owned();
    publish.send_if_modified(|now| {
        let first = !matches!(now, Credential::Withdrawn { .. });
        if first {
            warn!("access through the line was withdrawn: Secret {BIND_SECRET} was deleted");
            *now = Credential::Withdrawn { namespace };
        }
        first
    });
}

/// Completes when the token with this serial was refused; the refusal of an older one says nothing of it.
async fn refused(renew: &mut mpsc::Receiver<u64>, serial: u64) {
    while let Some(refused) = renew.recv().await {
        if refused == serial {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Completes when the Secret is another than the one with the UID `bound`.
async fn changed(secret: &mut (impl Stream<Item = Option<String>> + Unpin), bound: Option<&str>) {
    while let Some(uid) = secret.next().await {
        if uid.as_deref() != bound {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// The Secret's UID each time it changes, and each time it is looked at anew; `None` where there is no Secret. Its content is
/// not asked for.
fn uids(kube: &kube::Client, namespace: &str) -> impl Stream<Item = Option<String>> + use<> {
    let (kube, namespace) = (kube.clone(), namespace.to_owned());
    let begun = move || {
        let secrets: Api<PartialObjectMeta<KubeSecret>> = Api::namespaced(kube.clone(), &namespace);
        let watched = watch_object(secrets, BIND_SECRET).default_backoff();
        (watched.boxed(), FIRST)
    };
    stream::unfold(begun(), move |(mut watched, mut limit)| {
        let begun = begun.clone();
        async move {
            loop {
                match timeout(limit, watched.next()).await {
                    Ok(Some(Ok(secret))) => {
                        let uid = secret.and_then(|secret| living(&secret.metadata));
                        return Some((uid, (watched, QUIET)));
                    }
                    Ok(Some(Err(error))) => debug!(%error, "watch of {BIND_SECRET}"),
                    Ok(None) | Err(_) => (watched, limit) = begun(),
                }
            }
        }
    })
}

/// The UID of an object that is not being deleted.
fn living(metadata: &ObjectMeta) -> Option<String> {
    metadata
        .uid
        .clone()
        .filter(|_| metadata.deletion_timestamp.is_none())
}

impl Keeper {
    async fn request(&self) -> Result<Asked> {
        let Some(bound) = self.bind().await? else {
            return Ok(Asked::Withdrawn);
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.kube.clone(), &self.namespace);
        let asked = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Secret".to_owned()),
                    name: Some(BIND_SECRET.to_owned()),
                    uid: Some(bound.clone()),
                }),
                expiration_seconds: i64::try_from(LIFE.as_secs()).ok(),
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let answer = call(
            &self.heart,
            accounts.create_token_request(SERVICE_ACCOUNT, &params, &asked),
        )
        .await
        .context("request a token for ServiceAccount linesman-line")?;
        let status = answer.status.context("the API server gave no token")?;
        let bearer = authorization(&status.token)
            .context("use the token of ServiceAccount linesman-line")?;
        Ok(Asked::Token { bearer, bound })
    }

    /// The UID of the Secret, made where it never was; `None` where it was deleted.
    async fn bind(&self) -> Result<Option<String>> {
        let (kube, namespace) = (&self.kube, &self.namespace);
        let secrets: Api<PartialObjectMeta<KubeSecret>> = Api::namespaced(kube.clone(), namespace);
        let marks: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
        let found = call(&self.heart, secrets.get_opt(BIND_SECRET))
            .await
            .context("read Secret linesman-line-bind")?;
        let marked = call(&self.heart, marks.get_opt(MARK))
            .await
            .context("read ConfigMap linesman-line")?
            .is_some();
        let uid = match found {
            Some(secret) => living(&secret.metadata),
            None if marked => None,
            None => Some(self.make().await?),
        };
        if !marked {
            let mark = serde_json::from_value(json!({
                "metadata": {"name": MARK, "labels": {"app.kubernetes.io/managed-by": "linesman"}},
                "data": {"bind": BIND_SECRET},
            }))?;
            let params = PostParams::default();
            match call(&self.heart, marks.create(&params, &mark)).await {
                Err(error) if is_there(&error) => {}
                other => drop(other.context("create ConfigMap linesman-line")?),
            }
        }
        Ok(uid)
    }

    async fn make(&self) -> Result<String> {
        let secrets: Api<KubeSecret> = Api::namespaced(self.kube.clone(), &self.namespace);
        let secret = serde_json::from_value(json!({
            "metadata": {"name": BIND_SECRET, "labels": {"app.kubernetes.io/managed-by": "linesman"},
                "annotations": {"linesman.dev/purpose": "deleting this Secret ends access through the line"}},
            "type": "Opaque",
        }))?;
        let made = call(&self.heart, secrets.create(&PostParams::default(), &secret))
            .await
            .context("create Secret linesman-line-bind")?;
        made.metadata
            .uid
            .context("Secret linesman-line-bind has no uid")
    }
}

/// Whether it could not be made because it is there.
fn is_there(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<kube::Error>();
    matches!(error, Some(kube::Error::Api(status)) if status.code == 409)
}

#[cfg(test)]
mod tests;
