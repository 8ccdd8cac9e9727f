//! The last known good install: keep it, load it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tracing::info;

use super::calls::{AtMost as _, CALL, Refused};
use super::engine::compare::{bounds, merged};
use super::engine::{
    GIT_OWNER, GIT_OWNER_NAMESPACE, GUARD, Install, MANAGER, TRACKING, fields, is_git_owned,
    keeps_additions, place,
};
use super::observe::api;
use super::plan::quarantine::shield::{OPTIONS, options};
use super::plan::quarantine::{self, HELD};
use super::plan::{Observed, project};
use crate::bundle::{self, Kind, ObjectId};
use crate::clock;
use crate::keys::sha256_hex;
use crate::wire::api::EngineKind;

/// Snapshots that are kept.
const KEEP: usize = 3;
const LABEL: &str = "linesman.dev/snapshot";
/// With what their names begin; the number follows.
const NAMED: &str = "linesman-snapshot-";
/// A ConfigMap holds 1 MiB; a snapshot that would not fit is not taken.
const MAX_PACKED: usize = 900 << 10;
const MAX_PLAIN: u64 = 32 << 20;
/// What a snapshot's ConfigMap has them under.
const OBJECTS: &str = "objects.zst";
const ADDED: &str = "added.zst";
/// Of each object that the engine does without kind and place, as JSON.
const DROPPED: &str = "dropped";

/// One last known good state.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub number: u64,
    pub taken: OffsetDateTime,
    pub digest: String,
    /// Of which engine; none = of the one that the cluster had when agents knew one only.
    pub engine: Option<EngineKind>,
    /// The objects that Git owns, and the ConfigMaps, as somebody set them, by their place. The others are healed from
    /// the bundle and are kept in the cluster only.
    pub objects: BTreeMap<ObjectId, Value>,
    /// What others had set on controllers and accounts of ours, by their place.
    pub added: BTreeMap<ObjectId, Value>,
    /// What of the bundle Git's version of the engine does without.
    pub dropped: BTreeSet<ObjectId>,
}

/// The newest snapshot that is whole, and what is wrong with others, for people.
pub async fn load(kube: &Client, namespace: &str) -> Result<(Option<Snapshot>, Vec<String>)> {
    let (mut whole, wrong) = whole(&maps(kube, namespace).await?);
    Ok((whole.pop(), wrong))
}

/// One object as it is in an older snapshot, `back` from the newest; none = there is no such snapshot, or it is not in
/// it.
pub async fn older(
    kube: &Client,
    namespace: &str,
    back: usize,
    id: &ObjectId,
) -> Result<Option<Value>> {
    let (mut all, _) = whole(&maps(kube, namespace).await?);
    let at = all.len().checked_sub(back + 1);
    Ok(at.and_then(|at| all.swap_remove(at).objects.remove(id)))
}

async fn maps(kube: &Client, namespace: &str) -> Result<Vec<ConfigMap>> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
    let params = ListParams::default().labels(LABEL);
    let list = maps.list(&params).await_at_most(CALL).await;
    let list = list.context("list snapshots")?;
    Ok(list.items)
}

/// Those that can be used, the newest last, and why others cannot.
fn whole(maps: &[ConfigMap]) -> (Vec<Snapshot>, Vec<String>) {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for map in maps {
        match read(map) {
            Ok(snapshot) => found.push(snapshot),
            Err(error) => {
                let name = map.metadata.name.as_deref().unwrap_or_default();
                wrong.push(format!("ConfigMap {name} is no snapshot: {error:#}"));
            }
        }
    }
    found.sort_by_key(|s: &Snapshot| s.number);
    (found, wrong)
}

fn read(map: &ConfigMap) -> Result<Snapshot> {
    let data = map.data.as_ref().context("no data")?;
    let number = data
        .get("number")
        .context("no number")?
        .parse()
        .context("number")?;
    let taken = data
        .get("taken")
        .and_then(|t| clock::parse_rfc3339(t))
        .context("no time")?;
    let digest = data.get("sha256").context("no digest")?.clone();
    let engine = data.get("engine").and_then(|e| EngineKind::parse(e));
    let mut objects = unpacked(map, OBJECTS, &digest)?.context("no objects")?;
    objects.retain(is_kept);
    // An agent of before kept none.
    let added = match data.get("added") {
        Some(digest) => unpacked(map, ADDED, digest)?.unwrap_or_default(),
        None => BTreeMap::new(),
    };
    let dropped = data
        .get(DROPPED)
        .map_or(Ok(Vec::new()), |all| serde_json::from_str(all));
    let dropped: Vec<Value> = dropped.context("read what was dropped")?;
    Ok(Snapshot {
        number,
        taken,
        digest,
        engine,
        objects,
        added,
        dropped: dropped.iter().filter_map(place).collect(),
    })
}

fn unpacked(
    map: &ConfigMap,
    name: &str,
    digest: &str,
) -> Result<Option<BTreeMap<ObjectId, Value>>> {
    let Some(packed) = map.binary_data.as_ref().and_then(|b| b.get(name)) else {
        return Ok(None);
    };
    let mut plain = Vec::new();
    let decoder = zstd::Decoder::new(packed.0.as_slice()).context("decompress")?;
    std::io::Read::read_to_end(&mut std::io::Read::take(decoder, MAX_PLAIN), &mut plain)
        .context("decompress")?;
    ensure!(sha256_hex(&plain) == digest, "the digest does not match");
    let objects: Vec<Value> = serde_json::from_slice(&plain).context("read the objects")?;
    let objects = objects.into_iter().filter_map(|o| Some((place(&o)?, o)));
    Ok(Some(objects.collect()))
}

/// Reads the install's objects, as it is in force, as they were set, and keeps them if they differ from `last`. Secrets are left
/// out. It is `observed` that was found to work: with a commit that has come since then nothing is kept.
pub async fn take(
    kube: &Client,
    namespace: &str,
    (install, observed): (&Install, &Observed),
    last: Option<&Snapshot>,
) -> Result<Snapshot> {
    let (mut objects, mut added) = (BTreeMap::new(), BTreeMap::new());
    let kept = |id: &&ObjectId| id.kind != Kind::Secret && !id.kind.optional();
    for id in install.wanted.keys().filter(kept) {
        let live = api(kube, id.kind, &id.namespace)
            .get(&id.name)
            .await_at_most(CALL)
            .await
            .with_context(|| format!("read {id}"))?;
        let known = observed.objects.get(id).and_then(|live| live.written);
        let same = !id.kind.installable() || project::written(id.kind, &live) <= known;
        ensure!(same, "{id} was changed a moment ago");
        let object = as_set(&live)?;
        if keeps_additions(id.kind) && !is_git_owned(&object) {
            let others = install.body(id).map(|ours| by_others(&live, &ours));
            added.extend(others.transpose()?.flatten().map(|part| (id.clone(), part)));
        }
        objects.insert(id.clone(), object);
    }
    let all: Vec<&Value> = objects.values().collect();
    let plain = serde_json::to_vec(&all).context("write the objects")?;
    let digest = sha256_hex(&plain);
    let taken = clock::now();
    let dropped = install.dropped.clone();
    let same = |l: &&Snapshot| l.digest == digest && l.added == added && l.dropped == dropped;
    if let Some(last) = last.filter(same) {
        return Ok(last.clone());
    }
    let total = objects.len();
    objects.retain(is_kept);
    let snapshot = Snapshot {
        number: last.map_or(1, |l| l.number + 1),
        taken,
        digest,
        engine: Some(install.traits.kind),
        objects,
        added,
        dropped,
    };
    store(kube, namespace, &snapshot, &plain).await?;
    info!(number = snapshot.number, objects = total, "snapshot kept");
    Ok(snapshot)
}

/// Keeps the last snapshot once more, in its own place, without the word that these are Git's. All else of it is as it was, and it is
/// no younger for that.
pub async fn disown(
    kube: &Client,
    namespace: &str,
    last: &Snapshot,
    ids: &BTreeSet<ObjectId>,
) -> Result<Snapshot> {
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
    let name = map_name(last.number);
    let map = maps.get(&name).await_at_most(CALL).await;
    let map = map.with_context(|| format!("read ConfigMap {name}"))?;
    let (snapshot, plain) = disowned(&map, last, ids)?;
    store(kube, namespace, &snapshot, &plain).await?;
    let number = snapshot.number;
    info!(
        number,
        objects = ids.len(),
        "the snapshot has them as the agent's again"
    );
    Ok(snapshot)
}

/// The same snapshot without that word, and all of its objects: memory does not have those that are healed from the bundle. It may be
/// without it already, where that was written and nobody heard of it.
fn disowned(
    map: &ConfigMap,
    last: &Snapshot,
    ids: &BTreeSet<ObjectId>,
) -> Result<(Snapshot, Vec<u8>)> {
    let kept = read(map)?;
    let of = |snapshot: &Snapshot| (snapshot.number, clock::rfc3339(snapshot.taken));
    ensure!(of(&kept) == of(last), "it is not the one that was read");
    let mut objects = unpacked(map, OBJECTS, &kept.digest)?.context("no objects")?;
    for id in ids {
        if let Some(object) = objects.get_mut(id) {
            without_mark(object);
        }
    }
    let all: Vec<&Value> = objects.values().collect();
    let plain = serde_json::to_vec(&all).context("write the objects")?;
    objects.retain(is_kept);
    let snapshot = Snapshot {
        number: last.number,
        taken: last.taken,
        digest: sha256_hex(&plain),
        engine: last.engine,
        objects,
        added: last.added.clone(),
        dropped: last.dropped.clone(),
    };
    Ok((snapshot, plain))
}

/// Whether an object is kept in memory, too.
fn is_kept(id: &ObjectId, object: &mut Value) -> bool {
    id.kind == Kind::ConfigMap || is_git_owned(object)
}

fn as_set(live: &DynamicObject) -> Result<Value> {
    let entries = live.metadata.managed_fields.clone().unwrap_or_default();
    let from_git = entries.iter().any(project::vouches);
    let sets: Vec<Value> = entries
        .into_iter()
        .filter(|e| e.subresource.as_deref().unwrap_or_default().is_empty())
        .filter_map(|e| e.fields_v1.map(|f| f.0))
        .collect();
    let sets: Vec<&Value> = sets.iter().collect();
    let whole = serde_json::to_value(live).context("read the object")?;
    let mut owned = fields::owned(&whole, &sets);
    if let Some(bounds) = bounds(&owned, &whole) {
        owned = merged(&owned, &bounds);
    }
    let said = live.metadata.annotations.as_ref();
    if said.is_some_and(|said| said.contains_key(HELD)) {
        without_hold(&mut owned);
    }
    if !from_git {
        without_mark(&mut owned);
    }
    Ok(owned)
}

/// What managers other than the agent, or admission, set on an object, beyond what the agent itself wants of it.
fn by_others(live: &DynamicObject, ours: &Value) -> Result<Option<Value>> {
    let entries = live.metadata.managed_fields.iter().flatten();
    let others = entries.filter(|e| {
        let agent = [MANAGER, GUARD, quarantine::MANAGER];
        let manager = e.manager.as_deref().unwrap_or_default();
        e.subresource.as_deref().unwrap_or_default().is_empty() && !agent.contains(&manager)
    });
    // Without any set all would be theirs.
    let none = json!({"f:kind": {}});
    let sets = others
        .filter_map(|e| e.fields_v1.as_ref().map(|f| &f.0))
        .filter(|set| set.as_object().is_some_and(|set| !set.is_empty()));
    let sets: Vec<&Value> = sets.chain([&none]).collect();
    let whole = serde_json::to_value(live).context("read the object")?;
    let mut part = fields::owned(&whole, &sets);
    if let Some(bounds) = bounds(&merged(ours, &part), &whole) {
        part = merged(&part, &bounds);
    }
    without_mark(&mut part);
    let said = part.pointer_mut("/metadata/annotations");
    if let Some(said) = said.and_then(Value::as_object_mut) {
        // A hold, a window: said of the object that is there now.
        said.retain(|name, _| !name.starts_with("linesman.dev/") && name != OPTIONS);
    }
    Ok((merged(ours, &part) != *ours).then_some(part))
}

/// Anybody can write that an object comes from Git. It would be healed for function only from then on.
fn without_mark(object: &mut Value) {
    for (part, names) in [
        ("labels", &[GIT_OWNER, GIT_OWNER_NAMESPACE][..]),
        ("annotations", &[TRACKING]),
    ] {
        let all = object.pointer_mut(&format!("/metadata/{part}"));
        if let Some(all) = all.and_then(Value::as_object_mut) {
            all.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
}

/// That Argo CD must not prune it is part of the hold.
fn without_hold(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
        return;
    };
    let said = annotations.get(OPTIONS).and_then(Value::as_str);
    match options(said, false) {
        Some(rest) => drop(annotations.insert(OPTIONS.to_owned(), json!(rest))),
        None => drop(annotations.remove(OPTIONS)),
    }
}

/// As much of an object as says where it is.
fn stub(id: &ObjectId) -> Value {
    let mut metadata = json!({"name": id.name});
    if !id.namespace.is_empty() {
        metadata["namespace"] = json!(id.namespace);
    }
    json!({"apiVersion": id.kind.api_version(), "kind": id.kind.as_str(), "metadata": metadata})
}

fn map_name(number: u64) -> String {
    format!("{NAMED}{number}")
}

/// The number in such a name.
fn numbered(name: &str) -> Option<u64> {
    name.strip_prefix(NAMED)?.parse().ok()
}

async fn store(kube: &Client, namespace: &str, snapshot: &Snapshot, plain: &[u8]) -> Result<()> {
    let packed = bundle::compress(plain);
    let all: Vec<&Value> = snapshot.added.values().collect();
    let added = serde_json::to_vec(&all).context("write what others added")?;
    let packed_added = bundle::compress(&added);
    let dropped: Vec<Value> = snapshot.dropped.iter().map(stub).collect();
    let dropped = json!(dropped).to_string();
    let length = packed.len() + packed_added.len();
    ensure!(
        length <= MAX_PACKED,
        "the snapshot has {length} bytes, more than a ConfigMap holds"
    );
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), namespace);
    let name = map_name(snapshot.number);
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "true"}},
        "data": {
            "number": snapshot.number.to_string(),
            "taken": clock::rfc3339(snapshot.taken),
            "sha256": snapshot.digest,
            "added": sha256_hex(&added),
            DROPPED: dropped,
            "engine": snapshot.engine.map(|engine| engine.to_string()).unwrap_or_default(),
        },
        "binaryData": {OBJECTS: STANDARD.encode(&packed), ADDED: STANDARD.encode(&packed_added)},
    });
    let params = PatchParams::apply(MANAGER).force();
    maps.patch(&name, &params, &Patch::Apply(&body))
        .await_at_most(CALL)
        .await
        .context("keep the snapshot")?;
    let old = snapshot.number.saturating_sub(KEEP as u64);
    if old > 0 {
        forget(&maps, old).await?;
    }
    Ok(())
}

/// Deletes the snapshots up to this one: also those that an agent left which ended when it had kept the next one.
async fn forget(maps: &Api<ConfigMap>, last: u64) -> Result<()> {
    let params = ListParams::default().labels(LABEL);
    let all = maps.list_metadata(&params).await_at_most(CALL).await;
    let all = all.context("list snapshots")?;
    let names = all.into_iter().filter_map(|map| map.metadata.name);
    for name in names.filter(|name| numbered(name).is_some_and(|number| number <= last)) {
        let params = DeleteParams::default();
        match maps.delete(&name, &params).await_at_most(CALL).await {
            Ok(_) => {}
            Err(Refused::Status(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("delete {name}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
