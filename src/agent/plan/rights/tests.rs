use serde_json::json;

use super::*;

fn granted(of: &str, without: impl Fn(&Value) -> bool) -> Vec<Rule> {
    let all = manifests::own(&EngineNamespaces::default(), Extent::Cluster).into_iter();
    let rules = all
        .filter(|o| o["kind"] == json!(of))
        .filter_map(|o| o["rules"].as_array().cloned());
    let rules = rules.flatten().filter(|rule| !without(rule));
    rules.map(|rule| Rule::of(&rule)).collect()
}

fn usual(engines: &[&str], extent: Extent) -> BTreeMap<Place, BTreeSet<Right>> {
    super::needed(&EngineNamespaces::default(), engines, extent)
}

fn needed() -> BTreeMap<Place, BTreeSet<Right>> {
    usual(&["flux-system"], Extent::Cluster)
}

fn lost(place: Place, rules: &[Rule]) -> String {
    let needed = needed().remove(&place).unwrap();
    told(&BTreeMap::from([(place, missing(needed, rules))]))
}

#[test]
fn what_the_yaml_gives_is_enough_for_what_it_gives() {
    let places: Vec<Place> = needed().into_keys().collect();
    let of = |namespace: &str| Place::Namespace(namespace.to_owned());
    assert_eq!(places, [Place::Cluster, of("flux-system"), of("linesman")]);
    let cluster = granted("ClusterRole", |_| false);
    assert_eq!(lost(Place::Cluster, &cluster), "");
    assert_eq!(lost(of("flux-system"), &cluster), "");
    assert_eq!(lost(of("linesman"), &granted("Role", |_| false)), "");
    let before = usual(&[], Extent::Cluster);
    assert_eq!(before.len(), 2, "nothing of a namespace that is not there");
}

#[test]
fn where_namespaces_are_covered_reading_elsewhere_is_not_missed() {
    let place = |extent| usual(&[], extent).remove(&Place::Cluster).unwrap();
    let pods = |extent| place(extent).iter().any(|right| right.resource == "pods");
    assert!(pods(Extent::Cluster) && !pods(Extent::Namespaces));
    let nodes = |right: &Right| right.resource == "nodes" && right.verb == "list";
    assert!(place(Extent::Namespaces).iter().any(nodes));
}

/// F19: the right, the objects and the place, in words that a role is written in.
#[test]
fn a_rule_that_was_taken_is_named_with_its_verbs_objects_and_place() {
    let crds = |rule: &Value| {
        rule["resources"] == json!(["customresourcedefinitions"])
            && rule["verbs"] == json!(["create", "patch"])
    };
    assert_eq!(
        lost(Place::Cluster, &granted("ClusterRole", crds)),
        "create, patch customresourcedefinitions.apiextensions.k8s.io (alerts.notification.toolkit.fluxcd.io, \
         applications.argoproj.io, applicationsets.argoproj.io and 15 more) in the whole cluster"
    );
    let token = |rule: &Value| rule["resources"] == json!(["serviceaccounts/token"]);
    let own = Place::Namespace("linesman".to_owned());
    assert_eq!(
        lost(own, &granted("Role", token)),
        "create serviceaccounts/token (linesman-line) in namespace linesman"
    );
    let log = |rule: &Value| rule["resources"] == json!(["pods/log"]);
    let engine = Place::Namespace("flux-system".to_owned());
    assert_eq!(
        lost(engine.clone(), &granted("ClusterRole", log)),
        "get pods/log in namespace flux-system"
    );
    let all = lost(engine, &[]);
    assert!(all.ends_with("; 25 more") && all.len() < 1000, "{all}");
}

fn right(verb: &str, group: &str, resource: &str, part: &str, name: Option<&str>) -> Right {
    Right {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: part.to_owned(),
        name: name.map(str::to_owned),
    }
}

/// F19: the rights of one kind are asked for by one of them, and no other is taken for given by its answer.
#[test]
fn a_right_is_of_a_kind_by_all_but_its_name() {
    let kind = right("get", "apps", "deployments", "", None);
    for (other, same) in [
        (right("get", "apps", "deployments", "", None), true),
        (right("get", "apps", "deployments", "", Some("a")), true),
        (right("list", "apps", "deployments", "", None), false),
        (right("get", "", "deployments", "", None), false),
        (right("get", "apps", "replicasets", "", None), false),
        (right("get", "apps", "deployments", "scale", None), false),
    ] {
        assert_eq!(other.is_of(&kind), same, "{other:?}");
    }
}

#[test]
fn so_many_rights_are_named_and_the_others_counted() {
    let told = |count: usize| {
        let all = (0..count).map(|n| right("get", "", &format!("kind{n}"), "", None));
        told(&BTreeMap::from([(Place::Cluster, all.collect())]))
    };
    let six: Vec<String> = (0..TOLD)
        .map(|n| format!("get kind{n} in the whole cluster"))
        .collect();
    assert_eq!(told(TOLD), six.join("; "));
    assert_eq!(told(TOLD + 1), format!("{}; 1 more", six.join("; ")));
}

#[test]
fn a_rule_allows_what_it_says_and_no_more() {
    let rule = |verbs: &str, groups: &str, resources: &str, names: &[&str]| {
        Rule::of(&json!({
            "verbs": [verbs], "apiGroups": [groups], "resources": [resources], "resourceNames": names,
        }))
    };
    let get = right("get", "apps", "deployments", "", None);
    let one = right("get", "apps", "deployments", "", Some("a"));
    let scale = right("get", "apps", "deployments", "scale", None);
    for (rule, right, allowed) in [
        (rule("get", "apps", "deployments", &[]), &get, true),
        (rule("get", "apps", "deployments", &[]), &one, true),
        (rule("get", "apps", "deployments", &["a"]), &one, true),
        (rule("get", "apps", "deployments", &["a"]), &get, false),
        (rule("get", "apps", "deployments", &["b"]), &one, false),
        (rule("*", "*", "*", &[]), &get, true),
        (rule("*", "*", "*", &[]), &scale, true),
        (rule("list", "apps", "deployments", &[]), &get, false),
        (rule("get", "", "deployments", &[]), &get, false),
        (rule("get", "apps", "deployments", &[]), &scale, false),
        (rule("get", "apps", "deployments/scale", &[]), &scale, true),
        (rule("get", "apps", "*/scale", &[]), &scale, true),
        (rule("get", "apps", "*/scale", &[]), &get, false),
        (
            rule("get", "apps", "deployments/status", &[]),
            &scale,
            false,
        ),
    ] {
        assert_eq!(rule.allows(right), allowed, "{rule:?} {right:?}");
    }
}
