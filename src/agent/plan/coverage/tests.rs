use serde_json::json;

use super::*;
use crate::wire::api::AccessLevel;

fn scope(namespaces: &[&str], access: AccessLevel) -> Scope {
    Scope {
        namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
        strict: false,
        access,
    }
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

fn bound(namespace: &str, name: &str) -> Bound {
    let binding = binding(name, namespace);
    Bound {
        ours: true,
        role: binding["roleRef"].clone(),
        subjects: binding["subjects"].clone(),
    }
}

/// The API server, as far as it matters here.
fn carry_out(plan: &Plan, seen: &mut Seen) {
    for step in &plan.steps {
        match step {
            Step::Apply(namespace, name) => {
                let made = bound(namespace, name);
                seen.bindings.insert(key(namespace, name), made);
            }
            Step::Delete(namespace, name) => {
                seen.bindings.remove(&key(namespace, name));
            }
        }
    }
}

fn namespaces(names: &[&str]) -> Seen {
    Seen {
        namespaces: names.iter().map(|n| (*n).to_owned()).collect(),
        bindings: BTreeMap::new(),
    }
}

fn there(seen: &Seen) -> Vec<String> {
    let keys = seen.bindings.keys();
    keys.map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect()
}

#[test]
fn a_missing_namespace_is_named_and_covered_when_it_is_there() {
    let scope = scope(&["a", "b"], AccessLevel::View);
    let mut seen = namespaces(&["a", "c"]);
    let first = plan(&scope, &[], &seen);
    assert_eq!(first.missing, ["b"]);
    carry_out(&first, &mut seen);
    assert_eq!(there(&seen), ["a/linesman-read", "a/linesman-view"]);
    seen.namespaces.insert("b".to_owned());
    let second = plan(&scope, &[], &seen);
    let read = Step::Apply("b".to_owned(), "linesman-read".to_owned());
    let view = Step::Apply("b".to_owned(), "linesman-view".to_owned());
    assert_eq!(
        (second.missing.len(), second.steps.clone()),
        (0, vec![read, view])
    );
    carry_out(&second, &mut seen);
    assert_eq!(plan(&scope, &[], &seen), Plan::default());
}

#[test]
fn what_left_the_list_or_the_level_is_taken_away_and_nothing_of_others() {
    let mut seen = namespaces(&["a", "b", "c"]);
    carry_out(
        &plan(&scope(&["a", "b"], AccessLevel::Edit), &[], &seen),
        &mut seen,
    );
    let theirs = Bound {
        ours: false,
        ..bound("c", "linesman-view")
    };
    seen.bindings.insert(key("c", "linesman-view"), theirs);
    let narrower = scope(&["a"], AccessLevel::View);
    carry_out(&plan(&narrower, &[], &seen), &mut seen);
    let left = ["a/linesman-read", "a/linesman-view", "c/linesman-view"];
    assert_eq!(there(&seen), left);
    assert_eq!(plan(&narrower, &[], &seen), Plan::default());
    let wider = plan(&scope(&["a", "c"], AccessLevel::View), &[], &seen);
    assert_eq!(wider.foreign, [key("c", "linesman-view")]);
}

#[test]
fn a_binding_that_was_changed_is_put_right() {
    let scope = scope(&["a"], AccessLevel::View);
    let mut seen = namespaces(&["a"]);
    carry_out(&plan(&scope, &[], &seen), &mut seen);
    let view = key("a", "linesman-view");
    let right = seen.clone();
    seen.bindings.get_mut(&view).unwrap().subjects = json!([]);
    assert_eq!(
        plan(&scope, &[], &seen).steps,
        [Step::Apply("a".to_owned(), "linesman-view".to_owned())]
    );
    carry_out(&plan(&scope, &[], &seen), &mut seen);
    assert_eq!(seen, right);
    seen.bindings.get_mut(&view).unwrap().role["name"] = json!("cluster-admin");
    carry_out(&plan(&scope, &[], &seen), &mut seen);
    carry_out(&plan(&scope, &[], &seen), &mut seen);
    assert_eq!(seen, right);
}

#[test]
fn what_the_agent_made_is_told_by_its_label() {
    let own = binding(READ_ROLE, "a")["metadata"].clone();
    let label = |of: &str| json!({"name": "x", "labels": {"app.kubernetes.io/part-of": of}});
    for (metadata, expected) in [
        (own, true),
        (label("linesman"), true),
        (label("flux"), false),
        (json!({"name": "linesman-read"}), false),
    ] {
        let said = ours(&serde_json::from_value(metadata.clone()).unwrap());
        assert_eq!(said, expected, "{metadata}");
    }
}

/// Where the agent and an engine live it reads in any case, and no group is let in.
#[test]
fn the_agents_own_namespace_and_the_engines_are_read_as_soon_as_they_exist() {
    let strict = Scope {
        strict: true,
        ..scope(&["a"], AccessLevel::View)
    };
    let homes = ["linesman", "flux-system", "argocd"];
    let mut seen = namespaces(&["a", "linesman"]);
    let first = plan(&strict, &homes, &seen);
    assert_eq!(first.missing, [""; 0]);
    carry_out(&first, &mut seen);
    assert_eq!(there(&seen), ["a/linesman-view", "linesman/linesman-read"]);
    seen.namespaces.insert("flux-system".to_owned());
    carry_out(&plan(&strict, &homes, &seen), &mut seen);
    assert_eq!(there(&seen)[1], "flux-system/linesman-read");
    assert_eq!(plan(&strict, &homes, &seen), Plan::default());
}
