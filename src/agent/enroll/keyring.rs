//! The cluster's keys while the agent runs: a change is stored before anybody uses it.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Context, keep, stored};
use crate::agent::identity::{Identity, SecretData};
use crate::manifests::KEYS_SECRET;
use crate::wire::id::ClusterName;

/// Secret `linesman-keys`, and the keys in it for all who use them. Only one task changes them.
pub struct Keyring {
    secrets: Api<Object>,
    cluster: ClusterName,
    /// What the Secret has to hold.
    wanted: watch::Sender<Option<SecretData>>,
    current: watch::Sender<Identity>,
}

impl Keyring {
    /// `identity` stands in the Secret already.
    pub fn new(secrets: Api<Object>, cluster: &ClusterName, identity: Identity) -> Result<Self> {
        let data = identity.to_data(cluster).context("write the keys")?;
        Ok(Self {
            secrets,
            cluster: cluster.clone(),
            wanted: watch::Sender::new(Some(data)),
            current: watch::Sender::new(identity),
        })
    }

    pub fn current(&self) -> watch::Receiver<Identity> {
        self.current.subscribe()
    }

    /// Stores `next`, then tells everybody. After an error the Secret may hold either; the users have the old keys.
    pub async fn replace(&self, next: Identity) -> Result<()> {
        let data = next.to_data(&self.cluster).context("write the keys")?;
        // Before the write: else whoever keeps the Secret would take the new keys for damage.
        self.wanted.send_replace(Some(data.clone()));
        stored::write(&self.secrets, KEYS_SECRET, &data).await?;
        self.current.send_replace(next);
        Ok(())
    }

    /// Keeps the Secret as it has to be until `stop`: deleted or garbled, it is back within seconds.
    pub fn keep(
        &self,
        context: Context,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let wanted = self.wanted.subscribe();
        let known = wanted.clone();
        let same = move |data: &SecretData| {
            let known = known.borrow().as_ref().and_then(Identity::from_data);
            known.is_some_and(|identity| identity.same_as(data))
        };
        keep::secret(context, KEYS_SECRET, wanted, same, stop)
    }
}
