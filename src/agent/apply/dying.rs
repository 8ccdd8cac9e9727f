//! Sync objects while their CRD dies: let them go without a prune, and bring them back.

use std::time::Duration;

use anyhow::{Result, anyhow};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::warn;

use super::{AtMost as _, CALL, Hands, Refused, lacks_right};
use crate::agent::engine::GUARD;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::project;
use crate::bundle::{Kind, ObjectId};
use crate::clock;

/// To put on record what is to be brought back, and the pause in between.
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_millis(500);
/// Bytes of one inventory that is brought back, and of all together: thousands of objects of one Kustomization.
const INVENTORY: usize = 256 << 10;
const INVENTORIES: usize = 4 << 20;
const PAGE: u32 = 500;
const PAGES: usize = 64;

impl Hands<'_> {
    /// Takes the engine's finalizer from every object of this CRD that is being deleted, in all namespaces, and
    /// keeps those that Git does not bring back: also the one of which the engine has taken its finalizer itself by then,
    /// where somebody else's still holds it. With what is to be told to people, if anything is.
    pub(super) async fn release(
        &self,
        crd: &ObjectId,
        saved: &[Value],
        kept: &mut Vec<Value>,
    ) -> Result<(Outcome, Option<String>)> {
        let Some(served) = self.served(crd) else {
            return Ok((Outcome::Unchanged, None));
        };
        let all: Api<DynamicObject> = Api::all_with(self.kube.clone(), &served);
        let ours = |f: &&String| self.install.traits.is_finalizer(f);
        let pinned = |o: &DynamicObject| o.metadata.finalizers.iter().flatten().any(|f| ours(&f));
        let mut dying: Vec<DynamicObject> = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..PAGES {
            let list = match all.list(&params).await_at_most(CALL).await {
                Ok(list) => list,
                Err(Refused::Status(status)) if status.code == 404 => {
                    return Ok((Outcome::Unchanged, None));
                }
                Err(refused) => {
                    return Err(anyhow!(refused).context(format!("list {}", served.plural)));
                }
            };
            let going = |o: &DynamicObject| pinned(o) || self.dies_along(crd, o);
            let deleted = list.items.into_iter();
            let deleted = deleted.filter(|o| o.metadata.deletion_timestamp.is_some());
            dying.extend(deleted.filter(going));
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => break,
            }
        }
        let (mut room, mut bare) = (INVENTORIES, 0_usize);
        for live in &dying {
            let Some(mut object) = project::keepsake(&served.api_version, &served.kind, live)
            else {
                continue;
            };
            if let Some(inventory) = project::inventory(&served.plural, live) {
                let bytes = inventory.to_string().len();
                if bytes <= INVENTORY.min(room) {
                    room -= bytes;
                    object["status"] = json!({"inventory": inventory});
                } else {
                    bare += 1;
                }
            }
            // Without the engine's finalizer it is the lesser one of two.
            let known = saved
                .iter()
                .any(|former| former == &object || (!pinned(live) && is_same(former, &object)));
            if !known {
                kept.push(object);
            }
        }
        dying.retain(pinned);
        let all = [saved, kept.as_slice()].concat();
        // On record before the first one goes: this process may end before they are back.
        let told = if kept.is_empty() {
            Ok(())
        } else {
            self.put_on_record(crd, &all).await
        };
        let stripped = self.strip(&served, dying).await;
        let bare = (bare > 0).then(|| {
            format!("the inventories of {bare} objects of {crd} are too large to be kept: what leaves the catalog before they are back is not pruned")
        });
        Ok((stripped?, told.err().or(bare)))
    }

    /// Tried more than once: nobody prunes meanwhile, the engine's rights are cut. But without an end it is not waited for
    /// either, or nothing would come back as long as a ConfigMap cannot be written. Why it was not written, for people.
    async fn put_on_record(&self, crd: &ObjectId, all: &[Value]) -> Result<(), String> {
        let mut said = String::new();
        for tried in 0..TRIES {
            if tried > 0 {
                sleep(AGAIN).await;
            }
            match self.saves.store(crd, all, clock::now()).await {
                Ok(()) => return Ok(()),
                Err(error) => said = format!("{error:#}"),
            }
        }
        let many = all.len();
        Err(format!(
            "{many} objects of {crd} that are to be brought back are known to this process alone, and lost if it ends before: {said}"
        ))
    }

    /// Whether an object was deleted because its CRD or its Namespace is, and not by somebody who meant it.
    fn dies_along(&self, crd: &ObjectId, object: &DynamicObject) -> bool {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let namespace = ObjectId::new(Kind::Namespace, "", &namespace);
        let since = [crd, &namespace].into_iter().filter_map(|id| {
            let live = self.observed.objects.get(id)?;
            live.deleting
        });
        let deleted = object.metadata.deletion_timestamp.as_ref();
        let deleted = deleted.and_then(project::at);
        let (Some(since), Some(deleted)) = (since.min(), deleted) else {
            return false;
        };
        deleted >= since
    }

    /// How the objects of a CRD are served: by the bundle, and of one that it does not have by itself.
    fn served(&self, crd: &ObjectId) -> Option<ApiResource> {
        let (plural, group) = crd.name.split_once('.')?;
        let live = || Some(self.observed.objects.get(crd)?.fields.clone());
        let body = self.install.body(crd).or_else(live).unwrap_or_default();
        let versions = body.pointer("/spec/versions").and_then(Value::as_array);
        let stored = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
        let version = versions
            .and_then(|all| all.iter().find(stored).or_else(|| all.first()))
            .and_then(|v| v.get("name")?.as_str())
            .unwrap_or("v1");
        let kind = body
            .pointer("/spec/names/kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Some(ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        })
    }

    /// Takes the engine's finalizers from objects that are being deleted. One that is refused keeps no other one back: until they
    /// are gone the engine has no rights.
    async fn strip(&self, served: &ApiResource, dying: Vec<DynamicObject>) -> Result<Outcome> {
        let ours = |f: &&String| self.install.traits.is_finalizer(f);
        let (mut outcome, mut first) = (Outcome::Unchanged, None);
        for live in dying {
            let name = live.metadata.name.clone().unwrap_or_default();
            let namespace = live.metadata.namespace.clone().unwrap_or_default();
            let finalizers = live.metadata.finalizers.clone().unwrap_or_default();
            let rest: Vec<&String> = finalizers.iter().filter(|f| !ours(f)).collect();
            let patch = json!({"metadata": {"finalizers": rest, "uid": live.metadata.uid}});
            let one: Api<DynamicObject> =
                Api::namespaced_with(self.kube.clone(), &namespace, served);
            let params = PatchParams {
                field_manager: Some(GUARD.to_owned()),
                ..PatchParams::default()
            };
            match one
                .patch(&name, &params, &Patch::Merge(&patch))
                .await_at_most(CALL)
                .await
            {
                Ok(_) => outcome = Outcome::Done,
                Err(Refused::Status(status)) if matches!(status.code, 404 | 409) => {}
                Err(refused) => {
                    let answered = matches!(refused, Refused::Status(_));
                    let error = anyhow!(refused).context(format!("release {name}"));
                    if !answered {
                        return Err(error);
                    }
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(outcome), Err)
    }

    /// Brings back what [`Self::release`] kept. An object that cannot be brought back does not keep the others away.
    pub(super) async fn restore(
        &self,
        crd: &ObjectId,
        saved: &[Value],
        left: &mut Vec<Value>,
    ) -> Result<Outcome> {
        let plural = crd.name.split('.').next().unwrap_or_default();
        let mut first = None;
        for object in saved {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let (name, namespace, api_version) = (
                text("/metadata/name"),
                text("/metadata/namespace"),
                text("/apiVersion"),
            );
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let served = ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: api_version.to_owned(),
                kind: text("/kind").to_owned(),
                plural: plural.to_owned(),
            };
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.kube.clone(), namespace, &served);
            let params = PatchParams::apply("linesman-restore").force();
            let (body, status) = apart(object);
            let sent = api
                .patch(name, &params, &Patch::Apply(&body))
                .await_at_most(CALL)
                .await;
            let failed = match sent {
                // What is applied to an object that still goes is lost with it.
                Ok(live) if live.metadata.deletion_timestamp.is_some() => {
                    anyhow!("it is still being deleted")
                }
                Ok(live) => match with_inventory(&api, &live, status).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(refused) => anyhow::Error::from(refused),
            };
            left.push(object.clone());
            first.get_or_insert_with(|| failed.context(format!("restore {namespace}/{name}")));
        }
        first.map_or(Ok(Outcome::Done), Err)
    }
}

/// What is applied of a saved object, and what of its status is brought back.
fn apart(object: &Value) -> (Value, Option<Value>) {
    let mut body = object.clone();
    let status = body.as_object_mut().and_then(|body| body.remove("status"));
    (body, status)
}

/// Gives a Kustomization the list of what it had brought, by which it prunes what leaves the catalog. One that has a list of its
/// own was never gone.
async fn with_inventory(
    api: &Api<DynamicObject>,
    live: &DynamicObject,
    status: Option<Value>,
) -> Result<()> {
    let Some(status) = status.filter(|_| live.data.pointer("/status/inventory").is_none()) else {
        return Ok(());
    };
    let name = live.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams {
        field_manager: Some(GUARD.to_owned()),
        ..PatchParams::default()
    };
    let call = api.patch_status(name, &params, &patch);
    match call.await_at_most(CALL).await {
        Ok(_) => Ok(()),
        // An adoption of before gives no right to it: the object is back all the same.
        Err(Refused::Status(status)) if lacks_right(&status) => {
            warn!(
                name,
                error = status.message,
                "back without its inventory: what left the catalog meanwhile is not pruned"
            );
            Ok(())
        }
        Err(refused) => Err(anyhow!(refused).context("bring the inventory back")),
    }
}

/// Whether two objects of one kind have the same name and namespace.
fn is_same(one: &Value, other: &Value) -> bool {
    let at = |object: &Value, field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
    ["name", "namespace"]
        .iter()
        .all(|field| at(one, field) == at(other, field))
}
