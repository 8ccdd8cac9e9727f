//! Makes an engine stand still whose place another one takes, and removes what the catalog brought of its own kinds.
//! What is to be done is decided by [`crate::agent::plan::replace`].

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch,
    PatchParams, Preconditions,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::info;

use super::apply::CALL;
use super::engine::{GUARD, MANAGER, Site, Traits, is_git_owned, is_workload};
use super::observe::api;
use super::own::rights::allowed;
use super::plan::project::led_by;
use super::plan::replace::{Act, Next, Remains, next};
use super::plan::rights::{Place, Right};
use crate::bundle::{Kind, ObjectId};
use crate::manifests::is_inventory;

/// Objects of one answer.
const PAGE: u32 = 200;
/// One pass over an engine; what is left is done in the next one.
const PASS: Duration = Duration::from_mins(1);

/// Takes one pass at making an engine stand still. `objects` are those of its bundle; `late`: its Pods had their time.
pub(super) async fn still(
    kube: &Client,
    site: &Site,
    objects: &[ObjectId],
    late: bool,
) -> Result<Next> {
    let pass = async {
        let remains = look(kube, site, objects, late).await?;
        let next = next(&remains, late);
        match &next {
            Next::Do(acts) => {
                for act in acts {
                    do_one(kube, act).await?;
                }
            }
            Next::Unpin => {
                if let Some(refused) = unpin(kube, site, objects, Which::All).await? {
                    return Ok(Next::Pinned(refused));
                }
            }
            Next::Still => forget(kube, site, objects).await?,
            Next::Wait(_) | Next::Ends(_) | Next::Pinned(_) => {}
        }
        Ok(next)
    };
    let passed = timeout(PASS, Box::pin(pass)).await;
    passed.unwrap_or_else(|_| {
        let (kind, seconds) = (site.traits.kind, PASS.as_secs());
        let text = format!(
            "the API server is slow: not all objects of {kind} were looked at in {seconds} s; it goes on"
        );
        Ok(Next::Wait(text))
    })
}

async fn look(kube: &Client, site: &Site, objects: &[ObjectId], late: bool) -> Result<Remains> {
    let mut remains = Remains::default();
    for name in site.traits.rights {
        let binding = ObjectId::new(Kind::ClusterRoleBinding, "", name);
        if let Some(live) = read(kube, &binding).await? {
            let uid = live.metadata.uid.unwrap_or_default();
            remains.rights.push((binding, uid));
        }
    }
    let workloads: BTreeSet<&ObjectId> = objects.iter().filter(|o| is_workload(o.kind)).collect();
    for id in &workloads {
        let Some(live) = read(kube, id).await? else {
            continue;
        };
        // Absent is one.
        if live.data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0) {
            remains.running.push((*id).clone());
        }
    }
    let pods: Api<Pod> = Api::namespaced(kube.clone(), &site.namespace);
    let listed = within(pods.list(&ListParams::default())).await;
    let listed = listed.with_context(|| format!("list the Pods of {}", &site.namespace))?;
    for pod in listed.items {
        let labels = pod.metadata.labels.unwrap_or_default();
        let app = labels
            .get("app")
            .or_else(|| labels.get("app.kubernetes.io/name"));
        let phase = pod.status.and_then(|s| s.phase).unwrap_or_default();
        let over = matches!(phase.as_str(), "Succeeded" | "Failed");
        if !over && app.is_some_and(|app| workloads.iter().any(|w| w.name == *app)) {
            remains.pods.push(pod.metadata.name.unwrap_or_default());
        }
    }
    // While a controller runs, it puts them back.
    let ended = remains.pods.is_empty() || late;
    if remains.rights.is_empty() && remains.running.is_empty() && ended {
        for (_, live) in sync_objects(kube, objects).await? {
            remains.pinned += usize::from(is_pinned(site.traits, &live));
        }
    }
    Ok(remains)
}

async fn do_one(kube: &Client, act: &Act) -> Result<()> {
    match act {
        Act::CutRights { binding, uid } => {
            delete(&api(kube, binding.kind, ""), &binding.name, Some(uid)).await?;
            info!(object = %binding, "rights cut: another engine takes over");
        }
        Act::ScaleToZero(id) => {
            let none = json!({"spec": {"replicas": 0}});
            let params = PatchParams {
                field_manager: Some(GUARD.to_owned()),
                ..PatchParams::default()
            };
            let api = api(kube, id.kind, &id.namespace);
            within(api.patch(&id.name, &params, &Patch::Merge(none)))
                .await
                .with_context(|| format!("scale {id} to zero"))?;
            info!(object = %id, "scaled to zero: another engine takes over");
        }
    }
    Ok(())
}

/// Which sync objects are let go.
#[derive(Debug, Clone, Copy)]
enum Which {
    All,
    /// Those that are being deleted.
    Dying,
}

/// Lets sync objects go that are being deleted, while the engine has no rights. What is still being deleted by which it would prune
/// with them; none = nothing.
pub(super) async fn let_go(
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
pub(super) async fn marked(
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

fn is_pinned(traits: &Traits, live: &DynamicObject) -> bool {
    let finalizers = live.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|f| traits.is_finalizer(f))
}

/// Which object the API server refused to free first, why, and what to do about it; none = all are free.
async fn unpin(
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
                let answered = matches!(error.downcast_ref(), Some(kube::Error::Api(_)));
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

/// Deletes the Leases of controllers that ended: without rights they could not give them up, and should this engine come
/// back, it would wait for their end with every commit (Flux: 35 s).
async fn forget(kube: &Client, site: &Site, objects: &[ObjectId]) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(kube.clone(), &site.namespace);
    let listed = within(leases.list(&ListParams::default().limit(PAGE))).await;
    let listed = listed.with_context(|| format!("list the Leases of {}", &site.namespace))?;
    for lease in listed.items {
        let name = lease.metadata.name.unwrap_or_default();
        let controller = led_by(&name);
        let ours = |id: &ObjectId| is_workload(id.kind) && Some(id.name.as_str()) == controller;
        if !objects.iter().any(ours) {
            continue;
        }
        match delete(&leases, &name, lease.metadata.uid.as_ref()).await {
            // With its namespace the agent's rights there are gone, too.
            Err(error) if is_code(&error, &[403]) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Deletes what the catalog brought of the kinds of `crds`; what somebody made by hand stays, and outside the engine's
/// namespace what has no inventory to prune by. Only of an engine that stands still.
pub(super) async fn remove_brought(kube: &Client, site: &Site, crds: &[ObjectId]) -> Result<()> {
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
async fn sync_objects(
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
    let version = stored["name"].as_str()?.to_owned();
    let group = text("/spec/group")?;
    Some(ApiResource {
        api_version: format!("{group}/{version}"),
        group,
        version,
        kind: text("/spec/names/kind")?,
        plural: text("/spec/names/plural")?,
    })
}

fn of(kube: &Client, served: &ApiResource, live: &DynamicObject) -> Api<DynamicObject> {
    let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
    Api::namespaced_with(kube.clone(), namespace, served)
}

async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&String>) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.cloned(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match within(api.delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, &[404, 409]) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete {name}")),
    }
}

/// Why the other engine cannot be installed: the agent may not, or one is there that is not ours. None = it can.
pub(super) async fn hindered(kube: &Client, site: &Site, before: &Site) -> Result<Option<String>> {
    let (group, _, plural) = before.traits.children[0].resource();
    let right = |verb: &str, group: &str, resource: &str, name: Option<&str>| Right {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        name: name.map(str::to_owned),
    };
    let rbac = "rbac.authorization.k8s.io";
    let (namespace, binding) = (Some(site.namespace.as_str()), Some(site.traits.rights[0]));
    let asked = [
        (Place::Cluster, right("create", "", "namespaces", namespace)),
        (
            Place::Cluster,
            right("create", rbac, "clusterrolebindings", binding),
        ),
        (
            Place::Namespace(before.namespace.clone()),
            right("delete", group, plural, None),
        ),
    ];
    for (place, right) in asked {
        if !allowed(kube, &place, &right).await? {
            let Right { verb, resource, .. } = right;
            return Ok(Some(format!(
                "the agent may not {verb} {resource} to put {} in the place of {}: it was adopted with rights for one engine; \
                 make new adoption YAML with 'linesman cluster readopt', apply it, and this goes on by itself",
                site.traits.kind, before.traits.kind
            )));
        }
    }
    for (kind, name) in site.traits.controllers {
        let id = ObjectId::new(kind, &site.namespace, name);
        if let Some(live) = read(kube, &id).await? {
            let managers = live.metadata.managed_fields.iter().flatten();
            let ours = managers
                .into_iter()
                .any(|entry| entry.manager.as_deref() == Some(MANAGER));
            if !ours {
                return Ok(Some(format!(
                    "{id} is there already and not of Linesman's making; remove that {} first",
                    site.traits.kind
                )));
            }
        }
    }
    Ok(None)
}

async fn read(kube: &Client, id: &ObjectId) -> Result<Option<DynamicObject>> {
    let api = api(kube, id.kind, &id.namespace);
    let read = within(api.get_opt(&id.name)).await;
    read.with_context(|| format!("read {id}"))
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    match timeout(CALL, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(anyhow!(
            "the API server did not answer in {} s",
            CALL.as_secs()
        )),
    }
}

fn is_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    let api = error.downcast_ref::<kube::Error>();
    matches!(api, Some(kube::Error::Api(status)) if codes.contains(&status.code))
}

#[cfg(test)]
mod tests;
