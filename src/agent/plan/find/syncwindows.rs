//! F29: windows for syncs that people put on the root's project, while they keep the root from a commit. An Application says nothing
//! of that: it stays as it is, and the controller's log alone has why (argo-cd, `controller/appcontroller.go`).

use serde_json::Value;

use super::Finding;
use crate::agent::engine::Install;
use crate::agent::engine::argocd::{HERE, PROJECT, ROOT};
use crate::agent::plan::argocd;
use crate::agent::plan::fault::Class;
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// So many windows are named.
const NAMED: usize = 5;
const PRUNES: &str = "/spec/syncPolicy/automated/prune";
/// The cluster's own name in Argo CD.
const IN_CLUSTER: &str = "in-cluster";

/// The windows stay: that is how a team freezes its deliveries. When they are open is not worked out, for the root shows it.
pub(super) fn held_up(install: &Install, observed: &Observed) -> Option<Finding> {
    if install.traits.kind != EngineKind::Argocd {
        return None;
    }
    let root = observed.objects.get(&install.sync)?;
    // One that prunes nothing stays behind a commit that only removes something, window or not.
    if root.fields.pointer(PRUNES) != Some(&Value::Bool(true)) {
        return None;
    }
    let commit = argocd::untried(root)?;
    let id = ObjectId::new(Kind::AppProject, &install.namespace, PROJECT);
    let live = observed.objects.get(&id)?;
    let windows = live.fields.pointer("/spec/syncWindows")?.as_array()?;
    let of_root = windows.iter().filter(|w| concerns(w, &install.namespace));
    let named: Vec<String> = of_root.take(NAMED).map(told).collect();
    (!named.is_empty()).then(|| {
        let windows = named.join(", ");
        let text = format!("keeps the root from commit {commit}: syncWindows has {windows}");
        Finding::new(Class::SuspendedByHuman, &id, text).written_by(live)
    })
}

fn told(window: &Value) -> String {
    let text = |name: &str| window.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, schedule, duration) = (text("kind"), text("schedule"), text("duration"));
    format!("{kind} at '{schedule}' for {duration}")
}

/// Whether a window may be one of the root's: any of its lists names that, or each of them where it says so.
fn concerns(window: &Value, namespace: &str) -> bool {
    let lists: [(&str, &[&str]); 3] = [
        ("applications", &[ROOT]),
        ("namespaces", &[namespace]),
        ("clusters", &[HERE, IN_CLUSTER]),
    ];
    let matched = lists.into_iter().filter_map(|(list, names)| {
        let patterns = window.get(list)?.as_array().filter(|all| !all.is_empty())?;
        let mut patterns = patterns.iter().filter_map(Value::as_str);
        Some(patterns.any(|pattern| names.iter().any(|name| may_match(pattern, name))))
    });
    let matched: Vec<bool> = matched.collect();
    if window.get("useAndOperator") == Some(&Value::Bool(true)) {
        !matched.is_empty() && !matched.contains(&false)
    } else {
        matched.contains(&true)
    }
}

/// Whether a pattern can mean a name, by what stands before its first `*` and after its last one. One with other wildcards may mean any.
fn may_match(pattern: &str, name: &str) -> bool {
    if pattern.contains(['?', '[', '{', '\\']) {
        return true;
    }
    let Some((begins, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let ends = rest.rsplit('*').next().unwrap_or_default();
    name.starts_with(begins) && name.ends_with(ends)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_window_is_the_roots_where_a_list_of_it_names_the_root() {
        let elsewhere = json!(["shop", "https://example.com"]);
        for (window, concerned) in [
            (json!({}), false),
            (json!({"applications": []}), false),
            (json!({"applications": elsewhere}), false),
            (json!({"applications": ["shop", ROOT]}), true),
            (json!({"applications": ["lines*"]}), true),
            (json!({"applications": ["*-prod"]}), false),
            (json!({"applications": ["{shop,linesman}"]}), true),
            (json!({"namespaces": ["argo*d"]}), true),
            (json!({"clusters": [IN_CLUSTER]}), true),
            (json!({"clusters": ["https://kubernetes.*"]}), true),
            (json!({"applications": elsewhere, "clusters": ["*"]}), true),
            (
                json!({"applications": elsewhere, "clusters": ["*"], "useAndOperator": true}),
                false,
            ),
            (
                json!({"applications": ["*"], "clusters": ["*"], "useAndOperator": true}),
                true,
            ),
            (json!({"useAndOperator": true}), false),
        ] {
            assert_eq!(concerns(&window, "argocd"), concerned, "{window}");
        }
    }
}
