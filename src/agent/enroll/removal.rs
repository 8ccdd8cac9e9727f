//! The hub let this cluster go: the agent removes itself. Engine, workloads, catalog, namespaces and CRDs stay,
//! the engine with all that it needs ([`engine`]).
//!
//! Rights go last: a role cannot be used to delete itself and its binding. So the bindings become dependants of what
//! is deleted before them, and the garbage collector ends them. In the same way goes what an agent needs that is started
//! again in the midst of this: it hears from the hub once more that the cluster was removed, and goes on here. Adoption YAML
//! that is applied meanwhile ends it: what it brings is for the agent that joins with it ([`makes_way`]).

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::places;
use super::stored::{self, within};
use crate::agent::engine::canary;
use crate::agent::gate::policy;
use crate::agent::observe;
use crate::agent::plan::coverage;
use crate::manifests::scope::{BINDINGS, Extent, SCOPE};
use crate::manifests::{
    AGENT, ENGINE_ROLE, EngineNamespaces, GUARD_POLICY, HUB_MAP, JOIN_SECRET, KEYS_SECRET,
    LINE_ACCOUNT, LINE_SUBJECTS, READ_ROLE, STATE_SECRET,
};
use crate::wire::api::EngineKind;

mod copy;
mod engine;

/// Who the cluster is, and the way to the hub.
const KEPT_SECRETS: [&str; 3] = [JOIN_SECRET, KEYS_SECRET, STATE_SECRET];
/// The same where a copy brought the agent; and what the owner allows, as long as there is an agent.
const KEPT_MAPS: [&str; 2] = [HUB_MAP, policy::CONFIG_MAP];
/// By then the Pod is told to end.
const ENDS: Duration = Duration::from_secs(30);

/// Deletes what the adoption YAML made and what the agent made for itself, in its own `namespace`. Engines live in
/// `engines`, as far as none was installed elsewhere; `known` is the join token that waited when this began; `stop` cuts the wait for
/// engines, and that for the Pod's end.
///
/// # Errors
/// The agent is still there: it is to be started again, and does the rest, or joins with new YAML.
pub async fn remove(
    kube: &kube::Client,
    (namespace, engines): (&str, &EngineNamespaces),
    extent: Extent,
    known: Option<&str>,
    stop: &CancellationToken,
) -> Result<()> {
    info!("the hub removed this cluster: removing the agent, leaving engine and workloads");
    // Argo CD stays where it was installed, whatever YAML was applied since.
    let engines = &places::settled(engines, kube, namespace).await?;
    engine::leave(kube, (namespace, engines), stop).await;
    copy::end(kube, engines, stop).await;
    makes_way(kube, namespace, (known, false)).await?;
    if extent == Extent::Namespaces {
        uncover(kube).await;
    }
    for group in [
        "linesman-view",
        "linesman-edit",
        "linesman-admin",
        LINE_SUBJECTS,
    ] {
        delete::<ClusterRoleBinding>(&Api::all(kube.clone()), group).await;
    }
    delete::<ClusterRole>(&Api::all(kube.clone()), LINE_SUBJECTS).await;
    delete::<NetworkPolicy>(&Api::namespaced(kube.clone(), namespace), AGENT).await;
    delete::<ServiceAccount>(&Api::namespaced(kube.clone(), namespace), LINE_ACCOUNT).await;
    let quotas = Api::<ResourceQuota>::namespaced(kube.clone(), namespace);
    delete(&quotas, "linesman-critical-pods").await;
    ours::<Service>(kube, namespace, &[]).await;
    ours::<ConfigMap>(kube, namespace, &KEPT_MAPS).await;
    ours::<Secret>(kube, namespace, &KEPT_SECRETS).await;
    // Once more before that goes without which nobody could join. The rest takes a second or two.
    makes_way(kube, namespace, (known, true)).await?;
    last(kube, (namespace, engines), extent).await?;
    // A container that ends before its Pod does is started again, and that agent would write down what is to go.
    stop.run_until_cancelled(sleep(ENDS)).await;
    Ok(())
}

/// Ends the removal where adoption YAML was applied since the token was the `known` one. What it brings stays, but for what was
/// deleted where that had `begun`. What is left of the former life goes: the hub knows that cluster no more, and would have the
/// next agent remove itself as well.
///
/// # Errors
/// There is such YAML, or the API server does not say.
async fn makes_way(
    kube: &kube::Client,
    namespace: &str,
    (known, begun): (Option<&str>, bool),
) -> Result<()> {
    let waits = stored::waiting_token(kube, namespace).await?;
    if waits.is_none() || waits.as_deref() == known {
        return Ok(());
    }
    ours::<ConfigMap>(kube, namespace, &[policy::CONFIG_MAP, SCOPE]).await;
    ours::<Secret>(kube, namespace, &[JOIN_SECRET]).await;
    let again = if begun {
        "; some of it may be gone: apply it once more"
    } else {
        ""
    };
    bail!("new adoption YAML was applied: starting again to join with it{again}")
}

/// The bindings in the covered namespaces.
async fn uncover(kube: &kube::Client) {
    for name in BINDINGS {
        let all: Api<RoleBinding> = Api::all(kube.clone());
        let of_name = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = match within(all.list_metadata(&of_name)).await {
            Ok(found) => found,
            Err(error) => {
                left_over(name, &error);
                continue;
            }
        };
        let ours = found.into_iter().filter(|b| coverage::ours(&b.metadata));
        for namespace in ours.filter_map(|binding| binding.metadata.namespace) {
            delete::<RoleBinding>(&Api::namespaced(kube.clone(), &namespace), name).await;
        }
    }
}

/// The rights, and the Deployment whose end is ours.
async fn last(
    kube: &kube::Client,
    (namespace, engines): (&str, &EngineNamespaces),
    extent: Extent,
) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(kube.clone(), namespace);
    let owner = within(deployments.get_opt(AGENT))
        .await
        .context("read Deployment linesman-agent")?;
    kept(kube, namespace, owner.as_ref()).await;
    cluster_roles(kube, engines, extent).await?;
    match within(deployments.delete(AGENT, &DeleteParams::background())).await {
        Err(error) if !is_gone(&error) => Err(error).context("delete Deployment linesman-agent"),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What the agent lives by ends with its Deployment. Without one there is nothing that an agent would be started by.
async fn kept(kube: &kube::Client, namespace: &str, deployment: Option<&Deployment>) {
    let secrets = Api::<Secret>::namespaced(kube.clone(), namespace);
    let maps = Api::<ConfigMap>::namespaced(kube.clone(), namespace);
    let Some(deployment) = deployment else {
        for name in KEPT_SECRETS {
            delete(&secrets, name).await;
        }
        for name in KEPT_MAPS {
            delete(&maps, name).await;
        }
        return;
    };
    let owner = reference("apps/v1", "Deployment", deployment.metadata.uid.as_deref());
    for name in KEPT_SECRETS {
        depend(&secrets, name, &owner).await;
    }
    for name in KEPT_MAPS {
        depend(&maps, name, &owner).await;
    }
    depend::<ServiceAccount>(&Api::namespaced(kube.clone(), namespace), AGENT, &owner).await;
    depend::<Role>(&Api::namespaced(kube.clone(), namespace), AGENT, &owner).await;
    depend::<RoleBinding>(&Api::namespaced(kube.clone(), namespace), AGENT, &owner).await;
}

/// The roles in the whole cluster, with all that the last of them is needed for.
async fn cluster_roles(
    kube: &kube::Client,
    engines: &EngineNamespaces,
    extent: Extent,
) -> Result<()> {
    let roles = Api::<ClusterRole>::all(kube.clone());
    let bindings = Api::<ClusterRoleBinding>::all(kube.clone());
    let roles_of = match extent {
        Extent::Cluster => &[READ_ROLE, AGENT][..],
        Extent::Namespaces => &[READ_ROLE, SCOPE, AGENT],
    };
    for name in roles_of.iter().copied() {
        let role = match within(roles.get_opt(name)).await {
            Ok(role) => role,
            // The right to look at them goes with the last of them: this was done before.
            Err(error) if code(&error) == Some(403) => continue,
            Err(error) => return Err(error).with_context(|| format!("read ClusterRole {name}")),
        };
        let Some(role) = role else {
            delete(&bindings, name).await;
            continue;
        };
        let owner = reference(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            role.metadata.uid.as_deref(),
        );
        let owner = with_name(owner, name);
        depend(&bindings, name, &owner).await;
        if name == AGENT {
            with_the_last(kube, engines, &owner).await;
            // Not before: whoever names an owner has to have the right to delete what that owns, where the API server asks for it
            // (admission `OwnerReferencesPermissionEnforcement`), and for what is in an engine's namespace that right is in here.
            delete(&roles, ENGINE_ROLE).await;
        }
        delete(&roles, name).await;
    }
    Ok(())
}

/// What ends with the last of the agent's roles.
async fn with_the_last(kube: &kube::Client, engines: &EngineNamespaces, owner: &Value) {
    // Deleted here it would be written again: the watchdog works until its rights are gone.
    let policies = Api::<ValidatingAdmissionPolicy>::all(kube.clone());
    depend(&policies, GUARD_POLICY, owner).await;
    let policies = Api::<ValidatingAdmissionPolicyBinding>::all(kube.clone());
    depend(&policies, GUARD_POLICY, owner).await;
    for kind in [EngineKind::Flux, EngineKind::Argocd] {
        let asked = canary(kind, engines.of(kind));
        let all = observe::api(kube, asked.kind, &asked.namespace);
        depend(&all, &asked.name, owner).await;
    }
    // By these the agent has its rights there, also that to change the others.
    for namespace in engines.all() {
        let bindings = Api::<RoleBinding>::namespaced(kube.clone(), namespace);
        depend(&bindings, ENGINE_ROLE, owner).await;
    }
}

fn reference(version: &str, kind: &str, uid: Option<&str>) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": AGENT, "uid": uid})
}

fn with_name(mut reference: Value, name: &str) -> Value {
    reference["name"] = json!(name);
    reference
}

async fn depend<K>(api: &Api<K>, name: &str, owner: &Value)
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let params = PatchParams::default();
    match within(api.patch(name, &params, &Patch::Merge(patch))).await {
        Ok(_) => {}
        Err(error) if is_gone(&error) => {}
        Err(error) => left_over(name, &error),
    }
}

async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + Debug,
{
    match within(api.delete(name, &DeleteParams::background())).await {
        Ok(_) => {}
        Err(error) if is_gone(&error) => {}
        Err(error) => left_over(name, &error),
    }
}

/// Every object of a kind in our namespace that carries our name, but for those that are `kept`.
async fn ours<K>(kube: &kube::Client, namespace: &str, kept: &[&str])
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api = Api::<K>::namespaced(kube.clone(), namespace);
    let all = match within(api.list_metadata(&ListParams::default())).await {
        Ok(all) => all,
        Err(error) => return left_over(&K::plural(&()), &error),
    };
    for object in all {
        let name = object.metadata.name.unwrap_or_default();
        if name.starts_with("linesman-") && !kept.contains(&name.as_str()) {
            delete(&api, &name).await;
        }
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    code(error) == Some(404)
}

fn code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn left_over(name: &str, error: &anyhow::Error) {
    warn!(
        name,
        error = format!("{error:#}"),
        "not removed; delete it by hand"
    );
}

#[cfg(test)]
mod tests;
