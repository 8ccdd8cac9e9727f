//! The open heals in the cluster: an agent that ends leaves them to the next one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use tracing::warn;

use super::record::Kept;
use crate::agent::apply::{AtMost as _, CALL};
use crate::agent::engine::MANAGER;

const NAME: &str = "linesman-open-heals";
const KEY: &str = "heals.json";

/// ConfigMap `linesman-open-heals` in the agent's namespace.
pub(super) struct OpenHeals {
    maps: Api<ConfigMap>,
    written: Vec<Kept>,
}

impl OpenHeals {
    pub(super) fn new(kube: &Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(kube.clone(), namespace),
            written: Vec::new(),
        }
    }

    /// What cannot be understood is told and left out: a broken record must not keep the agent from its work.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn load(&mut self) -> Result<Vec<Kept>> {
        let map = self.maps.get_opt(NAME).await_at_most(CALL).await;
        let map = map.with_context(|| format!("read ConfigMap {NAME}"))?;
        let text = map.and_then(|m| m.data).and_then(|mut d| d.remove(KEY));
        let Some(text) = text else {
            return Ok(Vec::new());
        };
        self.written = serde_json::from_str(&text).unwrap_or_else(|error| {
            warn!(%error, "ConfigMap {NAME} holds no open heals");
            Vec::new()
        });
        Ok(self.written.clone())
    }

    /// Writes them where they changed.
    pub(super) async fn store(&mut self, open: Vec<Kept>) {
        if open == self.written {
            return;
        }
        if let Err(error) = self.write(&open).await {
            warn!(
                error = format!("{error:#}"),
                "open heals are kept in memory only"
            );
            return;
        }
        self.written = open;
    }

    async fn write(&self, open: &[Kept]) -> Result<()> {
        let text = serde_json::to_string(open).context("write the open heals")?;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply(MANAGER).force();
        self.maps
            .patch(NAME, &params, &Patch::Apply(&map))
            .await_at_most(CALL)
            .await
            .with_context(|| format!("write ConfigMap {NAME}"))?;
        Ok(())
    }
}
