//! Sync objects that die with their CRD and that Git will not bring back, kept in the cluster until they are back, so
//! that an agent which ends in between goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use tracing::{info, warn};

use super::apply::{AtMost as _, CALL, Refused};
use super::engine::MANAGER;
use crate::bundle::{self, Kind, ObjectId};
use crate::clock;
use crate::keys::sha256_hex;

const LABEL: &str = "linesman.dev/saved";
/// A ConfigMap holds 1 MiB, base64 and all else of it included.
const PART: usize = 700 << 10;
/// Parts of one CRD's objects: some hundred thousand objects.
const MAX_PARTS: usize = 16;
const MAX_PLAIN: u64 = 64 << 20;
/// What could not be brought back for so long is somebody's decision by now.
const STALE: Duration = Duration::hours(24);

/// The ConfigMaps `linesman-saved-<plural>-<part>` in the agent's namespace.
#[derive(Clone)]
pub struct Saves(Api<ConfigMap>);

impl Saves {
    pub fn new(kube: &Client, namespace: &str) -> Self {
        Self(Api::namespaced(kube.clone(), namespace))
    }

    /// What an earlier agent saved and did not bring back. What is damaged or a day old is told and left out.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn load(&self, now: OffsetDateTime) -> Result<BTreeMap<ObjectId, Vec<Value>>> {
        let list = self.list().await?;
        let mut by_crd: BTreeMap<String, Vec<&ConfigMap>> = BTreeMap::new();
        for map in &list {
            let crd = map.data.as_ref().and_then(|data| data.get("crd"));
            by_crd
                .entry(crd.cloned().unwrap_or_default())
                .or_default()
                .push(map);
        }
        let mut all = BTreeMap::new();
        for (crd, maps) in by_crd {
            match read(&maps, now) {
                Ok(objects) => {
                    info!(crd, objects = objects.len(), "objects to bring back");
                    all.insert(
                        ObjectId::new(Kind::CustomResourceDefinition, "", &crd),
                        objects,
                    );
                }
                Err(error) => warn!(
                    crd,
                    error = format!("{error:#}"),
                    "saved objects cannot be used; they stay in ConfigMaps linesman-saved-*"
                ),
            }
        }
        Ok(all)
    }

    /// Keeps `objects`, all that is to be brought back with this CRD, instead of what was kept of it before.
    ///
    /// # Errors
    /// They are too many, or the API server does not take them.
    pub async fn store(
        &self,
        crd: &ObjectId,
        objects: &[Value],
        now: OffsetDateTime,
    ) -> Result<()> {
        let plain = serde_json::to_vec(objects).context("write the objects")?;
        let packed = bundle::compress(&plain);
        let parts: Vec<&[u8]> = packed.chunks(PART).collect();
        ensure!(
            parts.len() <= MAX_PARTS,
            "{} bytes are more than {MAX_PARTS} ConfigMaps hold",
            packed.len()
        );
        for (number, part) in parts.iter().enumerate() {
            let name = name(crd, number);
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {LABEL: "true"}},
                "data": {
                    "crd": crd.name,
                    "part": number.to_string(),
                    "parts": parts.len().to_string(),
                    "sha256": sha256_hex(&plain),
                    "taken": clock::rfc3339(now),
                },
                "binaryData": {"objects.zst": STANDARD.encode(part)},
            });
            let params = PatchParams::apply(MANAGER).force();
            let patch = Patch::Apply(&body);
            let sent = self
                .0
                .patch(&name, &params, &patch)
                .await_at_most(CALL)
                .await;
            sent.with_context(|| format!("keep objects in ConfigMap {name}"))?;
        }
        // Parts of a longer list would make this one unreadable.
        self.delete_from(crd, parts.len()).await
    }

    /// They are back.
    ///
    /// # Errors
    /// The API server does not answer; they would be brought back once more.
    pub async fn forget(&self, crd: &ObjectId) -> Result<()> {
        self.delete_from(crd, 0).await
    }

    /// Deletes the parts of this number and above.
    async fn delete_from(&self, crd: &ObjectId, first: usize) -> Result<()> {
        let there = self.list().await?;
        let there: BTreeSet<String> = there.into_iter().filter_map(|m| m.metadata.name).collect();
        let numbers = first..MAX_PARTS;
        for name in numbers.map(|n| name(crd, n)).filter(|n| there.contains(n)) {
            let params = DeleteParams::default();
            let gone = self.0.delete(&name, &params).await_at_most(CALL).await;
            match gone {
                Ok(_) => {}
                Err(Refused::Status(status)) if status.code == 404 => {}
                Err(refused) => return Err(refused).with_context(|| format!("delete {name}")),
            }
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<ConfigMap>> {
        let labelled = ListParams::default().labels(LABEL);
        let list = self.0.list(&labelled).await_at_most(CALL).await;
        Ok(list.context("list saved objects")?.items)
    }
}

fn name(crd: &ObjectId, part: usize) -> String {
    let plural = crd.name.split('.').next().unwrap_or_default();
    format!("linesman-saved-{plural}-{part}")
}

/// The objects of one CRD from all of its parts.
fn read(maps: &[&ConfigMap], now: OffsetDateTime) -> Result<Vec<Value>> {
    let mut parts: BTreeMap<usize, &[u8]> = BTreeMap::new();
    let mut whole = None;
    for map in maps {
        let data = map.data.as_ref().context("no data")?;
        let field = |key: &str| data.get(key).with_context(|| format!("no {key}"));
        let taken = clock::parse_rfc3339(field("taken")?).context("taken")?;
        let told = (field("parts")?, field("sha256")?, taken);
        ensure!(
            *whole.get_or_insert(told) == told,
            "the parts are of different times"
        );
        let bytes = map.binary_data.as_ref().and_then(|b| b.get("objects.zst"));
        let bytes = bytes.context("no objects")?;
        parts.insert(field("part")?.parse().context("part")?, &bytes.0);
    }
    let (count, digest, taken) = whole.context("no parts")?;
    ensure!(now - taken < STALE, "they are of {}", clock::rfc3339(taken));
    ensure!(
        parts.len().to_string() == *count && parts.keys().copied().eq(0..parts.len()),
        "{} of {count} parts are there",
        parts.len()
    );
    let packed = parts.into_values().collect::<Vec<_>>().concat();
    let decoder = zstd::Decoder::new(packed.as_slice()).context("decompress")?;
    let mut plain = Vec::new();
    decoder
        .take(MAX_PLAIN)
        .read_to_end(&mut plain)
        .context("decompress")?;
    ensure!(sha256_hex(&plain) == *digest, "the digest does not match");
    serde_json::from_slice(&plain).context("read the objects")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-02 03:04:05 UTC);

    /// As [`Saves::store`] writes them, in parts of `size` bytes.
    fn kept(objects: &[Value], size: usize) -> Vec<ConfigMap> {
        let plain = serde_json::to_vec(objects).unwrap();
        let packed = bundle::compress(&plain);
        let parts: Vec<&[u8]> = packed.chunks(size).collect();
        let count = parts.len().to_string();
        let map = |(number, part): (usize, &&[u8])| ConfigMap {
            data: Some(BTreeMap::from([
                ("part".to_owned(), number.to_string()),
                ("parts".to_owned(), count.clone()),
                ("sha256".to_owned(), sha256_hex(&plain)),
                ("taken".to_owned(), clock::rfc3339(NOW)),
            ])),
            binary_data: Some(BTreeMap::from([(
                "objects.zst".to_owned(),
                ByteString(part.to_vec()),
            )])),
            ..ConfigMap::default()
        };
        parts.iter().enumerate().map(map).collect()
    }

    fn read_at(maps: &[ConfigMap], now: OffsetDateTime) -> Result<Vec<Value>, String> {
        let maps: Vec<&ConfigMap> = maps.iter().collect();
        read(&maps, now).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn saved_objects_are_read_again_from_one_part_or_many() {
        let objects = vec![json!({"kind": "Kustomization", "spec": {"path": "./a"}}); 3];
        for size in [7, PART] {
            assert_eq!(read_at(&kept(&objects, size), NOW), Ok(objects.clone()));
        }
    }

    #[test]
    fn damaged_mixed_and_old_ones_are_refused_with_the_reason() {
        let objects = [
            json!({"a": 1}),
            json!({"b": "some text that takes a few bytes"}),
        ];
        let good = kept(&objects, 20);
        assert!(good.len() > 2, "{}", good.len());
        let refused = |change: &dyn Fn(&mut Vec<ConfigMap>)| {
            let mut maps = good.clone();
            change(&mut maps);
            read_at(&maps, NOW).unwrap_err()
        };
        let count = good.len();
        assert_eq!(
            refused(&|maps| drop(maps.remove(1))),
            format!("{} of {count} parts are there", count - 1)
        );
        assert_eq!(
            refused(&|maps| {
                let data = maps[1].data.as_mut().unwrap();
                data.insert("sha256".to_owned(), "0".repeat(64));
            }),
            "the parts are of different times"
        );
        assert_eq!(refused(&|maps| maps[0].data = None), "no data");
        assert_eq!(refused(&|maps| maps[2].binary_data = None), "no objects");
        assert_eq!(
            read_at(&good, NOW + STALE).unwrap_err(),
            "they are of 2026-01-02T03:04:05.000Z"
        );
    }
}
