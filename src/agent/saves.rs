//! Sync objects that die with their CRD and that Git will not bring back, kept in the cluster until they are back, so
//! that an agent which ends in between goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tracing::{info, warn};

use super::calls::{AtMost as _, CALL, Refused};
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
/// In the place of the time of what never was.
const NEVER: &str = "-";

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

/// How a list is on record.
#[derive(Debug)]
pub enum Stored {
    Alone,
    /// What was kept before could not be deleted. The newer of two is read.
    Beside(Error),
}

impl Stored {
    /// # Errors
    /// It is not alone.
    pub fn alone(self) -> Result<()> {
        match self {
            Self::Alone => Ok(()),
            Self::Beside(error) => Err(error),
        }
    }
}

impl Saves {
    pub fn new(kube: &Client, namespace: &str) -> Self {
        Self {
            maps: Api::namespaced(kube.clone(), namespace),
            part: PART,
        }
    }

    /// What an earlier agent saved and did not bring back, however long ago: the plan's history says what of it is given up. What is
    /// damaged is told and left out.
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
    pub async fn store(
        &self,
        crd: &ObjectId,
        saved: &[Saved],
        now: OffsetDateTime,
    ) -> Result<Stored> {
        let names = self.write(crd, saved, now, None).await?;
        let deleted = self.delete_others(crd, &names).await;
        Ok(deleted.err().map_or(Stored::Alone, Stored::Beside))
    }

    /// The same before they are tried to be brought back: of those of which that is the first try, it begins `now`. What was kept
    /// before stays beside it, for nothing is to wait for that.
    ///
    /// # Errors
    /// As of [`Self::store`].
    pub async fn store_tried(
        &self,
        crd: &ObjectId,
        saved: &[Saved],
        now: OffsetDateTime,
    ) -> Result<()> {
        self.write(crd, saved, now, Some(now)).await.map(drop)
    }

    /// Writes one generation, in which all that was not tried is so since `first`. Returns the names of its parts.
    async fn write(
        &self,
        crd: &ObjectId,
        saved: &[Saved],
        now: OffsetDateTime,
        first: Option<OffsetDateTime>,
    ) -> Result<BTreeSet<String>> {
        let objects: Vec<&Value> = saved.iter().map(|one| &*one.object).collect();
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
                    "since": runs(saved, |one| Some(one.since)),
                    "tried": runs(saved, |one| one.tried.or(first)),
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
        Ok(names)
    }

    /// They are back.
    ///
    /// # Errors
    /// The API server does not answer; an agent that begins within a day of the first try would bring them back once more, or
    /// within two where that is not on record.
    pub async fn forget(&self, crd: &ObjectId) -> Result<()> {
        self.delete_others(crd, &BTreeSet::new()).await
    }

    /// Deletes what is kept of a CRD but what has one of these `names`.
    async fn delete_others(&self, crd: &ObjectId, names: &BTreeSet<String>) -> Result<()> {
        // Of which CRD one is, its name says, too; what they hold may be megabytes.
        let labelled = ListParams::default().labels(LABEL);
        let there = self.maps.list_metadata(&labelled).await_at_most(CALL).await;
        let there = there.context("list saved objects")?;
        let of_it = prefix(crd);
        let all = there.into_iter().filter_map(|map| map.metadata.name);
        for name in all.filter(|name| name.starts_with(&of_it) && !names.contains(name)) {
            let params = DeleteParams::default();
            let gone = self.maps.delete(&name, &params).await_at_most(CALL).await;
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
    let digest = digest.get(..8).unwrap_or_default();
    format!(
        "{}{}-{digest}-{part}",
        prefix(crd),
        taken.unix_timestamp_nanos() / 1_000_000
    )
}

/// With what the names of all of a CRD begin. No engine has two CRDs of the same plural, nor one with a hyphen in it.
fn prefix(crd: &ObjectId) -> String {
    let plural = crd.name.split('.').next().unwrap_or_default();
    format!("linesman-saved-{plural}-")
}

fn field<'a>(map: &'a ConfigMap, key: &str) -> Option<&'a String> {
    map.data.as_ref()?.get(key)
}

fn named(crd: &str) -> Result<ObjectId> {
    ensure!(!crd.is_empty(), "they name no CRD");
    Ok(ObjectId::new(Kind::CustomResourceDefinition, "", crd))
}

/// One of the times of how many objects in a row, `TIME COUNT` a line: to the minute, for thousands may go within one, and there are
/// not many of those.
fn runs(saved: &[Saved], at: impl Fn(&Saved) -> Option<OffsetDateTime>) -> String {
    let minute = |one: &Saved| at(one).map(OffsetDateTime::truncate_to_minute);
    let runs = saved.chunk_by(|one, next| minute(one) == minute(next));
    let lines = runs.filter_map(|run| {
        let at = minute(run.first()?).map_or_else(|| NEVER.to_owned(), clock::rfc3339);
        Some(format!("{at} {}", run.len()))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The times of so many objects, as [`runs`] wrote them.
fn times(runs: &str, count: usize) -> Option<Vec<Option<OffsetDateTime>>> {
    let mut times = Vec::new();
    for line in runs.lines() {
        let (at, many) = line.split_once(' ')?;
        let at = match at {
            NEVER => None,
            at => Some(clock::parse_rfc3339(at)?),
        };
        let many = many.parse::<usize>().ok()?;
        if many > count - times.len() {
            return None;
        }
        times.extend(std::iter::repeat_n(at, many));
    }
    (times.len() == count).then_some(times)
}

/// One generation, read.
#[derive(Debug, PartialEq)]
struct Generation {
    saved: Vec<Saved>,
    /// Whether it says which of them were tried. That of an agent of before does not.
    says: bool,
}

/// The objects of one CRD from its newest generation that is whole; where there is none, what is wrong with the newest.
fn newest(maps: &[&ConfigMap], now: OffsetDateTime) -> Result<Vec<Saved>> {
    let mut generations: BTreeMap<_, Vec<&ConfigMap>> = BTreeMap::new();
    for map in maps {
        // RFC 3339 in UTC sorts as time does.
        let of = ["taken", "sha256"].map(|key| field(map, key));
        generations.entry(of).or_default().push(map);
    }
    let mut read = generations.values().rev().map(|maps| read(maps));
    let first = read.next().context("no parts")?;
    let Generation { saved, says } =
        first.or_else(|error| read.find_map(Result::ok).ok_or(error))?;
    if let Some(last) = saved.iter().map(|one| one.since).max() {
        // They may have been back for long, and deleted since by who has no use for them: that is for people to say.
        ensure!(
            says || now - last < STALE,
            "they are of {}, and whether they were brought back since is not known",
            clock::rfc3339(last)
        );
    }
    Ok(saved)
}

/// The objects of one generation from all of its parts.
fn read(maps: &[&ConfigMap]) -> Result<Generation> {
    let mut parts: BTreeMap<usize, &[u8]> = BTreeMap::new();
    let mut whole = None;
    for map in maps {
        let data = map.data.as_ref().context("no data")?;
        let field = |key: &str| data.get(key).with_context(|| format!("no {key}"));
        let taken = clock::parse_rfc3339(field("taken")?).context("taken")?;
        let dates = ["since", "tried"].map(|key| data.get(key));
        let told = (field("parts")?, field("sha256")?, dates, taken);
        ensure!(
            *whole.get_or_insert(told) == told,
            "the parts are of different times"
        );
        let bytes = map.binary_data.as_ref().and_then(|b| b.get("objects.zst"));
        let bytes = bytes.context("no objects")?;
        parts.insert(field("part")?.parse().context("part")?, &bytes.0);
    }
    let (count, digest, [since, tried], taken) = whole.context("no parts")?;
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
    let says = tried.is_some();
    let dates = |runs: Option<&String>| match runs {
        Some(runs) => times(runs, objects.len()),
        None => Some(vec![None; objects.len()]),
    };
    let since = dates(since).context("since")?;
    let tried = dates(tried).context("tried")?;
    let all = objects.into_iter().zip(since.into_iter().zip(tried));
    let saved = all.map(|(object, (since, tried))| Saved {
        object: Arc::new(object),
        // An agent of before says it of all of them together.
        since: since.unwrap_or(taken),
        tried,
    });
    Ok(Generation {
        saved: saved.collect(),
        says,
    })
}

#[cfg(test)]
mod tests;
