//! What an adoption keeps in the agent's namespace: Secrets `linesman-join`, `linesman-keys`, `linesman-state`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret as Object};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::timeout;

use super::{FIELD_MANAGER, engine_keys, told};
use crate::agent::identity::{Identity, SecretData, token_id};
use crate::agent::link::ProxyConfig;
use crate::clock;
use crate::keys::KeyPair;
use crate::manifests::{self, EngineNamespaces, HUB_MAP, JOIN_SECRET, KEYS_SECRET, STATE_SECRET};
use crate::secret::Secret;
use crate::trust::Kept;
use crate::wire::api::{Assignment, EngineKind, HubKey};
use crate::wire::id::ClusterName;

/// Of one call.
pub const DEADLINE: Duration = Duration::from_secs(10);
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Secret `linesman-join` as the owner applied it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// `None` once it is forgotten.
    pub token: Option<Secret<String>>,
    /// Whether the annotation of `kubectl apply` holds the token, too.
    pub echoed: bool,
    pub hub: String,
    pub hub_keys: Vec<HubKey>,
    pub ca: String,
    pub cluster: ClusterName,
    pub proxy: Option<ProxyConfig>,
}

/// Secret `linesman-state`: the answer to the join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its `hub` is the one in force, its `trust` is kept below.
    pub assignment: Assignment,
    /// The last set of the hub's URLs, CA and keys that verified.
    pub trust: Option<Kept>,
    /// The id of the token that was redeemed: should it come back, it is dropped.
    pub redeemed: String,
    /// What [`super::prepare`] has proven to be readable, so that a start without Git host does not wait for it.
    pub proven: String,
    /// As the cluster's own YAML said it last: that may be gone, or another cluster's. Absent = an agent of before did not keep it.
    pub way: Option<Way>,
}

/// The way to the hub: through a proxy, or without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way(pub Option<ProxyConfig>);

impl Way {
    pub fn of(join: &Join) -> Self {
        Self(join.proxy.clone())
    }

    /// As the YAML has it: the proxy's URL, and the list of what is reached without.
    fn texts(&self) -> [String; 2] {
        let Some(proxy) = &self.0 else {
            return [String::new(), String::new()];
        };
        let (address, credentials) = (&proxy.address, proxy.credentials.as_ref());
        let user = credentials.map(|text| text.expose().replace('%', "%25") + "@");
        let user = user.unwrap_or_default();
        [format!("http://{user}{address}"), proxy.bypass.join(",")]
    }
}

pub fn secrets(kube: &kube::Client, namespace: &str) -> Api<Object> {
    Api::namespaced(kube.clone(), namespace)
}

/// The bytes of a Secret's data.
pub fn data(object: &Object) -> SecretData {
    let data = object.data.clone().unwrap_or_default();
    data.into_iter()
        .map(|(key, value)| (key, value.0))
        .collect()
}

impl Join {
    pub fn read(object: &Object) -> Result<Self> {
        let data = data(object);
        let text = |key: &str| -> String {
            let bytes = data.get(key).map(Vec::as_slice).unwrap_or_default();
            String::from_utf8_lossy(bytes).trim().to_owned()
        };
        let annotations = object.metadata.annotations.as_ref();
        let echoed = annotations.is_some_and(|a| a.contains_key(LAST_APPLIED));
        let known = Self::known(text).with_context(|| format!("Secret {JOIN_SECRET}"))?;
        Ok(Self {
            token: Self::token(object),
            echoed,
            ..known
        })
    }

    fn token(object: &Object) -> Option<Secret<String>> {
        let token = object.data.as_ref()?.get("token")?;
        let token = String::from_utf8_lossy(&token.0).trim().to_owned();
        Some(token).filter(|t| !t.is_empty()).map(Secret::new)
    }

    /// What is said of the hub and of the way there, without a token.
    fn known(text: impl Fn(&str) -> String) -> Result<Self> {
        let hub = text("hub");
        if !hub.starts_with("https://") {
            bail!("key 'hub' is not an https:// URL; apply the adoption YAML again");
        }
        let cluster = text("cluster").parse().context("key 'cluster'")?;
        Ok(Self {
            token: None,
            echoed: false,
            hub,
            hub_keys: manifests::parse_hub_key_lines(&text("hub-key")),
            ca: text("ca.crt"),
            cluster,
            proxy: proxy(&text("proxy"), &text("no-proxy"))?,
        })
    }
}

/// The proxy's URL and a list as in `NO_PROXY`.
fn proxy(url: &str, bypass: &str) -> Result<Option<ProxyConfig>> {
    if url.is_empty() {
        return Ok(None);
    }
    let proxy = manifests::proxy::parse(url).context("key 'proxy'")?;
    Ok(Some(ProxyConfig {
        address: proxy.address,
        credentials: proxy.credentials,
        bypass: manifests::bypass::rules(bypass)
            .map(str::to_owned)
            .collect(),
    }))
}

/// Reads Secret `linesman-join`; `None` where it is not there.
pub async fn read_join(api: &Api<Object>) -> Result<Option<Join>> {
    let object = within(api.get_opt(JOIN_SECRET))
        .await
        .context("read Secret linesman-join")?;
    object.as_ref().map(Join::read).transpose()
}

/// The id of the join token that waits in Secret `linesman-join`; `None` where none does.
pub async fn waiting_token(kube: &kube::Client, namespace: &str) -> Result<Option<String>> {
    let object = within(secrets(kube, namespace).get_opt(JOIN_SECRET)).await;
    let token = object
        .context("read Secret linesman-join")?
        .as_ref()
        .and_then(Join::token);
    Ok(token.as_ref().and_then(token_id).map(str::to_owned))
}

/// Reads ConfigMap `linesman-hub`, which the catalog's copy of the agent brings; `None` where it is not there.
pub async fn read_hub(kube: &kube::Client, namespace: &str) -> Result<Option<Join>> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
    let map = within(maps.get_opt(HUB_MAP)).await;
    let map = map.context("read ConfigMap linesman-hub")?;
    let Some(map) = map else { return Ok(None) };
    let data = map.data.unwrap_or_default();
    let text = |key: &str| data.get(key).map(|text| text.trim().to_owned());
    let known = Join::known(|key| text(key).unwrap_or_default());
    Ok(Some(known.context("ConfigMap linesman-hub")?))
}

/// Removes this token and kubectl's copy of it; another one that came since stays.
pub async fn forget_token(api: &Api<Object>, redeemed: Option<&Secret<String>>) -> Result<()> {
    const DOING: &str = "remove the token from Secret linesman-join";
    let Some(object) = within(api.get_opt(JOIN_SECRET)).await.context(DOING)? else {
        return Ok(());
    };
    let token = Join::token(&object);
    // The watch tells of another one.
    if token.is_some() && token.as_ref().and_then(token_id) != redeemed.and_then(token_id) {
        return Ok(());
    }
    let mut metadata = json!({"annotations": {LAST_APPLIED: null}});
    if let Some(version) = object.metadata.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    let patch = json!({"data": {"token": null}, "metadata": metadata});
    let params = PatchParams::default();
    within(api.patch(JOIN_SECRET, &params, &Patch::Merge(patch)))
        .await
        .context(DOING)?;
    Ok(())
}

impl State {
    /// `None` where the Secret is missing or cannot be understood: then the cluster joins again, with the same keys.
    pub fn read(data: &SecretData) -> Option<Self> {
        let text = |key: &str| {
            let bytes = data.get(key)?;
            String::from_utf8(bytes.clone()).ok()
        };
        Some(Self {
            // An agent of a later version may have written it.
            assignment: told::read(data.get("assignment.json")?, None)
                .ok()?
                .assignment,
            trust: data
                .get("trust.json")
                .and_then(|bytes| serde_json::from_slice(bytes).ok()),
            redeemed: text("redeemed").unwrap_or_default(),
            proven: text("proven").unwrap_or_default(),
            way: text("proxy").and_then(|url| {
                let bypass = text("no-proxy").unwrap_or_default();
                proxy(&url, &bypass).ok().map(Way)
            }),
        })
    }

    pub fn to_data(&self) -> Result<SecretData> {
        let assignment =
            serde_json::to_vec(&self.assignment).context("write the assignment's JSON")?;
        let mut data = SecretData::from([
            ("assignment.json".to_owned(), assignment),
            ("redeemed".to_owned(), self.redeemed.clone().into_bytes()),
            ("proven".to_owned(), self.proven.clone().into_bytes()),
        ]);
        if let Some(kept) = &self.trust {
            let kept = serde_json::to_vec(kept).context("write the hub's keys as JSON")?;
            data.insert("trust.json".to_owned(), kept);
        }
        if let Some(way) = &self.way {
            let [url, bypass] = way.texts();
            data.insert("proxy".to_owned(), url.into_bytes());
            data.insert("no-proxy".to_owned(), bypass.into_bytes());
        }
        Ok(data)
    }
}

pub async fn read_state(api: &Api<Object>) -> Result<Option<State>> {
    let object = within(api.get_opt(STATE_SECRET))
        .await
        .context("read Secret linesman-state")?;
    Ok(object.and_then(|object| State::read(&data(&object))))
}

/// Writes a Secret of ours, whole.
pub async fn write(api: &Api<Object>, name: &str, data: &SecretData) -> Result<()> {
    let mut object = object(name, data);
    object.metadata.managed_fields = None;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    within(api.patch(name, &params, &Patch::Apply(object)))
        .await
        .with_context(|| format!("write Secret {name}"))?;
    Ok(())
}

fn object(name: &str, data: &SecretData) -> Object {
    let data: BTreeMap<_, _> = data
        .iter()
        .map(|(key, value)| (key.clone(), ByteString(value.clone())))
        .collect();
    Object {
        metadata: kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                [(
                    "app.kubernetes.io/part-of".to_owned(),
                    "linesman".to_owned(),
                )]
                .into(),
            ),
            ..kube::api::ObjectMeta::default()
        },
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Object::default()
    }
}

/// What the cluster's earlier life left of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// It may have joined: nothing says so, and there is no token to join with.
    Forgotten,
    /// Nothing: a token waits.
    None,
    /// It has joined with this engine.
    Joined(EngineKind),
}

impl Past {
    /// The engines in whose Secret the deploy key may lie.
    fn engines(self) -> &'static [EngineKind] {
        match self {
            Self::None => &[],
            Self::Joined(EngineKind::Flux) => &[EngineKind::Flux],
            Self::Joined(EngineKind::Argocd) => &[EngineKind::Argocd],
            Self::Forgotten => &[EngineKind::Flux, EngineKind::Argocd],
        }
    }
}

/// The cluster's keys: the stored ones, or new ones that are stored before anybody hears of them.
///
/// Two replicas may start at once, so they are created, never applied: the first wins. Of keys that cannot be read, what
/// is left is kept; in a cluster with a `past`, that is also the deploy key in the engine's own Secret. Where all else is
/// forgotten, that key alone shows that the cluster has joined.
pub async fn keys(
    kube: &kube::Client,
    namespace: &str,
    engines: &EngineNamespaces,
    cluster: &ClusterName,
    past: Past,
) -> Result<Identity> {
    let api = &secrets(kube, namespace);
    for _ in 0..3 {
        let stored = within(api.get_opt(KEYS_SECRET))
            .await
            .context("read Secret linesman-keys")?;
        if let Some(identity) = stored.as_ref().and_then(|o| Identity::from_data(&data(o))) {
            return Ok(identity);
        }
        let left = stored.as_ref().map(|o| Identity::halves(&data(o)));
        let [identity, mut deploy] = left.unwrap_or_default();
        for engine in past.engines() {
            if deploy.is_none() {
                deploy = engine_keys::deploy_copy(kube, engines, *engine).await?;
            }
        }
        let joined = match past {
            Past::None => false,
            Past::Forgotten => deploy.is_some(),
            Past::Joined(_) => true,
        };
        let fresh = rescued(joined, identity, deploy);
        let fresh_data = fresh.to_data(cluster).context("write new keys")?;
        if stored.is_some() {
            tracing::warn!("Secret linesman-keys cannot be read; writing it anew");
            write(api, KEYS_SECRET, &fresh_data).await?;
            return Ok(fresh);
        }
        let object = object(KEYS_SECRET, &fresh_data);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match timeout(DEADLINE, api.create(&params, &object)).await {
            Ok(Ok(_)) => return Ok(fresh),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => return Err(error).context("create Secret linesman-keys"),
            Err(_) => bail!("create Secret linesman-keys: no answer in 10 s"),
        }
    }
    bail!("Secret linesman-keys comes and goes")
}

/// Keys out of what is left of them. An identity that is new in a cluster that has joined has to be recovered; a deploy
/// key that is new there has to be registered.
fn rescued(joined: bool, identity: Option<KeyPair>, deploy: Option<KeyPair>) -> Identity {
    let fresh = Identity::from_seeds(&clock::random(), &clock::random());
    let deploy = deploy.filter(|d| identity.as_ref().is_none_or(|i| i.public() != d.public()));
    if joined {
        tracing::warn!(
            identity = identity.is_some(),
            deploy = deploy.is_some(),
            "keys were lost; this is what is left of them"
        );
    }
    Identity {
        lost: joined && identity.is_none(),
        unsettled: joined && deploy.is_none(),
        identity: identity.unwrap_or(fresh.identity),
        deploy: deploy.unwrap_or(fresh.deploy),
        ..Identity::from_seeds(&[0; 32], &[0; 32])
    }
}

/// A call to the API server with a deadline.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let answer = timeout(DEADLINE, call).await;
    Ok(answer.context("the API server did not answer in 10 s")??)
}

#[cfg(test)]
mod tests;
