//! What the agent took from the engine, and what it keeps Git from, before it goes.
//!
//! Nobody else knows that rights or controllers are missing that the cascade guard took: they are given back, as soon as nothing
//! is being deleted any more by which the engine would prune. An object that a commit broke stays as it was mended, and held
//! back: given back, the engine would break itself with it, and nobody would be there to mend it. That is said, with what ends it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::super::bundle::PACKED;
use super::super::stored::within;
use crate::agent::engine::{self, GUARD, MANAGER, Site, is_workload};
use crate::agent::observe::api;
use crate::agent::plan::Action;
use crate::agent::plan::quarantine::{HELD, Hold, RECONCILE};
use crate::agent::replace;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::manifests::{AGENT, BUNDLE_MAP, EngineNamespaces, OPEN_HEALS_MAP};
use crate::wire::api::EngineKind;

/// What is being deleted by then may never go: the engine stays without its rights, and people are told.
const LIMIT: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_secs(2);
/// For one Event; the log has the same words.
const EVENT: Duration = Duration::from_secs(3);
/// So many are told by Events.
const MAX_EVENTS: usize = 32;

/// Something that stays as the agent made it, for people: on what, why, and what to do.
#[derive(Debug, Clone, PartialEq)]
struct Left {
    on: ObjectReference,
    text: String,
}

/// Gives the engine back what was taken from it, and tells what stays; `stop` cuts the wait for what is being deleted.
pub(super) async fn leave(
    kube: &kube::Client,
    (namespace, engines): (&str, &EngineNamespaces),
    stop: &CancellationToken,
) {
    let bundle = match bundle(kube, namespace, engines).await {
        Ok(Some(bundle)) => bundle,
        // There was no engine of ours yet, or this was done before.
        Ok(None) => return,
        Err(error) => {
            warn!(
                error = format!("{error:#}"),
                "not known what of the engine is held back; look for annotation {HELD}"
            );
            return;
        }
    };
    let site = Site::of(bundle.engine, engines);
    let mut left = Vec::new();
    let cut = cut(kube, namespace).await;
    left.extend(give_back(kube, &site, (&bundle, cut), stop).await);
    left.extend(held(kube, &site, &bundle).await);
    tell(kube, &left).await;
}

async fn bundle(
    kube: &kube::Client,
    namespace: &str,
    engines: &EngineNamespaces,
) -> Result<Option<Bundle>> {
    let maps = Api::<ConfigMap>::namespaced(kube.clone(), namespace);
    let map = within(maps.get_opt(BUNDLE_MAP)).await;
    let Some(map) = map.context("read ConfigMap linesman-bundle")? else {
        return Ok(None);
    };
    let digest = map.data.and_then(|mut data| data.remove("digest"));
    let packed = map.binary_data.and_then(|mut d| d.remove(PACKED));
    let (digest, packed) = digest
        .zip(packed)
        .context("linesman-bundle has no bundle")?;
    let digest = digest.parse().context("read the bundle's digest")?;
    let bundle = Bundle::unpack(&packed.0, &digest).context("read the bundle")?;
    let namespace = engines.of(bundle.engine);
    Ok(Some(bundle.within(namespace)))
}

/// Whether a heal that is not over took rights from the engine, or the guard has any that are not back. What else lacks them was never
/// ours to give, or is somebody else's.
async fn cut(kube: &kube::Client, namespace: &str) -> bool {
    let maps = Api::<ConfigMap>::namespaced(kube.clone(), namespace);
    let data = match within(maps.get_opt(OPEN_HEALS_MAP)).await {
        Ok(map) => map.and_then(|map| map.data).unwrap_or_default(),
        Err(error) => {
            warn!(
                error = format!("{error:#}"),
                "not known whether the engine's rights were cut; look whether its bindings are there"
            );
            return false;
        }
    };
    let cut = Action::CutRights { uid: String::new() };
    let step = format!("\"{}\"", cut.as_str());
    data.values().any(|heals| heals.contains(&step))
}

fn places(bundle: &Bundle) -> Vec<ObjectId> {
    let all = bundle.objects.iter();
    all.filter_map(|o| engine::place(o.head())).collect()
}

async fn give_back(
    kube: &kube::Client,
    site: &Site,
    (bundle, cut): (&Bundle, bool),
    stop: &CancellationToken,
) -> Option<Left> {
    let namespace = reference(&ObjectId::new(Kind::Namespace, "", &site.namespace));
    let kind = site.traits.kind;
    let failed = |what: &str| Left {
        on: namespace.clone(),
        text: format!(
            "{kind} is left without rights or controllers that were taken while objects were being deleted: {what}; when \
             nothing is being deleted any more, apply its install manifests again"
        ),
    };
    let taken = match taken(kube, site, (bundle, cut)).await {
        Ok(taken) if taken.is_empty() => return None,
        Ok(taken) => taken,
        Err(error) => return Some(failed(&format!("{error:#}"))),
    };
    let until = Instant::now() + LIMIT;
    let objects = places(bundle);
    loop {
        let what = match replace::let_go(kube, site, &objects).await {
            Ok(None) => break,
            Ok(Some(what)) => what,
            Err(error) => format!("{error:#}"),
        };
        info!(what, "the engine gets its rights back when this is over");
        let cut = stop.run_until_cancelled(sleep(LOOK)).await.is_none();
        if cut || Instant::now() >= until {
            return Some(failed(&what));
        }
    }
    for id in &taken {
        if let Err(error) = give(kube, bundle, id).await {
            return Some(failed(&format!("{error:#}")));
        }
        info!(object = %id, "given back to the engine: the agent goes");
    }
    None
}

/// Bindings that the engine lacks, then controllers that the guard stopped; none where it is not installed any more. The guard stops
/// no controller before it has `cut` rights.
async fn taken(
    kube: &kube::Client,
    site: &Site,
    (bundle, cut): (&Bundle, bool),
) -> Result<Vec<ObjectId>> {
    let mut rights = Vec::new();
    let mut stopped = Vec::new();
    for id in places(bundle) {
        let right =
            id.kind == Kind::ClusterRoleBinding && site.traits.rights.contains(&id.name.as_str());
        if !right && !is_workload(id.kind) {
            continue;
        }
        let live = within(api(kube, id.kind, &id.namespace).get_opt(&id.name)).await;
        let live = live.with_context(|| format!("read {id}"))?;
        match live {
            None if right => rights.push(id),
            None => {
                let mut controllers = site.traits.controllers.iter();
                if controllers.any(|(_, name)| *name == id.name) {
                    return Ok(Vec::new());
                }
            }
            Some(live) if !right && is_stopped(&live) => stopped.push(id),
            Some(_) => {}
        }
    }
    rights.retain(|_| cut || !stopped.is_empty());
    rights.extend(stopped);
    Ok(rights)
}

/// Whether it was the agent that stopped it.
fn is_stopped(live: &DynamicObject) -> bool {
    let none = live.data.pointer("/spec/replicas") == Some(&Value::from(0));
    let mut managers = live.metadata.managed_fields.iter().flatten();
    none && managers.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let ours = entry.manager.as_deref() == Some(GUARD);
        ours && fields.is_some_and(|f| f.pointer("/f:spec/f:replicas").is_some())
    })
}

async fn give(kube: &kube::Client, bundle: &Bundle, id: &ObjectId) -> Result<()> {
    let object = bundle
        .objects
        .iter()
        .find(|o| engine::place(o.head()).as_ref() == Some(id))
        .context("the bundle lacks it")?;
    let api = api(kube, id.kind, &id.namespace);
    let given = if is_workload(id.kind) {
        let replicas = object.whole().pointer("/spec/replicas").cloned();
        let replicas = replicas.and_then(|n| n.as_i64()).unwrap_or(1).max(1);
        let start = json!({"spec": {"replicas": replicas}});
        let params = PatchParams {
            field_manager: Some(GUARD.to_owned()),
            ..PatchParams::default()
        };
        within(api.patch(&id.name, &params, &Patch::Merge(start))).await
    } else {
        let params = PatchParams::apply(MANAGER).force();
        let body = object.whole().into_owned();
        within(api.patch(&id.name, &params, &Patch::Apply(body))).await
    };
    given.with_context(|| format!("give back {id}"))?;
    Ok(())
}

/// What a commit broke, and what no controller could read.
async fn held(kube: &kube::Client, site: &Site, bundle: &Bundle) -> Vec<Left> {
    let objects = places(bundle);
    let mut left = Vec::new();
    for id in &objects {
        let api = api(kube, id.kind, &id.namespace);
        match within(api.get_metadata_opt(&id.name)).await {
            Ok(live) => {
                let marks = live.and_then(|live| live.metadata.annotations);
                let note = marks.and_then(|mut marks| marks.remove(HELD));
                let plural = id.kind.resource().2;
                left.extend(note.and_then(|note| stays(site, reference(id), plural, &note)));
            }
            Err(error) => debug!(%id, error = format!("{error:#}"), "not looked at"),
        }
    }
    match replace::marked(kube, &objects, HELD).await {
        Ok(marked) => left.extend(marked.into_iter().filter_map(|(served, live, note)| {
            let on = ObjectReference {
                api_version: Some(served.api_version.clone()),
                kind: Some(served.kind.clone()),
                name: live.metadata.name,
                namespace: live.metadata.namespace,
                ..ObjectReference::default()
            };
            stays(site, on, &served.plural, &note)
        })),
        Err(error) => warn!(
            error = format!("{error:#}"),
            "sync objects are not looked at; look for annotation {HELD}"
        ),
    }
    left
}

fn reference(id: &ObjectId) -> ObjectReference {
    ObjectReference {
        api_version: Some(id.kind.api_version()),
        kind: Some(id.kind.as_str().to_owned()),
        name: Some(id.name.clone()),
        namespace: Some(id.namespace.clone()).filter(|n| !n.is_empty()),
        ..ObjectReference::default()
    }
}

/// What is said of an object with this note; none where it is held no more.
fn stays(site: &Site, on: ObjectReference, plural: &str, note: &str) -> Option<Left> {
    let hold: Hold = serde_json::from_str(note).ok()?;
    if hold.lifted.is_some() {
        return None;
    }
    let name = on.name.as_deref().unwrap_or_default();
    let at = on.namespace.as_ref();
    let at = at.map_or_else(String::new, |namespace| format!("-n {namespace} "));
    let annotate = format!("kubectl {at}annotate {plural} {name}");
    let aside = serde_json::from_str::<Value>(note).is_ok_and(|v| v.get("former").is_some());
    let (what, next) = match site.traits.kind {
        _ if aside => (
            "stays out of the way of its controller, suspended",
            format!(
                "correct it in the catalog, set spec.suspend to false, then: {annotate} {RECONCILE}- {HELD}-"
            ),
        ),
        EngineKind::Flux => (
            "stays as it was mended, and held back from Git",
            format!("when the catalog has it right: {annotate} {RECONCILE}- {HELD}-"),
        ),
        EngineKind::Argocd => (
            "stays as it was mended, and held back from Git",
            format!(
                "when the catalog has it right, take it out of spec.ignoreDifferences of the Applications that name it, then: \
                 {annotate} argocd.argoproj.io/sync-options- {HELD}-"
            ),
        ),
    };
    let (revision, reason) = (&hold.revision, &hold.reason);
    let text = format!("{what}, for the agent goes: commit {revision}: {reason}; {next}");
    Some(Left { on, text })
}

async fn tell(kube: &kube::Client, left: &[Left]) {
    for (number, Left { on, text }) in left.iter().enumerate() {
        let (kind, name) = (on.kind.as_deref(), on.name.as_deref());
        let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
        warn!(kind, name, text, "left as it is");
        if number >= MAX_EVENTS {
            continue;
        }
        let reporter = Reporter {
            controller: AGENT.to_owned(),
            instance: None,
        };
        let event = Event {
            type_: EventType::Warning,
            reason: "LeftByRemoval".to_owned(),
            note: Some(text.chars().take(1000).collect()),
            action: "Remove".to_owned(),
            secondary: None,
        };
        // One takes Events that differ in their notes alone for the same.
        let recorder = Recorder::new(kube.clone(), reporter);
        match timeout(EVENT, recorder.publish(&event, on)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "no Event was written"),
            Err(_) => debug!("no Event was written in time"),
        }
    }
}

#[cfg(test)]
mod tests;
