//! Volumes and variables of a controller whose content somebody put in the place of what the engine applied from Git.
//!
//! A volume has one source and a variable one value. Server-side apply takes away nothing that another field manager owns, so
//! the API server finds both side by side and refuses them (422, "may not specify more than 1 volume type"): the engine
//! cannot put its own back, nor any commit that comes after, although the controller may run on with its old Pod.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value, json};

use super::state::Object;
use crate::agent::engine::{Install, Wanted, argocd, flux, is_workload};
use crate::bundle::{Kind, ObjectId};

/// What of a Pod template server-side apply tells apart by name and takes one content of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Volume(String),
    /// Of a container in one of [`CONTAINERS`].
    Variable {
        list: &'static str,
        container: String,
        name: String,
    },
}

const POD: &str = "/spec/template/spec";
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

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
        }
    }
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = list.as_array()?.iter();
    all.find(|item| item.get("name").and_then(Value::as_str) == Some(name))
}

/// Those that an engine applied and of which it owns no more than the name.
pub fn emptied(kind: Kind, entries: &[ManagedFieldsEntry]) -> Vec<Item> {
    if !is_workload(kind) {
        return Vec::new();
    }
    let appliers = [flux::TRAITS.applier, argocd::TRAITS.applier];
    let applied = entries.iter().filter(|e| {
        let engines = e.manager.as_deref().is_some_and(|m| appliers.contains(&m));
        engines && e.operation.as_deref() == Some("Apply")
    });
    let pods = applied.filter_map(|e| {
        let fields = &e.fields_v1.as_ref()?.0;
        fields.pointer("/f:spec/f:template/f:spec")
    });
    pods.flat_map(|pod| {
        let volumes = hollow(pod, "f:volumes").map(Item::Volume);
        let variables = CONTAINERS.into_iter().flat_map(move |list| {
            items(pod, &format!("f:{list}")).flat_map(move |(container, owned)| {
                hollow(owned, "f:env").map(move |name| Item::Variable {
                    list,
                    container: container.clone(),
                    name,
                })
            })
        });
        volumes.chain(variables).collect::<Vec<Item>>()
    })
    .collect()
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

/// Those of an object that have another content than it had when the engine last worked, and not merely less.
pub fn of(install: &Install, id: &ObjectId, live: &Object) -> Vec<Item> {
    let wanted = install.wanted.get(id).filter(|w| w.is_known_whole());
    let Some(wanted) = wanted else {
        return Vec::new();
    };
    let differs = |item: &&Item| {
        let both = item.of(&wanted.expect).zip(item.of(&live.fields));
        both.is_some_and(|(wanted, live)| has_more(wanted, live) && has_more(live, wanted))
    };
    live.emptied.iter().filter(differs).cloned().collect()
}

/// Whether an item has content of a kind that another one has not.
fn has_more(item: &Value, other: &Value) -> bool {
    let content = |of: &Value, field: &str| of.get(field).is_some_and(|v| !v.is_null());
    let mut fields = item.as_object().into_iter().flat_map(Map::keys);
    fields.any(|field| field != "name" && content(item, field) && !content(other, field))
}

/// The strategic merge patch that gives just these the content that they had, and leaves all else as it is.
pub fn patch(wanted: &Wanted, items: &[Item]) -> Value {
    let mut pod = json!({});
    for item in items {
        let Some(content) = item.of(&wanted.expect).and_then(Value::as_object) else {
            continue;
        };
        let mut content = content.clone();
        let retain: Vec<String> = content.keys().cloned().collect();
        content.insert("$retainKeys".to_owned(), json!(retain));
        let list = match item {
            Item::Volume(_) => &mut pod["volumes"],
            Item::Variable {
                list, container, ..
            } => &mut entry(&mut pod[*list], container)["env"],
        };
        push(list, Value::Object(content));
    }
    json!({"spec": {"template": {"spec": pod}}})
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
