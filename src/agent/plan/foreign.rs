//! Whether somebody else manages the engine. Then nothing is written: two managers would undo each other's work, and it
//! is for people to say which of them stays.

use serde_json::Value;
use time::OffsetDateTime;

use super::fault::Class;
use super::find::{FRESH, Finding};
use super::state::{Answer, History, Object, Observed};
use super::window::until;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::engine::{GIT_OWNER, Install, TRACKING};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// What those that install an engine write at `app.kubernetes.io/managed-by`.
const MANAGERS: [&str; 3] = ["Helm", "flux-operator", "argocd-operator"];
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Helm writes it on all that it installs; charts may leave out the label.
/// <https://github.com/helm/helm/blob/main/pkg/action/validate.go>
const RELEASE: &str = "meta.helm.sh/release-name";
/// The Operator Lifecycle Manager's.
const OLM: &str = "olm.owner";
/// Project Syn's agent, which installs an Argo CD of its own.
const STEWARD: &str = "steward.syn.tools/bootstrap";
/// How the Pods of Azure's extension begin that stand beside the Flux that it installs and keeps.
/// <https://learn.microsoft.com/azure/azure-arc/kubernetes/conceptual-gitops-flux2>
const AZURE: &str = "fluxconfig-";

/// Marks of another manager of the engine.
pub(super) fn foreign(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<Finding> {
    let live = |id| observed.objects.get(id).map(|live| (id, live));
    let mut all = install.wanted.keys().filter_map(live);
    let marked = all.find_map(|(id, live)| Some((id, mark(install, id, live)?)));
    if let Some((id, mark)) = marked {
        let text = format!("carries the mark of another manager: {mark}");
        return Some(Finding::new(Class::ForeignManager, id, text));
    }
    if let Some(pod) = of_azure(install, observed) {
        let id = ObjectId::new(Kind::Namespace, "", &install.namespace);
        let text = format!("Pod {pod} of Azure's Flux extension, another manager, runs in it");
        return Some(Finding::new(Class::ForeignManager, &id, text));
    }
    if history.adopted {
        return None;
    }
    made_before_us(install, observed).or_else(|| follows_another(now, install, observed))
}

/// Whether enough was heard to say that nobody else manages it: the marks are on controllers, before the adoption also on
/// roots. What is refused, or not answered for long, is not waited for.
pub(super) fn is_judged(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> bool {
    let late = observed.since.is_some_and(|since| now - since > FRESH);
    let heard = |id: &ObjectId| {
        let scope = observed.scopes.get(&id.kind).copied();
        let scope = scope.unwrap_or_default();
        late || scope.answered.is_some() || scope.answer == Answer::Refused
    };
    let mut roots = install.roots().filter(|_| !history.adopted);
    install.workloads().all(heard) && roots.all(heard)
}

fn mark(install: &Install, id: &ObjectId, live: &Object) -> Option<String> {
    let label = |name: &str| live.label(name);
    if label(STEWARD)
        .or_else(|| live.annotation(STEWARD))
        .is_some()
    {
        return Some(STEWARD.to_owned());
    }
    // Charts and operators that make Namespaces make them for others, and manage nothing of what is in them.
    if id.kind == Kind::Namespace {
        return None;
    }
    let manager = label(MANAGED_BY).filter(|by| MANAGERS.contains(by));
    // A chart's label stays on what Git has of it; Helm itself writes more than that.
    if let Some(manager) = manager.filter(|_| !is_from_git(install, live)) {
        return Some(manager.to_owned());
    }
    if let Some(release) = live.annotation(RELEASE) {
        return Some(format!("release '{release}' of Helm"));
    }
    if let Some(owner) = label(OLM) {
        return Some(owner.to_owned());
    }
    // Operators own what they make: the Argo CD operator's `ArgoCD`, the Flux operator's `FluxInstance`.
    (!live.controller.is_empty()).then(|| live.controller.clone())
}

fn of_azure<'a>(install: &Install, observed: &'a Observed) -> Option<&'a str> {
    let flux = install.traits.kind == EngineKind::Flux;
    let mut pods = observed.pods.iter().filter(|_| flux);
    let (name, _) = pods.find(|(name, pod)| name.starts_with(AZURE) && !pod.deleting)?;
    Some(name)
}

/// Whether the engine itself brought an object from Git, by the mark that it puts onto it.
fn is_from_git(install: &Install, live: &Object) -> bool {
    match install.traits.kind {
        EngineKind::Flux => live.label(GIT_OWNER).is_some(),
        EngineKind::Argocd => live.annotation(TRACKING).is_some(),
    }
}

/// A root that somebody made before us and that follows something else is theirs. One that an adoption of before left is ours, and brought
/// workloads: led to another path it prunes what that lacks, which is for people to allow, as it is later on.
fn follows_another(now: OffsetDateTime, install: &Install, observed: &Observed) -> Option<Finding> {
    let [of_source, of_sync] = install.traits.follows;
    for (id, pointer) in [(&install.source, of_source), (&install.sync, of_sync)] {
        let (Some(live), Some(wanted)) = (observed.objects.get(id), install.wanted.get(id)) else {
            continue;
        };
        let ours = wanted
            .expect
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default();
        let theirs = live.text(pointer);
        let plain = |path: &str| path.trim_start_matches("./").trim_matches('/').to_owned();
        if plain(theirs) == plain(ours) {
            continue;
        }
        let text = if live.ours {
            let stays = pointer == of_sync && is_to_prune(&wanted.expect);
            if !stays || until(now, live, ALLOW_DELETE).is_some() {
                continue;
            }
            format!(
                "follows {theirs} since an earlier adoption; {ours} was assigned, and led there it would prune what that lacks. To \
                 allow that (UTC; macOS has date -u -v+1H): kubectl -n {} annotate --overwrite {} {} {ALLOW_DELETE}=$(date -u -d +1hour +%FT%TZ)",
                id.namespace,
                id.kind.as_str().to_ascii_lowercase(),
                id.name
            )
        } else {
            format!(
                "follows {theirs}, made by '{}'; {ours} was assigned",
                live.writer
            )
        };
        return Some(Finding::new(Class::ForeignManager, id, text));
    }
    None
}

/// Whether a root is to take away what the catalog does not have; not while its engine takes the other one's place.
fn is_to_prune(root: &Value) -> bool {
    let says = |pointer| root.pointer(pointer) == Some(&Value::Bool(true));
    says("/spec/prune") || says("/spec/syncPolicy/automated/prune")
}

/// An Argo CD that runs and that we never touched is somebody's: unlike Flux', its install says nothing of whose.
fn made_before_us(install: &Install, observed: &Observed) -> Option<Finding> {
    if install.traits.kind != EngineKind::Argocd {
        return None;
    }
    let live = |id| observed.objects.get(id).map(|live| (id, live));
    let (id, live) = install
        .workloads()
        .filter_map(live)
        .find(|(_, live)| !live.ours)?;
    let text = format!(
        "was installed by '{}' before this cluster was adopted",
        live.writer
    );
    Some(Finding::new(Class::ForeignManager, id, text))
}

#[cfg(test)]
mod tests;
