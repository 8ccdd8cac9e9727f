//! What Argo CD's parts share, kept in Secret `linesman-engine`: deleted in the engine's namespace, it comes back as
//! it was, for running Pods hold it.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;

use super::Context;
use super::stored::{data, secrets, within, write};
use crate::agent::engine::{argocd, flux};
use crate::agent::identity::SecretData;
use crate::agent::{Engine, EngineKeys};
use crate::clock;
use crate::keys::KeyPair;
use crate::manifests::{ENGINE_SECRET, EngineNamespaces};
use crate::secret::Secret;
use crate::wire::api::EngineKind;

const SESSION: &str = "session";
const REDIS: &str = "redis";

/// The engine with its secrets: those that are kept, else those that a former install runs with, else new ones.
pub(super) async fn engine(context: &Context, kind: EngineKind) -> Result<Engine> {
    match kind {
        EngineKind::Flux => Ok(Engine::Flux),
        EngineKind::Argocd => Ok(Engine::Argocd(keys(context).await?)),
    }
}

/// The deploy key as the engine's own Secret holds it: the second copy of it in the cluster.
pub(super) async fn deploy_copy(
    kube: &kube::Client,
    engines: &EngineNamespaces,
    kind: EngineKind,
) -> Result<Option<KeyPair>> {
    let (name, key) = match kind {
        EngineKind::Flux => (flux::NAME, "identity"),
        EngineKind::Argocd => (argocd::REPOSITORY, "sshPrivateKey"),
    };
    let theirs = secrets(kube, engines.of(kind));
    let text = live(&theirs, name, key).await?;
    Ok(text.and_then(|text| KeyPair::from_openssh(text.expose()).ok()))
}

async fn keys(context: &Context) -> Result<EngineKeys> {
    let kube = &context.kube;
    let ours = secrets(kube, &context.namespace);
    let kept = within(ours.get_opt(ENGINE_SECRET)).await;
    let kept = kept.context("read Secret linesman-engine")?;
    if let Some(keys) = kept.and_then(|object| read(&data(&object))) {
        return Ok(keys);
    }
    let theirs = secrets(kube, context.engines.of(EngineKind::Argocd));
    let found = [
        live(&theirs, "argocd-secret", "server.secretkey").await?,
        live(&theirs, "argocd-redis", "auth").await?,
    ];
    let [session, redis] = found.map(|value| value.unwrap_or_else(random));
    let keys = EngineKeys { session, redis };
    let kept: SecretData = [(SESSION, &keys.session), (REDIS, &keys.redis)]
        .map(|(key, value)| (key.to_owned(), value.expose().clone().into_bytes()))
        .into();
    write(&ours, ENGINE_SECRET, &kept).await?;
    Ok(keys)
}

fn read(data: &SecretData) -> Option<EngineKeys> {
    let text = |key: &str| {
        let text = String::from_utf8(data.get(key)?.clone()).ok()?;
        (!text.is_empty()).then(|| Secret::new(text))
    };
    Some(EngineKeys {
        session: text(SESSION)?,
        redis: text(REDIS)?,
    })
}

/// What an install that is there already uses. Without a Namespace there are no rights to look into it either.
async fn live(api: &Api<Object>, name: &str, key: &str) -> Result<Option<Secret<String>>> {
    let object = match within(api.get_opt(name)).await {
        Ok(object) => object,
        Err(error) if is_forbidden(&error) => None,
        Err(error) => return Err(error.context(format!("read Secret {name} of the engine"))),
    };
    let value = object.and_then(|o| data(&o).remove(key));
    let text = value.and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(text.filter(|t| !t.is_empty()).map(Secret::new))
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<kube::Error>();
    status.is_some_and(|e| matches!(e, kube::Error::Api(status) if status.code == 403))
}

fn random() -> Secret<String> {
    Secret::new(STANDARD.encode(clock::random::<32>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_lacks_one_of_them_counts_as_missing() {
        let whole: SecretData = [
            (SESSION.to_owned(), b"s".to_vec()),
            (REDIS.to_owned(), b"r".to_vec()),
        ]
        .into();
        assert_eq!(read(&whole).unwrap().redis.expose(), "r");
        for key in [SESSION, REDIS] {
            for bad in [None, Some(Vec::new()), Some(vec![0xff])] {
                let mut data = whole.clone();
                match bad {
                    None => data.remove(key),
                    Some(bytes) => data.insert(key.to_owned(), bytes),
                };
                assert!(read(&data).is_none(), "{key}");
            }
        }
    }
}
