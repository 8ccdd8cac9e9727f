//! What stands in a field that is not as wanted, and what last known good has there: of those fields of a controller that are no
//! secret anywhere. A variable's value, a Secret and the data of a ConfigMap are never among them.

use std::borrow::Cow;

use serde_json::Value;

use crate::agent::engine::is_workload;
use crate::agent::plan::quarantine::cut;
use crate::agent::plan::scene;
use crate::bundle::Kind;

/// No value is told beyond this.
const MAX_VALUE: usize = 128;
/// An argument that has one of these words may be a secret all the same, or say that the next one is.
const SECRETS: [&str; 7] = [
    "pass",
    "secret",
    "token",
    "credential",
    "auth",
    "-key",
    "apikey",
];

/// The paths with what is known of each, for people.
pub(super) fn told(kind: Kind, paths: &[String], (wanted, live): (&Value, &Value)) -> String {
    let mut text = String::new();
    let mut separator = "";
    for path in paths {
        text += separator;
        text += path;
        let hidden = names_secret(wanted, path) || names_secret(live, path);
        let values = if shows(kind, path) && !hidden {
            both(at(wanted, path), at(live, path))
        } else {
            String::new()
        };
        // The comma within must not look like the next path's.
        separator = if values.is_empty() { ", " } else { "; " };
        text += &values;
    }
    text
}

fn shows(kind: Kind, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let shown = match parts.as_slice() {
        ["spec", "replicas"] | ["spec", "template", "spec", "serviceAccountName"] => true,
        ["spec", "template", "spec", list, _, rest @ ..] => {
            let of_container = matches!(rest, ["image" | "args"] | ["args", _]);
            of_container && matches!(*list, "containers" | "initContainers")
        }
        _ => false,
    };
    shown && is_workload(kind)
}

/// Whether the path is of arguments, one of which may be a secret.
fn names_secret(fields: &Value, path: &str) -> bool {
    let Some((container, _)) = path.rsplit_once("/args") else {
        return false;
    };
    let args = at(fields, &format!("{container}/args")).and_then(Value::as_array);
    let mut args = args.into_iter().flatten().filter_map(Value::as_str);
    args.any(|arg| {
        let low = arg.to_lowercase();
        SECRETS.iter().any(|word| low.contains(word))
    })
}

/// What is at a path of those that a comparison names: items are named by their names.
fn at<'a>(fields: &'a Value, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('/').skip(1);
    parts.try_fold(fields, |value, part| match value {
        Value::Array(items) => {
            let named = |item: &&Value| item.get("name").and_then(Value::as_str) == Some(part);
            let by_index = || items.get(part.parse::<usize>().ok()?);
            items.iter().find(named).or_else(by_index)
        }
        other => other.get(part),
    })
}

fn both(wanted: Option<&Value>, live: Option<&Value>) -> String {
    // Of two lists of arguments, what only one of them has.
    let is = plain(live, wanted);
    let was = plain(wanted, live);
    match (is, was) {
        (Some(is), Some(was)) => format!(": is {is}, was {was}"),
        (Some(is), None) => format!(": is {is}"),
        (None, Some(was)) => format!(": was {was}"),
        (None, None) => String::new(),
    }
}

/// None = there is nothing to tell.
fn plain(value: Option<&Value>, other: Option<&Value>) -> Option<String> {
    let text: Cow<'_, str> = match value? {
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number.to_string().into(),
        Value::Array(items) => {
            let others = other.and_then(Value::as_array);
            let only = |item: &&Value| others.is_none_or(|all| !all.contains(item));
            let only = items.iter().filter(only).filter_map(Value::as_str);
            only.collect::<Vec<_>>().join(" ").into()
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => return None,
    };
    // Once it is cut, a password in it may not look like one.
    let shown = || scene::masked(&text.replace(char::is_control, " "));
    (!text.is_empty()).then(|| cut(&shown(), MAX_VALUE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(replicas: i64, image: &str, args: &[&str]) -> Value {
        let env = json!([{"name": "API_TOKEN", "value": args.join("")}]);
        let container = json!({"name": "manager", "image": image, "args": args, "env": env});
        json!({"spec": {"replicas": replicas, "template": {"spec": {
            "serviceAccountName": image, "containers": [container],
        }}}})
    }

    /// F3, F4, F10: with the mending, what was there was nowhere any more.
    #[test]
    fn a_changed_field_of_a_controller_is_told_with_both_values() {
        let at = |rest: &str| format!("/spec/template/spec/containers/manager/{rest}");
        let replicas = || "/spec/replicas".to_owned();
        let long = "x".repeat(129);
        let most = cut(&long, MAX_VALUE);
        let wanted = controller(1, "a:v1", &["--level=info", "--all"]);
        let live = controller(0, "a:v9", &["--level=debug", "--all"]);
        let more = controller(1, &long, &["--level=info", "--all", "--admin-token=abc"]);
        let less = controller(1, "a\nb", &["--all"]);
        for (kind, paths, live, expected) in [
            (
                Kind::Deployment,
                vec![replicas(), at("image")],
                &live,
                format!(
                    "/spec/replicas: is 0, was 1; {}: is a:v9, was a:v1",
                    at("image")
                ),
            ),
            (
                Kind::StatefulSet,
                vec!["/spec/template/spec/serviceAccountName".to_owned()],
                &live,
                "/spec/template/spec/serviceAccountName: is a:v9, was a:v1".to_owned(),
            ),
            (
                Kind::Deployment,
                vec![at("args/0")],
                &live,
                format!("{}: is --level=debug, was --level=info", at("args/0")),
            ),
            (
                Kind::Deployment,
                vec![at("args")],
                &less,
                format!("{}: was --level=info", at("args")),
            ),
            (Kind::Deployment, vec![at("args")], &more, at("args")),
            (
                Kind::Deployment,
                vec![at("image"), at("env/API_TOKEN/value"), replicas()],
                &more,
                format!(
                    "{}: is {most}, was a:v1; {}, /spec/replicas: is 1, was 1",
                    at("image"),
                    at("env/API_TOKEN/value")
                ),
            ),
            (
                Kind::Deployment,
                vec![at("image")],
                &less,
                format!("{}: is a b, was a:v1", at("image")),
            ),
            (Kind::ConfigMap, vec![replicas()], &live, replicas()),
        ] {
            assert_eq!(told(kind, &paths, (&wanted, live)), expected);
        }
        let none = told(Kind::Deployment, &[replicas()], (&json!({}), &live));
        assert_eq!(none, "/spec/replicas: is 0", "nobody wants a number");
    }

    #[test]
    fn no_password_of_an_argument_is_told() {
        let at = |rest: &str| format!("/spec/template/spec/containers/manager/{rest}");
        let wanted = controller(1, "a:v1", &["--level=info", "--all"]);
        let next = controller(1, "a:v1", &["--requirepass", "abc"]);
        for path in [at("args/1"), at("args")] {
            for both in [(&wanted, &next), (&next, &wanted)] {
                let said = told(Kind::Deployment, std::slice::from_ref(&path), both);
                assert_eq!(said, path);
            }
        }
        let url = format!("--url=https://a:{}@host", "x".repeat(129));
        let linked = controller(1, "a:v1", &[url.as_str(), "--all"]);
        let said = told(Kind::Deployment, &[at("args/0")], (&wanted, &linked));
        let masked = "is --url=https://a:***@host, was --level=info";
        assert_eq!(said, format!("{}: {masked}", at("args/0")));
    }
}
