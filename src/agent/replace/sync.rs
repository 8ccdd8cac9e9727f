//! The sync objects of an engine: found by its CRDs, let go, and removed.

use anyhow::{Context as _, Result, anyhow};
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::info;

use super::{PAGE, PASS, delete, is_code, read, within};
use crate::agent::calls::Refused;
use crate::agent::engine::{GUARD, Site, Traits, is_git_owned};
use crate::agent::observe;
use crate::bundle::{Kind, ObjectId};
use crate::manifests::is_inventory;

/// Which sync objects are let go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    All,
    /// Those that are being deleted.
    Dying,
}

/// Lets sync objects go that are being deleted, while the engine has no rights. What is still being deleted by which it would prune
/// with them; none = nothing.
pub(in crate::agent) async fn let_go(
    kube: &Client,
    site: &Site,
    objects: &[ObjectId],
) -> Result<Option<String>> {
    if let Some(refused) = unpin(kube, site, objects, Which::Dying).await? {
        return Ok(Some(refused));
    }
    let namespace = ObjectId::new(Kind::Namespace, "", &site.namespace);
    let crds = objects
        .iter()
        .filter(|id| id.kind == Kind::CustomResourceDefinition);
    for id in std::iter::once(&namespace).chain(crds) {
        let live = read(kube, id).await?;
        if live.is_some_and(|live| live.metadata.deletion_timestamp.is_some()) {
            return Ok(Some(format!("{id} is being deleted")));
        }
    }
    for (served, live) in sync_objects(kube, objects).await? {
        if live.metadata.deletion_timestamp.is_some() && is_pinned(site.traits, &live) {
            let name = live.metadata.name.unwrap_or_default();
            return Ok(Some(format!("{} {name} is being deleted", served.kind)));
        }
    }
    Ok(None)
}

/// Sync objects with this annotation, and what it says.
pub(in crate::agent) async fn marked(
    kube: &Client,
    objects: &[ObjectId],
    annotation: &str,
) -> Result<Vec<(ApiResource, DynamicObject, String)>> {
    let all = sync_objects(kube, objects).await?.into_iter();
    let marked = all.filter_map(|(served, mut live)| {
        let note = live.metadata.annotations.as_mut()?.remove(annotation)?;
        Some((served, live, note))
    });
    Ok(marked.collect())
}

pub(super) fn is_pinned(traits: &Traits, live: &DynamicObject) -> bool {
    let finalizers = live.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|f| traits.is_finalizer(f))
}

/// Which object the API server refused to free first, why, and what to do about it; none = all are free.
pub(super) async fn unpin(
    kube: &Client,
    site: &Site,
    objects: &[ObjectId],
    which: Which,
) -> Result<Option<String>> {
    let params = PatchParams {
        field_manager: Some(GUARD.to_owned()),
        ..PatchParams::default()
    };
    let mut first = None;
    for (served, live) in sync_objects(kube, objects).await? {
        let left = matches!(which, Which::Dying) && live.metadata.deletion_timestamp.is_none();
        if left || !is_pinned(site.traits, &live) {
            continue;
        }
        let finalizers = live.metadata.finalizers.clone().unwrap_or_default();
        let keep: Vec<&String> = finalizers
            .iter()
            .filter(|f| !site.traits.is_finalizer(f))
            .collect();
        let patch = json!({"metadata": {"finalizers": keep, "uid": live.metadata.uid}});
        let name = live.metadata.name.clone().unwrap_or_default();
        let one = of(kube, &served, &live);
        match within(one.patch(&name, &params, &Patch::Merge(patch))).await {
            Ok(_) => {}
            Err(error) if is_code(&error, &[404, 409]) => {}
            Err(error) => {
                let answered = matches!(error.downcast_ref(), Some(Refused::Status(_)));
                let namespace = live.metadata.namespace.clone().unwrap_or_default();
                let what = format!("{} {namespace}/{name}", served.kind);
                // One that is refused keeps no other one pinned.
                if !answered {
                    return Err(error.context(format!("take the finalizers from {what}")));
                }
                let (kind, plural) = (site.traits.kind, &served.plural);
                first.get_or_insert_with(|| {
                    format!(
                        "{what} keeps the finalizer of {kind}: the API server refuses to take it away ({error:#}); let the agent \
                         change it, or remove the finalizer yourself: kubectl -n {namespace} edit {plural} {name}"
                    )
                });
            }
        }
    }
    Ok(first)
}

/// Deletes what the catalog brought of the kinds of `crds`; what somebody made by hand stays, and outside the engine's
/// namespace what has no inventory to prune by. Only of an engine that stands still.
pub(in crate::agent) async fn remove_brought(
    kube: &Client,
    site: &Site,
    crds: &[ObjectId],
) -> Result<()> {
    let pass = remove_all(kube, site, crds);
    let passed = timeout(PASS, Box::pin(pass)).await;
    // What is gone is not looked at again.
    passed.unwrap_or_else(|_| Err(anyhow!("not all in {} s; it goes on", PASS.as_secs())))
}

async fn remove_all(kube: &Client, site: &Site, crds: &[ObjectId]) -> Result<()> {
    for (served, live) in sync_objects(kube, crds).await? {
        let marks = json!({"metadata": {
            "labels": live.metadata.labels, "annotations": live.metadata.annotations,
        }});
        let name = live.metadata.name.clone().unwrap_or_default();
        let inside = live.metadata.namespace.as_deref() == Some(site.namespace.as_str());
        let may = inside || is_inventory(&served.group, &served.plural);
        if may && is_git_owned(&marks) {
            let uid = live.metadata.uid.clone();
            delete(&of(kube, &served, &live), &name, uid.as_ref()).await?;
            info!(
                kind = served.kind,
                name, "removed; the engine that it is for is gone"
            );
        }
    }
    Ok(())
}

/// All objects of the kinds of these CRDs that the agent may see, with how they are served. Their metadata alone: a
/// thousand inventories do not fit into an agent.
pub(super) async fn sync_objects(
    kube: &Client,
    objects: &[ObjectId],
) -> Result<Vec<(ApiResource, DynamicObject)>> {
    let mut found = Vec::new();
    let crds = objects
        .iter()
        .filter(|o| o.kind == Kind::CustomResourceDefinition);
    for crd in crds {
        let Some(served) = read(kube, crd).await?.and_then(|crd| served(&crd)) else {
            continue;
        };
        let all: Api<DynamicObject> = Api::all_with(kube.clone(), &served);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match within(all.list_metadata(&params)).await {
                Ok(page) => page,
                // Kinds of parts that the agent never installs are not its to see.
                Err(error) if is_code(&error, &[403, 404]) => break,
                Err(error) => return Err(error).with_context(|| format!("list {}", crd.name)),
            };
            let items = page.items.into_iter().map(slim);
            found.extend(items.map(|live| (served.clone(), live)));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => break,
            }
        }
    }
    Ok(found)
}

/// Without what is long and says nothing here.
fn slim(live: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    let mut metadata = live.metadata;
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    DynamicObject {
        types: None,
        metadata,
        data: Value::Null,
    }
}

fn served(crd: &DynamicObject) -> Option<ApiResource> {
    let text = |pointer: &str| crd.data.pointer(pointer)?.as_str().map(str::to_owned);
    let versions = crd.data.pointer("/spec/versions")?.as_array()?;
    let stored = versions.iter().find(|v| v["storage"] == json!(true))?;
    let (group, version) = (text("/spec/group")?, stored["name"].as_str()?);
    let (kind, plural) = (text("/spec/names/kind")?, text("/spec/names/plural")?);
    Some(observe::served((&group, version), &kind, &plural))
}

fn of(kube: &Client, served: &ApiResource, live: &DynamicObject) -> Api<DynamicObject> {
    let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
    Api::namespaced_with(kube.clone(), namespace, served)
}
