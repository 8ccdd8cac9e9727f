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
use time::OffsetDateTime;
use tracing::{info, warn};

use super::apply::{AtMost as _, CALL, Refused};
use super::engine::MANAGER;
use super::plan::history::STALE;
use super::plan::state::Saved;
use crate::bundle::{self, Kind, ObjectId};
use crate::clock;
use crate::keys::sha256_hex;

const LABEL: &str = "linesman.dev/saved";
/// A ConfigMap holds 1 MiB, base64 and all else of it included.
const PART: usize = 700 << 10;
/// Parts of one CRD's objects: some hundred thousand objects.
const MAX_PARTS: usize = 16;
const MAX_PLAIN: u64 = 64 << 20;

/// The ConfigMaps `linesman-saved-<plural>-<generation>-<part>` in the agent's namespace. A generation is written beside the one
/// before it, which goes when all parts of the new one are there: whenever this process ends, one of them is whole.
#[derive(Clone)]
pub struct Saves {
    maps: Api<ConfigMap>,
    /// Bytes of one part.
    part: usize,
}

/// What an earlier agent left.
#[derive(Debug, Default, PartialEq)]
pub struct Left {
    pub objects: BTreeMap<ObjectId, Vec<Saved>>,
    /// What cannot be used, for people.
    pub wrong: Vec<String>,
}

impl Saves {
    pub fn new(kube: &Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(kube.clone(), namespace),
            part: PART,
        }
    }

    /// What an earlier agent saved and did not bring back. What is damaged or a day old is told and left out.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn load(&self, now: OffsetDateTime) -> Result<Left> {
        let list = self.list().await?;
        let mut by_crd: BTreeMap<String, Vec<&ConfigMap>> = BTreeMap::new();
        for map in &list {
            let crd = field(map, "crd").cloned().unwrap_or_default();
            by_crd.entry(crd).or_default().push(map);
        }
        let mut left = Left::default();
        for (crd, maps) in by_crd {
            match newest(&maps, now).and_then(|objects| Ok((named(&crd)?, objects))) {
                Ok((id, objects)) => {
                    info!(crd, objects = objects.len(), "objects to bring back");
                    left.objects.insert(id, objects);
                }
                Err(error) => {
                    let names = maps.iter().filter_map(|map| map.metadata.name.as_deref());
                    let names: Vec<&str> = names.take(MAX_PARTS).collect();
                    let wrong = format!(
                        "saved objects cannot be used, and stay in ConfigMap {}: {error:#}",
                        names.join(", ")
                    );
                    warn!(crd, "{wrong}");
                    left.wrong.push(wrong);
                }
            }
        }
        Ok(left)
    }

    /// Keeps `saved`, all that is to be brought back with this CRD, instead of what was kept of it before. `now` tells which of two
    /// is the newer; the objects stay as old as they are.
    ///
    /// # Errors
    /// They are too many, or the API server does not take them.
    pub async fn store(&self, crd: &ObjectId, saved: &[Saved], now: OffsetDateTime) -> Result<()> {
        let objects: Vec<&Value> = saved.iter().map(|one| &one.object).collect();
        let plain = serde_json::to_vec(&objects).context("write the objects")?;
        let packed = bundle::compress(&plain);
        let parts: Vec<&[u8]> = packed.chunks(self.part).collect();
        ensure!(
            parts.len() <= MAX_PARTS,
            "{} bytes are more than {MAX_PARTS} ConfigMaps hold",
            packed.len()
        );
        let digest = sha256_hex(&plain);
        let mut names = BTreeSet::new();
        for (number, part) in parts.iter().enumerate() {
            let name = name(crd, (now, &digest), number);
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {LABEL: "true"}},
                "data": {
                    "crd": crd.name,
                    "part": number.to_string(),
                    "parts": parts.len().to_string(),
                    "sha256": digest,
                    "since": runs(saved),
                    "taken": clock::rfc3339(now),
                },
                "binaryData": {"objects.zst": STANDARD.encode(part)},
            });
            let params = PatchParams::apply(MANAGER).force();
            let patch = Patch::Apply(&body);
            let sent = self
                .maps
                .patch(&name, &params, &patch)
                .await_at_most(CALL)
                .await;
            sent.with_context(|| format!("keep objects in ConfigMap {name}"))?;
            names.insert(name);
        }
        self.delete_others(crd, &names).await
    }

    /// They are back.
    ///
    /// # Errors
    /// The API server does not answer; they would be brought back once more.
    pub async fn forget(&self, crd: &ObjectId) -> Result<()> {
        self.delete_others(crd, &BTreeSet::new()).await
    }

    /// Deletes what is kept of a CRD but what has one of these `names`.
    async fn delete_others(&self, crd: &ObjectId, names: &BTreeSet<String>) -> Result<()> {
        let there = self.list().await?;
        let of_it = there
            .iter()
            .filter(|map| field(map, "crd") == Some(&crd.name));
        let others = of_it.filter_map(|map| map.metadata.name.as_ref());
        for name in others.filter(|name| !names.contains(*name)) {
            let params = DeleteParams::default();
            let gone = self.maps.delete(name, &params).await_at_most(CALL).await;
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
        let list = self.maps.list(&labelled).await_at_most(CALL).await;
        Ok(list.context("list saved objects")?.items)
    }
}

fn name(crd: &ObjectId, (taken, digest): (OffsetDateTime, &str), part: usize) -> String {
    let plural = crd.name.split('.').next().unwrap_or_default();
    let digest = digest.get(..8).unwrap_or_default();
    format!(
        "linesman-saved-{plural}-{}-{digest}-{part}",
        taken.unix_timestamp_nanos() / 1_000_000
    )
}

fn field<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a String> {
    map.data.as_ref()?.get(key)
}

fn named(crd: &str) -> Result<ObjectId> {
    ensure!(!crd.is_empty(), "they name no CRD");
    Ok(ObjectId::new(Kind::CustomResourceDefinition, "", crd))
}

/// Since when how many objects in a row are saved, `TIME COUNT` a line: to the minute, for thousands may go within one, and a day has
/// not many of them.
fn runs(saved: &[Saved]) -> String {
    let minute = |one: &Saved| one.since.truncate_to_minute();
    let runs = saved.chunk_by(|one, next| minute(one) == minute(next));
    let lines = runs.filter_map(|run| {
        let since = clock::rfc3339(minute(run.first()?));
        Some(format!("{since} {}", run.len()))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The times of so many objects, as [`runs`] wrote them.
fn times(runs: &str, count: usize) -> Option<Vec<OffsetDateTime>> {
    let mut times = Vec::new();
    for line in runs.lines() {
        let (since, many) = line.split_once(' ')?;
        let (since, many) = (clock::parse_rfc3339(since)?, many.parse::<usize>().ok()?);
        if many > count - times.len() {
            return None;
        }
        times.extend(std::iter::repeat_n(since, many));
    }
    (times.len() == count).then_some(times)
}

/// The objects of one CRD from its newest generation that is whole; where there is none, what is wrong with the newest. None that are
/// all too old.
fn newest(maps: &[&ConfigMap], now: OffsetDateTime) -> Result<Vec<Saved>> {
    let mut generations: BTreeMap<_, Vec<&ConfigMap>> = BTreeMap::new();
    for map in maps {
        // RFC 3339 in UTC sorts as time does.
        let of = ["taken", "sha256"].map(|key| field(map, key));
        generations.entry(of).or_default().push(map);
    }
    let mut read = generations.values().rev().map(|maps| read(maps));
    let first = read.next().context("no parts")?;
    let saved = first.or_else(|error| read.find_map(Result::ok).ok_or(error))?;
    if let Some(last) = saved.iter().map(|one| one.since).max() {
        ensure!(now - last < STALE, "they are of {}", clock::rfc3339(last));
    }
    Ok(saved)
}

/// The objects of one generation from all of its parts.
fn read(maps: &[&ConfigMap]) -> Result<Vec<Saved>> {
    let mut parts: BTreeMap<usize, &[u8]> = BTreeMap::new();
    let mut whole = None;
    for map in maps {
        let data = map.data.as_ref().context("no data")?;
        let field = |key: &str| data.get(key).with_context(|| format!("no {key}"));
        let taken = clock::parse_rfc3339(field("taken")?).context("taken")?;
        let told = (field("parts")?, field("sha256")?, data.get("since"), taken);
        ensure!(
            *whole.get_or_insert(told) == told,
            "the parts are of different times"
        );
        let bytes = map.binary_data.as_ref().and_then(|b| b.get("objects.zst"));
        let bytes = bytes.context("no objects")?;
        parts.insert(field("part")?.parse().context("part")?, &bytes.0);
    }
    let (count, digest, since, taken) = whole.context("no parts")?;
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
    let objects: Vec<Value> = serde_json::from_slice(&plain).context("read the objects")?;
    // An agent of before says it of all of them together.
    let since = match since {
        Some(runs) => times(runs, objects.len()).context("since")?,
        None => vec![taken; objects.len()],
    };
    let both = objects.into_iter().zip(since);
    let saved = both.map(|(object, since)| Saved { object, since });
    Ok(saved.collect())
}

#[cfg(test)]
mod tests;
