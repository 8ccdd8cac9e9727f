//! Makes an engine stand still whose place another one takes, and removes what the catalog brought of its own kinds.
//! What is to be done is decided by [`crate::agent::plan::replace`].

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::info;

use super::calls::{AtMost as _, CALL, Refused};
use super::engine::{GUARD, MANAGER, Site, is_workload};
use super::observe::api;
use super::own::rights::allowed;
use super::plan::project::lease_of;
use super::plan::replace::{Act, Next, Remains, next};
use super::plan::rights::{Place, Right};
use super::plan::shard::selector;
use crate::bundle::{Kind, ObjectId};

mod sync;

use sync::{Which, is_pinned, sync_objects, unpin};
pub(super) use sync::{let_go, marked, remove_brought};

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
        let there = is_there(kube, site).await?;
        let remains = look(kube, site, objects, (there, late)).await?;
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
            Next::Still if there => forget(kube, site, objects).await?,
            Next::Still | Next::Wait(_) | Next::Ends(_) | Next::Pinned(_) => {}
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

/// Whether the engine's Namespace is. Without it nothing of the engine is in it, and an agent that covers some namespaces only
/// gets no other answer there than a refusal: its rights come with the Namespace.
async fn is_there(kube: &Client, site: &Site) -> Result<bool> {
    let id = ObjectId::new(Kind::Namespace, "", &site.namespace);
    Ok(read(kube, &id).await?.is_some())
}

/// `there`: the engine's Namespace is; `late`: its Pods had their time.
async fn look(
    kube: &Client,
    site: &Site,
    objects: &[ObjectId],
    (there, late): (bool, bool),
) -> Result<Remains> {
    let mut remains = Remains::default();
    for name in site.traits.rights {
        let binding = ObjectId::new(Kind::ClusterRoleBinding, "", name);
        if let Some(live) = read(kube, &binding).await? {
            let uid = live.metadata.uid.unwrap_or_default();
            remains.rights.push((binding, uid));
        }
    }
    let workloads: BTreeSet<&ObjectId> = objects.iter().filter(|o| is_workload(o.kind)).collect();
    for id in workloads.iter().filter(|_| there) {
        let Some(live) = read(kube, id).await? else {
            continue;
        };
        // Absent is one.
        if live.data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0) {
            remains.running.push((*id).clone());
        }
    }
    let pods = if there {
        let pods: Api<Pod> = Api::namespaced(kube.clone(), &site.namespace);
        let listed = within(pods.list(&ListParams::default())).await;
        let listed = listed.with_context(|| format!("list the Pods of {}", &site.namespace))?;
        listed.items
    } else {
        Vec::new()
    };
    for pod in pods {
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

/// Deletes the Leases of controllers that ended: without rights they could not give them up, and should this engine come
/// back, it would wait for their end with every commit (Flux: 35 s). Those of shards are of the catalog's controllers, which may run.
async fn forget(kube: &Client, site: &Site, objects: &[ObjectId]) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(kube.clone(), &site.namespace);
    let listed = within(leases.list(&ListParams::default().limit(PAGE))).await;
    let listed = listed.with_context(|| format!("list the Leases of {}", &site.namespace))?;
    let mut own = BTreeSet::new();
    for id in objects.iter().filter(|id| is_workload(id.kind)) {
        let live = read(kube, id).await?;
        let selector = live.as_ref().and_then(|live| selector(&live.data));
        own.insert(lease_of(&id.name, selector));
    }
    for lease in listed.items {
        let name = lease.metadata.name.unwrap_or_default();
        if !own.contains(&name) {
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
    if !is_there(kube, site).await? {
        return Ok(None);
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
    Ok(call.await_at_most(CALL).await?)
}

fn is_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    let refused = error.downcast_ref::<Refused>();
    matches!(refused, Some(Refused::Status(status)) if codes.contains(&status.code))
}

#[cfg(test)]
mod tests;
