//! Whether a live object still has the fields that we set, whatever the API server has added to them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

mod added;

pub use added::{additions, bounds};

/// At most this many differences are named; one is enough to act.
const MAX_PATHS: usize = 8;

/// Lists whose items are told apart by these keys, as server-side apply does it.
const KEYED: [(&str, &[&str]); 9] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ports", &["containerPort", "port", "protocol"]),
    ("versions", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey"]),
];

/// Maps that server-side apply takes as one value (`+mapType=atomic`, `+structType=atomic` upstream): one key more and a
/// Service finds no Pod.
const WHOLE: [&str; 3] = ["selector", "podSelector", "namespaceSelector"];

/// Lists of what a NetworkPolicy lets through, each of which holds as a whole (`+listType=atomic` upstream): what a rule has more, it
/// lets through less.
const RULES: [&str; 2] = ["/spec/ingress", "/spec/egress"];

/// Paths at which `live` lacks what `wanted` says. What only `live` has (defaults, other managers' fields) is no
/// difference, except inside lists without keys, in access rules and in selectors, which hold as a whole.
pub fn drift(wanted: &Value, live: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for part in ["labels", "annotations"] {
                    let there = live.pointer(&format!("/metadata/{part}"));
                    if let Some(wanted) = value.get(part) {
                        differ(wanted, there, &format!("/metadata/{part}"), &mut paths);
                    }
                }
            }
            _ => differ(value, live.get(key), &format!("/{key}"), &mut paths),
        }
    }
    paths
}

/// `base` with what only `more` has: fields, and items of lists that are told apart by keys. Any other list is one value.
pub fn merged(base: &Value, more: &Value) -> Value {
    joined(base, more, "")
}

fn joined(base: &Value, more: &Value, at: &str) -> Value {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            let mut all = base.clone();
            for (key, value) in more {
                let whole = match base.get(key) {
                    Some(there) => joined(there, value, key),
                    None => value.clone(),
                };
                all.insert(key.clone(), whole);
            }
            Value::Object(all)
        }
        (Value::Array(base), Value::Array(more)) if !keys_of(at).is_empty() => {
            let keys = keys_of(at);
            let same = |item: &Value, other: &Value| same_item(item, other, keys);
            let both = base.iter().map(|item| {
                let other = more.iter().find(|other| same(item, other));
                other.map_or_else(|| item.clone(), |other| joined(item, other, ""))
            });
            let new = more
                .iter()
                .filter(|other| !base.iter().any(|item| same(item, other)));
            Value::Array(both.chain(new.cloned()).collect())
        }
        _ => base.clone(),
    }
}

/// Keys of a ConfigMap that are not as `known` has them: changed, missing or added.
pub fn settings(known: &Value, live: &Value) -> Vec<String> {
    let there = live.get("data").and_then(Value::as_object);
    let known = known.as_object();
    let of = |map: Option<&Map<String, Value>>, key: &str| map.and_then(|m| m.get(key)).cloned();
    let keys = known.into_iter().chain(there).flat_map(Map::keys);
    let keys: BTreeSet<&String> = keys.collect();
    let differs = keys.into_iter().filter(|k| of(known, k) != of(there, k));
    let paths = differs.map(|key| format!("/data/{}", escaped(key)));
    paths.take(MAX_PATHS).collect()
}

fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn differ(wanted: &Value, live: Option<&Value>, at: &str, paths: &mut Vec<String>) {
    if paths.len() >= MAX_PATHS {
        return;
    }
    let Some(live) = live else {
        if !is_zero(wanted) {
            paths.push(at.to_owned());
        }
        return;
    };
    let field = at.rsplit('/').next().unwrap_or_default();
    match (wanted, live) {
        (Value::Object(_), Value::Object(_)) if WHOLE.contains(&field) => {
            if wanted != live {
                paths.push(at.to_owned());
            }
        }
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                differ(
                    value,
                    live.get(key),
                    &format!("{at}/{}", escaped(key)),
                    paths,
                );
            }
        }
        (Value::Array(wanted), Value::Array(live)) => list(wanted, live, at, paths),
        _ if same_scalar(wanted, live) || is_zero(wanted) && is_zero(live) => {}
        _ => paths.push(at.to_owned()),
    }
}

fn list(wanted: &[Value], live: &[Value], at: &str, paths: &mut Vec<String>) {
    let keys = keys_of(at);
    if !keys.is_empty() && wanted.iter().all(Value::is_object) {
        for item in wanted {
            let name = keys
                .iter()
                .find_map(|k| item.get(*k))
                .map(plain)
                .unwrap_or_default();
            let same = live.iter().find(|l| same_item(item, l, keys));
            let at_item = format!("{at}/{}", escaped(&name));
            if at.ends_with("/volumes") && same.is_some_and(|live| has_another_source(item, live)) {
                paths.push(at_item);
            } else {
                differ(item, same, &at_item, paths);
            }
        }
        return;
    }
    let exact = at == "/rules";
    if wanted.len() != live.len() || exact && wanted != live {
        paths.push(at.to_owned());
        return;
    }
    let before = paths.len();
    for (index, (wanted, live)) in wanted.iter().zip(live).enumerate() {
        differ(wanted, Some(live), &format!("{at}/{index}"), paths);
    }
    let same = || wanted.iter().zip(live).all(|(w, l)| same_rule(w, l));
    if RULES.contains(&at) && paths.len() == before && !same() {
        paths.push(at.to_owned());
    }
}

/// Whether two rules of a NetworkPolicy let through the same.
fn same_rule(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            let same = |key: &String| match (wanted.get(key), live.get(key)) {
                (Some(wanted), Some(live)) => same_rule(wanted, live),
                (Some(only), None) | (None, Some(only)) => is_unsaid(key, only),
                (None, None) => true,
            };
            wanted.keys().chain(live.keys()).all(same)
        }
        (Value::Array(wanted), Value::Array(live)) => {
            let mut both = wanted.iter().zip(live);
            wanted.len() == live.len() && both.all(|(w, l)| same_rule(w, l))
        }
        _ => same_scalar(wanted, live),
    }
}

/// Whether a rule that says this of itself says no more than one that does not. An empty selector takes all there is, and is more than
/// none; a port that names no protocol is one of TCP (kubernetes, `SetDefaults_NetworkPolicyPort`).
fn is_unsaid(key: &str, value: &Value) -> bool {
    let empty = is_zero(value) && !value.is_object();
    empty || key == "protocol" && value == "TCP"
}

/// A volume has one source, and an empty one (`emptyDir: {}`) is a source, too.
fn has_another_source(wanted: &Value, live: &Value) -> bool {
    let of = |volume: &Value, source: &str| volume.get(source).is_some_and(|v| !v.is_null());
    let fields = wanted.as_object().into_iter().flatten();
    let mut sources = fields.filter(|(key, value)| *key != "name" && !value.is_null());
    sources.any(|(source, _)| !of(live, source))
}

fn keys_of(at: &str) -> &'static [&'static str] {
    let field = at.rsplit('/').next().unwrap_or_default();
    KEYED
        .iter()
        .find(|(name, _)| *name == field)
        .map_or(&[], |(_, keys)| *keys)
}

/// Items are the same where every key that the wanted one gives is equal in the live one.
fn same_item(wanted: &Value, live: &Value, keys: &[&str]) -> bool {
    let given = keys.iter().filter_map(|k| wanted.get(*k).map(|v| (*k, v)));
    let mut any = false;
    for (key, value) in given {
        any = true;
        if live.get(key) != Some(value) {
            return false;
        }
    }
    any
}

/// What the API server leaves out of an answer.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => Map::is_empty(map),
    }
}

fn same_scalar(wanted: &Value, live: &Value) -> bool {
    if wanted == live {
        return true;
    }
    match (quantity(&plain(wanted)), quantity(&plain(live))) {
        (Some(wanted), Some(live)) => wanted == live,
        (None, _) | (_, None) => false,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// A Kubernetes quantity in millionths: `1000m` and `1`, `1Gi` and `1024Mi` are the same.
fn quantity(text: &str) -> Option<i128> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let factor: i128 = match suffix {
        "u" => 1,
        "m" => 1_000,
        "" => 1_000_000,
        "k" => 1_000_000_000,
        "M" => 1_000_000_000_000,
        "G" => 1_000_000_000_000_000,
        "T" => 1_000_000_000_000_000_000,
        "Ki" => 1_000_000 << 10,
        "Mi" => 1_000_000 << 20,
        "Gi" => 1_000_000 << 30,
        "Ti" => 1_000_000_i128 << 40,
        _ => return None,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = u32::try_from(fraction.len()).ok().filter(|n| *n <= 6)?;
    let number: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some(number.checked_mul(factor)? / 10_i128.pow(scale))
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
