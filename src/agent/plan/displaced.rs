//! Parts of a controller whose content somebody put in the place of what the engine applied from Git.
//!
//! A volume has one source, a variable one value, a probe one handler, and only one of the strategies has parameters.
//! Server-side apply takes away nothing that another field manager owns, so the API server finds both side by side and refuses
//! them (422, "may not specify more than 1 volume type"): the engine cannot put its own back, nor any commit that comes after,
//! although the controller may run on with its old Pod.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value, json};

use super::state::Object;
use crate::agent::engine::{Install, Wanted, argocd, flux};
use crate::bundle::{Kind, ObjectId};

/// What takes one content of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Volume(String),
    /// Of a container in one of [`CONTAINERS`].
    Variable {
        list: &'static str,
        container: String,
        name: String,
    },
    /// How a container is asked, or told, at one of [`CALLS`].
    Handler {
        list: &'static str,
        container: String,
        call: &'static str,
    },
    /// How Pods are replaced, by the field that says so.
    Strategy(&'static str),
}

const POD: &str = "/spec/template/spec";
/// The same in what somebody owns of a spec.
const OWNED_POD: &str = "/f:template/f:spec";
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
/// Where a container has handlers.
const CALLS: [&str; 5] = [
    "/livenessProbe",
    "/readinessProbe",
    "/startupProbe",
    "/lifecycle/postStart",
    "/lifecycle/preStop",
];
/// Those that there are.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
/// What no strategy but the one that rolls may have beside its type.
const PARAMETERS: &str = "rollingUpdate";

impl Item {
    /// Where it is, for people.
    pub fn path(&self) -> String {
        match self {
            Self::Volume(name) => format!("{POD}/volumes/{name}"),
            Self::Variable {
                list,
                container,
                name,
            } => format!("{POD}/{list}/{container}/env/{name}"),
            Self::Handler {
                list,
                container,
                call,
            } => format!("{POD}/{list}/{container}{call}"),
            Self::Strategy(field) => format!("/spec/{field}"),
        }
    }

    fn of<'a>(&self, fields: &'a Value) -> Option<&'a Value> {
        let pod = fields.pointer(POD)?;
        match self {
            Self::Volume(name) => named(pod.get("volumes")?, name),
            Self::Variable {
                list,
                container,
                name,
            } => named(named(pod.get(*list)?, container)?.get("env")?, name),
            Self::Handler {
                list,
                container,
                call,
            } => named(pod.get(*list)?, container)?.pointer(call),
            Self::Strategy(field) => fields.get("spec")?.get(*field),
        }
    }

    /// Whether what is live stands in the way of what is wanted, and is not merely less.
    fn bars(&self, live: &Value, wanted: &Value) -> bool {
        match self {
            Self::Volume(_) | Self::Variable { .. } => {
                let other = |field: &str| field != "name";
                has_more(wanted, live, other) && has_more(live, wanted, other)
            }
            Self::Handler { .. } => {
                let handler = |field: &str| HANDLERS.contains(&field);
                has_more(wanted, live, handler) && has_more(live, wanted, handler)
            }
            // What is wanted names the strategy that rolls, or none: then the engine puts its own back.
            Self::Strategy(_) => {
                let kind = |of: &Value| of.get("type").cloned();
                let another = kind(wanted).is_some() && kind(wanted) != kind(live);
                another && has_more(live, wanted, |field| field == PARAMETERS)
            }
        }
    }
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = list.as_array()?.iter();
    all.find(|item| item.get("name").and_then(Value::as_str) == Some(name))
}

/// Those that an engine applied and whose content is not its own: it owns no more than the name of a volume or variable, and of
/// a handler or strategy nothing, while somebody else owns one.
pub fn emptied(kind: Kind, entries: &[ManagedFieldsEntry]) -> Vec<Item> {
    let strategy = match kind {
        Kind::Deployment => "strategy",
        Kind::StatefulSet => "updateStrategy",
        _ => return Vec::new(),
    };
    let appliers = [flux::TRAITS.applier, argocd::TRAITS.applier];
    let (applied, others): (Vec<_>, Vec<_>) = entries.iter().partition(|e| {
        let engines = e.manager.as_deref().is_some_and(|m| appliers.contains(&m));
        engines && e.operation.as_deref() == Some("Apply")
    });
    let others: Vec<&Value> = others.into_iter().filter_map(owned_spec).collect();
    let mut found = Vec::new();
    for spec in applied.into_iter().filter_map(owned_spec) {
        let Some(pod) = spec.pointer(OWNED_POD) else {
            continue;
        };
        found.extend(hollow(pod, "f:volumes").map(Item::Volume));
        for list in CONTAINERS {
            for (container, owned) in items(pod, &format!("f:{list}")) {
                found.extend(hollow(owned, "f:env").map(|name| Item::Variable {
                    list,
                    container: container.clone(),
                    name,
                }));
                let calls = lost_calls(&others, list, (&container, owned));
                found.extend(calls.map(|call| Item::Handler {
                    list,
                    container: container.clone(),
                    call,
                }));
            }
        }
        let set = |of: &Value| of.get(format!("f:{strategy}")).is_some();
        let lost = !set(spec) && others.iter().any(|other| set(other));
        found.extend(lost.then_some(Item::Strategy(strategy)));
    }
    found
}

/// The names of the items of a Pod template's list of which somebody owns anything.
pub(super) fn owned_items(entry: &ManagedFieldsEntry, list: &str) -> Vec<String> {
    let pod = owned_spec(entry).and_then(|spec| spec.pointer(OWNED_POD));
    let all = pod.into_iter().flat_map(|pod| items(pod, list));
    all.map(|(name, _)| name).collect()
}

fn owned_spec(entry: &ManagedFieldsEntry) -> Option<&Value> {
    entry.fields_v1.as_ref()?.0.get("f:spec")
}

/// Where others own a handler of a container and what an engine `owned` has none.
fn lost_calls<'a>(
    others: &'a [&Value],
    list: &'static str,
    (container, owned): (&'a str, &'a Value),
) -> impl Iterator<Item = &'static str> + use<'a> {
    let handled = |of: &Value, call: &str| {
        let at = of.pointer(&call.replace('/', "/f:"));
        at.is_some_and(|at| HANDLERS.iter().any(|h| at.get(format!("f:{h}")).is_some()))
    };
    let theirs = move |call: &str| {
        let pods = others.iter().filter_map(|spec| spec.pointer(OWNED_POD));
        let mut all = pods.flat_map(move |pod| items(pod, &format!("f:{list}")));
        all.any(|(name, owned)| name == container && handled(owned, call))
    };
    CALLS
        .into_iter()
        .filter(move |call| !handled(owned, call) && theirs(call))
}

/// The items of a list in a set of fields, by their names.
fn items<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    let all = of.get(list).and_then(Value::as_object);
    all.into_iter().flatten().filter_map(|(key, owned)| {
        let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        Some((key.get("name")?.as_str()?.to_owned(), owned))
    })
}

fn hollow<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = String> + use<'a> {
    let bare = |owned: &Value| {
        let mut fields = owned.as_object().into_iter().flat_map(Map::keys);
        fields.all(|field| field == "." || field == "f:name")
    };
    items(of, list)
        .filter(move |(_, owned)| bare(owned))
        .map(|(name, _)| name)
}

/// Those of an object that have another content than it had when the engine last worked, beside which that is refused. Until a
/// snapshot has what Git took over, nobody here knows what Git gives them: of what the engine lost, `managedFields` tell nothing.
pub fn of(install: &Install, id: &ObjectId, live: &Object) -> Vec<Item> {
    let wanted = install.wanted.get(id).filter(|w| w.is_known_whole());
    let Some(wanted) = wanted else {
        return Vec::new();
    };
    let differs = |item: &&Item| {
        let both = item.of(&wanted.expect).zip(item.of(&live.fields));
        both.is_some_and(|(wanted, live)| item.bars(live, wanted))
    };
    live.emptied.iter().filter(differs).cloned().collect()
}

/// Whether an item has content of a kind that another one has not, in fields that count.
fn has_more(item: &Value, other: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let content = |of: &Value, field: &str| of.get(field).is_some_and(|v| !v.is_null());
    let mut fields = item.as_object().into_iter().flat_map(Map::keys);
    fields.any(|field| counts(field) && content(item, field) && !content(other, field))
}

/// The strategic merge patch that gives just these the content that they had, and leaves all else as it is.
pub fn patch(wanted: &Wanted, items: &[Item]) -> Value {
    let (mut spec, mut pod) = (json!({}), json!({}));
    for item in items {
        let Some(content) = item.of(&wanted.expect).and_then(Value::as_object) else {
            continue;
        };
        let mut content = content.clone();
        match item {
            Item::Volume(_) => {
                push(&mut pod["volumes"], retained(content));
            }
            Item::Variable {
                list, container, ..
            } => {
                let container = entry(&mut pod[*list], container);
                push(&mut container["env"], retained(content));
            }
            // What others set of a probe beside its handler stays.
            Item::Handler {
                list,
                container,
                call,
            } => {
                content.retain(|field, _| HANDLERS.contains(&field.as_str()));
                for handler in HANDLERS {
                    content.entry(handler).or_insert(Value::Null);
                }
                let parts = call.split('/').skip(1);
                let container = entry(&mut pod[*list], container);
                let at = parts.fold(container, |at, part| &mut at[part]);
                *at = Value::Object(content);
            }
            Item::Strategy(field) => {
                content.entry(PARAMETERS).or_insert(Value::Null);
                spec[*field] = Value::Object(content);
            }
        }
    }
    if pod != json!({}) {
        spec["template"] = json!({"spec": pod});
    }
    json!({"spec": spec})
}

/// Content of which nothing that is not named stays.
fn retained(mut content: Map<String, Value>) -> Value {
    let all: Vec<String> = content.keys().cloned().collect();
    content.insert("$retainKeys".to_owned(), json!(all));
    Value::Object(content)
}

fn entry<'a>(list: &'a mut Value, name: &str) -> &'a mut Value {
    let known = list.as_array().into_iter().flatten();
    let mut known = known.map(|item| item.get("name").and_then(Value::as_str));
    let at = known.position(|known| known == Some(name));
    let at = at.unwrap_or_else(|| push(list, json!({"name": name})));
    &mut list[at]
}

/// Returns where it is.
fn push(list: &mut Value, item: Value) -> usize {
    match list {
        Value::Array(all) => {
            all.push(item);
            all.len() - 1
        }
        other => {
            *other = json!([item]);
            0
        }
    }
}

#[cfg(test)]
mod tests;
