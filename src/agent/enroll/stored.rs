//! What an adoption keeps in the agent's namespace: Secrets `linesman-join`, `linesman-keys`, `linesman-state`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::timeout;

use super::{FIELD_MANAGER, engine_keys, told};
use crate::agent::identity::{Identity, SecretData};
use crate::agent::link::ProxyConfig;
use crate::clock;
use crate::keys::KeyPair;
use crate::manifests::{self, EngineNamespaces, JOIN_SECRET, KEYS_SECRET, STATE_SECRET};
use crate::secret::Secret;
use crate::trust::Kept;
use crate::wire::api::{Assignment, EngineKind, HubKey};
use crate::wire::id::ClusterName;

const DEADLINE: Duration = Duration::from_secs(10);
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Secret `linesman-join` as the owner applied it.
#[derive(Debug, Clone)]
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
        let hub = text("hub");
        if !hub.starts_with("https://") {
            bail!(
                "Secret {JOIN_SECRET}: key 'hub' is not an https:// URL; apply the adoption YAML again"
            );
        }
        let cluster = text("cluster")
            .parse()
            .with_context(|| format!("Secret {JOIN_SECRET}: key 'cluster'"))?;
        let token = Some(text("token"))
            .filter(|t| !t.is_empty())
            .map(Secret::new);
        let annotations = object.metadata.annotations.as_ref();
        Ok(Self {
            token,
            echoed: annotations.is_some_and(|a| a.contains_key(LAST_APPLIED)),
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
    let proxy = manifests::proxy::parse(url)
        .with_context(|| format!("Secret {JOIN_SECRET}: key 'proxy'"))?;
    Ok(Some(ProxyConfig {
        address: proxy.address,
        credentials: proxy.credentials,
        bypass: bypass
            .split([',', ' '])
            .filter(|part| !part.is_empty())
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

/// Removes the token and kubectl's copy of it.
pub async fn forget_token(api: &Api<Object>) -> Result<()> {
    let patch = json!({
        "data": {"token": null},
        "metadata": {"annotations": {LAST_APPLIED: null}},
    });
    let params = PatchParams::default();
    within(api.patch(JOIN_SECRET, &params, &Patch::Merge(patch)))
        .await
        .context("remove the token from Secret linesman-join")?;
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

/// The cluster's keys: the stored ones, or new ones that are stored before anybody hears of them.
///
/// Two replicas may start at once, so they are created, never applied: the first wins. Of keys that cannot be read, what
/// is left is kept; in a cluster that has `joined` with this engine, that is also the deploy key in the engine's own Secret.
pub async fn keys(
    kube: &kube::Client,
    namespace: &str,
    engines: &EngineNamespaces,
    cluster: &ClusterName,
    joined: Option<EngineKind>,
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
        let [identity, deploy] = left.unwrap_or_default();
        let deploy = match (deploy, joined) {
            (None, Some(engine)) => engine_keys::deploy_copy(kube, engines, engine).await?,
            (deploy, _) => deploy,
        };
        let fresh = rescued(joined.is_some(), identity, deploy);
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
mod tests {
    use super::*;

    fn object(pairs: &[(&str, &str)]) -> Object {
        let data = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
            .collect();
        super::object(JOIN_SECRET, &data)
    }

    #[test]
    fn the_join_secret_of_the_manifests_is_read() {
        let mut object = object(&[
            ("token", "lmj1.a.b\n"),
            ("hub", "https://hub.example.com"),
            ("hub-key", "k1 AAAA\n"),
            ("ca.crt", ""),
            ("cluster", "eu1"),
            ("proxy", "http://user:p%40ss@proxy:3128/"),
            ("no-proxy", ".svc,10.0.0.0/8"),
        ]);
        object.metadata.annotations = Some([(LAST_APPLIED.to_owned(), "{}".to_owned())].into());
        let join = Join::read(&object).unwrap();
        assert_eq!(join.token, Some(Secret::new("lmj1.a.b".to_owned())));
        assert!(join.echoed);
        assert_eq!(join.cluster.as_str(), "eu1");
        assert_eq!(join.hub_keys.len(), 1);
        let proxy = join.proxy.unwrap();
        assert_eq!(proxy.address, "proxy:3128");
        assert_eq!(proxy.credentials, Some(Secret::new("user:p@ss".to_owned())));
        assert_eq!(proxy.bypass, [".svc", "10.0.0.0/8"]);
    }

    #[test]
    fn a_join_secret_without_hub_or_cluster_names_the_key() {
        let error = Join::read(&object(&[("cluster", "eu1")])).unwrap_err();
        assert!(error.to_string().contains("'hub'"), "{error}");
        let error = Join::read(&object(&[("hub", "https://h")])).unwrap_err();
        assert!(error.to_string().contains("'cluster'"), "{error}");
        let bad = [("hub", "https://h"), ("cluster", "eu1"), ("proxy", "proxy")];
        let error = Join::read(&object(&bad)).unwrap_err();
        assert!(error.to_string().contains("'proxy'"), "{error}");
    }

    #[test]
    fn what_is_left_of_lost_keys_is_kept() {
        let [identity, deploy] = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]));
        let publics = |keys: &Identity| (keys.identity.public(), keys.deploy.public());
        let keys = rescued(true, None, Some(deploy.clone()));
        assert!(keys.lost && !keys.unsettled && keys.deploy.public() == deploy.public());
        let keys = rescued(true, Some(identity.clone()), None);
        assert!(!keys.lost && keys.unsettled && keys.identity.public() == identity.public());
        let keys = rescued(true, None, None);
        assert!(keys.lost && keys.unsettled && keys.identity.public() != keys.deploy.public());
        // A cluster that never joined has nothing to recover.
        let keys = rescued(false, None, None);
        assert!(!keys.lost && !keys.unsettled);
        assert_ne!(publics(&keys), publics(&rescued(false, None, None)));
    }

    #[test]
    fn a_state_is_read_as_it_was_stored_and_without_a_set_that_is_garbled() {
        let assignment = serde_json::from_value(json!({
            "cluster": {"name": "eu1", "id": "c"},
            "hub": {"id": "h", "urls": [], "ca": "", "keyset": []},
            "catalog": {"url": "", "via": "direct", "branch": "", "path": "", "knownHosts": "", "deployKey": {"state": "pending"}},
            "engine": {"kind": "flux", "version": "2", "bundle": format!("sha256:{}", "00".repeat(32)), "size": 0},
            "revision": 1,
        }));
        let trust = serde_json::from_value(json!({
            "hubId": "h", "pins": ["k"],
            "bundle": {"version": 7, "urls": ["https://h"], "ca": "", "keyset": [], "sig": "s"},
        }));
        let state = State {
            assignment: assignment.unwrap(),
            trust: Some(trust.unwrap()),
            redeemed: "r".to_owned(),
            proven: "p".to_owned(),
        };
        let mut data = state.to_data().unwrap();
        assert_eq!(State::read(&data), Some(state.clone()));
        data.insert("trust.json".to_owned(), b"{".to_vec());
        let without = State {
            trust: None,
            ..state
        };
        assert_eq!(State::read(&data), Some(without.clone()));
        data.remove("trust.json");
        assert_eq!(without.to_data().unwrap(), data);
    }

    #[test]
    fn a_garbled_state_counts_as_missing() {
        assert_eq!(State::read(&SecretData::new()), None);
        let garbled = [("assignment.json".to_owned(), b"{".to_vec())].into();
        assert_eq!(State::read(&garbled), None);
    }
}
