//! The agent's own objects against the adoption YAML. Pure.

use super::{Class, Finding, Object};
use crate::agent::engine::compare::drift;
use crate::agent::engine::place;
use crate::bundle::ObjectId;
use crate::manifests::{self, EngineNamespaces, scope::Extent};
use serde_json::Value;

/// What the YAML has of them, by place. Left out is what its owner chooses: who comes through the line as what, the
/// agent's Deployment, its Namespace.
pub fn wanted(engines: &EngineNamespaces, extent: Extent) -> Vec<(ObjectId, Value)> {
    let own = manifests::own(engines, extent).into_iter();
    own.filter_map(|object| Some((place(&object)?, object)))
        .collect()
}

/// What is wrong with one of them; none = nothing.
pub fn differs(id: &ObjectId, wanted: &Value, live: Option<&Object>) -> Option<Finding> {
    let Some(live) = live else {
        return Some(Finding::new(Class::AgentDrift, id, "is missing"));
    };
    let paths = drift(wanted, &live.fields);
    // What goes is made again when it is gone.
    if paths.is_empty() || live.deleting.is_some() {
        return None;
    }
    let text = format!("differs at {}", paths.join(", "));
    Some(Finding::new(Class::AgentDrift, id, text).written_by(live))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::agent::plan::project;
    use crate::bundle::Kind;

    fn live(id: &ObjectId, object: &Value) -> Object {
        let live: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        project::object(id.kind, live)
    }

    fn usual(extent: Extent) -> Vec<(ObjectId, Value)> {
        wanted(&EngineNamespaces::default(), extent)
    }

    #[test]
    fn what_the_yaml_says_is_no_drift_and_every_other_field_is() {
        let all: BTreeMap<ObjectId, Value> = usual(Extent::Cluster).into_iter().collect();
        assert_eq!(all.len(), 10, "{all:#?}");
        for (id, object) in &all {
            assert_eq!(differs(id, object, Some(&live(id, object))), None);
            let gone = differs(id, object, None).unwrap();
            assert_eq!(
                (gone.class, gone.evidence.as_str()),
                (Class::AgentDrift, "is missing")
            );
        }
        let policy = all
            .keys()
            .find(|id| id.kind == Kind::NetworkPolicy)
            .unwrap();
        let mut open = all[policy].clone();
        open["spec"]["ingress"] = json!([{}]);
        let found = differs(policy, &all[policy], Some(&live(policy, &open))).unwrap();
        assert!(found.evidence.contains("/spec/ingress"), "{found:?}");
    }

    /// H35: the binding for the whole cluster is nothing that the agent makes again.
    #[test]
    fn where_namespaces_are_covered_reading_is_not_bound_in_the_whole_cluster() {
        let bindings = |extent| -> Vec<String> {
            let all = usual(extent).into_iter();
            let all = all.filter(|(id, _)| id.kind == Kind::ClusterRoleBinding);
            all.map(|(id, _)| id.name).collect()
        };
        assert_eq!(
            bindings(Extent::Cluster),
            ["linesman-agent", "linesman-read"]
        );
        assert_eq!(bindings(Extent::Namespaces), ["linesman-agent"]);
    }

    /// Who may come through the line is the owner's to say, and to take back.
    #[test]
    fn what_its_owner_chooses_is_left_alone() {
        let both = [Extent::Cluster, Extent::Namespaces].map(usual);
        let names: Vec<String> = both.into_iter().flatten().map(|(id, _)| id.name).collect();
        for name in [
            "linesman-scope",
            "linesman-admin",
            "linesman-view",
            "linesman-line",
            "linesman-line-subjects",
        ] {
            assert!(!names.iter().any(|n| n == name), "{name} in {names:?}");
        }
    }
}
