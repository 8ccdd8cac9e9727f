//! The two ConfigMaps: what is in force, and what a change of it goes from and to.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};

use super::Keeper;
use crate::agent::InForce;
use crate::agent::enroll::FIELD_MANAGER;
use crate::agent::enroll::stored::within;
use crate::agent::plan::change::{Change, Form};
use crate::manifests::{BUNDLE_MAP, CHANGE_MAP};

/// In [`BUNDLE_MAP`].
pub(in crate::agent::enroll) const PACKED: &str = "bundle.zst";
/// In [`BUNDLE_MAP`]: where its objects live.
pub(in crate::agent::enroll) const NAMESPACE: &str = "namespace";
/// In [`CHANGE_MAP`]: the bundle of [`Change::from`].
pub(super) const BEFORE: &str = "before.zst";
/// In [`CHANGE_MAP`]: the bundle of [`Change::to`], where another engine takes the place of the one in force.
pub(super) const AFTER: &str = "after.zst";

impl Keeper {
    pub(super) async fn load(&self) -> Result<Option<InForce>> {
        let map = within(self.maps().get_opt(BUNDLE_MAP)).await;
        let Some(map) = map.context("read ConfigMap linesman-bundle")? else {
            return Ok(None);
        };
        let data = map.data.unwrap_or_default();
        // An agent before this one kept the digest alone.
        let form: Option<Form> = match data.get("form.json") {
            Some(text) => serde_json::from_str(text).ok(),
            None => data.get("digest").and_then(|digest| {
                Some(Form {
                    kind: None,
                    version: String::new(),
                    bundle: digest.parse().ok()?,
                    registry: None,
                    pull_secret: None,
                    path: String::new(),
                })
            }),
        };
        let packed = map.binary_data.and_then(|mut d| d.remove(PACKED));
        let (Some(mut form), Some(packed)) = (form, packed) else {
            return Ok(None);
        };
        let Ok(bundle) = self.unpack(&packed.0, &form.bundle) else {
            return Ok(None);
        };
        form.version.clone_from(&bundle.version);
        form.kind = Some(bundle.engine);
        Ok(Some(InForce {
            bundle: Arc::new(bundle),
            form,
            change: self.recall().await?,
            since: data.get("since").cloned(),
        }))
    }

    async fn recall(&self) -> Result<Option<Change>> {
        let map = within(self.maps().get_opt(CHANGE_MAP)).await;
        let map = map.context("read ConfigMap linesman-change")?;
        let data = map.and_then(|m| m.data).unwrap_or_default();
        let text = data.get("change.json");
        // What cannot be read is no change: then the hub's wish begins it anew.
        Ok(text.and_then(|text| serde_json::from_str(text).ok()))
    }

    pub(super) async fn store(&self, held: &InForce) -> Result<()> {
        let form = serde_json::to_string(&held.form).context("write the form's JSON")?;
        let mut data = BTreeMap::from([
            ("digest".to_owned(), held.form.bundle.to_string()),
            ("form.json".to_owned(), form),
            (NAMESPACE.to_owned(), held.bundle.namespace.clone()),
        ]);
        data.extend(held.since.iter().map(|at| ("since".to_owned(), at.clone())));
        let binary = [(PACKED.to_owned(), ByteString(held.bundle.pack()))];
        self.write(BUNDLE_MAP, data, binary.into()).await
    }

    /// Keeps a change, with what was before it; `None` = that is kept already.
    pub(super) async fn remember(&self, change: &Change, before: Option<Vec<u8>>) -> Result<()> {
        let after = self.packed(CHANGE_MAP, AFTER).await?;
        self.remember_both(change, before, after).await
    }

    pub(super) async fn remember_both(
        &self,
        change: &Change,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
    ) -> Result<()> {
        let before = match before {
            Some(packed) => Some(packed),
            None => self.packed(CHANGE_MAP, BEFORE).await?,
        };
        let text = serde_json::to_string(change).context("write the change's JSON")?;
        let data = BTreeMap::from([("change.json".to_owned(), text)]);
        let both = [(BEFORE, before), (AFTER, after)].into_iter();
        let binary = both.filter_map(|(key, packed)| Some((key.to_owned(), ByteString(packed?))));
        self.write(CHANGE_MAP, data, binary.collect()).await
    }

    pub(super) async fn drop_change(&self) -> Result<()> {
        let params = DeleteParams::default();
        match within(self.maps().delete(CHANGE_MAP, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error).context("delete ConfigMap linesman-change"),
        }
    }

    pub(super) async fn packed(&self, map: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let found = within(self.maps().get_opt(map)).await;
        let found = found.with_context(|| format!("read ConfigMap {map}"))?;
        let data = found.and_then(|m| m.binary_data);
        Ok(data.and_then(|mut d| d.remove(key)).map(|b| b.0))
    }

    async fn write(
        &self,
        name: &str,
        data: BTreeMap<String, String>,
        binary: BTreeMap<String, ByteString>,
    ) -> Result<()> {
        let part_of = ("app.kubernetes.io/part-of", "linesman");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(part_of.0.to_owned(), part_of.1.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            binary_data: Some(binary),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        within(self.maps().patch(name, &params, &Patch::Apply(map)))
            .await
            .with_context(|| format!("write ConfigMap {name}"))?;
        Ok(())
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.context.kube.clone(), &self.context.namespace)
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let api = error.downcast_ref::<kube::Error>();
    matches!(api, Some(kube::Error::Api(status)) if status.code == 404)
}
