//! What agent and line read, by the API server's audit log.

use serde_json::Value;

use super::AGENT;
use crate::support::audit::Mark;
use crate::support::world::World;

const LINE: &str = "system:serviceaccount:linesman:linesman-line";

/// How many reads of agent and line the API server's audit log has; none of them may lie outside of the covered
/// namespaces, the engine's and the agent's own.
pub(crate) fn reads(world: &World, covered: &[&str]) -> usize {
    let events = Mark::beginning(&world.audit).events();
    let events = events.iter().filter(|event| {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let verb = event["verb"].as_str().unwrap_or_default();
        let of_object = event["objectRef"].is_object();
        of_object && [AGENT, LINE].contains(&user) && ["get", "list", "watch"].contains(&verb)
    });
    let mut count = 0;
    let mut outside = Vec::new();
    for event in events {
        count += 1;
        if !is_inside(event, world.namespace(), covered) {
            outside.push(format!(
                "{} {} {}",
                event["user"]["username"], event["verb"], event["requestURI"]
            ));
        }
    }
    outside.sort();
    outside.dedup();
    assert!(outside.is_empty(), "read outside: {outside:#?}");
    assert!(count > 0, "the audit log has no read of agent or line");
    count
}

fn is_inside(event: &Value, engine: &str, covered: &[&str]) -> bool {
    let object = &event["objectRef"];
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, resource, name) = (text("apiGroup"), text("resource"), text("name"));
    // Not in a namespace at all.
    let of_the_cluster = [
        "namespaces",
        "nodes",
        "customresourcedefinitions",
        "clusterroles",
        "clusterrolebindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "clusterversions",
    ];
    // The engine's own kinds, and the agent's own bindings by their names.
    let of_the_engine = group.ends_with(".toolkit.fluxcd.io") || group == "argoproj.io";
    let bindings = [
        "linesman-read",
        "linesman-view",
        "linesman-edit",
        "linesman-admin",
    ];
    let of_the_agent =
        resource == "rolebindings" && (name == "linesman-engine" || bindings.contains(&name));
    let namespace = text("namespace");
    of_the_cluster.contains(&resource)
        || of_the_engine
        || of_the_agent
        || namespace == "linesman"
        || namespace == engine
        || covered.contains(&namespace)
}
